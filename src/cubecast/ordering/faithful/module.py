"""The ordering module of one node: publisher, subscriber, and the managers that live here.

It has one method, `step`: it returns the effects of a cause; the module does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

from cubecast.ordering.effects import (
    Cause,
    Effect,
    LeaveCall,
    PublishCall,
    ReceivedFromModule,
    ServiceNotified,
    Start,
    SubscribeCall,
    Time,
    UnsubscribeCall,
    Wake,
)
from cubecast.ordering.faithful.buffer import Buffer
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig
from cubecast.ordering.faithful.manager import FaithfulManager
from cubecast.ordering.faithful.order import SystemManager, TopicOrder, pass_on
from cubecast.ordering.faithful.publisher import FaithfulPublisher
from cubecast.ordering.faithful.subscriber import FaithfulSubscriber
from cubecast.ordering.messages import (
    Completed,
    CreateTimestamp,
    FillSubscription,
    FillTimestamp,
    Free,
    Member,
    Message,
    NewOrder,
    RequestSwap,
    SubscriptionCompleted,
    UpdateSubscription,
)
from cubecast.ordering.timestamps import Topic


class FaithfulModule:
    """[T] at one node, with managers that stay where they are."""

    def __init__(
        self,
        name: Member,
        topics: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
        config: FaithfulConfig | None = None,
    ) -> None:
        """`topics`: all there are, the highest first; `managed`: those whose managers live here."""
        config = config if config is not None else FaithfulConfig()
        self._manager_of = manager_of
        self.order = TopicOrder(topics)
        self.publisher = FaithfulPublisher(name, manager_of, config)
        self.subscriber = FaithfulSubscriber(name, self.order, manager_of)
        self.buffer = Buffer(
            config.buffer,
            config.wait_for,
            lambda: self.subscriber.clock,
            lambda event: self.subscriber.notify(event),
        )
        self.managers = {
            topic: FaithfulManager(topic, self.order, manager_of, config)
            for topic in managed
            if topic != SYSTEM_TOPIC
        }
        self.system = SystemManager(self.order, manager_of, config)

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        """Return the effects of a cause."""
        match cause:
            case PublishCall():
                return self.publisher.publish(cause, now)
            case SubscribeCall():
                return self.subscriber.subscribe(cause.topic)
            case UnsubscribeCall():
                return self.subscriber.unsubscribe(cause.topic)
            case ServiceNotified():
                if cause.topic not in self.subscriber.topics:
                    return []
                return self.buffer.on_arrived(cause, now)
            case ReceivedFromModule():
                return self._receive(cast(Message, cause.message), now)
            case Wake():
                woken = (self.publisher, self.buffer, self.system)
                return [effect for one in woken for effect in one.on_wake(now)]
            case Start() | LeaveCall():
                return []  # the paper's managers never begin or leave

    def _receive(self, message: Message, now: Time) -> list[Effect]:
        match message:
            case CreateTimestamp():
                return self.managers[message.topic].on_create(message)
            case FillTimestamp():
                return self.managers[message.at].on_fill(message)
            case Completed():
                return self.publisher.on_completed(message)
            case FillSubscription():
                return self.managers[message.at].on_subscription(message)
            case SubscriptionCompleted():
                return self.subscriber.on_completed(message)
            case UpdateSubscription():
                return self.managers[message.at].on_update(message)
            case Free():
                return self.managers[message.at].on_free(message)
            case RequestSwap():
                return self.system.on_request(message, now)
            case NewOrder():
                if message.at == SYSTEM_TOPIC:
                    return self.system.on_returned(message)
                return pass_on(self.order, message, self._manager_of)
