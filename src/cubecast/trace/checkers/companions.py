"""Pairs of nodes that are in a view together, and since when, from the trace alone.

Two nodes are *together* while both are up, each is in a view, and each one's view has the other in
its present life. The views name the *lives*: a node that was excluded and comes back is in another
one, though its process went on. For every pair it is known since which record it has been together,
so whether two nodes were ever apart since some record is one comparison. That needs no clock:
places in the trace are compared.
"""

from collections.abc import Iterable
from math import inf

from cubecast.trace.records import Record

__all__ = ["Companions"]


class Companions:
    """Pairs of nodes in a view together, and since when; times are places in the trace."""

    def __init__(self) -> None:
        self._views: dict[int, dict[int, str]] = {}
        """Node -> the lives in the view it installed last, itself included; empty: in none."""
        self._named: set[int] = set()
        self._apart: set[tuple[int, int]] = set()
        self._met: dict[tuple[int, int], int] = {}
        """Pair -> when it was last found together again; left out: it was never apart."""
        self.returned: dict[int, int] = {}
        """Node -> when its life before the present one was over, if there was one."""

    def view(self, record: Record, at: int, seen: Iterable[int] = ()) -> bool:
        """Note a view that a node installed; return whether the node begins another life with it.

        A `seen` node that has installed no view is apart from this node if the view lacks it.
        """
        node = record.node
        nodes = [one for one in range(record.members.bit_length()) if record.members >> one & 1]
        lives = record.lives or ("",) * len(nodes)
        if record.lives:
            self._named.add(node)
        before = self._views.get(node)
        self._views[node] = dict(zip(nodes, lives, strict=False))
        mine = self._views[node].get(node)
        anew = before is not None and before.get(node, mine) != mine
        if anew:
            self.returned[node] = at
        self._meet(node, at)
        for other in seen:
            if other not in self._views and other not in self._views[node]:
                self._apart.add((node, other) if node < other else (other, node))
        return anew

    def end(self, node: int, at: int) -> None:
        """Note that a node's process is gone."""
        if node in self._views:
            self._views[node] = {}
            self.returned[node] = at
            self._meet(node, at)

    def _meet(self, node: int, at: int) -> None:
        mine = self._views[node]
        for other, theirs in self._views.items():
            if other == node:
                continue
            pair = (node, other) if node < other else (other, node)
            life = mine.get(other), theirs.get(node)
            together = None not in life and life == (theirs.get(other), mine.get(node))
            if not together:
                self._apart.add(pair)
            elif pair in self._apart:
                self._apart.remove(pair)
                self._met[pair] = at

    def known(self, *nodes: int) -> bool:
        """Whether all of these nodes ever installed a view that names lives."""
        return self._named.issuperset(nodes)

    def apart_since(self, one: int, other: int, start: int) -> bool:
        """Whether two nodes were apart at any moment from `start` on."""
        if one == other:
            return self.returned.get(one, -1) >= start or not self._views.get(one)
        pair = (one, other) if one < other else (other, one)
        return pair in self._apart or self._met.get(pair, -1) >= start

    def last_apart(self, node: int) -> dict[int, float]:
        """When each node was last apart from this one; left out: never."""
        found: dict[int, float] = {node: self.returned.get(node, -1)}
        for pair, at in self._met.items():
            if node in pair:
                found[sum(pair) - node] = at
        return found | {sum(pair) - node: inf for pair in self._apart if node in pair}

    def nodes(self) -> Iterable[int]:
        """All nodes that ever installed a view."""
        return self._views
