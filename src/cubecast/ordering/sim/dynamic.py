"""Topics that change places, event by event ([T] 5 and Figures 16 to 20).

Here each event has its timestamp, and all managers know the order, before the next event is
published: *in turn*.  `swapping` lets timestamps and orders travel.

A manager swaps its topic T_i with a lower T_j that it sees in a timestamp if f(sn_j) > f(sn_i) + β.
[T] does not say which of several managers of a timestamp does so, nor whether the numbers count
subscriptions as well as events (Figure 7b increments for both).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cubecast.ordering.sim.links import Floats, Ints
from cubecast.ordering.sim.static import ENTRY_BYTES, Routes, visited

SWAPPERS = ("topmost", "nearest", "every")
"""Of the managers that want to swap, as a timestamp visits them: the last, the first, or all."""


@dataclass(frozen=True, slots=True)
class Swaps:
    """The rule of swaps: when topics are swapped, and which manager does it."""

    alpha: float
    beta: float
    swapper: str = "topmost"

    def popularity(self, numbers: Ints) -> Floats:
        """f(x) = e^(-1/(α(x+1))) ([T] 6.2)."""
        found: Floats = np.exp(-1.0 / (self.alpha * (numbers + 1.0)))
        return found

    def wanted(self, group: Ints, numbers: Ints) -> list[tuple[int, int]]:
        """Pairs of a topic and a lower one to be swapped, as a timestamp visits `group`."""
        if len(group) < 2:
            return []
        popular = self.popularity(numbers[group])
        before = np.maximum.accumulate(popular)[:-1]
        places = (np.flatnonzero(before > popular[1:] + self.beta) + 1).tolist()
        if self.swapper == "topmost":
            places = places[-1:]
        elif self.swapper == "nearest":
            places = places[:1]
        return [(int(group[k]), int(group[int(np.argmax(popular[:k]))])) for k in places]


@dataclass(frozen=True, slots=True)
class DrawnPublications:
    """The publisher and the topic of each event, one after the other."""

    topics: Ints
    publishers: Ints

    @classmethod
    def drawn(
        cls,
        rng: np.random.Generator,
        chances: Floats,
        nodes: int,
        events: int,
        shuffle_at: int | None = None,
    ) -> DrawnPublications:
        """Draw publications; from event `shuffle_at` on popularities are shuffled (Figure 20)."""
        topics: Ints = rng.choice(len(chances), size=events, p=chances)
        publishers: Ints = rng.integers(0, nodes, size=events)
        if shuffle_at is not None:
            topics[shuffle_at:] = rng.permutation(len(chances))[topics[shuffle_at:]]
        return cls(topics, publishers)


@dataclass(slots=True)
class Course:
    """The latencies of events, in ms; events that never ended have none."""

    ordering: dict[int, float] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    swaps: int = 0
    discarded: int = 0
    """Timestamps that met a manager of a later epoch."""

    def mean(self, values: dict[int, float], first: int, last: int) -> float:
        """The mean over the events from `first` on, before `last`; 0 if none of them ended."""
        found = [values[event] for event in range(first, last) if event in values]
        return sum(found) / len(found) if found else 0.0

    def bytes(self) -> dict[int, float]:
        """The size of each event's timestamp."""
        return {event: float(ENTRY_BYTES * count) for event, count in self.entries.items()}


def in_turn(
    routes: Routes,
    ranks: Ints,
    pairs: npt.NDArray[np.bool_],
    published: DrawnPublications,
    swaps: Swaps | None,
    numbers: Ints,
) -> Course:
    """Publish events one after the other; `swaps` None: the order stays.

    `numbers` are the managers' clocks at the beginning.  With swaps, timestamps have an entry for
    the epoch, too.
    """
    course = Course()
    ranks, numbers = ranks.copy(), numbers.copy()
    events = np.arange(len(published.topics))
    there = routes.to_managers(published.publishers, published.topics, events)
    chains, lasts = [], []
    for event, topic in enumerate(published.topics.tolist()):
        numbers[topic] += 1
        group = visited(topic, ranks, pairs)
        chains.append(float(routes.chain(group, events[event : event + 1])[0]))
        lasts.append(group[-1])
        course.entries[event] = len(group) + (swaps is not None)
        for one, other in swaps.wanted(group, numbers) if swaps is not None else ():
            ranks[one], ranks[other] = ranks[other], ranks[one]
            course.swaps += 1
    back = routes.back(np.array(lasts), published.publishers, events)
    ordering = there + np.array(chains) + back
    diffusion = routes.diffusions(published.publishers, published.topics, events)
    course.ordering = dict(enumerate(ordering.tolist()))
    course.latency = dict(enumerate((ordering + diffusion).tolist()))
    return course
