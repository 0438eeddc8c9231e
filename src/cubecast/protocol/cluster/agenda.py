"""When the topics of one node have something to do: one heap for all of them.

A topic that has nothing due costs nothing, however many there are.

Invariants:

1. A topic with a deadline has an entry at or before it; `Entry.planned` is the earliest one's time.
2. An entry whose time is not its topic's `planned` is stale, and is dropped when its time comes.
   There is at most one entry for each time a topic moved its deadline forward.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from cubecast.protocol.port import Port, Time, Topic


class Entry(Protocol):
    """What the agenda needs of a topic."""

    topic: Topic
    planned: Time | None


class Agenda:
    """The deadlines of one node's topics."""

    __slots__ = ("_heap", "_port", "untidy")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._heap: list[tuple[Time, Topic]] = []
        self.untidy = False
        """Something came to its end, so that the node may have something to forget."""

    def plan(self, entry: Entry, at: Time) -> None:
        """Have `entry` among the `due` at this time, or earlier if it is planned earlier."""
        if entry.planned is None or at < entry.planned:
            entry.planned = at
            heappush(self._heap, (at, entry.topic))
            self._port.wake(at)

    def disturb(self, now: Time) -> None:
        """Have the node see soon what it may forget."""
        self.untidy = True
        self._port.wake(now)

    def due(self, now: Time) -> list[tuple[Time, Topic]]:
        """The entries whose time has come, the earliest first; some may be stale."""
        heap = self._heap
        found = []
        while heap and heap[0][0] <= now:
            found.append(heappop(heap))
        return found

    def ask(self) -> None:
        """Ask the world for the next wake."""
        if self._heap:
            self._port.wake(self._heap[0][0])

    def __len__(self) -> int:
        return len(self._heap)
