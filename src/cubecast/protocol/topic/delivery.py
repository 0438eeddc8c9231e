"""Delivery in one topic: in sequence per stream, after the barrier, from the cut on.

[J] Algorithm 2, lines 83-94.  An inbox whose next frame waits is filed under one stream that it
waits for (`CausalFront`), so that a delivery looks only at inboxes that it can help.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubecast.protocol.messages import Frame
from cubecast.protocol.port import Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import NOT_TAKING, Inbox


class Delivery:
    """Hands the frames of one topic to the application, through `Port.deliver`."""

    __slots__ = (
        "_context",
        "_dead",
        "_front",
        "_port",
        "_queue",
        "_reading",
        "_streams",
        "doubt_at",
    )

    def __init__(
        self,
        context: Context,
        streams: StreamTable,
        reading: Reading,
        dead: DeadStreams,
        queue: AckQueue,
    ) -> None:
        self._context = context
        self._streams = streams
        self._front = streams.front
        self._reading = reading
        self._dead = dead
        self._queue = queue
        self._port = context.port
        self.doubt_at: Time | None = None
        """When to check the messages that wait for others (`Claims`)."""

    @property
    def doubt_after(self) -> Time:
        """How long a message waits for another before the other's publisher is asked."""
        return 2 * self._context.config.resend_max

    def drain(self, inbox: Inbox, now: Time) -> None:
        """Deliver all that `inbox` and the inboxes waiting for it allow ([J] lines 83-89)."""
        front, deliver = self._front, self._port.deliver
        work = [inbox]
        while work:
            inbox = work.pop()
            frames = inbox.frames
            progress = False
            while (frame := frames.get(inbox.next)) is not None:
                if frame.barrier and not front.ready(inbox, frame.barrier):
                    self._wait(inbox, frame, now)
                    break
                inbox.next = frame.last + 1
                front.deliver(frame)
                if deliver(frame):
                    inbox.consumed = frame.last
                progress = True
            if progress:
                self._queue.touch(inbox, now)
                work.extend(front.woken_by(inbox.stream))

    def _wait(self, inbox: Inbox, frame: Frame, now: Time) -> None:
        """Note since when a frame waits; its cause may have to be asked for."""
        if inbox.stuck[0] != frame.first:
            inbox.stuck = frame.first, now
            if self.doubt_at is None and self._context.view.cluster >= 0:
                self.doubt_later(now)
        if self._reading.stranded:
            self._context.plan(now)

    def doubt_later(self, now: Time) -> None:
        """Plan the next check of waiting messages."""
        at = self.doubt_at = now + self.doubt_after
        self._context.plan(at)

    def doubt_now(self) -> list[Inbox]:
        """The inboxes that wait; clears the planned check."""
        self.doubt_at = None
        return self._front.waiting()

    def holds(self, frame: Frame) -> bool:
        """Whether a frame was taken in, and waits for its barrier or for frames before it."""
        inbox = self._streams.inboxes.get(frame.stream)
        return (
            self._reading.taking
            and inbox is not None
            and inbox.next != NOT_TAKING
            and frame.first >= inbox.next
            and inbox.frames.get(frame.first) is frame
        )

    def wake_waiters(self, stream: Stream, now: Time) -> None:
        """Check the inboxes that waited for a stream: more of it is delivered, or will not be."""
        for inbox in self._front.woken_by(stream):
            self.drain(inbox, now)

    def look_again(self, now: Time) -> None:
        """Check all waiting inboxes again after a change of the view.

        An earlier check may have run before all of the change was known.
        """
        self._reading.look_again()
        for inbox in self._front.waiting():
            self._front.stop_waiting_of(inbox)
            self.drain(inbox, now)

    def consumed(self, stream: Stream, seq: Seq, now: Time) -> None:
        """Note that the application has consumed what `Port.deliver` left open, up to `seq`.

        Whole frames are consumed; a number in the middle of one is acknowledged as well, so that
        the publisher gets credit for it.  The publisher may wait for credit by now, so this is
        acknowledged soon.
        """
        inbox = self._streams.inboxes.get(stream)
        if inbox is None:
            return
        before = max(inbox.consumed, inbox.part)
        while (frame := inbox.frames.get(inbox.consumed + 1)) is not None and frame.last <= seq:
            inbox.consumed = frame.last
        if frame is not None and frame.first <= seq:
            inbox.part = seq
        if max(inbox.consumed, inbox.part) > before:
            queue = self._queue
            queue.pace.waited_for(now)
            queue.touch(inbox, now)
            queue.hasten(now)

    # -- beginning and ending ----------------------------------------------------------------------

    def begin(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Take messages from `cut` on: nothing at or below it, everything above it."""
        view, front = self._context.view, self._front
        front.raise_to(cut)
        delivered: Mapping[Stream, Seq] = front.delivered
        self._reading.begin(delivered, view.epoch)
        for inbox in list(self._streams.inboxes.values()):
            done = delivered.get(inbox.stream, -1)
            inbox.next = done + 1 if inbox.stream.life not in view.frozen else NOT_TAKING
            inbox.consumed = done
            self.drain(inbox, now)
            self._queue.touch(inbox, now)

    def pause(self) -> None:
        """Deliver nothing until `begin`: a new cut is being fixed."""
        self._reading.pause()
        self._deliver_nothing()

    def stop(self, now: Time) -> None:
        """Take nothing more; go on passing frames to others."""
        self._reading.stop()
        self._deliver_nothing()
        for inbox in self._streams.inboxes.values():
            self._queue.touch(inbox, now)

    def _deliver_nothing(self) -> None:
        self._dead.skip_nothing()
        self._front.stop_waiting()
        for inbox in self._streams.inboxes.values():
            inbox.next = NOT_TAKING

    def freeze(self) -> None:
        """Deliver nothing more of frozen lives until the next view."""
        for inbox in self._streams.inboxes.values():
            if inbox.stream.life in self._context.view.frozen:
                if inbox.next != NOT_TAKING:
                    self._context.marks["froze"] += 1
                self._front.stop_waiting_of(inbox)
                inbox.next = NOT_TAKING

    def thaw(self, lives: list[Stream], now: Time) -> None:
        """Deliver again the streams of nodes that were to be excluded, and were not."""
        for stream in [one for one in self._streams.inboxes if one.life in lives]:
            if self._context.view.is_live(stream):
                self._context.marks["frozen and alive after all"] += 1
                self.resume(stream, now)

    def resume(self, stream: Stream, now: Time) -> None:
        """Deliver a stream again from where it was frozen."""
        inbox = self._streams.inboxes.get(stream)
        if inbox is not None and self._reading.taking:
            inbox.next = self._front.delivered.get(stream, -1) + 1
            self.drain(inbox, now)
