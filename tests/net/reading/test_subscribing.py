"""Subscriptions: what is refused, what a closed one says, and that asking leaves no trace."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import cubecast
from cubecast.errors import Closed, Overflow
from cubecast.net.node.shell import shell_of
from cubecast.net.topics import MAX_TOPIC_BYTES
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, on_virtual_time

TOPIC = "chat/room1"
LONG_S = 600.0
"""Virtual seconds: whatever takes longer never ends."""


@pytest.mark.parametrize(
    ("wish", "error", "said"),
    [
        ({"policy": "drop_oldest"}, ValueError, "policy .* not 'drop_oldest'"),
        ({"policy": ["block"]}, ValueError, "policy"),
        ({"queue_bytes": 0}, ValueError, "queue_bytes must be at least 1, not 0"),
        ({"queue_bytes": -1}, ValueError, "queue_bytes"),
        ({"queue_bytes": 1.5}, TypeError, "queue_bytes must be an int, not float"),
        ({"topic": ""}, ValueError, "empty"),
        ({"topic": 7}, TypeError, "must be a str, not int"),
        ({"topic": "a/\0/+"}, ValueError, "NUL"),
        ({"topic": "\ud800/#"}, ValueError, "valid Unicode"),
        ({"topic": "x" * MAX_TOPIC_BYTES + "/#"}, ValueError, "at most"),
        ({"topic": "a#"}, ValueError, "whole levels"),
    ],
    ids=lambda value: str(value)[:40],
)
@on_virtual_time
async def test_invalid_arguments_are_refused_by_node_and_client_alike(
    wish: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with cubecast.connect(node.address, network=shell_of(node).network) as client:
            arguments = {"topic": TOPIC, **wish}
            for host in (node, client):
                with pytest.raises(error, match=said):
                    host.subscribe(**arguments)
                with pytest.raises(error, match=said):
                    host.on(**arguments, callback=print)
            assert await client.topics() == {}  # and the client is as well as before


@on_virtual_time
async def test_a_subscription_closed_while_it_is_entered_says_so_and_delays_no_other() -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with node.subscribe(TOPIC, policy="drop-oldest"):
            closed = node.subscribe(TOPIC)  # it waits until the node is known to miss nothing
            entering = asyncio.create_task(closed.__aenter__())
            await asyncio.sleep(0)
            await closed.close()
            async with asyncio.timeout(LONG_S):
                with pytest.raises(Closed, match="was closed"):
                    await entering
                async with node.subscribe(TOPIC, policy="drop-newest") as messages:
                    await cluster[0].publish(TOPIC, b"hello")
                    assert (await anext(messages)).payload == b"hello"


@on_virtual_time
async def test_of_two_that_are_entered_at_once_closing_one_leaves_the_other() -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with node.subscribe(TOPIC, policy="drop-oldest"), asyncio.timeout(LONG_S):
            first, second = node.subscribe(TOPIC), node.subscribe(TOPIC)
            entering = [asyncio.create_task(one.__aenter__()) for one in (first, second)]
            await asyncio.sleep(0)
            await first.close()
            with pytest.raises(Closed):
                await entering[0]
            assert await entering[1] is second
            assert not shell_of(node).core.is_lossy(TOPIC)
            await second.close()


@on_virtual_time
async def test_a_subscription_closed_while_its_topic_is_left_does_not_come_to_life() -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with node.subscribe(TOPIC):
            pass  # leaving takes a wave
        closed = node.subscribe(TOPIC)
        entering = asyncio.create_task(closed.__aenter__())
        await asyncio.sleep(0)
        await closed.close()
        with pytest.raises(Closed):
            await entering
        await cluster.settle()
        assert await cluster[0].subscribers(TOPIC) == []


@on_virtual_time
async def test_reading_what_was_not_entered_is_an_error_at_once() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with cubecast.connect(node.address, network=shell_of(node).network) as client:
            for host in (node, client):
                with pytest.raises(RuntimeError, match="async with"):
                    async for _ in host.subscribe(TOPIC):
                        pass
        with pytest.raises(RuntimeError, match="async with"):
            await node.subscribe(TOPIC).batch()


@on_virtual_time
async def test_events_of_what_is_closed_end_at_once() -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with cubecast.connect(cluster[0].address, network=shell_of(node).network) as client:
            client.events()  # one that listens already makes no difference
        await cluster.shrink(1)
        async with asyncio.timeout(LONG_S):
            assert [event async for event in node.events()] == []
            with pytest.raises(Closed):
                client.events()


@on_virtual_time
async def test_asking_who_subscribes_leaves_no_trace() -> None:
    async with Cluster(3) as cluster:
        asker = cluster[1]
        async with cubecast.connect(asker.address, network=shell_of(asker).network) as client:
            for host in (asker, client):
                assert await host.subscribers("unused/topic") == []
                with pytest.raises(ValueError, match="is a pattern"):
                    await host.subscribers("chat/+")
                with pytest.raises(TypeError, match="must be a str"):
                    await host.subscribers(5)  # type: ignore[arg-type]
            async with cluster[0].subscribe(TOPIC), cluster[2].subscribe(TOPIC):
                assert await asker.subscribers(TOPIC) == await client.subscribers(TOPIC) == [0, 2]
                async with asker.subscribe(TOPIC):
                    assert await asker.subscribers(TOPIC) == [0, 1, 2]
                assert await cluster[0].topics() == {TOPIC: [0, 2]}
            assert set(await cluster[0].topics()) == {TOPIC}
        assert shell_of(asker).core.topics() == [TOPIC]


@on_virtual_time
async def test_a_subscription_that_was_left_behind_says_that_and_not_that_it_is_full() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            node.subscribe(TOPIC, policy="disconnect") as near,
            client.subscribe(TOPIC, policy="disconnect") as far,
        ):
            shell_of(node).readers.pass_over(TOPIC, 3)  # what the core tells of a suspension
            for messages in (near, far):
                with pytest.raises(Overflow, match="went on without it") as caught:
                    await anext(messages)
                assert "unread" not in str(caught.value)
                assert messages.dropped == 3
            assert (near.missed, far.missed) == (3, 0)  # the client had its node all the time


@on_virtual_time
async def test_a_subscription_that_blocks_is_not_called_slow_because_its_node_was_away() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            node.subscribe(TOPIC) as near,
            client.subscribe(TOPIC) as far,
        ):
            events = [node.events(), client.events()]
            await client.members()  # the node knows by now that the client listens
            shell_of(node).gap(TOPIC, {Stream(7, 1): (0, 2)})  # as after an exclusion
            for told in events:
                async with asyncio.timeout(LONG_S):
                    assert await anext(told) == cubecast.Gap(TOPIC, {7: [(0, 2)]})
            await asyncio.sleep(10)
            assert not [event for told in events for event in told._kept]
            assert near.dropped == far.dropped == 3


@on_virtual_time
async def test_a_client_hears_of_a_gap_before_anything_else_is_delivered() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            client.subscribe(TOPIC, policy="drop-oldest") as messages,
        ):
            events = client.events()
            shell_of(node).readers.pass_over(TOPIC, 3)
            async with asyncio.timeout(LONG_S):
                assert await anext(events) == cubecast.SlowSubscriber(TOPIC, "drop-oldest", 3)
            assert messages.dropped == 3


@pytest.mark.parametrize("client", [False, True], ids=["node", "client"])
@on_virtual_time
async def test_two_tasks_share_one_subscription_and_both_end(client: bool) -> None:
    """As with an `asyncio.Queue`: each message goes to one of them, and neither is forgotten."""
    async with Cluster(2) as cluster, AsyncExitStack() as stack:
        host: Any = cluster[1]
        if client:
            host = await stack.enter_async_context(
                cubecast.connect(host.address, network=shell_of(host).network)
            )
        messages = await stack.enter_async_context(host.subscribe(TOPIC))
        read: list[list[int]] = [[], [], []]

        async def reader(mine: list[int]) -> None:
            async for message in messages:
                mine.append(message.seq)
                await asyncio.sleep(0.01)

        readers = [asyncio.create_task(reader(mine)) for mine in read]
        await asyncio.sleep(1)  # all of them wait
        for _ in range(30):
            await cluster[0].publish(TOPIC, b"x")  # most share a frame
        await asyncio.sleep(1)
        await cluster[0].publish(TOPIC, b"one more")
        await asyncio.sleep(1)
        assert sorted(seq for mine in read for seq in mine) == list(range(31))
        assert all(len(mine) >= 9 for mine in read)
        assert all(mine == sorted(mine) for mine in read)
        await messages.close()
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(*readers)


@on_virtual_time
async def test_a_reader_that_is_cancelled_leaves_the_message_to_the_other() -> None:
    async with Cluster(1) as cluster, cluster[0].subscribe(TOPIC) as messages:
        first, second = (asyncio.create_task(anext(messages)) for _ in range(2))
        await asyncio.sleep(1)
        await cluster[0].publish(TOPIC, b"x")
        first.cancel()
        async with asyncio.timeout(LONG_S):
            assert (await second).payload == b"x"


@on_virtual_time
async def test_entering_a_subscription_twice_is_an_error_and_nothing_else_is_lost() -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with cubecast.connect(node.address, network=shell_of(node).network) as client:
            for host in (node, client):
                async with host.subscribe(TOPIC) as messages:
                    with pytest.raises(RuntimeError, match="entered once; to read again"):
                        await messages.__aenter__()
                    async with asyncio.timeout(LONG_S):
                        for number in range(3):
                            await cluster[0].publish(TOPIC, f"{number}")
                            assert (await anext(messages)).payload == b"%d" % number
                with pytest.raises(RuntimeError, match="entered once"):
                    await messages.__aenter__()
                listener = host.on(TOPIC, print)
                async with listener:
                    with pytest.raises(RuntimeError, match="entered once"):
                        await listener.__aenter__()
            assert not client.closed
        await cluster.settle()
        assert await cluster[0].subscribers(TOPIC) == []
