"""Random and mutated packets against live nodes: no crash, no hang, memory bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from cubecast.net.links.address import parse_address
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.hello import MAX_HELLO, Hello, encode_greeting, new_nonce
from cubecast.net.wire.packets import HELLO, PREFIX, VERSION
from cubecast.testing.dialler import Dialler
from support.insider import SECRET
from support.live import cluster, live, raw, still_works, subscribed, until
from support.packets import hostile_bytes


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence the log: thousands of warnings are expected."""
    log = logging.getLogger("cubecast")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


async def bombard(client: Dialler, random: Random, count: int) -> None:
    """Send `count` packets and the end of the stream; wait for the node to hang up."""
    for _ in range(count):
        client.write(hostile_bytes(random))
    client.say_no_more()
    await client.ended()


async def attack(node: Node, random: Random, packets: int, *, authenticated: bool) -> None:
    sent = 0
    while sent < packets:
        async with raw(node) as client:
            if authenticated:
                await client.authenticate(SECRET)
            elif random.random() < 0.5:
                client.greet(Hello(VERSION, new_nonce(), sealed=random.random() < 0.5))
            burst = random.randint(1, 3)  # the first that is refused ends the connection
            await bombard(client, random, burst)
            sent += burst


@pytest.mark.parametrize("authenticated", [False, True])
@live
async def test_thousands_of_hostile_packets_harm_no_node(authenticated: bool) -> None:
    random = Random(7)
    async with cluster(2, secret=SECRET) as nodes, subscribed(nodes) as subscriptions:
        for _ in range(4):
            await attack(nodes[0], random, 500, authenticated=authenticated)
            await still_works(nodes, subscriptions)
        assert sorted(nodes[1].members) == [0, 1]


@live
async def test_many_strangers_cost_little_memory() -> None:
    """Each may make a node keep one packet of a handshake, and no more: 16 KiB with all of it."""
    strangers, kept = 200, 16 * 1024
    async with cluster(2, secret=SECRET) as nodes, subscribed(nodes) as subscriptions:
        await still_works(nodes, subscriptions)
        host, port = parse_address(nodes[0].address)
        sockets = [socket.socket() for _ in range(strangers)]  # they take nothing that is traced
        mesh = shell_of(nodes[0]).mesh
        tracemalloc.start()
        try:
            for one in sockets:
                one.setblocking(False)
                one.connect_ex((host, port))
            await until(lambda: len(mesh._strangers) == strangers)
            for one in sockets:
                one.send(PREFIX.pack(MAX_HELLO, HELLO) + bytes(MAX_HELLO - 10))
            await until(lambda: all(one._buffer._held > 4000 for one in mesh._strangers))
            await still_works(nodes, subscriptions)
            taken = tracemalloc.get_traced_memory()[0]
            print(taken / strangers)
            assert taken < strangers * kept
        finally:
            tracemalloc.stop()
            for one in sockets:
                one.close()


@live
async def test_a_stranger_that_announces_more_than_a_greeting_is_cut_off() -> None:
    async with cluster(1, secret=SECRET) as nodes, raw(nodes[0]) as client:
        client.write(PREFIX.pack(MAX_HELLO + 1, HELLO))
        await client.ended()


@live
async def test_a_stranger_has_ten_seconds() -> None:
    """What happens then: `test_a_silent_stranger_is_not_kept`."""
    async with cluster(1, secret=SECRET) as nodes, raw(nodes[0]):
        mesh = shell_of(nodes[0]).mesh
        await until(lambda: mesh._strangers)
        (one,) = mesh._strangers
        assert one._deadline is not None
        assert 9 < one._deadline.when() - asyncio.get_running_loop().time() <= 10


@live
async def test_a_flood_of_hellos_is_answered_once() -> None:
    async with cluster(1, secret=SECRET) as nodes, raw(nodes[0]) as client:
        client.write(encode_greeting(Hello(VERSION, new_nonce())) * 10_000)
        answers = 0
        while await client.packet() is not None:
            answers += 1
        assert answers <= 1


@pytest.mark.soak
def test_forty_thousand_packets_against_a_live_node() -> None:
    """As many as the machine has ports for: nearly every packet ends its connection."""

    async def run() -> None:
        random = Random(13)
        async with cluster(2, secret=SECRET) as nodes, subscribed(nodes) as subscriptions:
            await attack(nodes[0], random, 2_000, authenticated=True)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for round_number in range(20):
                await attack(nodes[0], random, 2_000, authenticated=round_number % 2 == 0)
                await still_works(nodes, subscriptions)
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert grown < 5_000_000

    asyncio.run(run())
