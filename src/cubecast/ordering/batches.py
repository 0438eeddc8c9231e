"""Batches of events: events of one publisher and topic that share a message of the service.

Events that got their stamps in one answer have consecutive numbers, and the same numbers of higher
topics.  So one stamp, that of the first, stands for all.  A subscriber of the bare service gets the
message as it is: `decode_batch` gives it the payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cubecast.ordering.codec import OrderingError
from cubecast.ordering.effects import ServicePublish
from cubecast.ordering.timestamps import Stamp, Topic

MAX_BYTES = 64 * 1024
"""Payloads of one message, unless a single one is larger."""
MAX_STAMP_BYTES = 64 * 1024
"""Room left beside a payload in the largest message that a service takes."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Events of one topic, by the stamp of the first."""

    stamp: Stamp
    payloads: tuple[bytes, ...]

    def events(self) -> Iterator[tuple[Stamp, bytes]]:
        """Each event with its own stamp; `passed` is given for the first one only."""
        first = self.stamp
        yield first, self.payloads[0]
        for place in range(1, len(self.payloads)):
            stamp = Stamp(first.topic, first.number + place, first.higher, (), first.epoch)
            yield stamp, self.payloads[place]


_encode = msgspec.msgpack.Encoder().encode
_batches = msgspec.msgpack.Decoder(Batch)


def encode_batch(batch: Batch) -> bytes:
    return _encode(batch)


def decode_batch(data: bytes) -> Batch:
    """Decode events; `OrderingError` if the publisher does not order, or bytes are damaged."""
    try:
        batch = _batches.decode(data)
    except msgspec.DecodeError as error:
        raise OrderingError(f"an event without a stamp: {error}") from error
    if not batch.payloads or batch.stamp.number < 1:
        raise OrderingError(f"a stamp that no manager gives: number {batch.stamp.number}")
    return batch


def decode_arrived(topic: Topic, data: bytes) -> Batch:
    """Decode the events of a message of a topic; their stamps have to name the same topic."""
    batch = decode_batch(data)
    if batch.stamp.topic != topic:
        raise OrderingError(f"an event with a stamp of another topic, {batch.stamp.topic!r}")
    return batch


def batches(effects: Iterable[ServicePublish]) -> Iterator[Batch]:
    """The events to publish in one topic, in order, in as few messages as possible."""
    first: Stamp | None = None
    payloads: list[bytes] = []
    size = 0
    for effect in effects:
        stamp, payload = effect.timestamp, effect.payload
        assert isinstance(stamp, Stamp)
        assert isinstance(payload, bytes)
        if first is not None and (
            size + len(payload) > MAX_BYTES
            or stamp.passed
            or stamp.number != first.number + len(payloads)
            or stamp.higher != first.higher
            or stamp.epoch != first.epoch
        ):
            yield Batch(first, tuple(payloads))
            first, payloads, size = None, [], 0
        if first is None:
            first = stamp
        payloads.append(payload)
        size += len(payload)
    if first is not None:
        yield Batch(first, tuple(payloads))
