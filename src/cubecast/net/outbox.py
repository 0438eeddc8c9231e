"""Publications on their way to the core: gathered per tick, held while there is no credit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Protocol

from cubecast.errors import Closed, NotSent
from cubecast.net.config import NodeConfig
from cubecast.net.wire import Outgoing
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import Topic

log = logging.getLogger("cubecast")

BLOCKED_NEWS_S = 1.0
"""A publisher that waits this long is worth an event."""


class Publisher(Protocol):
    """What an outbox needs of its node."""

    config: NodeConfig
    closed: bool

    def publish_frame(self, topic: Topic, body: Outgoing, size: int) -> bool: ...
    def credit_ran_out(self, topic: Topic) -> None: ...
    def why_blocked(self) -> str: ...
    def publisher_blocked(self, topic: Topic, seconds: float) -> None: ...


class Outbox:
    """The publications of one topic.

    1. What `publish` has accepted is in `payloads` and will be sent, in order.  Accepting is the
       last thing a publish does, so one that raises or is cancelled was not sent and will not be.
    2. While the door is `shut` nobody is accepted but those who waited, in the order they came;
       so messages are numbered in the order of the calls.
    """

    __slots__ = (
        "_blocked_at",
        "_loop",
        "_news_planned",
        "_paused",
        "_publisher",
        "_returning",
        "_stopped",
        "_tickets",
        "_told_of",
        "_waiters",
        "blocked",
        "bytes",
        "frame_bytes",
        "frame_messages",
        "payloads",
        "planned",
        "shut",
        "topic",
    )

    def __init__(self, topic: Topic, publisher: Publisher) -> None:
        self.topic = topic
        self._publisher = publisher
        self._loop = asyncio.get_running_loop()
        self.frame_bytes = publisher.config.frame_bytes
        self.frame_messages = publisher.config.frame_messages
        self.payloads: list[bytes] = []
        self.bytes = 0
        self.planned = False
        self.shut = False
        self.blocked = False  # there is no credit
        self._blocked_at = 0.0
        self._told_of = 0.0  # the `_blocked_at` that was told
        self._news_planned = False
        self._paused = False  # a frame was full: the loop is let read
        self._stopped = False  # the node closes
        self._waiters: dict[int, asyncio.Future[None]] = {}  # by ticket, the order of the calls
        self._tickets = 0
        self._returning = 0  # those who were called and are not back yet

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in it and nobody waits at its door."""
        return not (self.payloads or self.planned or self.shut)

    # -- sending ---------------------------------------------------------------------------------

    def plan(self) -> None:
        """Send what has gathered at the end of this tick."""
        self.planned = True
        self._loop.call_soon(self._end_of_tick)

    def _end_of_tick(self) -> None:
        self.planned = False
        if self.payloads and not self.blocked:
            self.send()

    def send(self) -> None:
        """Make a frame of what has gathered; without credit it waits, and so do publishers."""
        if self._publisher.closed:
            return
        body = Outgoing(self.payloads, time.time_ns() // 1000)
        if not self._publisher.publish_frame(self.topic, body, self.bytes):
            if not self.blocked:
                self._blocked_at = self._loop.time()
            self.blocked = self.shut = True
            self._publisher.credit_ran_out(self.topic)
            return
        self.payloads = []
        self.bytes = 0
        if self.blocked:
            self.blocked = False
            self._open()

    def retry(self) -> None:
        """There may be credit again; called from inside the core, so not at once."""
        if self.blocked:
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        if self.blocked:
            self.send()

    # -- who may come in -------------------------------------------------------------------------

    async def make_room(self, timeout_s: float | None) -> None:
        """Return when one more may be accepted; `NotSent` if that takes too long.

        A full frame is sent, and the loop let read: publishing alone would never let it.
        """
        if self._stopped:
            raise Closed("the node is closed")
        limit = self._publisher.config.publish_timeout_s if timeout_s is None else timeout_s
        if not limit >= 0:
            raise ValueError(f"timeout must not be negative, not {limit}")
        deadline = self._loop.time() + limit
        self._tickets += 1
        ticket = self._tickets
        must_wait = self.shut
        while True:
            if self._stopped:
                raise NotSent(self.topic, "the node is closing")
            if must_wait or self.blocked or self._paused:
                must_wait = False
                await self._turn(ticket, deadline, limit)
            elif self.bytes >= self.frame_bytes or len(self.payloads) >= self.frame_messages:
                self.send()
                if not self.blocked:
                    await self._pause()
            else:
                return

    async def _turn(self, ticket: int, deadline: float, limit: float) -> None:
        """Wait to be called until `deadline`."""
        waiter = self._waiters[ticket] = self._loop.create_future()
        self._plan_news()
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            reason = self._publisher.why_blocked()
            raise NotSent(self.topic, f"{reason} for {limit:g} s") from None
        finally:
            if self._waiters.pop(ticket, None) is None:
                self._returning -= 1  # we were called
            self._open()

    def _plan_news(self) -> None:
        """Have it told if someone still waits for the same credit after a while; one timer."""
        if self.blocked and not self._news_planned and self._told_of != self._blocked_at:
            self._news_planned = True
            self._loop.call_at(self._blocked_at + BLOCKED_NEWS_S, self._tell_news)

    def _tell_news(self) -> None:
        self._news_planned = False
        if not self.blocked or not self._waiters or self._stopped:
            return
        seconds = self._loop.time() - self._blocked_at
        if seconds < BLOCKED_NEWS_S:  # it is another time that we are blocked
            self._plan_news()
        elif self._told_of != self._blocked_at:
            self._told_of = self._blocked_at
            self._publisher.publisher_blocked(self.topic, seconds)

    async def _pause(self) -> None:
        """Let the loop read, with the door shut behind us; then we are the first."""
        self._paused = self.shut = True
        try:
            await asyncio.sleep(0)
        finally:
            self._paused = False
            self._open()

    def _open(self) -> None:
        """Call those who wait, a frame's worth in order; open when nobody waits any more."""
        if self._waiters and not (self.blocked or self._paused or self._returning):
            self._call(sorted(self._waiters)[: self.frame_messages])
        self.shut = bool(
            self.blocked or self._paused or self._stopped or self._returning or self._waiters
        )

    def _call(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            waiter = self._waiters.pop(ticket)
            self._returning += 1
            if not waiter.done():
                waiter.set_result(None)

    def stop(self) -> None:
        """Accept nothing more; what was accepted is still sent."""
        self._stopped = self.shut = True
        self._call(sorted(self._waiters))

    def close(self, core: CubecastNode | None) -> None:
        """Nothing more will be sent: say what becomes of that, also where no receipt does."""
        unknown = 0
        if core is not None:
            unknown = core.next_seq(self.topic) - 1 - core.stable_seq(self.topic)
        if self.payloads or unknown:
            log.warning(
                "the node closed: of what was published to %r, %d messages were not sent "
                "and %d are not known to be received",
                *(self.topic, len(self.payloads), unknown),
            )
