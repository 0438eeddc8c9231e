"""A member loses its place only to itself, and to the process at its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.removal import RemovalProofs
from cubecast.protocol.cluster.views import (
    Beacon,
    Depart,
    Doubt,
    Enter,
    Install,
    Outlived,
    View,
    Who,
    genesis,
)
from support.member_scenarios import only_the_member_itself_departs
from support.member_toys import CONFIG, EPOCHS, Flying, Hand, Members, kind


def say(world: Members, source: int, to: int, message: Any) -> None:
    """A member says what the protocol would not have it say."""
    world.flying.append(Flying(source, to, message, world.members[source].seal()))


def test_a_nonce_is_of_one_view_one_uid_and_one_asker() -> None:
    view = genesis({0: Who("a", "0", 0)})
    later = view.changed(view.id._replace(epoch=1), 0, {})
    asked = RemovalProofs("key").about("a", view).nonce
    assert RemovalProofs("key").settled("a", asked, view)
    assert not RemovalProofs("key").settled("b", asked, view)
    assert not RemovalProofs("key").settled("a", asked, later)
    assert not RemovalProofs("another").settled("a", asked, view)
    assert not RemovalProofs("key").settled("a", "", view)
    assert not RemovalProofs("key").settled("a", asked[:-1], view)
    assert not RemovalProofs("key").settled("a", asked, view, "0")


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_proof_for_one_address_removes_no_member_at_another(victim: int) -> None:
    """Node 3 is asked at its own address, and says the nonce for that of another member."""
    world = Members(4)
    say(world, 3, 0, Enter(Who("ghost", "3", 5), -1))
    world.hand_over()
    (asked,) = [one.message for one in world.flying if isinstance(one.message, Doubt)]
    world.lose()
    say(world, 3, 0, Enter(Who("ghost", str(victim), 5), -1, proof=asked.nonce))
    world.settle()
    assert world.masks() == [0b1111] * 4
    assert all(member.view is not None and member.view.epoch == 0 for member in world.members)


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("told", [0, 1, 3])
def test_a_member_cannot_make_another_depart(victim: int, told: int) -> None:
    world = Members(4)
    say(world, 3, told, Depart(f"n{victim}"))
    say(world, 3, told, Depart(f"n{victim}", "0" * 32))
    world.settle()
    assert world.masks() == [0b1111] * 4
    assert all(member.view is not None and member.view.epoch == 0 for member in world.members)
    assert not any(port.of("departed") for port in world.ports)


def test_only_the_member_itself_departs() -> None:
    only_the_member_itself_departs(Member)


def test_the_question_goes_to_the_member_that_is_to_go_and_to_no_other() -> None:
    world = Members(4)
    say(world, 3, 0, Depart("n2"))
    world.hand_over()
    assert [(one.to, type(one.message)) for one in world.flying] == [(2, Doubt)]


def test_a_departure_that_was_passed_on_is_proved_to_the_leader() -> None:
    """Node 3 takes node 0 for dead, node 1 does not: it passes the request on."""
    world = Members(4)
    world.members[3].suspect(0, world.now)
    world.lose(kind("prepare"))
    world.members[3].depart(world.now)
    world.hand_over(kind("depart"))
    world.settle()
    assert world.members[1].marks["departure passed on"] == 1
    assert world.ports[3].of("departed") == [()]
    assert world.masks()[:3] == [0b0111] * 3


def test_a_late_request_of_a_dead_process_evicts_no_member() -> None:
    """It was at the address where the healthy node 1 is now; also the leader has such a past."""
    world = Members(3)
    for address in ("0", "1"):
        for uid in ("ghost", f"n{address}.7"):
            say(world, 2, 0, Enter(Who(uid, address, 5), 1))
    world.settle()
    assert world.masks() == [0b111] * 3
    assert all(member.view is not None and member.view.epoch == 0 for member in world.members)
    assert world.members[0]._agreement is not None
    assert not world.members[0]._agreement._admission.entering


def test_an_old_request_for_an_address_that_is_taken_evicts_no_member() -> None:
    """It came to node 0 when the address was free, and was kept while another led."""
    world = Members(2)
    epochs = world.members[0]._agreement
    assert epochs is not None
    epochs._admission.entering["ghost"] = Enter(Who("ghost", "1", 0), 3)
    epochs.consider(world.now)
    world.settle()
    assert world.masks() == [0b11, 0b11]
    assert epochs.view.epoch == 0


def start_again(world: Members, node: int) -> Member:
    """Another process begins at the address of a node, and asks at node 2's."""
    port = Hand(world, node)
    who = Who(f"again{node}", str(node), 1)
    member = Member(-1, port, view=None, who=who, config=CONFIG, epochs=EPOCHS, seeds=("2",))
    world.ports[node], world.members[node] = port, member
    return member


def test_a_process_that_was_restarted_at_once_is_in_after_a_few_round_trips() -> None:
    """The life before is not suspected: the newcomer proves that it is there instead."""
    world = Members(4)
    member = start_again(world, 1)
    member.on_wake(world.now)
    for _ in range(10):
        world.hand_over()
    assert member.view is not None
    assert member.view.slot_of("again1") is not None
    assert world.masks() == [member.view.mask] * 4
    assert world.now == 0


