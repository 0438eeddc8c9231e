"""Typed payloads, the identity of messages and the trace context that they carry."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import cubecast
from cubecast import codecs, tracing
from cubecast.errors import DecodeError
from cubecast.net.events import CallbackFailed
from cubecast.net.message import Message, TypedMessage, cut
from cubecast.net.wire.packets import OutgoingFrame
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, on_virtual_time
from support.live import TOPIC, cluster, live


class Reading(msgspec.Struct):
    sensor: str
    celsius: float


@dataclass
class Point:
    x: int
    y: int


class Name(TypedDict):
    first: str


class Model(pydantic.BaseModel):
    level: int


VALUES: list[tuple[codecs.FunctionCodec[Any], Any, bytes]] = [
    (codecs.raw, b"\x00\xff", b"\x00\xff"),
    (codecs.text, "grüß", "grüß".encode()),
    (codecs.json(), {"a": [1, None]}, b'{"a":[1,null]}'),
    (codecs.json(Reading), Reading("hall", 21.5), b'{"sensor":"hall","celsius":21.5}'),
    (codecs.json(float), 2, b"2"),
    (codecs.json(Point), Point(1, 2), b'{"x":1,"y":2}'),
    (codecs.json(Name), {"first": "Ann"}, b'{"first":"Ann"}'),
    (codecs.json(dict[str, int]), {"a": 1}, b'{"a":1}'),
    (codecs.json(Model), Model(level=3), b'{"level":3}'),
    (codecs.pydantic(Model), Model(level=3), b'{"level":3}'),
    (codecs.msgpack(), [1, "a"], b"\x92\x01\xa1a"),
    (codecs.msgpack(Reading), Reading("h", 1.0), msgspec.msgpack.encode(Reading("h", 1.0))),
]


@pytest.mark.parametrize(("codec", "value", "payload"), VALUES, ids=lambda one: repr(one)[:40])
def test_a_codec_reads_back_what_it_wrote(
    codec: codecs.FunctionCodec[Any], value: Any, payload: bytes
) -> None:
    assert codec.encode(value) == payload
    assert codec.decode(payload) == value


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.raw, "text"),
        (codecs.text, b"bytes"),
        (codecs.json(Reading), {"sensor": "hall", "celsius": 1.0}),
        (codecs.json(Name), [1]),
        (codecs.msgpack(Point), Reading("hall", 1.0)),
        (codecs.json(Model), {"level": 3}),
    ],
)
def test_a_value_of_another_class_is_refused_by_its_publisher(
    codec: codecs.FunctionCodec[Any], value: Any
) -> None:
    with pytest.raises(TypeError, match=r"takes \w+, not"):
        codec.encode(value)


def test_pydantic_is_asked_for_in_words_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ImportError, match="pip install pydantic"):
        codecs.pydantic(Model)


@live
async def test_values_travel_between_nodes_and_clients() -> None:
    readings = cubecast.TypedTopic("sensors/hall", codecs.json(Reading))
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as client,
        readings.subscribe(nodes[1]) as far,
        readings.subscribe(client) as light,
        nodes[0].subscribe("sensors/+", codec=codecs.json(Reading)) as own,
    ):
        receipt = await readings.publish(nodes[0], Reading("hall", 21.5), receipt=True)
        await receipt.stable()
        await readings.publish(client, Reading("hall", 22.0), headers={"unit": "celsius"})
        first, second = [await anext(far) for _ in range(2)]
        assert (first.value, second.value) == (Reading("hall", 21.5), Reading("hall", 22.0))
        assert second.headers == {"unit": "celsius"}
        assert second.value is second.value
        assert [(await anext(light)).value.celsius for _ in range(2)] == [21.5, 22.0]
        assert [(await anext(own)).value.celsius for _ in range(2)] == [21.5, 22.0]
        with pytest.raises(TypeError, match="takes Reading"):
            await readings.publish(nodes[0], "21.5")  # type: ignore[call-overload]


@live
async def test_a_payload_that_cannot_be_decoded_keeps_its_bytes_and_reading_goes_on() -> None:
    async with cluster(1) as (node,), node.subscribe(TOPIC, codec=codecs.json(Reading)) as messages:
        await node.publish(TOPIC, b'{"sensor":"hall","celsius":"warm"}')
        await node.publish(TOPIC, codecs.json().encode({"sensor": "hall", "celsius": 1.0}))
        message = await anext(messages)
        with pytest.raises(DecodeError) as caught:
            _ = message.value
        error = caught.value
        assert error.payload == message.payload == b'{"sensor":"hall","celsius":"warm"}'
        assert error.message == message.id
        assert "Expected `float`, got `str`" in error.reason
        assert "\n" not in str(error)
        assert (await anext(messages)).value.celsius == 1.0


@on_virtual_time
async def test_a_callback_that_reads_a_bad_value_fails_alone() -> None:
    seen: list[int] = []
    async with Cluster(1) as nodes:
        node = nodes[0]
        events = node.events()
        async with node.on(TOPIC, lambda one: seen.append(one.value), codec=codecs.json(int)):
            await node.publish(TOPIC, "one")
            await node.publish(TOPIC, "2")
            await nodes.settle()
            failed = await anext(events)
    assert isinstance(failed, CallbackFailed)
    assert "DecodeError" in failed.error
    assert seen == [2]


def frame(*payloads: bytes, time: int = 0) -> Frame:
    body = OutgoingFrame(list(payloads), time)
    return Frame("chat", Stream(3, 0xABC), 7, (), Route(0, 0, 1), -1, body, 100)


def test_without_a_codec_the_value_is_the_payload_and_the_message_a_plain_one() -> None:
    (message,) = cut(frame(b"x"))
    assert type(message) is Message
    assert message.value is message.payload
    (typed,) = cut(frame(b"1"), codecs.json())
    assert type(typed) is TypedMessage


def test_an_id_names_topic_slot_life_and_number() -> None:
    assert [one.id for one in cut(frame(b"x", b"y"))] == ["chat#3.abc.7", "chat#3.abc.8"]


def test_the_repr_of_a_message_shows_its_id_and_time() -> None:
    (message,) = cut(frame(b"x" * 100, time=1_700_000_000_123_000))
    assert repr(message) == (
        f"Message('chat#3.abc.7', {b'x' * 60!r}... (100 bytes), "
        "published_at=2023-11-14 22:13:20.123+00:00)"
    )
    assert "published_at=1.84467e+13" in repr(cut(frame(b"x", time=(1 << 64) - 1))[0])


@live
async def test_a_member_that_restarts_in_the_same_slot_repeats_no_id() -> None:
    ids: list[str] = []
    async with cluster(1) as (node,), node.subscribe(TOPIC) as messages:
        for _ in range(2):
            async with cubecast.join(node.address) as other:
                await other.publish(TOPIC, "hello")
                message = await anext(messages)
                assert (message.source, message.seq) == (1, 0)
                ids.append(message.id)
    assert len(set(ids)) == 2


@live
async def test_a_client_reads_the_id_that_a_node_reads() -> None:
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[1].address) as client,
        nodes[0].subscribe(TOPIC) as here,
        client.subscribe(TOPIC) as there,
    ):
        await nodes[0].publish(TOPIC, "x")
        assert (await anext(here)).id == (await anext(there)).id


# -- trace context ---------------------------------------------------------------------------------


@live
async def test_a_span_that_publishes_is_the_parent_of_what_reads() -> None:
    tracer = TracerProvider().get_tracer("test")
    seen: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as client,
        nodes[1].on(TOPIC, lambda _: seen.put_nowait(trace.get_current_span())),
        nodes[1].subscribe(TOPIC) as messages,
    ):
        for publisher in (nodes[0], client):
            with tracer.start_as_current_span("publish") as span:
                await publisher.publish(TOPIC, "x", headers={"kind": "news"})
            context = span.get_span_context()
            inside = (await seen.get()).get_span_context()
            assert (inside.trace_id, inside.span_id) == (context.trace_id, context.span_id)
            message = await anext(messages)
            assert message.headers["kind"] == "news"
            with tracing.continued(message), tracer.start_as_current_span("read") as child:
                assert child.get_span_context().trace_id == context.trace_id
        await nodes[0].publish(TOPIC, "x")
        assert not (await anext(messages)).headers


def test_headers_of_the_application_win_over_the_trace() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("publish"):
        assert tracing.added({tracing.PARENT: "mine"}) == {tracing.PARENT: "mine"}
        full = {str(number): "" for number in range(32)}
        assert tracing.added(full) is full
        long = {"long": "x" * 4000}
        assert tracing.added(long) is long


@live
async def test_a_message_without_a_valid_context_changes_nothing() -> None:
    async with cluster(1) as (node,), node.subscribe(TOPIC) as messages:
        await node.publish(TOPIC, "x", headers={tracing.PARENT: "garbage"})
        await node.publish(TOPIC, "x")
        for _ in range(2):
            with tracing.continued(await anext(messages)):
                assert not trace.get_current_span().get_span_context().is_valid
