"""Pastry's routes: prefix by prefix, b = 4, and the trees of SCRIBE that they make.

A node with r digits in common with a key sends to one that has r + 1 of them, its table's entry
for that digit.  Where there is none, the leaf set knows the root: the node whose id is numerically
closest.  A topic's tree is the union of its subscribers' routes to the topic's key.

Entries of tables are drawn at random from the nodes that fit, or are the nearest of a few
(Pastry's locality); [T] does not say which.

Invariant: every hop but the last has a longer prefix than the one before, so a route ends.
"""

from __future__ import annotations

import numpy as np

from cubecast.ordering.sim.links import Floats, Ints, LinkDelays, mixed

BITS, DIGIT = 48, 4
"""Ids have 12 hexadecimal digits here: enough to be distinct, and whole as floating numbers."""
CANDIDATES = 4
"""How many fitting nodes are compared to find the nearest."""


class Pastry:
    """Nodes 0, 1, … in the order of their ids; keys of topics 0, 1, …."""

    def __init__(
        self, nodes: int, topics: int, links: LinkDelays, seed: int, *, near: bool
    ) -> None:
        """`near`: entries of routing tables are chosen by their delays."""
        self._links = links
        self._seed = seed
        self._near = near
        rng = np.random.default_rng([seed, nodes])
        self.ids: Ints = np.sort(rng.choice(1 << BITS, size=nodes, replace=False)).astype(np.int64)
        self.keys: Ints = (mixed(seed, np.arange(topics), 7) >> np.uint64(64 - BITS)).astype(
            np.int64
        )
        self.managers: Ints = self.roots(self.keys)
        """Topic -> the node that is the root of its key, which manages it (`rendezvous`)."""

    def roots(self, keys: Ints) -> Ints:
        """The nodes whose ids are closest to keys, on the ring."""
        count = len(self.ids)
        after = np.searchsorted(self.ids, keys)
        choices = [(after - 1) % count, after % count]
        gaps = [np.abs(self.ids[one] - keys) for one in choices]
        gaps = [np.minimum(gap, (1 << BITS) - gap) for gap in gaps]
        return np.where(gaps[0] <= gaps[1], choices[0], choices[1]).astype(np.int64)

    def hop(self, nodes: Ints, keys: Ints, roots: Ints) -> Ints:
        """The next nodes on the way to keys; a root stays where it is."""
        differing = np.frexp((self.ids[nodes] ^ keys).astype(np.float64))[1]  # bits below the same
        common = np.minimum((BITS - differing) // DIGIT, BITS // DIGIT - 1)
        shift = BITS - DIGIT * (common + 1)
        prefix = keys >> shift << shift
        low = np.searchsorted(self.ids, prefix)
        fitting = np.searchsorted(self.ids, prefix + (np.int64(1) << shift)) - low
        entry = self._entry(nodes, common, low, fitting)
        found = np.where(fitting > 0, entry, roots)
        return np.where(nodes == roots, roots, found).astype(np.int64)

    def _entry(self, nodes: Ints, common: Ints, low: Ints, fitting: Ints) -> Ints:
        """The entry of each node's table among the nodes that fit."""
        size = np.maximum(fitting, 1).astype(np.uint64)
        word = mixed(self._seed, (nodes << 32) + low, common)
        last = len(self.ids) - 1
        best: Ints = np.minimum(low + (word % size).astype(np.int64), last)
        if not self._near:
            return best
        least = self._links.delays(nodes, best)
        for turn in range(1, CANDIDATES):
            one = np.minimum(low + (mixed(word, turn) % size).astype(np.int64), last)
            delays = self._links.delays(nodes, one)
            best = np.where(delays < least, one, best)
            least = np.minimum(delays, least)
        return best

    def route(self, source: int, key: int, root: int) -> list[int]:
        """The nodes from the source, left out, to the root."""
        found: list[int] = []
        node = source
        while node != root:
            (node,) = self.hop(np.array([node]), np.array([key]), np.array([root])).tolist()
            found.append(node)
        return found

    def delays(self, sources: Ints, keys: Ints, draw: Ints | int = 0) -> Floats:
        """How long routes take, in ms; by symmetry also from a tree's root to its subscribers."""
        roots = self.roots(keys)
        draws = np.broadcast_to(np.asarray(draw), np.shape(sources))
        total: Floats = np.zeros(len(sources))
        places, nodes = np.arange(len(sources)), sources
        while True:
            on_the_way = nodes != roots
            places, nodes = places[on_the_way], nodes[on_the_way]
            keys, roots, draws = keys[on_the_way], roots[on_the_way], draws[on_the_way]
            if not len(places):
                return total
            following = self.hop(nodes, keys, roots)
            total[places] += self._links.delays(nodes, following, draws)
            nodes = following
