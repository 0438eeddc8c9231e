"""Order across topics for applications: the interface of an event service, with its order added.

    async with Ordered(service, managers=["orders"]) as ordered:
        await ordered.subscribe("bids", "trades")
        await ordered.publish("bids", b"17")
        async for message in ordered:
            print(message.topic, message.payload, message.in_order)

A thin world around `cubecast.ordering.production`: it encodes, keeps the order of effects, and
calls the clock.  One task hands all effects to the service, in order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from zlib import crc32

from cubecast.errors import Closed
from cubecast.ordering.codec import (
    OrderingError,
    decode_event,
    decode_message,
    encode_event,
    encode_message,
)
from cubecast.ordering.effects import (
    Arrived,
    Cause,
    Effect,
    Notify,
    Publish,
    Received,
    Send,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Subscribe,
    Unsubscribe,
    Wake,
    WakeAt,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.production.subscriber import Waiting
from cubecast.ordering.service import EventService
from cubecast.ordering.timestamps import Stamp, Topic

log = logging.getLogger(__name__)

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class OrderedMessage:
    """An event as the application sees it."""

    topic: Topic
    payload: bytes
    in_order: bool
    """False: two subscribers may see it and another event in opposite orders."""
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class OrderedConfig:
    """Times in seconds."""

    buffer: int = 10_000
    """Events that wait for others before them; beyond that the first is given up waiting for."""
    wait_s: float = 1.0
    """How long an event waits: as long as the service may take to bring the one before it."""
    retry_s: float = 0.5
    """A request that a manager has not answered is repeated after this."""
    unpublished: int = 10_000
    """Events that wait for their stamps; `publish` waits above that."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")


class Ordered:
    """One member of an event service, with total notification order across topics."""

    def __init__(
        self,
        service: EventService,
        *,
        managers: Sequence[Member],
        first: Sequence[Topic] = (),
        config: OrderedConfig | None = None,
    ) -> None:
        """`managers` are the members that number events, `first` the topics with the most events.

        Both have to be the same at every member.
        """
        if not managers:
            raise ValueError("at least one member has to manage topics")
        self._service = service
        self._managers = list(managers)
        self._config = config if config is not None else OrderedConfig()
        self._module = OrderingModule(
            service.name,
            first,
            self._manager_of,
            life=time.time_ns(),
            waiting=Waiting(self._config.buffer, int(self._config.wait_s * MICROSECONDS)),
            retry_after=int(self._config.retry_s * MICROSECONDS),
        )
        self._effects: asyncio.Queue[Effect] = asyncio.Queue()
        self._messages: deque[OrderedMessage] = deque()
        self._arrived = asyncio.Event()
        self._joined = asyncio.Event()
        self._room = asyncio.Event()
        self._unpublished = 0
        self._wake_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        self._failure: Exception | None = None

    def _manager_of(self, topic: Topic) -> Member:
        return self._managers[crc32(topic.encode()) % len(self._managers)]

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Ordered:
        await self._service.open(self._on_event, self._on_message)
        self._writer = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop; what has no stamp yet is not published."""
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
        await self._service.close()

    def _stop(self) -> None:
        self._closed = True
        for event in (self._arrived, self._joined, self._room):
            event.set()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._why_closed()) from self._failure

    def _why_closed(self) -> str:
        if self._failure is None:
            return "closed by this member"
        return f"the event service failed: {self._failure!r}"

    # -- what applications do --------------------------------------------------------------------

    async def publish(self, topic: Topic, payload: bytes) -> None:
        """Publish; returns when the event is on its way, in order with those before it."""
        while self._unpublished >= self._config.unpublished and not self._closed:
            self._room.clear()
            await self._room.wait()
        self._check_open()
        self._unpublished += 1
        self._step(Publish(topic, payload))

    async def subscribe(self, *topics: Topic) -> None:
        """Subscribe; returns when all that is published from now on will be notified."""
        self._check_open()
        for topic in topics:
            self._step(Subscribe(topic))
        while not self._module.subscriber.topics.issuperset(topics):
            self._check_open()
            self._joined.clear()
            await self._joined.wait()

    async def unsubscribe(self, topic: Topic) -> None:
        """Be notified of nothing more of a topic."""
        self._step(Unsubscribe(topic))

    def __aiter__(self) -> AsyncIterator[OrderedMessage]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[OrderedMessage]:
        while True:
            while self._messages:
                yield self._messages.popleft()
            if self._failure is not None:
                self._check_open()
            if self._closed:
                return
            self._arrived.clear()
            await self._arrived.wait()

    # -- what the service says -------------------------------------------------------------------

    def _on_event(self, topic: Topic, data: bytes) -> None:
        try:
            envelope = decode_event(data)
        except OrderingError as error:
            log.warning("topic %r: %s", topic, error)
            return
        self._step(Arrived(topic, envelope.payload, envelope.stamp))

    def _on_message(self, data: bytes) -> None:
        try:
            message = decode_message(data)
        except OrderingError as error:
            log.warning("inbox of %s: %s", self._service.name, error)
            return
        self._step(Received(message))

    # -- effects ---------------------------------------------------------------------------------

    def _now(self) -> int:
        return time.monotonic_ns() // 1000

    def _step(self, cause: Cause) -> None:
        """Let the module act.

        Its effects are brought about in their order, also what it says to itself: a topic is asked
        for at the service before its manager, which may live here, hears of the subscription.
        """
        for effect in self._module.step(cause, self._now()):
            match effect:
                case Notify():
                    self._notify(effect)
                case WakeAt():
                    self._wake(effect.time)
                case _:
                    self._effects.put_nowait(effect)
        self._joined.set()

    def _notify(self, effect: Notify) -> None:
        assert isinstance(effect.timestamp, Stamp)
        assert isinstance(effect.payload, bytes)
        message = OrderedMessage(effect.topic, effect.payload, effect.in_order, effect.timestamp)
        self._messages.append(message)
        self._arrived.set()

    def _wake(self, at: int) -> None:
        if self._wake_at is not None and self._wake_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_at = at
        delay = max(0, at - self._now()) / MICROSECONDS
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_time)

    def _on_time(self) -> None:
        self._wake_at = self._timer = None
        self._step(Wake())
        again = self._module.next_wake()
        if again is not None:
            self._wake(again)

    async def _write(self) -> None:
        """Hand effects to the service; if it fails, whoever uses this member is told why."""
        try:
            while True:
                await self._hand_over(await self._effects.get())
        except Exception as error:
            log.exception("member %s: the event service failed", self._service.name)
            self._failure = error
            self._stop()

    async def _hand_over(self, effect: Effect) -> None:
        service = self._service
        match effect:
            case Send() if effect.to == service.name:
                self._step(Received(effect.message))
            case Send():
                await service.send(effect.to, encode_message(effect.message))
            case ServicePublish():
                assert isinstance(effect.timestamp, Stamp)
                assert isinstance(effect.payload, bytes)
                data = encode_event(effect.timestamp, effect.payload)
                await service.publish(effect.topic, data)
                self._unpublished -= 1
                self._room.set()
            case ServiceSubscribe():
                await service.subscribe(effect.topic)
            case ServiceUnsubscribe():
                await service.unsubscribe(effect.topic)
