"""What a node keeps of one topic: its streams, and where it stands with each.

`StreamTable` is the lowest layer of a topic's data path: it opens, closes and drops the state of
streams and notes which of them have news.  `Reliability` adds acknowledgements, stability and
repair, `TopicCore` publishing, receiving and delivery.

Invariant: the state of an idle stream is two numbers, delivered and stable, and perhaps its entry
in the frontier.
"""

from __future__ import annotations

from cubecast.protocol.causal import CausalFront
from cubecast.protocol.config import Config
from cubecast.protocol.guard import Guard
from cubecast.protocol.laggards import Laggards
from cubecast.protocol.links import Links
from cubecast.protocol.messages import Route
from cubecast.protocol.pacing import AckPace
from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.protocol.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import children

REMEMBERED_TREES = 256
"""How many (members, height) a node remembers its children for."""


class StreamTable:
    """The streams of one topic at one node."""

    def __init__(
        self,
        topic: Topic,
        node: NodeId,
        incarnation: int,
        port: Port,
        links: Links,
        config: Config,
    ) -> None:
        self.topic = topic
        self.node = node
        self.own = Stream(node, incarnation)
        self.port = port
        self.links = links
        self.config = config
        self.front = CausalFront()
        self.guard = Guard(topic, node, config.room)
        self.marks = self.guard.marks
        self._trees: dict[tuple[int, int], tuple[NodeId, ...]] = {}
        # When nodes die (`cubecast.protocol.recovery`).
        self.cluster = -1  # the slots in use
        self.epoch = 0
        self.frozen: set[Stream] = set()  # shared by all topics of the node
        self.cut: dict[Stream, Seq] = {}  # what our cuts covered and we never read
        self.finals: dict[Stream, Seq] = {}
        self.heirs: dict[Stream, NodeId] = self.guard.heirs
        self.inherited: dict[Stream, Seq] = {}
        self.ends: dict[Stream, Seq] = {}
        self.taking = False
        self.expecting = False  # waits for its cut: it will consume, but not yet from where
        self.inboxes: dict[Stream, Inbox] = {}
        self.floor: dict[Stream, Seq] = {}
        self.lost_routes: dict[Stream, int] = {}  # up to these we were suspended
        self.dirty: dict[Stream, Inbox] = {}
        self.unacked: dict[tuple[Stream, int], Branch] = {}
        self.flush_at: Time | None = None
        self.pace = AckPace(config)
        self.repair_at: Time | None = None  # no later than any `Branch.resend_at`
        # The publisher's side.
        self.next_seq: Seq = 0
        self.route_members = 0
        self.routes = 0
        self.in_flight = 0
        self.in_part = 0  # the size of what is consumed of a frame that is not stable yet
        self.refused = False
        self.told: Seq = -1
        self.tell_at: Time | None = None
        self.leavers: dict[NodeId, Seq] = {}
        self.gone = 0  # those who left since the current route began
        self.laggards = Laggards(config)

    def _children(self, members: int, height: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) of [J] 3.3 for a set of members, remembered."""
        found = self._trees.get((members, height))
        if found is None:
            if len(self._trees) >= REMEMBERED_TREES:
                self._trees.clear()
            found = self._trees[members, height] = children(self.node, members, height)
        return found

    def _open(self, stream: Stream) -> Inbox:
        """Begin, or resume, to keep state for a stream."""
        done = self.front.delivered.get(stream, -1)
        takes = self.taking and stream not in self.frozen
        inbox = Inbox(stream, done + 1 if takes else NOT_TAKING, done)
        inbox.ended = stream in self.heirs
        inbox.stable = self.floor.pop(stream, -1)
        inbox.oldest = inbox.stable + 1
        self.inboxes[stream] = inbox
        return inbox

    def _new_branch(
        self, inbox: Inbox, route: Route, parent: NodeId, below: tuple[NodeId, ...], stable: Seq
    ) -> Branch:
        if inbox.stable < stable and not inbox.branches:
            inbox.stable = stable
        branch = Branch(route, parent, below, max(route.start - 1, inbox.stable))
        if self.guard.since:
            branch.lose(self.guard.not_in(route))
            if branch.lost:
                self.marks["route with the former owner of a slot"] += 1
        inbox.add_branch(branch)
        inbox.hear_from(parent)
        return branch

    def _drop(self, inbox: Inbox) -> None:
        """Keep nothing of a stream but how far it came."""
        self.floor[inbox.stream] = inbox.reached()
        del self.inboxes[inbox.stream]
        self.front.stop_waiting_of(inbox)
        self.dirty.pop(inbox.stream, None)
        for number in inbox.branches:
            self.unacked.pop((inbox.stream, number), None)

    def _close_branches(self, inbox: Inbox, route: int, start: Seq) -> None:
        """Leave the trees of routes before `route` if all they carried is stable."""
        if inbox.stable >= start - 1:
            for number in [number for number in inbox.branches if number < route]:
                del inbox.branches[number]
                self.unacked.pop((inbox.stream, number), None)

    def _close_if_idle(self, inbox: Inbox) -> None:
        """Keep two numbers of a stream of which everything is stable and known to be."""
        if inbox.frames or len(inbox.branches) > 1:
            return
        if inbox.stream == self.own and (self.told < inbox.stable or self.leavers):
            return
        for number in inbox.branches:
            self.unacked.pop((inbox.stream, number), None)
        del self.inboxes[inbox.stream]
        self.dirty.pop(inbox.stream, None)
        self.floor[inbox.stream] = inbox.stable

    def _touch(self, inbox: Inbox, now: Time) -> None:
        """Something about `inbox` may have to be acknowledged; gather until it is due."""
        self.dirty[inbox.stream] = inbox
        if self.flush_at is None:
            self.flush_at = self.pace.due(now)
            self.port.wake(self.flush_at)

    def _hasten(self, now: Time) -> None:
        """Traffic is heavy: publishers may need credit before the planned flush gives it."""
        due = self.pace.due(now)
        if self.flush_at is not None and due < self.flush_at:
            self.flush_at = due
            self.port.wake(due)

    @property
    def absent(self) -> bool:
        """Whether this node only passes frames on: it has unsubscribed."""
        return not self.taking and not self.expecting

    def vector(self) -> dict[Stream, Seq]:
        """All that is delivered here, own publications included; causally closed."""
        vector = dict(self.front.delivered)
        if self.next_seq:
            vector[self.own] = self.next_seq - 1
        return vector

    def load(self) -> Load:
        """Held and retained, and the bound of invariant 4."""
        held = sum(inbox.held() for inbox in self.inboxes.values())
        size = sum(inbox.size() for inbox in self.inboxes.values())
        return Load(held, size - held, self.config.window * len(self.inboxes))
