"""A light client's subscription: messages in order, the rest waiting at the node."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cubecast.errors import Closed, CubecastError, Overflow
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
from cubecast.net.events import SlowSubscriber
from cubecast.net.subscription import NOT_ENTERED, Message, Policy, cut
from cubecast.net.wire import Outgoing, WireError
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream, Topic

if TYPE_CHECKING:
    from cubecast.net.client import Client


class RemoteSubscription(ClosesAtEnd):
    """An async context manager and iterator over the messages of a topic, like `Subscription`.

    At most a window of messages is here; the node keeps the rest, and applies the policy.
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
        self._read = 0
        self._held = 0
        self._ready: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._error: CubecastError | None = None
        self.dropped = 0
        """Messages this subscription's policy has dropped, at the node."""

    async def __aenter__(self) -> RemoteSubscription:
        self._ready = asyncio.get_running_loop().create_future()
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
            self._client.tell(SlowSubscriber(self.topic, self.policy, dropped))

    def on_ended(self, news: Ended) -> None:
        """The node delivers nothing more, and says why."""
        if news.overflow:
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
        for message in self._messages:
            return message
        await self._next_frame()
        return next(self._messages)

    async def _next_frame(self) -> None:
        """Give the node credit for what was read, and wait for more."""
        if self._reading is not None:
            self._give_back(self._reading.size)
            self._reading = None
        while not self._frames:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            if self._ready is None:
                raise RuntimeError(NOT_ENTERED)
            self._news.clear()
            await self._news.wait()
        self._reading = self._frames.popleft()
        self._messages = iter(cut(self._reading))

    def _give_back(self, size: int) -> None:
        self._read += size
        if self._read * 4 >= self._window and not self._closed and self._error is None:
            self._client.say(Read(self._number, self._read))
            self._held -= self._read
            self._read = 0
