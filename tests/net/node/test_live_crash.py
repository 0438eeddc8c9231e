"""Nodes that are killed, paused and cut off while others talk, on virtual time and a network in
memory; tests/net/node/test_live_killed.py does some of it to processes.  Every trace is judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TypeAlias

import pytest

from cubecast.errors import Closed, CubecastError, JoinError, NotSent, Unknown
from cubecast.net.client.client import Client
from cubecast.net.client.shell import ClientShell
from cubecast.net.events import Discarded, Event, Excluded, Gap, MemberLeft, Returned
from cubecast.net.links.connection import NOBODY
from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.net.node import presence
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.publishing.receipt import Receipt
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.testing import Cluster, on_virtual_time
from cubecast.trace import Report

TOPICS = ("chat/room1", "chat/room2")
PAUSE_S = 0.1

Task: TypeAlias = "asyncio.Task[None]"


class Talk:
    """An application at every node: it reads all topics and publishes to them all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.read: dict[str, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self, node: Node, topics: Iterable[str] = TOPICS) -> None:
        """Read and publish at a node until it ends."""
        for topic in topics:
            messages = node.subscribe(topic)
            await messages.__aenter__()
            self._spawn(self._read(node, messages))
            self._spawn(self._publish(node, topic))

    def _spawn(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)

    async def _read(self, node: Node, messages: Subscription) -> None:
        try:
            async for message in messages:
                self.read.setdefault(node.address, []).append(message.payload)
        except Closed:
            pass

    async def _publish(self, node: Node, topic: str) -> None:
        chance = Random(f"{node.uid}/{topic}")
        try:
            for number in range(1_000_000):
                await asyncio.sleep(PAUSE_S * chance.uniform(0.5, 1.5))
                await node.publish(topic, f"{node.uid}/{number}")
        except (Closed, NotSent):
            pass

    async def end(self) -> Report:
        """Stop talking; all agree on who is there and on what was said."""
        for task in self._tasks:
            if task.get_coro().__name__ == "_publish":  # type: ignore[union-attr]
                task.cancel()
        await self.cluster.settle()
        report = self.cluster.check()
        for task in self._tasks:
            task.cancel()
        for done in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert done is None or isinstance(done, asyncio.CancelledError)
        return report


@asynccontextmanager
async def talking(count: int, seed: int = 0) -> AsyncIterator[tuple[Cluster, Talk]]:
    """A cluster in which everyone has talked for a second."""
    async with Cluster(count, seed=seed) as cluster:
        talk = Talk(cluster)
        for node in cluster.nodes:
            await talk.join(node)
        await asyncio.sleep(1)
        yield cluster, talk


@on_virtual_time
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dead", [(7,), (0,), (3,), (2, 5), (0, 1), (4, 5, 6, 7)], ids=str)
async def test_the_others_go_on_without_those_who_are_killed(
    dead: tuple[int, ...], seed: int
) -> None:
    """The highest slot, the leader, a relay, two at once, the first two leaders, a half."""
    async with talking(8, seed) as (cluster, talk):
        began = cluster.time
        for slot in dead:
            cluster.kill(slot)
        alive = sorted(node.slot for node in cluster.nodes)
        while any(sorted(node.members) != alive for node in cluster.nodes):
            await asyncio.sleep(0.05)
        assert cluster.time - began < 20
        await asyncio.sleep(1)
        await talk.end()


@on_virtual_time
async def test_one_is_left_and_others_come() -> None:
    async with talking(4) as (cluster, talk):
        for slot in (0, 1, 3):
            cluster.kill(slot)
            await asyncio.sleep(0.3)
        while sorted(cluster[2].members) != [2]:
            await asyncio.sleep(0.05)
        for slot in (0, 1, 3):
            await talk.join(await cluster.restart(slot))
        await asyncio.sleep(1)
        await talk.end()


