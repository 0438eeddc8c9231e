"""Topics that change places while timestamps and orders travel ([T] 5).

A manager that wants to swap asks the manager of T_s, which begins an epoch; the new order visits
all managers, the lowest first.  A timestamp of an older epoch is discarded, and its publisher asks
again after a while; one of a newer epoch teaches a manager the order.

Readings, all in favour of [T] (docs/deviations.md, T9 and T10): a newer epoch teaches the whole
order; an event that is asked for again gets a fresh timestamp; T_s drops a request that its order
meets already; a manager asks once per epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from cubecast.ordering.sim.dynamic import Course, DrawnPublications, Swaps
from cubecast.ordering.sim.links import Ints
from cubecast.ordering.sim.static import Routes, visited


@dataclass(slots=True)
class _Walk:
    """A timestamp on its way."""

    event: int
    group: Ints
    epoch: int


@dataclass
class Traffic:
    """Managers, each with the epoch that it knows; times in ms."""

    routes: Routes
    pairs: npt.NDArray[np.bool_]
    published: DrawnPublications
    swaps: Swaps
    numbers: Ints
    orders: list[Ints]
    """The ranks of each epoch; one to begin with."""
    every_ms: float = 1000.0
    retry_ms: float = 10_000.0
    now: float = 0.0
    course: Course = field(default_factory=Course)
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        topics = len(self.numbers)
        self.numbers = self.numbers.copy()
        self._epochs: Ints = np.zeros(topics, np.int64)
        self._asked: Ints = np.full(topics, -1, np.int64)

    def run(self, until_ms: float) -> Course:
        """Publish all events, and return the course of those that end by then."""
        for event in range(len(self.published.topics)):
            self._at(event * self.every_ms, lambda event=event: self._ask(event))  # type: ignore[misc]
        while self._queue and self._queue[0][0] <= until_ms:
            self.now, _, action = heappop(self._queue)
            action()
        return self.course

    def _at(self, time: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (time, self._count, action))

    # -- timestamps ------------------------------------------------------------------------------

    def _ask(self, event: int) -> None:
        """Request a timestamp from the manager of the event's topic."""
        if event in self.course.ordering:
            return
        topic, node = self.published.topics[event], self.published.publishers[[event]]
        delay = float(self.routes.to_managers(node, np.array([topic]), np.array([event]))[0])
        self._at(self.now + delay, lambda: self._create(event))
        self._at(self.now + self.retry_ms, lambda: self._ask(event))

    def _create(self, event: int) -> None:
        topic = int(self.published.topics[event])
        self.numbers[topic] += 1
        epoch = int(self._epochs[topic])
        walk = _Walk(event, visited(topic, self.orders[epoch], self.pairs), epoch)
        self._pass_on(walk, 0)

    def _pass_on(self, walk: _Walk, place: int) -> None:
        if place + 1 == len(walk.group):
            self._complete(walk)
            return
        step = walk.group[place : place + 2]
        delay = float(self.routes.chain(step, np.zeros(1, np.int64))[0])
        self._at(self.now + delay, lambda: self._fill(walk, place + 1))

    def _fill(self, walk: _Walk, place: int) -> None:
        topic = int(walk.group[place])
        if walk.epoch < self._epochs[topic]:
            self.course.discarded += 1
            return
        self._epochs[topic] = walk.epoch
        self._look(topic, walk, place)
        self._pass_on(walk, place)

    def _complete(self, walk: _Walk) -> None:
        """Return a timestamp to the publisher, which hands the event to the service."""
        event, group = walk.event, walk.group
        source, draw = self.published.publishers[[event]], np.array([event])
        back = float(self.routes.back(group[-1:], source, draw)[0])
        ended = self.now + back - event * self.every_ms
        if event not in self.course.ordering:
            self.course.ordering[event] = ended
            spread = float(self.routes.diffusion(source, int(group[0]), draw)[0])
            self.course.latency[event] = ended + spread
            self.course.entries[event] = len(group) + 1

    # -- orders ----------------------------------------------------------------------------------

    def _look(self, topic: int, walk: _Walk, place: int) -> None:
        """Ask for a swap if a lower topic of the timestamp is more popular."""
        if self._asked[topic] >= walk.epoch:
            return
        passed = walk.group[: place + 1]
        popular = self.swaps.popularity(self.numbers[passed])
        if np.max(popular[:-1]) > popular[-1] + self.swaps.beta:
            lower = int(passed[int(np.argmax(popular[:-1]))])
            self._asked[topic] = walk.epoch
            system = np.array([self._system()])
            manager = self.routes.pastry.managers[[topic]]
            delay = float(self.routes.to_managers(manager, system, np.zeros(1, np.int64))[0])
            self._at(self.now + delay, lambda: self._swap(topic, lower))

    def _system(self) -> int:
        """The node of T_s: the one that manages the topic that was the lowest."""
        return int(np.argmax(self.orders[0]))

    def _swap(self, topic: int, lower: int) -> None:
        ranks = self.orders[-1].copy()
        if ranks[topic] > ranks[lower]:
            return
        ranks[topic], ranks[lower] = ranks[lower], ranks[topic]
        self.orders.append(ranks)
        self.course.swaps += 1
        self._visit(len(self.orders) - 1)

    def _visit(self, epoch: int) -> None:
        """Tell all managers, the lowest first, of an epoch."""
        way = np.argsort(-self.orders[epoch])
        none = np.zeros(1, np.int64)
        system = self.routes.pastry.managers[[self._system()]]
        time = self.now + float(self.routes.to_managers(system, way[:1], none)[0])
        steps = self.routes.steps(way)
        for topic, delay in zip(way.tolist(), [0.0, *steps], strict=True):
            time += delay
            self._at(time, lambda topic=topic: self._learn(topic, epoch))  # type: ignore[misc]

    def _learn(self, topic: int, epoch: int) -> None:
        self._epochs[topic] = max(epoch, int(self._epochs[topic]))
