"""Live clusters for longer: they grow and shrink under load, over bad links, for ten minutes.

`make test` runs the small versions, `make soak` the long ones; all over real sockets.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from cubecast.bench.harness import BenchPlan, measure
from cubecast.net.links.faults import Rule
from cubecast.net.loop import run_loop
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.protocol.config import Config
from cubecast.trace import Record, check
from support.live import TOPIC, join, judge

FASTER = Config(
    window=64 * 1024,
    ack_delay=1_000,
    stable_delay=5_000,
    resend_after=50_000,
    resend_max=400_000,
    patience=4,
)


class Talkers:
    """Nodes that all subscribe to one topic and all publish to it, until they leave."""

    def __init__(self, pause_s: float) -> None:
        self.trace: list[Record] = []
        self.nodes: list[Node] = []
        self.published = 0
        self._pause_s = pause_s
        self._tasks: dict[Node, list[asyncio.Task[None]]] = {}

    async def grow(self) -> None:
        """One more, which begins to publish when its subscription has returned."""
        node = await join(
            self.nodes,
            trace=self.trace,
            protocol=FASTER,
            join_timeout_s=60,
            leave_timeout_s=60,
        )
        subscription = await node.subscribe(TOPIC).__aenter__()
        self._tasks[node] = [
            asyncio.create_task(self._read(subscription)),
            asyncio.create_task(self._publish(node)),
        ]

    async def shrink(self, node: Node) -> None:
        """One less: it stops publishing and leaves gracefully."""
        self.nodes.remove(node)
        reading, publishing = self._tasks.pop(node)
        await stop(publishing)
        await node.close()
        await stop(reading)

    async def _read(self, subscription: object) -> None:
        async for _ in subscription:  # type: ignore[attr-defined]
            pass

    async def _publish(self, node: Node) -> None:
        while True:
            await node.publish(TOPIC, b"x" * 50)
            self.published += 1
            await asyncio.sleep(self._pause_s)

    def _done(self) -> bool:
        """Whether all are together and nothing is on its way."""
        together = all(len(node.members) == len(self.nodes) for node in self.nodes)
        return together and all(shell_of(node).at_rest() for node in self.nodes)

    async def end(self, lossless: bool = True) -> None:
        """Everyone stops, and then everyone has everything.

        Not `lossless`: links were cut so long that nodes may have been excluded and come back; then
        they say what they missed, and the checkers ask for a reason.
        """
        for _, publishing in self._tasks.values():
            await stop(publishing)
        for node in self.nodes:
            node.faults.clear()
        async with asyncio.timeout(120):
            while not self._done():
                await asyncio.sleep(0.02)
        if lossless:
            judge(self.trace, self.published)
        else:
            report = check(self.trace)
            assert report.ok, report.violations[:3]
            assert report.publications == self.published
        for node in list(self.nodes):
            await self.shrink(node)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def grow_and_shrink(most: int, least: int, pause_s: float, hold_s: float) -> None:
    talkers = Talkers(pause_s)
    rng = Random(0)
    for size in range(1, most + 1):
        await talkers.grow()
        if size in (2, most):
            await asyncio.sleep(hold_s)
    while len(talkers.nodes) > least:
        await talkers.shrink(rng.choice(talkers.nodes))  # the founder like any other
    await asyncio.sleep(hold_s)
    await talkers.end()


def test_a_cluster_grows_and_shrinks_under_load() -> None:
    run_loop(grow_and_shrink(most=12, least=3, pause_s=0.02, hold_s=0.2))


@pytest.mark.soak
def test_a_cluster_grows_to_32_and_shrinks_to_4_under_load() -> None:
    for _ in range(5):
        run_loop(grow_and_shrink(most=32, least=4, pause_s=0.05, hold_s=5))


async def bad_links(nodes: int, seconds: float, seed: int) -> None:
    """Delay, loss and cuts come and go on random links while everyone publishes."""
    talkers = Talkers(pause_s=0.02)
    rng = Random(seed)
    for _ in range(nodes):
        await talkers.grow()
    for _ in range(int(seconds / 0.25)):
        node, peer = rng.sample(talkers.nodes, 2)
        rule = rng.choice(
            [
                Rule(delay_s=rng.uniform(0, 0.05), jitter_s=rng.uniform(0, 0.02)),
                Rule(loss=rng.uniform(0, 0.3)),
                Rule(cut=True),
                Rule(cut_outgoing=True),
                Rule(),
            ]
        )
        node.faults.set(peer.slot, rule)
        if rng.random() < 0.3:
            rng.choice(talkers.nodes).faults.clear()
        await asyncio.sleep(0.25)
    await talkers.end(lossless=False)


def test_bad_links_for_a_few_seconds() -> None:
    run_loop(bad_links(nodes=5, seconds=4, seed=1))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_bad_links_for_a_minute(seed: int) -> None:
    run_loop(bad_links(nodes=8, seconds=60, seed=seed))


@pytest.mark.soak
def test_memory_stays_flat_for_ten_minutes() -> None:
    """Full speed, all to all; from the second minute on memory is what it was."""
    metrics = measure("cubecast", BenchPlan("all-to-all", seconds=600))
    assert metrics["lost"] == metrics["inversions"] == 0
    assert metrics["rss_end_mb"] < 1.05 * metrics["rss_half_mb"]
    assert metrics["rss_end_mb"] < 1.3 * metrics["rss_start_mb"]
