"""Nodes and clients that publish inside their read loops: circles of all kinds, tiny queues.

Whatever the circle, every token comes home, no publish fails, and what is unread is bounded.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

import cubecast
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.debts import put_off_bytes
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, frame_overhead
from cubecast.testing import Cluster, run
from support.live import small_window

LIMIT_S = 600.0
"""Virtual seconds: a circle that takes longer stands still."""


class Walk:
    """Tokens that go from topic to topic until they have made their hops.

    Topic `t/k` is read by one task, at a place of its own choice, which publishes to the topics
    that `ways` names for it.  A token is a number of hops left; one that has none ends.
    """

    def __init__(self, random: Random, places: list[Any], topics: int) -> None:
        self.random = random
        self.places = places
        self.topics = topics
        self.size = random.choice([20, 200, 1000])
        self.home = 0
        self.unread = 0
        self.queue_bytes = {k: random.choice([1, 500, 2000, 10_000]) for k in range(topics)}
        self.readers = [random.choice(places) for _ in range(topics)]
        self.ways = [
            [random.randrange(topics) for _ in range(random.choice([1, 1, 2]))]
            for _ in range(topics)
        ]

    def token(self, hops: int) -> bytes:
        return b"%06d" % hops + bytes(self.random.randrange(self.size))

    async def read(self, k: int, messages: Any) -> None:
        """Take tokens of one topic and pass them on to one of its ways."""
        async for message in messages:
            self.unread = max(self.unread, getattr(messages, "unread", 0))
            hops = int(message.payload[:6])
            if hops == 0:
                self.home += 1
            else:
                way = self.random.choice(self.ways[k])
                await self.readers[k].publish(f"t/{way}", self.token(hops - 1))

    async def sow(self, place: Any, count: int, hops: int) -> None:
        """Publish tokens from a task that reads nothing."""
        for _ in range(count):
            await place.publish(f"t/{self.random.randrange(self.topics)}", self.token(hops))

    async def all_home(self, count: int, tasks: list[asyncio.Task[None]]) -> None:
        while self.home < count:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)


async def circles(seed: int, clients: bool, many: bool = False) -> None:
    random = Random(seed)
    count = random.choice([2, 3, 4])
    window = random.choice([3000, 8000])
    config = NodeConfig(protocol=small_window(window), publish_timeout_s=60)
    async with (
        Cluster(count, trace=False, seed=seed, config=config) as nodes,
        AsyncExitStack() as s,
    ):
        places: list[Any] = list(nodes.nodes)
        if clients:
            places = [
                await s.enter_async_context(
                    cubecast.connect(node.address, network=shell_of(node).network)
                )
                for node in places
            ]
        walk = Walk(random, places, random.choice([1, 2, 3, 5]))
        tasks = []
        for k in range(walk.topics):
            messages = await s.enter_async_context(
                walk.readers[k].subscribe(f"t/{k}", queue_bytes=walk.queue_bytes[k])
            )
            tasks.append(asyncio.create_task(walk.read(k, messages)))
        each, hops = random.choice([600, 2000] if many else [50, 150]), random.choice([0, 5, 20])
        sowing = [asyncio.create_task(walk.sow(place, each, hops)) for place in places]
        async with asyncio.timeout(LIMIT_S):
            await walk.all_home(each * len(places), tasks + sowing)
        for task in tasks:
            task.cancel()
        most = 10_000
        largest = walk.size + 6 + MESSAGE_OVERHEAD
        per_stream = window + 2 * put_off_bytes(most) + 10 * (largest + frame_overhead(1))
        assert walk.unread <= most + count * per_stream


@pytest.mark.parametrize("clients", [False, True], ids=["nodes", "clients"])
@pytest.mark.parametrize("seed", range(12))
def test_tokens_come_home_whatever_the_circle(seed: int, clients: bool) -> None:
    run(circles(seed, clients))


@pytest.mark.parametrize("seed", [0, 14, 19, 20, 21, 23, 24])
def test_a_loop_that_publishes_where_it_reads_goes_on_under_any_load(seed: int) -> None:
    """Sources and other loops fill its topic with more than all queues and windows hold."""
    run(circles(seed, clients=False, many=True))
