"""Topics of one light client are independent: one without credit holds up no other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cubecast.errors import NotSent, Unknown
from cubecast.net.client.client import Client
from cubecast.net.client.publishing import Pipeline
from cubecast.net.gateway import publications
from cubecast.net.node.shell import shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import (
    PUBLISH_WINDOW,
    Declined,
    FromNode,
    Publish,
    Taken,
    Taking,
    decode_from_client,
    size_of,
)
from cubecast.testing import Cluster, on_virtual_time
from support.clients import RawClient, raw_client
from support.live import cluster, live, small_window

STUCK = "orders"
HEALTHY = "chat/a"


def config() -> NodeConfig:
    return NodeConfig(protocol=small_window(), publish_timeout_s=5.0)


async def fill(client: Client, topic: str, size: int = 1000) -> int:
    """Publish to an unread topic until there is no room; how many were accepted."""
    accepted = 0

    async def publish_for_ever() -> None:
        nonlocal accepted
        while True:
            await client.publish(topic, b"%0*d" % (size, accepted), timeout=1)
            accepted += 1

    with pytest.raises(NotSent, match=f"{topic}.*no credit for 1 s"):
        await publish_for_ever()
    return accepted


async def leave(client: Client) -> None:
    """End a client whose publications wait, and hear of them."""
    await client.close(flush=False)
    with suppress(Unknown):
        await client.flush()


@on_virtual_time
async def test_a_topic_whose_reader_has_stopped_holds_up_no_other_topic_of_its_client() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096) as stopped,
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = await fill(client, STUCK)
        count = 2 * PUBLISH_WINDOW // 1000

        async def write() -> None:
            for number in range(count):
                await client.publish(HEALTHY, b"%0*d" % (1000, number), timeout=1)

        writing = asyncio.create_task(write())
        for number in range(count):
            async with asyncio.timeout(2):  # virtual
                assert int((await anext(healthy)).payload) == number
        await writing
        [session] = shell_of(nodes[0]).guests._sessions.values()
        assert len(session._publications._open) <= accepted
        for number in range(accepted):
            assert int((await anext(stopped)).payload) == number
        await client.flush()


@on_virtual_time
async def test_a_client_that_closes_blames_the_topic_that_the_node_did_not_take() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
    ):

        async def publish_to_both() -> None:
            async with nodes.connect(0) as client:
                await fill(client, STUCK)
                await client.publish(HEALTHY, b"first")
                await client.publish(HEALTHY, b"last")

        with pytest.raises(Unknown, match="nothing of this topic for 5 s") as caught:
            await publish_to_both()
        assert caught.value.topic == STUCK
        assert [(await anext(healthy)).payload for _ in range(2)] == [b"first", b"last"]


@on_virtual_time
async def test_a_topic_that_waits_ends_in_not_sent_although_another_one_goes_on() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096),
        nodes[1].on(HEALTHY, lambda _: None),
        nodes.connect(0) as client,
    ):
        await fill(client, STUCK)

        async def chat() -> None:
            while True:
                await client.publish(HEALTHY, b"x")
                await asyncio.sleep(0.2)

        chatting = asyncio.create_task(chat())
        async with asyncio.timeout(4):
            with pytest.raises(NotSent, match="no credit for 3 s"):
                await client.publish(STUCK, bytes(1000), timeout=3)
        chatting.cancel()
        await leave(client)


@on_virtual_time
async def test_each_topic_that_waits_leaves_room_for_the_next_one() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe("stuck/+", queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = [await fill(client, f"stuck/{number}") for number in range(4)]
        assert accepted == sorted(accepted, reverse=True)
        await client.publish(HEALTHY, b"goes on", timeout=1)
        assert (await anext(healthy)).payload == b"goes on"
        await leave(client)


@on_virtual_time
async def test_a_node_serves_so_many_topics_that_wait_and_the_others_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publications, "TOPICS_AT_ONCE", 2)
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe("stuck/0", queue_bytes=4096) as first,
        nodes[1].subscribe("stuck/1", queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = await fill(client, "stuck/0")
        await fill(client, "stuck/1")
        with pytest.raises(Unknown, match=HEALTHY):
            await client.publish(HEALTHY, b"behind them", timeout=1)
        for _ in range(accepted):
            await anext(first)
        assert (await anext(healthy)).payload == b"behind them"
        await leave(client)


async def news(client: RawClient) -> FromNode:
    """What a node says, but of how far it is with packet 0."""
    while isinstance(said := await client.hear(), Taking) and said.number == 0:
        pass
    return said


@live
async def test_a_packet_that_is_taken_before_others_is_told_by_its_whole_size() -> None:
    payloads = [bytes(1000)] * 60
    async with (
        cluster(2, protocol=small_window()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096) as stopped,
        nodes[1].subscribe(HEALTHY) as healthy,
        raw_client(nodes[0]) as client,
    ):
        client.say(Publish(0, STUCK, payloads, False))
        client.say(Publish(1, HEALTHY, [b"a", b"b"], False))
        assert await news(client) == Taking(1, size_of([b"a", b"b"]))
        client.say(Publish(2, "", [bytes(100)], False))  # one that is refused, out of turn, too
        assert isinstance(await news(client), Declined)
        assert await news(client) == Taking(2, size_of([bytes(100)]))
        assert [(await anext(healthy)).payload for _ in range(2)] == [b"a", b"b"]
        for _ in payloads:
            await anext(stopped)
        assert await news(client) == Taken(2)


@live
async def test_a_pipeline_gives_one_topic_half_of_what_the_others_leave() -> None:
    sent: list[Publish] = []

    def send(packet: bytes) -> None:
        message = decode_from_client(packet)
        assert isinstance(message, Publish)
        sent.append(message)

    pipeline = Pipeline(send, 16_000, 30.0)
    pipeline._known.update("abc")
    sizes = dict.fromkeys("abc", 0)

    async def publish_for_ever(topic: str) -> None:
        while True:
            await pipeline.publish(topic, bytes(84), False, timeout=0)
            sizes[topic] += 100
            await asyncio.sleep(0)

    for topic in sizes:
        with pytest.raises(NotSent):
            await publish_for_ever(topic)
    assert sizes == {"a": 8_000, "b": 4_000, "c": 2_000}
    last = sent[-1]
    assert last.topic == "c"
    pipeline.on_taking(Taking(last.number, size_of(last.payloads)))  # before all others
    await pipeline.publish("c", bytes(84), False, timeout=0)
    with pytest.raises(NotSent):
        await pipeline.publish("a", bytes(84), False, timeout=0)
    pipeline.on_taken(Taken(last.number + 1))
    await pipeline.flush()
    assert pipeline._used == 0
    assert not pipeline._flows
