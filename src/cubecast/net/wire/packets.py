"""Bytes between nodes (docs/wire.md has the offsets).

Everything on a connection is a *packet*: four bytes of length, one of kind, and the rest.  A
publication's packet is immutable: a relay sends on the very bytes it received.  Publications and
ACKs are packed by hand, everything else is JSON of the tagged structures in
`cubecast.protocol.messages` and `cubecast.net.wire.hello`, checked against their types on the way
in.  Messages of light clients are in `cubecast.net.wire.clients`, those of views and failure
detection in `cubecast.net.wire.views`.

A packet is hostile until it is decoded: sizes are bounded before anything is allocated, and a
packet that does not add up raises `WireError`, which closes that connection and nothing else.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from struct import Struct
from struct import error as StructError
from typing import TypeAlias

import msgspec

from cubecast.net.topics import MAX_PAYLOAD as MAX_PAYLOAD
from cubecast.net.wire.headers import MAX_PREFIX, check_blob
from cubecast.protocol.errors import MAX_STREAMS
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Barrier,
    CaughtUp,
    Direct,
    Frame,
    Inquiry,
    Mute,
    Parcel,
    ParcelAck,
    Probe,
    Release,
    Route,
    Settled,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import Seq, Stream, Topic
from cubecast.protocol.subscriptions.links import Carried
from cubecast.protocol.subscriptions.topic_names import ENTRY, MAX_LISTING
from cubecast.protocol.topic.retained_values import RetainedValue

VERSION = 5
MAX_PACKET = 16 * 1024 * 1024
MESSAGE_OVERHEAD = 16
"""What a message costs besides its payload, so that empty ones are not free."""
FRAME_OVERHEAD = 400
BARRIER_OVERHEAD = 200
"""What a frame, and each entry of its barrier, takes in the memory of a node besides its messages,
about: a frame never costs less (`frame_cost`), so a window bounds memory and not payload alone."""
MAX_MESSAGES = 1 << 16
"""Messages of one frame."""
MAX_KEPT = 64 * 1024
"""Bytes of a retained value, its headers included: every answer to a JOIN carries one."""
MAX_TOPIC = 1024
"""Characters of a topic's name."""
MAX_SLOTS = 1 << 13
"""Slots on the wire are below this; a set of them is at most 1 KiB, or 2,467 digits of JSON."""
MAX_NUMBER = 1 << 62
"""Sequence numbers, routes and the like are below this, so that sums stay within 64 bits.  So is
the last message of a frame: nodes that have read it name it in barriers and answers."""
MAX_ROUTES = 4096
"""Routes a decoder remembers; one more and it begins anew."""

HEADED = 1 << 31
"""In the size of a message: it begins with headers (`headers.py`)."""
AT_A_TIME = 32
"""Payloads of one size are cut from a packet so many at a time, which takes half as long."""

FRAME = 1
ACK = 2
CONTROL = 3
HELLO = 4
CLIENT = 5
VIEW = 6
DETECTOR = 7
FORWARD = 8
PART = 9
SEALED = 10
ENVELOPE = 11

PREFIX = Struct("<IB")
HEADER = Struct("<QIQQIqQQQHHH")
"""topic, source, incarnation, first, count, stable, route, start, time; sizes of members, leaves
and barrier"""
DEPENDENCY = Struct("<IQQ")
ACK_HEADER = Struct("<QIQQqqBHH")
"""topic, source, incarnation, route, have, covered, asked; sizes of absent and slow"""

Control: TypeAlias = Probe | Direct | Inquiry | Parcel | ParcelAck
_encode_control = msgspec.json.Encoder().encode
_control_decoder: msgspec.json.Decoder[Control] = msgspec.json.Decoder(Control)


class WireError(ValueError):
    """A peer sent bytes that are not a packet of this protocol."""


@lru_cache(maxsize=1024)
def topic_id(topic: Topic) -> int:
    """The id of a topic: a hash of 64 bits, the same on every node."""
    return int.from_bytes(blake2b(topic.encode(), digest_size=8).digest(), "little")


