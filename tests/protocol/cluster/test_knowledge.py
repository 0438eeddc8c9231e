"""What one node knows of all, told in parts; and the edges of the detector around it."""

from __future__ import annotations

import pytest

from cubecast.protocol.cluster.detector import Notice, Vouch, targets
from cubecast.protocol.cluster.knowledge import MAX_NEWS, MAX_STAMP, MAX_STAMP_LEAP, Knowledge
from cubecast.protocol.config import Config
from cubecast.protocol.topic.ack_timing import AckPace
from support.lone_detector import Alone


def knowledge(node: int = 0, members: int = 0b1111, incarnation: int = 0) -> Knowledge:
    return Knowledge(node, members, incarnation)


# -- taking ----------------------------------------------------------------------------------------


def test_a_later_stamp_is_taken_once_and_an_earlier_one_is_not() -> None:
    known = knowledge()
    assert known.merge(((1, 3),), ()) == ([1], [])
    assert known.is_suspected(1)
    assert known.merge(((1, 3),), ()) == ([], [])
    assert known.merge(((1, 2),), ()) == ([], [])
    assert known.merge(((1, 4),), ()) == ([1], [])
    assert not known.is_suspected(1)
    known.check_invariants()


@pytest.mark.parametrize("stamp", [-1, MAX_STAMP + 1])
def test_a_stamp_that_cannot_be_is_not_taken(stamp: int) -> None:
    assert knowledge().merge(((1, stamp),), ()) == ([], [])


def test_the_largest_stamp_is_taken_and_strangers_are_not() -> None:
    known = knowledge(members=0b0011)
    known.stamps[1] = MAX_STAMP - 1
    assert known.merge(((1, MAX_STAMP), (2, 1), (-1, 1)), ()) == ([1], [])
    assert known.merge(((1, MAX_STAMP + 1),), ()) == ([], [])
    assert known.stamps == {1: MAX_STAMP}


def test_a_stamp_does_not_reach_the_largest_value_at_a_leap() -> None:
    """There it could not be suspected any more, however dead it is."""
    known = knowledge(members=0b0011)
    assert known.merge(((1, MAX_STAMP - 1),), ()) == ([], [])
    assert known.merge(((1, MAX_STAMP_LEAP + 1),), ()) == ([], [])
    assert known.merge(((1, MAX_STAMP_LEAP),), ()) == ([1], [])


def test_a_node_that_hears_of_its_own_suspicion_refutes_it() -> None:
    known = knowledge()
    assert known.merge(((0, 5),), ()) == ([0], [])
    assert known.stamp(0) == 6
    known.check_invariants()


def test_news_are_taken_by_their_serial() -> None:
    known = knowledge(members=0b0111)
    assert known.merge((), ((1, 5, ("a",)),)) == ([], [1])
    assert known.merge((), ((1, 5, ("b",)),)) == ([], []), "the same serial"
    assert known.merge((), ((1, 4, ("b",)),)) == ([], [])
    assert known.merge((), ((1, 6, ("b",)),)) == ([], [1])
    assert known.news[1] == (6, ("b",))
    assert known.merge((), ((0, 9, ("x",)), (3, 9, ("x",)), (-1, 9, ("x",)))) == ([], [])
    assert known.merge((), ((2, 1, ("x",) * MAX_NEWS),)) == ([], [2])
    assert known.merge((), ((2, 2, ("x",) * (MAX_NEWS + 1)),)) == ([], [])


def test_announcements_have_serials_that_grow_over_lives() -> None:
    first, second = knowledge(), knowledge(incarnation=1)
    first.announce(("a",))
    first.announce(("b",))
    second.announce(("c",))
    assert first.news[0] == (2, ("b",))
    assert second.news[0] > first.news[0]
    known = knowledge()
    known.announce(("x",) * MAX_NEWS)
    with pytest.raises(ValueError, match="at most"):
        known.announce(("x",) * (MAX_NEWS + 1))


# -- telling ---------------------------------------------------------------------------------------


def test_changes_after_a_version_are_told_the_latest_first() -> None:
    known = knowledge()
    start = known.version
    known.merge(((1, 1), (2, 1)), ())
    middle = known.version
    known.merge(((1, 2),), ((3, 1, ("a",)),))
    assert known.since(known.version) == ((), ())
    assert known.since(middle) == (((1, 2),), ((3, 1, ("a",)),))
    assert known.since(start) == (((1, 2), (2, 1)), ((3, 1, ("a",)),))


# -- members ---------------------------------------------------------------------------------------


