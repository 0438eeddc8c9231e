"""Requests in great number, and while nodes die and links fail."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import cubecast
from cubecast import CubecastError, NoAnswer, Node, NotSent
from cubecast.net.message import Message
from cubecast.net.node.shell import shell_of
from cubecast.sim.census import census
from cubecast.testing import Cluster, Rule, on_virtual_time
from support.live import cluster, live

TOPIC = "service/upper"
REQUESTS = 10_000
AT_ONCE = 50


def upper(message: Message) -> bytes:
    return message.payload.upper()


async def ask(asker: Node | cubecast.Client, count: int) -> None:
    """So many requests, some at once."""

    async def some(first: int) -> None:
        for number in range(first, first + count // AT_ONCE):
            answer = await asker.request(TOPIC, f"r{number}", timeout=60)
            assert answer.payload == f"R{number}".encode()

    await asyncio.gather(*(some(first) for first in range(AT_ONCE)))


async def kept(nodes: list[Node]) -> list[object]:
    """What nodes keep: topics, entries of all tables of the protocol and of those around it."""
    await asyncio.sleep(1)
    found: list[object] = []
    for node in nodes:
        found.append(sorted(await node.topics()))
        found.append(sum(census(shell_of(node).member).values()))
        publishing = shell_of(node).publishing
        found += [len(publishing.boxes), len(publishing._waiting), len(node.requests)]
        found.append(len(shell_of(node).vocabulary.topics))
    return found


@on_virtual_time
async def test_ten_thousand_requests_leave_nothing_behind() -> None:
    async with Cluster(2, trace=False) as nodes, nodes[1].on(TOPIC, upper):
        asker = nodes[0]
        await ask(asker, AT_ONCE)
        await nodes.settle()
        before = await kept(nodes.nodes)
        await ask(asker, REQUESTS)
        await nodes.settle()
        assert await kept(nodes.nodes) == before
        assert asker.requests.late == 0


@live
async def test_thousands_of_requests_of_a_client_to_a_client_leave_nothing_behind() -> None:
    async with (
        cluster(1) as nodes,
        cubecast.connect(nodes[0].address) as asker,
        cubecast.connect(nodes[0].address) as server,
        server.on(TOPIC, upper),
    ):
        await ask(asker, AT_ONCE)
        before = [*await kept(nodes), len(asker.requests), len(await asker.topics())]
        await ask(asker, 2_000)
        after = [*await kept(nodes), len(asker.requests), len(await asker.topics())]
        assert after == before
        assert asker.requests.late == 0


@pytest.mark.parametrize("seed", range(12))
@on_virtual_time
async def test_requests_tell_the_truth_while_nodes_die_and_links_fail(seed: int) -> None:
    """Each gets its own answer, or an error that is right about whether it may be handled."""
    random = Random(f"requests/{seed}")
    handled: set[bytes] = set()
    outcomes: dict[type, int] = {}

    def serve(message: Message) -> bytes:
        handled.add(message.payload)
        return message.payload.upper()

    async def ask_some(node: Node, name: str) -> None:
        for number in range(20):
            word = f"{name}-{number}".encode()
            await asyncio.sleep(random.random())
            try:
                answer = await node.request(TOPIC, word, timeout=random.choice((0.05, 1, 5)))
            except NotSent:
                unsent.add(word)
                kind: type = NotSent
            except NoAnswer:
                kind = NoAnswer
            except CubecastError:  # it was killed: nothing more is sent
                unsent.add(word)
                return
            else:
                assert answer.payload == word.upper()
                assert word in handled
                kind = Message
            outcomes[kind] = outcomes.get(kind, 0) + 1

    unsent: set[bytes] = set()
    async with Cluster(5, seed=seed) as nodes:
        for place in (1, 2):
            await nodes[place].on(TOPIC, serve).__aenter__()
        nodes.on_every_link(Rule(loss=random.choice((0.0, 0.05, 0.2)), jitter_s=0.01))
        askers = {place: nodes[place] for place in (0, 3, 4)}
        asking = [asyncio.ensure_future(ask_some(node, f"n{at}")) for at, node in askers.items()]
        for _ in range(3):
            await asyncio.sleep(random.uniform(0.5, 3))
            fault = random.choice(("kill", "cut", "heal"))
            if fault == "cut":
                nodes.cut(*random.sample(sorted(nodes.places), 2))
            elif fault == "kill" and len(nodes) > 3:
                nodes.kill(random.choice(sorted(nodes.places)))
            else:
                nodes.heal()
        await asyncio.sleep(5)
        nodes.heal()
        await asyncio.gather(*asking)
        await nodes.settle(600)
        assert not unsent & handled
        assert all(len(node.requests) == 0 for node in nodes.nodes)
        async with nodes.nodes[0].on("alive", upper):
            for node in nodes.nodes:
                assert (await node.request("alive", "yes", timeout=60)).payload == b"YES"
        await nodes.settle(600)
        nodes.check()
    assert outcomes.get(Message, 0) > 0
