"""A light client's subscription: a window of messages in order; the rest waits at the node."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, Protocol

from cubecast.codecs import Codec
from cubecast.errors import Closed, CubecastError, NotAllowed, Overflow
from cubecast.net.client.read_positions import Floors, names_one_of
from cubecast.net.events import Event, Gap, spans_by_source
from cubecast.net.message import Message, T_co, cut
from cubecast.net.reading.slow_news import SlowNews
from cubecast.net.reading.subscription import ENTERED_TWICE, NOT_ENTERED, Policy
from cubecast.net.wire.clients import (
    DELIVER_WINDOW,
    Deliver,
    Ended,
    Over,
    Read,
    Subscribe,
    Subscribed,
    Unsubscribe,
    size_of,
    without_first,
)
from cubecast.net.wire.packets import Lasting, OutgoingFrame, WireError
from cubecast.opening import ClosesAtEnd
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Seq, Stream, Topic

if TYPE_CHECKING:
    from weakref import ref

    from cubecast.net.client.attachment import Attachment
    from cubecast.net.requests.requests import Requests


MAX_EARLY = 4096
"""What the next node has said and is kept; streams that it says are over beyond that stay open."""
GIVE_BACK_S = 0.002
"""A slow reader gives the node credit this often, if it has read a message meanwhile."""


class RemoteSubscriptionHost(Protocol):
    """What a subscription needs of its client."""

    closing: bool
    patience_s: float
    slow: SlowNews

    def open(self, number: int, subscription: RemoteSubscription[Any]) -> None: ...
    def shut(self, number: int) -> None: ...
    def switched(self) -> None: ...
    def missed(self, count: int, exact: bool) -> None: ...
    def abandoned(self, node: Attachment, reason: str) -> None: ...
    def tell(self, event: Event) -> None: ...


class RemoteSubscription(ClosesAtEnd, Generic[T_co]):
    """An async context manager and iterator over the messages of a topic, like `Subscription`.

    At most a window of messages is here; the node keeps the rest, and applies the policy.  It is
    entered once, and several tasks may read it, like a `Subscription`.
    """

    def __init__(
        self,
        client: RemoteSubscriptionHost,
        number: int,
        topic: Topic,
        policy: Policy,
        queue_bytes: int,
        codec: Codec[T_co] | None = None,
        replies: ref[Requests] | None = None,
    ) -> None:
        self._client = client
        self.replies = replies
        """Answers the messages that are requests."""
        self.codec = codec
        """What makes `Message.value` of a payload; None: the value is the payload."""
        self._source: Attachment | None = None  # the node whose messages are handed out
        self._next: Attachment | None = None  # the node where it is to go on
        self._began: Subscribed | None = None  # the confirmation of that node
        self._early: list[Deliver | Over] = []  # what that node has said since
        self._old = 0  # how many of the first frames came from former nodes
        self._reading_old = False
        self._lost: Attachment | None = None  # the last node, if it went without a word
        self._heard_at = 0.0  # when the last node said something
        self._dropped_before = 0  # at former nodes
        self.floors: Floors | None = Floors() if client.patience_s else None
        self.missed = 0
        """Messages that never came: they were published while the client had no node, or another
        one.  Messages that its node missed are in `dropped`."""
        self._number = number
        self.topic = topic
        self.policy = policy
        self._queue_bytes = queue_bytes
        self._window = DELIVER_WINDOW
        self._frames: deque[Frame] = deque()
        self._messages: Iterator[Message[T_co]] = iter(())
        self._reading: Frame | None = None
        self._done = 0  # bytes of the frame being read that are counted in `_read`
        self._read = 0
        self._held = 0
        self._told_at = 0.0
        self._ready: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._error: CubecastError | None = None
        self._told = False  # the application has ended the client itself
        self.dropped = 0
        """Messages that its policy has dropped at the node, or that never came to the node."""

    async def __aenter__(self) -> RemoteSubscription[T_co]:
        if self._ready is not None:
            raise RuntimeError(ENTERED_TWICE)
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            self._client.open(self._number, self)
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
            if self._error is None:
                for node in (self._source, self._next):
                    if node is not None and not node.over:
                        node.say(Unsubscribe(self._number))

    # -- from one node to the next ---------------------------------------------------------------

    def ask(self, node: Attachment) -> None:
        """Subscribe at a node; until it has confirmed, the former node goes on."""
        self._next, self._began, self._early = node, None, []
        located = self.floors is not None
        fresh = self._ready is not None and not self._ready.done()  # else it has them already
        about = self._number, self.topic, self.policy, self._queue_bytes
        node.say(Subscribe(*about, located, fresh, ends=located))

    def waits_for(self, node: Attachment) -> bool:
        """Whether it is to go on at a node, and has not switched yet."""
        return self._next is node

    def left_by(self, node: Attachment, in_order: bool = False) -> None:
        """Forget a node that is gone; `in_order`: it leaves the cluster, and does not die."""
        if node is self._next:
            self._next, self._began, self._early = None, None, []
        if node is self._source:
            self._source = None
            self._lost = None if in_order else node
            self._heard_at = node.heard_at
            self._switch_if_ready()

    def _switch_if_ready(self) -> None:
        """Go on at the next node when the former one is gone, or has nothing more to add."""
        if self._next is None or self._began is None:
            return
        away = self._source is None
        if self._source is not None:
            assert self.floors is not None
            if not self.floors.covers(self._began.positions):
                return
            self._source.say(Unsubscribe(self._number))
        node, began, early = self._next, self._began, self._early
        self._source, self._next, self._began, self._early = node, None, None, []
        self._old, self._reading_old = len(self._frames), self._reading is not None
        self._held = self._read = 0
        self._dropped_before = self.dropped
        self._window = began.window
        if self.floors is not None:
            exact = self._is_exact(self.floors, node, began, away)
            self._lost = None
            missed = self.floors.raise_to(began.positions)
            if away and began.whole:
                self.floors.close_all_but(began.positions)
            if self._ready is not None and self._ready.done():
                self._tell_missed(missed, exact)
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        for news in early:
            self._hear(news)
        self._client.switched()

    def _is_exact(self, floors: Floors, node: Attachment, began: Subscribed, away: bool) -> bool:
        """Whether all missed messages are known at a node; `away`: there was none before it.

        `read_positions` has the cases.
        """
        lost = self._lost
        elsewhere = lost is not None and lost.uid_of_node != node.uid_of_node
        if lost is not None and elsewhere and not names_one_of(began.positions, lost.slot):
            return False
        known = began.whole and floors.exact
        if away:
            recent = self._loop.time() - self._heard_at < began.memory_s
            known = known and recent and floors.are_named(began.positions)
        return known

    def _tell_missed(self, missed: dict[Topic, dict[Stream, tuple[Seq, Seq]]], exact: bool) -> None:
        count = 0
        for topic, spans in sorted(missed.items()):
            count += sum(last - first + 1 for first, last in spans.values())
            self._client.tell(Gap(topic, spans_by_source(spans)))
        self.missed += count
        self._client.missed(count, exact)

    # -- from the node ---------------------------------------------------------------------------

    def on_subscribed(self, node: Attachment, news: Subscribed) -> None:
        """Take the confirmation of a node: the cut is fixed."""
        if node is self._next:
            self._began = news
            self._switch_if_ready()

    def on_deliver(self, node: Attachment, news: Deliver) -> None:
        """Queue what was delivered; it is in order, and within the window but for one batch."""
        if node is self._source:
            self._take(news)
            if self._began is not None:
                self._switch_if_ready()
        elif node is self._next and self._began is not None:
            early = [one for one in self._early if isinstance(one, Deliver)]
            if sum(size_of(one.payloads) for one in early) >= self._began.window:
                raise WireError("more deliveries than it has credit for")
            self._early.append(news)

    def on_over(self, node: Attachment, news: Over) -> None:
        """Note streams that are over, after what the node delivered before it said so."""
        if node is self._source:
            self._hear(news)
        elif node is self._next and self._began is not None and len(self._early) < MAX_EARLY:
            self._early.append(news)

    def _hear(self, news: Deliver | Over) -> None:
        if isinstance(news, Deliver):
            self._take(news)
        elif self.floors is not None:
            self.floors.close(news.streams)

    def _take(self, news: Deliver) -> None:
        if self._held >= self._window:
            raise WireError("more deliveries than it has credit for")
        self.on_dropped(news.dropped)
        if self.floors is not None and not news.retained:  # what is retained is no step of a stream
            fresh = self._fresh(news, self.floors)
            if fresh is None:
                return
            news = fresh
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
                (Lasting if news.retained else OutgoingFrame)(
                    news.payloads, news.time, news.headed
                ),
                size,
            )
        )
        self._news.set()

    def _fresh(self, news: Deliver, floors: Floors) -> Deliver | None:
        """The messages that were not handed out before; the node gets credit for the others."""
        key = news.topic, Stream(news.source, news.incarnation)
        known = floors[key] - news.first
        if known <= 0:
            floors[key] = news.first + len(news.payloads)
            return news
        again, rest = news.payloads[:known], news.payloads[known:]
        assert self._source is not None
        self._source.say(Read(self._number, size_of(again)))
        floors[key] += len(rest)
        return without_first(news, known) if rest else None

    def on_dropped(self, dropped: int) -> None:
        """Count what the policy has dropped at the node."""
        dropped += self._dropped_before
        if dropped > self.dropped:
            self.dropped = dropped
            self._client.slow.acted(self)

    def on_ended(self, node: Attachment, news: Ended) -> None:
        """Handle the end of the subscription at a node, by the reason that it gives."""
        if node is not self._source and node is not self._next:
            return
        for other in (self._source, self._next):
            if not news.leaving and other is not None and other is not node and not other.over:
                other.say(Unsubscribe(self._number))
        if news.leaving and self.floors is not None:
            self.left_by(node, in_order=True)
            self._client.abandoned(node, news.reason)
        elif news.denied:
            self.fail(NotAllowed(self.topic, "subscribe", news.reason))
        elif news.overflow:
            self.fail(Overflow(self.topic, news.overflow, news.reason))
        elif self._ready is not None and not self._ready.done():
            self.fail(CubecastError(f"cannot subscribe to {self.topic!r}: {news.reason}"))
        else:
            self.fail(Closed(news.reason))

    def fail(self, error: CubecastError, told: bool = False) -> None:
        """End the subscription: reading raises `error` after the last message.

        `told`: the application ends the client itself, so the iteration just ends, as at a node.
        """
        if self._error is None:
            self._error = error
            self._told = told
        self._next, self._began, self._early = None, None, []
        self._client.switched()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        self._news.set()

    # -- to the application ----------------------------------------------------------------------

    def __aiter__(self) -> RemoteSubscription[T_co]:
        return self

    async def __anext__(self) -> Message[T_co]:
        while True:
            for message in self._messages:
                if self._held * 2 >= self._window:  # else the node does not wait for us
                    self._give_back(length_hint(self._messages) + 1)
                return message
            await self._next_frame()

    async def _next_frame(self) -> None:
        """Give the node credit for what was read; begin the next frame, or wait for it."""
        if self._reading is not None:
            self._give_back(0)
            self._reading = None
        if self._frames:
            self._reading = self._frames.popleft()
            self._reading_old = self._old > 0
            self._old = max(0, self._old - 1)
            self._done = 0
            self._messages = iter(cut(self._reading, self.codec, self.replies))
            return
        if self._closed or self._told:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        if self._ready is None:
            raise RuntimeError(NOT_ENTERED)
        self._news.clear()
        await self._news.wait()

    def _give_back(self, left: int) -> None:
        """Note that all but `left` messages of the frame are read; give the node credit for them.

        Credit is sent when a quarter of the window was read; if the node may wait for it, also
        after `GIVE_BACK_S`.
        """
        frame = self._reading
        assert frame is not None
        if self._reading_old:  # its node is another one, or gone
            return
        count = len(frame.body)
        done = frame.size * (count - left) // count
        self._read += done - self._done
        self._done = done
        source = self._source
        if not self._read or self._closed or self._error is not None or source is None:
            return
        waits = self._held * 2 >= self._window
        if self._read * 4 >= self._window or (
            waits and self._loop.time() >= self._told_at + GIVE_BACK_S
        ):
            self._told_at = self._loop.time()
            source.say(Read(self._number, self._read))
            self._held -= self._read
            self._read = 0
