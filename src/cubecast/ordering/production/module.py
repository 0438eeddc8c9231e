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
from cubecast.ordering.ranking import Ranking
from cubecast.ordering.timestamps import Topic


class OrderingModule:
    """Publisher, subscriber, and the managers that live at one node."""

    def __init__(
        self,
        name: Member,
        first: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
        *,
        life: int = 0,
        waiting: Waiting | None = None,
        retry_after: Time | None = None,
    ) -> None:
        """`first`: topics in the order of their rank, before all others (`Ranking`).

        The manager of a topic begins with the first message to it; those of `managed` at once.
        """
        waiting = waiting if waiting is not None else Waiting()
        self._ranking = Ranking(first)
        self._manager_of = manager_of
        self.publisher = Publisher(Source(name, life), manager_of, retry_after)
        self.subscriber = Subscriber(name, self._ranking, manager_of, waiting, retry_after)
        self.managers: dict[Topic, Manager] = {}
        for topic in managed:
            self._manager(topic)

    def _manager(self, topic: Topic) -> Manager:
        found = self.managers.get(topic)
        if found is None:
            found = self.managers[topic] = Manager(topic, self._ranking, self._manager_of)
        return found

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

    def next_wake(self) -> Time | None:
        """When `Wake` is wanted next."""
        wanted = (self.publisher.next_wake(), self.subscriber.next_wake())
        return min((at for at in wanted if at is not None), default=None)

    def _receive(self, message: ProductionMessage, now: Time) -> list[Effect]:
        match message:
            case Request():
                return self._manager(message.topic).on_request(message)
            case Fill():
                return self._manager(message.at).on_fill(message)
            case Stamped():
                return self.publisher.on_stamped(message, now)
            case Register():
                return self._manager(message.at).on_register(message)
            case Registered():
                return self.subscriber.on_registered(message, now)
