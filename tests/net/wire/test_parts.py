"""Packets in parts: whole or not at all, whatever comes, and never more memory than the bound."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.net.links import connection as connection_module
from cubecast.net.node.shell import shell_of
from cubecast.net.wire import parts
from cubecast.net.wire.packet_buffer import PacketBuffer
from cubecast.net.wire.packets import (
    ACK,
    CLIENT,
    CONTROL,
    FRAME,
    HELLO,
    MAX_PACKET,
    PART,
    PREFIX,
    VIEW,
    WireError,
)
from cubecast.net.wire.parts import MAX_WHOLE, PART_HEADER, Parts, cut, fits
from cubecast.net.wire.views import decode_view, encode_view
from cubecast.protocol.cluster.views import Enter, Who
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, Rule, on_virtual_time

SMALL = 100


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a hundred bytes, and bounds in proportion."""
    monkeypatch.setattr(parts, "PART_BYTES", SMALL)
    monkeypatch.setattr(parts, "MAX_WHOLE", 40 * SMALL)
    monkeypatch.setattr(parts, "MAX_HELD", 80 * SMALL)


def packet(size: int, kind: int = CONTROL, seed: int = 0) -> bytes:
    return PREFIX.pack(size - 4, kind) + Random(seed).randbytes(size - PREFIX.size)


def part(number: int, total: int, start: int, piece: bytes) -> bytes:
    return PREFIX.pack(1 + PART_HEADER.size + len(piece), PART) + (
        PART_HEADER.pack(number, total, start) + piece
    )


def test_a_request_of_more_than_a_packet_arrives() -> None:
    """A node that returns has followed half a million streams: it could never come back."""
    reached = {
        f"topic/{number}": tuple(
            (Stream(slot % 4096, 10**13 + slot), slot) for slot in range(50_000)
        )
        for number in range(12)
    }
    message = Enter(Who("ab", "127.0.0.1:7400", 7), 3, reached)
    whole = encode_view(message)
    assert len(whole) > MAX_PACKET
    assert not fits(whole)
    buffer, gathered = PacketBuffer(), Parts()
    found = [
        gathered.take("peer", raw)
        for one in cut(whole, 7)
        for kind, raw in buffer.feed(one)
        if kind == PART
    ]
    assert found[:-1] == [None] * (len(found) - 1)
    assert found[-1] == (VIEW, whole)
    assert gathered.held == 0
    assert decode_view(whole) == message


def test_a_packet_above_the_largest_size_is_not_cut_into_parts() -> None:
    """The bound is on the wire: both ends have to have the same."""
    largest = 64 * 2**20
    assert next(iter(cut(bytes(largest), 0)))
    with pytest.raises(WireError, match="larger than"):
        list(cut(bytes(largest + 1), 0))
    with pytest.raises(WireError, match="larger than"):
        encode_view(Enter(Who("ab", "h:1", 7), 3, {"x" * MAX_WHOLE: ()}))


@pytest.mark.usefixtures("small_parts")
def test_the_largest_and_the_smallest_come_out_whole() -> None:
    for size in (PREFIX.size, SMALL, SMALL + 1, 40 * SMALL):
        gathered = Parts()
        found = [gathered.take(1, one) for one in cut(packet(size), 0)]
        assert found[-1] == (CONTROL, packet(size))
        assert len(found) == -(-size // SMALL)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", [FRAME, ACK, HELLO, CLIENT, PART])
def test_only_what_may_be_large_goes_in_parts(kind: int) -> None:
    gathered = Parts()
    *most, last = cut(packet(3 * SMALL, kind), 0)
    assert not any(gathered.take(1, one) for one in most)
    with pytest.raises(WireError, match=f"kind {kind}"):
        gathered.take(1, last)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "raw",
    [
        PREFIX.pack(1, PART),
        part(0, 200, 0, b""),
        part(0, 200, 0, bytes(99)),
        part(0, 200, 0, bytes(101)),
        part(0, 200, 200, b""),
        part(0, 200, 300, bytes(100)),
        part(0, 150, 100, bytes(100)),
        part(0, 41 * SMALL, 0, bytes(100)),
        part(0, 0, 0, b""),
    ],
    ids=lambda raw: raw[: PREFIX.size + PART_HEADER.size].hex(),
)
def test_a_broken_part_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError, match="broken part"):
        Parts().take(1, raw)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("inside", [bytes(3), PREFIX.pack(90, VIEW) + bytes(50)])
