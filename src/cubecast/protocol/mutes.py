"""Waves have a bound: who answers tests but not waves is excluded like the silent.

Theory of operation.  A node that passes a wave on waits for its children.  A child that says
nothing for `Config.mute_after` is *mute*, whatever it answers the failure detector.  An honest
child may be waiting for somebody below it, so it is given a quarter of that time more for each
level of its subtree: the mute node's own parent runs out of patience first, and tells everyone
(`Mute`).
Whoever leads changes the view to one without the mute node; all waves begin anew there.

Invariants:

1. Nobody is accused for a wave before `mute_after` in which its parent was awake: time in which a
   node was itself paused does not count.
2. Who has passed a wave to somebody mute is not accused in its place.  It accuses first; what it
   says gives everyone else that is waited for the whole time again.
3. A wave with a mute node in its tree ends: it is complete, or a view without that node begins.
4. An accusation is about a member of the present view; it is forgotten with the next one.  So at
   most one is kept for each member.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.links import Links
from cubecast.protocol.messages import Mute
from cubecast.protocol.port import Accusation, NodeId, Port, Time
from cubecast.protocol.waves import Gathering, Waves, below
from cubecast.topology import cluster, members_of

LEVEL = 4
"""A level of a tree takes a part of `mute_after`: one in so many."""
LOOKS = 8
"""A node looks so often in `mute_after` whom it waits for; twice before a level's part is over."""


class Mutes:
    """Whom one node has waited for in vain, and whom others say they have."""

    def __init__(
        self,
        node: NodeId,
        waves: Waves,
        links: Links,
        port: Port,
        mute_after: Time,
        on_mute: Callable[[Accusation, Time], None],
    ) -> None:
        self._node = node
        self._waves = waves
        self._links = links
        self._port = port
        self._mute_after = mute_after
        self._every = max(1, mute_after // LOOKS)
        self._on_mute = on_mute
        self._epoch = 0
        self._members = 0  # nobody can be excluded before there is a view
        self._look_at: Time | None = None
        self._accused: dict[NodeId, Accusation] = {}
        self._news: list[Accusation] = []

    @property
    def accused(self) -> list[Accusation]:
        """Those who were called mute in this view."""
        return list(self._accused.values())

    def new_view(self, epoch: int, members: int) -> None:
        """Whoever is in this view has a fresh start."""
        self._epoch = epoch
        self._members = members & ~(1 << self._node)
        self._accused.clear()
        self._news.clear()

    def hear(self, words: Mute, sender: NodeId, now: Time) -> None:
        """A member says that another is mute; what follows is done when we wake up."""
        known = words.slot in self._accused
        if words.epoch != self._epoch or known or words.slot == sender:
            return
        if self._members >> words.slot & 1:
            self._accuse(Accusation(words.slot, sender, words.topic, words.waited), now)

    def on_wake(self, now: Time) -> None:
        """Look whom we wait for; then have what was said acted upon, which may change the view."""
        if self._mute_after and self._members:
            self._look_if_due(now)
        if self._news:
            news, self._news = self._news, []
            for accusation in news:
                if self._members >> accusation.slot & 1:  # what was said before may have changed it
                    self._on_mute(accusation, now)

    def _look_if_due(self, now: Time) -> None:
        if self._look_at is not None and self._look_at <= now:
            self._excuse(now - self._look_at)
            self._look_at = None
            for accusation in self._overdue(now):
                self._tell(accusation, now)
        if self._look_at is None and self._waves.pending():
            self._look_at = now + self._every
        if self._look_at is not None:
            self._port.wake(self._look_at)

    def _excuse(self, late: Time) -> None:
        """We come too late: it is we who were paused, and answers may lie unread."""
        if late > self._every:
            for gathering in self._waves.waiting:
                gathering.since += late

    def _overdue(self, now: Time) -> list[Accusation]:
        """The children that should have answered by now, each with its longest wait."""
        found: dict[NodeId, Accusation] = {}
        for gathering in self._waves.waiting:
            waited = now - gathering.since
            if waited < self._mute_after:
                continue
            for child in members_of(gathering.awaited & self._members):
                if waited < self._patience(gathering, child):
                    continue
                if child not in found or found[child].waited < waited:
                    found[child] = Accusation(child, self._node, gathering.wave.topic, waited)
        return [one for child, one in sorted(found.items()) if child not in self._accused]

    def _patience(self, gathering: Gathering, child: NodeId) -> Time:
        """How long a child may take: it waits for the levels below it, if there are any."""
        subtree = below(self._node, child, gathering.wave.cluster).bit_count()
        levels = min(cluster(self._node, child), subtree) - 1
        return self._mute_after + levels * (self._mute_after // LEVEL)

    def _tell(self, accusation: Accusation, now: Time) -> None:
        """Tell everyone else; whoever leads acts on it, and that may be any of them."""
        self._accuse(accusation, now)
        words = Mute(accusation.topic, accusation.slot, accusation.waited, self._epoch)
        for peer in members_of(self._members & ~(1 << accusation.slot)):
            self._links.send(peer, words, now)

    def _accuse(self, accusation: Accusation, now: Time) -> None:
        self._accused[accusation.slot] = accusation
        self._news.append(accusation)
        self._port.wake(now)
        for gathering in self._waves.waiting:
            if not gathering.awaited >> accusation.slot & 1:
                gathering.since = now  # it may be below whom we wait for
