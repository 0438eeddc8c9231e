"""Envelopes: a frame for several nodes is sealed once, and opens only as it was sent."""

from __future__ import annotations

import logging
import random
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import permutations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from cubecast.net.links import connection
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.security.envelopes import (
    ENVELOPE_BYTES,
    KEY_BYTES,
    LOCK_BYTES,
    NONCE_BYTES,
    Envelope,
    Envelopes,
    seal_envelope,
)
from cubecast.net.security.noise import TAG_BYTES, CipherState
from cubecast.net.security.sealing import Opener, Sealer, lock
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire import parts
from cubecast.net.wire.packet_buffer import SEAL_BYTES, STEADY_ROOM, PacketBuffer
from cubecast.net.wire.packets import (
    CONTROL,
    ENVELOPE,
    FRAME,
    MAX_PACKET,
    PREFIX,
    WireError,
    encode_frame,
)
from cubecast.protocol.messages import Frame
from support.live import TOPIC, cluster, join, live, still_works, subscribed, take, until

SECRET = "open sesame, please"
FIRST = PREFIX.pack(1, CONTROL)
"""The first packet of a connection has a seal to itself, so tests send it before frames."""


def packet(size: int, kind: int = FRAME, seed: int = 0) -> bytes:
    return PREFIX.pack(size - 4, kind) + random.Random(seed).randbytes(size - PREFIX.size)


class Link:
    """A connection between two nodes: what one writes, the other reads."""

    def __init__(self, number: int, here: Envelopes, there: Envelopes | None = None) -> None:
        key = bytes([number]) * 32
        self.cipher = CipherState(key)
        self.sealer = Sealer(self.cipher, here)
        self.far_cipher = CipherState(key)
        self.opener = Opener(self.far_cipher, Envelopes() if there is None else there)
        self.buffer = PacketBuffer(MAX_PACKET)
        self.read(self.write([FIRST]))

    def write(self, packets: list[bytes]) -> bytes:
        return b"".join(self.sealer.records(packets))

    def read(self, data: bytes) -> list[bytes]:
        """The packets in `data`, which comes as fast as the buffer has room."""
        found = []
        while data:
            room = self.buffer.room()
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            self.buffer.filled(len(piece))
            found += self.buffer.records(self.opener)
        return [raw for _, raw in found]


def test_a_frame_for_three_nodes_is_sealed_once() -> None:
    envelopes = Envelopes()
    links = [Link(number, envelopes) for number in range(3)]
    frame = packet(ENVELOPE_BYTES)
    envelopes.share(frame)
    written = [link.write([frame]) for link in links]
    assert [data[4] for data in written] == [ENVELOPE] * 3
    assert len({data[PREFIX.size + LOCK_BYTES :] for data in written}) == 1
    assert len({data[PREFIX.size : PREFIX.size + LOCK_BYTES] for data in written}) == 3
    assert all(frame[PREFIX.size : 99] not in data for data in written)
    assert [link.read(data) for link, data in zip(links, written, strict=True)] == [[frame]] * 3


def test_no_two_frames_have_the_same_key() -> None:
    """The nonce is fixed by no counter, so the key must be new each time, for equal frames too."""
    frame = packet(ENVELOPE_BYTES)
    made = [seal_envelope(frame) for _ in range(100)]
    assert len({one.secret for one in made}) == len({one.sealed for one in made}) == 100


@pytest.mark.parametrize(
    "frames", [[packet(ENVELOPE_BYTES - 1)], [packet(100)] * 3, [packet(60_000, CONTROL)]]
)
def test_small_packets_and_packets_for_one_node_have_no_envelope(frames: list[bytes]) -> None:
    envelopes = Envelopes()
    link = Link(1, envelopes)
    for frame in frames:
        if len(frame) < ENVELOPE_BYTES:
            envelopes.share(frame)
    data = link.write(frames)
    assert data[4] != ENVELOPE
    assert link.read(data) == frames
    assert len(envelopes) == 0


def test_a_packet_that_is_shared_is_held_so_that_no_other_is_taken_for_it() -> None:
    """Packets are known by identity, which the next one takes when a packet is gone."""
    envelopes = Envelopes()
    envelopes.share(packet(ENVELOPE_BYTES))
    for seed in range(20):
        assert envelopes.of(packet(ENVELOPE_BYTES, seed=seed)) is None


