"""The state of all members, as one node knows it: the vector that VCube's tests carry around.

Every member has a *stamp*, a number that only grows: even means correct, odd means suspected, and
of two stamps the larger is the later.  A tester that finds a correct node silent makes its stamp
odd; one that finds a suspected node answering makes it even again.  Both add one, so several
testers that see the same event write the same number.  A node that hears that it is suspected
raises its own stamp to the next even number: a wrong suspicion ends when its target hears of it.

The vector is told in parts.  Every change here gets the next *version*; a peer that was told
everything up to some version is told only the entries that changed after it.  The teller keeps no
state about its peers, and lost entries are told again.

Invariants:

1. Stamps of one occupant of a slot never fall, and a node's own stamp is even.
2. `suspects` is the set of members whose stamp is odd.
3. A version is given to one change in all lives of a node: it begins with the incarnation.
"""

from __future__ import annotations

from typing import TypeAlias

from cubecast.protocol.port import NodeId

States: TypeAlias = tuple[tuple[NodeId, int], ...]
"""(node, stamp) pairs; a member that is not named has stamp 0, correct."""
News: TypeAlias = tuple[tuple[NodeId, int, tuple[str, ...]], ...]
"""(node, serial, names it announces); of two serials the larger is the later."""

MAX_STAMP = 1 << 60
"""Larger stamps are ignored, so that a liar cannot make numbers that no encoding takes."""
MAX_STAMP_LEAP = 1 << 16
"""How many changes of one member's state a node may have missed in one view.  A stamp further ahead
is ignored: at `MAX_STAMP` a member could not be suspected any more."""
MAX_NEWS = 64
"""How many names one node can announce; the wire takes no more either."""


class Knowledge:
    """Stamps and news of all members, as one node knows them."""

    def __init__(self, node: NodeId, members: int, incarnation: int = 0) -> None:
        self.node = node
        self.members = members | 1 << node
        self.suspects = 0
        self.version = incarnation << 32
        self.stamps: dict[NodeId, int] = {}
        self.news: dict[NodeId, tuple[int, tuple[str, ...]]] = {}
        self._changed: dict[NodeId, int] = {}
        """Versions of the last changes, the latest change last."""

    def stamp(self, node: NodeId) -> int:
        return self.stamps.get(node, 0)

    def is_suspected(self, node: NodeId) -> bool:
        return bool(self.suspects >> node & 1)

    @property
    def alive(self) -> int:
        """Members that are not suspected, this node included."""
        return self.members & ~self.suspects

    # -- what this node finds out ----------------------------------------------------------------

    def turn(self, node: NodeId) -> None:
        """Flip a stamp that a test contradicts ([B] 5.1; stamps as in VCube)."""
        assert node != self.node
        self._write(node, self.stamp(node) + 1)

    def announce(self, news: tuple[str, ...]) -> None:
        """Set the names that this node announces from now on."""
        if len(news) > MAX_NEWS:
            raise ValueError(f"at most {MAX_NEWS} names can be announced, not {len(news)}")
        self.news[self.node] = (self.version + 1, news)
        self._touch(self.node)

    # -- what others say -------------------------------------------------------------------------

    def merge(self, states: States, news: News) -> tuple[list[NodeId], list[NodeId]]:
        """Take newer entries; return the nodes with a newer stamp, and those with newer news."""
        changed = [node for node, stamp in states if self._take(node, stamp)]
        told = [node for node, serial, said in news if self._take_news(node, serial, said)]
        return changed, told

    def _take(self, node: NodeId, stamp: int) -> bool:
        known = self.stamps.get(node, 0)
        if not self.is_newer(stamp, known) or stamp > known + MAX_STAMP_LEAP:
            return False
        if not 0 <= stamp <= MAX_STAMP or node < 0 or not self.members >> node & 1:
            return False
        self._write(node, self.refuted(stamp) if node == self.node else stamp)
        return True

    def is_newer(self, stamp: int, known: int) -> bool:
        return stamp > known

    def refuted(self, stamp: int) -> int:
        """A node's own stamp after it hears `stamp` about itself: the next even number."""
        return stamp + (stamp & 1)

    def _take_news(self, node: NodeId, serial: int, said: tuple[str, ...]) -> bool:
        if node == self.node or node < 0 or not self.members >> node & 1:
            return False
        if len(said) > MAX_NEWS or (node in self.news and self.news[node][0] >= serial):
            return False
        self.news[node] = (serial, said)
        self._touch(node)
        return True

    # -- telling ---------------------------------------------------------------------------------

    def since(self, version: int) -> tuple[States, News]:
        """Everything that changed after `version`."""
        if version == self.version:
            return (), ()
        nodes: list[NodeId] = []
        for node in reversed(self._changed):
            if self._changed[node] <= version:
                break
            nodes.append(node)
        return self.of(nodes)

    def of(self, nodes: list[NodeId]) -> tuple[States, News]:
        """The entries of some nodes."""
        states = tuple([(node, self.stamps[node]) for node in nodes if node in self.stamps])
        news = tuple([(node, *self.news[node]) for node in nodes if node in self.news])
        return states, news

    # -- members ---------------------------------------------------------------------------------

    def set_members(self, members: int, *, afresh: bool) -> None:
        """Change the set of members; new members are correct.  `afresh`: all members are."""
        members |= 1 << self.node
        gone = self.members if afresh else self.members ^ members
        known = self.stamps.keys() | self._changed.keys() | self.news.keys()
        for node in sorted(known):
            if gone >> node & 1:
                self._forget(node)
        self.members = members
        if self.node in self.news:
            self._touch(self.node)

    def _forget(self, node: NodeId) -> None:
        self.stamps.pop(node, None)
        self._changed.pop(node, None)
        self.suspects &= ~(1 << node)
        if node != self.node:
            self.news.pop(node, None)

    def _write(self, node: NodeId, stamp: int) -> None:
        self.stamps[node] = stamp
        if stamp & 1:
            self.suspects |= 1 << node
        else:
            self.suspects &= ~(1 << node)
        self._touch(node)

    def _touch(self, node: NodeId) -> None:
        self.version += 1
        self._changed.pop(node, None)  # to the end
        self._changed[node] = self.version

    def check_invariants(self) -> None:
        assert not self.stamp(self.node) & 1, "a node does not suspect itself"
        odd = sum(1 << node for node, stamp in self.stamps.items() if stamp & 1)
        assert self.suspects == odd, "suspects are those with odd stamps"
        assert not odd & ~self.members, "only members are suspected"
        assert list(self._changed.values()) == sorted(self._changed.values())
