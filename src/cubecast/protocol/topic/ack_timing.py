"""When acknowledgements are due: soon if publishers may wait for credit, else not so often."""

from __future__ import annotations

from cubecast.protocol.config import Config
from cubecast.protocol.port import Stream, Time
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.streams import Inbox

HEAVY_SHARE = 16
"""Traffic is heavy once one part in this many of a window has passed between two flushes ..."""
HEAVY_PAUSES = 4
"""... and for so many pauses after that."""


class AckPace:
    """The pace of one topic's acknowledgements.

    They gather for `Config.ack_delay`.  In light traffic, when a publisher has most of its window
    left, they also keep `Config.ack_pause` between them: an acknowledgement per message costs more
    than the message.  Without `ack_pause` the pace decides nothing.
    """

    __slots__ = ("_delay", "_flushed_at", "_heavy", "_heavy_until", "_passed", "_pause")

    def __init__(self, config: Config) -> None:
        self._delay = config.ack_delay
        self._pause = config.ack_pause
        self._heavy = max(1, config.window // HEAVY_SHARE)
        self._passed = 0
        self._flushed_at: Time = -config.ack_pause
        self._heavy_until: Time = 0

    def due(self, now: Time) -> Time:
        """The time to acknowledge what comes now."""
        soon = now + self._delay
        if not self._pause or now < self._heavy_until:
            return soon
        return max(soon, self._flushed_at + self._pause)

    def passed(self, size: int, now: Time) -> bool:
        """Count a frame; True if it makes traffic heavy, so that the planned flush may be late."""
        self._passed += size
        if self._passed < self._heavy or not self._pause:
            return False
        self._passed = 0
        self._heavy_until = now + HEAVY_PAUSES * self._pause
        return True

    def waited_for(self, now: Time) -> None:
        """Treat traffic as heavy: a publisher may wait for credit until the next flush."""
        self._heavy_until = now + HEAVY_PAUSES * self._pause

    def flushed(self, now: Time) -> None:
        """Note that everything is acknowledged as of now."""
        self._passed = 0
        self._flushed_at = now


class AckQueue:
    """The streams with news to acknowledge, and the time of the next flush.

    `dirty` are open streams.  While it is not empty, `flush_at` is set and planned.
    """

    __slots__ = ("_agenda", "_topic", "dirty", "flush_at", "pace")

    def __init__(self, context: Context) -> None:
        self._agenda = context.agenda
        self._topic = context.topic
        self.pace = AckPace(context.config)
        self.dirty: dict[Stream, Inbox] = {}
        self.flush_at: Time | None = None

    def touch(self, inbox: Inbox, now: Time) -> None:
        """Queue `inbox`, which may have to be acknowledged, for the next flush."""
        self.dirty[inbox.stream] = inbox
        if self.flush_at is None:
            at = self.flush_at = self.pace.due(now)
            self._agenda.plan(self._topic, at)

    def hasten(self, now: Time) -> None:
        """Flush earlier in heavy traffic: publishers may need credit before the planned flush."""
        due = self.pace.due(now)
        if self.flush_at is not None and due < self.flush_at:
            self.flush_at = due
            self._agenda.plan(self._topic, due)

    def drop(self, stream: Stream) -> None:
        """Remove a stream that is closed."""
        self.dirty.pop(stream, None)

    def take_one(self, stream: Stream) -> Inbox:
        """Remove a stream with news that another part handles, and return its inbox."""
        return self.dirty.pop(stream)

    def take(self, now: Time) -> dict[Stream, Inbox]:
        """Begin a flush: return the streams with news; later news is for the next flush."""
        self.flush_at = None
        self.pace.flushed(now)
        dirty, self.dirty = self.dirty, {}
        return dirty
