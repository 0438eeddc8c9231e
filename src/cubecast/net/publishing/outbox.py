"""Publications on their way to the core: gathered per tick, held while there is no credit."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from cubecast.errors import Closed, NotSent, Unknown
from cubecast.net.clock import wall_us
from cubecast.net.reading.subscription import READS, BlockingReader, Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.headers import places
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, OutgoingFrame
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.port import Topic

log = logging.getLogger("cubecast")

BLOCKED_NEWS_S = 1.0
"""After waiting this long for credit, a publisher is reported by an event."""
LOOPS_FIRST_S = 0.1
"""How long other tasks give way after a task that reads had to wait."""


class OutboxHost(Protocol):
    """What an outbox needs of its node."""

    config: NodeConfig
    closed: bool

    def publish_frame(self, topic: Topic, body: OutgoingFrame, size: int) -> bool: ...
    def credit(self, topic: Topic, wanted: int) -> int: ...
    def has_to_wait(self, topic: Topic, waits: bool) -> None: ...
    def why_blocked(self) -> str: ...
    def publisher_blocked(self, topic: Topic, seconds: float) -> None: ...


class Leftover(NamedTuple):
    """Accepted messages of a topic that were not known to be stable when the node closed."""

    topic: Topic
    unsent: int
    unknown: int

    def error(self) -> NotSent | Unknown:
        """The error for the application."""
        if self.unsent:
            more = f", and of {self.unknown} it is not known" if self.unknown else ""
            reason = f"the node closed before {self.unsent} accepted messages were sent{more}"
            return NotSent(self.topic, reason)
        return Unknown(self.topic, f"the node closed before {self.unknown} messages were confirmed")


class Waiter:
    """A `publish` that waits for its turn; `reads` is what its task reads, if anything."""

    __slots__ = ("called", "reads")

    def __init__(self, called: asyncio.Future[None], reads: BlockingReader | None) -> None:
        self.called = called
        self.reads = reads


class Outbox:
    """The publications of one topic.

    1. Messages that `publish` has accepted are in `payloads` and will be sent, in order.  Accepting
       is the last step of a publish, so one that raises or is cancelled was not sent and will not
       be.
    2. No more is accepted than there is credit for, and one message.
    3. While the outbox is `shut`, only calls that waited are accepted, in the order they came; so
       messages are numbered in the order of the calls.  With one exception:
    4. Tasks that read (`subscription.READS`) come before those that only publish, and as long as
       they have to wait, and `LOOPS_FIRST_S` longer, they alone get credit.  A task that reads
       stalls its own publishers while it waits to publish; if others took the credit that it
       waits for, a circle of such tasks would wait for ever (docs/design.md).  Among tasks that
       read, one that reads this very topic and is behind with it comes first, for the same reason.
    """

    __slots__ = (
        "_blocked_at",
        "_first",
        "_loop",
        "_looped_at",
        "_news_planned",
        "_paused",
        "_progress_at",
        "_publisher",
        "_resuming",
        "_returning",
        "_stopped",
        "_tickets",
        "_told_of",
        "_waiters",
        "blocked",
        "bytes",
        "frame_bytes",
        "frame_messages",
        "headed",
        "payloads",
        "planned",
        "room",
        "shut",
        "topic",
    )

    def __init__(self, topic: Topic, publisher: OutboxHost) -> None:
        self.topic = topic
        self._publisher = publisher
        self._loop = asyncio.get_running_loop()
        self.frame_bytes = publisher.config.frame_bytes
        self.frame_messages = publisher.config.frame_messages
        self.room = min(self.frame_bytes, publisher.config.protocol.window)
        """Bytes that may gather: a frame, or less if there is less credit."""
        self.payloads: list[bytes] = []
        self.headed = False
        """Whether a message with headers was ever published here: only then each frame is searched
        for headers."""
        self.bytes = 0
        self.planned = False
        self.shut = False
        self.blocked = False  # there is no credit
        self._blocked_at = 0.0
        self._progress_at = 0.0  # when credit came back
        self._told_of = 0.0  # the `_blocked_at` that was told
        self._news_planned = False
        self._paused = False  # a frame was full: the loop gets time to read
        self._stopped = False  # the node closes
        self._waiters: dict[int, Waiter] = {}  # by ticket, the order of the calls
        self._tickets = 0
        self._returning: dict[int, Waiter] = {}  # waiters that were called and have not resumed
        self._first: BlockingReader | None = None  # what the task that goes first reads, ...
        self._looped_at = -LOOPS_FIRST_S  # ... and when such a task had to wait
        self._resuming = False  # a call of `_resume` is planned

    @property
    def is_idle(self) -> bool:
        """Whether the outbox is empty and no call waits."""
        return not (self.payloads or self.planned or self.shut)

    # -- sending ---------------------------------------------------------------------------------

    def plan(self) -> None:
        """Send what has gathered at the end of this tick."""
        self.planned = True
        self._loop.call_soon(self._end_of_tick)

    def _end_of_tick(self) -> None:
        self.planned = False
        if self.payloads and not self.blocked and not self._returning:
            self.send()

    def send(self) -> None:
        """Make a frame of the gathered messages; those without credit wait."""
        if self._publisher.closed:
            return
        body = OutgoingFrame(self.payloads, wall_us(), places(self.payloads) if self.headed else ())
        fits = self.bytes <= self._publisher.config.protocol.window
        if fits and self._publisher.publish_frame(self.topic, body, self.bytes):
            self.payloads = []
            self.bytes = 0
        else:
            self._send_part(body.time)
        if self.payloads:
            self._run_out()
        else:
            self._look_for_credit()

    def _send_part(self, now_us: int) -> None:
        """Make a frame of as many messages as there is credit for; a larger message goes alone."""
        credit = self._publisher.credit(self.topic, sys.maxsize)
        count = size = 0
        for payload in self.payloads:
            more = size + len(payload) + MESSAGE_OVERHEAD
            if more > credit:
                break
            count, size = count + 1, more
        if count == 0:
            count, size = 1, len(self.payloads[0]) + MESSAGE_OVERHEAD
        part = self.payloads[:count]
        body = OutgoingFrame(part, now_us, places(part) if self.headed else ())
        if self._publisher.publish_frame(self.topic, body, size):
            del self.payloads[:count]
            self.bytes -= size

    def retry(self) -> None:
        """Try again soon: there may be credit.  Not at once, as the core calls this."""
        self._progress_at = self._loop.time()
        if self.blocked or self._waiters:
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        if self.blocked and self.payloads:
            if self._waiters and self.bytes < self._credit():
                self._look_for_credit()  # let more messages in: they share the cost of one frame
            if not self._returning:  # else the call that is let in plans the sending
                self.send()
        elif self.blocked or self._waiters:
            self._look_for_credit()

    def _credit(self) -> int:
        """The credit for this topic; if there is none, `retry` is called when there may be some."""
        return self._publisher.credit(self.topic, 1)

    def _look_for_credit(self) -> None:
        """Let waiting calls in if there is credit: everything accepted was sent."""
        waits = self.blocked or bool(self._waiters)
        credit = self._credit() if waits else self._publisher.credit(self.topic, 0)
        self.room = 0 if self._loops_first() else min(self.frame_bytes, credit)
        if self.blocked:
            self.blocked = False
            self._publisher.has_to_wait(self.topic, False)
        if waits:
            self._open()

    def _loops_first(self) -> bool:
        """Whether others give way to a task that reads; then `_resume` is planned for the end."""
        until = self._looped_at + LOOPS_FIRST_S
        if self._loop.time() >= until:
            return False
        if not self._resuming:
            self._resuming = True
            self._loop.call_at(until, self._resume)
        return True

    def _resume(self) -> None:
        self._resuming = False
        if not self.blocked:
            self._look_for_credit()
        elif self._waiters:
            self._loops_first()

    def _run_out(self) -> None:
        """Shut the outbox: there is no credit for what was accepted."""
        if not self.blocked:
            self._blocked_at = self._loop.time()
        self.blocked = self.shut = True
        self._publisher.has_to_wait(self.topic, True)

    # -- which call is accepted ------------------------------------------------------------------

    async def make_room(self, timeout_s: float | None) -> None:
        """Return when one more may be accepted; `NotSent` after too long without any progress.

        A full frame is sent, and the loop gets time to read: publishing alone never yields to it.
        """
        if self._stopped:
            raise Closed("the node is closed")
        limit = self._publisher.config.publish_timeout_s if timeout_s is None else timeout_s
        if not limit >= 0:
            raise ValueError(f"timeout must not be negative, not {limit}")
        reads = READS.get()
        loops = reads is not None
        self._tickets += 1
        ticket = self._tickets
        must_wait = self._has_to_queue(loops)
        while True:
            if self._stopped:
                raise NotSent(self.topic, "the node is closing")
            if must_wait or self.blocked or self._paused or self._overtakes(ticket, reads):
                must_wait = False
                await self._turn(ticket, reads, limit)
                continue
            full = self.bytes >= self.frame_bytes or len(self.payloads) >= self.frame_messages
            if not full and self._has_room(reads):
                return
            if self.payloads:
                self.send()
                if not self.blocked:
                    await self._pause()
            else:
                must_wait = True  # the remaining credit is for tasks that read

    def _may_go(self, reads: BlockingReader | None) -> bool:
        """Whether a task reads, and is at least as far behind in this topic as `_first`."""
        if reads is None or reads is self._first:
            return reads is not None
        return self._first is None or reads.behind(self.topic) >= self._first.behind(self.topic)

    def _has_room(self, reads: BlockingReader | None) -> bool:
        """Whether there is credit for one more, or nothing waits for credit yet."""
        if self._loops_first() and not self._may_go(reads):
            return False
        return not self.payloads or self.bytes < self._credit()

    @property
    def holds_readers(self) -> bool:
        """Whether a task that reads waits here."""
        return any(waiter.reads is not None for waiter in self._waiters.values())

    def holds_reader_of(self, subscription: Subscription) -> bool:
        """Whether a task that reads a certain subscription waits here."""
        readers = (waiter.reads for waiter in self._waiters.values())
        return any(one is not None and one.reads(subscription) for one in readers)

    def _has_to_queue(self, loops: bool) -> bool:
        """Whether a call has to wait behind others."""
        if not self.shut:
            return False
        return bool(self._returning) or any(
            waiter.reads is not None or not loops for waiter in self._waiters.values()
        )

    def _overtakes(self, ticket: int, reads: BlockingReader | None) -> bool:
        """Whether an earlier call that reads the same still waits, or has not resumed."""
        return any(
            earlier < ticket and waiter.reads is reads
            for waiting in (self._waiters, self._returning)
            for earlier, waiter in waiting.items()
        )

    async def _turn(self, ticket: int, reads: BlockingReader | None, limit: float) -> None:
        """Wait to be called, for `limit` seconds; the time begins anew when credit comes back."""
        waiter = Waiter(self._loop.create_future(), reads)
        self._waiters[ticket] = waiter
        self.shut = True
        began = self._loop.time()
        if reads is not None and (not self._loops_first() or self._may_go(reads)):
            self._first = reads
            self._looped_at = began
        self._plan_news()
        try:
            left = limit
            while not waiter.called.done():
                await asyncio.wait([waiter.called], timeout=left)
                left = max(began, self._progress_at) + limit - self._loop.time()
                if left <= 0 and not waiter.called.done():
                    reason = self._publisher.why_blocked()
                    raise NotSent(self.topic, f"{reason} for {limit:g} s")
        finally:
            self._waiters.pop(ticket, None)
            self._returning.pop(ticket, None)
            self._open()
            if self.payloads and not self.planned:
                self.plan()  # if this call is not accepted, the messages are sent all the same

    def _plan_news(self) -> None:
        """Plan an event if a call still waits for the same credit after `BLOCKED_NEWS_S`."""
        if self.blocked and not self._news_planned and self._told_of != self._blocked_at:
            self._news_planned = True
            self._loop.call_at(self._blocked_at + BLOCKED_NEWS_S, self._tell_news)

    def _tell_news(self) -> None:
        self._news_planned = False
        if not self.blocked or not self._waiters or self._stopped:
            return
        seconds = self._loop.time() - self._blocked_at
        if seconds < BLOCKED_NEWS_S:  # it was unblocked and has blocked again
            self._plan_news()
        elif self._told_of != self._blocked_at:
            self._told_of = self._blocked_at
            self._publisher.publisher_blocked(self.topic, seconds)

    async def _pause(self) -> None:
        """Give the loop time to read, with the outbox shut; then this call goes first."""
        self._paused = self.shut = True
        try:
            await asyncio.sleep(0)
        finally:
            self._paused = False
            self._open()

    def _open(self) -> None:
        """Call the waiters that may be accepted, in order, up to one frame of messages.

        The outbox stays shut while a call waits.
        """
        if self._waiters and not (self.blocked or self._paused or self._returning):
            tickets = sorted(self._waiters)
            if self._loops_first():
                tickets = [
                    ticket for ticket in tickets if self._may_go(self._waiters[ticket].reads)
                ]
            self._call(tickets[: self.frame_messages if self.room >= self.frame_bytes else 1])
        self.shut = bool(
            self.blocked or self._paused or self._stopped or self._returning or self._waiters
        )

    def _call(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            waiter = self._returning[ticket] = self._waiters.pop(ticket)
            if not waiter.called.done():
                waiter.called.set_result(None)

    def stop(self) -> None:
        """Accept nothing more; what was accepted is still sent."""
        self._stopped = self.shut = True
        self._call(sorted(self._waiters))

    def close(self, core: CubecastNode | None) -> Leftover | None:
        """Count and log the messages that are unsent or not known to be stable."""
        unknown = 0
        if core is not None:
            unknown = core.next_seq(self.topic) - 1 - core.stable_seq(self.topic)
        if self.payloads or unknown:
            log.warning(
                "the node closed: of what was published to %r, %d messages were not sent "
                "and %d are not known to be received",
                *(self.topic, len(self.payloads), unknown),
            )
            return Leftover(self.topic, len(self.payloads), unknown)
        return None
