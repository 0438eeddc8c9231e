"""The heir of a dead stream: it takes the publisher's place until everyone has the stream.

An heir feeds the subscribers itself (`Direct`), by the routes of the dead publisher, repairs,
gathers acknowledgements, and says when all may forget (`Settled`).  First it asks for what it lacks
and others hold (`bequests`).
"""

from __future__ import annotations

from cubecast.protocol.cluster.views import Final
from cubecast.protocol.messages import Frame, Inquiry, Route, Stable
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.holdings import Holdings
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.settlement import Settlement
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.topology import members_of


class Inheritance:
    """The streams of one topic that this node feeds in a dead publisher's place.

    `bequests` are the streams of which it lacks what others hold, above these numbers; while there
    are any, `ask_at` is set.
    """

    __slots__ = (
        "_context",
        "_dead",
        "_guard",
        "_holdings",
        "_outgoing",
        "_queue",
        "_reading",
        "_repair",
        "_settlement",
        "_streams",
        "ask_at",
        "bequests",
    )

    def __init__(
        self,
        context: Context,
        guard: TopicGuard,
        streams: StreamTable,
        reading: Reading,
        dead: DeadStreams,
        queue: AckQueue,
        repair: Repair,
        outgoing: Outgoing,
        holdings: Holdings,
        settlement: Settlement,
    ) -> None:
        self._context = context
        self._guard = guard
        self._streams = streams
        self._reading = reading
        self._dead = dead
        self._queue = queue
        self._repair = repair
        self._outgoing = outgoing
        self._holdings = holdings
        self._settlement = settlement
        self.bequests: dict[Stream, Seq] = {}
        self.ask_at: Time | None = None

    def inherit(self, final: Final, now: Time) -> None:
        """Become the root of a dead stream: feed every subscriber what we hold, up to its end.

        Others hold what we lack of it because our cut covers it: ask them first.
        """
        stream, end = final.stream, final.seq
        self._dead.inherit(stream, end)
        inbox = self._streams.inboxes.get(stream)
        if inbox is None:  # since our report we heard that everyone has it
            self.settle(stream, end, now)
            return
        self._context.marks["inherited"] += 1
        if self._lacks(inbox, final.base):
            self._context.marks["heir asks for what others hold"] += 1
            self.bequests[stream] = final.base
            self.ask_holders(now)
        else:
            self._feed(inbox, now)

    def settle(self, stream: Stream, end: Seq, now: Time) -> bool:
        """Stop feeding a stream that everyone has, and forget it (`Settlement.settle`)."""
        self.bequests.pop(stream, None)
        return self._settlement.settle(stream, end, now)

    def disown(self, stream: Stream) -> None:
        """Stop feeding a stream: another view names its heir again."""
        self._dead.disinherit(stream)
        self.bequests.pop(stream, None)

    # -- what others hold --------------------------------------------------------------------------

    def _lacks(self, inbox: Inbox, base: Seq) -> bool:
        """Whether we lack messages above `base` that are not stable."""
        return self._holdings.base_of(inbox) > max(base, inbox.stable)

    def ask_holders(self, now: Time) -> None:
        """Ask every member for what we inherit and lack, until it is here."""
        context = self._context
        self.ask_at = None
        for stream in [one for one in self.bequests if one not in self._streams.inboxes]:
            del self.bequests[stream]  # everyone has it
        for stream in self.bequests:
            for peer in members_of(context.view.cluster & ~(1 << context.node)):
                context.port.control(peer, Inquiry(context.topic, stream))
        if self.bequests:
            at = self.ask_at = now + context.config.resend_after
            context.plan(at)

    def bequeath(self, stream: Stream, heir: NodeId, now: Time) -> None:
        """Send the heir of a dead stream, which asks for what it lacks, all that we hold."""
        if self._dead.heirs.get(stream) != heir:
            return
        context, streams = self._context, self._streams
        inbox = streams.inboxes.get(stream)
        if inbox is not None or stream not in streams.lost_routes:
            stable = streams.stable_of(stream)
            if stable >= 0:  # we may have heard it since our report
                news = Stable(context.topic, stream, 0, 0, stable, 0)
                context.links.send(heir, news, now)
        if inbox is not None:
            for first in sorted(inbox.frames):
                context.marks["left frames to an heir"] += 1
                context.port.relay((heir,), inbox.frames[first])

    def take_bequest(self, frame: Frame, now: Time) -> bool:
        """Take a frame of a stream of which we asked others for the rest; False: another stream."""
        stream = frame.stream
        if stream not in self.bequests or stream not in self._streams.inboxes:
            return False
        inbox = self._streams.inboxes[stream]
        lacks = max(self.bequests[stream], inbox.stable) < frame.first
        if lacks and frame.last <= self._holdings.base_of(inbox):
            inbox.keep(frame)
            self._feed_if_complete(inbox, now)
        return True

    def hear_stable(self, news: Stable, now: Time) -> bool:
        """Take news of such a stream: part of what we ask for is stable; False: another stream."""
        inbox = self._streams.inboxes.get(news.stream)
        if news.stream not in self.bequests or inbox is None:
            return False
        if news.seq > inbox.stable:
            inbox.forget(news.seq)
        self._feed_if_complete(inbox, now)
        return True

    def _feed_if_complete(self, inbox: Inbox, now: Time) -> None:
        if not self._lacks(inbox, self.bequests[inbox.stream]):
            del self.bequests[inbox.stream]
            self._feed(inbox, now)

    # -- what others lack --------------------------------------------------------------------------

    def _feed(self, inbox: Inbox, now: Time) -> None:
        """Feed what we hold to every subscriber, by the routes of the dead publisher."""
        context, stream = self._context, inbox.stream
        for number in list(inbox.branches):
            self._streams.close_branch(inbox, number)
        inbox.branch = None
        routes: dict[int, Route] = {}
        ends: dict[int, Seq] = {}
        for first in sorted(inbox.frames):
            frame = inbox.frames[first]
            if frame.last <= inbox.stable:
                continue  # everyone has it
            routes.setdefault(frame.route.number, frame.route)
            ends[frame.route.number] = frame.last
        for number, route in sorted(routes.items()):
            here = context.view.cluster & ~self._guard.not_in(route) & ~(1 << context.node)
            branch = Branch(route, None, (), ends[number])
            branch.covered = branch.acked = route.start - 1
            branch.end = ends[number]
            branch.direct = True
            branch.feed(tuple(members_of(route.members & here)))
            inbox.add_branch(branch)
            if branch.children:
                context.marks["fed as an heir"] += 1
                self._repair.expect(stream, branch, now)
                self._outgoing.ask(inbox, branch, now)
        inbox.oldest = min(inbox.frames, default=inbox.stable + 1)  # the frames of all routes stay
        self._queue.touch(inbox, now)

    def look_again(self, stream: Stream, now: Time) -> None:
        """Check a stream that we feed after news of what is stable: it may be all of it."""
        end = self._dead.inherited.get(stream)
        if end is None:
            return
        inbox = self._streams.inboxes.get(stream)
        if inbox is not None:
            self._queue.touch(inbox, now)
        else:
            self.settle(stream, end, now)

    def flush(self, now: Time) -> None:
        """Advance the streams that we feed and that have new acknowledgements."""
        queue = self._queue
        for stream in [stream for stream in self._dead.inherited if stream in queue.dirty]:
            self.advance(queue.take_one(stream), now)

    def advance(self, inbox: Inbox, now: Time) -> None:
        """Settle a stream that we feed once everyone has it; then all may forget it."""
        if inbox.stream in self.bequests:
            return
        for number, branch in sorted(inbox.branches.items()):
            covered = branch.cover(inbox.consumed if self._reading.taking else branch.have)
            covered = max(covered, inbox.stable)
            assert branch.end is not None
            if covered < branch.end:
                return
            self._streams.close_branch(inbox, number)
        self._context.marks["settled an inheritance"] += 1
        self.settle(inbox.stream, self._dead.inherited[inbox.stream], now)
