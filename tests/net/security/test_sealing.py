"""Sealed packets: how they are put together, cut apart, and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.net.security.envelopes import Envelopes
from cubecast.net.security.noise import CipherState
from cubecast.net.security.sealing import ALONE_BYTES, RECORD_BYTES, Opener, Sealer
from cubecast.net.wire.packet_buffer import SEAL_BYTES, PacketBuffer
from cubecast.net.wire.packets import MAX_PACKET, PREFIX, SEALED, WireError

KEY = bytes(range(32))


def packet(size: int, kind: int = 3) -> bytes:
    return PREFIX.pack(1 + size, kind) + bytes(size)


def ends() -> tuple[Sealer, Opener]:
    return Sealer(CipherState(KEY), Envelopes()), Opener(CipherState(KEY), Envelopes())


def received(data: bytes, unseal: Opener, step: int = 1 << 20) -> list[tuple[int, bytes]]:
    """What comes out at the other end of a stream that is cut anyhow."""
    buffer = PacketBuffer()
    packets: list[tuple[int, bytes]] = []
    while data:
        room = buffer.room()
        piece = data[: min(step, len(room))]
        room[: len(piece)] = piece
        buffer.filled(len(piece))
        data = data[len(piece) :]
        packets += buffer.records(unseal)
    return packets


@given(
    st.lists(st.lists(st.integers(0, 2 * ALONE_BYTES), max_size=6), max_size=3),
    st.integers(200, 100_000),
)
def test_packets_come_out_as_they_went_in(bursts: list[list[int]], step: int) -> None:
    sealer, opener = ends()
    wanted: list[bytes] = []
    stream = b""
    for sizes in bursts:
        packets = [packet(size) for size in sizes]
        wanted += packets
        stream += b"".join(sealer.records(packets))
    assert [raw for _, raw in received(stream, opener, step)] == wanted


def test_small_packets_share_a_seal_and_large_ones_do_not() -> None:
    sealer, _ = ends()
    assert len(sealer.records([packet(1), packet(2)])) == 2 * 2  # the very first goes alone
    assert len(sealer.records([packet(1), packet(2), packet(3)])) == 2
    assert len(sealer.records([packet(1), packet(ALONE_BYTES), packet(1), packet(2)])) == 6
    many = [packet(1000)] * 1000
    assert len(sealer.records(many)) == 2 * -(-1000 // (RECORD_BYTES // len(many[0])))
    assert sealer.records([]) == []


def test_the_largest_packet_fits() -> None:
    sealer, opener = ends()
    largest = packet(MAX_PACKET - 1)
    stream = b"".join(sealer.records([largest]))
    assert received(stream, opener) == [(3, largest)]
    assert len(stream) - len(largest) < SEAL_BYTES


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (b"abc", "half a packet"),
        (PREFIX.pack(100, 3), "a packet of 100 bytes in 5"),
        (PREFIX.pack(0, 3), "a packet of 0 bytes"),
        (packet(3) + b"x", "half a packet"),
        (PREFIX.pack(MAX_PACKET + 1, 3), "a packet of"),
    ],
)
def test_the_content_of_a_sealed_packet_is_checked_too(plain: bytes, reason: str) -> None:
    cipher, opener = CipherState(KEY), Opener(CipherState(KEY), Envelopes())
    sealed = cipher.seal(plain)
    with pytest.raises(WireError, match=reason):
        received(PREFIX.pack(1 + len(sealed), SEALED) + sealed, opener)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packet(10), "not sealed"),
        (PREFIX.pack(MAX_PACKET + SEAL_BYTES + 1, SEALED), "a packet of"),
        (PREFIX.pack(1, SEALED), "does not open"),
        (PREFIX.pack(33, SEALED) + bytes(32), "does not open"),
    ],
)
def test_an_unsealed_packet_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        received(data, ends()[1])