@on_virtual_time
@pytest.mark.parametrize("wait", [0.0, 0.5, 10.0])
async def test_a_process_that_was_killed_begins_again_at_its_address(wait: float) -> None:
    """Before the others have noticed, or after."""
    async with talking(5) as (cluster, talk):
        cluster.kill(2)
        await asyncio.sleep(wait)
        node = await cluster.restart(2)
        await talk.join(node)
        await asyncio.sleep(1)
        await talk.end()
        assert sorted(cluster[0].members) == [0, 1, 2, 3, 4]
        assert list(cluster[0].members.values()).count(node.address) == 1


@on_virtual_time
@pytest.mark.parametrize("seed", range(2))
async def test_two_halves_go_on_and_come_together(seed: int) -> None:
    async with talking(8, seed) as (cluster, talk):
        told = [node.events() for node in cluster.nodes]
        cluster.partition({0, 1, 2, 3}, {4, 5, 6, 7})
        await asyncio.sleep(10)
        assert sorted(cluster[1].members) == [0, 1, 2, 3]
        assert sorted(cluster[6].members) == [4, 5, 6, 7]
        cluster.heal()
        while any(len(node.members) != 8 for node in cluster.nodes):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        report = await talk.end()
        assert report.gaps > 0
        for slot, events in enumerate(told):
            kinds = {type(event) for event in drained(events)}
            assert Gap in kinds  # each half had published what the other did not get
            assert (Excluded in kinds) == (Returned in kinds) == (slot >= 4)


def drained(events: AsyncIterator[Event]) -> list[Event]:
    """What an iterator of events has to tell at this moment."""
    return list(events._kept)  # type: ignore[attr-defined]


@on_virtual_time
@pytest.mark.parametrize("slot", [0, 3])
async def test_one_that_was_cut_off_returns_and_says_what_it_missed(slot: int) -> None:
    async with talking(5) as (cluster, talk):
        events = cluster[slot].events()
        uid = cluster[slot].uid
        cluster.partition({slot})
        await asyncio.sleep(10)
        cluster.heal()
        while any(len(node.members) != 5 for node in cluster.nodes):
            await asyncio.sleep(0.05)
        assert cluster[slot].uid != uid
        await asyncio.sleep(1)
        report = await talk.end()
        gaps = [event for event in drained(events) if isinstance(event, Gap)]
        assert {gap.topic for gap in gaps} == set(TOPICS)
        assert report.gaps > 0


@on_virtual_time
async def test_a_wrong_suspicion_is_survived() -> None:
    """A member is sure that a healthy node is dead."""
    async with talking(4) as (cluster, talk):
        shell_of(cluster[0]).member.suspect(2, shell_of(cluster[0]).now())
        await asyncio.sleep(5)
        await talk.end()
        assert sorted(cluster[0].members) == [0, 1, 2, 3]


@on_virtual_time
@pytest.mark.parametrize("seed", range(2))
async def test_nodes_come_and_go_while_others_die(seed: int) -> None:
    async with talking(6, seed) as (cluster, talk):
        cluster.kill(1)
        growing = asyncio.create_task(cluster.grow())
        leaving = asyncio.create_task(cluster.shrink(4))
        await asyncio.sleep(0.01)
        cluster.kill(3)
        await talk.join(await growing)
        await leaving
        await talk.end()


@on_virtual_time
async def test_all_leave_at_once() -> None:
    async with talking(5) as (cluster, talk):
        began = cluster.time
        await talk.end()
        await asyncio.gather(*(node.close() for node in cluster.nodes))
        assert cluster.time - began < 20
        cluster._nodes.clear()


@on_virtual_time
async def test_a_crash_under_loss_and_jitter() -> None:
    async with talking(6) as (cluster, talk):
        cluster.on_every_link(replace(cluster._everywhere, loss=0.05, jitter_s=0.01))
        await asyncio.sleep(1)
        cluster.kill(5)
        cluster.kill(0)
        await asyncio.sleep(15)
        cluster.heal()
        await talk.end()


