"""Every decoder of the wire against random and mutated packets, without a socket.

Only `WireError` may come out, or what a decoder documents; no call may take long or much memory.
A block of packets is drawn from its own seed, so each can be repeated alone.
"""

from __future__ import annotations

import time
import traceback
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from cubecast.net.security.envelopes import Envelopes, seal_envelope
from cubecast.net.security.noise import CipherState
from cubecast.net.security.sealing import Opener, Sealer, lock
from cubecast.net.wire.clients import decode_from_client, decode_from_node
from cubecast.net.wire.hello import decode_greeting, decode_introduction
from cubecast.net.wire.packet_buffer import SEAL_BYTES, PacketBuffer, cut_packets
from cubecast.net.wire.packets import (
    ACK,
    CLIENT,
    CONTROL,
    DETECTOR,
    FORWARD,
    FRAME,
    HELLO,
    MAX_PACKET,
    MAX_ROUTES,
    PART,
    PREFIX,
    SEALED,
    VIEW,
    FrameDecoder,
    WireError,
    decode_ack,
    decode_control,
    topic_id,
)
from cubecast.net.wire.parts import MAX_HELD, Parts
from cubecast.net.wire.views import decode_detector, decode_forward, decode_view
from cubecast.testing.fuzz.grammar import Lore
from cubecast.testing.fuzz.mutation import Mutator
from cubecast.testing.fuzz.packets import Maker

Decoder = Callable[[bytes], Any]

SLOW_S = 1.0
"""CPU time that one call may take; the largest packets made here take some 10 ms."""
BYTES_PER_BYTE = 400
SPARE_BYTES = 1 << 20
"""Memory that decoding may take: so much for each byte of a packet, and this besides."""
MEASURE_EVERY = 50
"""Memory is traced for one packet of so many: that takes ten times as long."""
KEY = bytes(range(32))


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, and the maker of packets for it."""

    name: str
    decode: Decoder
    make: Callable[[Maker], bytes]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A decoder did what it must not."""

    what: str
    """One line: which decoder, and which error."""
    detail: str
    packet: bytes


class _Frames:
    """One decoder for all packets, as a node has it: what it remembers is bounded."""

    def __init__(self, topics: Mapping[int, str]) -> None:
        self._decoder = FrameDecoder()
        self._topics = dict(topics)

    def __call__(self, raw: bytes) -> None:
        frame = self._decoder.decode(raw, self._topics)
        if frame is not None:
            assert len(list(frame.body)) == len(frame.body)
        assert len(self._decoder._routes) <= MAX_ROUTES


class _Joined:
    """Parts of several connections, as a node gathers them."""

    def __init__(self) -> None:
        self._parts = Parts()

    def __call__(self, raw: bytes) -> None:
        self._parts.take(raw[-1:] if len(raw) % 3 else b"", raw)
        assert 0 <= self._parts.held <= MAX_HELD


def _cut(raw: bytes) -> None:
    packets: list[tuple[int, bytes]] = []
    cut_packets(raw, MAX_PACKET, packets)
    assert b"".join(packet for _, packet in packets) == raw


def _buffered(raw: bytes) -> None:
    PacketBuffer().feed(raw)


def _records(raw: bytes) -> None:
    """Bytes of a peer that has shaken hands: sealed ones are opened, and cut.

    Every other time the first of them are near the limit of the buffer, a little above or below.
    """
    limit = MAX_PACKET
    if len(raw) % 2 and len(raw) >= PREFIX.size:
        limit = max(1, PREFIX.unpack_from(raw)[0] - len(raw) % SEAL_BYTES)
    opener, buffer = Opener(CipherState(KEY), Envelopes()), PacketBuffer(limit)
    start = 0
    while start < len(raw):
        room = buffer.room()
        piece = raw[start : start + min(len(room), 4096)]
        room[: len(piece)] = piece
        buffer.filled(len(piece))
        assert all(len(packet) <= 4 + limit for _, packet in buffer.records(opener))
        start += len(piece)


def _of(kind: int) -> Callable[[Maker], bytes]:
    return lambda maker: maker.make(kind)


def _several(maker: Maker) -> bytes:
    return b"".join(maker.make(maker.random.randrange(1, 10)) for _ in range(3))


