"""A light client as its node sees it: one session per attached connection.

A session calls what an application at the node would call (`Node.subscribe`, `Node.publish`), so
the client's order is the node's: the node has delivered what it sends to the client, and what the
client publishes after that depends on it.

Bounds, whatever the client does or leaves undone:

1. Publications received and not taken by the node: one window and one packet (`WireError` beyond).
2. Sent and not read by the application: one window and one batch per subscription; what else comes
   waits in the node's subscription, where the client's policy applies.
3. What the network does not take from us: `BACKLOG` and one batch or answer, then we stop sending;
   `HARD_BACKLOG` and one answer, then we hang up.  A client that is silent for `client_silence_s`
   is gone.
4. While a client itself waits to publish, debts of its subscriptions are put off (`debts.py`), or
   two clients that publish while they read could wait for each other.
5. What its subscriptions hold, its publications that the node has not taken and an answer on its
   way are within its share (`budget.py`); so are those of all clients of the node.  Its topics are
   counted with those of all clients (`Guests.use_topic`).
6. When the session ends its queues are free at once, whatever still refers to it.

A packet of publications is taken whole or not at all: one that was received is published even if
the connection breaks meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from cubecast.errors import Closed, CubecastError, NotAllowed, NotSent, Overflow
from cubecast.net.events import Event, Returned, SlowSubscriber
from cubecast.net.gateway.budget import Share
from cubecast.net.gateway.feed import Feed, deliver, parts
from cubecast.net.links.connection import Connection
from cubecast.net.node.stats import Stats
from cubecast.net.publishing.receipt import Receipt
from cubecast.net.reading.subscription import READS, Subscription
from cubecast.net.security.access import address_of, name_of
from cubecast.net.security.permissions import Identity
from cubecast.net.topics import check_topic, is_reply_topic
from cubecast.net.wire.clients import (
    BATCH_BYTES,
    LEAVING,
    MAX_ANSWER,
    MAX_POSITIONS,
    MAX_REQUESTS,
    PUBLISH_WINDOW,
    Answered,
    Ask,
    CatchUp,
    Consumed,
    Declined,
    Dropped,
    Ended,
    Farewell,
    FromNode,
    Happened,
    Leaving,
    Listen,
    Moved,
    Ping,
    Pong,
    Publish,
    Read,
    Subscribe,
    Subscribed,
    Taken,
    Taking,
    Unanswered,
    Unsubscribe,
    clipped,
    decode_from_client,
    encode,
    size_of,
)
from cubecast.net.wire.headers import marked
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, WireError
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.node import Node

log = logging.getLogger("cubecast")

BACKLOG = 1024 * 1024
HARD_BACKLOG = 4 * BACKLOG
CONGESTED_POLL_S = 0.005
RETRY_S = 0.05
TELLING_S = 0.01
TAKING_S = 0.005
"""How often a client hears how much of a packet is published while that takes its time."""
CATCH_UP_POLL_S = 0.1
CATCH_UP_S = 5.0
"""How long a client that comes from another node may wait for this one to catch up."""
NO_ROOM = "the node holds too much for its clients, or for this one, to take a message so large"
MAX_TOPICS = 4096
"""Topics one client may publish or subscribe to by name while it is attached."""
MAX_REPLY_TOPICS = 1024
"""Of those, the reply topics that count, the newest: a service answers ever new clients."""


class Session:
    """One attached client."""

    def __init__(
        self, node: Node, connection: Connection, share: Share, movable: bool = False
    ) -> None:
        self._node = node
        self._share = share
        self._connection = connection
        self.who = Identity("client", name_of(connection))
        """The client, for permissions."""
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches: deque[Publish] = deque()
        self._batched = 0
        self._refused: dict[int, str] = {}  # batches that there was no room for
        self._publishing: asyncio.Task[None] | None = None
        self._waits_to_publish = False
        self._stable: list[int] = []
        self._unknown: list[int] = []
        self._questions: deque[Ask] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._answer_bytes = 0  # of the answer that is on its way
        self._fresh = 0  # bytes sent in this tick, which are in no backlog yet
        self._listening = False
        self._movable = movable
        self.moving = False
        """Whether the client is on its way to another node, and is waited for."""
        self._catching_up = False
        self._topics: set[Topic] = set()
        self._taken: set[Topic] = set()
        self._reply_topics: deque[Topic] = deque()
        self._heard_at = self._loop.time()
        self._check_silence()
        self.ended = False

    # -- what the client says --------------------------------------------------------------------

    def received(self, raw: bytes, leaving: bool) -> None:
        """Carry out one packet; `WireError` ends the session.

        While the node is `leaving` nothing is begun, but what was begun goes on: the client reads
        and shows that it lives, or the node would wait for it in vain.
        """
        self._heard_at = self._loop.time()
        message = decode_from_client(raw)
        if leaving and not isinstance(message, Read | Unsubscribe | Ping | Moved):
            if isinstance(message, Publish):
                self._send(Declined(message.number, LEAVING, leaving=True))
            return
        match message:
            case Publish() as batch:
                self._take(batch)
            case Read(number, size):
                feed = self._feeds.get(number)
                if feed is not None:  # it may have ended meanwhile
                    feed.read(size)
            case Subscribe() as request:
                self._subscribe(request)
            case Unsubscribe(number):
                feed = self._feeds.pop(number, None)
                if feed is not None:
                    feed.abandon()
                    self._serving[number].cancel()
            case Ask() as question:
                self._ask(question)
            case Listen() if not self._listening:
                self._listening = True
                self._spawn(self._tell_events())
            case Ping():
                self._send(Pong())
            case CatchUp() if not self._catching_up:
                self._catching_up = True
                self._spawn(self._catch_up(message))
            case Moved():
                self.moving = False
            case other:
                raise WireError(f"{type(other).__name__} out of turn")

    def announce_leave(self) -> None:
        """The node is to leave: a client that can go on elsewhere is told, and waited for."""
        if self._movable:
            self.moving = True
            self._send(Leaving())

    async def _catch_up(self, request: CatchUp) -> None:
        """Answer when this node has delivered what the client has read, but not too late.

        Streams whose publishers are gone, and topics that the node does not read, are not waited
        for: nothing more comes of those.
        """
        deadline = self._loop.time() + CATCH_UP_S
        left = [position for position in request.positions if self._may_see(position[0])]
        pause_s = CONGESTED_POLL_S
        while left := self._node.undelivered(left):
            if self._loop.time() >= deadline:
                log.info("%s has read what this node has not delivered", self._connection)
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, CATCH_UP_POLL_S)
        self._catching_up = False
        self._send(Answered(request.request, msgspec.Raw(msgspec.msgpack.encode(None))))

    def _check_silence(self) -> None:
        limit = self._node.config.client_silence_s
        if self._loop.time() - self._heard_at > limit:
            self._hang_up(f"nothing heard for {limit:g} s")
        self._silence = self._loop.call_later(limit / 4, self._check_silence)

    # -- what the client hears -------------------------------------------------------------------

    def _send(self, message: FromNode) -> None:
        if self.ended:
            return
        if self._connection.backlog() > HARD_BACKLOG + self._answer_bytes:
            self._hang_up("it does not read what it is sent")
            return
        packet = encode(message)
        self._connection.send(packet)
        if not self._fresh:
            self._loop.call_soon(self._tick)  # after what was sent is written
        self._fresh += len(packet)

    def _tick(self) -> None:
        self._fresh = 0

    def _hang_up(self, reason: str) -> None:
        log.warning("closing connection to a client, %s: %s", self._connection, reason)
        self._connection.close(reason)
        self._connection.abort()  # what it does not read would keep the connection open

    async def _room(self) -> None:
        """Wait until the network has taken most of what was sent."""
        while self._connection.backlog() + self._fresh > BACKLOG:
            await asyncio.sleep(CONGESTED_POLL_S)

    # -- publishing ------------------------------------------------------------------------------

    def _take(self, batch: Publish) -> None:
        if self._batched >= PUBLISH_WINDOW + BATCH_BYTES:
            raise WireError("more publications than it has credit for")
        size = size_of(batch.payloads)
        if size > PUBLISH_WINDOW and size > self._share.left:
            self._refused[batch.number] = NO_ROOM
            batch = msgspec.structs.replace(batch, payloads=[b""], headed=())
            size = MESSAGE_OVERHEAD
        self._batched += size
        self._share.add(size)
        self._batches.append(batch)
        if self._publishing is None:
            self._publishing = self._loop.create_task(self._publish_batches())
            self._publishing.add_done_callback(self._check)

    async def _publish_batches(self) -> None:
        """Hand batches to the node, one after the other, until none is left."""
        try:
            while self._batches:
                batch = self._batches[0]
                try:
                    if batch.number in self._refused:
                        raise CubecastError(self._refused.pop(batch.number))
                    await self._publish(batch)
                except (CubecastError, ValueError) as error:
                    if self._node.closed:
                        return
                    self._send(Declined(batch.number, *_why(error)))
                self._batches.popleft()
                size = size_of(batch.payloads)
                self._batched -= size
                self._share.add(-size)
                self._send(Taken(batch.number))
                if not self.ended:
                    await self._room()
        finally:
            self._publishing = None
            if self.ended:
                self._share.close()

    async def _publish(self, batch: Publish) -> None:
        """Publish a whole batch; a topic that was taken once is not refused later.

        So only the first batch of a topic can be refused, and for that one the client waits; or
        one that new permissions do not allow.
        """
        self._check_may("publish", batch.topic)
        topic = self._count_topic(batch.topic)
        last = len(batch.payloads) - 1
        receipt = None
        size = 0
        told_at = self._loop.time()
        self._waits_to_publish = True
        READS.set(self if self._feeds else None)
        try:
            for index, payload in enumerate(marked(batch.payloads, batch.headed)):
                wants_receipt = batch.receipt and index == last
                try:
                    receipt = await self._publish_one(topic, payload, wants_receipt)
                except NotAllowed:
                    if index > 0:  # a part is published: "not sent" would be wrong
                        self._hang_up("the permissions changed while a packet was published")
                    raise
                size += len(payload) + MESSAGE_OVERHEAD
                if self._loop.time() >= told_at + TAKING_S and index < last:
                    told_at = self._loop.time()
                    self._send(Taking(batch.number, size))
        finally:
            self._waits_to_publish = False
        if receipt is not None:
            receipt.when_known(partial(_is_known, weakref.ref(self), batch.number))

    async def _publish_one(
        self, topic: Topic, payload: bytes, wants_receipt: bool
    ) -> Receipt | None:
        """Try as long as the node lives: what the client was granted room for is sent."""
        node = self._node
        while True:
            if node.out_of_credit(topic):
                self._put_off()
            try:
                receipt = await node.publish(topic, payload, receipt=wants_receipt)
                self._taken.add(topic)
                return receipt
            except NotSent:
                refused = topic not in self._taken and not node.out_of_credit(topic)
                if refused or node.closed:
                    raise
            await asyncio.sleep(RETRY_S)

    def behind(self, topic: Topic) -> int:
        """Bytes that are unread beyond the queue, where the client reads a topic."""
        readers = (feed.subscription for feed in self._feeds.values())
        return max((one.behind(topic) for one in readers if one is not None), default=0)

    def reads(self, subscription: Subscription) -> bool:
        """Whether the client reads a certain subscription."""
        return any(feed.subscription is subscription for feed in self._feeds.values())

    def _put_off(self) -> None:
        """We wait to publish: our readers hold up nobody meanwhile, within bound 4."""
        for feed in self._feeds.values():
            if feed.subscription is not None:
                feed.subscription.settle()

    def _count_topic(self, topic: Topic) -> Topic:
        """A topic that the client names: its one copy; `CubecastError` if that is one too many."""
        if topic not in self._topics:
            check_topic(topic)  # what is no topic is not counted: nobody would forget it
            if is_reply_topic(topic):
                self._count_reply_topic(topic)
            if len(self._topics) >= MAX_TOPICS:
                raise CubecastError(f"a client may use {MAX_TOPICS} topics, not more")
        topic = self._node.guests.use_topic(topic)
        self._topics.add(topic)
        return topic

    def _count_reply_topic(self, topic: Topic) -> None:
        """Forget the oldest reply topic if there is one too many."""
        self._reply_topics.append(topic)
        if len(self._reply_topics) > MAX_REPLY_TOPICS:
            oldest = self._reply_topics.popleft()
            self._topics.discard(oldest)
            self._taken.discard(oldest)
            self._node.guests.drop_topics([oldest])

    def known(self, number: int, stable: bool) -> None:
        """A publication is stable, or it will never be known; told with others of this tick."""
        if self.ended:
            return
        if not (self._stable or self._unknown):
            self._loop.call_soon(self._tell_known)
        (self._stable if stable else self._unknown).append(number)

    def _tell_known(self) -> None:
        stable, self._stable = self._stable, []
        unknown, self._unknown = self._unknown, []
        self._send(Consumed(stable, unknown))

    # -- subscribing -----------------------------------------------------------------------------

    def _subscribe(self, request: Subscribe) -> None:
        limit = self._node.config.client_subscriptions
        number = request.subscription
        if number in self._serving:
            raise WireError(f"a second subscription {number}")
        if len(self._serving) >= 4 * limit:
            raise WireError("more subscriptions begun and ended than can be kept up with")
        if len(self._feeds) >= limit:
            self._send(Ended(number, f"a client may have {limit} subscriptions, not more"))
            return
        feed = Feed(number, request.queue_bytes or self._node.config.queue_bytes)
        self._feeds[number] = feed
        task = self._serving[number] = self._spawn(self._serve(request, feed))
        task.add_done_callback(lambda _: self._forget(number))

    def _forget(self, number: int) -> None:
        del self._serving[number]
        self._feeds.pop(number, None)

    async def _serve(self, request: Subscribe, feed: Feed) -> None:
        """Send what is delivered to one subscription, as fast as it is read."""
        try:
            self._check_may("subscribe", request.topic)
            subscription = self._node.subscribe(
                request.topic, policy=request.policy, queue_bytes=feed.queue_bytes
            )
            if subscription.pattern is None:
                self._count_topic(request.topic)
            subscription.share = self._share
            subscription.yields = self._yields
            subscription.on_slow = lambda: self._slow(feed)
            subscription.wants_retained = request.retained
            feed.subscription = subscription
            async with subscription:
                self._send(self._confirmation(request, feed, subscription))
                await self._forward(subscription, feed)
            self._send(Ended(feed.number, LEAVING, leaving=True))
        except Overflow as error:
            self._send(Dropped(feed.number, subscription.dropped))
            self._send(Ended(feed.number, clipped(error.reason), error.limit))
        except NotAllowed as error:
            self._send(Ended(feed.number, clipped(error.reason), denied=True))
        except (CubecastError, ValueError) as error:
            leaving = isinstance(error, Closed) and self._node.closing
            self._send(Ended(feed.number, clipped(error), leaving=leaving))

    def _confirmation(
        self, request: Subscribe, feed: Feed, subscription: Subscription
    ) -> Subscribed:
        """That a subscription has begun; if it was asked for, where in each stream."""
        if not request.located:
            return Subscribed(feed.number, feed.window)
        positions = self._node.positions(subscription)
        whole = len(positions) <= MAX_POSITIONS
        return Subscribed(feed.number, feed.window, positions[:MAX_POSITIONS], whole)

    async def _forward(self, subscription: Subscription, feed: Feed) -> None:
        """Send no more at a time than there is credit for, so that reading never comes in lumps."""
        while True:
            await feed.credit()
            messages = await subscription.take(min(feed.room, BATCH_BYTES))
            if not messages:
                return
            await self._room()  # after waiting: all subscriptions may wake in one tick
            for part in parts(messages):
                packet = deliver(feed.number, subscription.dropped, part)
                self._send(packet)
                feed.sent(size_of(packet.payloads))

    def _yields(self) -> bool:
        waits = self._waits_to_publish and self._node.waits_to_publish()
        return waits and self._share.left > 0

    def _slow(self, feed: Feed) -> None:
        """The policy had to act: tell the client, not more often than it helps."""
        if not feed.telling:
            feed.telling = True
            self._loop.call_later(TELLING_S, self._tell_dropped, feed)

    def _tell_dropped(self, feed: Feed) -> None:
        feed.telling = False
        assert feed.subscription is not None
        # It may have ended; and to one that does not read, the next delivery tells.
        if feed.number in self._feeds and self._connection.backlog() < BACKLOG:
            self._send(Dropped(feed.number, feed.subscription.dropped))

    # -- questions and events --------------------------------------------------------------------

    def _ask(self, question: Ask) -> None:
        if len(self._questions) >= MAX_REQUESTS:
            raise WireError("too many questions at once")
        self._questions.append(question)
        if self._answering is None:
            self._answering = self._spawn(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            while self._questions:
                question = self._questions.popleft()
                try:
                    await self._send_answer(question)
                except (CubecastError, ValueError) as error:
                    self._send(Unanswered(question.request, *_why(error)))
                await self._room()
        finally:
            self._answering = None

    async def _send_answer(self, question: Ask) -> None:
        """Answer, and wait until the network has taken that: one answer is on its way at a time."""
        answer = msgspec.msgpack.encode(await self._answer(question))
        size = len(answer)
        if size > MAX_ANSWER:
            raise CubecastError(f"the answer has {size} bytes; a client is told {MAX_ANSWER}")
        if size > BACKLOG and size > self._share.left:
            raise CubecastError(f"no room for an answer of {size} bytes: {self._share}")
        self._answer_bytes = size
        self._share.add(size)
        try:
            self._send(Answered(question.request, msgspec.Raw(answer)))
            del answer
            await self._room()
        finally:
            self._answer_bytes = 0
            self._share.add(-size)

    async def _answer(self, question: Ask) -> object:
        node = self._node
        match question.about:
            case "members":
                return node.members
            case "view":
                return node.epoch, node.suspects
            case "stats":
                return self._seen(node.recent_stats())
            case "topics":
                return {
                    topic: slots
                    for topic, slots in (await node.topics()).items()
                    if self._may_see(topic)
                }
            case "explain":
                self._check_may("ask", question.topic)
                return node.explain(question.topic)
            case "subscribers":
                self._check_may("ask", question.topic)
                return await node.subscribers(question.topic)

    async def _tell_events(self) -> None:
        events = self._node.events()
        try:
            async for event in events:
                if self._concerns(event):
                    await self._room()
                    self._send(Happened(event))
        finally:
            events.close()

    def moved(self, event: Returned) -> None:
        """The node is in the cluster again, perhaps in another slot: that concerns every client."""
        if not self._listening:
            self._send(Happened(event))

    def _concerns(self, event: Event) -> bool:
        """Whether to tell a client of an event: not of others' subscriptions and topics."""
        topic = getattr(event, "topic", None)
        return not isinstance(event, SlowSubscriber) and (topic is None or self._may_see(topic))

    # -- permissions -----------------------------------------------------------------------------

    def _check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the client may not do that; the audit has it."""
        access = self._node.access
        if access is not None:
            access.check(self.who, what, topic, address_of(self._connection))

    def _may_see(self, topic: Topic) -> bool:
        access = self._node.access
        return access is None or access.sees(self.who, topic)

    def _seen(self, stats: Stats) -> Stats:
        """A reading without the topics that the client may not see; the sums stay.

        A pattern tells which topics there may be, so permissions hide all of these.
        """
        if self._node.access is None:
            return stats
        readers = (one for one in stats.subscriptions if not set("+#") & set(one.topic))
        return msgspec.structs.replace(
            stats,
            topics=[one for one in stats.topics if self._may_see(one.topic)],
            subscriptions=[one for one in readers if self._may_see(one.topic)],
        )

    def check_again(self) -> None:
        """There are new permissions: end the subscriptions that they do not allow."""
        access = self._node.access
        for number, feed in list(self._feeds.items()):
            if access is not None and feed.subscription is not None:  # else it is checked later
                refusal = access.refusal(self.who, "subscribe", feed.subscription.topic)
                if refusal is not None:
                    del self._feeds[number]
                    feed.abandon()
                    self._serving[number].cancel()
                    self._send(Ended(number, clipped(refusal.reason), denied=True))

    # -- the end ---------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[None]) -> None:
        """Whatever goes wrong with a client's wishes ends its session, and only that."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a client's session failed", exc_info=error)
            self._hang_up(f"its session failed: {error!r}")

    def farewell(self, reason: str) -> None:
        """The node ends the session."""
        self._send(Farewell(reason))
        self._connection.close(reason)

    def end(self) -> asyncio.Task[None] | None:
        """The connection is gone: stop everything but what was received whole."""
        self.ended = True
        self._silence.cancel()
        for feed in self._feeds.values():
            feed.abandon()
        for task in self._tasks:
            task.cancel()
        if self._publishing is None:
            self._share.close()
        self._node.guests.drop_topics(self._topics)
        return self._publishing

    @property
    def serving(self) -> list[asyncio.Task[None]]:
        """The tasks that send what is delivered, one a subscription."""
        return list(self._serving.values())

    @property
    def publishing(self) -> asyncio.Task[None] | None:
        """The task that hands publications to the node, while there are any."""
        return self._publishing


def _is_known(session: weakref.ref[Session], number: int, stable: bool) -> None:
    """What a receipt calls: it may be open for longer than its client is there."""
    there = session()
    if there is not None:
        there.known(number, stable)


def _why(error: Exception) -> tuple[str, bool]:
    """What a client is told of what was not done: why, and whether it was not allowed."""
    if isinstance(error, NotAllowed):
        return clipped(error.reason), True
    return clipped(error), False