def test_a_node_that_leaves_is_forgotten_and_its_successor_is_correct() -> None:
    known = knowledge()
    known.announce(("me",))
    known.merge(((1, 1), (2, 1)), ((1, 1, ("a",)), (2, 1, ("b",))))
    known.set_members(0b1101, afresh=False)
    assert (known.suspects, known.stamps, sorted(known.news)) == (0b0100, {2: 1}, [0, 2])
    known.set_members(0b1111, afresh=False)
    assert not known.is_suspected(1)
    assert known.alive == 0b1011
    known.check_invariants()


def test_in_a_new_view_all_are_correct_and_this_node_tells_its_news_again() -> None:
    known = knowledge()
    known.announce(("me",))
    known.merge(((1, 1),), ((1, 1, ("a",)),))
    told = known.version
    known.set_members(0b1111, afresh=True)
    assert (known.suspects, known.stamps, list(known.news)) == (0, {}, [0])
    assert known.since(told) == ((), ((0, 1, ("me",)),))


# -- the detector around it ------------------------------------------------------------------------


def test_a_node_tests_as_one_that_is_correct_whatever_it_is_told_of_itself() -> None:
    assert targets(0, 0b11, 0b10) == targets(0, 0b11, 0b11) == (1,)
    assert targets(0, 0b1111, 0b1110) == targets(0, 0b1111, 0b1111)


def test_an_announcement_is_told_at_once() -> None:
    alone = Alone()
    alone.detector.announce(("here",), 5)
    notices = alone.said(Notice)
    assert notices
    assert all(one.news == ((0, 1, ("here",)),) for one in notices)


def test_no_more_are_asked_than_configured_and_the_peers_testers_first() -> None:
    alone = Alone(members=0b1111_1111)
    wanted = alone.detector.config.indirect
    chosen = alone.detector.relays(7)
    assert len(chosen) == len(set(chosen)) == wanted
    assert not {0, 7} & set(chosen)
    few = Alone(members=0b0111)
    assert few.detector.relays(2) == [1], "all that there are"


def test_a_link_to_who_leaves_the_view_is_not_broken_any_more_and_others_stay_so() -> None:
    alone = Alone()
    detector = alone.detector
    detector.broken = 0b0110
    detector.set_members(0b1011, 10)
    assert detector.broken == 0b0010
    detector.set_members(0b1011, 20, view=7)
    assert detector.broken == 0, "in a new view everyone is well"


def test_a_broken_link_to_one_that_others_suspect_is_not_looked_at_as_broken() -> None:
    alone = Alone()
    detector = alone.detector
    detector.broken = 0b0110
    detector.on_message(Notice(detector.view, ((1, 1),)), 3, 10)
    assert (detector.suspects, detector.broken) == (0b0010, 0b0100)


def test_a_node_is_not_tested_or_suspected_after_it_left() -> None:
    alone = Alone()
    detector = alone.detector
    detector.on_wake(0)
    tested = {peer for peer, _ in alone.sent}
    assert 1 in tested, "a test is under way"
    detector.set_members(0b1101, 1)
    alone.sent.clear()
    for now in range(2, 2 * detector.config.deaf_after, detector.config.suspect_min // 4):
        detector.on_wake(now)
    assert 1 not in {peer for peer, _ in alone.sent}
    assert not detector.suspects >> 1 & 1
    detector.knowledge.check_invariants()


def test_a_vouch_that_was_not_asked_for_changes_nothing() -> None:
    alone = Alone()
    alone.detector.on_message(Vouch(1, 2), 3, 10)
    assert alone.detector.broken == 0


# -- the pace of ACKs ------------------------------------------------------------------------------


def test_heavy_traffic_is_a_share_of_the_window_and_says_so_once() -> None:
    pace = AckPace(Config(window=64, ack_delay=10, ack_pause=50))
    assert pace.passed(3, 0) is False
    assert pace.passed(1, 0) is True, "a sixteenth of the window"
    assert pace.passed(3, 1) is False
    pace.flushed(2)
    assert pace.passed(3, 3) is False, "counted from the last acknowledgement"
    assert pace.passed(1, 3) is True


def test_in_light_traffic_acknowledgements_keep_a_pause() -> None:
    pace = AckPace(Config(window=64, ack_delay=10, ack_pause=50))
    assert pace.due(0) == 10, "the first does not wait"
    pace.flushed(10)
    assert pace.due(12) == 60
    assert pace.due(55) == 65
    assert pace.passed(4, 12) is True
    assert pace.due(13) == 23, "credit is not held up in heavy traffic"


def test_without_a_pause_the_pace_decides_nothing() -> None:
    pace = AckPace(Config(window=64, ack_delay=10))
    assert pace.passed(1000, 0) is False
    pace.flushed(0)
    assert pace.due(1) == 11
