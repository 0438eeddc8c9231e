"""The room where events wait for others that come before them.

Each event waits for one number of one topic at a time; then the front looks for the next one.  So
a notified event wakes the events that wait for it, and no others.

Invariants: an event is in the room once, by its topic and number; `size` is the sum of `size_of`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from cubecast.ordering.effects import ServiceNotified, Time
from cubecast.ordering.timestamps import Number, Topic

Place: TypeAlias = tuple[Topic, Number]


def size_of(event: ServiceNotified) -> int:
    """The bytes of an event's payload; payloads of the simulator are texts, and count as such."""
    payload = event.payload
    return len(payload) if isinstance(payload, bytes | str) else 0


class Guest(NamedTuple):
    """A waiting event: until when it waits, and for which place."""

    until: Time | None
    event: ServiceNotified
    awaited: Place


class WaitingRoom:
    """The waiting events of one subscriber, in the order of arrival."""

    def __init__(self) -> None:
        self._guests: dict[Place, Guest] = {}
        self.size = 0
        """Bytes of all payloads that wait."""
        self._by_topic: dict[Topic, list[tuple[Number, Place]]] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def __iter__(self) -> Iterator[Guest]:
        return iter(self._guests.values())

    def __contains__(self, place: Place) -> bool:
        return place in self._guests

    def add(self, place: Place, guest: Guest) -> None:
        """Let an event wait, or wait on for another place."""
        if place not in self._guests:
            self.size += size_of(guest.event)
        self._guests[place] = guest
        topic, number = guest.awaited
        heappush(self._by_topic.setdefault(topic, []), (number, place))

    def reached(self, topic: Topic, number: Number) -> list[Place]:
        """The events that waited for a number up to this one; they are still in the room."""
        heap = self._by_topic.get(topic)
        found: list[Place] = []
        while heap and heap[0][0] <= number:
            awaited, place = heappop(heap)
            guest = self._guests.get(place)
            if guest is not None and guest.awaited == (topic, awaited):
                found.append(place)
        if heap is not None and not heap:
            del self._by_topic[topic]
        return found

    def all(self) -> list[Guest]:
        """All waiting events, to be added again or to leave; their awaited places are cleared."""
        self._by_topic.clear()
        return list(self._guests.values())

    def guest(self, place: Place) -> Guest:
        return self._guests[place]

    def drop(self, topic: Topic) -> None:
        """Take out all events of a topic."""
        for place in [place for place in self._guests if place[0] == topic]:
            self.leave(place)

    def leave(self, place: Place) -> ServiceNotified:
        """Take an event out; its entry by topic is dropped when that number is reached."""
        event = self._guests.pop(place).event
        self.size -= size_of(event)
        return event


class Backlog:
    """Events of epochs that have not begun, in the order in which they came."""

    def __init__(self) -> None:
        self._events: deque[ServiceNotified] = deque()
        self.size = 0
        """Bytes of all their payloads."""

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ServiceNotified]:
        return iter(self._events)

    def append(self, event: ServiceNotified) -> None:
        self._events.append(event)
        self.size += size_of(event)

    def first(self) -> ServiceNotified:
        """Take out the first event."""
        event = self._events.popleft()
        self.size -= size_of(event)
        return event

    def keep(self, wanted: Callable[[ServiceNotified], bool]) -> list[ServiceNotified]:
        """Take out, and return, all events that are not wanted."""
        events = list(self._events)
        self._events.clear()
        self.size = 0
        unwanted = []
        for event in events:
            if wanted(event):
                self.append(event)
            else:
                unwanted.append(event)
        return unwanted
