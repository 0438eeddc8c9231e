"""The manager of one topic: it numbers events and knows the subscriptions ([T] 3.2 and 5).

[T] Figure 5 is lost in our text; its lines are rebuilt from the prose around it and the proof of
Lemma 1.  A manager increments its clock for events of its own topic and for subscriptions, and only
copies it into timestamps that pass.

Where messages may be lost, a manager keeps each timestamp as it left here, and sends the same one
again when it is asked again, until it hears that the event has its timestamp (`Free`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cubecast.ordering.effects import Effect, SendToModule
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig
from cubecast.ordering.faithful.order import TopicOrder
from cubecast.ordering.messages import (
    Completed,
    CreateTimestamp,
    FillSubscription,
    FillTimestamp,
    Free,
    Member,
    RequestSwap,
    SubscriptionCompleted,
    UpdateSubscription,
)
from cubecast.ordering.timestamps import EMPTY, Number, Timestamp, Topic

MIN_SHARED = 2
"""The number of subscriptions with both topics from which on events of one name the other."""


def sequencing_group(
    topic: Topic, subscriptions: Iterable[frozenset[Topic]], order: TopicOrder
) -> list[Topic]:
    """The topics that events of `topic` are numbered in, the highest first ([T] Figure 4).

    `subscriptions` are those with the topic.  Its group are the topics before it that are in at
    least two of them (lines 03-07), and the topic itself, always: as printed a topic without
    subscribers has an empty group.
    """
    shared: dict[Topic, int] = {}
    for subscription in subscriptions:
        for other in subscription:
            shared[other] = shared.get(other, 0) + 1
    enough = [other for other, count in shared.items() if count >= MIN_SHARED]
    return [*order.sort(other for other in enough if order.precedes(other, topic)), topic]


class FaithfulManager:
    """TM_T: the state of one topic."""

    def __init__(
        self,
        topic: Topic,
        order: TopicOrder,
        manager_of: Callable[[Topic], Member],
        config: FaithfulConfig,
    ) -> None:
        self.topic = topic
        self._order = order
        self._manager_of = manager_of
        self._config = config
        self.clock: Number = 0
        self.subscriptions: dict[Member, frozenset[Topic]] = {}
        self.kept: dict[tuple[Member, int], SendToModule] = {}
        """Timestamps as they left here, of events that may be asked for again."""

    def on_create(self, message: CreateTimestamp) -> list[Effect]:
        """Number an event, and send its timestamp on (Figure 5b, lines 01-09)."""
        again = self.kept.get((message.publisher, message.event))
        if again is not None:
            return [again]
        group = sequencing_group(self.topic, self.subscriptions.values(), self._order)
        self.clock += 1
        stamp = Timestamp((topic, EMPTY) for topic in group).filled(self.topic, self.clock)
        if self._config.swapping is not None:
            stamp = stamp.filled(SYSTEM_TOPIC, self._order.epoch)
        return [self._pass_on(message.topic, message.publisher, message.event, stamp)]

    def on_fill(self, message: FillTimestamp) -> list[Effect]:
        """Copy our clock into a timestamp that passes (Figure 5b, lines 10-16).

        One of an older epoch is discarded; one of a newer epoch teaches us the order ([T] 5).
        """
        again = self.kept.get((message.publisher, message.event))
        if again is not None:
            return [again]
        stamp = Timestamp(message.entries)
        epoch = stamp.get(SYSTEM_TOPIC, self._order.epoch)
        if epoch < self._order.epoch:
            return []
        if epoch > self._order.epoch:
            self._order.infer(epoch, [topic for topic in stamp if topic != SYSTEM_TOPIC])
        stamp = stamp.filled(self.topic, self.clock)
        passed = self._pass_on(message.topic, message.publisher, message.event, stamp)
        return [passed, *self._ask_to_swap(stamp)]

    def _pass_on(
        self, topic: Topic, publisher: Member, event: int, stamp: Timestamp
    ) -> SendToModule:
        entries = tuple(stamp.items())
        following = stamp.before(self.topic)
        if following is None:
            sent = SendToModule(publisher, Completed(topic, event, entries))
        else:
            fill = FillTimestamp(topic, publisher, event, following, entries)
            sent = SendToModule(self._manager_of(following), fill)
        if self._config.retry_after is not None:
            self.kept[publisher, event] = sent
        return sent

    def on_free(self, message: Free) -> list[Effect]:
        """Keep a timestamp no more, and tell the next manager that it passed."""
        self.kept.pop((message.publisher, message.event), None)
        place = message.topics.index(self.topic)
        if not place:
            return []
        following = message.topics[place - 1]
        free = Free(message.publisher, message.event, following, message.topics)
        return [SendToModule(self._manager_of(following), free)]

    def _ask_to_swap(self, stamp: Timestamp) -> list[Effect]:
        """Ask to change places with a lower topic that passes and is more popular ([T] 5)."""
        swapping = self._config.swapping
        if swapping is None:
            return []
        for lower, number in stamp.items():
            below = lower != SYSTEM_TOPIC and self._order.precedes(self.topic, lower)
            if below and swapping.wants(self.clock, number):
                request = RequestSwap(self.topic, lower)
                return [SendToModule(self._manager_of(SYSTEM_TOPIC), request)]
        return []

    def on_subscription(self, message: FillSubscription) -> list[Effect]:
        """Learn a subscription, and give it a number of ours (Figure 7b).

        Where topics change places, the first manager adds the epoch, and one of a later epoch
        discards it like every timestamp ([T] 5).  One of an earlier epoch infers nothing (reading):
        the entries are in the order that the subscriber knows, and subscribers are told of none.
        """
        stamp = Timestamp(message.entries)
        if self._config.swapping is not None:
            epoch = stamp.get(SYSTEM_TOPIC, self._order.epoch)
            if epoch < self._order.epoch:
                return []
            stamp = stamp.filled(SYSTEM_TOPIC, epoch)
        self.subscriptions[message.subscriber] = frozenset(message.topics)
        self.clock += 1
        stamp = stamp.filled(self.topic, self.clock)
        entries = tuple(stamp.items())
        following = stamp.before(self.topic)
        if following is None:
            return [
                SendToModule(message.subscriber, SubscriptionCompleted(message.wanted, entries))
            ]
        fill = FillSubscription(
            message.subscriber, message.wanted, following, message.topics, entries
        )
        return [SendToModule(self._manager_of(following), fill)]

    def on_update(self, message: UpdateSubscription) -> list[Effect]:
        """Learn that a subscriber left a topic, ours if nothing is named (Figure 8b)."""
        if message.topics:
            self.subscriptions[message.subscriber] = frozenset(message.topics)
        else:
            self.subscriptions.pop(message.subscriber, None)
        return []
