"""The order of topics, as one node knows it, and how it changes ([T] 5, dynamic topic ordering)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cubecast.ordering.effects import Effect, Send
from cubecast.ordering.faithful.config import SYSTEM_TOPIC
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
        """Go over to a later epoch."""
        if epoch > self.epoch:
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
    """TM_Ts: it numbers the epochs, and has every manager learn the order of the next one."""

    def __init__(self, order: TopicOrder, manager_of: Callable[[Topic], Member]) -> None:
        self._order = order
        self._manager_of = manager_of
        self.swaps = 0

    def on_request(self, message: RequestSwap) -> list[Effect]:
        """Two topics change places: tell it to the lowest manager first."""
        topics = self._order.topics
        one, other = topics.index(message.topic), topics.index(message.lower)
        topics[one], topics[other] = topics[other], topics[one]
        self.swaps += 1
        self._order.adopt(self._order.epoch + 1, topics)
        return [self._visit(topics[-1], self._order.epoch, topics)]

    def _visit(self, at: Topic, epoch: int, topics: Sequence[Topic]) -> Send:
        return Send(self._manager_of(at), NewOrder(epoch, at, tuple(topics)))


def pass_on(
    order: TopicOrder, message: NewOrder, manager_of: Callable[[Topic], Member]
) -> list[Effect]:
    """A manager learns a new order, and tells the next higher one; the highest tells TM_Ts."""
    order.adopt(message.epoch, message.order)
    place = message.order.index(message.at)
    following = message.order[place - 1] if place else SYSTEM_TOPIC
    return [Send(manager_of(following), NewOrder(message.epoch, following, message.order))]
