"""What the application reads: messages in order, from a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Literal

import msgspec

from cubecast.errors import Closed, CubecastError, Overflow
from cubecast.net.context import ClosesAtEnd
from cubecast.net.patterns import Pattern
from cubecast.net.wire import Outgoing, Payloads, content_size
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import NodeId, Seq, Stream, Topic

if TYPE_CHECKING:
    from cubecast.net.node import Node

Policy = Literal["block", "drop-oldest", "drop-newest", "disconnect"]

NOT_ENTERED = "a subscription is entered before it is read: async with ... as messages"
LEFT_BEHIND = "this node did not keep up, and the publishers went on without it"
SHOWN = 60
"""Bytes of a payload that are printed."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message, as delivered."""

    topic: Topic
    payload: bytes
    source: NodeId
    seq: Seq
    frame: Frame

    def __repr__(self) -> str:
        shown = repr(self.payload[:SHOWN])
        if len(self.payload) > SHOWN:
            shown += f"... ({len(self.payload)} bytes)"
        about = f"topic={self.topic!r}, payload={shown}, source={self.source}, seq={self.seq}"
        return f"Message({about})"

    @property
    def published_at(self) -> float:
        """When its publisher sent it, in seconds since the epoch, by that node's clock."""
        body = self.frame.body
        assert isinstance(body, Payloads | Outgoing)
        return body.time / 1e6

    @property
    def dependencies(self) -> tuple[tuple[NodeId, Seq], ...]:
        """The direct causes of its frame: (source, seq) of the last message of each."""
        return tuple((stream.source, seq) for stream, seq in self.frame.barrier)


def cut(frame: Frame) -> list[Message]:
    """The messages of a frame, cut from its packet (or from what we published ourselves)."""
    body = frame.body
    if isinstance(body, Outgoing):
        payloads = body.payloads
    else:
        assert isinstance(body, Payloads)
        payloads = body.cut()
    topic, source = repeat(frame.topic), repeat(frame.stream.source)
    numbers = range(frame.first, frame.last + 1)
    return list(map(Message, topic, payloads, source, numbers, repeat(frame)))


class Subscription(ClosesAtEnd):
    """An async context manager and iterator over the messages of a topic, or of many.

    Entering it returns when everything published from then on will be delivered.  With a pattern,
    `topic` is the pattern and `Message.topic` says where a message was published; messages of one
    topic are in causal order, those of two topics in none.
    """

    def __init__(
        self,
        node: Node,
        topic: Topic,
        policy: Policy,
        queue_bytes: int,
        pattern: Pattern | None = None,
    ) -> None:
        self._node = node
        self.topic = topic
        self.pattern = pattern
        self.policy = policy
        self._limit = queue_bytes
        self._frames: deque[Frame] = deque()
        self._queued = 0
        self._owing: dict[tuple[Topic, Stream], Seq] = {}
        self._messages: Iterator[Message] = iter(())
        self._reading: Frame | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._begun = False
        self._failure: CubecastError | None = None
        self.entered = False
        """Whether the application was told that everything comes from now on."""
        self.dropped = 0
        """Messages this subscription's policy has dropped."""
        self.on_slow: Callable[[], None] = lambda: None
        """Called when the policy had to act."""
        self.yields: Callable[[], bool] = lambda: True
        """Whether unread messages may count as read because this node waits to publish."""

    async def __aenter__(self) -> Subscription:
        self._begun = True
        try:
            await self._node.attach(self)
        except BaseException:
            await self.close()
            raise
        self.entered = True
        return self

    @property
    def closed(self) -> bool:
        """Whether it was closed, which is for good."""
        return self._closed

    @property
    def unread(self) -> int:
        """Bytes that wait to be read, the frame that is being read included."""
        return self._queued

    async def close(self) -> None:
        """Deliver nothing more."""
        self._closed = True
        self._owing.clear()
        self.wake()
        await self._node.detach(self)

    # -- from the node ---------------------------------------------------------------------------

    def deliver(self, frame: Frame) -> bool:
        """Queue a frame; True if it may count as consumed already."""
        if self._closed or self._failure is not None:
            return True
        self.wake()
        size = content_size(frame)
        over = self._queued + size > self._limit and self._queued > 0
        if over and self.policy != "block":
            self._overflow(frame)
            return True
        self._frames.append(frame)
        self._queued += size
        if over or self._owing:
            self._owing[frame.topic, frame.stream] = frame.last
            return False
        return True

    def _overflow(self, frame: Frame) -> None:
        if self.policy == "drop-newest":
            self.dropped += len(frame.body)
        elif self.policy == "drop-oldest":
            while self._frames and self._queued + content_size(frame) > self._limit:
                oldest = self._frames.popleft()
                self._queued -= content_size(oldest)
                self.dropped += len(oldest.body)
            self._frames.append(frame)
            self._queued += content_size(frame)
        else:
            self.dropped += len(frame.body)
            self.fail(Overflow(self.topic, self._limit))
        self._node.slow_subscriber(self)
        self.on_slow()

    def missed(self, count: int) -> None:
        """The node was left behind: so many messages never came."""
        self.dropped += count
        if self.policy == "disconnect":
            self.fail(Overflow(self.topic, self._limit, LEFT_BEHIND))
        self._node.slow_subscriber(self)
        self.on_slow()

    def wake(self) -> None:
        """Look again: there may be something to read, or an end."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: CubecastError) -> None:
        """Nothing complete will come any more: raise, once what is here has been read."""
        if self._failure is None:
            self._failure = error
        self.wake()

    def release(self) -> None:
        """Let publishers go on although nothing was read: we ourselves wait to publish."""
        if self._owing and self.yields():
            self._settle()

    def _settle(self) -> None:
        owing, self._owing = self._owing, {}
        for (topic, stream), seq in owing.items():
            self._node.consumed(self, topic, stream, seq)

    # -- to the application ----------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        for message in self._messages:
            return message
        await self._next_frame()
        return next(self._messages)

    async def batch(self) -> list[Message]:
        """What is left of the frame being read, or else the next frame; empty at the end."""
        messages = list(self._messages)
        if not messages:
            try:
                await self._next_frame()
            except StopAsyncIteration:
                return []
            messages = list(self._messages)
        return messages

    async def _next_frame(self) -> None:
        """Finish with the frame that was read and begin the next one, waiting for it."""
        if self._reading is not None:
            self._finish(self._reading)
            self._reading = None
        while not self._frames:
            if self._closed:
                raise StopAsyncIteration
            if not self._begun:
                raise RuntimeError(NOT_ENTERED)
            if self._failure is not None:
                raise self._failure
            if self._node.closed:
                raise Closed("the node is closed")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._reading = self._frames.popleft()
        self._messages = iter(cut(self._reading))

    def _finish(self, frame: Frame) -> None:
        self._queued -= content_size(frame)
        if self._owing and self._queued <= self._limit // 2:
            self._settle()
