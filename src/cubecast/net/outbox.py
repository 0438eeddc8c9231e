"""Publications on their way to the core: gathered per tick, held while there is no credit."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from cubecast.errors import NotSent
from cubecast.net.config import NodeConfig
from cubecast.net.wire import Outgoing
from cubecast.protocol.port import Topic


class Publisher(Protocol):
    """What an outbox needs of its node."""

    config: NodeConfig
    closed: bool

    def publish_frame(self, topic: Topic, body: Outgoing, size: int) -> bool: ...
    def credit_ran_out(self, topic: Topic) -> None: ...


class Outbox:
    """The publications of one topic.

    What `publish` has accepted is in `payloads` and will be sent, in order; while `blocked`,
    nothing more is accepted.
    """

    __slots__ = (
        "_loop",
        "_one_by_one",
        "_publisher",
        "_sent_at_once",
        "_waiters",
        "blocked",
        "bytes",
        "payloads",
        "planned",
        "topic",
    )

    def __init__(self, topic: Topic, publisher: Publisher) -> None:
        self.topic = topic
        self._publisher = publisher
        self._loop = asyncio.get_running_loop()
        self.payloads: list[bytes] = []
        self.bytes = 0
        self.planned = False
        self.blocked = False
        self._one_by_one = False
        self._sent_at_once = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    def plan(self) -> None:
        """Send what gathers in this tick at its end.

        While messages come one by one there is nothing to gather: then the first of a tick is
        sent at once, and a second one or a frame of several ends that.
        """
        self.planned = True
        self._loop.call_soon(self._end_of_tick)
        self._sent_at_once = self._one_by_one and not self.blocked
        if self._sent_at_once:
            self.send()

    def _end_of_tick(self) -> None:
        self.planned = False
        if self.payloads and not self.blocked:
            self._one_by_one = len(self.payloads) == 1 and not self._sent_at_once
            self.send()

    def send(self) -> None:
        """Make a frame of what has gathered; without credit it waits, and so do publishers."""
        if self._publisher.closed:
            return
        body = Outgoing(self.payloads, time.time_ns() // 1000)
        if not self._publisher.publish_frame(self.topic, body, self.bytes):
            self.blocked = True
            self._publisher.credit_ran_out(self.topic)
            return
        self.blocked = False
        if len(self.payloads) > 1:
            self._one_by_one = False
        self.payloads = []
        self.bytes = 0
        self._wake(lambda waiter: waiter.set_result(None))

    def retry(self) -> None:
        """There may be credit again; called from inside the core, so not at once."""
        if self.blocked:
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        if self.blocked:
            self.send()

    async def credit(self) -> None:
        """Wait until more is accepted; `NotSent` if that takes too long."""
        limit = self._publisher.config.publish_timeout_s
        while self.blocked:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(limit):
                    await waiter
            except TimeoutError:
                raise NotSent(self.topic, f"no credit for {limit:g} s") from None
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def close(self) -> None:
        """Nothing more will be sent: tell those who wait."""
        error = NotSent(self.topic, "the node is closed")
        self._wake(lambda waiter: waiter.set_exception(error))

    def _wake(self, how: Callable[[asyncio.Future[None]], None]) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                how(waiter)
