"""What a member that lies can do in a topic that it takes part in, and when that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cubecast.protocol.cluster.views import HeldStream, Report
from cubecast.protocol.messages import (
    ROUTE_BITS,
    Ack,
    Answer,
    Frame,
    Parcel,
    Probe,
    Route,
    Suspended,
)
from cubecast.protocol.port import LIFE_BITS, Stream
from support.member_toys import CONFIG, Flying, Members, link

LIAR = 2
"""The parent of node 3 in the tree of node 0."""
Lie = Callable[[Flying], Any]


def party(members: int = 0b1111) -> Members:
    return Members(4, members, config=replace(CONFIG, resend_max=100))


def lying(world: Members, lie: Lie, ticks: int = 5) -> None:
    """Let time pass while what flies is what `lie` makes of it; None is lost."""
    for _ in range(ticks):
        for _ in range(1000):
            lies = [(one, lie(one)) for one in world.flying]
            world.flying = [one._replace(message=said) for one, said in lies if said is not None]
            if not world.hand_over():
                break
        world.settle(lambda _: False, ticks=1)


def dies(world: Members, node: int = LIAR) -> None:
    """All others take it for dead, and are right."""
    world.down.add(node)
    world.lose(lambda one: node in (one.source, one.to))
    world.suspect(node)
    world.settle(ticks=200)
    assert world.masks() == [0b1111 & ~(1 << node)] * 3


def withholding(acknowledges: bool) -> Lie:
    """Nothing of node 0's gets to node 3; perhaps the liar says that all of it did."""

    def lie(one: Flying) -> Any:
        said = one.message
        if link(LIAR, 3)(one) and said.kind in ("pub", "probe"):
            return None
        if one.source == LIAR and isinstance(said, Ack) and said.stream.source == 0:
            covered = said.have if acknowledges else said.covered
            return Ack(said.topic, said.stream, said.route, said.have, covered, 0, said.asked)
        return said

    return lie


def published(world: Members, lie: Lie, most: int) -> int:
    """How many messages node 0 can publish, up to so many."""
    for number in range(most):
        if not world.publish(0, str(number)):
            return number
        lying(world, lie)
    return most


def test_a_relay_that_withholds_messages_stalls_their_publisher_until_it_dies() -> None:
    world = party()
    count = published(world, withholding(acknowledges=False), 200)
    assert count == CONFIG.window
    lying(world, withholding(acknowledges=False), 200)
    assert [len(port.delivered()) for port in world.ports] == [count, count, count, 0]
    assert not world.publish(0, "no credit")
    dies(world)
    assert len(world.ports[3].delivered()) == count, "nothing is lost"
    assert world.publish(0, "goes on")
    world.settle()
    assert world.ports[3].delivered()[-1] == "goes on"


def test_a_relay_that_acknowledges_what_it_withholds_stalls_nothing_after_its_death() -> None:
    """The publisher has forgotten the messages: who lacks them is told, exactly, and goes on."""
    world = party()
    count = published(world, withholding(acknowledges=True), 200)
    assert count == 200
    assert [len(port.delivered()) for port in world.ports] == [count, count, count, 0]
    dies(world)
    assert world.publish(0, "tells")
    world.settle()
    assert world.ports[3].of("gap") == [("t", {Stream(0, 0): (0, count)})]
    assert world.publish(0, "goes on")
    world.settle()
    assert world.ports[3].delivered() == ["goes on"]
    assert world.members[0].core.unstable() == 0  # type: ignore[union-attr]


def calling_slow(node: int, by: int) -> Lie:
    """What `by` acknowledges to node 0 says that `node` does not answer."""

    def lie(one: Flying) -> Any:
        said = one.message
        if one.source == by and isinstance(said, Ack) and said.stream.source == 0:
            known = said.route, said.have, said.covered, said.absent, said.asked
            return Ack(said.topic, said.stream, *known, slow=1 << node)
        return said

    return lie


def leaves(world: Members) -> Any:
    core = world.members[0].core
    assert core is not None
    return core.explain("t", world.now)["leaves"]


