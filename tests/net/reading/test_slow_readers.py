"""Slow readers on virtual time: the publisher keeps the reader's pace, and nothing else happens.

Nothing is lost, no publish fails, what waits unread is bounded, and credit never stands still for
longer than a few messages take to read.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

import cubecast
from cubecast.errors import NotSent
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.debts import put_off_bytes
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import BATCH_BYTES, DELIVER_WINDOW, PUBLISH_WINDOW
from cubecast.net.wire.packets import FRAME_OVERHEAD, MESSAGE_OVERHEAD, frame_overhead
from cubecast.testing import Cluster, on_virtual_time, run
from support.live import TOPIC, small_window

MiB = 1024 * 1024


@dataclass
class Pace:
    """When messages were published and read, and how much waited at most."""

    published: list[float] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    read_at: list[float] = field(default_factory=list)
    peak: int = 0

    def longest_stall(self, after: float) -> float:
        """The longest time between two publications, from `after` on."""
        times = [after, *(time for time in self.published if time >= after)]
        return max(later - earlier for earlier, later in pairwise(times))

    def share(self, after: float) -> float:
        """How many messages are published for each that is read, from `after` on."""
        published = sum(time >= after for time in self.published)
        return published / sum(time >= after for time in self.read_at)


async def run_slow(
    *,
    size: int,
    each_s: float,
    queue_bytes: int,
    window: int,
    seconds: float,
    client: bool,
    count: int = 2,
) -> Pace:
    """One publisher as fast as it may, one reader that takes `each_s` for each message.

    The publisher is the first node of `count`, the reader the last, and those between read at once:
    in a cube of 8 the slow reader is three levels below the publisher.
    """
    pace = Pace()
    loop = asyncio.get_running_loop()
    config = NodeConfig(protocol=replace(small_window(window), ack_pause=10_000))
    async with Cluster(count, trace=False, config=config) as nodes, AsyncExitStack() as stack:
        writer: Any = nodes[0]
        reader: Any = nodes[count - 1]
        for other in nodes.nodes[1:-1]:
            taking = asyncio.create_task(
                take_all(await stack.enter_async_context(other.subscribe(TOPIC)))
            )
            stack.callback(taking.cancel)
        if client:
            writer, reader = [
                await stack.enter_async_context(
                    cubecast.connect(node.address, network=shell_of(node).network)
                )
                for node in (writer, reader)
            ]
        messages = await stack.enter_async_context(reader.subscribe(TOPIC, queue_bytes=queue_bytes))

        async def publish() -> None:
            while True:
                number = len(pace.published)
                await writer.publish(TOPIC, b"%08d" % number + bytes(size - 8))
                pace.published.append(loop.time())
                pace.peak = max(pace.peak, (number - len(pace.read)) * (size + MESSAGE_OVERHEAD))

        async def read() -> None:
            async for message in messages:
                await asyncio.sleep(each_s)
                pace.read.append(int(message.payload[:8]))
                pace.read_at.append(loop.time())

        tasks = [asyncio.create_task(publish()), asyncio.create_task(read())]
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        return pace


async def take_all(messages: Any) -> None:
    async for _ in messages:
        pass


CELLS = [
    (size, each_ms, queue_bytes)
    for size in (100, 1000, 8192)
    for each_ms in (1, 10, 100)
    for queue_bytes in (1024, 16 * 1024, 256 * 1024)
    if queue_bytes / size * each_ms <= 40_000
]


@pytest.mark.parametrize("client", [False, True], ids=["node", "client"])
@pytest.mark.parametrize(("size", "each_ms", "queue_bytes"), CELLS)
def test_a_publisher_keeps_the_pace_of_a_slow_reader(
    size: int, each_ms: int, queue_bytes: int, client: bool
) -> None:
    window = 64 * 1024
    each_s = each_ms / 1000
    bound = queue_bytes + window + 2 * (size + MESSAGE_OVERHEAD + FRAME_OVERHEAD)
    if client:
        bound += min(queue_bytes, DELIVER_WINDOW) + PUBLISH_WINDOW + 2 * BATCH_BYTES
    seconds = min(120.0, max(400 * each_s, 2.0))

    pace = run(
        run_slow(
            size=size,
            each_s=each_s,
            queue_bytes=queue_bytes,
            window=window,
            seconds=seconds,
            client=client,
        )
    )
    assert pace.read == list(range(len(pace.read)))
    assert len(pace.read) > seconds / each_s * 0.9
    assert pace.peak <= bound
    begun = pace.published[0] + 20 * each_s + 0.1
    if seconds > 30 * each_s + 0.2:
        few = 1 + -(-frame_overhead(0) // (size + MESSAGE_OVERHEAD))  # a frame worth its overhead
        on_the_way = 0.006 if client else 0.002  # how long news of credit gathers
        assert pace.longest_stall(begun) <= few * each_s + on_the_way
        assert pace.share(begun) == pytest.approx(1, abs=0.1)


def test_relays_do_not_hold_up_the_credit_of_a_slow_reader() -> None:
    """Each of three levels would keep a pause of ten messages between its acknowledgements."""
    pace = run(
        run_slow(
            size=1000,
            each_s=0.001,
            queue_bytes=16 * 1024,
            window=64 * 1024,
            seconds=1.0,
            client=False,
            count=8,
        )
    )
    assert pace.read == list(range(len(pace.read)))
    assert pace.longest_stall(0.3) <= 0.006
    assert pace.share(0.3) == pytest.approx(1, abs=0.1)


# -- nodes that publish and read -------------------------------------------------------------------


@on_virtual_time
async def test_a_node_that_publishes_and_does_not_read_holds_a_bounded_part() -> None:
    """Its own publications and another's wait for the reader, not only for credit."""
    window, queue_bytes, size = 64 * 1024, 16 * 1024, 1000
    config = NodeConfig(protocol=small_window(window), publish_timeout_s=5)
    async with (
        Cluster(2, trace=False, config=config) as nodes,
        nodes[0].subscribe(TOPIC, queue_bytes=queue_bytes) as messages,
    ):

        async def publish(node: cubecast.Node) -> None:
            while True:
                await node.publish(TOPIC, bytes(size))

        tasks = [asyncio.create_task(publish(node)) for node in nodes.nodes]
        done, waiting = await asyncio.wait(tasks, timeout=60)
        assert all(isinstance(task.exception(), NotSent) for task in done)
        assert messages.unread <= queue_bytes + 2 * (window + put_off_bytes(queue_bytes) + size)
        for task in waiting:
            task.cancel()


@on_virtual_time
async def test_request_and_reply_inside_each_others_loops_keep_going() -> None:
    """Sources fill both topics while the loops run; the loops go on all the same."""
    size, wanted = 500, 3_000
    handled = {0: 0, 1: 0}
    config = NodeConfig(protocol=small_window(4096), publish_timeout_s=30)
    async with (
        Cluster(2, trace=False, config=config) as nodes,
        nodes[0].subscribe("reply", queue_bytes=2000) as replies,
        nodes[1].subscribe("request", queue_bytes=2000) as requests,
    ):
        loop = asyncio.get_running_loop()

        async def serve(node: cubecast.Node, messages: Any, topic: str) -> None:
            async for message in messages:
                await node.publish(topic, message.payload)
                handled[node.slot] += 1

        async def source() -> None:
            while True:
                await nodes[0].publish("request", bytes(size))

        began = loop.time()
        tasks = [
            asyncio.create_task(serve(nodes[0], replies, "request")),
            asyncio.create_task(serve(nodes[1], requests, "reply")),
            asyncio.create_task(source()),
        ]
        while min(handled.values()) < wanted:
            assert loop.time() < began + 60, handled
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