@on_virtual_time
async def test_receipts_go_from_life_to_life() -> None:
    """Cut off for long, a node is its own cluster; what it takes on its way back waits for that."""
    async with Cluster(4) as cluster, AsyncExitStack() as stack:
        for node in cluster.nodes:
            await stack.enter_async_context(node.subscribe("chat"))
        apart = cluster[3]
        events = apart.events()
        cluster.partition({3})
        alone = await publish(apart, b"to myself alone")
        await alone.stable(20)  # all in its cluster of one have it
        assert sorted(apart.members) == [3]
        cluster.heal()
        while not isinstance(await anext(events), Excluded):
            pass
        late = await publish(apart, b"waits for the return")
        await late.stable(20)
        assert late.seq == 0
        assert len(apart.members) == 4
        await cluster.settle()
        cluster.check()


async def publish(node: Node, payload: bytes) -> Receipt:
    receipt = await node.publish("chat", payload, receipt=True)
    assert receipt is not None
    return receipt


@on_virtual_time
async def test_a_receipt_of_what_was_under_way_is_unknown() -> None:
    config = NodeConfig.preset("local", beacon_every=100_000)  # it hears of its exclusion at once
    async with (
        Cluster(3, config=config) as cluster,
        cluster[0].subscribe("chat"),
        cluster[2].subscribe("chat"),
    ):
        first = await publish(cluster[2], b"warm up")
        await first.stable(10)
        for other in (0, 1):  # it hears the others, and they do not hear it
            cluster.cut(2, other, one_way=True)
        receipt = await publish(cluster[2], b"under way")
        with pytest.raises(Unknown, match="excluded"):
            await receipt.stable(30)
        await cluster[2].publish("chat", b"accepted, and sent in the next life")
        await asyncio.sleep(0.1)
        with pytest.raises(NotSent, match="in no cluster for 1 s"):
            await cluster[2].publish("chat", b"too much", timeout=1)
        assert cluster[2].explain("chat")["standing"] == "apart"
        cluster.heal()
        await cluster.settle()
        cluster.check()


@on_virtual_time
async def test_events_tell_a_crash_from_a_leave() -> None:
    async with Cluster(4) as cluster:
        events = cluster[0].events()
        await cluster.shrink(3)
        cluster.kill(2)
        await cluster.settle()
        left = [event for event in drained(events) if isinstance(event, MemberLeft)]
        assert left == [MemberLeft(3, False), MemberLeft(2, True)]
        assert not any(isinstance(event, Discarded) for event in drained(events))


@on_virtual_time
@pytest.mark.parametrize(("a", "b"), [(0, 1), (0, 3), (1, 2)])
async def test_a_broken_link_is_gone_around(a: int, b: int) -> None:
    """Two members do not reach each other, and a third one reaches both: none is excluded."""
    async with talking(4) as (cluster, talk):
        cluster.cut(a, b)
        await asyncio.sleep(5)
        epochs = [node.epoch for node in cluster.nodes]
        before = len(talk.read[cluster[b].address])
        await asyncio.sleep(2)
        assert len(talk.read[cluster[b].address]) > before + 50
        assert [node.epoch for node in cluster.nodes] == epochs
        assert all(len(node.members) == 4 for node in cluster.nodes)
        cluster.heal()
        await asyncio.sleep(5)
        assert not any(shell_of(node).member.detector.broken for node in cluster.nodes)  # type: ignore[union-attr]
        report = await talk.end()
        assert report.gaps == report.discards == 0


@on_virtual_time
async def test_a_newcomer_joins_while_a_link_is_broken() -> None:
    async with talking(4) as (cluster, talk):
        cluster.cut(0, 2)
        await asyncio.sleep(5)
        await talk.join(await cluster.grow())
        await asyncio.sleep(5)
        assert all(sorted(node.members) == [0, 1, 2, 3, 4] for node in cluster.nodes)
        cluster.heal()
        await talk.end()


