"""The deadlines of one node's topics, in one heap.

A topic with nothing due costs nothing, however many topics there are.

Invariants:

1. A topic with a deadline has an entry at or before it; `_planned` has the earliest one's time.
2. An entry whose time is not the planned one is stale, and is dropped when its time comes.  There
   is at most one entry for each time a topic moved its deadline forward.
"""

from __future__ import annotations

from heapq import heappop, heappush

from cubecast.protocol.port import Port, Time, Topic


class Agenda:
    """The deadlines of one node's topics."""

    __slots__ = ("_heap", "_planned", "_port", "_untidy")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._heap: list[tuple[Time, Topic]] = []
        self._planned: dict[Topic, Time] = {}
        self._untidy = False

    def plan(self, topic: Topic, at: Time) -> None:
        """Have a topic among the `due` at this time, or earlier if it is planned earlier."""
        planned = self._planned.get(topic)
        if planned is None or at < planned:
            self._planned[topic] = at
            heappush(self._heap, (at, topic))
            self._port.wake(at)

    def note_end(self) -> None:
        """Note that something ended, so that the node may have state to forget."""
        self._untidy = True

    def disturb(self, now: Time) -> None:
        """Have the node look soon for state to forget."""
        self._untidy = True
        self._port.wake(now)

    def take_untidy(self) -> bool:
        """Whether something ended since the last call."""
        untidy, self._untidy = self._untidy, False
        return untidy

    def due(self, now: Time) -> list[tuple[Time, Topic]]:
        """The entries whose time has come, the earliest first; some may be stale (`begin`)."""
        heap = self._heap
        found = []
        while heap and heap[0][0] <= now:
            found.append(heappop(heap))
        return found

    def begin(self, topic: Topic, at: Time) -> bool:
        """Whether an entry is the planned one of its topic; then clear the plan."""
        if self._planned.get(topic) != at:
            return False
        del self._planned[topic]
        return True

    def forget(self, topic: Topic) -> None:
        """Drop the plan of a forgotten topic; its entries are stale."""
        self._planned.pop(topic, None)

    def ask(self) -> None:
        """Ask the world for the next wake."""
        if self._heap:
            self._port.wake(self._heap[0][0])

    def __len__(self) -> int:
        return len(self._heap)
