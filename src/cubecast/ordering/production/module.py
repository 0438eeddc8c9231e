"""The ordering module of one node in production: one door in, effects out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

from cubecast.ordering.effects import (
    Arrived,
    Cause,
    Effect,
    Publish,
    Received,
    Subscribe,
    Time,
    Unsubscribe,
    Wake,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.production.manager import Manager
from cubecast.ordering.production.messages import (
    Fill,
    ProductionMessage,
    Register,
    Registered,
    Request,
    Source,
    Stamped,
)
from cubecast.ordering.production.publisher import Publisher
from cubecast.ordering.production.subscriber import Subscriber, Waiting
from cubecast.ordering.timestamps import Topic


class OrderingModule:
    """Publisher, subscriber, and the managers that live at one node."""

    def __init__(
        self,
        name: Member,
        topics: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
        *,
        life: int = 0,
        waiting: Waiting | None = None,
        retry_after: Time | None = None,
    ) -> None:
        """`topics`: all there are, the highest first; `managed`: those whose managers live here."""
        waiting = waiting if waiting is not None else Waiting()
        self.publisher = Publisher(Source(name, life), manager_of, retry_after)
        self.subscriber = Subscriber(name, topics, manager_of, waiting, retry_after)
        self.managers = {topic: Manager(topic, topics, manager_of) for topic in managed}

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        """What follows from a cause."""
        match cause:
            case Publish():
                return self.publisher.publish(cause, now)
            case Subscribe():
                return self.subscriber.subscribe(cause.topic, now)
            case Unsubscribe():
                return self.subscriber.unsubscribe(cause.topic, now)
            case Arrived():
                return self.subscriber.on_arrived(cause, now)
            case Received():
                return self._receive(cast(ProductionMessage, cause.message), now)
            case Wake():
                return [*self.publisher.on_wake(now), *self.subscriber.on_wake(now)]

    def _receive(self, message: ProductionMessage, now: Time) -> list[Effect]:
        match message:
            case Request():
                return self.managers[message.topic].on_request(message)
            case Fill():
                return self.managers[message.at].on_fill(message)
            case Stamped():
                return self.publisher.on_stamped(message, now)
            case Register():
                return self.managers[message.at].on_register(message)
            case Registered():
                return self.subscriber.on_registered(message, now)
