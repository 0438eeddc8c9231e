"""Order across topics on live cubecast nodes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import cubecast
from cubecast.errors import Closed, NotSent
from cubecast.ordering.live import Ordered
from cubecast.ordering.services.cubecast import HIDDEN, CubecastService
from support.ordering_talks import PATIENT, Connect, check_order, hold_a_conversation


def joining() -> Connect:
    """Each member is a node of one cluster."""
    nodes: list[cubecast.Node] = []

    async def connect(name: str, stack: AsyncExitStack) -> CubecastService:
        seed = nodes[0].address if nodes else None
        nodes.append(await stack.enter_async_context(cubecast.join(seed)))
        return CubecastService(name, nodes[-1])

    return connect


def test_all_subscribers_see_the_same_order_and_nothing_is_tagged_or_lost() -> None:
    check_order(asyncio.run(hold_a_conversation(joining())))


def test_no_pattern_that_begins_with_a_wildcard_reads_inboxes() -> None:
    async def main() -> list[str]:
        async with cubecast.join(None) as node, node.subscribe("#") as everything:
            async with Ordered(CubecastService("a", node), managers=["a"]) as ordered:
                await ordered.subscribe("t0")
                await node.publish(HIDDEN + "a", b"no message")
                await ordered.publish("t0", b"one")
                assert (await anext(ordered)).payload == b"one"
            return [(await anext(everything)).topic]

    assert asyncio.run(main()) == ["t0"]


def test_a_node_that_closes_is_told_to_who_publishes_and_who_reads() -> None:
    async def main() -> None:
        async with cubecast.join(None) as node:
            ordered = Ordered(CubecastService("a", node), managers=["a"], config=PATIENT)
            await ordered.__aenter__()
            await ordered.subscribe("t0")
            await node.close()
            with pytest.raises(Closed):
                await asyncio.wait_for(anext(ordered), 60)
            with pytest.raises(Closed):
                await ordered.publish("t0", b"refused")
            await ordered.close()

    asyncio.run(main())


def test_a_member_that_does_not_read_makes_publishers_wait_and_loses_nothing() -> None:
    small = cubecast.NodeConfig.preset("local", window=256 * 1024, queue_bytes=16 * 1024)
    most = 5_000

    async def main() -> tuple[int, list[int]]:
        few = cubecast.OrderedConfig(unread=10, unpublished=50, publish_timeout_s=0.5)
        async with (
            cubecast.join(None, config=small) as one,
            cubecast.join(one.address, config=small) as other,
            cubecast.ordered(one, name="w", managers=["w"], config=few) as writer,
            cubecast.ordered(other, managers=["w"], config=few) as reader,
        ):
            await reader.subscribe("t0")
            published = await publish_until_refused(writer, most)
            read = [int((await anext(reader)).payload) for _ in range(published)]
            return published, read

    published, read = asyncio.run(main())
    assert published < most
    assert read == list(range(published))


async def publish_until_refused(writer: Ordered, most: int) -> int:
    """Publish until no room comes back; how many were taken."""
    for number in range(most):
        try:
            await writer.publish("t0", f"{number:01024}")
        except NotSent:
            return number
    return most
