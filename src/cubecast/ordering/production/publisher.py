"""The publisher's part: events wait for their stamps, many at a time.

Events of one topic that are published while a request of that topic is under way share the next
request: a publisher is not limited to one event per round trip, and its events keep their order.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.ordering.effects import Effect, Publish, Send, ServicePublish, Time, WakeAt
from cubecast.ordering.messages import Member
from cubecast.ordering.production.messages import Request, Source, Stamped
from cubecast.ordering.timestamps import Stamp, Topic

MAX_BATCH = 256
"""Events of one request."""


class Outgoing:
    """The events of one topic: those that are asked for, and those that wait."""

    __slots__ = ("again_at", "asked", "first", "waiting")

    def __init__(self) -> None:
        self.first = 0
        """The number, at this publisher, of the first event that has no stamp."""
        self.asked: list[Publish] = []
        self.waiting: list[Publish] = []
        self.again_at: Time | None = None


class Publisher:
    """What one node, in one life, publishes."""

    def __init__(
        self, source: Source, manager_of: Callable[[Topic], Member], retry_after: Time | None
    ) -> None:
        self._source = source
        self._manager_of = manager_of
        self._retry_after = retry_after
        self.topics: dict[Topic, Outgoing] = {}

    def publish(self, publish: Publish, now: Time) -> list[Effect]:
        """Ask for a stamp, now or with the next request."""
        outgoing = self.topics.setdefault(publish.topic, Outgoing())
        outgoing.waiting.append(publish)
        return [] if outgoing.asked else self._ask_next(publish.topic, outgoing, now)

    def _ask_next(self, topic: Topic, outgoing: Outgoing, now: Time) -> list[Effect]:
        outgoing.asked = outgoing.waiting[:MAX_BATCH]
        del outgoing.waiting[:MAX_BATCH]
        return self._ask(topic, outgoing, now) if outgoing.asked else []

    def _ask(self, topic: Topic, outgoing: Outgoing, now: Time) -> list[Effect]:
        first, count = outgoing.first, len(outgoing.asked)
        request = Request(topic, self._source, first, count, first)
        effects: list[Effect] = [Send(self._manager_of(topic), request)]
        if self._retry_after is not None:
            outgoing.again_at = now + self._retry_after
            effects.append(WakeAt(outgoing.again_at))
        return effects

    def on_stamped(self, message: Stamped, now: Time) -> list[Effect]:
        """Hand the events to the service, and ask for the next ones; an old answer is ignored."""
        outgoing = self.topics.get(message.topic)
        if (
            outgoing is None
            or message.life != self._source.life
            or message.first != outgoing.first
            or message.count != len(outgoing.asked)
        ):
            return []
        effects: list[Effect] = []
        for place, publish in enumerate(outgoing.asked):
            passed = message.passed if not place else ()
            stamp = Stamp(message.topic, message.number + place, message.higher, passed)
            effects.append(ServicePublish(publish.topic, publish.payload, stamp))
        outgoing.first += message.count
        outgoing.asked = []
        outgoing.again_at = None
        return [*effects, *self._ask_next(message.topic, outgoing, now)]

    def next_wake(self) -> Time | None:
        """When something is asked for again."""
        times = (outgoing.again_at for outgoing in self.topics.values())
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        """Ask again for what was not answered."""
        effects: list[Effect] = []
        for topic, outgoing in self.topics.items():
            if outgoing.again_at is not None and outgoing.again_at <= now:
                effects += self._ask(topic, outgoing, now)
        return effects
