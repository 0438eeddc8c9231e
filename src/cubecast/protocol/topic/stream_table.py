"""The state of each stream of a topic at one node: open, closed, delivered, lost.

A stream with something under way is *open* and has an `Inbox`.  Of a closed stream two numbers are
kept: how far it is stable (`floor`) and delivered (`CausalFront.delivered`), and perhaps its entry
in the frontier.

Invariants:

1. `open` moves a stream from `floor` to `inboxes`; a method that closes it moves it back.
2. Entries that wait to be acknowledged (`AckQueue.dirty`), to be repaired (`Repair.unacked`) or for
   their causes belong to a stream and a route that are open: a method that closes one removes them.
"""

from __future__ import annotations

from typing import ClassVar

from cubecast.protocol.messages import ROUTE_BITS, Route, Stable
from cubecast.protocol.port import LIFE_BITS, NodeId, Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.causal import CausalFront
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.history import History
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import children

REMEMBERED_TREES = 256
"""The number of (members, height) for which a node remembers its children."""


class StreamTable:
    """The streams of one topic at one node."""

    front_class: ClassVar[type[CausalFront]] = CausalFront

    __slots__ = (
        "_context",
        "_dead",
        "_guard",
        "_history",
        "_queue",
        "_reading",
        "_repair",
        "_trees",
        "floor",
        "front",
        "inboxes",
        "lost_routes",
    )

    def __init__(
        self,
        context: Context,
        guard: TopicGuard,
        reading: Reading,
        dead: DeadStreams,
        history: History,
        queue: AckQueue,
        repair: Repair,
    ) -> None:
        self._context = context
        self._guard = guard
        self._reading = reading
        self._dead = dead
        self._history = history
        self._queue = queue
        self._repair = repair
        self._trees: dict[tuple[int, int], tuple[NodeId, ...]] = {}
        self.front = self.front_class(self.is_over)
        self.inboxes: dict[Stream, Inbox] = {}
        self.floor: dict[Stream, Seq] = {}
        """How far closed streams are stable."""
        self.lost_routes: dict[Stream, int] = {}
        """The last route of a publisher that it went on with without us."""

    # -- trees and routes --------------------------------------------------------------------------

    def children(self, members: int, height: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) of [J] 3.3 for a set of members, remembered."""
        found = self._trees.get((members, height))
        if found is None:
            if len(self._trees) >= REMEMBERED_TREES:
                self._trees.clear()
            found = children(self._context.node, members, height)
            self._trees[members, height] = found
        return found

    def forget_trees(self) -> None:
        """Forget the remembered children: nodes came or went, and most trees change."""
        self._trees.clear()

    def pass_on(self, news: Stable, height: int, now: Time) -> None:
        """Pass news to our children in its tree."""
        for child in self.children(news.members, height):
            self._context.links.send(child, news, now)

    def is_early(self, route: int) -> bool:
        """Whether the number of a route belongs to a view that we are not in, or not yet.

        The route may leave out members of our view.  If its view is never installed, a node that
        stays with those must not have what they can never get.  If it is, the frame is sent again.
        """
        if route >> ROUTE_BITS > self._context.view.epoch:
            self._context.marks["route of a view to come"] += 1
            return True
        return False

    def new_branch(
        self, inbox: Inbox, route: Route, parent: NodeId, below: tuple[NodeId, ...], stable: Seq
    ) -> Branch:
        """Take part in the tree of a route."""
        if inbox.stable < stable and not inbox.branches:
            inbox.stable = stable
        branch = Branch(route, parent, below, max(route.start - 1, inbox.stable))
        if self._context.view.since:
            branch.lose(self._guard.not_in(route))
            if branch.lost:
                self._context.marks["route with the former owner of a slot"] += 1
        inbox.add_branch(branch)
        inbox.hear_from(parent)
        return branch

    # -- opening and closing -----------------------------------------------------------------------

    def open(self, stream: Stream) -> Inbox:
        """Begin, or resume, to keep state for a stream."""
        if stream.incarnation >> LIFE_BITS and stream not in self.floor:
            self.supersede(stream)
        done = self.front.delivered.get(stream, -1)
        frozen = self._context.view.frozen
        takes = self._reading.taking and not (frozen and stream.life in frozen)
        inbox = Inbox(stream, done + 1 if takes else NOT_TAKING, done)
        inbox.ended = stream in self._dead.heirs
        inbox.stable = self.floor.pop(stream, -1)
        inbox.oldest = inbox.stable + 1
        self.inboxes[stream] = inbox
        return inbox

    def drop(self, inbox: Inbox) -> None:
        """Keep nothing of a stream but how far it came."""
        stream = inbox.stream
        self.floor[stream] = inbox.reached()
        del self.inboxes[stream]
        self.front.stop_waiting_of(inbox)
        self._queue.drop(stream)
        for number in inbox.branches:
            self._repair.forget(stream, number)

    def close_branch(self, inbox: Inbox, route: int) -> None:
        """Leave the tree of a route: all that it carried is stable, or will not come."""
        del inbox.branches[route]
        self._repair.forget(inbox.stream, route)

    def close_branches(self, inbox: Inbox, route: int, start: Seq) -> None:
        """Leave the trees of routes before `route` if all they carried is stable."""
        if inbox.stable >= start - 1:
            for number in [number for number in inbox.branches if number < route]:
                self.close_branch(inbox, number)

    def close_if_idle(self, inbox: Inbox) -> None:
        """Close a stream of which everything is stable and known to be: keep two numbers."""
        if inbox.frames or len(inbox.branches) > 1:
            return
        for number in inbox.branches:
            self._repair.forget(inbox.stream, number)
        del self.inboxes[inbox.stream]
        self._queue.drop(inbox.stream)
        self.floor[inbox.stream] = inbox.stable

    def close_at(self, stream: Stream, seq: Seq) -> None:
        """Set how far a closed stream is stable, whatever was known of it."""
        self.floor[stream] = seq

    def raise_floor(self, stream: Stream, seq: Seq) -> None:
        """Note that a closed stream is stable up to `seq` at least."""
        self.floor[stream] = max(seq, self.floor.get(stream, -1))

    def jump(self, stream: Stream, seq: Seq) -> None:
        """Count a stream as delivered and stable up to `seq`: it is over here."""
        self.front.jump(stream, seq)
        self.floor[stream] = seq

    def stable_of(self, stream: Stream) -> Seq:
        """How far everyone is known to have a stream."""
        inbox = self.inboxes.get(stream)
        return inbox.stable if inbox is not None else self.floor.get(stream, -1)

    def retract(self, stream: Stream, last: Seq) -> None:
        """Forget what is here of a stream above `last`: it was never published."""
        if stream in self.inboxes:
            self.drop(self.inboxes[stream])
        self.floor[stream] = last
        if last < 0:
            del self.floor[stream]
        self.front.retract(stream, last)

    # -- streams that are over ---------------------------------------------------------------------

    def supersede(self, stream: Stream) -> None:
        """End the earlier streams of a publisher that begins anew: everyone had all of them."""
        if not self._history.supersede(stream):
            return
        life, generation = stream.life, stream.generation
        for old in [*self.front.delivered, *self.floor]:
            if old.life == life and old.generation < generation and old not in self.inboxes:
                self._history.note_superseded(old)
        self._context.agenda.note_end()  # a flush will be due, and the node handles it then

    def is_over(self, stream: Stream) -> bool:
        """Whether nothing more will be delivered here of a stream that a frame names.

        A live stream is over if its publisher forgot the topic and has begun anew since: everyone
        had all of it by then.

        A stream that is neither live nor pending is over: there is nothing to wait for.  It cannot
        belong to a life that we do not know yet, as a node publishes nothing before its first wave
        has visited every node, us included, in a view that names it.  If the stream ended while we
        took messages and we lack some of it, that was owed to us, and we have to jump.
        """
        view, history = self._context.view, self._history
        if view.is_live(stream):
            return history.is_superseded(stream)
        if self.is_pending(stream):
            return False
        if view.ended.get(stream.life, -1) <= self._reading.began or stream in history.superseded:
            return True
        self._context.marks["waits for what will not come"] += 1
        self._reading.strand()
        return False

    def is_pending(self, stream: Stream) -> bool:
        """Whether more of a dead stream may be delivered here, or is to be skipped."""
        done = self.front.delivered.get(stream, -1)
        return stream in self.inboxes or self._dead.names(stream, done)

    def forget(self, stream: Stream) -> None:
        """Keep nothing of a stream that is over; else we would report it for ever."""
        self.front.forget(stream)
        self.floor.pop(stream, None)
        self.lost_routes.pop(stream, None)
        self._reading.forget(stream)
        self._dead.forget(stream)
        self._history.forget(stream)

    # -- publishers that suspended us --------------------------------------------------------------

    def lose_routes(self, stream: Stream, route: int) -> None:
        """Take nothing more of the routes up to `route`: their publisher went on without us."""
        self.lost_routes[stream] = route

    def find_routes(self, stream: Stream) -> None:
        """Forget the lost routes of a stream of which nothing more will come."""
        self.lost_routes.pop(stream, None)
