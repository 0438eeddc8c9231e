"""Clients and strangers that hoard: what they can make a node hold is bounded, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import cubecast
from cubecast.errors import CubecastError, NotSent
from cubecast.net.events import KEPT, ConnectionLost
from cubecast.net.gateway import questions as questions_module
from cubecast.net.gateway.budget import Budget, Share, TopicBudget, client_of
from cubecast.net.gateway.line import BACKLOG
from cubecast.net.gateway.session import Session
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.subscription import Policy, Subscription
from cubecast.net.wire.clients import (
    Answered,
    Ask,
    Declined,
    Deliver,
    Ended,
    FromNode,
    Listen,
    Ping,
    Pong,
    Publish,
    Read,
    Subscribe,
    Subscribed,
    Taken,
    Unsubscribe,
    size_of,
)
from cubecast.net.wire.packets import PREFIX, VIEW
from cubecast.net.wire.parts import PART_BYTES, cut
from cubecast.protocol.config import Config
from support.clients import RawClient, connected, raw_client, settle
from support.files import written
from support.live import TOPIC, cluster, live, small_window, until

MIB = 1024 * 1024
BLOCK_BYTES = 256 * 1024


# -- what one client holds -------------------------------------------------------------------------


def sessions(node: Node) -> list[Session]:
    return list(shell_of(node).guests._sessions.values())


def subscriptions(node: Node) -> list[Subscription]:
    feeds = (feed for session in sessions(node) for feed in session._subscriptions._feeds.values())
    return [feed.subscription for feed in feeds if feed.subscription is not None]


def held(node: Node) -> int:
    """Bytes that the clients of a node leave unread in its queues."""
    return sum(one.unread for one in subscriptions(node))


async def subscribe(
    client: RawClient, topics: list[str], policy: Policy, queue_bytes: int = 64 * MIB
) -> None:
    for number, topic in enumerate(topics):
        client.say(Subscribe(number, topic, policy, queue_bytes))
        assert isinstance(await client.hear(), Subscribed)


async def publish_to(node: Node, topics: list[str], total: int) -> None:
    """So many bytes in all, divided among topics."""
    for number in range(total // BLOCK_BYTES):
        await node.publish(topics[number % len(topics)], bytes(BLOCK_BYTES))
        await asyncio.sleep(0)


async def drain(client: RawClient, kind: type[FromNode]) -> FromNode:
    """What is said next of a kind."""
    while not isinstance(said := await client.hear(), kind):
        pass
    return said


@live
async def test_the_queues_of_one_client_hold_64_mib_together() -> None:
    """Each of them may: a client had 256 of them, so it could pin 16 GiB."""
    topics = [f"t/{number}" for number in range(8)]
    async with cluster(1) as nodes, raw_client(nodes[0]) as client:
        await subscribe(client, topics, "drop-newest")
        await publish_to(nodes[0], topics, 80 * MIB)
        await settle()
        assert 60 * MIB < held(nodes[0]) <= 64 * MIB
        assert sum(one.dropped for one in subscriptions(nodes[0])) > 0


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
@live
async def test_a_client_beyond_its_budget_loses_what_its_policy_says(policy: Policy) -> None:
    topics = ["a", "b"]
    async with cluster(1, client_bytes=MIB) as nodes, raw_client(nodes[0]) as client:
        await subscribe(client, topics, policy)
        await publish_to(nodes[0], ["a"], 3 * MIB)
        await publish_to(nodes[0], ["b"], 3 * MIB)
        await settle()
        first, second = subscriptions(nodes[0])
        assert held(nodes[0]) <= MIB + BLOCK_BYTES
        assert first.dropped > 0
        assert second.dropped >= 3 * MIB // BLOCK_BYTES - 1, "the other one holds all but a frame"


@live
async def test_a_subscription_that_ends_for_its_clients_budget_says_so() -> None:
    async with cluster(1, client_bytes=MIB) as nodes, raw_client(nodes[0]) as client:
        client.say(Subscribe(0, "a", "drop-newest", 64 * MIB))
        client.say(Subscribe(1, "b", "disconnect", 64 * MIB))
        await drain(client, Subscribed)
        await drain(client, Subscribed)
        await publish_to(nodes[0], ["a"], 3 * MIB)
        await publish_to(nodes[0], ["b"], MIB)
        while not isinstance(said := await client.hear(), Ended):
            if isinstance(said, Deliver) and said.subscription == 1:
                client.say(Read(1, size_of(said.payloads)))
        assert "its client leaves" in said.reason


@live
async def test_a_client_without_budget_that_blocks_holds_up_publishers_and_loses_nothing() -> None:
    """One subscription is not read and takes all of the budget; the other is read to its end."""
    count = 300
    async with (
        cluster(1, client_bytes=32 * 1024, protocol=small_window(16 * 1024)) as nodes,
        raw_client(nodes[0]) as client,
    ):
        node = nodes[0]
        await subscribe(client, ["stalled", "read"], "block", MIB)

        async def publish(topic: str) -> None:
            for number in range(count):
                await node.publish(topic, b"%0*d" % (1000, number))

        stalled, moving = (asyncio.create_task(publish(topic)) for topic in ("stalled", "read"))
        unread: list[Deliver] = []
        read: list[bytes] = []
        while len(read) < count:
            said = await drain(client, Deliver)
            assert isinstance(said, Deliver)
            if said.subscription == 0:
                unread.append(said)
            else:
                read += said.payloads
                client.say(Read(1, size_of(said.payloads)))
        await moving
        assert [int(payload) for payload in read] == list(range(count))
        limit = 32 * 1024 + shell_of(node).config.frame_bytes
        assert all(session._line.share.used <= limit for session in sessions(node))
        first = [payload for said in unread for payload in said.payloads]
        client.say(Read(0, size_of(first)))
        while len(first) < count:
            said = await drain(client, Deliver)
            assert isinstance(said, Deliver)
            first += said.payloads
            client.say(Read(0, size_of(said.payloads)))
        await stalled
        assert [int(payload) for payload in first] == list(range(count))


@live
async def test_two_hundred_idle_subscriptions_need_no_budget() -> None:
    """What counts is what they hold, not the 4 MiB that each of them may."""
    async with (
        cluster(1, client_bytes=MIB) as nodes,
        connected(nodes) as (client,),
        AsyncExitStack() as stack,
    ):
        reading = [
            await stack.enter_async_context(client.subscribe(f"idle/{number}"))
            for number in range(200)
        ]
        for number in range(200):
            await nodes[0].publish(f"idle/{number}", b"hello")
        for one in reading:
            assert (await anext(one)).payload == b"hello"


# -- what all clients hold -------------------------------------------------------------------------


@asynccontextmanager
async def raw_clients(node: Node, count: int) -> AsyncIterator[list[RawClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(raw_client(node)) for _ in range(count)]


@live
async def test_clients_that_hoard_leave_room_for_one_that_reads() -> None:
    limits: dict[str, Any] = {"client_bytes": 4 * MIB, "clients_bytes": 8 * MIB, "max_clients": 16}
    async with cluster(1, **limits) as nodes, raw_clients(nodes[0], 5) as hoarders:
        for one in hoarders:
            await subscribe(one, ["hoard"], "drop-newest")
        await publish_to(nodes[0], ["hoard"], 8 * MIB)
        await settle()
        assert 8 * MIB - len(hoarders) * BLOCK_BYTES < held(nodes[0]) <= 16 * MIB
        async with connected(nodes) as (reader,), reader.subscribe(TOPIC) as messages:
            for number in range(40):
                await nodes[0].publish(TOPIC, bytes(100_000 + number))
                assert len((await anext(messages)).payload) == 100_000 + number
        async with (
            connected(nodes) as (reader,),
            reader.subscribe(TOPIC, policy="drop-newest") as messages,
        ):
            await nodes[0].publish(TOPIC, bytes(100_000))
            assert len((await anext(messages)).payload) == 100_000
            assert messages.dropped == 0


def test_a_share_leaves_each_client_its_part_and_gives_all_back() -> None:
    budget = Budget(100, clients=10)
    greedy, modest = Share(budget, 90), Share(budget, 90)
    greedy.add(90)
    assert (greedy.left, modest.left) == (0, 10)
    modest.add(10)
    assert modest.left == 0
    late = Share(budget, 90)
    assert late.left == budget.part == 10, "although nothing is left in common"
    greedy.close()
    greedy.add(50)  # too late: it is gone
    assert (budget.used, modest.left) == (10, 80)


@live
async def test_large_messages_wait_in_the_budget_or_are_declined_in_words() -> None:
    """No subscriber reads, so publications of clients wait; 1,000 clients could leave 9 MB each."""
    limits: dict[str, Any] = {"client_bytes": 2 * MIB, "clients_bytes": 4 * MIB, "max_clients": 64}
    async with (
        cluster(1, protocol=small_window(), **limits) as nodes,
        nodes[0].subscribe(TOPIC, queue_bytes=1000) as messages,
        raw_clients(nodes[0], 8) as clients,
    ):
        for one in clients:
            one.say(Publish(0, TOPIC, [bytes(1000)], False))
            one.say(Publish(1, TOPIC, [bytes(1_900_000)], False))
        await settle()
        waiting = sum(session._publications._batched for session in sessions(nodes[0]))
        assert waiting <= 4 * MIB + 8 * 2000
        reading = asyncio.create_task(read_all(messages))
        declined = await asyncio.gather(*(why_declined(client, 1) for client in clients))
        reading.cancel()
        assert 5 <= sum(map(bool, declined)) <= 7
        assert all("the node holds too much" in reason for reason in declined if reason)


async def read_all(messages: Subscription) -> None:
    async for _ in messages:
        pass


async def why_declined(client: RawClient, number: int) -> str:
    """Until a packet is taken: why it was declined, if it was."""
    reason = ""
    while not (isinstance(said := await client.hear(), Taken) and said.number >= number):
        if isinstance(said, Declined):
            reason = said.reason
    return reason


@live
async def test_flush_tells_of_a_publication_declined_later() -> None:
    async with (
        cluster(1, client_bytes=1000, clients_bytes=1000) as nodes,
        cubecast.connect(nodes[0].address) as client,
    ):
        await client.publish(TOPIC, b"small")
        await client.publish(TOPIC, bytes(MIB))
        with pytest.raises(NotSent, match="holds too much"):
            await client.flush()
        await client.flush()  # it is told once


# -- what is left of a client that is gone ---------------------------------------------------------


@asynccontextmanager
async def without_collections() -> AsyncIterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def traced() -> int:
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("how", ["it is gone", "it unsubscribes"])
@live
async def test_the_queues_of_a_client_are_free_at_once(how: str) -> None:
    """A cycle of references kept 1.6 GB until the garbage collector came by."""
    topics = [f"t/{number}" for number in range(10)]
    async with cluster(1) as nodes, without_collections():
        node = nodes[0]
        before = traced()
        async with raw_client(node) as client:
            for number, topic in enumerate(topics):
                policy: Policy = "block" if number % 2 else "drop-oldest"
                client.say(Subscribe(number, topic, policy, 64 * MIB))
                await drain(client, Subscribed)
            gone = [weakref.ref(one) for one in (*subscriptions(node), *sessions(node))]
            await publish_to(node, topics, 20 * MIB)
            for number, topic in enumerate(topics):  # and receipts that never end
                client.say(Publish(number, topic, [b"x"], True))
            await settle()
            assert traced() - before > 15 * MIB
            if how == "it unsubscribes":
                for number in range(len(topics)):
                    client.say(Unsubscribe(number))
                await settle()
                assert traced() - before < 4 * MIB, "a little is on its way to it"
                assert not subscriptions(node)
        await settle()
        assert traced() - before < 2 * MIB
        assert [one() for one in gone] == [None] * len(gone)
        assert shell_of(node).guests._budget.used == 0


# -- topics ----------------------------------------------------------------------------------------


def quick_to_forget() -> Config:
    return Config(
        ack_delay=1_000,
        stable_delay=5_000,
        resend_after=500_000,
        resend_max=8_000_000,
        forget_after=20_000,
        idle_topics=0,
    )


async def use(client: RawClient, topics: list[str]) -> list[str]:
    """Publish to topics; what was said of those that were refused."""
    reasons: list[str] = []
    for number, topic in enumerate(topics):
        client.say(Publish(number, topic, [b"x"], False))
        if number % 64 == 63 or number == len(topics) - 1:
            while not (isinstance(said := await client.hear(), Taken) and said.number == number):
                if isinstance(said, Declined):
                    reasons.append(said.reason)
    return reasons


@live
async def test_topics_of_clients_that_attach_again_and_again_are_forgotten() -> None:
    config = Config(ack_delay=1_000, stable_delay=5_000, idle_topics=64, forget_after=500_000)
    async with cluster(2, protocol=config) as nodes:
        most = 0
        for attachment in range(10):
            async with raw_client(nodes[0]) as client:
                await use(client, [f"{attachment}/{number}" for number in range(128)])
            most = max(
                most,
                len(shell_of(nodes[0]).publishing.boxes),
                len(shell_of(nodes[0]).guests.topics),
            )
        assert most < 1280 // 2, "of 1280 topics, and idle ones are 64 at most"
        await until(lambda: len(shell_of(nodes[0]).guests.topics) <= 2 * 64)


@live
async def test_the_topics_of_all_clients_are_counted_until_they_are_forgotten() -> None:
    async with (
        cluster(2, clients_topics=40, protocol=quick_to_forget()) as nodes,
        raw_client(nodes[0]) as first,
    ):
        kept = [f"kept/{number}" for number in range(15)]
        await subscribe(first, kept, "block")
        async with raw_client(nodes[0]) as second:
            await subscribe(second, [f"more/{number}" for number in range(5)], "block")
            reasons = await use(second, [f"yet more/{number}" for number in range(10)])
            assert len(reasons) == 10
            assert all("has used 20 topics" in reason for reason in reasons)
            assert await use(second, kept[:5]) == []  # which are known
        guests = shell_of(nodes[0]).guests
        await until(lambda: len(guests.topics) == 15)
        async with raw_client(nodes[0]) as third:
            assert await use(third, ["once", "again"]) == []


def named(budget: TopicBudget, client: str, count: int) -> int:
    """How many new topics of so many a client may name."""
    for number in range(count):
        try:
            budget.use(f"{client}/{len(budget)}/{number}", client)
        except CubecastError:
            return number
    return count


def test_a_client_may_name_half_of_all_topics_and_leaves_each_other_one_its_part() -> None:
    budget = TopicBudget(100, clients=10)
    assert named(budget, "hoarder", 100) == 50
    assert named(budget, "hoarder", 1) == 0
    assert named(budget, "modest", 25) == 25
    assert [named(budget, f"late {number}", 100) for number in range(4)] == [13, 10, 10, 10]
    assert len([1 for number in range(100) if named(budget, f"host {number}", 100) == 10]) == 8
    assert len(budget) == 200, "although there were more clients than are accepted"
    budget.use("hoarder/0/0", "late 1")  # known topics are for all
    for number in range(50):
        budget.forget(f"hoarder/{number}/{number}")
        budget.forget(f"hoarder/{number}/{number}")
    assert len(budget) == 150
    assert named(budget, "hoarder", 100) == 10


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("", "10.0.0.1:1"), ("", "10.0.0.1:2"), True),
        (("", "10.0.0.1:1"), ("", "10.0.0.2:1"), False),
        (("", "[2001:db8::1]:1"), ("", "[2001:db8::2:3:4:5]:1"), True),
        (("", "[2001:db8:1::1]:1"), ("", "[2001:db8:2::1]:1"), False),
        (("", "[::ffff:10.0.0.1]:1"), ("", "[::ffff:10.0.0.2]:1"), False),
        (("", "[fe80::1%eth0]:1"), ("", "[fe80::2%eth0]:1"), True),
        (("", "virtual-0:1"), ("", "virtual-1:1"), False),
        (("alice", "10.0.0.1:1"), ("alice", "10.0.0.2:1"), True),
        (("alice", "10.0.0.1:1"), ("bob", "10.0.0.1:1"), False),
        (("alice", ""), ("", ""), False),
    ],
)
def test_topics_are_those_of_a_name_or_else_of_a_host(
    one: tuple[str, str], other: tuple[str, str], same: bool
) -> None:
    assert (client_of(*one) == client_of(*other)) is same


NAMES = ("hoarder", "honest", "late", "last")
ALL_MAY = """
[[rule]]
who = ["node:", "client:*"]
publish = ["#"]
subscribe = ["#"]
"""


@live
async def test_a_client_that_attaches_again_and_again_leaves_topics_for_the_others(
    tmp_path: Path,
) -> None:
    """The topics of all clients had one counter, which a client that attached 16 times filled."""
    tokens = "".join(f'{name} = "{name * 8}"\n' for name in NAMES)
    path = written(tmp_path, ALL_MAY, tokens)
    attached, reasons = 0, list[str]()

    async def attach(name: str) -> int:
        """How many new topics a client may use."""
        nonlocal attached
        attached += 1
        async with cubecast.connect(node.address, name=name, secret=name * 8) as client:
            for number in range(100):
                try:
                    await client.publish(f"{name}/{attached}/{number}", b"x")
                except NotSent as error:
                    reasons.append(error.reason)
                    return number
        return 100

    limits: dict[str, Any] = {"clients_topics": 64, "max_clients": 8}
    async with cluster(1, permissions=str(path), **limits) as (node,):
        assert [await attach("hoarder") for _ in range(4)] == [32, 0, 0, 0]
        assert [await attach("honest") for _ in range(2)] == [16, 0]
        assert [await attach(name) for name in ("late", "last")] == [8, 8]
        assert await attach("hoarder") == 0
    assert all("client 'honest' has used 16 topics" in one for one in reasons[4:6])


@live
async def test_names_that_are_no_topics_are_not_counted() -> None:
    async with cluster(1, clients_topics=20) as nodes:
        for attachment in range(3):
            async with raw_client(nodes[0]) as client:
                bad = [f"{attachment}/{number}/#" for number in range(30)]
                assert len(await use(client, bad)) == 30
        await settle()
        assert not shell_of(nodes[0]).guests.topics
        async with raw_client(nodes[0]) as client:
            assert await use(client, ["good"]) == []


# -- other hoards ----------------------------------------------------------------------------------


@live
async def test_an_answer_that_is_too_large_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions_module, "MAX_ANSWER", 2000)
    async with cluster(1) as nodes, connected(nodes) as (client,), AsyncExitStack() as stack:
        for number in range(50):
            topic = f"{number:0100d}"
            await stack.enter_async_context(nodes[0].subscribe(topic))
        with pytest.raises(
            CubecastError, match=r"the answer has 5\d+ bytes; a client is told 2000"
        ):
            await client.topics()
        assert sorted(await client.members()) == [0]


@live
async def test_answers_that_are_not_read_are_one_at_a_time() -> None:
    async with (
        cluster(1) as nodes,
        raw_client(nodes[0]) as client,
        AsyncExitStack() as stack,
    ):
        for number in range(1300):
            topic = f"{number:01000d}"
            await stack.enter_async_context(nodes[0].subscribe(topic))
        for request in range(20):
            client.say(Ask(request, "topics", ""))
        await settle()
        (session,) = sessions(nodes[0])
        backlog = session._line.connection.backlog()
        assert 0 < backlog < BACKLOG + 2 * 1_400_000, "of 20 answers of 1.4 MB"
        client.say(Ping())
        heard = [type(await client.hear()) for _ in range(21)]
        assert heard.count(Answered) == 20
        assert heard.count(Pong) == 1, "it was not cut off for not reading"


@live
async def test_a_client_with_many_busy_subscriptions_is_not_cut_off_for_a_moment_of_silence() -> (
    None
):
    """All of them sent a batch in the tick in which there was room: more than the hard limit."""
    topics = [f"t/{number}" for number in range(120)]
    async with cluster(1) as nodes, raw_client(nodes[0]) as client:
        await subscribe(client, topics, "block", MIB)
        (session,) = sessions(nodes[0])
        for topic in topics:
            for _ in range(2):
                await nodes[0].publish(topic, bytes(60_000))
        await settle()
        assert session._line.connection.backlog() < 2 * BACKLOG
        client.say(Ping())
        received = 0
        while received < 2 * len(topics):
            said = await client.hear()
            if isinstance(said, Deliver):
                received += len(said.payloads)
                client.say(Read(said.subscription, size_of(said.payloads)))


@live
async def test_events_for_a_client_that_does_not_read_are_the_latest_only() -> None:
    async with cluster(1) as nodes, raw_client(nodes[0]) as client:
        client.say(Listen())
        client.say(Ping())
        await drain(client, Pong)
        for _ in range(20):
            for number in range(1000):
                shell_of(nodes[0]).tell(ConnectionLost(number, "x" * 1000))
            await asyncio.sleep(0)
        await settle()
        (session,) = sessions(nodes[0])
        (events,) = shell_of(nodes[0]).audience._listeners
        assert len(events._kept) <= KEPT
        assert session._line.connection.backlog() < 2 * BACKLOG


@live
async def test_subscribing_and_unsubscribing_in_a_loop_leaves_nothing() -> None:
    async with cluster(1, protocol=quick_to_forget()) as nodes, raw_client(nodes[0]) as client:
        for number in range(500):
            client.say(Subscribe(number, f"t/{number % 50}", "block", 0))
            client.say(Unsubscribe(number))
            client.say(Ping())
            await drain(client, Pong)
        (session,) = sessions(nodes[0])
        await until(lambda: not session.serving and not session._subscriptions._feeds)
        await until(lambda: not shell_of(nodes[0]).readers._by_topic)
        await until(lambda: not shell_of(nodes[0]).guests.topics)


@live
async def test_parts_of_strangers_push_out_no_part_of_a_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A key holder that is no member may begin as many large packets as it likes."""
    packet = PREFIX.pack(1 + 60 * MIB, VIEW) + bytes(60 * MIB)
    begun = list(cut(packet, 0))[:-1]
    first, last = cut(PREFIX.pack(1 + PART_BYTES, VIEW) + bytes(PART_BYTES), 0)
    async with cluster(2) as nodes, AsyncExitStack() as stack:
        mesh = shell_of(nodes[0]).mesh

        async def dial(uid: str, slot: int) -> RawClient:
            client = await RawClient.dial(nodes[0].address)
            stack.push_async_callback(client.close)
            await client.authenticate("", uid, slot)
            return client

        member = await dial(nodes[1].uid, nodes[1].slot)
        member.write(first)
        await until(lambda: mesh.parts.held == PART_BYTES)
        for number in range(3):
            client = await dial(f"{number:032x}", -1)
            for part in begun:
                client.write(part)
                await asyncio.sleep(0)
        await until(lambda: mesh.strange_parts.held > 59 * MIB)
        await settle()
        assert mesh.strange_parts.held <= 64 * MIB
        assert mesh.parts.held == PART_BYTES, "the member's is still there"
        member.write(last)
        await member.ended()
        assert "closing connection to node 1" in caplog.text, "it came whole, and is nonsense"
