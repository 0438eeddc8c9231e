"""What a light client publishes through its node: packets, one after the other, taken whole."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from cubecast.errors import CubecastError, NotAllowed, NotSent
from cubecast.net.gateway.line import Line, why
from cubecast.net.gateway.subscriptions import Subscriptions
from cubecast.net.publishing.receipt import Receipt
from cubecast.net.reading.subscription import READS
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
from cubecast.net.wire.headers import marked
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, WireError
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

RETRY_S = 0.05
TAKING_S = 0.005
"""How often a client hears how much of a packet is published while that takes its time."""
NO_ROOM = "the node holds too much for its clients, or for this one, to take a message so large"


class Publications:
    """The publications of one client that the node has not taken.

    A packet is taken whole or not at all: one that was received is published even if the connection
    breaks meanwhile.
    """

    def __init__(self, line: Line, shell: Shell, feeds: Subscriptions) -> None:
        self._line = line
        self._shell = shell
        self._feeds = feeds
        self._loop = asyncio.get_running_loop()
        self._batches: deque[Publish] = deque()
        self._batched = 0
        self._refused: dict[int, str] = {}  # batches that there was no room for
        self._stable: list[int] = []
        self._unknown: list[int] = []
        self.task: asyncio.Task[None] | None = None
        """Hands publications to the node, while there are any."""

    def take(self, batch: Publish) -> None:
        """Have a packet of publications handed to the node, after those before it."""
        if self._batched >= PUBLISH_WINDOW + BATCH_BYTES:
            raise WireError("more publications than it has credit for")
        size = size_of(batch.payloads)
        if size > PUBLISH_WINDOW and size > self._line.share.left:
            self._refused[batch.number] = NO_ROOM
            batch = msgspec.structs.replace(batch, payloads=[b""], headed=())
            size = MESSAGE_OVERHEAD
        self._batched += size
        self._line.share.add(size)
        self._batches.append(batch)
        if self.task is None:
            self.task = self._loop.create_task(self._publish_batches())
            self._line.watch(self.task)

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
                    if self._shell.closed:
                        return
                    self._line.send(Declined(batch.number, *why(error)))
                self._batches.popleft()
                size = size_of(batch.payloads)
                self._batched -= size
                self._line.share.add(-size)
                self._line.send(Taken(batch.number))
                if not self._line.ended:
                    await self._line.room()
        finally:
            self.task = None
            if self._line.ended:
                self._line.share.close()

    async def _publish(self, batch: Publish) -> None:
        """Publish a whole batch; a topic that was taken once is not refused later.

        So only the first batch of a topic can be refused, and for that one the client waits; or
        one that new permissions do not allow.
        """
        self._line.check_may("publish", batch.topic)
        topic = self._line.use_topic(batch.topic)
        last = len(batch.payloads) - 1
        receipt = None
        size = 0
        told_at = self._loop.time()
        self._feeds.client_publishes = True
        READS.set(self._feeds if self._feeds else None)
        try:
            for index, payload in enumerate(marked(batch.payloads, batch.headed)):
                wants_receipt = batch.receipt and index == last
                try:
                    receipt = await self._publish_one(topic, payload, wants_receipt)
                except NotAllowed:
                    if index > 0:  # a part is published: "not sent" would be wrong
                        self._line.hang_up("the permissions changed while a packet was published")
                    raise
                size += len(payload) + MESSAGE_OVERHEAD
                if self._loop.time() >= told_at + TAKING_S and index < last:
                    told_at = self._loop.time()
                    self._line.send(Taking(batch.number, size))
        finally:
            self._feeds.client_publishes = False
        if receipt is not None:
            receipt.when_known(partial(_is_known, weakref.ref(self), batch.number))

    async def _publish_one(
        self, topic: Topic, payload: bytes, wants_receipt: bool
    ) -> Receipt | None:
        """Try as long as the node lives: what the client was granted room for is sent."""
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
        """A publication is stable, or it will never be known; told with others of this tick."""
        if self._line.ended:
            return
        if not (self._stable or self._unknown):
            self._loop.call_soon(self._tell_known)
        (self._stable if stable else self._unknown).append(number)

    def _tell_known(self) -> None:
        stable, self._stable = self._stable, []
        unknown, self._unknown = self._unknown, []
        self._line.send(Consumed(stable, unknown))


def _is_known(publications: weakref.ref[Publications], number: int, stable: bool) -> None:
    """What a receipt calls: it may be open for longer than its client is there."""
    there = publications()
    if there is not None:
        there.known(number, stable)
