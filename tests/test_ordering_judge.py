"""The judge of total notification order, on what it must find and must not."""

from __future__ import annotations

from collections.abc import Hashable

from cubecast.ordering.judge import Inversion, Notification, inversions, needless_tags, repeated
from cubecast.ordering.timestamps import Timestamp

NOTHING = Timestamp({})


def seen(**orders: list[Hashable]) -> dict[str, list[Notification]]:
    """What each subscriber saw; an event in a tuple is tagged."""
    return {
        name: [
            Notification(one[0], "t", NOTHING, False)
            if isinstance(one, tuple)
            else Notification(one, "t", NOTHING, True)
            for one in order
        ]
        for name, order in orders.items()
    }


def test_opposite_orders_of_two_subscribers_are_found() -> None:
    assert inversions(seen(i=["e", "f"], j=["f", "e"])) == [Inversion("i", "j", "e", "f")]


def test_events_between_do_not_hide_them() -> None:
    assert inversions(seen(i=["e", 1, 2, "f"], j=["f", 3, 4, "e", 5]))


def test_every_pair_of_subscribers_is_compared() -> None:
    found = inversions(seen(i=["e", "f"], j=["e", "f"], k=["f", "e"]))
    assert [(one.one, one.other) for one in found] == [("i", "k"), ("j", "k")]


def test_a_circle_through_three_subscribers_is_no_violation() -> None:
    """Property 1 speaks of two events and two subscribers."""
    assert inversions(seen(i=["a", "b"], j=["b", "c"], k=["c", "a"])) == []


def test_tagged_events_are_in_no_order() -> None:
    assert inversions(seen(i=["e", "f"], j=["f", ("e",)])) == []
    assert inversions(seen(i=["e", "f", "g"], j=["g", ("f",), "e"])) != []


def test_who_misses_events_is_not_blamed() -> None:
    assert inversions(seen(i=["a", "b", "c"], j=["a", "c"], k=[])) == []


def test_an_event_that_is_seen_twice_is_found() -> None:
    assert repeated(seen(i=["a", "b", ("a",)], j=["a"])) == [("i", "a")]


def stamped(*stamps: tuple[dict[str, int], bool]) -> dict[str, list[Notification]]:
    """The last topic of a timestamp is that of its event."""
    return {
        "i": [
            Notification(place, list(numbers)[-1], Timestamp(numbers), in_order)
            for place, (numbers, in_order) in enumerate(stamps)
        ]
    }


def test_a_tag_needs_something_later_that_was_seen() -> None:
    assert needless_tags(stamped(({"a": 2}, True), ({"a": 1}, False))) == []
    assert needless_tags(stamped(({"a": 1}, True), ({"a": 2}, False))) == [("i", 1)]
    assert needless_tags(stamped(({"a": 2}, True), ({"a": 1, "b": 1}, False))) == []
    assert needless_tags(stamped(({"a": 2}, True), ({"a": 2, "b": 1}, False))) == [("i", 1)]


def test_tagging_everything_is_found() -> None:
    assert len(needless_tags(stamped(({"a": 1}, False), ({"a": 2}, False)))) == 2


def test_what_is_tagged_is_no_reason_for_another_tag() -> None:
    assert needless_tags(stamped(({"a": 2}, False), ({"a": 1}, False))) == [("i", 0), ("i", 1)]
