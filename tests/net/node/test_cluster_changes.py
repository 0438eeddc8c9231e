"""Nodes that come and go while connections break: all agree on the members in the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cubecast.errors import JoinError
from cubecast.net.links.address import parse_address
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import WireError
from cubecast.net.wire.views import decode_view, encode_view
from cubecast.protocol.cluster.views import Enter, Who
from cubecast.testing import Cluster, on_virtual_time


def break_connections(node: Node, peer: int) -> None:
    """Reset every connection between two nodes, with all that is in them."""
    for connection in list(shell_of(node).mesh._open):
        if connection.slot == peer:
            connection.abort()


async def agree(cluster: Cluster, slots: set[int]) -> None:
    """Everyone comes to know exactly these, and an operation that needs everyone ends."""
    async with asyncio.timeout(60):
        while any(set(node.members) != slots for node in cluster.nodes):
            await asyncio.sleep(0.01)
        for node in cluster.nodes:
            async with node.subscribe("chat"):
                pass


@on_virtual_time
async def test_a_newcomer_is_let_in_although_a_member_does_not_answer() -> None:
    """The others go on without that one; it comes back."""
    async with Cluster(3) as cluster:
        cluster.partition({1}, {0, 2})
        newcomer = await cluster.grow()
        assert newcomer.slot == 1 or sorted(newcomer.members) == [0, 2, 3]
        cluster.heal()
        await cluster.settle()
        await agree(cluster, {0, 1, 2, 3})


@on_virtual_time
async def test_a_newcomer_that_gives_up_does_not_stay() -> None:
    """It waits for a shorter time than the cluster does."""
    async with Cluster(2) as cluster:
        cluster.cut(0, 1)
        cluster._config = replace(cluster._config, join_timeout_s=1.0)
        with pytest.raises(JoinError, match="no answer in 1 s"):
            await cluster.grow()
        cluster.heal()
        await cluster.settle()
        await agree(cluster, {0, 1})


@on_virtual_time
async def test_a_newcomer_that_the_news_does_not_reach_does_not_stay() -> None:
    """It is a member when it has given up, and does not say so: the others find out."""
    async with Cluster(2) as cluster:
        cluster[0].faults.set(None, replace(cluster[0].faults.rule(2), delay_s=0.8))
        cluster._config = replace(cluster._config, join_timeout_s=1.0)
        with pytest.raises(JoinError, match="no answer in 1 s"):
            await cluster.grow()
        cluster.heal()
        await cluster.settle()
        await agree(cluster, {0, 1})


@on_virtual_time
async def test_an_idle_newcomer_stays_although_its_connection_breaks() -> None:
    async with Cluster(2) as cluster:
        newcomer = await cluster.grow()
        break_connections(cluster[0], newcomer.slot)  # before it has said anything
        await asyncio.sleep(60)
        await agree(cluster, {0, 1, 2})


@on_virtual_time
async def test_the_news_of_a_newcomer_is_said_again() -> None:
    """It is lost with the connection to node 1."""
    async with Cluster(3) as cluster:
        cluster.cut(0, 1)
        growing = asyncio.create_task(cluster.grow())
        await asyncio.sleep(0.1)
        break_connections(cluster[0], 1)
        await asyncio.sleep(1)
        cluster.heal()
        await growing
        await agree(cluster, {0, 1, 2, 3})


@on_virtual_time
async def test_the_news_of_a_leaver_is_said_again() -> None:
    """Also after the change was given up, and if it is the answer that was lost."""
    for one_way in (False, True):
        async with Cluster(3) as cluster:
            cluster.cut(1, 0, one_way=one_way)
            leaving = asyncio.create_task(cluster.shrink(2))
            await asyncio.sleep(15 if one_way else 1)
            break_connections(cluster[0], 1)
            await asyncio.sleep(1)
            cluster.heal()
            await leaving
            await agree(cluster, {0, 1})


@on_virtual_time
async def test_a_request_to_leave_is_made_again() -> None:
    """It is lost with the connection; the leaver is let go long before it gives up."""
    async with Cluster(3) as cluster:
        cluster.cut(2, 0, one_way=True)
        began = cluster.time
        leaving = asyncio.create_task(cluster.shrink(2))
        await asyncio.sleep(0.5)
        break_connections(cluster[2], 0)
        cluster.heal()
        await leaving
        assert cluster.time - began < NodeConfig().leave_timeout_s / 2
        await agree(cluster, {0, 1})


@on_virtual_time
async def test_a_goodbye_is_said_again() -> None:
    """Everyone knows that the node left, except the node: its goodbye went with a connection."""
    async with Cluster(3) as cluster:
        cluster.cut(0, 2, one_way=True)
        began = cluster.time
        leaving = asyncio.create_task(cluster.shrink(2))
        while 2 in cluster[0].members:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        break_connections(cluster[0], 2)
        cluster.heal()
        await leaving
        assert cluster.time - began < NodeConfig().leave_timeout_s / 2
        await agree(cluster, {0, 1})


@on_virtual_time
async def test_the_successor_tells_who_missed_that_the_first_node_left() -> None:
    async with Cluster(3) as cluster:
        cluster.cut(0, 2)
        leaving = asyncio.create_task(cluster.shrink(0))
        await asyncio.sleep(0.1)
        break_connections(cluster[0], 2)
        await leaving
        await agree(cluster, {1, 2})
        cluster.heal()
        await cluster.grow()
        await agree(cluster, {0, 1, 2})


@pytest.mark.parametrize("address", ["a..b:7400", "a..b", f"{'a' * 64}.org:1", "a\0b:7400"])
def test_an_address_with_an_invalid_host_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not a host"):
        parse_address(address)
    with pytest.raises(ValueError, match="advertise is not a host"):
        NodeConfig(advertise=address)


def test_a_newcomer_with_an_address_that_cannot_be_dialled_is_refused() -> None:
    packet = encode_view(Enter(Who("newcomer", "a..b:7400", 1), -1))
    with pytest.raises(WireError, match="Enter out of bounds"):
        decode_view(packet)


@on_virtual_time
async def test_a_member_is_dialled_again_whatever_went_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dialling fails with an unexpected error; with the next packet it is tried again."""
    async with Cluster(2) as cluster:
        network = shell_of(cluster[0]).network
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        async def fail(*_: object) -> None:
            raise RuntimeError("something unforeseen")

        with monkeypatch.context() as broken:
            broken.setattr(network, "dial", fail)
            break_connections(cluster[0], 1)
            await asyncio.sleep(0.1)
            await cluster[0].publish("chat", b"lost at first")
            await cluster[1].publish("chat", b"lost at first")
            await asyncio.sleep(1)
        await agree(cluster, {0, 1})