def test_a_relay_sends_the_envelope_on_as_it_came() -> None:
    """Also when it has one child only, which no publisher would make an envelope for."""
    source, middle = Envelopes(), Envelopes()
    first, second = Link(1, source, middle), Link(2, middle)
    frame = packet(100_000)
    source.share(frame)
    came = first.write([frame])
    (relayed,) = first.read(came)
    gone = second.write([relayed])
    assert gone[PREFIX.size + LOCK_BYTES :] == came[PREFIX.size + LOCK_BYTES :]
    assert second.read(gone) == [frame]


@pytest.mark.parametrize("rest", [0, 5000])
@pytest.mark.parametrize("size", [100_000, STEADY_ROOM + 100_000])
def test_an_envelope_is_relayed_whole_though_more_was_read_with_it(size: int, rest: int) -> None:
    """The beginning of the next packet is moved to the front, but not before the burst is over."""
    source, middle = Envelopes(), Envelopes()
    first, second = Link(1, source, middle), Link(2, middle)
    frames = [packet(size), packet(size, seed=1)]
    for frame in frames:
        source.share(frame)
    came = first.write(frames)
    start = len(came) // 2 + rest
    for piece in (came[:start], came[start:]):
        for frame in first.read(piece):
            assert second.read(second.write([frame])) == [frames.pop(0)]
        middle.clear()
    assert not frames


@pytest.mark.parametrize("enveloped", [False, True])
def test_a_connection_gives_memory_back_with_a_large_packet(enveloped: bool) -> None:
    """When the burst is over, not when the peer says something more."""
    source, middle = Envelopes(), Envelopes()
    link = Link(1, source, middle)
    frame = packet(8 << 20)
    if enveloped:
        source.share(frame)
    came = link.write([frame])
    tracemalloc.start()
    assert link.read(came) == [frame]
    middle.clear()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * STEADY_ROOM


def test_an_envelope_that_is_relayed_survives_the_next_read() -> None:
    """The transport may write late; by then the buffer it was read into has other bytes."""
    source, middle = Envelopes(), Envelopes()
    first, second = Link(1, source, middle), Link(2, middle)
    frames = [packet(100_000, seed=seed) for seed in range(3)]
    for frame in frames:
        source.share(frame)
    late: list[bytes | memoryview] = []
    for frame in frames:
        (relayed,) = first.read(first.write([frame]))
        late += second.sealer.records([relayed])
        middle.clear()
    assert second.read(b"".join(late)) == frames


def test_a_node_keeps_no_envelope_after_the_burst() -> None:
    source, middle = Envelopes(), Envelopes()
    link = Link(1, source, middle)
    frame = packet(ENVELOPE_BYTES)
    source.share(frame)
    link.read(link.write([frame]))
    assert len(source) > 0
    assert len(middle) > 0
    for envelopes in (source, middle):
        envelopes.clear()
        assert len(envelopes) == 0


