"""One subscription of a light client at its node: how much may be sent, and in which packets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from cubecast.net.message import Message, has_headers
from cubecast.net.reading.debts import Key
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.clients import BATCH_BYTES, DELIVER_WINDOW, Deliver
from cubecast.net.wire.headers import PREFIX_BYTES, blob_of
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, OutgoingFrame, Payloads, WireError


class Feed:
    """One subscription of a client: the bytes sent and not read, and their limit."""

    def __init__(self, number: int, queue_bytes: int) -> None:
        self.number = number
        self.queue_bytes = queue_bytes
        self.window = min(queue_bytes, DELIVER_WINDOW)
        self.subscription: Subscription | None = None
        self.telling = False
        self.sending = False
        """Whether messages were taken from the queue and not sent yet."""
        self.open: set[Key] | None = None
        """The streams that the client was told of and does not know to be over; None: it has not
        asked to hear that."""
        self._unread = 0
        self._credit = asyncio.Event()
        self._credit.set()

    @property
    def room(self) -> int:
        """The bytes that may be sent now."""
        return self.window - self._unread

    def sent(self, size: int) -> None:
        """Count bytes that were sent to the client."""
        self._unread += size
        if self._unread >= self.window:
            self._credit.clear()

    def read(self, size: int) -> None:
        """Give credit for bytes that the application has read."""
        if size > self._unread:
            raise WireError(f"{size} bytes read of {self._unread}")
        self._unread -= size
        if self._unread < self.window:
            self._credit.set()

    async def credit(self) -> None:
        """Wait until something may be sent."""
        await self._credit.wait()

    def abandon(self) -> None:
        """Free the queue at once: it will not be read."""
        if self.subscription is not None:
            self.subscription.abandon()


def parts(messages: list[Message]) -> Iterator[list[Message]]:
    """Cut the messages of a frame into parts that fit a packet, in order."""
    start = size = 0
    headed = has_headers(messages[0].frame)
    for index, message in enumerate(messages):
        size += len(message.payload) + MESSAGE_OVERHEAD
        if headed:
            size += PREFIX_BYTES + len(message.encoded_headers)
        if size >= BATCH_BYTES:
            yield messages[start : index + 1]
            start, size = index + 1, 0
    if start < len(messages):
        yield messages[start:]


def deliver(number: int, dropped: int, messages: list[Message]) -> Deliver:
    """The packet that delivers consecutive messages of one frame."""
    first = messages[0]
    frame = first.frame
    body = frame.body
    assert isinstance(body, Payloads | OutgoingFrame)
    headed: tuple[int, ...] = ()
    if has_headers(frame):
        payloads = [blob_of(one.encoded_headers, one.payload) for one in messages]
        headed = tuple(place for place, one in enumerate(messages) if one.encoded_headers)
    else:
        payloads = [one.payload for one in messages]
    return Deliver(
        number,
        dropped,
        first.topic,
        first.source,
        frame.stream.incarnation,
        first.seq,
        body.time,
        [(stream.source, stream.incarnation, seq) for stream, seq in frame.barrier],
        payloads,
        headed,
        first.retained,
    )
