"""Live nodes on virtual time keep nothing of topics that were used once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cubecast.net.node.node import Node
from cubecast.sim import census as counting
from cubecast.sim.census import census
from cubecast.testing import Cluster, on_virtual_time

REQUESTS = 60
PASSING = ("Faults", "Memory", "Detector", "Peer", "Link", "FrameDecoder._routes", "_")
QUIET_S = 300.0
"""Longer than three times the default of `forget_after`."""


@pytest.fixture
def whole_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what the live shell keeps, too."""
    monkeypatch.setattr(counting, "PACKAGES", ("cubecast.",))


def tables(nodes: list[Node]) -> Counter[str]:
    """Tables of all nodes, but for what passes through connections.

    A decoder remembers up to `MAX_ROUTES` routes, and then begins anew.
    """
    return Counter(
        {name: count for name, count in census(*nodes).items() if not name.startswith(PASSING)}
    )


async def request(asker: Node, replier: Node, number: int) -> None:
    topic = f"reply/{number}"
    async with asker.subscribe(topic) as messages:
        await replier.publish(topic, "here you are")
        async for message in messages:
            assert message.payload == b"here you are"
            break


@pytest.mark.usefixtures("whole_nodes")
@pytest.mark.parametrize("followed", [False, True], ids=["no follower", "one follows #"])
@on_virtual_time
async def test_topics_that_were_used_once_leave_nothing_behind(followed: bool) -> None:
    async with Cluster(3, trace=False) as nodes:
        three = [nodes[slot] for slot in range(3)]
        read: list[str] = []

        async def watch() -> None:
            async with nodes[2].subscribe("#") as everything:
                async for message in everything:
                    read.append(message.topic)  # noqa: PERF401  (it is cancelled in between)

        watcher = asyncio.create_task(watch()) if followed else None
        for number in range(3):
            await request(nodes[0], nodes[1], number)
        await asyncio.sleep(QUIET_S)
        before = tables(three)
        for number in range(REQUESTS):
            await request(nodes[0], nodes[1], number)
        during = tables(three)
        await asyncio.sleep(QUIET_S)
        after = tables(three)
        grown = {name: (before[name], count) for name, count in after.items()}
        grown = {name: pair for name, pair in grown.items() if pair[1] > pair[0] + 3}
        assert not grown, "entries before and after"
        assert sum(during.values()) > sum(after.values()) + REQUESTS
        if watcher is not None:
            watcher.cancel()
            assert len(read) == REQUESTS + 3, "nothing was missed, also of names used before"
