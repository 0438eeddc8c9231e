"""What a member that lies about views can do, for how long, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cubecast.protocol.cluster.views import (
    Ballot,
    Beacon,
    Enter,
    Install,
    Stuck,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.port import NodeId, Stream
from support import member_toys
from support.member_toys import EPOCHS, Flying, Members
from support.patient_members import BOUND, TICK, mute, newcomer, world_of

LIAR = 2
GHOST = 9


def members_of(world: Members) -> Mapping[NodeId, Who]:
    """The members in the view of node 1, which is honest."""
    view = world.members[1].view
    assert view is not None
    return view.members


def tell(world: Members, by: int, members: Mapping[NodeId, Who], name: int) -> None:
    """A member says that the next view has these members, and that `name` decided it."""
    view = world.members[1].view
    assert view is not None
    number = ViewId(view.epoch + 1, Ballot(view.id.ballot.round + 1, name))
    lie = Install(number.ballot, view.id, View(number, members, view.cluster), {}, {})
    for slot in view.members:
        if slot < len(world.members) and slot not in world.down:
            member = world.members[slot]
            member.on_packet(lie, by, world.members[by].seal(), world.now)


def exists(one: Flying) -> bool:
    return one.to < GHOST


def idle(one: Flying) -> bool:
    """What would make node 0 lead in earnest does not get to it."""
    return one.to != 0 or not isinstance(one.message, Enter | Stuck)


# -- the leader ------------------------------------------------------------------------------------


def test_a_leader_can_keep_a_dead_member_in_view_after_view_until_it_dies_itself() -> None:
    """The others cannot tell whether it hears that one."""
    world = world_of(4)
    world.down.add(3)
    world.suspect(3, 1, 2)
    for step in range(6 * BOUND // TICK):
        if step % 20 == 0:
            tell(world, 0, members_of(world), name=0)
        world.settle(idle, ticks=1)
        world.lose(lambda one: not idle(one))
        assert world.masks() == [0b1111] * 3
    assert not any(mute(world, node) for node in range(3))
    world.down.add(0)
    world.suspect(0, 1, 2)
    world.settle(ticks=40)
    assert world.masks() == [0b0110] * 2


def test_a_leader_can_add_a_member_that_does_not_exist_until_it_is_suspected() -> None:
    world = world_of(4)
    tell(world, 0, {**members_of(world), GHOST: Who("ghost", "90", 1)}, name=0)
    world.settle(exists, ticks=5)
    assert world.masks() == [0b1111 | 1 << GHOST] * 4
    for member in world.members:
        member.suspect(GHOST, world.now)
    world.settle(exists, ticks=40)
    assert world.masks() == [0b1111] * 4


def test_a_leader_can_leave_a_newcomer_out_by_views_in_anothers_name_while_it_tells_them() -> None:
    """Such views do not count as the leader's: nobody calls it mute."""
    world = world_of(3)
    joiner, without = newcomer(world, 1), dict(members_of(world))
    for step in range(6 * BOUND // TICK):
        if step % 20 == 0:
            tell(world, 0, without, name=LIAR)
        world.settle(idle, ticks=1)
        world.lose(lambda one: not idle(one))
        assert joiner.view is None
    assert not any(mute(world, node) for node in range(4))
    world.down.add(0)
    world.suspect(0, 1, 2)
    world.settle(ticks=40)
    assert joiner.view is not None


# -- any member ------------------------------------------------------------------------------------


def test_a_member_can_have_the_leader_begin_changes_of_nothing() -> None:
    world = world_of(3)
    for count in range(1, 6):
        view = world.members[LIAR].view
        assert view is not None
        world.members[LIAR].send(0, Stuck(view.id))
        world.settle(ticks=10)
        assert [member.view and member.view.epoch for member in world.members] == [count] * 3
    assert world.masks() == [0b111] * 3
    world.settle(ticks=100)
    assert [member.view and member.view.epoch for member in world.members] == [5] * 3


@pytest.mark.parametrize("name", [0, LIAR], ids=["the leader's name", "its own name"])
def test_a_member_can_leave_a_newcomer_out_by_views_that_it_tells_before_each_of_the_leaders(
    name: int,
) -> None:
    """In the leader's name they have it called mute, though it is honest; in its own they do not.

    What ends it is the death of the liar, or that it stops.
    """
    world = world_of(4)
    joiner, without = newcomer(world, 1), dict(members_of(world))
    for _ in range(3 * BOUND // TICK):
        for _ in range(3):
            agreement = world.members[0]._agreement
            if agreement is not None and agreement.attempt is not None:
                tell(world, LIAR, without, name)
            world.hand_over()
        world.settle(lambda _: False, ticks=1)
        assert joiner.view is None
        if mute(world, 1):
            break
    assert [slot for slot, _ in mute(world, 1)] == ([0] if name == 0 else [])
    if name == LIAR:
        world.settle(ticks=20)
        assert joiner.view is not None


# -- a former member -------------------------------------------------------------------------------


def test_a_former_member_at_its_address_can_have_nodes_go_on_alone_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it is in a view of three hundred, and lets no node in.

    Each time the others are alone after `alone_after`, and find each other.
    """
    monkeypatch.setattr(member_toys, "EPOCHS", replace(EPOCHS, alone_after=1000))
    world = Members(3)
    world.down.add(LIAR)
    world.suspect(LIAR)
    world.settle(ticks=10)
    assert world.masks() == [0b11] * 2
    names = {slot: Who(f"nobody{slot}", f"9{slot}", 1) for slot in range(10, 310)}
    for life in ("n2.1", "n2.2"):
        view = View(ViewId(1, Ballot(1, 0)), {0: Who(life, "2", 1), **names})
        start = world.now
        for member in world.members[:2]:
            member.hear(Beacon(life, view), life, world.now, "2")
        assert world.masks() == [None] * 2
        while world.masks() != [0b11] * 2:
            assert world.now - start < 2000
            world.settle(exists, ticks=1)
            world.lose(lambda one: not exists(one))
        assert world.now - start > 1000


# -- newcomers that do not exist -------------------------------------------------------------------


def test_a_member_can_have_readers_of_a_topic_look_at_each_stream_of_an_invented_past() -> None:
    """They are told of gaps that are none, and keep two numbers for each stream."""
    world = Members(3)
    world.members[1].subscribe("t", world.now)
    world.settle()
    past = tuple((Stream(slot, 9), 7) for slot in range(3, 503))
    ghost = Enter(Who("ghost", "90", 1), -1, {"t": past})
    world.members[0].on_packet(ghost, LIAR, world.members[LIAR].seal(), world.now)
    for _ in range(40):
        world.settle(exists, ticks=1)
        world.lose(lambda one: not exists(one))
    core = world.members[1].core
    assert core is not None
    assert {stream for stream, _ in past} <= core.memberships["t"].core.front.delivered.keys()
    assert world.ports[1].of("gap")
