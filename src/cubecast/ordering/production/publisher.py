"""The publisher's part: events wait for their stamps, many at a time.

Events of one topic that are published while a request of that topic is under way share the next
request: a publisher is not limited to one event per round trip, and its events keep their order.

An event is published with one stamp (hole T13).  When a new layout comes before the answer, the
request is repeated there; a late answer of the old layout is ignored, and its numbers are void:
managers ask (`Confirm`), and are told so.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.ordering.effects import (
    Effect,
    PublishCall,
    SendToModule,
    ServicePublish,
    Time,
    WakeAt,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import (
    Confirm,
    Confirmed,
    Request,
    Source,
    Stamped,
)
from cubecast.ordering.timestamps import Stamp, Topic

MAX_BATCH = 256
"""Events of one request."""
MAX_IDLE = 1024
"""Topics that are remembered without a pending request, at most."""


class OutgoingEvents:
    """The events of one topic: those requested, and those that wait."""

    __slots__ = ("again_at", "asked", "confirm", "first", "since", "waiting")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number, at this publisher, of the first event that has no stamp."""
        self.since = first
        """The first event that is stamped in the present epoch."""
        self.asked: list[PublishCall] = []
        self.waiting: list[PublishCall] = []
        self.again_at: Time | None = None
        self.confirm: Confirm | None = None
        """A manager's question that is answered once the requested events are published."""

    @property
    def is_idle(self) -> bool:
        return not self.asked and not self.waiting


class Publisher:
    """The publications of one node in one life.

    Bounds: one entry per topic that it has published to recently: beyond `MAX_IDLE` topics without
    requests are dropped.  As many events as its application gives.
    """

    def __init__(
        self,
        me: Source,
        retry_after: Time | None,
        ask_for_layout: Callable[[Time], list[Effect]],
    ) -> None:
        self._me = me
        self._retry_after = retry_after
        self._ask_for_layout = ask_for_layout
        self._layout: Layout | None = None
        self.topics: dict[Topic, OutgoingEvents] = {}
        self._next = 0
        """The number of the next requested event, of any topic."""

    @property
    def waiting_for(self) -> set[Member]:
        """Managers that have not answered requests."""
        if self._layout is None:
            return set()
        return self._layout.managers_of(topic for topic, one in self.topics.items() if one.asked)

    def publish(self, publish: PublishCall, now: Time) -> list[Effect]:
        """Ask for a stamp, now or with the next request."""
        outgoing = self.topics.get(publish.topic)
        if outgoing is None:
            self._drop_idle()
            outgoing = self.topics[publish.topic] = OutgoingEvents(self._next)
        outgoing.waiting.append(publish)
        return [] if outgoing.asked else self._ask_next(publish.topic, outgoing, now)

    def _drop_idle(self) -> None:
        if len(self.topics) > MAX_IDLE:
            self.topics = {topic: one for topic, one in self.topics.items() if not one.is_idle}

    def on_layout(self, layout: Layout, now: Time) -> list[Effect]:
        """Request stamps again for all events without one."""
        self._layout = layout
        effects: list[Effect] = []
        for topic, outgoing in self.topics.items():
            if outgoing.confirm is not None:
                effects.append(self._confirmed(outgoing.confirm, used=False))
                outgoing.confirm = None
            outgoing.since = outgoing.first
            if outgoing.asked:
                effects += self._ask(topic, outgoing, now)
            else:
                effects += self._ask_next(topic, outgoing, now)
        return effects

    def _ask_next(self, topic: Topic, outgoing: OutgoingEvents, now: Time) -> list[Effect]:
        outgoing.asked = outgoing.waiting[:MAX_BATCH]
        del outgoing.waiting[:MAX_BATCH]
        if not outgoing.asked:
            return []
        outgoing.first = self._next
        self._next += len(outgoing.asked)
        return self._ask(topic, outgoing, now)

    def _ask(self, topic: Topic, outgoing: OutgoingEvents, now: Time) -> list[Effect]:
        effects: list[Effect] = []
        if self._layout is None:
            effects += self._ask_for_layout(now)
        else:
            epoch, first, count = self._layout.epoch, outgoing.first, len(outgoing.asked)
            request = Request(epoch, topic, self._me, first, count, first)
            effects.append(SendToModule(self._layout.manager_of(topic), request))
        if self._retry_after is not None:
            outgoing.again_at = now + self._retry_after
            effects.append(WakeAt(outgoing.again_at))
        return effects

    def on_stamped(self, message: Stamped, now: Time) -> list[Effect]:
        """Hand the events to the service, and request the next stamps; ignore an old answer."""
        outgoing = self.topics.get(message.topic)
        if (
            outgoing is None
            or self._layout is None
            or message.epoch != self._layout.epoch
            or message.life != self._me.life
            or message.first != outgoing.first
            or message.count != len(outgoing.asked)
        ):
            return []
        effects: list[Effect] = []
        for place, publish in enumerate(outgoing.asked):
            passed = message.passed if not place else ()
            stamp = Stamp(
                message.topic, message.number + place, message.higher, passed, message.epoch
            )
            effects.append(ServicePublish(publish.topic, publish.payload, stamp))
        outgoing.first = self._next
        outgoing.asked = []
        outgoing.again_at = None
        if outgoing.confirm is not None:
            effects.append(self._confirmed(outgoing.confirm, used=True))
            outgoing.confirm = None
        return [*effects, *self._ask_next(message.topic, outgoing, now)]

    # -- what managers want to know --------------------------------------------------------------

    def on_confirm(self, message: Confirm) -> list[Effect]:
        """Answer what happened to a request: published, or void; later, if it is not known yet."""
        if message.life != self._me.life or self._layout is None:
            return []  # publications of an earlier life are not known here
        outgoing = self.topics.get(message.topic)
        if outgoing is None:
            return [self._confirmed(message, used=True)]
        if message.epoch < self._layout.epoch:
            return [self._confirmed(message, used=message.first < outgoing.since)]
        if message.first < outgoing.first:
            return [self._confirmed(message, used=True)]
        outgoing.confirm = message
        return []

    def _confirmed(self, asked: Confirm, used: bool) -> SendToModule:
        source = Source(self._me.member, asked.life)
        assert self._layout is not None
        answer = Confirmed(asked.epoch, asked.topic, source, asked.first, used)
        return SendToModule(asked.by, answer)

    # -- time ------------------------------------------------------------------------------------

    def next_wake(self) -> Time | None:
        """When a request is repeated."""
        times = (outgoing.again_at for outgoing in self.topics.values())
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        """Repeat requests without an answer, and ask for the layout, which may have changed."""
        effects: list[Effect] = []
        due = False
        for topic, outgoing in self.topics.items():
            if outgoing.again_at is not None and outgoing.again_at <= now:
                effects += self._ask(topic, outgoing, now)
                due = True
        return [*effects, *self._ask_for_layout(now)] if due else effects
