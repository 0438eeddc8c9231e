"""Events that arrive before their turn wait a while ([T] 5, event buffering).

An event passes at once if no smaller one can exist: its number in its own topic is the next one,
and all others are those of the clock.  Else it waits, and leaves the buffer when that has become
true, when its time is over, or as the head when the buffer is full and another event has to wait.
Every event that leaves takes the test of Figure 6 (reading): it may be tagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cubecast.ordering.effects import Effect, ServiceNotified, Time, WakeAt
from cubecast.ordering.timestamps import Number, Timestamp, Topic


class Buffer:
    """The queue of one subscriber, at most `size` events."""

    def __init__(
        self,
        size: int,
        wait_for: Time,
        clock: Callable[[], Mapping[Topic, Number]],
        notify: Callable[[ServiceNotified], list[Effect]],
    ) -> None:
        self._size = size
        self._wait_for = wait_for
        self._clock = clock
        self._notify = notify
        self.waiting: list[tuple[Time, ServiceNotified]] = []

    def on_arrived(self, event: ServiceNotified, now: Time) -> list[Effect]:
        """Notify an event, or let it wait."""
        if not self._size or self._passes(event):
            return [*self._notify(event), *self._release(now)]
        effects: list[Effect] = []
        if len(self.waiting) >= self._size:
            _, head = self.waiting.pop(0)
            effects += [*self._notify(head), *self._release(now)]
        until = now + self._wait_for
        self.waiting.append((until, event))
        return [*effects, WakeAt(until)]

    def on_wake(self, now: Time) -> list[Effect]:
        """Notify the events whose time is over."""
        effects: list[Effect] = []
        while self.waiting and self.waiting[0][0] <= now:
            _, event = self.waiting.pop(0)
            effects += [*self._notify(event), *self._release(now)]
        return effects

    def _release(self, now: Time) -> list[Effect]:
        """Notify the events that need not wait any more."""
        effects: list[Effect] = []
        while True:
            place = next((n for n, (_, one) in enumerate(self.waiting) if self._passes(one)), None)
            if place is None:
                return effects
            effects += self._notify(self.waiting.pop(place)[1])

    def _passes(self, event: ServiceNotified) -> bool:
        """Whether no event with a smaller timestamp can exist, by [T]."""
        clock = self._clock()
        assert isinstance(event.timestamp, Timestamp)
        return all(
            number == clock[topic] + (topic == event.topic)
            for topic, number in event.timestamp.items()
            if topic in clock
        )