@given(st.integers(0, 2**32), st.data())
def test_a_changed_envelope_does_not_open(seed: int, data: st.DataObject) -> None:
    """Any bit, of the lock or of the frame; the length and the kind are checked before."""
    envelopes = Envelopes()
    link = Link(1, envelopes)
    frame = packet(ENVELOPE_BYTES, seed=seed)
    envelopes.share(frame)
    record = bytearray(link.write([frame]))
    place = data.draw(st.integers(PREFIX.size * 8, len(record) * 8 - 1))
    record[place // 8] ^= 1 << place % 8
    with pytest.raises(WireError, match="does not open"):
        link.read(bytes(record))


def test_envelopes_that_are_repeated_left_out_or_swapped_do_not_open() -> None:
    def two() -> tuple[Link, bytes, bytes]:
        envelopes = Envelopes()
        link = Link(1, envelopes)
        records = []
        for seed in range(2):
            frame = packet(ENVELOPE_BYTES, seed=seed)
            envelopes.share(frame)
            records.append(link.write([frame]))
        return link, records[0], records[1]

    body = PREFIX.size + LOCK_BYTES
    for tamper in (
        lambda one, two: one + one,
        lambda one, two: two,
        lambda one, two: two + one,
        lambda one, two: one[:body] + two[body:],
        lambda one, two: two[:body] + one[body:],
    ):
        link, one, other = two()
        with pytest.raises(WireError, match="does not open"):
            link.read(tamper(one, other))


def test_the_envelope_of_another_connection_does_not_open() -> None:
    envelopes = Envelopes()
    one, other = Link(1, envelopes), Link(2, envelopes)
    frame = packet(ENVELOPE_BYTES)
    envelopes.share(frame)
    with pytest.raises(WireError, match="does not open"):
        other.read(one.write([frame]))


def test_a_node_that_has_a_frames_key_can_exchange_the_frame_on_the_way() -> None:
    """A member that is not only below the sender, but also between it and another node."""
    envelopes = Envelopes()
    to_liar, to_other = Link(1, envelopes), Link(2, envelopes)
    frame, forged = packet(ENVELOPE_BYTES), packet(2 * ENVELOPE_BYTES)
    envelopes.share(frame)
    came, passing = to_liar.write([frame]), to_other.write([frame])
    lock_at, frame_at = PREFIX.size, PREFIX.size + LOCK_BYTES
    secret = to_liar.far_cipher.open(came[lock_at:frame_at])
    exchanged = AESGCM(secret[:KEY_BYTES]).encrypt(secret[KEY_BYTES:], forged, None)
    head = PREFIX.pack(1 + LOCK_BYTES + len(exchanged), ENVELOPE)
    assert to_other.read(head + passing[lock_at:frame_at] + exchanged) == [forged]


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", packet(50, CONTROL), packet(50) + b"x", packet(50) * 2, packet(50)[:-1]],
)
def test_an_envelope_holds_one_frame(content: bytes) -> None:
    """Whatever else a member puts in one ends its connection."""
    cipher, opener = CipherState(bytes(32)), Opener(CipherState(bytes(32)), Envelopes())
    envelope = seal_envelope(content)
    buffer = PacketBuffer(MAX_PACKET)
    data = lock(envelope, cipher) + envelope.sealed
    buffer.room()[: len(data)] = data
    buffer.filled(len(data))
    with pytest.raises(WireError, match="holds no frame"):
        buffer.records(opener)


@pytest.mark.parametrize("size", [*range(LOCK_BYTES), LOCK_BYTES, LOCK_BYTES + TAG_BYTES - 1])
def test_an_envelope_with_half_a_lock_or_no_frame_is_refused(size: int) -> None:
    cipher, opener = CipherState(bytes(32)), Opener(CipherState(bytes(32)), Envelopes())
    envelope = seal_envelope(packet(50))
    body = (lock(envelope, cipher) + envelope.sealed)[PREFIX.size :]
    with pytest.raises(WireError, match="does not open"):
        opener.unwrap(memoryview(body[:size]), MAX_PACKET)


def test_an_envelope_has_the_documented_sizes() -> None:
    envelope = seal_envelope(packet(ENVELOPE_BYTES))
    record = lock(envelope, CipherState(bytes(32))) + envelope.sealed
    assert (ENVELOPE_BYTES, KEY_BYTES, NONCE_BYTES, LOCK_BYTES) == (16 * 1024, 16, 12, 44)
    assert len(record) == 49 + ENVELOPE_BYTES + 16
    assert PREFIX.unpack_from(record) == (len(record) - 4, ENVELOPE)


def test_the_largest_frame_fits() -> None:
    envelopes = Envelopes()
    link = Link(1, envelopes)
    largest = packet(4 + MAX_PACKET)
    envelopes.share(largest)
    record = link.write([largest])
    assert len(record) - len(largest) < SEAL_BYTES
    assert link.read(record) == [largest]


@pytest.mark.parametrize("excess", [1, 63])
def test_a_frame_above_the_limit_is_refused_in_an_envelope_too(excess: int) -> None:
    """No node could relay it: above the limit it is cut into parts, and no frame goes in parts."""
    there = Envelopes()
    link = Link(1, Envelopes(), there)
    link.buffer.limit = 1000
    cipher = link.cipher
    largest, larger = (seal_envelope(packet(4 + 1000 + more)) for more in (0, excess))
    assert link.read(lock(largest, cipher) + largest.sealed) == [largest.packet]
    there.clear()
    with pytest.raises(WireError, match=f"a packet of {1000 + excess} bytes in an envelope"):
        link.read(lock(larger, cipher) + larger.sealed)
    assert len(there) == 0


# -- live nodes ------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many envelopes came, by the id of the table that they are kept in."""
    found: Counter[int] = Counter()
    keep = Envelopes.keep

    def count(self: Envelopes, envelope: Envelope) -> None:
        found[id(self)] += 1
        keep(self, envelope)

    monkeypatch.setattr(Envelopes, "keep", count)
    return found


