"""Publications of a light client at its node: packets, taken whole, in order per topic.

Topics are independent, as they are for an application at the node: a packet whose topic has no
credit holds up the later packets of that topic, and no other.  `Taken` says up to which number all
packets are taken; for a packet that is taken out of turn, `Taking` names its whole size.

Both ends count the same bytes against the window: those of each packet that neither `Taking` nor
`Taken` has named.  The node stops counting bytes in the step in which it sends such news, and the
client when it hears them.  So the node never counts more than the client does, in however many
topics packets are partly published, and a client within its window is never refused.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cubecast.errors import CubecastError, NotAllowed, NotSent
from cubecast.net.gateway.line import Line, why
from cubecast.net.gateway.subscriptions import Subscriptions
from cubecast.net.message import REPLY
from cubecast.net.publishing.receipt import Receipt
from cubecast.net.reading.subscription import READS
from cubecast.net.topics import is_reply_topic
from cubecast.net.wire.clients import (
    BATCH_BYTES,
    PUBLISH_WINDOW,
    Consumed,
    Declined,
    Publish,
    Taken,
    Taking,
    size_of,
)
from cubecast.net.wire.headers import marked, value_of
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, WireError
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

RETRY_S = 0.05
TAKING_S = 0.005
"""How often a client is told how much of a packet is published so far."""
TOPICS_AT_ONCE = 64
"""Topics of one client that may wait for credit at a time; further topics wait behind them."""
NO_ROOM = "the node holds too much for its clients, or for this one, to take a message so large"
NOT_HEARD = "a request names a reply topic that its client is not subscribed to"


class PublicationPacket:
    """A packet of publications that is not taken yet.

    It holds the messages that are not published, and no more bytes than it counts.
    """

    __slots__ = ("counted", "number", "payloads", "receipt", "refused", "size", "topic")

    def __init__(self, batch: Publish) -> None:
        self.number, self.topic, self.receipt = batch.number, batch.topic, batch.receipt
        self.payloads = deque(marked(batch.payloads, batch.headed))
        self.size = size_of(batch.payloads)
        self.counted = self.size  # what the window and the share count of it
        self.refused = ""  # why it is not published, if there was no room for it

    def refuse(self, reason: str) -> None:
        """Free the messages: the packet is not published."""
        self.refused = reason
        self.payloads.clear()
        self.counted = MESSAGE_OVERHEAD


class Publications:
    """The publications of one client that the node has not taken yet.

    1. A packet is taken whole or not at all: one that was received is published even if the
       connection breaks meanwhile.
    2. Packets of one topic are published in the order in which they came.
    3. A topic without credit holds up no other, as long as fewer than `TOPICS_AT_ONCE` have none:
       up to that many, there is a task for each topic with packets.
    4. `_batched` is the sum of what open packets count: of each, the bytes that its client was not
       told to be published.  The client counts these as well, until it hears of them.
    5. Its requests name reply topics that it is subscribed to, as an honest client is before it
       asks.  Else it could have services use ever new topics that do not count as its own.
    """

    def __init__(self, line: Line, shell: Shell, feeds: Subscriptions) -> None:
        self._line = line
        self._shell = shell
        self._feeds = feeds
        self._loop = asyncio.get_running_loop()
        self._open: OrderedDict[int, PublicationPacket] = OrderedDict()  # not taken, as they came
        self._arrived = 0  # packets so far
        self._last = 0  # the number of the latest
        self._waiting: dict[Topic, deque[int]] = {}  # the same by topic
        self._ready: deque[Topic] = deque()  # topics with packets that no task publishes
        self._batched = 0  # bytes that the client uses of its window
        self._stable: list[int] = []
        self._unknown: list[int] = []
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks that hand publications to the node, while there are any."""

    def take(self, batch: Publish) -> None:
        """Have a packet published, after the earlier packets of its topic."""
        if self._batched >= PUBLISH_WINDOW + BATCH_BYTES:
            raise WireError("more publications than it has credit for")
        packet = PublicationPacket(batch)
        if packet.size > PUBLISH_WINDOW and packet.size > self._line.share.left:
            packet.refuse(NO_ROOM)
        elif batch.headed and not all(map(self._feeds.hears, reply_topics(batch))):
            packet.refuse(NOT_HEARD)
        self._count(packet.counted)
        self._arrived += 1
        self._last = batch.number
        self._open[self._arrived] = packet
        waiting = self._waiting.get(batch.topic)
        if waiting is not None:
            waiting.append(self._arrived)
            return
        self._waiting[batch.topic] = deque((self._arrived,))
        self._ready.append(batch.topic)
        if len(self.tasks) < TOPICS_AT_ONCE:
            task = self._loop.create_task(self._publish_ready())
            self.tasks.add(task)
            task.add_done_callback(self._ended)
            self._line.watch(task)

    def _count(self, size: int) -> None:
        """Count `size` bytes, which may be negative, in the window of the client and its share."""
        self._batched += size
        self._line.share.add(size)

    async def _publish_ready(self) -> None:
        """Publish packets, of one topic after the other, until no topic is left."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._ready:
                topic = self._ready.popleft()
                waiting = self._waiting[topic]
                packet = self._open[waiting[0]]
                try:
                    if packet.refused:
                        raise CubecastError(packet.refused)
                    await self._publish(packet)
                except (CubecastError, ValueError) as error:
                    if self._shell.closed:
                        return
                    self._line.send(Declined(packet.number, *why(error)))
                self._took(waiting.popleft())
                if waiting:
                    self._ready.append(topic)
                else:
                    del self._waiting[topic]
                if not self._line.ended:
                    await self._line.room()
        finally:
            self.tasks.discard(task)  # at once: the next packet may come before `_ended` is called

    def _tell(self, packet: PublicationPacket, size: int) -> None:
        """Tell the client that the first `size` bytes of a packet are published, not yet all."""
        self._count(packet.size - size - packet.counted)
        packet.counted = packet.size - size
        self._line.send(Taking(packet.number, size))

    def _took(self, place: int) -> None:
        """Tell the client that a packet is taken, or refused."""
        first = next(iter(self._open)) == place
        packet = self._open.pop(place)
        self._count(-packet.counted)
        if not first:
            self._line.send(Taking(packet.number, packet.size))
            return
        following = next(iter(self._open.values()), None)
        number = self._last if following is None else following.number - 1
        self._line.send(Taken(max(number, packet.number)))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self._line.ended and not self.tasks:
            self._line.share.close()

    async def _publish(self, packet: PublicationPacket) -> None:
        """Publish a whole packet; a topic that was accepted once is not refused later.

        So only the first packet of a topic can be refused, and for that one the client waits; or
        a packet that new permissions do not allow.
        """
        self._line.check_may("publish", packet.topic)
        topic = self._line.use_topic(packet.topic)
        self._feeds.publishing += 1
        READS.set(self._feeds if self._feeds else None)
        try:
            receipt = await self._publish_all(topic, packet)
        finally:
            self._feeds.publishing -= 1
        if receipt is not None:
            receipt.when_known(partial(_is_known, weakref.ref(self), packet.number))

    async def _publish_all(self, topic: Topic, packet: PublicationPacket) -> Receipt | None:
        """Publish the messages of a packet one by one, freeing each; the receipt of the last."""
        payloads = packet.payloads
        receipt = None
        size = 0
        told_at = self._loop.time()
        while payloads:
            wants_receipt = packet.receipt and len(payloads) == 1
            try:
                receipt = await self._publish_one(topic, payloads[0], wants_receipt)
            except NotAllowed:
                if size > 0:  # a part is published: "not sent" would be wrong
                    self._line.hang_up("the permissions changed while a packet was published")
                raise
            size += len(payloads.popleft()) + MESSAGE_OVERHEAD
            if self._loop.time() >= told_at + TAKING_S and payloads:
                told_at = self._loop.time()
                self._tell(packet, size)
        return receipt

    async def _publish_one(
        self, topic: Topic, payload: bytes, wants_receipt: bool
    ) -> Receipt | None:
        """Publish one message; retry until the node is closed, as the client had credit for it."""
        shell, publish = self._shell, self._shell.node.publish
        while True:
            if shell.publishing.blocked(topic):
                self._feeds.put_off()
            try:
                receipt = await publish(topic, payload, receipt=wants_receipt)
                self._line.taken.add(topic)
                return receipt
            except NotSent:
                refused = topic not in self._line.taken and not shell.publishing.blocked(topic)
                if refused or shell.closed:
                    raise
            await asyncio.sleep(RETRY_S)

    def known(self, number: int, stable: bool) -> None:
        """Tell the client that a packet is stable, or will never be known; once per tick."""
        if self._line.ended:
            return
        if not (self._stable or self._unknown):
            self._loop.call_soon(self._tell_known)
        (self._stable if stable else self._unknown).append(number)

    def _tell_known(self) -> None:
        stable, self._stable = self._stable, []
        unknown, self._unknown = self._unknown, []
        self._line.send(Consumed(stable, unknown))


def reply_topics(batch: Publish) -> Iterator[Topic]:
    """The topics to which requests in a packet have their answers sent."""
    for place in batch.headed:
        topic = value_of(batch.payloads[place], REPLY)
        if is_reply_topic(topic):
            yield topic


def _is_known(publications: weakref.ref[Publications], number: int, stable: bool) -> None:
    """Called by a receipt, which may live longer than the session."""
    there = publications()
    if there is not None:
        there.known(number, stable)
