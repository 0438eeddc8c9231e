"""The receiving side of a topic: frames in, frames on, news of what is stable.

Every receiver passes a frame on when it first sees it, holds it until its turn and its barrier
allow delivery, and keeps it until it is *stable*: consumed by every subscriber it was addressed to.

Invariants:

1. A frame is relayed once per node, to children computed from its own route, never from the
   relay's opinion; so a tree reaches exactly the subscribers the publisher addressed.
2. A receiver keeps at most `Config.room` of one stream whatever its publisher claims, and a message
   that a peer made up raises `ProtocolError` or is dropped before anything changes.
3. If this node takes all of a live stream, it forgets no message that it has not consumed.
"""

from __future__ import annotations

from cubecast.protocol.messages import Ack, Direct, Frame, Inquiry, Route, Stable
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.inheritance import Inheritance
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.settlement import Settlement
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import cluster

NOT_CONSUMED = "stable without this node, which has not consumed it"


class Incoming:
    """The receiving side of one topic at one node."""

    __slots__ = (
        "_bequests",
        "_context",
        "_dead",
        "_delivery",
        "_guard",
        "_inboxes",
        "_inheritance",
        "_losses",
        "_pace",
        "_port",
        "_queue",
        "_reading",
        "_repair",
        "_settlement",
        "_streams",
        "inquire_at",
        "inquiries",
    )

    def __init__(
        self,
        context: Context,
        guard: TopicGuard,
        streams: StreamTable,
        delivery: Delivery,
        reading: Reading,
        dead: DeadStreams,
        queue: AckQueue,
        repair: Repair,
        settlement: Settlement,
        inheritance: Inheritance,
    ) -> None:
        self._context = context
        self._port = context.port
        self._guard = guard
        self._streams = streams
        self._inboxes = streams.inboxes
        self._delivery = delivery
        self._reading = reading
        self._dead = dead
        self._losses = dead.losses
        self._queue = queue
        self._pace = queue.pace
        self._repair = repair
        self._settlement = settlement
        self._inheritance = inheritance
        self._bequests = inheritance.bequests
        self.inquiries: dict[Stream, Time] = {}
        """Streams whose publisher we ask what is stable, and the pauses between the questions."""
        self.inquire_at: Time | None = None

    # -- frames ------------------------------------------------------------------------------------

    def on_frame(self, frame: Frame, sender: NodeId, now: Time) -> None:
        """Pass on a new frame, deliver all that can be delivered, note what to acknowledge."""
        stream = frame.stream
        inbox = self._inboxes.get(stream)
        if self._bequests and self._inheritance.take_bequest(frame, now):
            return
        if inbox is None:
            inbox = self._inbox_for(frame, sender)
            if inbox is None:
                return
        branch = inbox.branch
        if branch is None or branch.route is not frame.route:
            branch = self._branch_for(inbox, frame, sender)
            if branch is None:
                return
        first, size = frame.first, frame.size
        if (
            first == branch.have + 1
            and branch.parent == sender
            and inbox.kept + size <= self._guard.room
        ):
            if branch.early:
                branch.receive(first, frame.last)
            else:
                branch.have = frame.last
        elif not self._guard.receive(inbox, branch, frame, sender):
            return  # a copy, or it cannot be true
        inbox.kept += size
        inbox.frames[first] = frame
        if branch.children:
            self._port.relay(branch.children, frame)
            if branch.resend_at is None:
                self._repair.expect(stream, branch, now)
        if first == inbox.next:
            self._delivery.drain(inbox, now)
        if frame.stable > inbox.stable:
            if frame.stable > inbox.consumed and self._owes(inbox):
                self._guard.drop(NOT_CONSUMED)
                self._inquire_later(stream, now)
            elif len(inbox.branches) > 1:
                self._forget_routes(inbox, frame)
            else:
                inbox.forget(frame.stable)
        if stream not in self._queue.dirty:
            self._queue.touch(inbox, now)
        if self._pace.passed(size, now):
            self._queue.hasten(now)
        if self._losses:
            self._settlement.skip_losses(now)

    def _inbox_for(self, frame: Frame, sender: NodeId) -> Inbox | None:
        """Open the stream of a frame; None if the frame is a late copy, or not to be taken."""
        stream, streams = frame.stream, self._streams
        if frame.last <= streams.floor.get(stream, -1):
            return None  # everyone has consumed it
        if frame.route.number <= streams.lost_routes.get(stream, -1):
            return None  # we shall never have the rest of its route
        self._guard.check_route(frame, sender)
        if streams.is_early(frame.route.number):
            return None
        if not self._guard.may_open(stream, streams.inboxes, streams.floor):
            return None
        return streams.open(stream)

    def _forget_routes(self, inbox: Inbox, frame: Frame) -> None:
        """Forget what is stable, and leave the trees of routes that are complete."""
        self._notice_suspension(inbox, frame.stable)
        if frame.stable > inbox.stable:
            inbox.forget(frame.stable)
        self._streams.close_branches(inbox, frame.route.number, frame.route.start)

    def _branch_for(self, inbox: Inbox, frame: Frame, sender: NodeId) -> Branch | None:
        """Our place in the tree of the frame's route; None if the frame is a late copy."""
        route, stream, guard, streams = frame.route, inbox.stream, self._guard, self._streams
        if frame.last <= inbox.stable or route.number <= streams.lost_routes.get(stream, -1):
            return None
        if inbox.ended and frame.last > self._dead.finals.get(stream, -1):
            self._context.marks["late frame above an end"] += 1
            guard.drop("above the end of a dead stream")  # its heir passed it on before
            return None
        branch = inbox.branches.get(route.number)
        if branch is None:
            if not guard.may_branch(inbox, frame, sender) or streams.is_early(route.number):
                return None
            below: tuple[NodeId, ...] = ()
            if guard.by_tree(frame, sender):
                below = streams.children(route.interior, cluster(self._context.node, sender) - 1)
            branch = streams.new_branch(inbox, route, sender, below, frame.stable)
        elif not guard.is_route_of(branch, frame, sender):
            return None
        elif branch.parent == sender:
            branch.route = route  # the next frame has this very object
        return branch

    def _owes(self, inbox: Inbox) -> bool:
        """Whether only what we have consumed of a stream can be stable: it is live, and we take all
        of it.  A relay that says otherwise would have us forget what we lack."""
        return (
            self._reading.taking
            and not inbox.ended
            and inbox.next != NOT_TAKING
            and self._context.view.is_live(inbox.stream)
            and not self._context.advisor.is_lossy
        )

    # -- what is stable ----------------------------------------------------------------------------

    def on_stable(self, news: Stable, sender: NodeId, now: Time) -> None:
        """Pass the news on, whatever we keep of the stream ourselves, and forget what is stable.

        An heir may learn from the publisher's last news that everyone has the stream.
        """
        if not self._inheritance.hear_stable(news, now):
            self._hear_stable(news, sender, now)
            self._inheritance.look_again(news.stream, now)

    def _hear_stable(self, news: Stable, sender: NodeId, now: Time) -> None:
        self._guard.check_stable(news, sender)
        inbox = self._inboxes.get(news.stream)
        if inbox is not None and news.seq > inbox.consumed and self._owes(inbox):
            self._guard.drop(NOT_CONSUMED)
            if sender == news.stream.source and not news.members:
                self._note_robbery(news.stream, now)
            else:
                self._inquire_later(news.stream, now)
            return
        self._streams.pass_on(news, cluster(self._context.node, sender) - 1, now)
        if inbox is None or self._notice_suspension(inbox, news.seq):
            return
        inbox.hear_from(sender)
        if inbox.stable < news.seq:
            inbox.forget(news.seq)
        self._streams.close_branches(inbox, news.route, news.start)
        self._streams.close_if_idle(inbox)

    def all_stable(self, stream: Stream, own: Stream) -> None:
        """Drop a stream whose publisher has forgotten the topic: everyone has all of it."""
        inbox = self._inboxes.get(stream)
        if inbox is not None and stream != own:
            self._streams.drop(inbox)

    def expect_news(self, own: Stream, now: Time) -> None:
        """Plan to ask, after a relay died, what is stable of every stream that is kept here.

        The publisher may have told it, and the dead relay not passed it on.  The first question is
        asked in `Config.resend_after`; it is repeated, ever more seldom, until nothing is kept.
        """
        for stream in self._inboxes:
            if stream != own:
                self.inquiries.pop(stream, None)
                self._inquire_later(stream, now)

    def _inquire_later(self, stream: Stream, now: Time) -> None:
        """Plan to ask the publisher of a stream what is stable."""
        pause = self._context.config.resend_after
        self.inquiries.setdefault(stream, pause)
        if self.inquire_at is None:
            at = self.inquire_at = now + pause
            self._context.plan(at)

    def _note_robbery(self, stream: Stream, now: Time) -> None:
        """Jump: a publisher has forgotten messages that we lack, and says so itself.

        A relay that lied has acknowledged them for us, and withheld them.
        """
        self._context.marks["a relay acknowledged what it withheld"] += 1
        self.inquiries.pop(stream, None)
        self._reading.strand()
        self._context.plan(now)

    def inquire(self, now: Time) -> None:
        """Ask the publishers of streams that are still open."""
        context = self._context
        self.inquire_at = None
        pauses = []
        for stream, pause in list(self.inquiries.items()):
            if stream not in self._inboxes or not context.view.is_live(stream):
                del self.inquiries[stream]
                continue
            context.port.control(stream.source, Inquiry(context.topic, stream))
            self.inquiries[stream] = min(2 * pause, context.config.resend_max)
            pauses.append(pause)
        if pauses:
            self.inquire_at = now + min(pauses)

    # -- publishers that give up a tree, or suspend us ---------------------------------------------

    def on_direct(self, news: Direct, sender: NodeId, now: Time) -> None:
        """Take a route from its publisher itself from now on; pass nothing of it on."""
        context, guard, streams = self._context, self._guard, self._streams
        stream = news.stream
        guard.check_direct(news, sender)
        by_heir = sender != stream.source
        here = news.last <= streams.stable_of(stream)
        here = here or news.route <= streams.lost_routes.get(stream, -1)
        if here or (by_heir and self._reading.absent):
            if by_heir:  # it knows only what we tell it; a leaver needs nothing of dead streams
                context.marks["heir told that all is here"] += 1
                done = Ack(context.topic, stream, news.route, news.last, news.last, 0, False)
                context.port.control(sender, done)
            return  # a late copy
        if streams.is_early(news.route):
            return
        inbox = self._inboxes.get(stream)
        if inbox is None:
            if not guard.may_open(stream, streams.inboxes, streams.floor):
                return
            inbox = streams.open(stream)
        branch = inbox.branches.get(news.route)
        if branch is None:
            if not guard.has_room_for_route(inbox):
                return
            route = Route(news.route, news.start, 0)
            branch = streams.new_branch(inbox, route, sender, (), news.stable)
        branch.parent = sender
        inbox.hear_from(sender)
        branch.feed(())
        self._repair.give_up(stream, branch)
        branch.asked = True
        self._queue.touch(inbox, now)

    def _notice_suspension(self, inbox: Inbox, stable: Seq) -> bool:
        """Treat messages that are stable and missing here as a suspension by their publisher.

        We have joined again since, or it would tell us nothing, and `Suspended` is late.  True if
        nothing is left of the stream here.
        """
        torn = inbox.torn(stable)
        return torn >= 0 and not self.on_suspended(inbox.stream, torn)

    def on_suspended(self, stream: Stream, route: int) -> bool:
        """Drop the old routes of a publisher that suspended us: they will not be completed.

        True if it addresses us again already.
        """
        streams = self._streams
        if route <= streams.lost_routes.get(stream, -1):
            return True  # we found out by ourselves
        if not self._guard.may_lose(stream, streams.lost_routes):
            return True
        streams.lose_routes(stream, route)
        inbox = self._inboxes.get(stream)
        if inbox is None:
            return False
        for number in [number for number in inbox.branches if number <= route]:
            self._repair.forget(stream, number)
        have = inbox.reached()
        if inbox.tear(route):
            return True
        streams.drop(inbox)
        streams.close_at(stream, have)
        return False