def test_a_member_can_call_another_slow_which_is_fed_by_the_publisher_then() -> None:
    """Node 3 is not even below the liar; it misses nothing, and is back in the tree later."""
    world = party()
    world.publish(0, "first")
    lying(world, calling_slow(3, by=1))
    assert leaves(world) == [3]
    world.publish(0, "second")
    world.settle(ticks=CONFIG.leaf_for // 5)
    assert leaves(world) == []
    assert [port.delivered() for port in world.ports] == [["first", "second"]] * 4


def test_a_member_can_have_a_subscriber_passed_over_that_may_miss_messages() -> None:
    """It takes the publisher's credit, and calls the other slow; what that one misses is told."""
    world = party(0b0111)
    world.members[3].subscribe("t", world.now, lossy=True)
    world.settle()

    def nothing(one: Flying) -> Any:
        """Node 1 acknowledges nothing, so that node 0 has no credit."""
        return None if one.source == 1 and isinstance(one.message, Ack) else one.message

    count = published(world, nothing, 200)
    assert count == CONFIG.window
    assert not world.publish(0, "no credit")
    core = world.members[0].core
    assert core is not None
    stream = core.stream_of("t")
    core.on_message(Ack("t", stream, 0, -1, -1, 0, False, slow=1 << 3), 1, world.now)
    world.settle(lambda one: one.source != 3, ticks=10)  # before node 3 can have joined again
    assert world.publish(0, "missed")
    world.settle()
    assert world.ports[3].of("gap") == [("t", {stream: (count, count)})]
    assert world.publish(0, "heard")
    world.settle()
    assert world.ports[3].delivered()[-2:] == [str(count - 1), "heard"]


def test_a_member_can_have_readers_of_its_own_messages_join_the_topic_anew() -> None:
    """It says that it went on without them.  What they miss is told, and they read on."""
    world = party()
    world.publish(LIAR, "first")
    world.settle()
    world.publish(LIAR, "second")
    core = world.members[LIAR].core
    assert core is not None
    core._links.send(1, Suspended("t", Stream(LIAR, 0), 0), world.now)
    world.settle()
    assert world.ports[1].of("joined") == [("t",)]
    assert world.ports[1].of("gap") == [("t", {Stream(LIAR, 0): (1, 1)})]
    world.publish(0, "read")
    world.settle()
    assert world.ports[1].delivered() == ["first", "read"]


def test_a_member_that_takes_up_all_streams_of_a_topic_keeps_others_out_until_it_dies() -> None:
    world = party()
    victim = world.members[1].core
    assert victim is not None
    for generation in range(2 * 4 + 16):
        lies = Stream(LIAR, generation << LIFE_BITS)
        frame = Frame("t", lies, 1, (), Route(0, 0, 0b1111), -1, ("never whole",), 1)
        victim.on_message(frame, LIAR, world.now)
    world.publish(0, "kept out")
    world.settle()
    assert world.ports[3].delivered() == ["kept out"]
    assert world.ports[1].delivered() == []
    assert victim.explain("t", world.now)["dropped"]["too many streams at a time"] > 0
    dies(world)
    assert world.ports[1].delivered() == ["kept out"]


def answering(node: int, **changes: Any) -> Lie:
    """What `node` answers, for itself and those below it, says something else."""

    def lie(one: Flying) -> Any:
        said = one.message
        answers = isinstance(said, Parcel) and isinstance(said.message, Answer)
        if one.source == node and answers:
            return Parcel(said.number, msgspec.structs.replace(said.message, **changes))
        return said

    return lie


def test_a_member_can_have_a_pattern_given_up_until_it_dies() -> None:
    """It says that it has more topics than can be told."""
    world = party()
    lie = answering(LIAR, more=True)
    world.members[0].follow("first", lambda topic: True, world.now)
    lying(world, lie)
    assert world.ports[0].of("followed") == [("first", False)]
    dies(world)
    world.members[0].follow("second", lambda topic: True, world.now)
    world.settle()
    assert world.ports[0].of("followed")[1:] == [("second", True)]


@pytest.mark.parametrize("lies", [False, True])
def test_a_member_can_raise_a_newcomers_cut_by_what_is_published_while_it_joins(lies: bool) -> None:
    """Its `subscribe` has not returned: what is published afterwards, it gets."""
    world = party(0b1110)
    world.publish(1, "before")
    world.settle()
    world.members[0].subscribe("t", world.now)
    world.hand_over(link(0, 1))  # from now on node 1 addresses node 0
    assert world.publish(1, "meanwhile")
    honest = answering(LIAR)
    lie = answering(LIAR, vector=((Stream(1, 0), 1),))

    def late(one: Flying) -> Any:
        """Nodes 2 and 3 have not read it when they answer."""
        read = one.message.kind == "pub" and one.to != 0
        return None if read else (lie if lies else honest)(one)

    lying(world, late)
    world.settle()
    assert ("joined", "t") in world.ports[0].said
    assert not world.ports[0].of("denied")
    world.publish(1, "after")
    world.settle()
    assert world.ports[0].delivered() == (["after"] if lies else ["meanwhile", "after"])


def test_a_member_is_answered_as_often_as_it_asks() -> None:
    world = party()
    core = world.members[0].core
    assert core is not None
    for number in range(1000):
        core.on_message(Probe("t", Stream(1, 0), number), LIAR, world.now)
    assert len(world.flying) == 1000


# -- publishers that are gone ----------------------------------------------------------------------


def holding(last: int, base: int) -> Lie:
    """Node 3 says that it has more of node 0, which is dead, than that published."""
    held = {"t": (HeldStream(Stream(0, 0), last, last, base, last, takes=True),)}

    def lie(one: Flying) -> Any:
        said = one.message
        if one.source == 3 and isinstance(said, Report):
            return msgspec.structs.replace(said, held=held)
        return said

    return lie


def after_the_death_of_its_publisher(lie: Lie, ticks: int) -> Members:
    world = party()
    world.publish(0, "all of it")
    world.settle()
    world.down.add(0)
    world.suspect(0)
    lying(world, lie, ticks)
    return world


def test_a_member_can_have_others_told_of_a_gap_of_who_is_gone_that_is_none() -> None:
    world = after_the_death_of_its_publisher(holding(9, base=9), 60)
    told = [("t", {Stream(0, 0): (1, 9)})]
    assert [port.of("gap") for port in world.ports] == [[], told, told, told]
    world.publish(1, "goes on")
    world.settle()
    assert [port.delivered()[-1] for port in world.ports[1:]] == ["goes on"] * 3


def test_a_member_can_invent_messages_of_who_is_gone() -> None:
    """It says that it alone has them, so it is to send them to the others."""
    world = after_the_death_of_its_publisher(holding(1, base=0), 3)
    view = world.members[2].view
    assert view is not None
    route = Route((view.epoch << ROUTE_BITS) + 1, 1, 0b1110)
    lie = Frame("t", Stream(0, 0), 1, (), route, 0, ("lie",), 1)
    world.members[2].on_message(lie, 3, world.now)
    world.settle(ticks=100)
    assert world.ports[2].delivered() == ["all of it", "lie"]
    world.publish(1, "goes on")
    world.settle()
    assert [port.delivered()[-1] for port in world.ports[1:]] == ["goes on"] * 3
