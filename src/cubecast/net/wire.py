"""Bytes between nodes (docs/wire.md has the offsets).

Everything on a connection is a *packet*: four bytes of length, one of kind, and the rest.  A
publication's packet is immutable: a relay sends on the very bytes it received.  Publications and
ACKs are packed by hand, everything else is JSON of the tagged structures in
`cubecast.protocol.messages` and `cubecast.net.hello`, checked against their types on the way in.

Whatever comes in is hostile until it is decoded: sizes are bounded before anything is allocated,
and a packet that does not add up raises `WireError`, which closes that connection and nothing
else.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import TypeAlias

import msgspec

from cubecast.protocol.messages import Ack, Frame, Parcel, ParcelAck, Probe, Route
from cubecast.protocol.port import Stream, Topic

VERSION = 1
MAX_PACKET = 16 * 1024 * 1024
MAX_MEMBERS_BYTES = (1 << 16) // 8
MAX_BARRIER = 1 << 16

FRAME = 1
ACK = 2
CONTROL = 3
HELLO = 4

PREFIX = Struct("<IB")
HEADER = Struct("<QIQQIqIQQHH")
"""topic, source, incarnation, first, count, stable, route, start, time, mask and barrier sizes"""
DEPENDENCY = Struct("<IQQ")
ACK_HEADER = Struct("<QIQIqqBH")
"""topic, source, incarnation, route, have, covered, asked, mask size"""

Control: TypeAlias = Probe | Parcel | ParcelAck
_encode_control = msgspec.json.Encoder().encode
_control_decoder: msgspec.json.Decoder[Control] = msgspec.json.Decoder(Control)


class WireError(ValueError):
    """A peer sent bytes that are not a packet of this protocol."""


def topic_id(topic: Topic) -> int:
    """The same 64 bits for a topic on every node, without asking anyone."""
    return int.from_bytes(blake2b(topic.encode(), digest_size=8).digest(), "little")


class Payloads(Collection[object]):
    """The messages of a frame, cut from its packet when somebody reads them.

    `raw` is the whole packet, `start` where the payloads begin in it, `sizes` one per message.
    """

    __slots__ = ("raw", "sizes", "start", "time")

    def __init__(self, raw: bytes, start: int, sizes: Sequence[int], time: int) -> None:
        self.raw = raw
        self.start = start
        self.sizes = sizes
        self.time = time

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        start = self.start
        for size in self.sizes:
            yield self.raw[start : start + size]
            start += size

    def __contains__(self, payload: object) -> bool:
        return any(payload == mine for mine in self)


class Outgoing(Collection[object]):
    """The messages of a frame we publish; becomes a packet once the frame has its number."""

    __slots__ = ("payloads", "raw", "time")

    def __init__(self, payloads: list[bytes], time: int) -> None:
        self.payloads = payloads
        self.time = time
        self.raw: bytes | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.payloads)

    def __contains__(self, payload: object) -> bool:
        return payload in self.payloads


def _mask_bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def encode_frame(frame: Frame) -> bytes:
    """The packet of a frame; computed once, by its publisher."""
    body = frame.body
    if isinstance(body, Payloads):
        return body.raw
    assert isinstance(body, Outgoing)
    if body.raw is not None:
        return body.raw
    members = _mask_bytes(frame.route.members)
    sizes = array("I", map(len, body.payloads))
    if sys.byteorder == "big":
        sizes.byteswap()
    barrier = frame.barrier
    header = HEADER.pack(
        topic_id(frame.topic),
        frame.stream.source,
        frame.stream.incarnation,
        frame.first,
        len(body.payloads),
        frame.stable,
        frame.route.number,
        frame.route.start,
        body.time,
        len(members),
        len(barrier),
    )
    parts = [
        header,
        members,
        *(DEPENDENCY.pack(stream[0], stream[1], seq) for stream, seq in barrier),
        sizes.tobytes(),
        *body.payloads,
    ]
    length = 1 + sum(map(len, parts))
    if length > MAX_PACKET:
        raise WireError(f"a frame of {length} bytes is larger than {MAX_PACKET}")
    body.raw = b"".join([PREFIX.pack(length, FRAME), *parts])
    return body.raw


class FrameDecoder:
    """Packets into frames; remembers the last route of each stream to share it."""

    def __init__(self) -> None:
        self._routes: dict[Stream, Route] = {}

    def decode(self, raw: bytes, topics: dict[int, Topic]) -> Frame | None:
        """The frame in packet `raw`; None if its topic is none of `topics`."""
        try:
            return self._decode(raw, topics)
        except (StructError, ValueError, OverflowError) as error:
            raise WireError(f"broken frame: {error}") from error

    def _decode(self, raw: bytes, topics: dict[int, Topic]) -> Frame | None:
        (
            ident,
            source,
            incarnation,
            first,
            count,
            stable,
            number,
            start,
            time,
            mask_size,
            barrier_size,
        ) = HEADER.unpack_from(raw, PREFIX.size)
        topic = topics.get(ident)
        if topic is None:
            return None
        offset = PREFIX.size + HEADER.size
        stream = Stream(source, incarnation)
        route = self._routes.get(stream)
        if route is None or route.number != number:
            if mask_size > MAX_MEMBERS_BYTES:
                raise ValueError(f"{mask_size} bytes of members")
            members = int.from_bytes(raw[offset : offset + mask_size], "little")
            route = self._routes[stream] = Route(number, start, members)
        offset += mask_size
        barrier = []
        for _ in range(barrier_size):
            their_source, their_incarnation, seq = DEPENDENCY.unpack_from(raw, offset)
            barrier.append((Stream(their_source, their_incarnation), seq))
            offset += DEPENDENCY.size
        end = offset + 4 * count
        sizes = array("I")
        sizes.frombytes(raw[offset:end])
        if sys.byteorder == "big":
            sizes.byteswap()
        if count == 0 or len(sizes) != count or end + sum(sizes) != len(raw):
            raise ValueError(f"{count} messages do not fill {len(raw) - offset} bytes")
        size = len(raw) - end
        body = Payloads(raw, end, sizes, time)
        return Frame(topic, stream, first, tuple(barrier), route, stable, body, size)


def encode_ack(ack: Ack) -> bytes:
    """The packet of an ACK."""
    absent = _mask_bytes(ack.absent)
    packed = ACK_HEADER.pack(
        topic_id(ack.topic),
        ack.stream.source,
        ack.stream.incarnation,
        ack.route,
        ack.have,
        ack.covered,
        ack.asked,
        len(absent),
    )
    return PREFIX.pack(1 + len(packed) + len(absent), ACK) + packed + absent


def decode_ack(raw: bytes, topics: dict[int, Topic]) -> Ack | None:
    """The ACK in packet `raw`; None if its topic is none of `topics`."""
    try:
        ident, source, incarnation, route, have, covered, asked, mask_size = ACK_HEADER.unpack_from(
            raw, PREFIX.size
        )
    except StructError as error:
        raise WireError(f"broken ACK: {error}") from error
    offset = PREFIX.size + ACK_HEADER.size
    if offset + mask_size != len(raw):
        raise WireError("broken ACK: wrong length")
    topic = topics.get(ident)
    if topic is None:
        return None
    absent = int.from_bytes(raw[offset:], "little")
    return Ack(topic, Stream(source, incarnation), route, have, covered, absent, asked != 0)


def encode_control(message: Control) -> bytes:
    """The packet of any other message of the protocol."""
    body = _encode_control(message)
    return PREFIX.pack(1 + len(body), CONTROL) + body


def decode_control(raw: bytes) -> Control:
    """The message in packet `raw`, checked against its type."""
    try:
        return _control_decoder.decode(raw[PREFIX.size :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"broken control message: {error}") from error


class PacketBuffer:
    """Cuts a stream of bytes into packets; keeps at most one incomplete packet."""

    __slots__ = ("_rest", "limit")

    def __init__(self, limit: int = MAX_PACKET) -> None:
        self._rest = b""
        self.limit = limit

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The packets (kind, whole packet) that `data` completes."""
        if self._rest:
            data = self._rest + data
        packets: list[tuple[int, bytes]] = []
        offset = 0
        total = len(data)
        while total - offset >= PREFIX.size:
            length, kind = PREFIX.unpack_from(data, offset)
            if not 1 <= length <= self.limit:
                raise WireError(f"a packet of {length} bytes")
            end = offset + 4 + length
            if end > total:
                break
            packets.append((kind, data[offset:end]))
            offset = end
        self._rest = data[offset:]
        return packets
