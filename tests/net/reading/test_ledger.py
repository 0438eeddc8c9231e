"""A frame is consumed when everyone who was handed it has read it, in the order of its stream."""

from __future__ import annotations

from cubecast.net.reading.ledger import Ledger
from cubecast.protocol.port import Stream

STREAM = Stream(1, 7)


def test_a_frame_for_no_subscription_is_consumed_at_once() -> None:
    assert Ledger().hand_out("t", STREAM, 4, set())


def test_one_reader_settles_what_it_owes() -> None:
    ledger = Ledger()
    assert not ledger.hand_out("t", STREAM, 4, {"a"})
    assert ledger.settle("a", "t", STREAM, 4) == 4
    assert ledger.hand_out("t", STREAM, 5, set())


def test_the_slower_of_two_decides() -> None:
    ledger = Ledger()
    assert not ledger.hand_out("t", STREAM, 4, {"a", "b"})
    assert not ledger.hand_out("t", STREAM, 9, {"b"})
    assert ledger.settle("a", "t", STREAM, 9) is None
    assert ledger.settle("b", "t", STREAM, 4) == 4
    assert ledger.settle("b", "t", STREAM, 9) == 9


def test_a_frame_is_not_consumed_before_the_one_in_front_of_it() -> None:
    ledger = Ledger()
    assert not ledger.hand_out("t", STREAM, 4, {"a"})
    assert not ledger.hand_out("t", STREAM, 5, set())
    assert ledger.settle("a", "t", STREAM, 4) == 5


def test_a_subscription_that_is_gone_owes_nothing() -> None:
    ledger = Ledger()
    other = Stream(2, 7)
    assert not ledger.hand_out("t", STREAM, 4, {"a", "b"})
    assert not ledger.hand_out("u", other, 6, {"a"})
    assert ledger.forgive("a") == [("u", other, 6)]
    assert ledger.forgive("b") == [("t", STREAM, 4)]


def test_streams_and_topics_are_apart() -> None:
    ledger = Ledger()
    assert not ledger.hand_out("t", STREAM, 4, {"a"})
    assert ledger.hand_out("u", STREAM, 4, set())
    assert ledger.settle("a", "u", STREAM, 4) is None


def test_a_part_of_a_frame_counts_as_far_as_the_slowest_has_it() -> None:
    ledger = Ledger()
    assert not ledger.hand_out("t", STREAM, 9, {"a", "b"})
    assert ledger.settle("a", "t", STREAM, 5) is None
    assert ledger.settle("b", "t", STREAM, 3) == 3
    assert ledger.settle("b", "t", STREAM, 9) == 5
    assert ledger.forgive("a") == [("t", STREAM, 9)]
    assert ledger.hand_out("t", STREAM, 12, set())
