"""Numbers of topics that were skipped and may still come: as ranges, so that many are cheap.

Bound: at most `MAX_RANGES` ranges; beyond that the oldest one is forgotten, and its numbers are
counted.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from cubecast.ordering.timestamps import Number, Topic

MAX_RANGES = 4096


class Gaps:
    """The missing numbers of topics."""

    def __init__(self) -> None:
        self._last: dict[tuple[Topic, Number], Number] = {}
        """(topic, first number) of each range -> its last number; the oldest first."""
        self._firsts: dict[Topic, list[Number]] = {}
        """The first numbers of a topic's ranges, in their order."""
        self.forgotten = 0
        """Numbers of forgotten ranges: events with them are taken for known if they come."""

    def __len__(self) -> int:
        return len(self._last)

    def add(self, topic: Topic, first: Number, last: Number) -> None:
        """Mark all numbers from `first` to `last` as missing; none of them was so before."""
        if first > last:
            return
        self._put(topic, first, last)
        while len(self._last) > MAX_RANGES:
            oldest = next(iter(self._last))
            self.forgotten += self._last[oldest] - oldest[1] + 1
            self._drop(*oldest)

    def _put(self, topic: Topic, first: Number, last: Number) -> None:
        self._last[topic, first] = last
        insort(self._firsts.setdefault(topic, []), first)

    def _drop(self, topic: Topic, first: Number) -> None:
        del self._last[topic, first]
        firsts = self._firsts[topic]
        firsts.remove(first)
        if not firsts:
            del self._firsts[topic]

    def has(self, topic: Topic, number: Number) -> bool:
        return self._range_of(topic, number) is not None

    def _range_of(self, topic: Topic, number: Number) -> tuple[Number, Number] | None:
        firsts = self._firsts.get(topic)
        place = 0 if firsts is None else bisect_right(firsts, number)
        if firsts is None or not place:
            return None
        first = firsts[place - 1]
        last = self._last[topic, first]
        return (first, last) if number <= last else None

    def take(self, topic: Topic, number: Number) -> bool:
        """Remove a number that has come; return whether it was missing."""
        found = self._range_of(topic, number)
        if found is None:
            return False
        first, last = found
        self._drop(topic, first)
        if first < number:
            self._put(topic, first, number - 1)
        if number < last:
            self._put(topic, number + 1, last)
        return True

    def leave(self, topic: Topic) -> None:
        """Forget a topic."""
        for first in self._firsts.pop(topic, ()):
            del self._last[topic, first]
