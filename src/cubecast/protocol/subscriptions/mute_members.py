"""Waves have a bound: who answers tests but not waves is excluded like the silent.

Theory of operation.  A node that passes a wave on waits for its children.  A child that says
nothing for `Config.mute_after` is *mute*, whatever it answers the failure detector.  An honest
child may be waiting for somebody below it, so it is given a quarter of that time more for each
level of its subtree: the mute node's own parent runs out of patience first, and tells everyone
(`Mute`).
Who hears that asks the accused itself, by a wave to it alone (`Op.PRESENT`).  If no answer comes
within a level's time, whoever leads changes the view to one without the mute node; all waves begin
anew there.  If it answers, it is mute towards some, or the accuser lies.  Nobody can tell which, so
neither stays: a lie costs the liar its own place.

Invariants:

1. Nobody is accused for a wave before `mute_after` in which its parent was awake: time in which a
   node was itself paused does not count.
2. Who has passed a wave to somebody mute is not accused in its place.  It accuses first; what it
   says gives everyone else that is waited for the whole time again.
3. A wave with a mute node in its tree ends: it is complete, or a view without that node begins.
   Views that change more often than that put nothing off: who leaves a wave unanswered that begins
   anew is asked by itself, and that question goes on from view to view.
4. An accusation is about a member of the present view; it is forgotten with the next one.  So at
   most one is kept for each member, with one question.
5. Nobody takes more than one other with it in a view: after a dispute nothing counts that the same
   accuser said of others.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.messages import Mute, Op
from cubecast.protocol.port import Accusation, NodeId, Port, Time
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.subscriptions.waves import NOTHING, Gathering, Waves, below
from cubecast.topology import cluster, members_of

LEVEL = 4
"""A level of a tree takes a part of `mute_after`: one in so many."""
LOOKS = 8
"""A node looks so often in `mute_after` whom it waits for; twice before a level's part is over."""


class MuteMembers:
    """Whom one node has waited for in vain, and whom others say they have."""

    def __init__(
        self,
        node: NodeId,
        waves: Waves,
        links: Links,
        port: Port,
        mute_after: Time,
        on_mute: Callable[[Accusation, Time], None],
        on_accused: Callable[[Accusation], None],
    ) -> None:
        """`on_accused` is told at once what somebody says; `on_mute`, when we go on without one."""
        self._node = node
        self._waves = waves
        self._links = links
        self._port = port
        self._mute_after = mute_after
        self._every = max(1, mute_after // LOOKS)
        self._on_mute = on_mute
        self._on_accused = on_accused
        self._epoch = 0
        self._members = 0  # nobody can be excluded before there is a view
        self._look_at: Time | None = None
        self._accused: dict[NodeId, Accusation] = {}
        self._asked: set[NodeId] = set()  # the accused who have our question
        self._news: list[Accusation] = []
        self._disputed = 0  # whose word somebody denied, in this view

    @property
    def accused(self) -> list[Accusation]:
        """Those who were called mute in this view."""
        return list(self._accused.values())

    def new_view(self, epoch: int, members: int) -> None:
        """Whoever is in this view has a fresh start."""
        self._epoch = epoch
        self._members = members & ~(1 << self._node)
        self._accused.clear()
        self._asked.clear()
        self._news.clear()
        self._disputed = 0

    def hear(self, words: Mute, sender: NodeId, now: Time) -> None:
        """A member says that another is mute: ask that one, unless we have accused it ourselves."""
        known = words.slot in self._accused
        if not self._mute_after or words.epoch != self._epoch or known or words.slot == sender:
            return
        if self._disputed >> sender & 1:
            return
        if self._members >> words.slot & 1:
            self._note(Accusation(words.slot, sender, words.topic, words.waited), now)
            self._asked.add(words.slot)
            self._ask(words.slot, now)
            self._give_up_asking(now)  # we may have asked it long ago, in another view
            self._port.wake(now)

    def ask_again(self, peers: int, now: Time) -> None:
        """Waves begin anew that these have left unanswered: ask each by a question that goes on."""
        if self._mute_after:
            for peer in members_of(peers & self._members):
                self._ask(peer, now)

    def _ask(self, peer: NodeId, now: Time) -> None:
        if self._waves.question(peer) is None:
            visited = 1 << self._node | 1 << peer
            self._waves.start("", Op.PRESENT, NOTHING, now, visited=visited)

    def answered(self, question: Gathering, now: Time) -> None:
        """Somebody who was called mute answers us; what follows is done when we wake up."""
        for slot in members_of(question.wave.cluster & self._members):
            if slot in self._asked:
                self._asked.remove(slot)
                accusation = self._accused[slot]
                self._news.append(accusation._replace(disputed=True))
                self._take_no_more_of(accusation.by)
                self._port.wake(now)

    def _take_no_more_of(self, accuser: NodeId) -> None:
        """Somebody denies what the accuser said: ask nobody else because of it."""
        self._disputed |= 1 << accuser
        for slot in [one for one in self._asked if self._accused[one].by == accuser]:
            self._asked.remove(slot)
            del self._accused[slot]  # another may say the same

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
            self._give_up_asking(now)
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

    def _give_up_asking(self, now: Time) -> None:
        """Who does not answer our question either is mute."""
        for slot in sorted(self._asked):
            question = self._waves.question(slot)
            if question is not None and now - question.since >= self._mute_after // LEVEL:
                self._asked.remove(slot)
                self._news.append(self._accused[slot])

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
        self._note(accusation, now)
        self._news.append(accusation)
        words = Mute(accusation.topic, accusation.slot, accusation.waited, self._epoch)
        for peer in members_of(self._members & ~(1 << accusation.slot)):
            self._links.send(peer, words, now)

    def _note(self, accusation: Accusation, now: Time) -> None:
        self._accused[accusation.slot] = accusation
        self._on_accused(accusation)
        for gathering in self._waves.waiting:
            if gathering.wave.op is not Op.PRESENT and not gathering.awaited >> accusation.slot & 1:
                gathering.since = now  # it may be below whom we wait for