@live
async def test_a_large_frame_for_one_node_has_no_envelope(opened: Counter[int]) -> None:
    async with cluster(2, secret=SECRET) as nodes, subscribed(nodes) as subscriptions:
        for node in nodes:
            await node.publish(TOPIC, bytes(50_000))
        for subscription in subscriptions:
            await take(subscription, 2)
    assert not opened


@live
async def test_large_messages_reach_every_node_of_a_sealed_cluster_in_envelopes(
    opened: Counter[int],
) -> None:
    """Through publishers and relays, with nothing kept afterwards."""
    async with cluster(5, secret=SECRET) as nodes:
        tables = [shell_of(node).writes.envelopes for node in nodes]
        async with subscribed(nodes) as subscriptions:
            sent = [random.Random(seed).randbytes(50_000) for seed in range(20)]
            for payload in sent:
                await nodes[0].publish(TOPIC, payload)
            for subscription in subscriptions:
                assert [m.payload for m in await take(subscription, 20)] == sent
        assert opened[id(tables[0])] == 0
        assert all(opened[id(table)] for table in tables[1:])
        await until(lambda: not any(map(len, tables)))


@live
async def test_a_newcomer_and_several_publishers_of_large_messages_agree() -> None:
    """The tree of each publisher is another one, so every node makes and relays envelopes."""
    async with cluster(3, secret=SECRET) as nodes:
        await join(nodes, secret=SECRET)
        async with subscribed(nodes) as subscriptions:
            for turn in range(5):
                for node in nodes:
                    await node.publish(TOPIC, bytes([turn]) * 40_000)
            for subscription in subscriptions:
                payloads = [m.payload for m in await take(subscription, 20)]
                assert sorted(payloads) == sorted(bytes([n // 4]) * 40_000 for n in range(20))


LIMIT = 100_000


class Oversized(Shell):
    """A member whose frames pass its own check of their size, whatever it is."""

    def __init__(self) -> None:
        super().__init__(NodeConfig(secret=SECRET))
        self.said: list[bytes] = []

    def relay(self, peers: Sequence[int], message: Frame) -> None:
        self.said.append(encode_frame(message))
        super().relay(peers, message)

    def fits(self, packet: bytes) -> bool:
        return any(packet is one for one in self.said) or parts.fits(packet)


@live
async def test_a_frame_above_the_limit_costs_the_member_that_made_it_its_connections_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that took it would cut it into parts, and nodes below it would close to that node."""
    caplog.set_level(logging.WARNING, "cubecast")
    for module in (parts, connection):
        monkeypatch.setattr(module, "MAX_PACKET", LIMIT)
    monkeypatch.setattr(parts, "PART_BYTES", LIMIT // 2)
    async with cluster(3, secret=SECRET) as nodes:
        liar = Oversized()
        monkeypatch.setattr(connection, "fits", liar.fits)
        await liar.start(nodes[0].address)
        async with ended(liar), subscribed(nodes) as subscriptions:
            await still_works(nodes, subscriptions)
            await liar.node.publish(TOPIC, b"as others do")
            for subscription in subscriptions:
                await take(subscription, 1)
            links = links_between(nodes)
            head = len(liar.said[-1]) - len(b"as others do")
            await liar.node.publish(TOPIC, bytes(4 + LIMIT + 63 - head))
            await until(lambda: "closing connection" in caplog.text)
            assert max(map(len, liar.said)) == 4 + LIMIT + 63
            assert "a packet of 100063 bytes in an envelope" in caplog.text
            liar.kill()
            await until(lambda: all(len(node.members) == 3 for node in nodes))
            await still_works(nodes, subscriptions)
        assert links.items() <= links_between(nodes).items()


@asynccontextmanager
async def ended(shell: Shell) -> AsyncIterator[None]:
    """The node dies in here, at the end at the latest."""
    try:
        yield
    finally:
        shell.kill()


def links_between(nodes: list[Node]) -> dict[tuple[int, int], connection.Connection]:
    """The connections that nodes have with each other."""
    found = {}
    for one, other in permutations(nodes, 2):
        link = shell_of(one).mesh.connection_with(other.slot)
        if link is not None:
            found[one.slot, other.slot] = link
    return found