class Payloads(Collection[object]):
    """The messages of a frame, cut from its packet when they are read.

    `raw` is the whole packet, `start` where the payloads begin in it, `sizes` one per message;
    `headed` are the places of messages with headers, which are cut as blobs (`headers.py`).
    """

    __slots__ = ("headed", "raw", "sizes", "start", "time")

    def __init__(
        self,
        raw: bytes,
        start: int,
        sizes: Sequence[int],
        time: int,
        headed: Sequence[int] = (),
    ) -> None:
        self.raw = raw
        self.start = start
        self.sizes = sizes
        self.time = time
        self.headed = headed

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.cut())

    def __contains__(self, payload: object) -> bool:
        return payload in self.cut()

    @property
    def content(self) -> int:
        """What the messages cost."""
        return len(self.raw) - self.start + MESSAGE_OVERHEAD * len(self.sizes)

    def cut(self) -> list[bytes]:
        """Every payload, as bytes of its own; those of one size are cut several at a time."""
        raw, start, sizes = self.raw, self.start, self.sizes
        payloads: list[bytes] = []
        size = sizes[0]
        if size > 0 and len(sizes) >= AT_A_TIME and sizes.count(size) == len(sizes):
            end = start + len(sizes) // AT_A_TIME * AT_A_TIME * size
            for several in _several(size).iter_unpack(memoryview(raw)[start:end]):
                payloads += several
            start = end
            sizes = sizes[len(payloads) :]
        for size in sizes:
            end = start + size
            payloads.append(raw[start:end])
            start = end
        return payloads


@lru_cache(maxsize=64)
def _several(size: int) -> Struct:
    return Struct(f"{size}s" * AT_A_TIME)


class OutgoingFrame(Collection[object]):
    """The messages of a frame we publish; becomes a packet once the frame has its number.

    `headed` are the places of those with headers, which are blobs (`headers.py`).
    """

    __slots__ = ("headed", "payloads", "raw", "time")

    def __init__(self, payloads: list[bytes], time: int, headed: Sequence[int] = ()) -> None:
        self.payloads = payloads
        self.time = time
        self.headed = headed
        self.raw: bytes | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.payloads)

    def __contains__(self, payload: object) -> bool:
        return payload in self.payloads

    @property
    def content(self) -> int:
        """What the messages cost."""
        return sum(map(len, self.payloads)) + MESSAGE_OVERHEAD * len(self.payloads)


class Lasting(OutgoingFrame):
    """The body of a retained value that is handed to a subscription which began after it."""

    __slots__ = ()


def _mask_bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def encode_frame(frame: Frame) -> bytes:
    """The packet of a frame; computed once, by its publisher."""
    body = frame.body
    if isinstance(body, Payloads):
        return body.raw
    assert isinstance(body, OutgoingFrame)
    if body.raw is not None:
        return body.raw
    members = _mask_bytes(frame.route.members)
    leaves = _mask_bytes(frame.route.leaves)
    sizes = array("I", map(len, body.payloads))
    for index in body.headed:
        sizes[index] |= HEADED
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
        len(leaves),
        len(barrier),
    )
    dependencies = b"".join([DEPENDENCY.pack(*stream, seq) for stream, seq in barrier])
    payloads = b"".join(body.payloads)
    parts = header, members, leaves, dependencies, sizes.tobytes(), payloads
    length = 1 + sum(map(len, parts))
    if length > MAX_PACKET:
        raise WireError(f"a frame of {length} bytes is larger than {MAX_PACKET}")
    body.raw = b"".join([PREFIX.pack(length, FRAME), *parts])
    return body.raw


def frame_overhead(dependencies: int) -> int:
    """What a frame takes besides its messages; the same at its publisher and everywhere else."""
    return FRAME_OVERHEAD + BARRIER_OVERHEAD * dependencies


def frame_cost(content: int, dependencies: int) -> int:
    """The credit that a frame takes: its messages, or its overhead if that is more.

    Its memory is at most twice as much.  The sum of both would tie a message's cost to the frame
    it is in: a reader that finishes a message of a large frame gives back less than the same
    message takes in a small one, and its publisher falls behind it.  So a frame that is worth its
    overhead costs what its messages do, however they are divided.
    """
    return max(content, frame_overhead(dependencies))


def content_size(frame: Frame) -> int:
    """The payloads of a frame and what its messages cost, which is what applications count."""
    if frame.size > frame_overhead(len(frame.barrier)):
        return frame.size
    body = frame.body
    assert isinstance(body, Payloads | OutgoingFrame)
    return body.content


