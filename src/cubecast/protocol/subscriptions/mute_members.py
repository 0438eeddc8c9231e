"""Mute members: nodes that answer tests but not waves are excluded like silent nodes.

Theory of operation.  A node that passes a wave on waits for its children.  A child that does not
answer for `Config.mute_after` is *mute*, even if it answers the failure detector.  An honest child
may be waiting for a node below it, so it gets a quarter of that time more for each level of its
subtree: the mute node's own parent times out first, and tells every member (`Mute`).
A member that receives `Mute` asks the accused itself, by a wave to it alone (`Op.PRESENT`).  If no
answer comes within a level's time, the leader changes the view to one without the mute node; all
waves begin anew there.  If the accused answers, it is mute towards some nodes, or the accuser lies.
No node can tell which, so both are excluded: a lie costs the liar its own place.

Invariants:

1. A child is accused only after `mute_after` in which its parent was awake: time in which the
   parent itself was paused does not count.
2. A node that has passed a wave to a mute child is not accused in the child's place.  It accuses
   first; its `Mute` restarts the time of all other nodes that are waited for.
3. A wave with a mute node in its tree ends: it is complete, or a view without that node begins.
   Frequent view changes do not delay this: a node that has not answered a wave that begins anew is
   asked directly, and that question goes on from view to view.
4. An accusation is about a member of the present view; it is forgotten with the next one.  So at
   most one is kept for each member, with one question.
5. An accuser takes at most one other member with it in a view: after a dispute its other
   accusations do not count.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.messages import Mute, Op
from cubecast.protocol.port import Accusation, NodeId, Port, Time
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.subscriptions.waves import NOTHING, Gathering, Waves, below
from cubecast.topology import cluster, members_of

LEVEL = 4
"""One level of a tree takes this fraction of `mute_after`: one fourth."""
LOOKS = 8
"""Checks for overdue children per `mute_after`: two in the time of a level."""


class MuteMembers:
    """The accusations of mute members that one node knows: its own and those of others."""

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
        """`on_accused` gets each accusation at once; `on_mute`, when it calls for a new view."""
        self._node = node
        self._waves = waves
        self._links = links
        self._port = port
        self._mute_after = mute_after
        self._every = max(1, mute_after // LOOKS)
        self._on_mute = on_mute
        self._on_accused = on_accused
        self._epoch = 0
        self._members = 0  # no member can be excluded before there is a view
        self._look_at: Time | None = None
        self._accused: dict[NodeId, Accusation] = {}
        self._asked: set[NodeId] = set()  # accused members that have our question
        self._news: list[Accusation] = []
        self._disputed = 0  # the accusers with a denied accusation in this view

    @property
    def accused(self) -> list[Accusation]:
        """The accusations of this view, one for each accused member."""
        return list(self._accused.values())

    def new_view(self, epoch: int, members: int) -> None:
        """Begin a view: forget all accusations."""
        self._epoch = epoch
        self._members = members & ~(1 << self._node)
        self._accused.clear()
        self._asked.clear()
        self._news.clear()
        self._disputed = 0

    def hear(self, words: Mute, sender: NodeId, now: Time) -> None:
        """Take in a member's accusation: ask the accused, unless it is accused already."""
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
        """Ask each peer that left unanswered a wave that begins anew; the question goes on."""
        if self._mute_after:
            for peer in members_of(peers & self._members):
                self._ask(peer, now)

    def _ask(self, peer: NodeId, now: Time) -> None:
        if self._waves.question(peer) is None:
            visited = 1 << self._node | 1 << peer
            self._waves.start("", Op.PRESENT, NOTHING, now, visited=visited)

    def answered(self, question: Gathering, now: Time) -> None:
        """Note that an accused member answers us; `on_wake` acts on the dispute."""
        for slot in members_of(question.wave.cluster & self._members):
            if slot in self._asked:
                self._asked.remove(slot)
                accusation = self._accused[slot]
                self._news.append(accusation._replace(disputed=True))
                self._take_no_more_of(accusation.by)
                self._port.wake(now)

    def _take_no_more_of(self, accuser: NodeId) -> None:
        """Ignore an accuser after a denial: ask no other member because of it."""
        self._disputed |= 1 << accuser
        for slot in [one for one in self._asked if self._accused[one].by == accuser]:
            self._asked.remove(slot)
            del self._accused[slot]  # another member may accuse it, too

    def on_wake(self, now: Time) -> None:
        """Look for overdue children; then act on accusations, which may change the view."""
        if self._mute_after and self._members:
            self._look_if_due(now)
        if self._news:
            news, self._news = self._news, []
            for accusation in news:
                if self._members >> accusation.slot & 1:  # an earlier one may have changed the view
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
        """Add our own pause to all deadlines if we wake too late: answers may lie unread."""
        if late > self._every:
            for gathering in self._waves.waiting:
                gathering.since += late

    def _give_up_asking(self, now: Time) -> None:
        """Take an accused member for mute if it does not answer our question either."""
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
        """Tell every other member; the leader acts on it, and any of them may be the leader."""
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
                gathering.since = now  # the accused may be below a child that we wait for