def test_a_whole_that_is_not_as_long_as_it_says_is_refused(inside: bytes) -> None:
    with pytest.raises(WireError, match="broken part"):
        Parts().take(1, part(0, len(inside), 0, inside))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("lost", range(5))
def test_a_packet_of_which_a_part_is_missing_never_comes_out(lost: int) -> None:
    gathered = Parts()
    first, second = packet(5 * SMALL, seed=1), packet(5 * SMALL, seed=2)
    sent = list(cut(first, 0))
    del sent[lost]
    found = [gathered.take(1, one) for one in (*sent, *cut(second, 1))]
    assert [one for one in found if one] == [(CONTROL, second)]
    assert gathered.held == 0


@pytest.mark.usefixtures("small_parts")
def test_two_packets_mixed_on_one_connection_are_neither() -> None:
    gathered = Parts()
    one, other = cut(packet(3 * SMALL, seed=1), 0), cut(packet(3 * SMALL, seed=2), 1)
    found = [gathered.take(1, raw) for pair in zip(one, other, strict=True) for raw in pair]
    assert not any(found)
    assert gathered.held == 0


@pytest.mark.usefixtures("small_parts")
def test_connections_do_not_mix() -> None:
    gathered = Parts()
    one, other = cut(packet(3 * SMALL, seed=1), 0), cut(packet(3 * SMALL, seed=2), 0)
    for a, b in zip(one, other, strict=True):
        found = gathered.take("a", a), gathered.take("b", b)
    assert found == ((CONTROL, packet(3 * SMALL, seed=1)), (CONTROL, packet(3 * SMALL, seed=2)))


@pytest.mark.usefixtures("small_parts")
def test_many_that_never_end_hold_no_more_than_the_bound_and_the_oldest_goes() -> None:
    gathered = Parts()
    whole = packet(40 * SMALL)
    for connection in range(50):
        for raw in list(cut(whole, 0))[:-1]:
            assert gathered.take(connection, raw) is None
            assert gathered.held <= parts.MAX_HELD
    last = list(cut(whole, 0))[-1]
    assert gathered.take(0, last) is None
    assert gathered.take(49, last) == (CONTROL, whole)
    for connection in range(50):
        gathered.drop(connection)
    assert gathered.held == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 2), st.integers(0, 500), st.integers(0, 500),
            st.integers(0, 130),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_hostile_parts_are_bounded(said: list[tuple[int, int, int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", SMALL)
        patch.setattr(parts, "MAX_WHOLE", 400)
        patch.setattr(parts, "MAX_HELD", 500)
        gathered = Parts()
        for connection, number, total, start, size in said:
            try:
                gathered.take(connection, part(number, total, start, bytes(size)))
            except WireError:
                gathered.drop(connection)
            held = gathered._gatherings.values()
            assert gathered.held == sum(len(b"".join(one.pieces)) for one in held) <= 500


@on_virtual_time
async def test_a_cluster_whose_views_and_waves_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all that members say is too large here, and one part in twenty is lost."""
    large = (VIEW, CONTROL)
    monkeypatch.setattr(parts, "PART_BYTES", SMALL)
    monkeypatch.setattr(
        connection_module, "fits", lambda raw: len(raw) <= SMALL or raw[4] not in large
    )
    async with Cluster(5) as cluster:
        cluster.on_every_link(Rule(loss=0.05))
        cluster.kill(3)
        await cluster.restart(3)
        await cluster.grow()
        cluster.heal()
        async with cluster[5].subscribe("t") as reader:
            await cluster[1].publish("t", b"hello")
            assert (await anext(reader)).payload == b"hello"
        await cluster.settle()
        assert [len(node.members) for node in cluster.nodes] == [6] * 6
        assert sum(one._wholes for node in cluster.nodes for one in shell_of(node).mesh._open) > 20
        cluster.check()
