"""Live nodes on real sockets, several in one process; traces are judged by the checkers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from cubecast.errors import Closed, JoinError, NotSent
from cubecast.net.events import PublisherBlocked
from cubecast.net.links import connection as connection_module
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.security.handshake import Handshake
from cubecast.net.security.keys import Keys
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.hello import (
    Door,
    Hello,
    Opening,
    Refused,
    encode_greeting,
    new_nonce,
)
from cubecast.net.wire.packets import (
    CONTROL,
    MAX_PACKET,
    PREFIX,
    VERSION,
)
from cubecast.testing.dialler import DiallerParty
from cubecast.trace import Record
from support.live import (
    TOPIC,
    cluster,
    guarded,
    join,
    judge,
    live,
    raw,
    small_window,
    subscribed,
    take,
)

# -- the cluster -----------------------------------------------------------------------------------


@live
async def test_slots_are_the_lowest_free_and_everyone_knows_everyone() -> None:
    async with cluster(5) as nodes:
        assert [node.slot for node in nodes] == [0, 1, 2, 3, 4]
        everyone = {node.slot: node.address for node in nodes}
        assert all(node.members == everyone for node in nodes)
        await nodes.pop(2).close()
        assert all(2 not in node.members for node in nodes)
        assert (await join(nodes)).slot == 2
        everyone = {node.slot: node.address for node in nodes}
        assert all(node.members == everyone for node in nodes)


@live
async def test_nodes_that_join_at_once_get_different_slots() -> None:
    async with cluster(1) as nodes:
        newcomers = [Shell(NodeConfig()).node for _ in range(6)]
        seed = nodes[0].address
        await asyncio.gather(*(shell_of(node).start(seed) for node in newcomers))
        nodes += newcomers
        assert sorted(node.slot for node in nodes) == list(range(7))
        assert len({tuple(node.members.items()) for node in nodes}) == 1


@live
async def test_the_next_lowest_gives_out_slots_when_the_lowest_left() -> None:
    async with cluster(3) as nodes:
        await nodes.pop(0).close()
        assert (await join(nodes)).slot == 0
        assert (await join(nodes)).slot == 3
        assert {tuple(node.members) for node in nodes} == {(0, 1, 2, 3)}


@live
async def test_all_nodes_may_leave_at_once() -> None:
    async with cluster(4) as nodes, subscribed(nodes) as subscriptions:
        await nodes[0].publish(TOPIC, b"last words")
        assert [(await anext(one)).payload for one in subscriptions] == [b"last words"] * 4
        await asyncio.gather(*(node.close() for node in nodes))
        assert all(node.closed for node in nodes)


@live
async def test_a_join_fails_if_no_node_answers() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    node = Shell(NodeConfig(join_timeout_s=1.0)).node
    with pytest.raises(JoinError, match="closed by peer"):
        await shell_of(node).start(f"{host}:{port}")
    server.close()
    node = Shell(NodeConfig(join_timeout_s=1.0)).node
    with pytest.raises(JoinError, match="cannot join the cluster at"):
        await shell_of(node).start(f"{host}:{port}")


@live
async def test_a_closed_node_says_so() -> None:
    async with cluster(1) as nodes:
        await nodes[0].close()
        with pytest.raises(Closed):
            await nodes[0].publish(TOPIC, b"too late")
        with pytest.raises(Closed):
            async with nodes[0].subscribe(TOPIC):
                pass


# -- publish and subscribe -------------------------------------------------------------------------


def runners() -> list[Any]:
    try:
        import uvloop
    except ImportError:  # it is optional
        return [asyncio.run]
    return [asyncio.run, uvloop.run]


@pytest.mark.parametrize("runner", runners(), ids=lambda runner: runner.__module__)
def test_everyone_hears_everyone_in_causal_order(runner: Any) -> None:
    runner(guarded(everyone_talks()))


async def everyone_talks() -> None:
    trace: list[Record] = []
    each, count = 200, 4
    async with cluster(count, trace=trace) as nodes, subscribed(nodes) as subscriptions:

        async def talk(node: Node) -> None:
            for number in range(each):
                await node.publish(TOPIC, f"{node.slot}:{number}")
                if number % 7 == 0:
                    await asyncio.sleep(0)

        talking = asyncio.gather(*map(talk, nodes))
        heard = await asyncio.gather(*(take(one, each * count) for one in subscriptions))
        await talking
        for messages in heard:
            for source in range(count):
                mine = [one for one in messages if one.source == source]
                assert [one.seq for one in mine] == list(range(each))
                assert [one.payload.decode() for one in mine] == [
                    f"{source}:{number}" for number in range(each)
                ]
    judge(trace, each * count)


@live
async def test_answers_come_after_their_questions_everywhere() -> None:
    trace: list[Record] = []
    questions = 50
    async with cluster(4, trace=trace) as nodes, subscribed(nodes) as subscriptions:

        async def answer(node: Node, subscription: Subscription) -> None:
            for _ in range(2 * questions):
                message = await anext(subscription)
                if message.payload.startswith(b"?"):
                    await node.publish(TOPIC, b"!" + message.payload[1:])

        async def ask() -> None:
            for number in range(questions):
                await nodes[0].publish(TOPIC, f"?{number}")

        read = [take(subscriptions[index], 2 * questions) for index in (0, 2, 3)]
        heard, *_ = await asyncio.gather(
            asyncio.gather(*read), answer(nodes[1], subscriptions[1]), ask()
        )
        for messages in heard:
            said = [message.payload.decode() for message in messages]
            assert all(said.index(f"?{n}") < said.index(f"!{n}") for n in range(questions))
    judge(trace, 2 * questions)


@live
async def test_topics_of_one_publisher_reach_their_own_members() -> None:
    """Two topics, one publisher, other members: each frame's tree is its own topic's."""
    trace: list[Record] = []
    async with (
        cluster(5, trace=trace) as nodes,
        subscribed(nodes[1:4], "even") as even,
        subscribed(nodes[2:], "odd") as odd,
    ):
        for number in range(40):
            await nodes[0].publish("odd" if number % 2 else "even", str(number))
            await asyncio.sleep(0)
        for parity, subscriptions in enumerate([even, odd]):
            for one in subscriptions:
                said = [int(message.payload) for message in await take(one, 20)]
                assert said == list(range(parity, 40, 2))
    judge(trace, 40)


@live
async def test_a_node_that_does_not_subscribe_may_publish() -> None:
    trace: list[Record] = []
    async with cluster(4, trace=trace) as nodes, subscribed(nodes[1:3]) as subscriptions:
        for payload in ("one", "two", "three"):
            await nodes[3].publish(TOPIC, payload)
        for one in subscriptions:
            said = await take(one, 3)
            assert [message.payload for message in said] == [b"one", b"two", b"three"]
            assert {message.source for message in said} == {3}
    judge(trace, 3)


@live
async def test_everything_published_after_subscribe_returned_arrives() -> None:
    trace: list[Record] = []
    async with cluster(4, trace=trace) as nodes, subscribed(nodes[:2]) as early:
        await nodes[0].publish(TOPIC, b"before")
        assert (await anext(early[1])).payload == b"before"
        async with nodes[3].subscribe(TOPIC) as late:
            await nodes[0].publish(TOPIC, b"after")
            message = await anext(late)
            assert (message.payload, message.source, message.seq) == (b"after", 0, 1)
            assert abs(message.published_at - (await anext(early[1])).published_at) < 1e-6
    judge(trace, 2)


@live
async def test_nothing_is_delivered_after_unsubscribe() -> None:
    trace: list[Record] = []
    async with cluster(3, trace=trace) as nodes, subscribed(nodes) as subscriptions:
        await nodes[0].publish(TOPIC, b"one")
        for one in subscriptions:
            await anext(one)
        await subscriptions[2].close()
        await nodes[0].publish(TOPIC, b"two")
        assert (await anext(subscriptions[1])).payload == b"two"
        with pytest.raises(StopAsyncIteration):
            await anext(subscriptions[2])
        async with nodes[2].subscribe(TOPIC) as again:
            await nodes[1].publish(TOPIC, b"three")
            assert (await anext(again)).payload == b"three"
    judge(trace, 3)


@live
async def test_two_subscriptions_of_one_node_each_get_everything() -> None:
    async with cluster(2) as nodes, subscribed([nodes[0]]) as first, subscribed(nodes) as second:
        for number in range(3):
            await nodes[1].publish(TOPIC, str(number))
        for one in (*first, *second):
            assert [message.payload for message in await take(one, 3)] == [b"0", b"1", b"2"]


@live
async def test_messages_of_a_leaver_are_not_lost_and_its_slot_is_used_again() -> None:
    trace: list[Record] = []
    async with cluster(4, trace=trace) as nodes, subscribed(nodes[:3]) as subscriptions:
        for life in range(3):
            leaver = nodes.pop()
            assert leaver.slot == 3
            for number in range(50):
                await leaver.publish(TOPIC, f"{life}.{number}")
            await leaver.close()
            for one in subscriptions:
                said = [message.payload.decode() for message in await take(one, 50)]
                assert said == [f"{life}.{number}" for number in range(50)]
            await join(nodes, trace=trace)
    judge(trace, 150)


@live
async def test_a_large_message_and_an_empty_one() -> None:
    async with cluster(3) as nodes, subscribed(nodes[1:]) as subscriptions:
        large = bytes(range(256)) * 12_000
        await nodes[0].publish(TOPIC, large)
        await nodes[0].publish(TOPIC, b"")
        for one in subscriptions:
            assert [message.payload for message in await take(one, 2)] == [large, b""]


# -- slow subscribers ------------------------------------------------------------------------------


@live
async def test_block_slows_the_publisher_and_loses_nothing() -> None:
    count, payload = 200, bytes(100)
    async with (
        cluster(2, protocol=small_window(), frame_messages=4) as nodes,
        nodes[1].subscribe(TOPIC, policy="block", queue_bytes=1000) as slow,
    ):
        sent = 0

        async def publish() -> None:
            nonlocal sent
            for _ in range(count):
                await nodes[0].publish(TOPIC, payload)
                sent += 1

        events = nodes[0].events()
        publisher = asyncio.create_task(publish())
        await anext(slow)
        while not (isinstance(event := await anext(events), PublisherBlocked) and event.behind):
            pass
        assert nodes[0].explain(TOPIC)["blocked"] is True
        assert not publisher.done()
        assert sent < count // 2  # a window, a queue and an outbox, not everything
        messages = await take(slow, count - 1)
        await publisher
        assert [message.seq for message in messages] == list(range(1, count))
        assert slow.dropped == 0


@live
async def test_a_publisher_without_credit_is_told_that_nothing_was_sent() -> None:
    async with (
        cluster(2, protocol=small_window(), publish_timeout_s=0.05, frame_messages=4) as nodes,
        nodes[1].subscribe(TOPIC, policy="block", queue_bytes=1000) as slow,
    ):
        sent = 0

        async def publish() -> None:
            nonlocal sent
            while True:
                await nodes[0].publish(TOPIC, bytes(100))
                sent += 1

        with pytest.raises(NotSent, match="no credit"):
            await publish()
        messages = await take(slow, sent)
        assert [message.seq for message in messages] == list(range(sent))
        await nodes[0].publish(TOPIC, b"on we go")
        assert (await anext(slow)).payload == b"on we go"


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
@live
async def test_dropping_policies_keep_the_others_going(policy: Any) -> None:
    count = 300
    async with (
        cluster(3, protocol=small_window(), frame_messages=4) as nodes,
        nodes[1].subscribe(TOPIC) as quick,
        nodes[2].subscribe(TOPIC, policy=policy, queue_bytes=1000) as slow,
    ):

        async def publish() -> None:
            for number in range(count):
                await nodes[0].publish(TOPIC, f"{number:0100d}")

        messages, _ = await asyncio.gather(take(quick, count), publish())
        assert [int(message.payload) for message in messages] == list(range(count))
        while shell_of(nodes[0]).core.unstable():  # the slow node has been handed everything
            await asyncio.sleep(0)
        kept = [int(message.payload) for message in await take(slow, count - slow.dropped)]
        assert slow.dropped > 0
        assert len(kept) <= 14  # 1000 bytes, and the frame that was being read
        assert kept == sorted(kept)
        assert kept[0] == 0 if policy == "drop-newest" else kept[-1] == count - 1


@pytest.mark.parametrize(("count", "each", "burst"), [(2, 60, 3), (2, 300, 300), (8, 60, 60)])
@live
async def test_nodes_that_publish_inside_their_own_loop_do_not_deadlock(
    count: int, each: int, burst: int
) -> None:
    """Each waits for credit that the others can only give by reading."""
    trace: list[Record] = []
    async with (
        cluster(count, trace=trace, protocol=small_window(2000), frame_messages=2) as nodes,
        AsyncExitStack() as stack,
    ):
        subscriptions = [
            await stack.enter_async_context(node.subscribe(TOPIC, queue_bytes=500))
            for node in nodes
        ]

        async def chatter(node: Node, subscription: Subscription) -> None:
            """For every message of our own that we read, publish a burst: a flood."""
            published = 1
            await node.publish(TOPIC, bytes(200))
            for _ in range(count * each):
                message = await anext(subscription)
                if message.source == node.slot:
                    for _ in range(min(burst, each - published)):
                        await node.publish(TOPIC, bytes(200))
                        published += 1

        await asyncio.gather(*map(chatter, nodes, subscriptions))
    judge(trace, count * each)


# -- strangers -------------------------------------------------------------------------------------


@live
async def test_a_wrong_secret_is_refused_with_a_reason_on_both_sides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with cluster(2, secret="open sesame, please") as nodes:
        for wrong in ("open barley, please", ""):
            caplog.clear()
            node = Shell(NodeConfig(secret=wrong)).node
            with pytest.raises(JoinError, match="secret is not the same"):
                await shell_of(node).start(nodes[0].address)
            said = [record.getMessage() for record in caplog.records]
            why = "the cluster secret is not the same"
            assert any(
                line.startswith("refusing the connection from 127.0.0.1:") and why in line
                for line in said
            )
            assert any(f"{nodes[0].address} refused us: {why}" in line for line in said)
        assert (await join(nodes, secret="open sesame, please")).slot == 2


@live
async def test_a_client_with_a_wrong_proof_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with cluster(1, secret="open sesame, please") as nodes, raw(nodes[0]) as client:
        client.greet(Hello(VERSION, new_nonce(), sealed=True))
        assert isinstance(await client.greeting(), Door)
        client.greet(Opening(bytes(64)))
        client.greet(Opening(bytes(65)))  # no second guess
        assert await client.greeting() == Refused("the cluster secret is not the same")
        await client.ended()
        assert "refusing the connection from 127.0.0.1:" in caplog.text


@live
async def test_our_own_proof_reflected_proves_nothing() -> None:
    """A peer that makes a node dial it cannot use that node's answers to get into the node."""
    async with cluster(1, secret="open sesame, please") as nodes, raw(nodes[0]) as client:
        handshake = Handshake(DiallerParty(Keys("open sesame, please"), nodes[0].uid), dialled=True)
        client.write(handshake.begin())
        with pytest.raises(ConnectionRefusedError, match="this is the node itself"):
            await client.shake(handshake)
        await client.ended()


