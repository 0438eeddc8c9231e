"""A node's reports of dead streams, sent before a view without their publishers.

The report (`HeldStream`) names per stream what the node has delivered, what it holds, and the
causes of what it holds.  From all reports together follow the ends
(`cubecast.protocol.topic.stream_ends`).  Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.cluster.views import HeldStream, UnreadFrame
from cubecast.protocol.messages import Barrier
from cubecast.protocol.port import Seq, Stream
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.history import History
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Inbox

MAX_UNREAD = 256
"""Frames of one dead stream that a report names; later ones are given up."""


class Holdings:
    """The reports of one topic at one node."""

    __slots__ = ("_context", "_dead", "_history", "_reading", "_streams")

    def __init__(
        self,
        context: Context,
        streams: StreamTable,
        reading: Reading,
        dead: DeadStreams,
        history: History,
    ) -> None:
        self._context = context
        self._streams = streams
        self._reading = reading
        self._dead = dead
        self._history = history

    def unsettled(self) -> set[Stream]:
        """The dead streams that not everyone is known to have up to their end."""
        is_live = self._context.view.is_live
        return {
            *self._dead.heirs,
            *(stream for stream in self._streams.inboxes if not is_live(stream)),
        }

    def report(self, is_live: Callable[[Stream], bool]) -> tuple[HeldStream, ...]:
        """Report what we have of every dead stream that is not settled.

        A stream of which we have nothing, and which only our cut covers, is reported if what we
        read depends on it: others that lack it would wait for it in vain.
        """
        inboxes, delivered = self._streams.inboxes, self._streams.front.delivered
        needed = self._needed(is_live)
        reports = [
            self._held(inbox, needed.get(inbox.stream, -1))
            for inbox in inboxes.values()
            if not is_live(inbox.stream)
        ]
        found = [one for one in reports if one.have >= 0]
        for stream, seq in needed.items():
            if stream not in inboxes:
                self._context.marks["read what depends on a cut"] += 1
                reached = self._dead.agreed(stream, delivered.get(stream, -1))
                cut = self._cut_for(stream, reached)
                taking = self._reading.taking
                found.append(HeldStream(stream, reached, seq, reached, reached, taking, (), cut))
        return tuple(found)

    def base_of(self, inbox: Inbox) -> Seq:
        """The number up to which we hold nothing of a stream, or hold it no longer."""
        return self._held(inbox, -1).base

    def _needed(self, is_live: Callable[[Stream], bool]) -> dict[Stream, Seq]:
        """The causes of messages that were read or published here and that not everyone has.

        Only in dead streams, and only causes that everyone is not known to have or to jump over.
        What our cut covers may be a cause of anything that we have read since.
        """
        front = self._streams.front
        causes = list(front.frontier.items())
        if self._reading.taking:
            causes += self._reading.start.items()
        for inbox in self._streams.inboxes.values():
            read = front.delivered.get(inbox.stream, -1)
            for frame in inbox.frames.values():
                if frame.last <= read:
                    causes += frame.barrier
        needed: dict[Stream, Seq] = {}
        for stream, seq in causes:
            if is_live(stream):
                continue
            agreed = self._dead.agreed(stream, seq)
            if agreed > max(needed.get(stream, -1), self._settled_to(stream)):
                needed[stream] = agreed
        return {stream: seq for stream, seq in needed.items() if not self._is_forgotten(stream)}

    def _settled_to(self, stream: Stream) -> Seq:
        """How much of a stream everyone is known to have, or to have skipped."""
        if self._history.is_settled(stream):
            return self._streams.front.delivered.get(stream, -1)
        return -1 if stream in self._dead.heirs else self._streams.floor.get(stream, -1)

    def _is_forgotten(self, stream: Stream) -> bool:
        """Whether a stream was over for everyone so long ago that nothing is kept of it."""
        view = self._context.view
        return not (
            stream.life in view.ended or view.is_live(stream) or self._streams.is_pending(stream)
        )

    def _held(self, inbox: Inbox, needed: Seq) -> HeldStream:
        stream, taking = inbox.stream, self._reading.taking
        delivered = self._dead.agreed(stream, self._streams.front.delivered.get(stream, -1))
        read = delivered if taking else min(needed, delivered)
        if stream in self._dead.losses:
            delivered = read = self._dead.losses[stream].last  # it is agreed that we skip it
        by_last = {frame.last: frame for frame in inbox.frames.values()}
        base = delivered
        if not taking and delivered not in by_last and delivered + 1 not in inbox.frames:
            # The node only passes frames on, and has none of a route that begins above `delivered`.
            ends = [one.have for one in inbox.branches.values() if one.have in by_last]
            base = max(ends, default=inbox.stable)
        have = base
        while base in by_last:
            base = by_last[base].first - 1
        unread: list[UnreadFrame] = []
        seq = max(base, delivered) + 1
        while (frame := inbox.frames.get(seq)) is not None and len(unread) < MAX_UNREAD:
            unread.append(self._unread(frame.first, frame.last, frame.barrier))
            have, seq = frame.last, frame.last + 1
        if self._reading.expecting and base > max(delivered, inbox.stable):
            # We are about to join, and lack messages that perhaps no node has: we cannot be heir.
            self._context.marks["has only what follows a loss"] += 1
            return HeldStream(stream, delivered, read, delivered, delivered, False)
        cut = self._cut_for(stream, base)
        return HeldStream(stream, delivered, read, base, have, taking, tuple(unread), cut)

    def _cut_for(self, stream: Stream, base: Seq) -> Barrier:
        """The cut at which we joined, if we lack what lies up to `base` for that reason alone."""
        start = self._reading.start
        if not 0 <= base <= start.get(stream, -1):
            return ()
        return tuple(
            (cause, seq)
            for cause, seq in start.items()
            if cause == stream or seq > self._settled_to(cause)
        )

    def _unread(self, first: Seq, last: Seq, barrier: Barrier) -> UnreadFrame:
        """A frame with those of its causes that not everyone is known to have."""
        open_causes = tuple(
            (stream, seq)
            for stream, seq in barrier
            if seq > self._settled_to(stream) and not self._is_forgotten(stream)
        )
        return UnreadFrame(first, last, open_causes)
