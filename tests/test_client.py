"""Light clients on real sockets: attached to nodes of a live cluster, never members of it."""

from __future__ import annotations

import asyncio

from test_live import TOPIC, cluster, live

import cubecast
from cubecast.net.remote import RemoteSubscription
from cubecast.net.subscription import Message


async def take(subscription: RemoteSubscription, count: int) -> list[Message]:
    return [await anext(subscription) for _ in range(count)]


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.005)


@live
async def test_two_clients_on_two_nodes_talk_both_ways() -> None:
    async with (
        cluster(3) as nodes,
        cubecast.connect(nodes[1].address) as alice,
        cubecast.connect(nodes[2].address) as bob,
        alice.subscribe(TOPIC) as to_alice,
        bob.subscribe(TOPIC) as to_bob,
    ):
        await alice.publish(TOPIC, "hello bob")
        (hello,) = await take(to_bob, 1)
        assert (hello.topic, hello.payload, hello.source, hello.seq) == (TOPIC, b"hello bob", 1, 0)
        await bob.publish(TOPIC, b"hello alice")
        first, answer = await take(to_alice, 2)
        assert first.payload == b"hello bob"
        assert (answer.payload, answer.source, answer.seq) == (b"hello alice", 2, 0)
        assert answer.dependencies == ((1, 0),)
        assert 0 <= answer.published_at - first.published_at < 60
        assert sorted(nodes[0].members) == [0, 1, 2]


@live
async def test_20000_messages_through_clients_arrive_once_and_in_order() -> None:
    count = 20_000
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as writer,
        cubecast.connect(nodes[1].address) as reader,
        reader.subscribe(TOPIC) as messages,
    ):

        async def write() -> None:
            for number in range(count):
                await writer.publish(TOPIC, b"%d" % number)
            await writer.flush()

        received, _ = await asyncio.gather(take(messages, count), write())
        assert [message.payload for message in received] == [b"%d" % n for n in range(count)]
        assert [message.seq for message in received] == list(range(count))
