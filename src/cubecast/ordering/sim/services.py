"""Event services in virtual networks: the routes of messages and events.

A service says where the manager of a topic lives, which nodes a message from point to point passes,
and along which links an event reaches its subscribers.  The world adds times.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cubecast.ordering.sim.pastry import Pastry
from cubecast.topology import dimension_for, mask_of, tree


class EventHop(NamedTuple):
    """A link of an event's way: from a node that has the event to one that has not."""

    source: int
    target: int


class Service(Protocol):
    """Nodes and topics have numbers here."""

    def manager(self, topic: int) -> int:
        """The node of a topic's manager."""
        ...

    def route(self, source: int, target: int) -> Sequence[int]:
        """The nodes that a message passes, its target last; none if it stays where it is."""
        ...

    def way_in(self, source: int, topic: int) -> Sequence[int]:
        """The nodes that an event passes before it spreads; it spreads from the last of them."""
        ...

    def branches(self, root: int, topic: int, subscribers: Collection[int]) -> list[EventHop]:
        """The links along which an event spreads: each node but the root once, after its source."""
        ...


class Scribe:
    """SCRIBE over Pastry: events go to the root of the topic's key, and down its tree."""

    def __init__(self, pastry: Pastry, *, direct: bool = False) -> None:
        """`direct`: messages from point to point take one link."""
        self._pastry = pastry
        self._direct = direct
        self._routes: dict[tuple[int, int], list[int]] = {}
        self._above: dict[int, dict[int, list[int]]] = {}

    def manager(self, topic: int) -> int:
        return int(self._pastry.managers[topic])

    def route(self, source: int, target: int) -> Sequence[int]:
        if self._direct or source == target:
            return [target] if source != target else []
        found = self._routes.get((source, target))
        if found is None:
            found = self._pastry.route(source, int(self._pastry.ids[target]), target)
            self._routes[source, target] = found
        return found

    def way_in(self, source: int, topic: int) -> Sequence[int]:
        return self._to_root(source, topic)

    def branches(self, root: int, topic: int, subscribers: Collection[int]) -> list[EventHop]:
        found: list[EventHop] = []
        reached = {root}
        for node in sorted(subscribers):
            way = [node, *self._to_root(node, topic)]
            new = next(place for place, one in enumerate(way) if one in reached)
            found += [EventHop(way[place], way[place - 1]) for place in range(new, 0, -1)]
            reached.update(way[:new])
        return found

    def _to_root(self, node: int, topic: int) -> list[int]:
        known = self._above.setdefault(topic, {})
        found = known.get(node)
        if found is None:
            key, root = int(self._pastry.keys[topic]), self.manager(topic)
            found = known[node] = self._pastry.route(node, key, root)
        return found


class Cube:
    """VCube: every node reaches every other, and each is the root of its own tree of subscribers.

    Managers are drawn at random.
    """

    def __init__(self, nodes: int, topics: int, seed: int) -> None:
        self._dimension = dimension_for(nodes)
        self._managers = np.random.default_rng([seed, 3]).integers(0, nodes, size=topics)

    def manager(self, topic: int) -> int:
        return int(self._managers[topic])

    def route(self, source: int, target: int) -> Sequence[int]:
        return [target] if source != target else []

    def way_in(self, source: int, topic: int) -> Sequence[int]:
        return []

    def branches(self, root: int, topic: int, subscribers: Collection[int]) -> list[EventHop]:
        found = tree(root, mask_of(subscribers), self._dimension)
        return [EventHop(above, below) for below, above in found.parent.items()]
