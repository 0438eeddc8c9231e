"""Lies about views, by hand: numbers that cannot be, ballots and objections without end, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.protocol.cluster.belief import (
    BALLOTS_OF_OTHERS,
    ENTRY_LIMIT,
    LEAP_LIMIT,
    MAX_EPOCH,
    MAX_LEAP,
    MAX_OBJECTIONS,
    MAX_PLACES,
    MAX_PUSH,
    MAX_ROUNDS,
    SHORT_LEAP,
    AddressHistory,
    leap,
)
from cubecast.protocol.cluster.callers import MAX_CALLERS, Callers
from cubecast.protocol.cluster.member import PATIENT_REQUESTS, Member
from cubecast.protocol.cluster.views import (
    Absent,
    Ballot,
    Beacon,
    Clusterwide,
    Enter,
    Install,
    Installed,
    Outlived,
    Prepare,
    Report,
    Stuck,
    View,
    ViewId,
    Who,
    genesis,
)
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import ROUTE_BITS
from support.agreement_toys import CONFIG as TOY_CONFIG
from support.agreement_toys import Toys
from support.member_toys import CONFIG, EPOCHS, Hand, Members, kind


def view_at(epoch: int, round_: int = 1, *nodes: int) -> View:
    """A view of this number; its members are where their slots say."""
    members = {node: Who(f"n{node}", str(node), 0) for node in nodes or (0, 1, 2)}
    return View(ViewId(epoch, Ballot(round_, 0)), members)


# -- numbers ---------------------------------------------------------------------------------------


def lead_away(world: Members, life: int) -> None:
    """A former member has the others go over to a view of its own, as far ahead as they believe."""
    honest = world.members[:2]
    liar, view = Who(f"n2.{life}", "2", life), honest[0].view
    assert view is not None
    number = ViewId(view.epoch + MAX_LEAP - 1, Ballot(view.id.ballot.round + 1, 2))
    if leap(View(number, {}), view):
        number = ViewId(LEAP_LIMIT - 2, number.ballot)
    names = {slot: Who(f"nobody{slot}", f"9{slot}", 1) for slot in range(10, 20)}
    for member in honest:
        member.hear(Beacon(liar.uid, View(number, {2: liar, **names})), liar.uid, world.now, "2")
    assert world.masks() == [None] * 2
    asked = {one.source: one.message for one in world.flying if one.message.kind == "enter"}
    world.flying.clear()
    while len(asked) < 2:
        world.settle(lambda one: False, ticks=1)
        asks = [one for one in world.flying if one.to == 2 and one.message.kind == "enter"]
        asked.update((one.source, one.message) for one in asks)
        world.flying.clear()
    members = {2: liar, **{slot: enter.who for slot, enter in asked.items()}}
    place = View(ViewId(number.epoch + 1, Ballot(number.ballot.round + 1, 2)), members)
    for member in honest:
        member.hear(Install(place.id.ballot, number, place, {}, {}), liar.uid, world.now, "2")
    assert world.masks() == [0b111] * 2
    world.suspect(2)
    world.settle(lambda one: one.to < 2, ticks=5)
    world.flying.clear()


def test_the_next_honest_step_can_always_be_said() -> None:
    """A former member brings the cluster to the last epoch that leaps lead to: then it goes on.

    Half a billion views can follow there, nodes come in and come back, and messages are heard.
    """
    assert MAX_EPOCH - 1 << ROUTE_BITS < 1 << 62
    assert MAX_EPOCH - ENTRY_LIMIT >= 1 << 29
    world = Members(3)
    world.down.add(2)
    world.suspect(2)
    world.settle(ticks=10)
    for life in range(1, 2 * LEAP_LIMIT // MAX_LEAP):
        lead_away(world, life)
        view = world.members[0].view
        assert view is not None
        if view.epoch >= LEAP_LIMIT:
            break
    assert LEAP_LIMIT <= view.epoch < LEAP_LIMIT + 2
    world.ports[2] = Hand(world, 2)
    world.members[2] = Member(
        2, world.ports[2], view=None, who=Who("new", "2", 1), config=CONFIG, epochs=EPOCHS,
        seeds=["0"], now=world.now,
    )  # fmt: skip
    world.down.clear()
    world.settle()
    assert world.masks() == [0b111] * 3, "a newcomer came in"
    world.suspect(1, 0)
    world.settle(ticks=80)
    assert world.masks() == [0b111] * 3
    assert world.members[1].marks["returned"] > life, "it was excluded, and came back"
    for member in world.members:
        member.subscribe("room", world.now)
    world.settle()
    for node in range(3):
        assert world.publish(node, f"by {node}", "room")
        world.settle()
    heard = [port.delivered("room") for port in world.ports]
    assert heard == [["by 0", "by 1", "by 2"]] * 3


@pytest.mark.parametrize(
    ("view", "since"),
    [
        (view_at(ENTRY_LIMIT), None),
        (view_at(ENTRY_LIMIT), view_at(ENTRY_LIMIT - 1)),
        (view_at(LEAP_LIMIT), view_at(LEAP_LIMIT - SHORT_LEAP - 1)),
        (view_at(1, MAX_ROUNDS + 1), None),
        (view_at(8 + MAX_LEAP), view_at(7)),
        (view_at(8, 1 + 8 * MAX_ROUNDS), view_at(7, 1)),
    ],
)
def test_impossible_leaps_of_views_are_found(view: View, since: View | None) -> None:
    assert leap(view, since)


@pytest.mark.parametrize(
    ("view", "since"),
    [
        (view_at(ENTRY_LIMIT - 1), None),
        (view_at(LEAP_LIMIT - 1), view_at(LEAP_LIMIT - MAX_LEAP)),
        (view_at(LEAP_LIMIT + SHORT_LEAP), view_at(LEAP_LIMIT)),
        (view_at(1, MAX_ROUNDS), None),
        (view_at(7 + MAX_LEAP), view_at(7)),
        (view_at(8, 8 * MAX_ROUNDS), view_at(7, 1)),
        (view_at(3, 3 * MAX_ROUNDS), view_at(7, 1)),
        (view_at(3, 1), view_at(LEAP_LIMIT, 99)),
    ],
)
def test_leaps_of_honest_nodes(view: View, since: View | None) -> None:
    """A node that missed a million views, and one that a liar had brought up."""
    assert not leap(view, since)


def after(
    view: View, epoch: int, cluster: str = "", round_: int = 1, named: int = 0, slot: int = 0
) -> Install:
    """A next view; `named`: of another ballot than that under which it is told."""
    ballot, name = Ballot(round_, slot), Ballot(named or round_, slot)
    return Install(ballot, view.id, View(ViewId(epoch, name), view.members, cluster), {}, {})


@pytest.mark.parametrize(
    "lie",
    [
        after(view_at(0, 0), 2),
        after(view_at(0, 0), MAX_EPOCH - 1),
        after(view_at(0, 0), 1, "another"),
        after(view_at(0, 0), 1, round_=MAX_LEAP + 2),
        after(view_at(0, 0), 1, named=MAX_LEAP + 2),
        after(view_at(0, 0), 1, slot=3),
        after(view_at(5, 5), MAX_LEAP + 1),
    ],
)
@pytest.mark.parametrize("how", ["install", "report"])
def test_a_view_that_cannot_be_the_next_is_refused_however_it_is_told(
    lie: Install, how: str
) -> None:
    toys = Toys(3)
    epochs = toys.toys[0].epochs
    before = epochs.view
    epochs.on_stuck(Stuck(before.id), 1, 0)
    assert epochs.attempt is not None
    ballot = epochs.attempt.ballot
    tell: dict[str, Callable[[], object]] = {
        "install": lambda: epochs.on_install(lie, 0),
        "report": lambda: epochs.on_report(Report(ballot, ballot, lie, {}), 2, 0),
    }
    with pytest.raises(ProtocolError):
        tell[how]()
    assert epochs.view is before
    toys.come_to_rest()
    assert toys.views() == {frozenset({0, 1, 2})}


def test_a_view_that_cannot_be_told_is_not_gone_over_to() -> None:
    """A waiting newcomer may be the reason: then the same attempt ends in a view without it."""
    toys = Toys(3)
    leader = toys.toys[0]
    large = Who("large", "9", 1)

    def can_tell(message: Clusterwide) -> bool:
        return not (isinstance(message, Install) and message.view.has(large.uid))

    leader.can_tell = can_tell  # type: ignore[method-assign]
    before = leader.epochs.view
    leader.epochs.on_enter(Enter(large, -1), 0)
    toys.flying = [one for one in toys.flying if one[1] != 9]
    toys.drain()
    assert leader.marks["newcomers too large for a view"] == 1
    assert leader.marks["half of the newcomers left for a later view"] == 1
    assert not leader.doubts, "it said nothing large"
    assert leader.epochs.view.epoch == before.epoch + 1
    toys.come_to_rest()
    assert toys.views() == {frozenset({0, 1, 2})}
    assert leader.epochs.view.epoch == 1


def test_a_view_that_cannot_be_told_without_newcomers_either_is_tried_again() -> None:
    toys = Toys(3)
    leader = toys.toys[0]
    leader.can_tell = lambda message: toys.now > 0  # type: ignore[method-assign]
    before = leader.epochs.view
    toys.suspect(0, 2)
    toys.drain()
    assert leader.marks["view that cannot be told"] == 1
    assert leader.epochs.view is before
    toys.toys[2].crashed = True
    toys.come_to_rest()
    assert toys.views() == {frozenset({0, 1})}


# -- ballots without end ---------------------------------------------------------------------------


def answer_prepares(toys: Toys, liar: int, answer: Callable[[Prepare, int], None]) -> None:
    """Deliver everything, but what the liar is asked."""
    while toys.flying:
        source, to, message = toys.flying[0]
        if to == liar:
            toys.flying.pop(0)
            if isinstance(message, Prepare):
                answer(message, source)
        else:
            toys.hand_over(0)


def test_a_member_that_objects_to_every_change_is_left_out() -> None:
    toys = Toys(3)
    epochs = toys.toys[0].epochs

    def object_to(prepare: Prepare, leader: int) -> None:
        higher = Ballot(prepare.ballot.round + 1, 2)
        toys.flying.append((2, leader, Report(prepare.ballot, higher, None, {})))

    epochs.on_stuck(Stuck(epochs.view.id), 1, 0)
    for _ in range(40 * TOY_CONFIG.answer_after):
        answer_prepares(toys, 2, object_to)
        toys.tick(1)
        if 2 not in epochs.view.members:
            break
    assert sorted(epochs.view.members) == [0, 1]
    assert toys.toys[0].marks["went on without who objects"] == 1
    assert toys.toys[0].marks["gave way"] == MAX_OBJECTIONS
    assert [uid for uid, _ in toys.toys[0].doubts] == ["n2"]


def test_an_objection_that_cannot_be_meant_is_as_good_as_silence() -> None:
    toys = Toys(3)
    epochs = toys.toys[0].epochs

    def object_to(prepare: Prepare, leader: int) -> None:
        far = Ballot(prepare.ballot.round + MAX_LEAP + 1, 2)
        toys.flying.append((2, leader, Report(prepare.ballot, far, None, {})))

    epochs.on_stuck(Stuck(epochs.view.id), 1, 0)
    for _ in range(4 * TOY_CONFIG.answer_after):
        answer_prepares(toys, 2, object_to)
        toys.tick(1)
    assert sorted(epochs.view.members) == [0, 1]
    assert toys.toys[0].marks["objection that cannot be meant"] > 0
    assert epochs.promised.round < 10


def test_a_member_that_takes_ballot_after_ballot_delays_views_for_a_bounded_time() -> None:
    """It takes the lead and does nothing with it; the others follow it a few times."""
    toys = Toys(3)
    first = toys.toys[0].epochs.view.id
    for round_ in range(1, 4 * BALLOTS_OF_OTHERS):
        for to in (0, 1):
            toys.flying.append((2, to, Prepare(Ballot(10 * round_, 2), first, 0b111)))
        answer_prepares(toys, 2, lambda *_: None)
    assert [toy.epochs.promised.round for toy in toys.toys[:2]] == [10 * BALLOTS_OF_OTHERS] * 2
    assert all(toy.marks["one ballot too many"] > 1 for toy in toys.toys[:2])
    assert all(len(toy.doubts) == 1 for toy in toys.toys[:2])
    for _ in range(6 * TOY_CONFIG.answer_after):
        answer_prepares(toys, 2, lambda *_: None)
        toys.tick(1)
    assert [sorted(toy.epochs.view.members) for toy in toys.toys[:2]] == [[0, 1]] * 2


def test_a_ballot_that_cannot_be_meant_is_not_followed() -> None:
    toys = Toys(3)
    epochs = toys.toys[0].epochs
    epochs.on_prepare(Prepare(Ballot(MAX_PUSH + 1, 2), epochs.view.id, 0b111), 2, 0)
    assert epochs.promised == epochs.view.id.ballot
    assert not toys.flying
    assert toys.toys[0].marks["ballot that cannot be meant"] == 1
    epochs.on_prepare(Prepare(Ballot(MAX_PUSH // 2, 2), epochs.view.id, 0b111), 2, 0)
    assert epochs.promised == Ballot(MAX_PUSH // 2, 2)


# -- other views -----------------------------------------------------------------------------------


def larger(*known: Who) -> View:
    """A view that outranks every other here; only these were ever heard of."""
    names = {slot: Who(f"nobody{slot}", f"9{slot}", 1) for slot in range(10, 310)}
    return View(ViewId(1, Ballot(1, 0)), {**dict(enumerate(known)), **names})


def said(world: Members, node: int) -> list[tuple[str, Any]]:
    """The messages a node has sent, each with its receiver."""
    return [(str(one.to), one.message) for one in world.flying if one.source == node]


def test_a_larger_view_of_strangers_moves_no_node_and_is_answered() -> None:
    """The answer says that no node of it is known here: one there that knows us may come."""
    world = Members(3)
    stranger = Who("x", "99", 1)
    for at in ("", "99"):
        answer = world.members[0].hear(Beacon("x", larger(stranger)), "x", world.now, at)
        world.now += EPOCHS.repeat_after
        assert isinstance(answer, Beacon)
        assert answer.alien
    assert not said(world, 0)
    assert world.masks() == [0b111] * 3
    assert world.members[0].marks["view of strangers"] == 2


def test_a_larger_view_with_known_names_is_asked_about_at_their_addresses() -> None:
    world = Members(3)
    view = larger(Who("x", "99", 1), Who("n2.1", "2", 1))
    assert world.members[0].hear(Beacon("x", view), "x", world.now) is None
    assert [(to, message.uid) for to, message in said(world, 0)] == [("2", "n0")]
    assert world.masks() == [0b111] * 3


def test_a_beacon_about_another_is_a_members_affair_and_a_reason_to_ask() -> None:
    world = Members(3)
    view = larger(Who("x", "99", 1))
    assert world.members[0].hear(Beacon("x", view), "y", world.now) is None
    assert world.members[0].marks["disbelieved"] == 1
    assert isinstance(world.members[0].hear(Beacon("x", view), "n1", world.now), Beacon)
    assert world.masks() == [0b111] * 3


def test_a_beacon_that_cannot_be_is_not_believed_of_a_member() -> None:
    """It is not in the view that it tells of, or that view is too far."""
    world = Members(3)
    lies = larger(Who("x", "99", 1)), view_at(LEAP_LIMIT, 1, 1), view_at(1, MAX_ROUNDS + 9, 1)
    for number, view in enumerate(lies, 1):
        assert world.members[0].hear(Beacon("n1", view), "n1", world.now, "1") is None
        assert world.members[0].marks["beacon that cannot be"] == number
    assert world.masks() == [0b111] * 3


def test_a_smaller_view_of_strangers_is_called_here_the_way_it_came() -> None:
    world = Members(3)
    small = View(ViewId(1, Ballot(1, 0)), {0: Who("x", "99", 1)})
    answer = world.members[0].hear(Beacon("x", small), "x", world.now)
    assert answer == Beacon("n0", world.members[0].view)
    assert not said(world, 0), "no node is dialled for it"
    assert world.members[0].marks["called a stranger here"] == 1


def test_a_former_member_is_believed_where_it_was() -> None:
    """That much it can do: it says where it was that it is in a larger view."""
    world = Members(3)
    world.down.add(2)
    world.suspect(2)
    world.settle(ticks=10)
    assert world.masks() == [0b11] * 2
    view = larger(Who("n2.1", "2", 1))
    assert world.members[0].hear(Beacon("n2.1", view), "n2.1", world.now) is None
    assert world.masks() == [0b11] * 2, "it may come from anywhere"
    world.members[0].hear(Beacon("n2.1", view), "n2.1", world.now, "2")
    assert world.masks()[0] is None
    assert ("excluded",) in world.ports[0].said


def pauses_between_calls(alien: bool) -> list[int]:
    """How often `alone_after` passes until a node follows the next call to a view that is not."""
    world = Members(3)
    world.down.add(2)
    world.suspect(2)
    world.settle(ticks=10)
    called, back = world.members[0], world.now
    pauses: list[int] = []
    while len(pauses) < 6:
        view = larger(Who("n2.1", "2", 1))
        called.hear(Beacon("n2.1", view, alien), "n2.1", world.now, "2")
        if called.view is None:
            pauses.append((world.now - back) // EPOCHS.alone_after)
            world.suspect(0, 1)  # its former life is silent
            world.settle(lambda one: 2 not in (one.source, one.to), ticks=10)
            assert world.masks() == [0b11] * 2
            back = world.now
        world.now += EPOCHS.alone_after // 4
    return pauses


def test_a_former_member_that_calls_nodes_in_vain_is_followed_less_and_less() -> None:
    """Each time the node gets back to the other one, and to no view with who called it."""
    for alien in (False, True):
        assert pauses_between_calls(alien) == [0, 0, 1, 2, 4, 4]


def test_a_former_member_whose_view_there_is_may_call_again() -> None:
    callers, there = Callers(100), View(ViewId(1, Ballot(1, 0)), {0: Who("x", "here", 1)})
    for now in range(3):
        callers.follow("here")
        callers.arrived(genesis({0: Who("a", "a", 0)}), now)
    assert not callers.may_call("here", 3)
    assert callers.may_call("there", 3)
    callers.follow("here")
    callers.arrived(there, 4)
    assert callers.may_call("here", 4)


def test_a_bounded_number_of_callers_is_remembered() -> None:
    callers, alone = Callers(100), genesis({0: Who("a", "a", 0)})
    for number in range(MAX_CALLERS + 1):
        for _ in range(2):
            callers.follow(str(number))
            callers.arrived(alone, 0)
    assert callers.may_call("0", 1)
    assert not callers.may_call("1", 1)


def test_a_former_member_at_its_address_that_knows_none_of_us_is_given_way_to() -> None:
    """Its view is smaller, but no node there can believe us."""
    world = Members(3)
    world.down.add(2)
    world.suspect(2)
    world.settle(ticks=10)
    alone = View(ViewId(2, Ballot(3, 2)), {2: Who("n2.1", "2", 1)})
    for at in ("", "1"):
        world.members[0].hear(Beacon("n2.1", alone, alien=at == ""), "n2.1", world.now, at)
        assert world.masks() == [0b11] * 2
    world.members[0].hear(Beacon("n2.1", alone, alien=True), "n2.1", world.now, "2")
    assert world.members[0].marks["gave way to who knows none of us"] == 1
    assert world.masks()[0] is None


def test_a_view_by_who_is_no_member_is_not_gone_over_to() -> None:
    world = Members(3)
    for view in (view_at(1), view_at(9, 9)):
        install = Install(view.id.ballot, ViewId(view.epoch - 1, Ballot(0, 0)), view, {}, {})
        assert world.members[0].hear(install, "x", world.now, "2") is None
    assert world.members[0].marks["view by a stranger"] == 2
    assert world.masks() == [0b111] * 3
    mine = world.members[0].view
    assert mine is not None
    again = Install(mine.id.ballot, mine.id, mine, {}, {})
    assert world.members[0].hear(again, "x", world.now) == Installed(mine.id), "no news"


def test_a_member_that_tells_of_a_later_view_has_a_node_come_back() -> None:
    """That much it can do.  The node asks those it knows first, and they take it back.

    If the node led, the others first have to notice that its former life is silent.
    """
    world = Members(3)
    uid = world.members[2].who.uid
    later = View(ViewId(5, Ballot(5, 1)), {9: Who("x", "99", 1), 1: Who("n1", "1", 0)})
    lie = Install(later.id.ballot, ViewId(4, Ballot(4, 1)), later, {}, {})
    world.members[2].hear(lie, "n1", world.now)
    assert world.members[2].marks["left behind"] == 1
    assert world.masks() == [0b111, 0b111, None]
    assert [one.to for one in world.flying if one.message.kind == "enter"] == [1]
    world.settle(ticks=20)
    assert world.masks() == [0b111] * 3
    assert world.members[2].who.uid == f"{uid}.1"


# -- in no view ------------------------------------------------------------------------------------


class Newcomer:
    """One node that asks at address 1 for a place, and what it says."""

    def __init__(self) -> None:
        self.world = Members(0)
        self.port = Hand(self.world, 7)
        who = Who("new", "7", 1)
        self.member = Member(
            -1, self.port, view=None, who=who, config=CONFIG, epochs=EPOCHS, seeds=("1",)
        )
        self.world.members = [self.member] * 8

    def asked(self) -> list[int]:
        """Where it has asked since the last time."""
        flying, self.world.flying = self.world.flying, []
        return [one.to for one in flying if isinstance(one.message, Enter)]


def place_for(uid: str, view: View) -> Install:
    members = {**view.members, 7: Who(uid, "7", 1)}
    return Install(view.id.ballot, view.id, View(view.id, members), {}, {})


def test_a_newcomer_takes_a_place_only_from_a_node_it_asked() -> None:
    """A node it does not know gives it one: it asks again where it asked."""
    new = Newcomer()
    new.member.on_wake(0)
    assert new.asked() == [1]
    install = place_for("new", view_at(3, 4, 0, 1))
    assert new.member.hear(install, "n0", 1) is None
    assert new.asked() == [1]
    assert new.member.hear(install, "n0", 1, "0") is None
    assert new.asked() == [], "not at once again"
    assert new.member.marks["place given by a stranger"] == 2
    assert new.member.hear(install, "n1", 2, "1") == Installed(install.view.id)
    assert new.member.view == install.view


@pytest.mark.parametrize("view", [view_at(ENTRY_LIMIT, 1, 1), view_at(1, MAX_ROUNDS + 1, 1)])
def test_a_newcomer_takes_no_place_in_a_view_without_a_successor(view: View) -> None:
    new = Newcomer()
    assert new.member.hear(place_for("new", view), "n1", 0, "1") is None
    assert new.member.marks["disbelieved"] == 1
    assert new.member.view is None


def test_a_stranger_does_not_keep_a_newcomer_from_entering() -> None:
    """It says that each of its lives is over; each gets to ask a few times."""
    new = Newcomer()
    now = 0
    for request in range(PATIENT_REQUESTS + 1):
        assert new.member.who.uid == "new", request
        new.member.on_wake(now)
        new.member.hear(Outlived("new"), "x", now)
        now += EPOCHS.enter_every
    assert new.member.who.uid == "new.1"
    new.member.hear(Outlived("new.1"), "n1", now, "1")
    assert new.member.who.uid == "new.2", "the node it asked is believed"


def test_a_node_on_its_way_back_hears_of_views_only_from_nodes_it_knows() -> None:
    world = Members(3)
    world.members[0].hear(Beacon("n1", view_at(1, 1, 1, 2)), "n1", world.now, "1")
    assert world.masks()[0] is None
    contacts = list(world.members[0]._contacts)
    stranger = Who("x", "99", 1)
    world.members[0].hear(Beacon("x", larger(stranger)), "x", world.now)
    assert world.members[0]._contacts == contacts
    world.members[0].hear(Beacon("n1", larger(Who("n1", "1", 0))), "n1", world.now)
    assert world.members[0]._contacts == contacts, "names of strangers are not asked"


# -- places ----------------------------------------------------------------------------------------


def test_the_place_of_an_absent_node_is_free_for_who_is_there() -> None:
    """Else a stranger's request would have it forgotten what the absent one missed."""
    world = Members(3)
    world.down.add(2)
    world.suspect(2)
    world.settle(ticks=10)
    world.members[0].hear(Enter(Who("evil", "2", 1), 2), "evil", world.now)
    assert [message.kind for to, message in said(world, 0) if to == "2"][-1] == "doubt"
    world.settle(ticks=10)
    assert world.masks() == [0b11] * 2
    assert [one.who.uid for one in world.members[0].absent] == ["n2"]


def test_a_life_enters_where_its_process_is() -> None:
    world = Members(3)
    for uid in ("n2", "n2.5"):
        world.members[0].hear(Enter(Who(uid, "98", 9), -1), uid, world.now)
    assert world.members[0].marks["entry from another's address"] == 2
    assert not said(world, 0), "nothing is sent to that address"
    world.settle(kind("enter"), ticks=10)
    assert world.masks() == [0b111] * 3


def test_the_history_forgets_the_oldest_that_is_in_no_present_view() -> None:
    history = AddressHistory()
    history.learn(genesis({0: Who("old", "0", 0)}), ())
    for number in range(MAX_PLACES):
        gone = Absent(Who(f"g{number}", f"g:{number}", 0), 1)
        history.learn(genesis({1: Who("new", "1", 0)}), (gone,))
    assert len(history) == MAX_PLACES
    assert "0" not in history
    assert "1" in history
    assert history.names("new.3")
    assert not history.names("old")
