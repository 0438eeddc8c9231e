"""Headers of messages: small, bounded, the same at nodes and light clients, free when unused."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

import cubecast
from cubecast.errors import NotSent
from cubecast.net.message import Message, RichMessage, cut
from cubecast.net.wire import headers
from cubecast.net.wire import packets as wire
from cubecast.net.wire.clients import Deliver, without_first
from cubecast.net.wire.headers import MAX_HEADER_BYTES, MAX_HEADERS, MAX_NAME, Headed, pack
from cubecast.net.wire.packets import (
    HEADED,
    MAX_PAYLOAD,
    FrameDecoder,
    OutgoingFrame,
    WireError,
    encode_frame,
)
from cubecast.testing import Cluster
from support.live import TOPIC, cluster, live, take
from support.packets import TOPICS, example_frame

KIND = {"kind": "news", "traceparent": "00-0af7-b7ad-01"}


@live
async def test_nodes_and_clients_exchange_headers_in_the_order_of_publication() -> None:
    async with (
        cluster(3) as nodes,
        cubecast.connect(nodes[0].address) as writer,
        cubecast.connect(nodes[2].address) as reader,
        nodes[0].subscribe(TOPIC) as own,
        nodes[1].subscribe(TOPIC) as far,
        reader.subscribe(TOPIC) as light,
    ):
        await nodes[0].publish(TOPIC, "first", headers=KIND)
        await nodes[0].publish(TOPIC, "second")
        await writer.publish(TOPIC, "third", headers=KIND)
        await writer.publish(TOPIC, "fourth")
        for messages in (own, far):
            read = await take(messages, 4)
            assert [one.payload for one in read] == [b"first", b"second", b"third", b"fourth"]
            assert [dict(one.headers) for one in read] == [KIND, {}, KIND, {}]
        remote = [await anext(light) for _ in range(4)]
        assert [one.payload for one in remote] == [b"first", b"second", b"third", b"fourth"]
        assert [dict(one.headers) for one in remote] == [KIND, {}, KIND, {}]


@live
async def test_headers_pass_the_cluster_in_memory_and_reach_callbacks() -> None:
    seen: list[dict[str, str]] = []
    async with (
        Cluster(2) as memory,
        memory[1].on(TOPIC, lambda one: seen.append(dict(one.headers))),
    ):
        await memory[0].publish(TOPIC, b"x", headers=KIND)
        await memory.settle()
    assert seen == [KIND]


def test_headers_cannot_be_changed_and_a_plain_message_has_none() -> None:
    plain, headed = cut(example_frame(body=OutgoingFrame([b"plain", pack(KIND, b"x")], 0, (1,))))
    assert plain.headers == {}
    assert type(plain) is Message
    assert type(headed) is RichMessage
    for message in (plain, headed):
        with pytest.raises(TypeError):
            message.headers["kind"] = "other"  # type: ignore[index]
    assert "headers={'kind': 'news'" in repr(headed)
    assert "headers" not in repr(plain)


def test_a_frame_of_plain_messages_has_the_same_bytes_as_before_headers() -> None:
    raw = encode_frame(example_frame(body=OutgoingFrame([b"one", b""], 0)))
    marked = encode_frame(example_frame(body=OutgoingFrame([b"one", b""], 0, ())))
    assert raw == marked
    assert raw.endswith(struct.pack("<II", 3, 0) + b"one")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x05",
        b"\x05\x00abc",
        b"\x00\x00payload",
        b"\x01\x00\x80payload",  # an empty map
        b"\x01\x00\x90payload",  # a list
        b"\xff\xff" + bytes(70_000),
        struct.pack("<H", 4) + b"\x81\xa1a\x01x",  # a number
        struct.pack("<H", 5) + b"\x81\xa1 \xa1b",  # a space in the name
        struct.pack("<H", 5) + b"\x81\xa1a\xa1\xff",  # no UTF-8
    ],
)
def test_broken_headers_are_refused_where_bytes_become_messages(blob: bytes) -> None:
    raw = encode_frame(example_frame(body=OutgoingFrame([b"fine", blob], 0, (1,))))
    with pytest.raises(WireError, match="broken frame"):
        FrameDecoder().decode(raw, TOPICS)


def test_too_many_or_too_long_headers_of_a_peer_are_refused() -> None:
    for entries in (
        {str(number): "" for number in range(MAX_HEADERS + 1)},
        {"n" * (MAX_NAME + 1): ""},
        {"name": "x" * MAX_HEADER_BYTES},
    ):
        encoded = msgspec.msgpack.encode(entries)
        blob = struct.pack("<H", len(encoded)) + encoded
        raw = encode_frame(example_frame(body=OutgoingFrame([blob], 0, (0,))))
        with pytest.raises(WireError, match="headers"):
            FrameDecoder().decode(raw, TOPICS)


def test_a_mark_on_a_size_that_does_not_add_up_is_refused() -> None:
    raw = bytearray(encode_frame(example_frame(body=OutgoingFrame([b"plain"], 0))))
    at = len(raw) - len(b"plain") - 4
    raw[at : at + 4] = struct.pack("<I", HEADED | 6)
    with pytest.raises(WireError, match="do not fill"):
        FrameDecoder().decode(bytes(raw), TOPICS)


def test_messages_with_headers_count_in_full_at_both_ends() -> None:
    body = OutgoingFrame([bytes(pack(KIND, b"payload"))], 0, (0,))
    frame = example_frame(body=body)
    read = FrameDecoder().decode(encode_frame(frame), TOPICS)
    assert read is not None
    assert isinstance(read.body, wire.Payloads)
    assert read.body.content == body.content > len(b"payload") + wire.MESSAGE_OVERHEAD


@pytest.mark.parametrize(
    ("wrong", "error", "advice"),
    [
        ([("a", "b")], TypeError, "must be a mapping"),
        ({"a": 1}, TypeError, "use str"),
        ({1: "a"}, TypeError, "use str"),
        ({"": "a"}, ValueError, "1 to 64 ASCII"),
        ({"two words": "a"}, ValueError, "without spaces"),
        ({"ü": "a"}, ValueError, "ASCII"),
        ({"x" * 65: "a"}, ValueError, "1 to 64"),
        ({":reply": "a"}, ValueError, "cubecast's"),
        ({str(number): "" for number in range(33)}, ValueError, "put them in the payload"),
        ({"a": "x" * 5000}, ValueError, "put what is large in the payload"),
        ({"a": "\ud800"}, ValueError, "valid Unicode"),
    ],
    ids=lambda value: repr(value)[:30],
)
@live
async def test_headers_that_cannot_be_meant_are_refused_with_advice(
    wrong: Any, error: type[Exception], advice: str
) -> None:
    async with cluster(1) as (node,), cubecast.connect(node.address) as client:
        for publisher in (node, client):
            with pytest.raises(error, match=advice):
                await publisher.publish(TOPIC, "x", headers=wrong)


@live
async def test_code_of_cubecast_sets_reserved_headers_and_the_application_reads_them() -> None:
    async with (
        cluster(1) as (node,),
        cubecast.connect(node.address) as client,
        node.subscribe(TOPIC) as messages,
    ):
        for publisher in (node, client):
            await publisher.publish(TOPIC, pack({":reply": "inbox", "kind": "news"}, b"x"))
            message = await anext(messages)
            assert message.payload == b"x"
            assert dict(message.headers) == {":reply": "inbox", "kind": "news"}


@live
async def test_a_message_and_its_headers_are_within_the_limit_of_a_payload() -> None:
    async with (
        cluster(1) as (node,),
        cubecast.connect(node.address) as client,
        node.subscribe(TOPIC, queue_bytes=2 * MAX_PAYLOAD) as messages,
    ):
        overhead = len(pack(KIND, b""))
        for publisher in (node, client):
            with pytest.raises(NotSent, match="are more than"):
                await publisher.publish(TOPIC, bytes(MAX_PAYLOAD - overhead + 1), headers=KIND)
            await publisher.publish(TOPIC, bytes(MAX_PAYLOAD - overhead), headers=KIND)
            assert len((await anext(messages)).payload) == MAX_PAYLOAD - overhead


@live
async def test_empty_headers_make_a_plain_message() -> None:
    async with cluster(1) as (node,), node.subscribe(TOPIC) as messages:
        await node.publish(TOPIC, "x", headers={})
        assert type(await anext(messages)) is Message


def test_a_packed_blob_splits_into_headers_and_payload() -> None:
    blob = pack(KIND, b"payload")
    assert type(blob) is Headed
    headers.check_blob(blob)
    encoded, payload = headers.split(blob)
    assert payload == b"payload"
    assert headers.read(encoded) == KIND
    assert headers.blob_of(encoded, payload) == blob


def test_headers_stay_with_their_messages_when_the_first_ones_were_read_before() -> None:
    """A client that has moved gets some messages again, and reads the others."""
    news = Deliver(1, 0, TOPIC, 0, 7, 10, 0, [], [b"a", b"b", b"c", b"d"], (0, 2, 3))
    assert without_first(news, 2) == Deliver(1, 0, TOPIC, 0, 7, 12, 0, [], [b"c", b"d"], (0, 1))
