"""Judges the notifications of subscribers: total notification order, and reasons for tags.

The judgement of order knows no timestamps: it compares the sequences of two subscribers, event by
event ([T] Property 1).  Tagged events are not part of a sequence.

A tag needs a reason: an event that was notified there before, untagged, is later in the order of
numbers.  So a protocol that tags everything fails.  The judge asks no module for its clock: it
works from the managers' numbers and the notifications.  As numbers are evidence, two events of a
topic must not have the same one (`shared_numbers`), and an equal number is no reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from cubecast.ordering.timestamps import Stamp, Timestamp, Topic


class Notification(NamedTuple):
    """An event as one subscriber saw it."""

    event: Hashable
    topic: Topic
    timestamp: Timestamp | Stamp
    in_order: bool


class Inversion(NamedTuple):
    """Two subscribers saw two events in opposite orders, both untagged."""

    one: str
    other: str
    first: Hashable
    """The event that `one` saw first and `other` last."""
    last: Hashable


def inversions(seen: Mapping[str, Sequence[Notification]]) -> list[Inversion]:
    """All pairs of subscribers that saw events in opposite orders, one witness for each pair."""
    orders = {
        name: [one.event for one in notifications if one.in_order]
        for name, notifications in seen.items()
    }
    found = []
    for one, other in combinations(sorted(orders), 2):
        inversion = _inversion(one, orders[one], other, orders[other])
        if inversion is not None:
            found.append(inversion)
    return found


def _inversion(
    one: str, mine: Sequence[Hashable], other: str, theirs: Sequence[Hashable]
) -> Inversion | None:
    """The first event of `other` that `one` saw before one which `other` had already seen.

    An event that was seen twice counts from its first place to its last.
    """
    first: dict[Hashable, int] = {}
    last: dict[Hashable, int] = {}
    for place, event in enumerate(mine):
        first.setdefault(event, place)
        last[event] = place
    reached: list[Hashable] = []  # of those `other` saw, the furthest at `one`, at most 2
    for event in theirs:
        if event not in first:
            continue
        for furthest in reversed(reached):
            if furthest != event and first[event] < last[furthest]:
                return Inversion(one, other, event, furthest)
        reached = sorted({event, *reached}, key=last.__getitem__)[-2:]
    return None


def repeated(seen: Mapping[str, Sequence[Notification]]) -> list[tuple[str, Hashable]]:
    """(subscriber, event): events that a subscriber was notified of twice."""
    found = []
    for name, notifications in sorted(seen.items()):
        known: set[Hashable] = set()
        for one in notifications:
            if one.event in known:
                found.append((name, one.event))
            known.add(one.event)
    return found


class EpochNumber(NamedTuple):
    """A number in its epoch: those of a later epoch are above all of an earlier one."""

    epoch: int
    number: int


BEFORE_ALL = EpochNumber(-1, -1)


@dataclass
class _Reached:
    """How far a subscriber is, by its notifications in order."""

    epoch: int = -1
    own: dict[Topic, EpochNumber] = field(default_factory=dict)
    """Of each topic, the highest number of its own events."""
    named: dict[Topic, EpochNumber] = field(default_factory=dict)
    """The highest number of it that events of other topics name."""
    names: set[tuple[int, Topic, frozenset[Topic]]] = field(default_factory=set)
    """The epoch, the topic, and the named topics of each event."""

    def note(self, one: Notification) -> None:
        epoch, places = _epoch(one.timestamp), _places(one.timestamp)
        self.epoch = max(self.epoch, epoch)
        self.names.add((epoch, one.topic, frozenset(places)))
        for topic, place in places.items():
            reached = self.own if topic == one.topic else self.named
            reached[topic] = max(place, reached.get(topic, BEFORE_ALL))

    def is_beyond(self, one: Notification) -> bool:
        """Whether a notified event comes after `one`.

        That is one of its topic with a higher number; one of another topic that passed this topic's
        manager when the event had its number; one with a higher number of any other topic; or one
        of a later epoch.
        """
        places = _places(one.timestamp)
        own = places.pop(one.topic)
        return (
            _epoch(one.timestamp) < self.epoch
            or own < self.own.get(one.topic, BEFORE_ALL)
            or own <= self.named.get(one.topic, BEFORE_ALL)
            or any(
                place < max(self.own.get(topic, BEFORE_ALL), self.named.get(topic, BEFORE_ALL))
                for topic, place in places.items()
            )
        )

    def is_unordered_with(self, one: Notification) -> bool:
        """Whether an event of another topic was notified, and neither stamp names the other topic.

        In production such a pair has no order.  It has one where both topics are in subscriptions
        that all managers know, so a protocol cannot hide behind this.
        """
        epoch, places = _epoch(one.timestamp), _places(one.timestamp)
        return isinstance(one.timestamp, Stamp) and any(
            then == epoch and topic not in places and one.topic not in named
            for then, topic, named in self.names
        )


def needless_tags(seen: Mapping[str, Sequence[Notification]]) -> list[tuple[str, Hashable]]:
    """Tagged events without a reason: none notified before is later, or unordered with them."""
    found = []
    for name, notifications in sorted(seen.items()):
        reached = _Reached()
        for one in notifications:
            if one.in_order:
                reached.note(one)
            elif not reached.is_beyond(one) and not reached.is_unordered_with(one):
                found.append((name, one.event))
    return found


def shared_numbers(
    seen: Mapping[str, Sequence[Notification]],
) -> list[tuple[Topic, EpochNumber, frozenset[Hashable]]]:
    """Numbers of a topic that more than one of its events has."""
    events: dict[tuple[Topic, EpochNumber], set[Hashable]] = {}
    for notifications in seen.values():
        for one in notifications:
            place = _places(one.timestamp)[one.topic]
            events.setdefault((one.topic, place), set()).add(one.event)
    return [
        (topic, place, frozenset(named))
        for (topic, place), named in sorted(events.items(), key=lambda item: item[0])
        if len(named) > 1
    ]


def _epoch(stamp: Timestamp | Stamp) -> int:
    """The epoch of a stamp; of a timestamp of [T] it is the number of the topic of swaps."""
    return stamp.epoch if isinstance(stamp, Stamp) else 0


def _places(stamp: Timestamp | Stamp) -> dict[Topic, EpochNumber]:
    if isinstance(stamp, Timestamp):
        numbers = dict(stamp)
    else:
        numbers = {**dict(stamp.higher), stamp.topic: stamp.number}
    epoch = _epoch(stamp)
    return {topic: EpochNumber(epoch, number) for topic, number in numbers.items()}
