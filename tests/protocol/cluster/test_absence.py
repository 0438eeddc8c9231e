"""Excluded nodes are remembered for a while: looked for, and history kept for their return."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.protocol.cluster.absence import MAX_ABSENT, Absences
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.views import Absent, Ballot, Beacon, Enter, View, ViewId, Who
from cubecast.protocol.port import Stream
from support.member_toys import EPOCHS, Flying, Members, both, kind, link


def who(number: int) -> Who:
    return Who(f"n{number}", str(number), 0)


def view(epoch: int, *numbers: int) -> View:
    return View(ViewId(epoch, Ballot(epoch, 0)), {number: who(number) for number in numbers})


def go_over(absences: Absences, to: View, before: list[Who], now: int) -> None:
    absences.learn(absences.after(to, before, {}, now), to, now)


def test_an_entry_names_the_first_view_without_the_node() -> None:
    absences = Absences(10)
    go_over(absences, view(3, 0, 1), [who(0), who(1), who(2)], 0)
    assert absences.entries == (Absent(who(2), 3),)
    go_over(absences, view(4, 0), [who(0), who(1)], 1)
    assert absences.entries == (Absent(who(2), 3), Absent(who(1), 4))
    assert absences.remembered_from(1) == 3


def test_time_counts_from_when_this_node_first_saw_the_entry() -> None:
    absences = Absences(10)
    absences.learn((Absent(who(2), 3),), view(3, 0), 100)
    absences.learn((Absent(who(2), 3), Absent(who(1), 4)), view(4, 0), 105)
    assert absences.remembered_from(109) == 3
    assert absences.remembered_from(110) == 4
    assert absences.remembered_from(115) is None
    assert len(absences.entries) == 2  # until the next view


def test_the_next_view_drops_absences_that_are_expired_or_replaced() -> None:
    absences = Absences(10)
    absences.learn((Absent(who(2), 3), Absent(who(3), 3)), view(3, 0), 0)
    again = View(ViewId(4, Ballot(4, 0)), {0: who(0), 9: Who("n2.1", "2", 1)})
    assert absences.after(again, [who(0)], {}, 9) == (Absent(who(3), 3),)
    assert absences.after(again, [who(0)], {}, 10) == ()


def test_a_node_excluded_again_is_absent_from_then_on() -> None:
    absences = Absences(10)
    absences.learn((Absent(who(2), 3),), view(3, 0), 0)
    absences.learn((), view(4, 0, 2), 1)  # it came back
    go_over(absences, view(7, 0), [who(0), who(2)], 9)
    assert absences.remembered_from(18) == 7


def returned(epoch: int) -> View:
    """Node 2 is back, in another life."""
    return View(ViewId(epoch, Ballot(epoch, 0)), {0: who(0), 9: Who("n2.1", "2", 1)})


def back_in_view_5() -> Absences:
    """Node 2 was absent from view 3 on, and says that it missed view 4."""
    absences = Absences(10)
    absences.learn((Absent(who(2), 3),), view(3, 0), 0)
    absences.learn(absences.after(returned(5), [who(0)], {"n2.1": 4}, 1), returned(5), 1)
    return absences


def test_a_node_that_is_back_stays_named_until_it_has_caught_up() -> None:
    absences = back_in_view_5()
    assert absences.entries == (Absent(Who("n2.1", "2", 1), 3, back=True),)
    assert absences.excluded() == ()
    assert absences.remembered_from(9) == 3
    absences.caught_up("n2.1", 9)
    assert absences.remembered_from(9) is None
    assert absences.after(returned(6), [who(0)], {}, 9) == ()


def test_a_node_gone_again_is_named_once_by_a_leader_that_knew_it_caught_up() -> None:
    """The leader tells the difference to an entry that only others still have."""
    absences = back_in_view_5()
    gone = Absent(Who("n2.1", "2", 1), 6)
    absences.learn((*absences.entries, gone), view(6, 0), 2)
    assert absences.entries == (gone,)


def test_for_who_never_catches_up_history_is_kept_no_longer_than_for_the_absent() -> None:
    absences = back_in_view_5()
    assert absences.remembered_from(10) == 3
    assert absences.remembered_from(11) is None


def test_a_node_gone_again_before_it_caught_up_is_absent_from_the_first_time() -> None:
    absences = back_in_view_5()
    again = absences.after(view(6, 0), [who(0), Who("n2.1", "2", 1)], {}, 9)
    assert again == (Absent(Who("n2.1", "2", 1), 3),)


def test_a_node_gone_again_after_it_caught_up_is_absent_from_then_on() -> None:
    absences = back_in_view_5()
    absences.caught_up("n2.1", 2)
    again = absences.after(view(6, 0), [who(0), Who("n2.1", "2", 1)], {}, 9)
    assert again == (Absent(Who("n2.1", "2", 1), 6),)


def test_a_later_view_does_not_undo_the_news_that_a_node_caught_up() -> None:
    """The sender of the whole view had not heard."""
    absences = back_in_view_5()
    named = absences.entries
    absences.caught_up("n2.1", 2)
    absences.learn(named, returned(6), 3)
    assert (absences.entries, absences.catching_up(3)) == ((), set())
    absences.learn((Absent(Who("n2.1", "2", 1), 7),), view(7, 0), 4)
    assert absences.remembered_from(4) == 7, "it may go again"


def test_only_who_is_named_as_back_can_catch_up() -> None:
    absences = Absences(10)
    absences.learn((Absent(who(2), 3),), view(3, 0), 0)
    absences.caught_up("n2", 1)
    assert absences.remembered_from(9) == 3


def test_of_too_many_the_oldest_are_forgotten() -> None:
    absences = Absences(10)
    everyone = [who(number) for number in range(MAX_ABSENT + 3)]
    go_over(absences, view(1, 0), everyone, 0)
    assert len(absences.entries) == MAX_ABSENT
    assert absences.entries[-1] == Absent(everyone[-1], 1)


def test_remembering_ends_not_before_a_node_goes_on_alone() -> None:
    with pytest.raises(ValueError, match="absent_for"):
        AgreementConfig(alone_after=100, absent_for=99)


def beacons(world: Members, to: int) -> list[Flying]:
    return [one for one in world.flying if isinstance(one.message, Beacon) and one.to == to]


def excluded_for_long(world: Members) -> None:
    """Node 3 of four is excluded and away until all others give it up."""
    world.down.add(3)
    world.suspect(3)
    world.settle(lambda one: one.to != 3, ticks=20)
    assert world.masks() == [0b0111] * 3


def test_beacons_stop_and_history_is_released_when_the_time_is_over() -> None:
    world = Members(4)
    excluded_for_long(world)
    members = world.members[:3]
    assert [member.remembered_from(world.now) for member in members] == [1, 1, 1]
    assert beacons(world, 3)
    world.now += EPOCHS.absent_for
    world.lose()
    world.settle(lambda one: one.to != 3, ticks=20)
    assert not beacons(world, 3)
    assert [member.remembered_from(world.now) for member in members] == [None] * 3
    assert [len(member.absent) for member in members] == [1, 1, 1]
    world.down.add(2)
    world.suspect(2)
    world.settle(lambda one: one.to < 2, ticks=20)
    assert [[one.who.uid for one in member.absent] for member in members[:2]] == [["n2"]] * 2


def requests(world: Members) -> list[Any]:
    return [one.message for one in world.flying if isinstance(one.message, Enter)]


def test_a_returning_node_says_since_when_it_was_apart() -> None:
    """Node 3 alone excludes 0, 1 and 2 one after the other, while they go on without it."""
    world = Members(4)
    for other in (2, 1, 0):
        world.suspect(other, 3)
        world.settle(lambda one: one.to == 3 and one.source == 3, ticks=8)
    world.suspect(3, 0, 1, 2)
    world.settle(lambda one: 3 not in (one.source, one.to), ticks=20)
    assert world.masks()[:3] == [0b0111] * 3
    lonely = world.members[3]
    assert lonely.view is not None
    assert lonely.view.mask == 0b1000
    first = min(one.epoch for one in lonely.absent)
    assert first <= lonely.view.epoch
    world.settle(both(kind("beacon"), link(0, 3)), ticks=8)
    assert {enter.apart for enter in requests(world)} == {first}


@pytest.mark.parametrize("asks", [False, True])
def test_a_node_excluded_alone_is_apart_from_its_last_view_on(asks: bool) -> None:
    """Or from the next one on, if everyone has answered it there; of the first all have heard."""
    world = Members(4, members=0)
    for last in (0, 2, 4):
        view = world.members[3].view
        assert view is not None
        assert view.epoch == last
        if asks:
            world.members[3].register(f"u{last}", world.now)
            world.settle()
        world.suspect(3, 0, 1, 2)
        world.settle(lambda one: 3 not in (one.source, one.to), ticks=20)
        world.settle(both(kind("beacon"), link(0, 3)), ticks=8)
        assert {enter.apart for enter in requests(world)} == {last + 1 if asks else max(1, last)}
        world.settle()
        assert world.masks() == [0b1111] * 4


def test_waves_that_all_answered_are_remembered_of_the_last_views_with_the_absent() -> None:
    """Node 0 asks in view 0, node 1 in views 1 and 2; then no node waits for the absent."""
    world = Members(5)

    def shared() -> list[set[int]]:
        return [member.core.shared for member in world.members[:2] if member.core is not None]

    def ask(node: int, topic: str) -> None:
        world.members[node].register(topic, world.now)
        world.settle(lambda one: one.to not in world.down)

    def die(node: int) -> None:
        world.down.add(node)
        world.suspect(node)
        world.settle(lambda one: one.to not in world.down)

    ask(0, "u")
    assert shared() == [{0}, set()]
    die(4)
    ask(1, "v")
    assert shared() == [{0}, {1}]
    die(3)
    ask(1, "w")
    assert shared() == [{0}, {1, 2}]
    world.now += EPOCHS.absent_for
    die(2)
    assert shared() == [set(), {2}]


def test_a_node_that_is_back_says_when_it_has_asked_for_all_it_missed() -> None:
    """Until its JOIN is answered all members keep history for it; then none does."""
    world = Members(4)
    world.suspect(3, 0, 1, 2)
    world.settle(lambda one: 3 not in (one.source, one.to), ticks=20)

    def unanswered(one: Flying) -> bool:
        return not (one.message.kind == "parcel" and one.message.message.kind == "answer")

    world.settle(unanswered)
    assert world.masks() == [0b1111] * 4
    assert [member.remembered_from(world.now) for member in world.members] == [1] * 4
    assert all(member.absent == () for member in world.members), "no member looks for it"
    world.settle()
    assert [member.remembered_from(world.now) for member in world.members] == [None] * 4
    world.suspect(2, 0, 1, 3)
    world.settle(lambda one: 2 not in (one.source, one.to), ticks=20)
    absent = [world.members[node].absent for node in (0, 1, 3)]
    assert [[one.who.uid for one in known] for known in absent] == [["n2"]] * 3


# -- leaving while a node that came back asks ------------------------------------------------------


def carried(one: Flying) -> str:
    """The kind of what a link carries."""
    return one.message.message.kind if one.message.kind == "parcel" else ""


def node_3_comes_back(world: Members) -> None:
    """Node 1 publishes to a topic of node 3 alone while that is away; its waves go nowhere."""
    world.members[3].subscribe("n", world.now)
    world.settle()
    world.suspect(3)
    world.settle(lambda one: 3 not in (one.source, one.to))
    world.members[1].register("n", world.now)
    world.settle(lambda one: 3 not in (one.source, one.to), ticks=4)
    assert world.publish(1, "missed", "n")
    world.settle(unasked)
    assert world.masks() == [0b1111] * 4


def unasked(one: Flying) -> bool:
    """All but the waves of node 3."""
    return one.source != 3 or carried(one) != "wave"


def test_a_leaver_stays_until_a_node_that_came_back_has_asked_it() -> None:
    """Only the leaver knows what node 3 missed."""
    world = Members(4)
    node_3_comes_back(world)
    world.members[1].depart(world.now)
    world.settle(unasked)
    assert world.ports[1].of("departed") == []
    world.lose(kind("depart"))
    world.settle(lambda one: one.message.kind != "depart", ticks=4)
    assert [list(skipped.values()) for _, skipped in world.ports[3].of("gap")] == [[(0, 0)]]
    assert world.ports[1].of("departed") == [()], "it does not have to ask again"


def test_a_leader_that_leaves_stays_as_long() -> None:
    world = Members(4)
    node_3_comes_back(world)
    world.members[0].depart(world.now)
    world.settle(unasked)
    assert world.ports[0].of("departed") == []
    world.settle(ticks=6)
    assert world.ports[0].of("departed") == [()]


def test_a_leaver_does_not_wait_for_itself() -> None:
    world = Members(4)
    node_3_comes_back(world)
    world.members[3].depart(world.now)
    world.settle(unasked)
    assert world.ports[3].of("departed") == [()]


def test_a_leaver_does_not_wait_for_a_node_that_came_back_and_is_suspected() -> None:
    world = Members(4)
    node_3_comes_back(world)
    world.members[1].depart(world.now)
    world.suspect(3)
    world.settle(lambda one: 3 not in (one.source, one.to))
    assert world.ports[1].of("departed") == [()]


def test_a_leaver_waits_no_longer_than_history_is_kept() -> None:
    world = Members(4)
    node_3_comes_back(world)
    world.now += EPOCHS.absent_for
    world.members[1].depart(world.now)
    world.settle(unasked)
    assert world.ports[1].of("departed") == [()]


def test_a_newcomer_is_told_who_has_caught_up_before() -> None:
    """The leader takes node 2 in before it hears so; leavers would wait if that node led."""
    world = Members(4)
    node_3_comes_back(world)

    def unheard(one: Flying) -> bool:
        return one.to != 0 or carried(one) != "caught-up"

    world.settle(unheard, ticks=4)
    assert [one.remembered_from(world.now) for one in world.members] == [1, None, None, None]
    world.suspect(2)
    world.settle(both(unheard, lambda one: 2 not in (one.source, one.to)), ticks=4)
    world.settle(both(unheard, lambda one: one.source != 3 or one.to != 2), ticks=8)
    assert world.masks() == [0b1111] * 4
    assert [one.remembered_from(world.now) for one in world.members] == [1, 2, 1, 2]  # for node 2
    world.settle()
    assert [one.remembered_from(world.now) for one in world.members] == [None] * 4


# -- a view of which a member never heard ----------------------------------------------------------


def test_a_view_that_a_member_never_heard_of_told_it_nothing() -> None:
    """Node 2 comes back by a view of node 0, which dies before node 1 hears of it.

    What node 2 had published alone is over for node 2; node 1 is told when they meet next.
    """
    world = Members(3)
    world.suspect(2, 0, 1)
    world.suspect(0, 2)
    world.suspect(1, 2)
    world.settle(lambda one: (one.source == 2) == (one.to == 2), ticks=20)
    assert world.publish(2, "alone")
    world.settle(lambda one: one.to != 1 or one.message.kind not in ("change", "install"))
    assert world.masks() == [0b111, 0b011, 0b111]
    world.down.add(0)
    world.lose()
    world.suspect(0, 1, 2)
    world.suspect(1, 2)
    world.settle()
    assert world.masks() == [0b110, 0b110]
    assert world.publish(2, "after")
    world.settle()
    alone = Stream(2, 0)
    assert world.ports[1].of("gap") == [("t", {alone: (0, 0)})]
    assert world.ports[1].delivered() == ["after"]
