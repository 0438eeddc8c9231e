"""A subscription of an application: messages in order, from a bounded queue."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from cubecast.codecs import Codec
from cubecast.errors import Closed, CubecastError, Overflow
from cubecast.net.gateway.budget import Share
from cubecast.net.message import Message, T_co, cut
from cubecast.net.node.value_keeper import is_retained
from cubecast.net.reading.debts import Debts, Key
from cubecast.net.wire.packets import content_size
from cubecast.opening import ClosesAtEnd
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import NodeId, Seq, Stream, Topic
from cubecast.protocol.subscriptions.patterns import Pattern

if TYPE_CHECKING:
    from weakref import ref

    from cubecast.net.requests.requests import Requests

Policy = Literal["block", "drop-oldest", "drop-newest", "disconnect"]
"""What happens to a subscription that has more unread than `queue_bytes`; see `Node.subscribe`."""
Order = Literal["causal", "none"]

NOT_ENTERED = "a subscription is entered before it is read: async with ... as messages"
ENTERED_TWICE = "a subscription is entered once; to read again, subscribe again"
LEFT_BEHIND = "this node did not keep up, and the publishers went on without it"
SETTLE_S = 0.001
"""The time after which credit is given back inside a frame; it is told no more often."""

SETTLE_SHARE = 8
"""Credit is given back sooner once one part in `SETTLE_SHARE` of the queue was read."""


class SubscriptionHost(Protocol):
    """What a subscription needs of its node."""

    @property
    def closed(self) -> bool: ...
    @property
    def slot(self) -> NodeId: ...
    async def attach(self, subscription: Subscription[Any]) -> None: ...
    async def detach(self, subscription: Subscription[Any]) -> None: ...
    def slow_subscriber(self, subscription: Subscription[Any]) -> None: ...
    @property
    def consumed(self) -> Callable[[Subscription[Any], Topic, Stream, Seq], None]: ...
    @property
    def waits_to_publish(self) -> Callable[[], bool]: ...
    @property
    def holds_readers(self) -> Callable[[], bool]: ...
    @property
    def holds_reader_of(self) -> Callable[[Subscription[Any], Topic], bool]: ...


class BlockingReader(Protocol):
    """One or more subscriptions that a task reads; while it waits, their publishers may stall."""

    def behind(self, topic: Topic) -> int: ...
    def reads(self, subscription: Subscription[Any]) -> bool: ...


READS: ContextVar[BlockingReader | None] = ContextVar("READS", default=None)
"""The subscription with policy `block` that this task has read last, and so may stall."""


def _nothing() -> None:
    pass


def _never() -> bool:
    return False


class Subscription(ClosesAtEnd, Generic[T_co]):
    """An async context manager and iterator over the messages of a topic, or of many.

    Entering it, which is done once, returns when everything published from then on will be
    delivered.  With a pattern, `topic` is the pattern and `Message.topic` says where a message was
    published; messages of one topic are in causal order, those of two topics in none.

    Several tasks may read one subscription: as with an `asyncio.Queue`, each message goes to one
    of them, in the order in which they ask, and all of them end when it is closed.
    """

    def __init__(
        self,
        host: SubscriptionHost,
        topic: Topic,
        policy: Policy,
        queue_bytes: int,
        pattern: Pattern | None = None,
        order: Order = "causal",
        codec: Codec[T_co] | None = None,
        replies: ref[Requests] | None = None,
    ) -> None:
        self._host = host
        self.replies = replies
        """Answers the messages that are requests."""
        self.codec = codec
        """What makes `Message.value` of a payload; None: the value is the payload."""
        self.topic = topic
        self.pattern = pattern
        self.policy = policy
        self.order = order
        self._ahead: dict[Key, set[Seq]] = {}  # frames that were queued before their turn
        self._limit = queue_bytes
        self._frames: deque[Frame] = deque()
        self._queued = 0
        self._cost = 0  # of what is queued, in memory
        self._counted = 0  # of that, what `share` counts
        self.share: Share | None = None
        """What all subscriptions of its light client may hold; None: it is the application's."""
        self._debts = Debts(queue_bytes)
        self._open_debts = False  # something is owed, or was put off
        self.owes = False
        """Whether a publisher has no credit yet for a message that is queued here."""
        self._step: asyncio.TimerHandle | None = None
        self._settled_at = 0.0
        self._settled_unread = 0
        self._messages: Iterator[Message[T_co]] = iter(())
        self._reading: Frame | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._begun = False
        self._failure: CubecastError | None = None
        self.wants_retained = True
        """Whether it is handed the retained values of its topics."""
        self.entered = False
        """Whether the application was told that all messages are delivered from now on."""
        self.dropped = 0
        """Messages this subscription did not get: dropped by its policy, or `missed`."""
        self.missed = 0
        """Messages that never came to this node: it was away, or left behind."""
        self.dropped_before = 0
        """The part of `dropped` that the node has counted."""
        self.on_slow: Callable[[], None] = _nothing
        """Called when the policy acts."""
        self.yields: Callable[[], bool] = host.waits_to_publish
        """Whether unread messages may count as read because their reader waits to publish."""

    async def __aenter__(self) -> Subscription[T_co]:
        if self._begun:
            raise RuntimeError(ENTERED_TWICE)
        self._begun = True
        try:
            await self._host.attach(self)
        except BaseException:
            await self.close()
            raise
        self.entered = True
        return self

    @property
    def closed(self) -> bool:
        """Whether it was closed; it cannot be entered again."""
        return self._closed

    @property
    def unread(self) -> int:
        """Bytes that wait to be read, the message that is being read included."""
        frame = self._reading
        if frame is None:
            return self._queued
        size, count = content_size(frame), len(frame.body)
        left = min(count, length_hint(self._messages) + 1)
        return self._queued - size + size * left // count

    def first_unread(self) -> dict[Key, Seq]:
        """The first message of each stream that is queued."""
        first: dict[Key, Seq] = {}
        for frame in self._frames:
            if not is_retained(frame):
                first.setdefault((frame.topic, frame.stream), frame.first)
        return first

    def unread_streams(self) -> set[Key]:
        """The streams with messages that were not handed out."""
        frames = [*self._frames]
        if self._reading is not None and length_hint(self._messages):
            frames.append(self._reading)
        return {(frame.topic, frame.stream) for frame in frames}

    @property
    def load(self) -> tuple[int, int, int]:
        """Messages and bytes that wait to be read, and the limit of the bytes."""
        messages = sum(len(frame.body) for frame in self._frames)
        return messages + length_hint(self._messages), self.unread, self._limit

    def behind(self, topic: Topic) -> int:
        """Unread bytes beyond `queue_bytes`, if this subscription reads the topic; else 0."""
        takes = self.topic == topic if self.pattern is None else self.pattern(topic)
        return max(0, self.unread - self._limit) if takes and not self._closed else 0

    def reads(self, subscription: Subscription[Any]) -> bool:
        """Whether `subscription` is this one."""
        return self is subscription

    async def close(self) -> None:
        """Deliver nothing more."""
        self._closed = True
        self._debts.clear()
        self.owes = self._open_debts = False
        if self._step is not None:
            self._step.cancel()
            self._step = None
        self.wake()
        await self._host.detach(self)

    # -- from the node ---------------------------------------------------------------------------

    def deliver(self, frame: Frame) -> bool:
        """Queue a frame; True if all of it counts as consumed already.

        If not, `settle` tells how much of it does.
        """
        if self._ahead and self._had(frame):
            return True
        return self._queue(frame)

    def begin_with(self, frame: Frame) -> None:
        """Queue a retained value: nothing is owed for it, and no policy drops it."""
        if self.wants_retained and not self._closed and self._failure is None:
            self.wake()
            self._put(frame, content_size(frame))

    def _queue(self, frame: Frame) -> bool:
        if self._closed or self._failure is not None:
            return True
        if self._waiters:
            self.wake()
        size = content_size(frame)
        if self.policy != "block":
            if self._is_full(frame):
                self._overflow(frame)
            else:
                self._put(frame, size)
            return True
        share = self.share
        over = self._queued + size > self._limit or (share is not None and frame.size > share.left)
        owing = over or self.owes
        if owing:
            self._debts.add(frame, size)
            self.owes = self._open_debts = True
        self._put(frame, size)
        return not owing

    def _is_full(self, frame: Frame) -> bool:
        """Whether a frame is too much for the queue, or for the share of its client."""
        share = self.share
        if share is not None and share.left < (frame.size if self._queued else 1):
            return True
        return self._queued > 0 and self._queued + content_size(frame) > self._limit

    def _put(self, frame: Frame, size: int) -> None:
        self._frames.append(frame)
        self._queued += size
        if self.share is not None:
            self._cost += frame.size
            self._count()

    def _count(self) -> None:
        """Count in `share` what is held here, without the part that is owed.

        That part is in the windows of its publishers.
        """
        assert self.share is not None
        held = self._cost
        if self._debts.owed:
            held = held * max(0, self._queued - self._debts.owed) // max(1, self._queued)
        self.share.add(held - self._counted)
        self._counted = held

    def take_ahead(self, frame: Frame) -> None:
        """Queue a frame that waits for its turn: this subscription has no order.

        Its policy drops, so nothing is owed for the frame.
        """
        self._queue(frame)
        self._ahead.setdefault((frame.topic, frame.stream), set()).add(frame.first)

    def _had(self, frame: Frame) -> bool:
        """Whether a frame whose turn has come was queued before its turn."""
        ahead = self._ahead.get((frame.topic, frame.stream), set())
        had = frame.first in ahead
        self.forget_ahead((frame.topic, frame.stream), frame.last)
        return had

    def forget_ahead(self, key: Key, last: Seq) -> None:
        """Forget frames of a stream up to `last` that were queued before their turn."""
        left = {first for first in self._ahead.pop(key, ()) if first > last}
        if left:
            self._ahead[key] = left

    def forget_all_ahead(self) -> None:
        """Forget all frames queued before their turn: the node was excluded, it will not come."""
        self._ahead.clear()

    def _overflow(self, frame: Frame) -> None:
        if self.policy == "drop-newest":
            self.dropped += len(frame.body)
        elif self.policy == "drop-oldest":
            while self._frames and self._is_full(frame):
                oldest = self._frames.popleft()
                self._gone(oldest, content_size(oldest))
                self.dropped += len(oldest.body)
            if self.share is None or self.share.left > 0:
                self._put(frame, content_size(frame))
            else:  # others of its client hold everything
                self.dropped += len(frame.body)
        else:
            self.dropped += len(frame.body)
            full = self._queued + content_size(frame) > self._limit
            self.fail(Overflow(self.topic, self._limit, "" if full else str(self.share)))
        self._host.slow_subscriber(self)
        self.on_slow()

    def pass_over(self, count: int) -> None:
        """Count messages that never came to this node, because it was away or left behind."""
        self.missed += count
        self.dropped += count
        if self.policy == "disconnect":
            self.fail(Overflow(self.topic, self._limit, LEFT_BEHIND))
        self._host.slow_subscriber(self)
        self.on_slow()

    def wake(self) -> None:
        """Wake all waiting readers: there may be something to read, or an end."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: CubecastError) -> None:
        """End the subscription: reading raises `error` once the queue is read."""
        if self._failure is None:
            self._failure = error
        self.wake()

    def settle(self) -> None:
        """Give publishers credit for what now fits; for more if this node waits to publish."""
        if not self._open_debts:
            return
        debts = self._debts
        unread = self._settled_unread = self.unread
        self._settled_at = asyncio.get_running_loop().time()
        self._tell(debts.slide(unread, self._spare()))
        if debts.owed and self.yields():
            self._tell(debts.put_off(unread, self._comes_first))
            if debts.owed and self._step is None:
                self._plan_step()
        self.owes, self._open_debts = debts.owed > 0, debts.open

        if self.share is not None:
            self._count()

    def _spare(self) -> int:
        """How many more queued bytes may count as consumed within the client's share."""
        if self.share is None:
            return sys.maxsize
        return max(0, self.share.left) * self._queued // max(1, self._cost)

    def _comes_first(self, key: Key) -> bool:
        """Whether this is our own stream in a topic that a reader of this waits to publish to.

        No other task can make room for it.
        """
        topic, stream = key
        return stream.source == self._host.slot and self._host.holds_reader_of(self, topic)

    def _plan_step(self) -> None:
        """Plan to check again whether anything has moved."""
        moved = self.unread, self._debts.owed
        loop = asyncio.get_running_loop()
        self._step = loop.call_later(self._debts.delay_s, self._take_step, moved)

    def _take_step(self, moved: tuple[int, int]) -> None:
        """Let each publisher send one message more, if nothing has moved."""
        self._step = None
        debts = self._debts
        if debts.owed and self.yields() and not self._host.closed:
            if (self.unread, debts.owed) == moved and self._host.holds_readers():
                self._tell(debts.step(self.unread, self._comes_first))
            if debts.owed:
                self._plan_step()
            self.owes = debts.owed > 0

    def _tell(self, news: dict[Key, Seq]) -> None:
        for (topic, stream), seq in news.items():
            self._host.consumed(self, topic, stream, seq)

    # -- to the application ----------------------------------------------------------------------

    def __aiter__(self) -> Subscription[T_co]:
        return self

    async def __anext__(self) -> Message[T_co]:
        while True:
            for message in self._messages:
                if self.owes:  # looked at for each message: a plain attribute
                    self._settle_inside()
                return message
            await self._next_frame()

    async def batch(self) -> list[Message[T_co]]:
        """The rest of the frame being read, or else the next frame; empty at the end."""
        return await self.take(sys.maxsize)

    async def take(self, limit: int) -> list[Message[T_co]]:
        """Messages of one frame, as many as `limit` bytes hold, but at least one; [] at the end."""
        while True:
            frame = self._reading
            if frame is not None and (left := length_hint(self._messages)):
                count = limit * len(frame.body) // max(1, content_size(frame))
                messages = list(islice(self._messages, min(left, max(1, count))))
                if self.owes:
                    self._settle_inside()
                return messages
            try:
                await self._next_frame()
            except StopAsyncIteration:
                return []

    async def _next_frame(self) -> None:
        """Finish with the frame that was read and begin the next one.

        If there is none, wait until one may have come; another reader may take it first.
        """
        if self._reading is not None:
            frame, self._reading = self._reading, None
            self._finish(frame)
        if self._frames:
            self._reading = self._frames.popleft()
            self._messages = iter(cut(self._reading, self.codec, self.replies))
            if self.policy == "block" and READS.get() is not self:
                READS.set(self)
            return
        if self._closed:
            raise StopAsyncIteration
        if not self._begun:
            raise RuntimeError(NOT_ENTERED)
        if self._failure is not None:
            raise self._failure
        if self._host.closed:
            raise Closed("the node is closed")
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                with suppress(ValueError):
                    self._waiters.remove(waiter)

    def _finish(self, frame: Frame) -> None:
        """Account for a frame that was read to its end."""
        size = content_size(frame)
        self._gone(frame, size)
        if self._open_debts:
            if not is_retained(frame):
                self._tell(self._debts.read(frame, size))
            self.settle()

    def _gone(self, frame: Frame, size: int) -> None:
        """Stop counting a frame that is no longer held here."""
        self._queued -= size
        if self.share is not None:
            self._cost -= frame.size
            self._count()

    def abandon(self) -> None:
        """Free the queue now, although others may still refer to this: it will not be read."""
        self._frames.clear()
        self._messages = iter(())
        self._reading = None
        self._queued = self._cost = 0
        self._debts.clear()
        if self.share is not None:
            self._count()
        self.on_slow = _nothing
        self.yields = _never

    def _settle_inside(self) -> None:
        """Give credit inside a frame if enough of the queue was read, or `SETTLE_S` has passed."""
        read = self._settled_unread - self.unread
        if (
            read >= self._limit // SETTLE_SHARE
            or asyncio.get_running_loop().time() >= self._settled_at + SETTLE_S
        ):
            self.settle()
