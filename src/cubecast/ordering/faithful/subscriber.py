"""The subscriber's part: its clock decides which events are in order ([T] Figures 6-8).

Readings: an event of a topic that is not subscribed to is dropped (Figure 6's `else` would tag it);
the topic of a subscription that completes is remembered (Figure 7a, line 07 does not say which).
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.ordering.effects import (
    Effect,
    Notify,
    SendToModule,
    ServiceNotified,
    ServiceSubscribe,
    ServiceUnsubscribe,
)
from cubecast.ordering.faithful.order import TopicOrder
from cubecast.ordering.messages import (
    FillSubscription,
    Member,
    SubscriptionCompleted,
    UpdateSubscription,
)
from cubecast.ordering.timestamps import EMPTY, Number, Timestamp, Topic, smaller


class FaithfulSubscriber:
    """The topics of one node, and its clock."""

    def __init__(
        self,
        name: Member,
        order: TopicOrder,
        manager_of: Callable[[Topic], Member],
    ) -> None:
        self._name = name
        self._order = order
        self._manager_of = manager_of
        self.topics: set[Topic] = set()
        self.clock: dict[Topic, Number] = {}
        """`sub_LC`; a topic that was left stays (Figure 8 does not remove it).  Where topics change
        places it has the epoch, too (reading)."""

    def subscribe(self, topic: Topic) -> list[Effect]:
        """Send the new subscription through its managers, the lowest first (Figure 7a:01-04)."""
        topics = tuple(self._order.sort(self.topics | {topic}))
        stamp = Timestamp((one, EMPTY) for one in topics)
        at = stamp.last
        fill = FillSubscription(self._name, topic, at, topics, tuple(stamp.items()))
        return [SendToModule(self._manager_of(at), fill)]

    def on_completed(self, message: SubscriptionCompleted) -> list[Effect]:
        """Begin, with the clock that the managers sent (Figure 7a, lines 05-08)."""
        self.clock = dict(message.entries)
        self.topics.add(message.wanted)
        return [ServiceSubscribe(message.wanted)]

    def unsubscribe(self, topic: Topic) -> list[Effect]:
        """Tell all managers at once, and leave (Figure 8a)."""
        self.topics.discard(topic)
        left = tuple(self._order.sort(self.topics))
        effects: list[Effect] = [
            SendToModule(self._manager_of(one), UpdateSubscription(self._name, one, left))
            for one in left
        ]
        effects.append(
            SendToModule(self._manager_of(topic), UpdateSubscription(self._name, topic, ()))
        )
        return [*effects, ServiceUnsubscribe(topic)]

    def notify(self, event: ServiceNotified) -> list[Effect]:
        """Notify an event, tagged unless our clock is smaller than its timestamp (Figure 6)."""
        if event.topic not in self.topics:
            return []
        stamp = event.timestamp
        assert isinstance(stamp, Timestamp)
        in_order = smaller(self.clock, stamp)
        if in_order:
            for topic in self.clock.keys() & stamp.keys():
                self.clock[topic] = max(self.clock[topic], stamp[topic])
        return [Notify(event.topic, event.payload, stamp, in_order)]