def test_a_process_that_is_back_while_its_former_life_reports_waits_for_the_next_view() -> None:
    """Node 1 has reported for the view without node 3, and is restarted before all have."""
    world = Members(4)
    world.down.add(3)
    world.suspect(3, 0, 1, 2)

    def without_report(one: Flying) -> bool:
        return not (one.source == 2 and one.message.kind == "report")

    world.settle(without_report, ticks=1)
    again = start_again(world, 1)
    world.settle(without_report, ticks=3)
    world.settle()
    assert world.members[0].marks["newcomer waits for its former life"] == 1
    assert again.view is not None
    assert again.view.mask == 0b0111
    assert again.view.has(again.who.uid)


def test_a_late_request_of_a_former_life_is_not_even_asked_about() -> None:
    """Node 1 is back in its second life when what the first one said arrives."""
    world = Members(3)
    world.suspect(1, 0, 2)
    world.settle(lambda one: 1 not in (one.source, one.to))
    world.settle(ticks=60)
    assert world.masks() == [0b111] * 3
    assert world.members[1].who.uid == "n1.1"
    say(world, 2, 0, Enter(Who("n1", "1", 0), 1))
    world.hand_over()
    assert world.members[0].marks["late entry of a former life"] == 1
    assert not world.flying


def test_a_stranger_with_the_name_of_a_later_life_evicts_no_member() -> None:
    world = Members(4)
    say(world, 3, 0, Enter(Who("n1.1", "9", 9), 1))
    world.settle(lambda one: one.to < 4, ticks=4)
    view = world.members[0].view
    assert view is not None
    assert view.has("n1")


def test_a_newcomer_that_is_restarted_while_it_waits_takes_its_own_place() -> None:
    """It proves that it is there; what waited at its address before is dropped."""
    world = Members(3)
    world.ports.append(Hand(world, 3))
    who = Who("second", "3", 2)
    member = Member(
        -1, world.ports[3], view=None, who=who, config=CONFIG, epochs=EPOCHS, seeds=("0",)
    )
    world.members.append(member)
    say(world, 2, 0, Enter(Who("first", "3", 1), -1))
    world.hand_over(kind("enter"))
    leader = world.members[0]._agreement
    assert leader is not None
    assert list(leader._admission.entering) == ["first"]
    member.on_wake(world.now)
    for _ in range(4):
        world.hand_over(kind("enter", "doubt"))
    assert list(leader._admission.entering) == ["second"]
    assert world.members[0].marks["entry replaced by a later life"] == 1
    world.settle()
    assert world.masks() == [0b1111] * 4


# -- clusters --------------------------------------------------------------------------------------


def named(cluster: str) -> tuple[Members, View]:
    """A cluster of three that has a name."""
    world = Members(3)
    first = genesis({node: Who(f"n{node}", str(node), 0) for node in range(3)}, cluster)
    for node, port in enumerate(world.ports):
        who = first.members[node]
        world.members[node] = Member(node, port, view=first, who=who, config=CONFIG, epochs=EPOCHS)
    return world, first


FOREIGN: list[Callable[[View], Any]] = [
    lambda other: Beacon("x", other),
    lambda other: Install(other.id.ballot, other.id, other, {}, {}),
    lambda other: Enter(Who("x", "9", 0), -1, cluster="there"),
]


@pytest.mark.parametrize("message", FOREIGN, ids=["beacon", "install", "enter"])
@pytest.mark.parametrize("names_us", [False, True])
def test_messages_of_another_cluster_are_ignored(
    message: Callable[[View], Any], names_us: bool
) -> None:
    world, first = named("here")
    members = {slot: Who(f"x{slot}", str(slot), 0) for slot in range(9)}
    if names_us:
        members[1] = first.members[1]
    other = View(first.id._replace(epoch=7), members, "there")
    member = world.members[1]
    assert member.foreign(message(other)) == "there"
    assert member.hear(message(other), "x", world.now) is None
    assert member.marks["heard another cluster"] == 1
    world.settle(lambda one: one.to < 3)
    assert world.masks() == [0b111] * 3
    assert not any(port.of("excluded") for port in world.ports)


def test_a_newcomer_takes_the_name_of_the_cluster_and_keeps_it() -> None:
    world, _ = named("here")
    member = start_again(world, 1)
    assert member.foreign(Beacon("x", genesis({}, "there"))) == ""
    member.on_wake(world.now)
    world.settle()
    assert member.view is not None
    assert member.view.cluster == "here"
    there = Beacon("x", genesis({0: Who("x", "0", 0)}, "there"))
    assert member.foreign(there) == "there"
    assert member.hear(there, "x", world.now) is None
    member.hear(Outlived(member.who.uid), "n0", world.now)
    world.suspect(1, 0, 2)
    world.settle(lambda one: 1 not in (one.source, one.to))
    world.settle(kind("beacon"), ticks=8)
    requests = [one.message for one in world.flying if isinstance(one.message, Enter)]
    assert {one.cluster for one in requests} == {"here"}
    world.settle()
    assert world.masks() == [0b111] * 3


def test_a_node_that_goes_on_alone_stays_in_its_cluster() -> None:
    world, _ = named("here")
    world.suspect(2, 0, 1)
    world.settle(lambda one: 2 not in (one.source, one.to))
    world.settle(lambda one: one.to == 2 and one.message.kind == "beacon", ticks=8)
    world.now += EPOCHS.alone_after
    world.settle(lambda one: False, ticks=4)
    lonely = world.members[2].view
    assert lonely is not None
    assert (lonely.mask, lonely.cluster) == (0b100, "here")
    world.settle()
    assert world.masks() == [0b111] * 3
