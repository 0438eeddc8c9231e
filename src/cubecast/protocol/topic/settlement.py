"""The end of a dead stream at one node: lost messages are skipped, the rest is settled.

A stream is *settled* when everyone has it up to its end; then two numbers are kept of it.  Messages
that no node has are skipped and reported (`Port.gap`), once no cause of them can still come.
"""

from __future__ import annotations

from cubecast.protocol.cluster.views import Final
from cubecast.protocol.messages import Settled
from cubecast.protocol.port import Seq, Stream, Time
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams, Loss
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.history import History
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.topology import members_of


class Settlement:
    """The ends of dead streams in one topic at one node."""

    __slots__ = ("_context", "_dead", "_delivery", "_front", "_history", "_reading", "_streams")

    def __init__(
        self,
        context: Context,
        streams: StreamTable,
        delivery: Delivery,
        reading: Reading,
        dead: DeadStreams,
        history: History,
    ) -> None:
        self._context = context
        self._streams = streams
        self._front = streams.front
        self._delivery = delivery
        self._reading = reading
        self._dead = dead
        self._history = history

    # -- what no node has --------------------------------------------------------------------------

    def expect_loss(self, final: Final) -> None:
        """Plan to skip what we lack up to `Final.base` when its turn has come: no node has it."""
        stream = final.stream
        self._context.marks["skips what no node has"] += 1
        inbox = self._streams.inboxes.get(stream)
        if inbox is None:
            inbox = self._streams.open(stream)
        inbox.lose(final.base)
        after = tuple((cause, seq) for cause, seq in final.after if cause != stream)
        self._dead.lose(stream, Loss(final.base, after))
        if final.base >= final.seq:
            self._dead.settle(stream)  # no node feeds it

    def skip_losses(self, now: Time) -> None:
        """Skip messages that no node has, once no cause of them can still come.

        Their causes lie at or below `Loss.after`, the cut of a node that has what follows them.
        Causes that depend on no lost message come by themselves.  When the next message of every
        stream below the cut is here, or delivered, each undelivered one waits for a lost message,
        and the first lost message depends on none of them.
        """
        losses = self._dead.losses
        progress = True
        while progress and self._reading.taking:
            progress = False
            for stream in sorted(losses):
                if stream in losses and self._may_skip(stream):
                    self._skip(stream, now)
                    progress = True

    def _may_skip(self, stream: Stream) -> bool:
        return stream.life not in self._context.view.frozen and all(
            self._is_here(cause, seq) for cause, seq in self._dead.losses[stream].after
        )

    def _is_here(self, cause: Stream, seq: Seq) -> bool:
        """Whether a skip after `seq` of `cause` need not wait for more of that stream."""
        done = self._front.delivered.get(cause, -1)
        if done >= seq or cause in self._dead.losses:
            return True
        inbox = self._streams.inboxes.get(cause)
        if inbox is not None and done + 1 in inbox.frames:
            return inbox.next == done + 1
        return not self._context.view.is_live(cause) and not self._streams.is_pending(cause)

    def _skip(self, stream: Stream, now: Time) -> None:
        """Skip the lost messages; only the first of them if an inbox waits for the stream."""
        losses, inboxes = self._dead.losses, self._streams.inboxes
        last = losses[stream].last
        first = self._front.delivered.get(stream, -1) + 1
        if self._front.is_awaited(stream):
            last = first
        if last == losses[stream].last:
            self._dead.skipped(stream)
        inbox = inboxes[stream]
        self._front.jump(stream, last)
        inbox.skip(first, last)
        self._context.port.gap(self._context.topic, {stream: (first, last)})
        self._delivery.wake_waiters(stream, now)
        if stream in losses or stream not in inboxes:
            return
        if stream in self._dead.heirs:
            self._delivery.drain(inbox, now)
        else:
            self.settle(stream, last, now)

    def skip_ends(self, stream: Stream, now: Time) -> None:
        """Report what was published in another view, once we have what our own view agreed on."""
        last = self._dead.ends.get(stream, -1)
        done = self._front.delivered.get(stream, -1)
        if last <= done:
            return
        if done < self._dead.finals.get(stream, -1) or stream in self._streams.inboxes:
            self._context.marks["end of another view waits"] += 1
            return
        self._front.jump(stream, last)
        if self._reading.taking:
            self._context.marks["gap by the end of another view"] += 1
            self._context.port.gap(self._context.topic, {stream: (done + 1, last)})
        self._delivery.wake_waiters(stream, now)

    # -- what everyone has -------------------------------------------------------------------------

    def settle(self, stream: Stream, end: Seq, now: Time) -> bool:
        """Keep two numbers of a dead stream that everyone has up to its end.

        An heir tells the others, also if it heard so from the heir before it.  True if we have not
        got there: the publisher had suspended us, and no node can send us the rest.
        """
        context, dead, streams = self._context, self._dead, self._streams
        if dead.disinherit(stream) is not None:
            news = Settled(context.topic, stream, end, context.view.epoch)
            for peer in members_of(context.view.cluster & ~(1 << context.node)):
                context.links.send(peer, news, now)
        dead.settle(stream)
        if stream in dead.losses:
            return False  # `_skip` settles it
        inbox = streams.inboxes.get(stream)
        if inbox is not None:
            streams.drop(inbox)
        streams.raise_floor(stream, end)
        self.skip_ends(stream, now)
        self.tidy(stream)
        self._delivery.wake_waiters(stream, now)
        return self._reading.taking and self._front.delivered.get(stream, -1) < end

    def tidy(self, stream: Stream) -> None:
        """Keep of a dead stream that will not go on only how far it went, as long as needed.

        Its end is then at or below what is delivered here; an absent node counts it as delivered.
        """
        dead, streams, delivered = self._dead, self._streams, self._front.delivered
        if stream in streams.inboxes or stream in dead.heirs:
            return
        if self._reading.absent:
            end = max(dead.finals.get(stream, -1), dead.ends.get(stream, -1))
            if end > delivered.get(stream, -1):
                self._front.jump(stream, end)
        for end in dead.pass_ends(stream, delivered.get(stream, -1)):
            if max(end, streams.floor.get(stream, -1)) >= 0:
                streams.raise_floor(stream, end)
        if stream not in dead.finals and stream not in dead.ends:
            streams.find_routes(stream)
            self._history.settle(stream)

    def tidy_all(self) -> None:
        """Tidy every dead stream."""
        dead, streams = self._dead, self._streams
        known = {
            **self._front.delivered,
            **streams.floor,
            **dead.finals,
            **dead.ends,
            **streams.lost_routes,
        }
        for stream in known:
            if not self._context.view.is_live(stream):
                self.tidy(stream)
