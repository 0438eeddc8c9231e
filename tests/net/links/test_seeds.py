"""Seeds: several of them, asked until a deadline, and this node's own address among them."""

from __future__ import annotations

import asyncio

import pytest

import cubecast
from cubecast.errors import JoinError
from cubecast.net.links.address import format_address
from cubecast.net.links.reach import Way, parse_seeds, unfit
from support.live import TOPIC, cluster, live


async def closed_port() -> str:
    """An address without a listener."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    return format_address(host, port)


@live
async def test_a_node_joins_by_the_first_seed_that_answers() -> None:
    dead = await closed_port()
    async with (
        cluster(1) as nodes,
        cubecast.join(f"{dead}, {nodes[0].address}") as newcomer,
    ):
        assert newcomer.cluster == nodes[0].cluster


@live
async def test_a_seed_that_starts_later_is_waited_for() -> None:
    where = await closed_port()
    joining = asyncio.create_task(cubecast.join(where, join_timeout_s=25).__aenter__())
    await asyncio.sleep(0)
    async with cubecast.start(where) as first:
        newcomer = await joining
        assert newcomer.cluster == first.cluster
        await newcomer.close()


@live
async def test_seeds_that_stay_silent_are_named_when_time_is_up() -> None:
    one, two = await closed_port(), await closed_port()
    with pytest.raises(JoinError, match=r"no answer in 1 s; ") as caught:
        async with cubecast.join(f"{one},{two}", join_timeout_s=1):
            raise AssertionError("it has joined")
    assert one in caught.value.reason


@live
async def test_a_refusal_counts_only_when_all_seeds_refuse() -> None:
    async with (
        cluster(1, secret="the secret of another one") as strangers,
        cluster(1, secret="the secret of this cluster") as nodes,
    ):
        seeds = f"{strangers[0].address},{nodes[0].address}"
        async with cubecast.join(seeds, secret="the secret of this cluster") as newcomer:
            assert newcomer.cluster == nodes[0].cluster
        with pytest.raises(JoinError, match="secret is not the same"):
            async with cubecast.join(seeds, secret="a secret of no cluster", join_timeout_s=1e6):
                raise AssertionError("it has joined")


@live
async def test_a_node_cannot_join_itself() -> None:
    where = await closed_port()
    port = where.partition(":")[2]
    for seed in (where, f"localhost:{port}"):
        with pytest.raises(JoinError, match="own address: name another member, or begin"):
            async with cubecast.join(seed, listen=where):
                raise AssertionError("it has joined")


@live
async def test_its_own_address_among_the_seeds_is_skipped() -> None:
    where = await closed_port()
    async with (
        cluster(1) as nodes,
        cubecast.join(f"{where},{nodes[0].address}", listen=where) as newcomer,
    ):
        assert newcomer.address == where
        assert len(newcomer.members) == 2


@live
async def test_a_seed_is_needed_only_to_join() -> None:
    async with cluster(1) as nodes:
        seed = nodes[0]
        async with (
            cubecast.join(seed.address) as second,
            cubecast.join(seed.address) as third,
            third.subscribe(TOPIC) as messages,
        ):
            await nodes.pop().close()
            await second.publish(TOPIC, b"without it")
            assert (await anext(messages)).payload == b"without it"


@pytest.mark.parametrize("text", ["", " , ", "a:1,b:x", "a:1,[::1"])
def test_a_list_of_seeds_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|no address to join"):
        parse_seeds(text)


@live
async def test_advertise_is_what_others_are_told() -> None:
    async with cubecast.start("127.0.0.1:0", advertise="localhost") as first:
        host, _, port = first.address.partition(":")
        assert host == "localhost"
        async with cubecast.join(first.address, advertise=f"127.0.0.1:{port}0"[:15]) as second:
            assert second.members[0] == first.address
            assert second.address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("theirs", "ours", "peer", "local", "says"),
    [
        ("127.0.0.1:7400", "10.0.0.1:7400", "10.0.0.2", "10.0.0.1", "they would reach themselves"),
        ("localhost:7400", "10.0.0.1:7400", "10.0.0.2", "10.0.0.1", "they would reach themselves"),
        ("[::1]:7400", "10.0.0.1:7400", "10.0.0.2", "10.0.0.1", "they would reach themselves"),
        ("10.0.0.2:7400", "127.0.0.1:7400", "10.0.0.2", "10.0.0.1", "start it with advertise"),
        ("10.0.0.2:7400", "10.0.0.1:7400", "10.0.0.2", "10.0.0.1", ""),
        ("127.0.0.1:7401", "127.0.0.1:7400", "127.0.0.1", "127.0.0.1", ""),
        ("127.0.0.1:7401", "10.0.0.1:7400", "10.0.0.1", "10.0.0.1", ""),
        ("127.0.0.1:7401", "host:7400", "host", "host", ""),
    ],
)
def test_a_loopback_address_is_unfit_for_another_machine(
    theirs: str, ours: str, peer: str, local: str, says: str
) -> None:
    why = unfit(theirs, ours, peer, local)
    assert says in why
    assert bool(why) == bool(says)


def test_a_way_to_this_machine_leads_nowhere_else() -> None:
    assert not Way("localhost:1", "127.0.0.1", "127.0.0.1").leads_elsewhere
    assert not Way("me:1", "10.0.0.1", "10.0.0.1").leads_elsewhere
    assert Way("you:1", "10.0.0.1", "10.0.0.2").leads_elsewhere
