"""Storms over live nodes in memory: bad links, cuts, joins, leaves, readers that come and go.

A failure is replayed by its seed: ``pytest "tests/net/node/test_live_storms.py" -k "seed-17"``.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from cubecast.net.node.node import Node
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.testing import Cluster, Rule, run

TOPIC = "storm"
PATIENT = NodeConfig(leave_timeout_s=900, join_timeout_s=900, publish_timeout_s=900)
"""Repairs that back off over links that lose a third may take minutes of virtual time."""


class Storm:
    """One random run; everything it does is drawn from `chance`."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.readers: dict[int, Subscription] = {}
        self.reading: list[asyncio.Task[None]] = []
        self.talking: list[asyncio.Task[None]] = []

    async def rage(self) -> None:
        chance = self.chance
        self.cluster.on_every_link(
            Rule(
                delay_s=chance.choice([0, 0.001, 0.05]),
                jitter_s=chance.choice([0, 0.01, 0.1]),
                loss=chance.choice([0, 0.05, 0.3]),
            )
        )
        for node in self.cluster.nodes:
            if chance.random() < 0.7:
                await self.subscribe(node.slot)
            talk = self.talk(node, Random(chance.random()))
            self.talking.append(asyncio.create_task(talk))
        for _ in range(chance.randint(2, 8)):
            await asyncio.sleep(chance.random())
            await chance.choice([self.cut, self.grow, self.shrink, self.come_or_go])()
        await asyncio.gather(*self.talking)
        self.cluster.heal()
        await self.cluster.settle()

    async def talk(self, node: Node, chance: Random) -> None:
        for _ in range(chance.randint(0, 40)):
            await node.publish(TOPIC, bytes(chance.randint(0, 200)))
            await asyncio.sleep(chance.random() / 20)

    async def subscribe(self, slot: int) -> None:
        self.readers[slot] = await self.cluster[slot].subscribe(TOPIC).__aenter__()
        self.reading.append(asyncio.create_task(self.read(self.readers[slot])))

    async def read(self, subscription: Subscription) -> None:
        async for _ in subscription:
            pass

    def somebody(self) -> int:
        return self.chance.choice([node.slot for node in self.cluster.nodes])

    async def cut(self) -> None:
        """For a while, and then no faults at all."""
        first, second = self.somebody(), self.somebody()
        if first != second:
            self.cluster.cut(first, second, one_way=self.chance.random() < 0.3)
            await asyncio.sleep(3 * self.chance.random())
            self.cluster.heal()

    async def grow(self) -> None:
        await self.cluster.grow()

    async def shrink(self) -> None:
        """A node leaves, when all have published everything."""
        await asyncio.gather(*self.talking)
        if len(self.cluster) > 1:
            slot = self.somebody()
            self.readers.pop(slot, None)
            await self.cluster.shrink(slot)

    async def come_or_go(self) -> None:
        slot = self.somebody()
        if slot in self.readers:
            await self.readers.pop(slot).close()
        else:
            await self.subscribe(slot)


async def storm(seed: int) -> None:
    chance = Random(seed)
    async with Cluster(chance.randint(2, 7), seed=seed, config=PATIENT) as cluster:
        one = Storm(cluster, chance)
        await one.rage()
        cluster.check()
    await asyncio.gather(*one.reading, return_exceptions=True)


@pytest.mark.parametrize("seed", range(40), ids="seed-{}".format)
def test_a_storm_breaks_no_promise(seed: int) -> None:
    run(storm(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40, 1000), ids="seed-{}".format)
def test_a_thousand_storms(seed: int) -> None:
    run(storm(seed))
