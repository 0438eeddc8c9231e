"""Judges what subscribers were notified of: total notification order, and reasons for tags.

The judgement of order knows no timestamps: it compares the sequences of two subscribers, event by
event ([T] Property 1).  Tagged events are not part of a sequence.

A tag needs a reason: an event that was notified there before, untagged, is later in the order of
numbers.  So a protocol that tags everything fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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
    """What `one` saw first and `other` last."""
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
    """The first event of `other` that `one` saw before one which `other` had already seen."""
    places = {event: place for place, event in enumerate(mine)}
    furthest: Hashable = None
    reached = -1
    for event in theirs:
        place = places.get(event)
        if place is None:
            continue
        if place < reached:
            return Inversion(one, other, event, furthest)
        reached, furthest = place, event
    return None


def repeated(seen: Mapping[str, Sequence[Notification]]) -> list[tuple[str, Hashable]]:
    """Events that a subscriber was notified of twice."""
    found = []
    for name, notifications in sorted(seen.items()):
        known: set[Hashable] = set()
        for one in notifications:
            if one.event in known:
                found.append((name, one.event))
            known.add(one.event)
    return found


def needless_tags(seen: Mapping[str, Sequence[Notification]]) -> list[tuple[str, Hashable]]:
    """Tagged events that are later than, or not to be compared with, all that was seen before."""
    found = []
    for name, notifications in sorted(seen.items()):
        latest = 0
        highest: dict[Topic, int] = {}
        notified: set[Topic] = set()
        for one in notifications:
            numbers, epoch = _numbers(one.timestamp), _epoch(one.timestamp)
            if one.in_order:
                if epoch > latest:
                    latest, highest, notified = epoch, {}, set()
                notified.add(one.topic)
                for topic, number in numbers.items():
                    highest[topic] = max(number, highest.get(topic, -1))
            elif epoch >= latest and not _is_below(one.topic, numbers, highest):
                unnamed = notified - numbers.keys()
                if not (isinstance(one.timestamp, Stamp) and unnamed):
                    found.append((name, one.event))
    return found


def _epoch(stamp: Timestamp | Stamp) -> int:
    return stamp.epoch if isinstance(stamp, Stamp) else 0


def _numbers(stamp: Timestamp | Stamp) -> dict[Topic, int]:
    if isinstance(stamp, Timestamp):
        return dict(stamp)
    return {**dict(stamp.higher), stamp.topic: stamp.number}


def _is_below(own: Topic, numbers: Mapping[Topic, int], highest: Mapping[Topic, int]) -> bool:
    """Whether an event comes before something that was seen: by its own number, or another."""
    return numbers[own] <= highest.get(own, -1) or any(
        number < highest.get(topic, -1) for topic, number in numbers.items()
    )
