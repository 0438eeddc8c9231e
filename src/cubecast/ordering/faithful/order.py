"""The order of topics, as one node knows it, and how it changes ([T] 5, dynamic topic ordering)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cubecast.ordering.effects import Effect, SendToModule, Time, WakeAt
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig
from cubecast.ordering.messages import Member, NewOrder, RequestSwap
from cubecast.ordering.timestamps import Topic


class TopicOrder:
    """All topics, the highest first, in one epoch."""

    def __init__(self, topics: Sequence[Topic]) -> None:
        self.epoch = 0
        self._ranks: dict[Topic, int] = {}
        self._set(topics)

    def _set(self, topics: Sequence[Topic]) -> None:
        self._ranks = {topic: rank for rank, topic in enumerate(topics)}

    @property
    def topics(self) -> list[Topic]:
        return sorted(self._ranks, key=self._ranks.__getitem__)

    def precedes(self, one: Topic, other: Topic) -> bool:
        return self._ranks[one] < self._ranks[other]

    def sort(self, topics: Iterable[Topic]) -> list[Topic]:
        return sorted(topics, key=self._ranks.__getitem__)

    def adopt(self, epoch: int, topics: Sequence[Topic]) -> None:
        """Go over to a later epoch, or learn in full the order of one that we inferred."""
        if epoch >= self.epoch:
            self.epoch = epoch
            self._set(topics)

    def infer(self, epoch: int, known: Sequence[Topic]) -> None:
        """Go over to a later epoch of which only some topics are known, in their order.

        Reading: those take the places that they had among them; nothing is known of the others.
        """
        places = iter(sorted(self._ranks[topic] for topic in known))
        ranks = dict(self._ranks)
        for topic in known:
            ranks[topic] = next(places)
        self.epoch, self._ranks = epoch, ranks


class SystemManager:
    """TM_Ts: it numbers the epochs, and tells every manager the order of the next one.

    Where messages may be lost, it sends an order again until that has come back from all managers.
    """

    def __init__(
        self, order: TopicOrder, manager_of: Callable[[Topic], Member], config: FaithfulConfig
    ) -> None:
        self._order = order
        self._manager_of = manager_of
        self._config = config
        self.swaps = 0
        self.under_way: dict[int, SendToModule] = {}
        """Orders that have not come back, by their epochs."""
        self._again_at: Time | None = None

    def on_request(self, message: RequestSwap, now: Time) -> list[Effect]:
        """Swap two topics: tell the lowest manager first."""
        *left, at = topics = self._order.topics
        one, other = topics.index(message.topic), topics.index(message.lower)
        topics[one], topics[other] = topics[other], topics[one]
        self.swaps += 1
        epoch = self._order.epoch + 1
        self._order.adopt(epoch, topics)
        new_order = NewOrder(epoch, at, tuple(topics), tuple(left))
        self.under_way[epoch] = SendToModule(self._manager_of(at), new_order)
        return [self.under_way[epoch], *self._wait(now)]

    def _wait(self, now: Time) -> list[Effect]:
        if self._config.retry_after is None:
            return []
        self._again_at = now + self._config.retry_after
        return [WakeAt(self._again_at)]

    def on_returned(self, message: NewOrder) -> list[Effect]:
        """Forget an order that has visited all managers."""
        self.under_way.pop(message.epoch, None)
        return []

    def on_wake(self, now: Time) -> list[Effect]:
        """Send again the orders that have not come back."""
        if not self.under_way or self._again_at is None or self._again_at > now:
            return []
        return [*self.under_way.values(), *self._wait(now)]


def pass_on(
    order: TopicOrder, message: NewOrder, manager_of: Callable[[Topic], Member]
) -> list[Effect]:
    """Adopt a new order at a manager, and tell the next higher one; the highest tells TM_Ts."""
    order.adopt(message.epoch, message.order)
    *left, following = message.left or (SYSTEM_TOPIC,)
    new_order = NewOrder(message.epoch, following, message.order, tuple(left))
    return [SendToModule(manager_of(following), new_order)]