def _sealed(maker: Maker) -> bytes:
    """What opens, mostly: an envelope or none, then a record; garbage may well be sealed."""
    plain = _several(maker)
    if maker.random.random() < 0.5:
        plain = plain[: maker.random.randrange(len(plain))] + maker.random.randbytes(3)
    cipher = CipherState(KEY)
    sealed = b""
    if maker.random.random() < 0.5:
        envelope = seal_envelope(maker.make(FRAME) if maker.random.random() < 0.8 else plain)
        sealed = lock(envelope, cipher) + envelope.sealed
    sealed += b"".join(Sealer(cipher, Envelopes()).records([plain]))
    return sealed if maker.random.random() < 0.5 else sealed + _several(maker)


def _introduced(maker: Maker) -> bytes:
    return PREFIX.pack(1, HELLO) + maker.introduction()


def targets(lore: Lore) -> list[Target]:
    """Every decoder there is."""
    topics = {topic_id(topic): topic for topic in lore.topics}
    return [
        Target("frame", _Frames(topics), _of(FRAME)),
        Target("ack", lambda raw: decode_ack(raw, topics), _of(ACK)),
        Target("control", decode_control, _of(CONTROL)),
        Target("greeting", decode_greeting, _of(HELLO)),
        Target("introduction", lambda raw: decode_introduction(raw[PREFIX.size :]), _introduced),
        Target("from client", decode_from_client, _of(CLIENT)),
        Target("from node", decode_from_node, Maker.from_node),
        Target("view", decode_view, _of(VIEW)),
        Target("detector", decode_detector, _of(DETECTOR)),
        Target("forward", decode_forward, _of(FORWARD)),
        Target("part", _Joined(), _of(PART)),
        Target("cut", _cut, _several),
        Target("buffer", _buffered, _several),
        Target("records", _records, _sealed),
        Target("unknown kind", _records, _of(SEALED)),
    ]


def fuzz_decoders(
    seed: str, count: int, chosen: list[Target] | None = None
) -> tuple[int, list[Complaint]]:
    """Decode `count` packets; how many were refused, and the complaints, one of each kind."""
    random = Random(seed)
    lore = Lore(lives={0: 5, 1: 1 << 40, 2: 3}, uids=["fuzz", "a" * 32, "b.1"])
    maker, mutator = Maker(random, lore), Mutator(random)
    chosen = targets(lore) if chosen is None else chosen
    recent: list[bytes] = []
    complaints: dict[str, Complaint] = {}
    refused = 0
    for index in range(count):
        target = random.choice(chosen)
        raw = _packet(target, maker, mutator, recent)
        measure = index % MEASURE_EVERY == 0
        complaint, accepted = _judge(target, raw, measure)
        refused += not accepted
        if complaint is not None:
            complaints.setdefault(complaint.what, complaint)
    return refused, list(complaints.values())


def _packet(target: Target, maker: Maker, mutator: Mutator, recent: list[bytes]) -> bytes:
    """One in ten random, three as an honest peer makes them, the others changed."""
    random = maker.random
    shape = random.random()
    if shape < 0.1:
        return PREFIX.pack(1, random.randrange(12)) + random.randbytes(random.randrange(300))
    raw = target.make(maker)
    recent.append(raw)
    del recent[:-20]
    return raw if shape < 0.4 or len(raw) < PREFIX.size else mutator.mutate(raw, recent)


def _judge(target: Target, raw: bytes, measure: bool) -> tuple[Complaint | None, bool]:
    """The complaint about a decoder's work on a packet, if any, and whether it took it."""
    accepted, wrong, detail = True, "", ""
    if measure:
        tracemalloc.start()
    started = time.thread_time()
    try:
        target.decode(raw)
    except WireError:
        accepted = False
    except Exception as error:
        wrong, detail = f"raises {type(error).__name__}", traceback.format_exc()
    seconds = time.thread_time() - started
    if measure:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak > BYTES_PER_BYTE * len(raw) + SPARE_BYTES:
            wrong = wrong or "takes much memory"
            detail += f"{peak} bytes for a packet of {len(raw)}\n"
    if seconds > SLOW_S:
        wrong = wrong or "is slow"
        detail += f"{seconds:.2f} s of CPU time for a packet of {len(raw)} bytes\n"
    if not wrong:
        return None, accepted
    return Complaint(f"decoder {target.name} {wrong}", detail, raw), accepted