class FrameDecoder:
    """Packets into frames; remembers the last route of each stream and topic to share it.

    A route is shared only by frames that state the very same one, so no frame can change the
    route of another.
    """

    def __init__(self) -> None:
        self._routes: dict[tuple[int, int, int], tuple[Stream, Route, bytes, int]] = {}

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
            leaves_size,
            barrier_size,
        ) = HEADER.unpack_from(raw, PREFIX.size)
        topic = topics.get(ident)
        if topic is None:
            return None
        if not (-1 <= stable < first and first + count <= MAX_NUMBER and start <= first):
            raise ValueError(f"first {first}, stable {stable} and start {start} are at odds")
        if number >= MAX_NUMBER:
            raise ValueError(f"a route number of {number}")
        offset = PREFIX.size + HEADER.size
        masks = raw[offset : offset + mask_size + leaves_size]
        known = self._routes.get((ident, source, incarnation))
        if (
            known is None
            or known[1].number != number
            or known[1].start != start
            or known[2] != masks
            or known[3] != mask_size
        ):
            stream = Stream(source, incarnation)
            known = self._new_route(ident, stream, number, start, masks, mask_size)
        stream, route, _, _ = known
        offset += mask_size + leaves_size
        barrier = _barrier(raw, offset, barrier_size) if barrier_size else ()
        offset += barrier_size * DEPENDENCY.size
        end = offset + 4 * count
        sizes = array("I")
        sizes.frombytes(raw[offset:end])
        if sys.byteorder == "big":
            sizes.byteswap()
        headed: Sequence[int] = ()
        if end + sum(sizes) != len(raw):  # some have headers, or nothing adds up
            headed = _take_marks(sizes)
        if not 0 < count <= MAX_MESSAGES or len(sizes) != count or end + sum(sizes) != len(raw):
            raise ValueError(f"{count} messages do not fill {len(raw) - offset} bytes")
        if headed:
            _check_headers(raw, end, sizes, headed)
        body = Payloads(raw, end, sizes, time, headed)
        size = frame_cost(body.content, barrier_size)
        return Frame(topic, stream, first, barrier, route, stable, body, size)

    def _new_route(
        self, ident: int, stream: Stream, number: int, start: Seq, masks: bytes, mask_size: int
    ) -> tuple[Stream, Route, bytes, int]:
        """Read a route we have not seen, or not lately."""
        if mask_size * 8 > MAX_SLOTS or stream.source >= MAX_SLOTS:
            raise ValueError(f"slots above {MAX_SLOTS}")
        members = int.from_bytes(masks[:mask_size], "little")
        leaves = int.from_bytes(masks[mask_size:], "little")
        if leaves & ~members:
            raise ValueError("leaves that are not members")
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        known = stream, Route(number, start, members, leaves), masks, mask_size
        self._routes[ident, stream.source, stream.incarnation] = known
        return known


def _take_marks(sizes: array[int]) -> list[int]:
    """The places of messages with headers; afterwards `sizes` are sizes and nothing else."""
    headed = [index for index, size in enumerate(sizes) if size & HEADED]
    for index in headed:
        sizes[index] ^= HEADED
    return headed


def _check_headers(raw: bytes, start: int, sizes: array[int], headed: Sequence[int]) -> None:
    """ValueError unless every message that is said to have headers has good ones."""
    starts = list(accumulate(sizes, initial=start))
    for index in headed:
        # Headers and no more: the payload, which may be large, is not copied.
        check_blob(raw[starts[index] : min(starts[index + 1], starts[index] + MAX_PREFIX)])


def _barrier(raw: bytes, offset: int, count: int) -> Barrier:
    """The dependencies of a frame; `count` is bounded by its two bytes."""
    end = offset + count * DEPENDENCY.size
    if end > len(raw):
        raise ValueError(f"a barrier of {count} entries")
    barrier = []
    for source, incarnation, seq in DEPENDENCY.iter_unpack(raw[offset:end]):
        if source >= MAX_SLOTS or seq >= MAX_NUMBER:
            raise ValueError(f"a dependency on {seq} of slot {source}")
        barrier.append((Stream(source, incarnation), seq))
    return tuple(barrier)


def encode_ack(ack: Ack) -> bytes:
    """The packet of an ACK."""
    absent = _mask_bytes(ack.absent)
    slow = _mask_bytes(ack.slow)
    packed = ACK_HEADER.pack(
        topic_id(ack.topic),
        ack.stream.source,
        ack.stream.incarnation,
        ack.route,
        ack.have,
        ack.covered,
        ack.asked,
        len(absent),
        len(slow),
    )
    length = 1 + len(packed) + len(absent) + len(slow)
    return PREFIX.pack(length, ACK) + packed + absent + slow


def decode_ack(raw: bytes, topics: dict[int, Topic]) -> Ack | None:
    """The ACK in packet `raw`; None if its topic is none of `topics`."""
    try:
        fields = ACK_HEADER.unpack_from(raw, PREFIX.size)
    except StructError as error:
        raise WireError(f"broken ACK: {error}") from error
    ident, source, incarnation, route, have, covered, asked, absent_size, slow_size = fields
    absent_at = PREFIX.size + ACK_HEADER.size
    slow_at = absent_at + absent_size
    if slow_at + slow_size != len(raw) or max(absent_size, slow_size) * 8 > MAX_SLOTS:
        raise WireError("broken ACK: wrong length")
    if not (-1 <= covered <= have < MAX_NUMBER and source < MAX_SLOTS and asked <= 1):
        raise WireError(f"broken ACK: {covered} covered of {have} by slot {source}")
    topic = topics.get(ident)
    if topic is None:
        return None
    absent = int.from_bytes(raw[absent_at:slow_at], "little")
    slow = int.from_bytes(raw[slow_at:], "little")
    stream = Stream(source, incarnation)
    return Ack(topic, stream, route, have, covered, absent, asked != 0, slow)


