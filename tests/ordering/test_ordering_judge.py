"""The judge of total notification order, on what it must find and must not."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations, permutations
from random import Random
from typing import Any

import pytest

from cubecast.ordering.effects import Effect, Notify, ServiceNotified
from cubecast.ordering.faithful.module import FaithfulModule
from cubecast.ordering.faithful.subscriber import FaithfulSubscriber
from cubecast.ordering.judge import (
    EpochNumber,
    Inversion,
    Notification,
    inversions,
    needless_tags,
    repeated,
    shared_numbers,
)
from cubecast.ordering.timestamps import Stamp, Timestamp
from cubecast.ordering.world import OrderingWorld
from support.ordering_toys import publish, world

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


def test_a_subscriber_that_misses_events_is_not_blamed() -> None:
    assert inversions(seen(i=["a", "b", "c"], j=["a", "c"], k=[])) == []


def inverted(mine: list[Hashable], theirs: list[Hashable]) -> bool:
    """Property 1 word by word: some two events, in one order here and in the other there."""
    here, there = set(combinations(mine, 2)), set(combinations(theirs, 2))
    return any(
        (first, last) in here and (last, first) in there
        for first, last in permutations({*mine, *theirs}, 2)
    )


@pytest.mark.parametrize("twice", [False, True], ids=["each once", "some twice"])
def test_the_judge_agrees_with_the_words_of_property_1(twice: bool) -> None:
    found = 0
    for seed in range(2000):
        rng = Random(seed)
        most = rng.randint(0, 5)
        draw = rng.choices if twice else rng.sample
        mine, theirs = draw("abcdef", k=most), draw("abcdef", k=most)
        judged = inversions(seen(i=[*mine], j=[*theirs]))
        assert bool(judged) == inverted([*mine], [*theirs]), (mine, theirs)
        for one in judged:
            assert (one.first, one.last) in set(combinations(mine, 2))
            assert (one.last, one.first) in set(combinations(theirs, 2))
        found += bool(judged)
    assert 200 < found < 1800


@pytest.mark.parametrize("seed", range(20))
def test_one_planted_violation_among_a_thousand_events_is_found(seed: int) -> None:
    rng = Random(seed)
    orders = {name: sorted(rng.sample(range(1000), 600)) for name in ("i", "j", "k", "l")}
    assert inversions(seen(**orders)) == []
    shared = sorted(set(orders["j"]) & set(orders["l"]))
    place = rng.randrange(len(shared) - 1)
    early, late = shared[place : place + 2]
    planted = [one for one in orders["l"] if one != early]
    planted.insert(planted.index(late) + 1, early)
    found = inversions(seen(**{**orders, "l": planted}))
    assert Inversion("j", "l", early, late) in found
    tagged = [(one,) if one == early else one for one in planted]
    assert inversions(seen(**{**orders, "l": tagged})) == []


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


def test_a_tagged_event_is_no_reason_for_another_tag() -> None:
    assert needless_tags(stamped(({"a": 2}, False), ({"a": 1}, False))) == [("i", 0), ("i", 1)]


def test_an_equal_number_is_no_reason() -> None:
    """Two events with one number are a fault of their own."""
    alike = stamped(({"a": 1}, True), ({"a": 1}, False))
    assert needless_tags(alike) == [("i", 1)]
    assert shared_numbers(alike) == [("a", EpochNumber(0, 1), frozenset({0, 1}))]
    assert shared_numbers(stamped(({"a": 1}, True), ({"a": 1, "b": 1}, True))) == []


def test_an_event_that_passed_a_manager_with_anothers_number_comes_after_it() -> None:
    assert needless_tags(stamped(({"a": 1, "b": 1}, True), ({"a": 1}, False))) == []
    assert needless_tags(stamped(({"a": 0, "b": 1}, True), ({"a": 1}, False))) == [("i", 1)]


# -- epochs ----------------------------------------------------------------------------------------


def in_epochs(*stamps: tuple[Stamp, bool]) -> dict[str, list[Notification]]:
    return {
        "i": [
            Notification(place, stamp.topic, stamp, in_order)
            for place, (stamp, in_order) in enumerate(stamps)
        ]
    }


def test_a_pair_that_no_stamp_orders_is_a_reason_and_a_pair_that_one_does_is_not() -> None:
    a, b = Stamp("a", 1), Stamp("b", 1)
    named = Stamp("b", 1, higher=(("a", 0),))
    assert needless_tags(in_epochs((a, True), (b, False))) == []
    assert needless_tags(in_epochs((named, True), (a, False))) == [("i", 1)]
    assert needless_tags(in_epochs((a, True), (Stamp("b", 1, higher=(("a", 1),)), False))) != []
    assert needless_tags(in_epochs((a, True), (Stamp("b", 1, epoch=1), False))) == [("i", 1)]
    printed = stamped(({"a": 1}, True), ({"b": 1}, False))
    assert needless_tags(printed) == [("i", 1)], "[T] knows no such reason"


def test_an_event_of_an_earlier_epoch_is_late_whatever_its_topic() -> None:
    new, old = Stamp("a", 1, epoch=2), Stamp("b", 9, epoch=1)
    assert needless_tags(in_epochs((new, True), (old, False))) == []
    assert needless_tags(in_epochs((new, False), (old, False))) == [("i", 0), ("i", 1)]


def test_a_number_of_a_later_epoch_is_above_all_of_an_earlier_one() -> None:
    old, new = Stamp("a", 9, epoch=1), Stamp("a", 1, epoch=2)
    assert needless_tags(in_epochs((old, True), (new, False))) == [("i", 1)]
    named = Stamp("b", 1, epoch=2, higher=(("a", 3),))
    assert needless_tags(in_epochs((old, True), (named, False))) == [("i", 1)]
    assert needless_tags(in_epochs((named, True), (old, False))) == []
    assert shared_numbers(in_epochs((old, True), (Stamp("a", 9, epoch=2), True))) == []


def test_a_stamp_without_an_epoch_is_of_epoch_0() -> None:
    assert needless_tags(in_epochs((Stamp("a", 2), True), (Stamp("a", 1), False))) == []
    assert needless_tags(in_epochs((Stamp("a", 1), True), (Stamp("a", 2), False))) == [("i", 1)]


# -- protocols that tag too much -------------------------------------------------------------------


class TagsEverything(FaithfulSubscriber):
    def notify(self, event: ServiceNotified) -> list[Effect]:
        return [Notify(event.topic, event.payload, event.timestamp, False)]


class TagsAllButTheFirst(FaithfulSubscriber):
    """By a clock of its own that runs ahead of the events: the judge must not believe it."""

    def notify(self, event: ServiceNotified) -> list[Effect]:
        effects = super().notify(event)
        self.clock[event.topic] += 1000
        return effects


def one_topic(kind: type[FaithfulSubscriber]) -> OrderingWorld:
    """Five events of topic a, in order, at a subscriber of this kind."""

    def make(*args: Any) -> FaithfulModule:
        made = FaithfulModule(*args)
        name, _, manager_of, _ = args
        made.subscriber = kind(name, made.order, manager_of)
        return made

    there = world("a", make, i="a")
    for number in range(5):
        publish(there, "p", "a", f"e{number}")
        there.notify(f"e{number}", "i")
    return there


def test_a_protocol_that_tags_everything_fails() -> None:
    assert needless_tags(one_topic(FaithfulSubscriber).seen) == []
    assert len(needless_tags(one_topic(TagsEverything).seen)) == 5


def test_a_clock_that_runs_ahead_is_no_reason_for_a_tag() -> None:
    there = one_topic(TagsAllButTheFirst)
    assert there.order_of("i") == ["e0", *((f"e{number}",) for number in range(1, 5))]
    assert len(needless_tags(there.seen)) == 4


def test_a_protocol_that_numbers_all_events_alike_fails() -> None:
    """All but the first are tagged."""
    alike = [Notification(one, "a", Timestamp({"a": 1}), one == 0) for one in range(5)]
    assert len(needless_tags({"i": alike})) == 4
    assert [len(events) for *_, events in shared_numbers({"i": alike})] == [5]
