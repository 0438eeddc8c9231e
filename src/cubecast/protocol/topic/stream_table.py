"""What a node keeps of one topic: its streams, and where it stands with each.

`StreamTable` is the lowest layer of a topic's data path: it opens, closes and drops the state of
streams and notes which of them have news.  `Reliability` adds acknowledgements, stability and
repair, `TopicCore` publishing, receiving and delivery.

Invariant: the state of an idle stream is two numbers, delivered and stable, and perhaps its entry
in the frontier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cubecast.protocol.cluster.agenda import Agenda
from cubecast.protocol.cluster.horizon import KEPT_STREAMS, Horizon
from cubecast.protocol.config import Config
from cubecast.protocol.messages import ROUTE_BITS, Barrier, Route
from cubecast.protocol.port import LIFE_BITS, Denial, Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.topic.ack_timing import AckPace
from cubecast.protocol.topic.causal import CausalFront
from cubecast.protocol.topic.guard import Guard
from cubecast.protocol.topic.laggards import Laggards
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import children

REMEMBERED_TREES = 256
"""How many (members, height) a node remembers its children for."""


def _ignore(denial: Denial) -> None:
    """Nobody is to be told."""


def _believe(slow: int, now: Time) -> None:
    """Nobody asks whether those who do not answer are members at all."""


def _wait_on(stream: Stream, now: Time) -> None:
    """Nobody asks for what does not come."""


def _may_be() -> bool:
    """Nobody says that this node is strict."""
    return True


class Loss(NamedTuple):
    """Messages of a dead stream that nobody has, from the next one up to `last`.

    `after`: where somebody joined that has what follows them; all their causes are there.
    """

    last: Seq
    after: Barrier


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
        agenda: Agenda,
    ) -> None:
        self.topic = topic
        self.node = node
        self.own = Stream(node, incarnation)
        self.port = port
        self.links = links
        self.config = config
        self.agenda = agenda
        self.planned: Time | None = None
        self.on_denied: Callable[[Denial], None] = _ignore
        self.on_slow: Callable[[int, Time], None] = _believe
        self.ask_publisher: Callable[[Stream, Time], None] = _wait_on
        self.doubt_at: Time | None = None  # when to ask for what messages wait for
        self.relayed: dict[Stream, None] = {}  # streams of the living whose relay has died
        self.may_be_passed_over: Callable[[], bool] = _may_be
        """Whether publishers may have gone on without this node: it is or was lossy."""
        self.front = CausalFront(self._is_over)
        self.guard = Guard(topic, node, config.room)
        self.marks = self.guard.marks
        self._trees: dict[tuple[int, int], tuple[NodeId, ...]] = {}
        # When nodes die (`cubecast.protocol.topic.recovery`).
        self.cluster = -1  # the slots in use
        self.epoch = 0
        self.frozen: set[Stream] = set()  # lives; shared by all topics of the node
        self.start: dict[Stream, Seq] = {}  # the cut from which we began to take messages
        self.losses: dict[Stream, Loss] = {}  # what we are to skip of dead streams
        self.finals: dict[Stream, Seq] = {}
        self.heirs: dict[Stream, NodeId] = self.guard.heirs
        self.inherited: dict[Stream, Seq] = {}
        self.bequests: dict[Stream, Seq] = {}  # what we inherit and others hold begins above this
        self.ask_at: Time | None = None  # when to ask them again
        self.ends: dict[Stream, Seq] = {}
        self.ended: dict[Stream, int] = {}  # lives that ended, and with which view; shared
        self.over: dict[Stream, int] = {}  # dead and settled streams that are remembered, the same
        self.told_over: dict[Stream, int] = {}  # the same as others say, of what our cuts cover
        self.superseded: dict[Stream, int] = {}  # begun anew by their publishers in which view
        self.latest: dict[Stream, int] = {}  # the last generation of those who began anew, by life
        self.forgotten = -1  # what was over in this view or before may not be remembered
        self.began = 0  # the view in which we began to take messages
        self.stranded = False  # something waits for what will not come: we have to jump
        self.inquire: dict[Stream, Time] = {}  # whom to ask what is stable; the pauses
        self.inquire_at: Time | None = None
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
        self.leavers: dict[NodeId, tuple[Seq, int]] = {}  # until when, their LEAVE
        self.gone = 0  # those who left since the current route began
        self.laggards = Laggards(config)

    @property
    def doubt_after(self) -> Time:
        """How long a message waits for another before the publisher of that one is asked."""
        return 2 * self.config.resend_max

    def _plan(self, at: Time) -> None:
        """Have `on_wake` called at this time or before."""
        self.agenda.plan(self, at)

    def _is_over(self, stream: Stream) -> bool:
        """Whether nothing more will be delivered here of a stream that a frame names.

        Its publisher forgot the topic and has begun anew since: everyone had all of it by then.
        """
        return self.latest.get(stream.life, 0) > stream.generation

    def _children(self, members: int, height: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) of [J] 3.3 for a set of members, remembered."""
        found = self._trees.get((members, height))
        if found is None:
            if len(self._trees) >= REMEMBERED_TREES:
                self._trees.clear()
            found = self._trees[members, height] = children(self.node, members, height)
        return found

    def forget_trees(self) -> None:
        """Nodes came or went: most trees will be others."""
        self._trees.clear()

    @property
    def _next_route(self) -> int:
        """The number of the next route of ours, above those of all before."""
        return self.epoch << ROUTE_BITS | self.routes

    def _is_early(self, route: int) -> bool:
        """Whether the number of a route belongs to a view that we are not in, or not yet.

        It may leave out members of ours.  If that view comes to nothing, whoever goes on with those
        must not have what they can never get.  If it comes, the frame is sent again.
        """
        if route >> ROUTE_BITS > self.epoch:
            self.marks["route of a view to come"] += 1
            return True
        return False

    def _open(self, stream: Stream) -> Inbox:
        """Begin, or resume, to keep state for a stream."""
        if stream.incarnation >> LIFE_BITS and stream not in self.floor:
            self._supersede(stream)
        done = self.front.delivered.get(stream, -1)
        takes = self.taking and not (self.frozen and stream.life in self.frozen)
        inbox = Inbox(stream, done + 1 if takes else NOT_TAKING, done)
        inbox.ended = stream in self.heirs
        inbox.stable = self.floor.pop(stream, -1)
        inbox.oldest = inbox.stable + 1
        self.inboxes[stream] = inbox
        return inbox

    def _supersede(self, stream: Stream) -> None:
        """A publisher begins anew: everyone had all of its earlier streams when it forgot them."""
        life, generation = stream.life, stream.generation
        if self.latest.get(life, 0) >= generation:
            return
        self.latest[life] = generation
        for old in [*self.front.delivered, *self.floor]:
            if old.life == life and old.generation < generation and old not in self.inboxes:
                self.superseded[old] = self.epoch
        self.agenda.untidy = True  # a flush will be due, and the node sees to it then

    def begin_anew(self, incarnation: int) -> None:
        """Publish in a stream of another generation from now on; the one before is stable."""
        assert self.own not in self.inboxes
        self.own = Stream(self.node, incarnation)
        self.next_seq = 0
        self.told = -1
        self._supersede(self.own)

    @property
    def remembers(self) -> bool:
        """Whether something is kept for those who may come back."""
        return bool(self.over or self.superseded)

    def remember(self, horizon: Horizon) -> None:
        """Forget the streams that are over and that nobody who may come back asks for."""
        needs_dead, needs_superseded = horizon.needs_dead, horizon.needs_superseded
        for kept, needed in ((self.over, needs_dead), (self.superseded, needs_superseded)):
            excess = len(kept) - KEPT_STREAMS
            for number, (stream, epoch) in enumerate(list(kept.items())):
                if number < excess or not needed(epoch):
                    del kept[stream]
                    self._forget_stream(stream)
                    if number < excess or kept is self.over:
                        self.forgotten = max(self.forgotten, epoch)

    def _forget_stream(self, stream: Stream) -> None:
        self.front.forget(stream)
        for kept in (self.floor, self.start, self.lost_routes, self.told_over):
            kept.pop(stream, None)
        for ends in (self.finals, self.ends):
            ends.pop(stream, None)  # else we would tell of it for ever
        if self.latest and self.latest.get(stream.life) == stream.generation:
            del self.latest[stream.life]  # only a life that is over ends with its last generation

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
            self._plan(self.flush_at)

    def _hasten(self, now: Time) -> None:
        """Traffic is heavy: publishers may need credit before the planned flush gives it."""
        due = self.pace.due(now)
        if self.flush_at is not None and due < self.flush_at:
            self.flush_at = due
            self._plan(due)

    @property
    def absent(self) -> bool:
        """Whether this node only passes frames on: it has unsubscribed."""
        return not self.taking and not self.expecting

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: no frame, no duty to others, no end of a dead stream.

        Who was suspended joins again, and asks then how far our stream went without it.
        """
        return not (
            self.inboxes
            or self.leavers
            or self.laggards.suspended
            or self.heirs
            or self.finals
            or self.ends
            or self.refused
            or self.expecting
        )

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