@live
async def test_another_version_is_refused_with_a_reason() -> None:
    async with cluster(1) as nodes, raw(nodes[0]) as client:
        client.greet(Hello(VERSION + 1, new_nonce()))
        client.greet(Hello(VERSION, new_nonce()))
        refusal = await client.greeting()
        assert refusal == Refused(f"version {VERSION + 1} is not spoken here, only {VERSION}")
        await client.ended()


@live
async def test_a_silent_stranger_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_S", 0.05)
    async with cluster(1) as nodes, raw(nodes[0]) as silent, raw(nodes[0]) as halfway:
        halfway.greet(Hello(VERSION, new_nonce()))
        await silent.ended()
        await halfway.ended()


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no length": PREFIX.pack(0, CONTROL),
    "too long": PREFIX.pack(MAX_PACKET + 1, CONTROL),
    "unknown kind": PREFIX.pack(1, 99),
    "a message": PREFIX.pack(3, CONTROL) + b"{}",
    "an opening out of turn": encode_greeting(Opening(b"")),
    "a second hello": encode_greeting(Hello(VERSION, "0" * 32)) * 2,
}


@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@live
async def test_garbage_closes_its_own_connection_only(
    garbage: bytes, authenticated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with cluster(2) as nodes, subscribed(nodes) as subscriptions, raw(nodes[0]) as client:
        if authenticated:
            await client.authenticate("")
        client.write(garbage)
        await client.ended()
        assert "closing connection to" in caplog.text
        await nodes[0].publish(TOPIC, b"still here")
        for one in subscriptions:
            assert (await anext(one)).payload == b"still here"