async def excluded(cluster: Cluster, slot: int) -> None:
    """Have a node be cut off until it is excluded and knows it, and let it not come back."""
    events = cluster[slot].events()
    for other in cluster.nodes:
        if other.slot != slot:
            cluster.cut(slot, other.slot, one_way=True)  # it hears the others, and is not heard
    while not isinstance(await anext(events), Excluded):
        pass


QUICK_NEWS = NodeConfig.preset("local", beacon_every=100_000)
"""Who was excluded hears of it before it goes on alone."""


@on_virtual_time
async def test_a_node_in_no_cluster_says_so_and_its_calls_wait_until_it_is_back() -> None:
    async with Cluster(3, config=QUICK_NEWS) as cluster:
        node = cluster[2]
        await excluded(cluster, 2)
        assert node.epoch == -1
        assert node.suspects == []
        assert node.slot == 2
        assert not shell_of(node).at_rest()
        assert node.explain("chat")["standing"] == "apart"
        entering = asyncio.create_task(node.subscribe("chat").__aenter__())
        following = asyncio.create_task(node.subscribe("news/#").__aenter__())
        asked = asyncio.create_task(node.topics())
        await asyncio.sleep(2)
        assert not entering.done()
        assert not following.done()
        assert not asked.done()
        cluster.heal()
        messages, news = await entering, await following
        assert set(await asked) <= {"chat"}
        await cluster[0].publish("chat", b"welcome")
        await cluster[1].publish("news/today", b"it is back")
        assert (await anext(messages)).payload == b"welcome"
        assert (await anext(news)).payload == b"it is back"
        await cluster.settle()
        cluster.check()


@on_virtual_time
async def test_questions_to_a_node_that_does_not_come_back_fail() -> None:
    async with Cluster(3, config=replace(QUICK_NEWS, join_timeout_s=2.0)) as cluster:
        await excluded(cluster, 2)
        with pytest.raises(CubecastError, match="in no cluster for 2 s"):
            await cluster[2].topics()
        with pytest.raises(CubecastError, match="in no cluster for 2 s"):
            await cluster[2].subscribers("chat")


@on_virtual_time
async def test_a_node_closes_while_it_is_in_no_cluster() -> None:
    async with Cluster(3, config=QUICK_NEWS) as cluster, AsyncExitStack() as stack:
        for node in cluster.nodes:
            await stack.enter_async_context(node.subscribe("chat"))
        await excluded(cluster, 2)
        waiting = asyncio.create_task(cluster[2].topics())
        await asyncio.sleep(0.1)
        began = cluster.time
        await cluster.shrink(2)
        assert cluster.time - began < NodeConfig().leave_timeout_s / 2
        with pytest.raises(Closed):
            await waiting
        cluster.heal()
        await cluster.settle()
        cluster.check()


@on_virtual_time
async def test_patterns_find_again_what_they_read() -> None:
    async with Cluster(4) as cluster, cluster[3].subscribe("chat/#") as messages:
        await cluster[0].publish("chat/a", b"before")
        assert (await anext(messages)).payload == b"before"
        cluster.partition({3})
        await asyncio.sleep(10)
        await cluster[0].publish("chat/a", b"missed")
        await cluster[1].publish("chat/b", b"a new topic, missed")
        cluster.heal()
        await cluster.settle()
        for topic in ("chat/a", "chat/b"):
            await cluster[0].publish(topic, b"after")
            message = await anext(messages)
            assert (message.topic, message.payload) == (topic, b"after")
        await cluster.settle()
        assert cluster.check().gaps == 2


