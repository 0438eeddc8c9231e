"""Light clients whose application, or whose luck, is not the best; and callbacks at a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import cubecast
from cubecast.errors import Closed, CubecastError, NotSent, Unknown
from cubecast.net.client.client import Client
from cubecast.net.client.publishing import Pipeline
from cubecast.net.client.shell import client_shell_of
from cubecast.net.gateway import line as line_module
from cubecast.net.node.shell import shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.net.topics import MAX_TOPIC_BYTES
from cubecast.net.wire.clients import Farewell, FromClient, Publish, Read, Subscribe, Subscribed
from cubecast.net.wire.clients import decode_from_client as decode
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.testing import Cluster, on_virtual_time
from support.clients import raw_client, read_to_the_end
from support.live import TOPIC, cluster, live, small_window, until

LONG_S = 600.0


@asynccontextmanager
async def attached(count: int = 1) -> AsyncIterator[tuple[Cluster, Client]]:
    """A cluster on virtual time and a client of its last node."""
    async with Cluster(count) as nodes:
        node = nodes[count - 1]
        async with cubecast.connect(node.address, network=shell_of(node).network) as client:
            yield nodes, client


# -- what a client may not ask for -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "payload", "error"),
    [
        (TOPIC, [1, 2], TypeError),
        (TOPIC, None, TypeError),
        (TOPIC, "\ud800", ValueError),
        (TOPIC, bytes(MAX_PAYLOAD + 1), NotSent),
        ("chat/+", "x", ValueError),
        ("", "x", ValueError),
        ("a\0", "x", ValueError),
        ("bad\ud800", "x", ValueError),
        ("x" * (MAX_TOPIC_BYTES + 1), "x", ValueError),
        (7, "x", TypeError),
        ([], "x", TypeError),
    ],
    ids=lambda value: repr(value)[:30],
)
@on_virtual_time
async def test_publishing_nonsense_is_refused_as_a_node_refuses_it(
    topic: Any, payload: Any, error: type[Exception]
) -> None:
    async with attached() as (nodes, client):
        await client.publish(TOPIC, "known")
        said = set()
        for host in (nodes[0], client):
            with pytest.raises(error) as caught:
                await host.publish(topic, payload)
            said.add(str(caught.value))
        assert len(said) == 1
        receipt = await client.publish(TOPIC, "well", receipt=True)
        assert receipt is not None
        await receipt.stable()


@on_virtual_time
async def test_questions_about_nonsense_are_refused_and_the_client_goes_on() -> None:
    async with attached() as (nodes, client):
        for topic in ("x" * 2000, "\ud800", "chat/#"):
            for asking in (client.explain, client.subscribers, client.tree):
                with pytest.raises(ValueError, match=r"topic|pattern"):
                    await asking(topic)
        assert await client.members() == nodes[0].members


@on_virtual_time
async def test_a_queue_larger_than_a_node_grants_is_refused() -> None:
    async with attached() as (_, client):
        with pytest.raises(ValueError, match="at most"):
            client.subscribe(TOPIC, queue_bytes=1 << 40)


@live
async def test_a_client_that_breaks_the_rules_hears_which() -> None:
    async with cluster(1) as nodes, raw_client(nodes[0]) as client:
        client.say(Subscribe(1, TOPIC, "block", 1000))
        assert isinstance(await client.hear(), Subscribed)
        client.say(Read(1, 1_000_000))
        farewell = await client.hear()
        assert isinstance(farewell, Farewell)
        assert "1000000 bytes read of 0" in farewell.reason
        await client.ended()


@on_virtual_time
async def test_subscribing_counts_as_using_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "MAX_TOPICS", 2)
    async with attached() as (nodes, client):
        for topic in ("a", "b", "a"):
            async with client.subscribe(topic):
                pass
        with pytest.raises(CubecastError, match="2 topics"):
            async with client.subscribe("c"):
                pass
        async with client.subscribe("+"):  # which names none
            pass
        assert sorted(await nodes[0].topics()) == ["a", "b"]


# -- what becomes of publications ------------------------------------------------------------------


@on_virtual_time
async def test_a_publication_that_cannot_be_encoded_fails_alone() -> None:
    sent: list[FromClient] = []
    pipeline = Pipeline(lambda packet: sent.append(decode(packet)), 1000, 10.0)
    publishing = [
        asyncio.create_task(pipeline.publish(topic, b"x", False))
        for topic in ("before", "bad\ud800", "after")
    ]
    async with asyncio.timeout(LONG_S):
        await until(lambda: len(sent) == 2)
    assert sent == [Publish(0, "before", [b"x"], False), Publish(1, "after", [b"x"], False)]
    with pytest.raises(NotSent, match="cannot be encoded"):
        await publishing[1]
    pipeline.broken("the end")
    for other in (publishing[0], publishing[2]):
        with pytest.raises(Unknown):
            await other


@on_virtual_time
async def test_publications_gathered_when_the_connection_broke_are_told() -> None:
    async with Cluster(1) as nodes:

        async def publish_and_lose(client: Client) -> None:
            await client.publish(TOPIC, b"taken")
            await client.publish(TOPIC, b"gathered")  # returned, and not sent before the tick ends
            client_shell_of(client).lose_node("the cable")

        def connect() -> Any:
            return cubecast.connect(nodes[0].address, network=shell_of(nodes[0]).network)

        with pytest.raises(NotSent, match="the cable"):
            async with connect() as client:
                await publish_and_lose(client)
        async with connect() as client:
            await publish_and_lose(client)
            with pytest.raises(NotSent, match="the cable"):
                await client.flush()
            await client.flush()  # it is told once


# -- a node that leaves ----------------------------------------------------------------------------


@on_virtual_time
async def test_a_node_that_leaves_goes_on_feeding_a_client_that_reads() -> None:
    """More is owed to the reader than fits its windows, so its reading must count meanwhile."""
    count = 200
    config = NodeConfig(protocol=small_window(), leave_timeout_s=LONG_S)
    async with Cluster(2, config=config) as nodes:
        leaver = nodes[1]
        async with (
            cubecast.connect(leaver.address, network=shell_of(leaver).network) as writer,
            cubecast.connect(nodes[0].address, network=shell_of(leaver).network) as other,
            other.subscribe(TOPIC, queue_bytes=4096) as elsewhere,
            cubecast.connect(leaver.address, network=shell_of(leaver).network) as reader,
            reader.subscribe(TOPIC, queue_bytes=4096) as here,
        ):
            for number in range(count):
                await writer.publish(TOPIC, b"%0*d" % (500, number))
            await until(lambda: shell_of(leaver).publishing.blocked(TOPIC))
            await asyncio.sleep(1)  # virtual: by now the node has all of it, and waits for credit
            loop = asyncio.get_running_loop()
            began = loop.time()
            leaving = asyncio.create_task(nodes.shrink(1))
            await asyncio.sleep(1)

            async def read_elsewhere() -> list[int]:
                return [int((await anext(elsewhere)).payload) for _ in range(count)]

            read, (seen, error) = await asyncio.gather(read_elsewhere(), read_to_the_end(here))
            assert isinstance(error, Closed)
            assert "the node leaves the cluster" in str(error)
            await leaving
            assert read == list(range(count))
            assert [int(payload) for payload in seen] == list(range(len(seen)))
            assert loop.time() - began < config.client_silence_s  # virtual: it waited for nothing


# -- events ----------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_listener_that_closed_is_forgotten() -> None:
    async with attached() as (nodes, client):
        for _ in range(100):
            client.events().close()
        events = client.events()
        assert client_shell_of(client)._listeners == [events]
        newcomer = await nodes.grow()
        assert await anext(events) == cubecast.MemberJoined(1, newcomer.address)
        events.close()
        await nodes.grow()
        await until(lambda: not client_shell_of(client)._listeners)
        again = client.events()  # the node is not asked twice, which it would not forgive
        await nodes.shrink(2)
        assert await anext(again) == cubecast.MemberLeft(2)


# -- callbacks -------------------------------------------------------------------------------------


@on_virtual_time
async def test_callbacks_at_a_client_are_called_in_order_and_may_fail() -> None:
    seen: list[int] = []

    async def handle(message: cubecast.Message) -> None:
        await asyncio.sleep(0.001)
        seen.append(int(message.payload))
        if message.payload == b"3":
            raise ValueError("three")

    async with attached(2) as (nodes, client):
        events = client.events()
        async with client.on(TOPIC, handle) as listener:
            for number in range(50):
                await nodes[0].publish(TOPIC, b"%d" % number)
            await until(lambda: len(seen) == 50)
            assert seen == list(range(50))
            assert listener.failures == 1
            assert await anext(events) == cubecast.CallbackFailed(TOPIC, "ValueError('three')")
        with pytest.raises(TypeError, match="callable"):
            client.on(TOPIC, None)  # type: ignore[arg-type]


@on_virtual_time
async def test_closing_the_client_ends_its_callbacks_in_silence() -> None:
    async with Cluster(1) as nodes:
        async with cubecast.connect(nodes[0].address, network=shell_of(nodes[0]).network) as client:
            listener = client.on(TOPIC, print)
            await listener.__aenter__()
        await listener.finished()


@on_virtual_time
async def test_a_lost_connection_is_no_silent_end_of_callbacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with attached() as (_, client):
        with caplog.at_level(logging.ERROR, "cubecast"):
            async with client.on(TOPIC, print) as listener:
                client_shell_of(client).lose_node("the cable")
                with pytest.raises(Closed, match="the cable"):
                    await listener.finished()
        assert "the cable" in caplog.text


# -- what they look like ---------------------------------------------------------------------------


@on_virtual_time
async def test_reprs_say_what_the_object_is() -> None:
    async with attached(2) as (nodes, client):
        assert repr(nodes[0]) == f"<Node 0 at {nodes[0].address}, 2 members>"
        assert repr(client) == f"<Client of node 1 at {nodes[1].address}>"
        async with client.subscribe(TOPIC) as messages:
            receipt = await client.publish(TOPIC, b"x" * 1000, receipt=True)
            assert receipt is not None
            await receipt.stable()
            assert repr(receipt) == f"<ClientReceipt of a message to {TOPIC!r}: stable>"
            message = await anext(messages)
            assert message.id.startswith(f"{TOPIC}#1.")
            assert repr(message).startswith(
                f"Message({message.id!r}, {b'x' * 60!r}... (1000 bytes), published_at=20"
            )
        node = nodes[1]
        waiting = await client.publish(TOPIC, b"", receipt=True)
        assert repr(waiting) == f"<ClientReceipt of a message to {TOPIC!r}: not known to be stable>"
        client_shell_of(client).lose_node("the cable")
        assert "NotSent" in repr(waiting)
        assert repr(client) == "<Client, closed: the cable>"
        with pytest.raises(NotSent):
            await client.flush()
        await nodes.shrink(1)
        assert repr(node) == f"<Node 1 at {node.address}, closed>"
