"""Order across topics for applications: the interface of an event service, with its order added.

    async with cubecast.ordered(connection, name="desk", managers=["desk"]) as ordered:
        await ordered.subscribe("bids", "trades")
        await ordered.publish("bids", "17")
        async for message in ordered:
            print(message.topic, message.payload, message.in_order)

A thin world around `cubecast.ordering.production`: it encodes, keeps the order of effects, and
calls the clock.  The module's messages to each member go in one lane, and the events of each topic
in one of their own: a topic whose subscribers are slow holds up no manager, and no other topic, and
a member that is stopped holds up no other member.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import cast

from cubecast.errors import Closed, NameTaken, NotSent, NotSubscribed
from cubecast.net.topics import encode_payload
from cubecast.ordering.batches import MAX_STAMP_BYTES, batches, decode_arrived, encode_batch
from cubecast.ordering.codec import (
    OrderingError,
    check_message,
    decode_message,
    encode_message,
)
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.effects import (
    Cause,
    Effect,
    LeaveCall,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Start,
    SubscribeCall,
    UnsubscribeCall,
    Wake,
    WakeAt,
)
from cubecast.ordering.lanes import Lanes
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Reranking, Timing, WaitingBounds
from cubecast.ordering.production.messages import Source
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.production.notices import Beat
from cubecast.ordering.service import EventService
from cubecast.ordering.services.names import check_name
from cubecast.ordering.timestamps import Stamp, Topic
from cubecast.ordering.unread import OrderedMessage, Policy, Unread

log = logging.getLogger(__name__)

MICROSECONDS = 1_000_000
CONTROL = None
"""The lane of subscriptions: messages to other members that follow one go out after it."""
MAX_CHECKED = 4096
"""Topic names remembered as valid; beyond that they are checked again."""
YEAR_MS = 365 * 24 * 3600 * 1000
MAX_IN_A_ROW = 64
"""Events that one task publishes before others run."""

LARGE = "a message to %s has %d bytes, the service takes %d: it is dropped; some member has too \
many topics"


def make_module(
    service: EventService,
    managers: Sequence[Member],
    first: Sequence[Topic],
    config: OrderedConfig,
) -> OrderingModule:
    """The module of one member, in a new life of it."""
    wait_s = config.waits_s(service.promises.loses_nothing)
    return OrderingModule(
        service.name,
        managers,
        life=new_life(),
        first=first,
        waiting=WaitingBounds(
            config.buffer,
            in_microseconds(wait_s),
            in_microseconds(config.end_s),
            bytes=config.buffer_bytes,
        ),
        timing=timing(config),
        reranking=Reranking(),
        spread=config.spread,
    )


def new_life() -> int:
    """Milliseconds since 1970, by which a later life is above an earlier one.

    A clock that shows an earlier time was never set, and may show it again after the next start:
    then a life is a random number, as two lives must differ and none is below 0.
    """
    now_ms = time.time_ns() // 1_000_000
    return now_ms if now_ms > 0 else secrets.randbelow(YEAR_MS)


def timing(config: OrderedConfig) -> Timing:
    return Timing(
        retry_after=in_microseconds(config.retry_s),
        beat_every=in_microseconds(config.beat_s),
        suspect_after=in_microseconds(config.suspect_s),
        drain_for=in_microseconds(config.drain_s),
        lease_for=in_microseconds(config.lease_s),
    )


def in_microseconds(seconds: float) -> int:
    return int(seconds * MICROSECONDS)


def awaits(module: OrderingModule, topic: Topic) -> bool:
    """Whether an event that has arrived waits for one of this topic that has not."""
    front = module.subscriber.front
    room = () if front is None else front.room
    return any(one.awaited[0] == topic and one.awaited not in room for one in room)


class Ordered:
    """One member of an event service, with total notification order across topics.

    Several tasks may read it: each message goes to one of them.
    """

    def __init__(
        self,
        service: EventService,
        *,
        managers: Sequence[Member],
        first: Sequence[Topic] = (),
        policy: Policy = "tagged",
        config: OrderedConfig | None = None,
        topics: Sequence[Topic] = (),
    ) -> None:
        """`managers` are the members that number events, `first` the topics with the most events.

        Both have to be the same at every member.  Entering subscribes to `topics`.
        """
        check_members(managers)
        if policy not in ("tagged", "drop"):
            raise ValueError(f'policy must be "tagged" or "drop", not {policy!r}')
        for topic in (*first, *topics):
            service.check_topic(topic)
        self._topics = topics
        self._service = service
        self._config = config if config is not None else OrderedConfig()
        self._module = make_module(service, managers, first, self._config)
        self._talk: Lanes[Effect] = Lanes(self._hand_over, self._fail)
        self._letters: Lanes[SendToModule] = Lanes(self._hand_over_letters, self._fail)
        self._events: Lanes[ServicePublish] = Lanes(self._hand_over_events, self._fail)
        self._may_wait = service.promises.loses_nothing
        limit, size = self._config.unread, self._config.unread_bytes
        self._unread = Unread(limit, size, policy, not self._may_wait, service.name)
        self._arrived = asyncio.Event()
        self._joined = asyncio.Event()
        self._room = asyncio.Event()
        self._read_on = asyncio.Event()
        self._checked: set[Topic] = set()
        self._unpublished = self._unpublished_bytes = 0
        self._in_a_row = 0
        self._left_at = 0
        """When an event last left, or when the first waiting event was published."""
        self._wake_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._failure: Exception | None = None

    # -- life ------------------------------------------------------------------------------------

    @property
    def name(self) -> Member:
        """The name of this member."""
        return self._service.name

    @property
    def dropped(self) -> int:
        """Events that were out of order and were dropped: only with the policy "drop"."""
        return self._unread.dropped

    @property
    def forgotten(self) -> int:
        """Dropped events, so late that it is not known whether they were notified."""
        return self._module.subscriber.forgotten

    @property
    def missed(self) -> int:
        """Events that were dropped because the application did not read."""
        return self._unread.missed

    async def __aenter__(self) -> Ordered:
        await self._service.open(self._on_event, self._on_message, self._fail)
        await self._claim_name()
        self._step(Start())
        if self._topics:
            try:
                await self.subscribe(*self._topics)
            except BaseException:
                await self._end()
                raise
        return self

    async def _claim_name(self) -> None:
        """Write to our own inbox, which no other member should read; one that does hears of us."""
        await self._service.send(self.name, encode_message(self._claim()))

    def _claim(self) -> Beat:
        return Beat(self._module.me, epoch=-1, promised=-1, leaving=False)

    def _on_claim(self, other: Source) -> None:
        """Stop if another member of our name began later; tell it of us if it began before us."""
        me = self._module.me
        if other.life > me.life:
            self._fail(NameTaken(self.name))
        elif other.life < me.life:
            self._letters.put(self.name, SendToModule(self.name, self._claim()))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._end()  # the first error is raised

    async def flush(self) -> None:
        """Return when the service has taken all publications.

        `NotSent` if nothing has left for `publish_timeout_s`; what waits goes on waiting.
        """
        while self._unpublished and not self._closed:
            await self._wait_for_room("*")
        self._check_open()
        await self._service.flush()

    async def close(self) -> None:
        """Stop when the service has taken all publications; wait at most `leave_s`.

        `NotSent` if events are left then.  A manager hands its topics over before.
        """
        if not self._closed:
            with suppress(TimeoutError, Closed, NotSent):
                await asyncio.wait_for(self._leave(), self._config.leave_s)
        left = self._unpublished
        await self._end()
        if left and self._failure is None:
            raise NotSent("*", f"{left} events have no stamps yet, or the service takes no more")

    async def _leave(self) -> None:
        await self.flush()
        if self._module.is_needed:
            self._step(LeaveCall())
        while self._module.is_needed and not self._closed:
            self._joined.clear()
            await self._joined.wait()

    async def _end(self) -> None:
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
        await self._talk.close()
        await self._letters.close()
        await self._events.close()
        await self._service.close()
        self._unpublished = self._unpublished_bytes = 0

    def _stop(self) -> None:
        self._closed = True
        for event in (self._arrived, self._joined, self._room, self._read_on):
            event.set()

    def _fail(self, error: Exception) -> None:
        """Close this member and tell its callers why: the service failed, or the name is taken."""
        if not self._closed:
            self._failure = error
            log.error("member %s: %s", self.name, self._why_closed())
            self._stop()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._why_closed()) from self._failure

    def _why_closed(self) -> str:
        if self._failure is None:
            return "closed by this member"
        if isinstance(self._failure, NameTaken):
            return str(self._failure)
        return f"the event service failed: {self._failure!r}"

    # -- what applications do --------------------------------------------------------------------

    async def publish(self, topic: Topic, payload: bytes | str) -> None:
        """Publish; returns when the event is on its way, after those before it in its topic.

        Events of two topics may be ordered either way; `flush` between them keeps their order.
        `NotSent` if there is no room for it, or nothing has left, for `publish_timeout_s`.
        """
        if type(payload) is not bytes:
            payload = encode_payload(payload)
        if len(payload) > self._service.largest - MAX_STAMP_BYTES:
            largest = self._service.largest - MAX_STAMP_BYTES
            raise NotSent(topic, f"{len(payload)} bytes are more than {largest}")
        if topic not in self._checked:
            self._service.check_topic(topic)
            if len(self._checked) >= MAX_CHECKED:
                self._checked.clear()
            self._checked.add(topic)
        while self._has_no_room() and not self._closed:
            await self._wait_for_room(topic)
        self._check_open()
        if not self._unpublished:
            self._left_at = self._now()
        self._unpublished += 1
        self._unpublished_bytes += len(payload)
        self._step(PublishCall(topic, payload))
        self._in_a_row += 1
        if self._in_a_row >= MAX_IN_A_ROW:  # lets other tasks run in a loop that publishes
            self._in_a_row = 0
            await asyncio.sleep(0)

    def _has_no_room(self) -> bool:
        """Whether too many events wait, or no event has left for too long."""
        if not self._unpublished:
            return False
        patience = in_microseconds(self._config.publish_timeout_s)
        too_long = self._now() - self._left_at > patience
        too_many = self._unpublished >= self._config.unpublished
        return too_long or too_many or self._unpublished_bytes >= self._config.unpublished_bytes

    async def _wait_for_room(self, topic: Topic) -> None:
        self._room.clear()
        limit_s = self._config.publish_timeout_s
        try:
            await asyncio.wait_for(self._room.wait(), limit_s)
        except TimeoutError:
            advice = " (this member is full, too: read it in another task)" * self._unread.full
            reason = f"{self._unpublished} events wait, none has left for {limit_s:g} s{advice}"
            raise NotSent(topic, f"{reason}; {self._silence()}") from None

    def _silence(self) -> str:
        """The managers that have not answered, as text."""
        unheard = ", ".join(self._module.unheard)
        return f"no answer from {unheard}" if unheard else "all managers have answered"

    async def subscribe(self, *topics: Topic) -> None:
        """Subscribe; return when all later publications will be notified.

        `NotSubscribed` if managers have not answered for `subscribe_timeout_s`.
        """
        if not topics:
            raise ValueError("subscribe to at least one topic")
        for topic in topics:
            self._service.check_topic(topic)
        self._check_open()
        for topic in topics:
            self._step(SubscribeCall(topic))
        try:
            await asyncio.wait_for(self._until_begun(topics), self._config.subscribe_timeout_s)
        except TimeoutError:
            reason = f"{self._silence()} for {self._config.subscribe_timeout_s:g} s"
            for topic in set(topics) - self._module.subscriber.topics:
                self._step(UnsubscribeCall(topic))
            raise NotSubscribed(topics, reason) from None

    async def _until_begun(self, topics: Sequence[Topic]) -> None:
        while not self._module.subscriber.topics.issuperset(topics):
            self._joined.clear()
            await self._joined.wait()
            self._check_open()

    async def unsubscribe(self, topic: Topic) -> None:
        """End the notifications of a topic; messages that are unread already stay."""
        self._check_open()
        self._step(UnsubscribeCall(topic))

    def __aiter__(self) -> Ordered:
        return self

    async def __anext__(self) -> OrderedMessage:
        unread = self._unread
        while not unread:
            if self._failure is not None:
                self._check_open()
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message = unread.take()
        if not unread.full:
            self._read_on.set()
        return message

    # -- what the service says -------------------------------------------------------------------

    def _on_event(self, topic: Topic, data: bytes) -> Awaitable[None] | None:
        try:
            batch = decode_arrived(topic, data)
        except OrderingError as error:
            log.warning("topic %r: %s", topic, error)
            return None
        if self._closed:
            return None
        effects: list[Effect] = []
        step, now = self._module.step, self._now()
        for stamp, payload in batch.events():
            effects += step(ServiceNotified(topic, payload, stamp), now)
        self._bring_about(effects)
        if not self._unread.filling:
            return None
        return self._until_wanted(topic) if self._may_wait else asyncio.sleep(0)

    async def _until_wanted(self, topic: Topic) -> None:
        """Wait until the application has read, or an arrived event waits for more of a topic.

        The second, because that wait is bounded: the event would be tagged only for lack of
        reading.
        """
        await asyncio.sleep(0)
        while self._unread.full and not self._closed and not awaits(self._module, topic):
            self._read_on.clear()
            await self._read_on.wait()

    def _on_message(self, data: bytes) -> None:
        try:
            message = decode_message(data)
            check_message(message, self._module.me.life)
        except OrderingError as error:
            log.warning("inbox of %s: %s", self.name, error)
            return
        if isinstance(message, Beat) and message.manager.member == self.name:
            self._on_claim(message.manager)
        else:
            self._step(ReceivedFromModule(message))

    # -- effects ---------------------------------------------------------------------------------

    def _now(self) -> int:
        return time.monotonic_ns() // 1000

    def _step(self, cause: Cause) -> None:
        """Let the module act."""
        if not self._closed:
            self._bring_about(self._module.step(cause, self._now()))

    def _bring_about(self, effects: list[Effect]) -> None:
        """Carry out the effects of the module.

        Messages go out in their order, also those to itself: the service gets a subscription before
        the topic's manager, which may live here, hears of it.
        """
        for effect in effects:
            kind = type(effect)  # compared by identity: several for each event
            if kind is Notify:
                self._notify(cast(Notify, effect))
            elif kind is ServicePublish:
                publish = cast(ServicePublish, effect)
                self._events.put(publish.topic, publish)
            elif kind is WakeAt:
                self._wake(cast(WakeAt, effect).time)
            else:
                self._talk.put(CONTROL, effect)
        self._joined.set()
        self._read_on.set()

    def _notify(self, effect: Notify) -> None:
        assert isinstance(effect.timestamp, Stamp)
        assert isinstance(effect.payload, bytes)
        self._unread.put(
            OrderedMessage(effect.topic, effect.payload, effect.in_order, effect.timestamp)
        )
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
        if again is not None and not self._closed:
            self._wake(again)

    async def _hand_over(self, effects: list[Effect]) -> None:
        service = self._service
        for effect in effects:
            match effect:
                case SendToModule() if effect.to == service.name:
                    self._step(ReceivedFromModule(effect.message))
                case SendToModule():
                    self._letters.put(effect.to, effect)
                case ServiceSubscribe():
                    await service.subscribe(effect.topic)
                case ServiceUnsubscribe():
                    await service.unsubscribe(effect.topic)

    async def _hand_over_letters(self, letters: list[SendToModule]) -> None:
        """Send to one member; a member that takes nothing holds up no other."""
        for letter in letters:
            data = encode_message(letter.message)
            if len(data) > self._service.largest:
                log.error(LARGE, letter.to, len(data), self._service.largest)
            else:
                await self._service.send(letter.to, data)

    async def _hand_over_events(self, effects: list[ServicePublish]) -> None:
        """Publish events of one topic."""
        topic = effects[0].topic
        for batch in batches(effects):
            await self._service.publish(topic, encode_batch(batch))
            self._unpublished -= len(batch.payloads)
            self._unpublished_bytes -= sum(map(len, batch.payloads))
            self._left_at = self._now()
            self._room.set()


def check_members(managers: Sequence[Member]) -> None:
    """Raise TypeError or ValueError, in one line, unless these may manage topics."""
    if isinstance(managers, str):
        raise TypeError(f"managers is a list of names, not one: write [{managers!r}]")
    if not managers:
        raise ValueError("at least one member has to manage topics")
    for name in managers:
        check_name(name)
    if len(set(managers)) < len(managers):
        raise ValueError(f"a member is named twice among the managers: {', '.join(managers)}")