@on_virtual_time
async def test_a_light_client_stays_with_a_node_that_is_excluded_and_returns() -> None:
    async with Cluster(3, config=QUICK_NEWS) as cluster:
        shell = ClientShell(network=shell_of(cluster[2]).network)
        await shell.attach(cluster[2].address, 10)
        client = shell.client
        async with client.subscribe("chat") as messages, cluster[0].subscribe("chat") as others:
            first = await client.publish("chat", b"first", receipt=True)
            assert first is not None
            await first.stable(10)
            for other in (0, 1):
                cluster.cut(2, other, one_way=True)
            lost = await client.publish("chat", b"under way", receipt=True)
            assert lost is not None
            with pytest.raises(Unknown, match="excluded"):
                await lost.stable(30)
            newcomer = await cluster.grow()
            assert newcomer.slot == 2
            late = await client.publish("chat", b"from the next life", receipt=True)
            assert late is not None
            cluster.heal()
            await late.stable(30)
            assert client.slot == cluster._nodes[2].slot == 3
            payloads = [(await anext(others)).payload for _ in range(2)]
            assert payloads == [b"first", b"from the next life"]
            payloads = [(await anext(messages)).payload for _ in range(3)]
            assert payloads == [b"first", b"under way", b"from the next life"]
        await client.close()
        await cluster.settle()
        cluster.check()


async def while_excluded(cluster: Cluster, slot: int, begin: Callable[[], Task]) -> list[Task]:
    """What is begun ten times a second until a node is excluded, and twice afterwards."""
    telling = asyncio.create_task(excluded(cluster, slot))
    begun = []
    while not telling.done():
        begun.append(begin())
        await asyncio.sleep(0.1)
    begun += [begin() for _ in range(2)]
    await telling
    return begun


SLOW_GREETINGS = Rule(delay_s=0.5)
"""To shake hands and to ask takes 1.5 s: of many that begin in turn some are at every stage."""


@on_virtual_time
async def test_light_clients_attach_while_their_node_is_excluded() -> None:
    """A client needs the node, not one life of it: no handshake under way is broken off."""
    async with Cluster(3, config=QUICK_NEWS) as cluster:
        clients: list[Client] = []

        def attach() -> Task:
            shell = ClientShell(network=shell_of(cluster[2]).network)
            clients.append(shell.client)
            shell.faults.set(None, SLOW_GREETINGS)
            return asyncio.create_task(shell.attach(cluster[2].address, 10))

        attaching = await while_excluded(cluster, 2, attach)
        assert sum(not task.done() for task in attaching) > 14
        await asyncio.gather(*attaching)
        cluster.heal()
        await cluster.settle()
        for client in clients:
            assert sorted(await client.members()) == [0, 1, 2]
            await client.close()


@on_virtual_time
async def test_nodes_join_at_a_node_that_is_excluded_meanwhile() -> None:
    """A node needs the life that it shakes hands with: it is sent away, and dials the next one."""
    async with Cluster(3, config=QUICK_NEWS) as cluster:
        newcomers: list[Node] = []

        def join() -> Task:
            config = replace(QUICK_NEWS, join_timeout_s=60.0)
            faults = LinkFaults({NOBODY: SLOW_GREETINGS})
            newcomers.append(
                node := Shell(config, network=shell_of(cluster[2]).network, faults=faults).node
            )
            return asyncio.create_task(shell_of(node).start(cluster[2].address))

        joining = await while_excluded(cluster, 2, join)
        cluster.heal()
        await asyncio.gather(*joining)
        for node in newcomers:
            node.faults.clear()
        while len(cluster[2].members) < 3 + len(newcomers):
            await asyncio.sleep(0.1)
        async with newcomers[-1].subscribe("chat") as messages:
            await cluster[2].publish("chat", b"hello")
            assert (await anext(messages)).payload == b"hello"
        for node in newcomers:
            await node.close()


@on_virtual_time
async def test_a_full_cluster_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MAX_SLOTS", 2)
    async with Cluster(2) as cluster:
        with pytest.raises(JoinError, match="the cluster has 2 nodes and room for no more"):
            await cluster.grow()
        cluster.kill(1)
        await cluster.restart(1)  # in the place that it had
        await cluster.settle()