def encode_control(message: Control) -> bytes:
    """The packet of any other message of the protocol."""
    body = _encode_control(message)
    return PREFIX.pack(1 + len(body), CONTROL) + body


def decode_control(raw: bytes) -> Control:
    """The message in packet `raw`, checked against its type and the bounds of its numbers."""
    try:
        message = _control_decoder.decode(raw[PREFIX.size :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"broken control message: {error}") from error
    if not _within_bounds(message):
        raise WireError(f"broken control message: {type(message).__name__} out of bounds")
    return message


def _within_bounds(message: Control | Carried) -> bool:
    """Whether every slot, number and set of slots is one that the protocol could have sent."""
    match message:
        case Parcel():
            return _number(message.number) and _within_bounds(message.message)
        case ParcelAck():
            return _number(message.expected)
        case Probe():
            return _topic(message.topic) and _stream(message.stream) and _route(message.route)
        case Direct():
            seqs = message.start, message.last, message.stable + 1
            return (
                _topic(message.topic)
                and _stream(message.stream)
                and _route(message.route)
                and all(map(_number, seqs))
                and -1 <= message.epoch < MAX_NUMBER
            )
        case CaughtUp():
            return True
        case Mute():
            return (
                _topic(message.topic)
                and _slot(message.slot)
                and _number(message.waited)
                and _number(message.epoch)
            )
        case Inquiry():
            return _topic(message.topic) and _stream(message.stream)
        case Release():
            return _topic(message.topic) and _stream(message.stream) and _number(message.wave)
        case Settled():
            return (
                _topic(message.topic)
                and _stream(message.stream)
                and -1 <= message.seq < MAX_NUMBER
                and _number(message.epoch)
            )
        case Suspended():
            return _topic(message.topic) and _stream(message.stream) and _route(message.route)
        case Stable():
            return (
                _topic(message.topic)
                and _stream(message.stream)
                and _route(message.route)
                and _number(message.start)
                and _number(message.seq)
                and _set(message.members)
            )
        case Wave():
            return (
                _topic(message.topic)
                and _slot(message.origin)
                and _number(message.number)
                and _number(message.epoch)
                and _number(message.since)
                and _number(message.apart)
                and _set(message.cluster)
            )
        case Answer():
            return (
                _topic(message.topic)
                and len(message.vector) <= MAX_STREAMS
                and _slot(message.origin)
                and _number(message.number)
                and _number(message.epoch)
                and all(_stream(stream) and _number(seq) for stream, seq in message.vector)
                and len(message.over) <= MAX_STREAMS
                and all(_stream(stream) and _number(last + 1) for stream, last in message.over)
                and len(message.own) <= MAX_SLOTS
                and all(_stream(stream) and _number(last + 1) for stream, last in message.own)
                and _set(message.members)
                and _set(message.lossy)
                and _listing(message.topics)
                and (message.kept is None or _kept(message.kept))
            )


def _topic(topic: Topic) -> bool:
    return len(topic) <= MAX_TOPIC


def _slot(slot: int) -> bool:
    return 0 <= slot < MAX_SLOTS


def _number(number: int) -> bool:
    return 0 <= number < MAX_NUMBER


def _route(number: int) -> bool:
    return 0 <= number < MAX_NUMBER


def _set(members: int) -> bool:
    return members >= 0 and members.bit_length() <= MAX_SLOTS


def _listing(topics: tuple[tuple[Topic, int], ...]) -> bool:
    """As many names as an answer may have."""
    return len(topics) <= MAX_LISTING // ENTRY and all(
        _topic(topic) and _set(members) for topic, members in topics
    )


def _kept(value: RetainedValue) -> bool:
    """A retained value that a subscription can be handed."""
    if not (_stream(value.stream) and _number(value.seq) and _number(value.time)):
        return False
    if len(value.blob) > MAX_KEPT:
        return False
    try:
        check_blob(value.blob)
    except ValueError:
        return False
    return True


def _stream(stream: Stream) -> bool:
    return _slot(stream.source) and 0 <= stream.incarnation < 1 << 64
