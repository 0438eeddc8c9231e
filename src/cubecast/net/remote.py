"""A light client's subscription: messages in order, the rest waiting at the node."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING

from cubecast.errors import Closed, CubecastError, NotAllowed, Overflow
from cubecast.net.client_wire import (
    DELIVER_WINDOW,
    Deliver,
    Ended,
    Read,
    Subscribe,
    Subscribed,
    Unsubscribe,
    size_of,
)
from cubecast.net.context import ClosesAtEnd
from cubecast.net.subscription import ENTERED_TWICE, NOT_ENTERED, Message, Policy, cut
from cubecast.net.wire import Outgoing, WireError
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream, Topic

if TYPE_CHECKING:
    from cubecast.net.client import Client


GIVE_BACK_S = 0.002
"""A slow reader gives the node credit this often, if it has read a message meanwhile."""


class RemoteSubscription(ClosesAtEnd):
    """An async context manager and iterator over the messages of a topic, like `Subscription`.

    At most a window of messages is here; the node keeps the rest, and applies the policy.  It is
    entered once, and several tasks may read it, as they may a `Subscription`.
    """

    def __init__(
        self, client: Client, number: int, topic: Topic, policy: Policy, queue_bytes: int
    ) -> None:
        self._client = client
        self._number = number
        self.topic = topic
        self.policy = policy
        self._queue_bytes = queue_bytes
        self._window = DELIVER_WINDOW
        self._frames: deque[Frame] = deque()
        self._messages: Iterator[Message] = iter(())
        self._reading: Frame | None = None
        self._done = 0  # bytes of the frame being read that are counted in `_read`
        self._read = 0
        self._held = 0
        self._told_at = 0.0
        self._ready: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._error: CubecastError | None = None
        self.dropped = 0
        """Messages this subscription's policy has dropped, at the node."""

    async def __aenter__(self) -> RemoteSubscription:
        if self._ready is not None:
            raise RuntimeError(ENTERED_TWICE)
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._client.open(self._number, self)
        request = Subscribe(self._number, self.topic, self.policy, self._queue_bytes)
        try:
            self._client.say(request)
            await self._ready
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def lost(self) -> bool:
        """Whether it ended although the application closed neither it nor the client."""
        return not self._closed and not self._client.closing and self._error is not None

    async def close(self) -> None:
        """Deliver nothing more."""
        if not self._closed:
            self._closed = True
            self._news.set()
            self._client.shut(self._number)
            self._client.slow.ended(self)
            if self._error is None and not self._client.closed:
                self._client.say(Unsubscribe(self._number))

    # -- from the node ---------------------------------------------------------------------------

    def on_subscribed(self, news: Subscribed) -> None:
        """The cut is fixed."""
        self._window = news.window
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def on_deliver(self, news: Deliver) -> None:
        """Queue what was delivered; it is in order, and within the window but for one batch."""
        if self._held >= self._window:
            raise WireError("more deliveries than it has credit for")
        self.on_dropped(news.dropped)
        barrier = tuple(
            (Stream(source, incarnation), seq) for source, incarnation, seq in news.dependencies
        )
        size = size_of(news.payloads)
        self._held += size
        self._frames.append(
            Frame(
                news.topic,
                Stream(news.source, news.incarnation),
                news.first,
                barrier,
                Route(0, news.first, 0),
                -1,
                Outgoing(news.payloads, news.time),
                size,
            )
        )
        self._news.set()

    def on_dropped(self, dropped: int) -> None:
        """The policy acted at the node."""
        if dropped > self.dropped:
            self.dropped = dropped
            self._client.slow.acted(self)

    def on_ended(self, news: Ended) -> None:
        """The node delivers nothing more, and says why."""
        if news.denied:
            self.fail(NotAllowed(self.topic, "subscribe", news.reason))
        elif news.overflow:
            self.fail(Overflow(self.topic, news.overflow, news.reason))
        elif self._ready is not None and not self._ready.done():
            self.fail(CubecastError(f"cannot subscribe to {self.topic!r}: {news.reason}"))
        else:
            self.fail(Closed(news.reason))

    def fail(self, error: CubecastError) -> None:
        """Nothing more will come: whoever reads is told after the last message."""
        if self._error is None:
            self._error = error
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        self._news.set()

    # -- to the application ----------------------------------------------------------------------

    def __aiter__(self) -> RemoteSubscription:
        return self

    async def __anext__(self) -> Message:
        while True:
            for message in self._messages:
                if self._held * 2 >= self._window:  # else the node does not wait for us
                    self._give_back(length_hint(self._messages) + 1)
                return message
            await self._next_frame()

    async def _next_frame(self) -> None:
        """Give the node credit for what was read; begin what came next, or wait for it."""
        if self._reading is not None:
            self._give_back(0)
            self._reading = None
        if self._frames:
            self._reading = self._frames.popleft()
            self._done = 0
            self._messages = iter(cut(self._reading))
            return
        if self._closed:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        if self._ready is None:
            raise RuntimeError(NOT_ENTERED)
        self._news.clear()
        await self._news.wait()

    def _give_back(self, left: int) -> None:
        """All but `left` messages of the frame are read: say so if it is much, or after a while.

        It is said at once as long as the node may wait for it, but not more often than it helps.
        """
        frame = self._reading
        assert frame is not None
        count = len(frame.body)
        done = frame.size * (count - left) // count
        self._read += done - self._done
        self._done = done
        if not self._read or self._closed or self._error is not None:
            return
        waits = self._held * 2 >= self._window
        if self._read * 4 >= self._window or (
            waits and self._loop.time() >= self._told_at + GIVE_BACK_S
        ):
            self._told_at = self._loop.time()
            self._client.say(Read(self._number, self._read))
            self._held -= self._read
            self._read = 0
