"""Latencies without objects: routes of timestamps and of events ([T] Figures 9 to 14).

A timestamp goes from the publisher to its topic's manager, through the managers of its sequencing
group, the lowest first, and back; the event goes to the root of its topic's tree and down to the
last subscriber.  Nothing queues, so events do not meet: those of a topic are computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cubecast.ordering.sim.links import Floats, Ints, LinkDelays
from cubecast.ordering.sim.pastry import Pastry

ENTRY_BYTES = 24
"""[T] 6.1: 16 for a topic, 8 for a number."""


@dataclass(slots=True)
class Routes:
    """How long messages take, in ms, of many events at once.

    `draws` are the events' numbers: they distinguish messages where each has its own delay.
    """

    pastry: Pastry
    links: LinkDelays
    subscribed: npt.NDArray[np.bool_]
    direct: bool = False
    """Messages from point to point take one link, not a route of Pastry's."""
    _down: dict[int, float] = field(default_factory=dict)
    _between: dict[tuple[int, int], float] = field(default_factory=dict)

    def ordering(self, publishers: Ints, group: Ints, draws: Ints) -> Floats:
        """To build timestamps: through the managers of `group`, and back to their publishers."""
        count = len(publishers)
        there = self.to_managers(publishers, np.repeat(group[:1], count), draws)
        back = self.back(np.repeat(group[-1:], count), publishers, draws)
        return there + self.chain(group, draws) + back

    def back(self, topics: Ints, publishers: Ints, draws: Ints) -> Floats:
        """From the managers of topics to publishers."""
        managers = self.pastry.managers[topics]
        if self.direct:
            return self.links.delays(managers, publishers, draws)
        return self.pastry.delays(managers, self.pastry.ids[publishers], draws)

    def to_managers(self, sources: Ints, topics: Ints, draws: Ints | int) -> Floats:
        """From nodes to the managers of topics, by the ids of their nodes."""
        managers = self.pastry.managers[topics]
        if self.direct:
            return self.links.delays(sources, managers, draws)
        return self.pastry.delays(sources, self.pastry.ids[managers], draws)

    def chain(self, group: Ints, draws: Ints) -> Floats:
        """From manager to manager, through all of a group."""
        if self.links.fresh:
            sources, after, size = self.pastry.managers[group[:-1]], group[1:], len(group) - 1
            delays = self.to_managers(
                np.tile(sources, len(draws)), np.tile(after, len(draws)), np.repeat(draws, size)
            )
            chains: Floats = delays.reshape(len(draws), size).sum(axis=1)
            return chains
        return np.full(len(draws), sum(self.steps(group)))

    def steps(self, group: Ints) -> list[float]:
        """From each manager of a group to the next, where links have fixed delays."""
        before, after = group[:-1], group[1:]
        steps = list(zip(before.tolist(), after.tolist(), strict=True))
        new = [place for place, step in enumerate(steps) if step not in self._between]
        found = self.to_managers(self.pastry.managers[before[new]], after[new], 0).tolist()
        self._between.update(zip([steps[place] for place in new], found, strict=True))
        return [self._between[step] for step in steps]

    def diffusion(self, publishers: Ints, topic: int, draws: Ints) -> Floats:
        """From publishers to the topic's root, and to its last subscriber."""
        keys = np.repeat(self.pastry.keys[[topic]], len(publishers))
        up = self.pastry.delays(publishers, keys, draws)
        if self.links.fresh:
            down: Floats = np.array([self._last(topic, draw) for draw in draws.tolist()])
            return up + down
        if topic not in self._down:
            self._down[topic] = self._last(topic, 0)
        found: Floats = up + self._down[topic]
        return found

    def diffusions(self, publishers: Ints, topics: Ints, draws: Ints) -> Floats:
        """The same for events of several topics."""
        found: Floats = np.zeros(len(topics))
        for topic in sorted(set(topics.tolist())):
            mine = np.flatnonzero(topics == topic)
            found[mine] = self.diffusion(publishers[mine], topic, draws[mine])
        return found

    def _last(self, topic: int, draw: int) -> float:
        nodes = np.flatnonzero(self.subscribed[:, topic])
        keys = np.repeat(self.pastry.keys[[topic]], len(nodes))
        return float(np.max(self.pastry.delays(nodes, keys, draw), initial=0.0))


@dataclass(frozen=True, slots=True)
class EventSample:
    """The latency and the timestamp of each event, in ms and entries."""

    ordering: Floats
    diffusion: Floats
    entries: Ints
    own: Ints
    """By topic: messages to its manager for events of topics at the same node."""
    foreign: Ints
    """By topic: messages to its manager for events of topics at other nodes."""

    @property
    def latency(self) -> Floats:
        return self.ordering + self.diffusion

    def foreign_share(self) -> float:
        """[T] 6.1, message overhead: the mean over managers that had any message."""
        total = self.own + self.foreign
        busy = total > 0
        return float((self.foreign[busy] / total[busy]).mean()) if busy.any() else 0.0


def visited(topic: int, ranks: Ints, pairs: npt.NDArray[np.bool_]) -> Ints:
    """The topics of a timestamp, as it visits their managers: its own, then up to the highest."""
    higher = np.flatnonzero(pairs[topic] & (ranks < ranks[topic]))
    found: Ints = np.concatenate([[topic], higher[np.argsort(-ranks[higher])]]).astype(np.int64)
    return found


def sample(
    routes: Routes, ranks: Ints, pairs: npt.NDArray[np.bool_], topics: Ints, publishers: Ints
) -> EventSample:
    """Publish an event of each of `topics`, one after the other, with a fixed order of topics."""
    count = len(topics)
    managers = routes.pastry.managers
    own, foreign = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    ordering = np.zeros(count)
    entries: Ints = np.zeros(count, np.int64)
    for topic in sorted(set(topics.tolist())):
        draws = np.flatnonzero(topics == topic)
        group = visited(topic, ranks, pairs)
        ordering[draws] = routes.ordering(publishers[draws], group, draws)
        entries[draws] = len(group)
        here = managers[group] == managers[topic]
        own[group[here]] += len(draws)
        foreign[group[~here]] += len(draws)
    diffusion = routes.diffusions(publishers, topics, np.arange(count))
    return EventSample(ordering, diffusion, entries, own, foreign)
