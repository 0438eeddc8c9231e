"""Live nodes where promises meet: several readers, cut-off readers, leavers, receipts, events."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack

import pytest

import cubecast
from cubecast.errors import NotSent, Overflow
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.sim.networks import SendingQueue
from cubecast.sim.world import World
from support.live import TOPIC, cluster, live, small_window, take

PAYLOAD = b"x" * 500


@live
async def test_closing_one_of_two_subscriptions_frees_the_publisher() -> None:
    """The one that never read owed everything; what it owed goes with it."""
    async with (
        cluster(2, protocol=small_window(), queue_bytes=1024) as (writer, reader),
        reader.subscribe(TOPIC) as reads,
    ):
        async with reader.subscribe(TOPIC):
            await writer.publish(TOPIC, PAYLOAD)
            await take(reads, 1)
        for _ in range(50):
            await writer.publish(TOPIC, PAYLOAD)
            await take(reads, 1)


async def read_into(seen: list[int], subscription: cubecast.Subscription) -> None:
    async for message in subscription:
        seen.append(message.seq)  # noqa: PERF401 - what was read before the error counts


@live
async def test_a_subscription_that_is_cut_off_says_so_and_leaves() -> None:
    async with cluster(2) as (writer, reader):
        subscription = reader.subscribe(TOPIC, policy="disconnect", queue_bytes=2000)
        async with subscription:
            receipt = None
            for _ in range(40):
                receipt = await writer.publish(TOPIC, PAYLOAD, receipt=True)
                assert receipt is not None
                await receipt.stable()
            seen: list[int] = []
            with pytest.raises(Overflow, match="more than 2000 bytes unread"):
                await read_into(seen, subscription)
            assert seen == list(range(len(seen)))  # no hole before the cut
            assert 0 < len(seen) < 40
            assert subscription.dropped > 0
        assert reader.explain(TOPIC)["standing"] != "in"


@live
async def test_a_message_too_large_is_refused_and_the_topic_goes_on() -> None:
    async with cluster(2) as (writer, reader), reader.subscribe(TOPIC) as messages:
        with pytest.raises(NotSent, match="more than"):
            await writer.publish(TOPIC, bytes(MAX_PAYLOAD + 1))
        await writer.publish(TOPIC, b"small")
        assert (await anext(messages)).payload == b"small"


@live
async def test_receivers_forget_what_a_publisher_that_left_had_sent() -> None:
    async with cluster(3) as nodes, nodes[0].subscribe(TOPIC) as messages:
        await nodes[2].publish(TOPIC, PAYLOAD)
        await take(messages, 1)
        await nodes[2].close()
        assert shell_of(nodes[0]).core.load()[:2] == (0, 0)


@live
async def test_a_receipt_names_its_message_whether_sent_at_once_or_gathered() -> None:
    """One message per tick, then several, then one again: each way of sending meets the other."""
    bursts = [1, 1, 1, 3, 3, 1, 1, 1, 2, 1, 1]
    async with cluster(2) as nodes, nodes[1].subscribe(TOPIC) as messages:
        promised = []
        for burst in bursts:
            for _ in range(burst):
                receipt = await nodes[0].publish(TOPIC, str(len(promised)), receipt=True)
                assert receipt is not None
                promised.append(receipt.seq)
            await asyncio.sleep(0)
        received = await take(messages, sum(bursts))
    assert promised == list(range(sum(bursts)))
    assert [(int(message.payload), message.seq) for message in received] == [
        (number, number) for number in promised
    ]


@live
async def test_full_frames_follow_each_other_after_lone_messages() -> None:
    """However messages came before, a burst fills its frames."""
    async with cluster(1, frame_messages=10) as (node,), node.subscribe(TOPIC) as messages:
        for _ in range(3):
            await node.publish(TOPIC, b"lone")
            await take(messages, 1)
            await asyncio.sleep(0)  # the next one belongs to another tick
        for _ in range(100):
            await node.publish(TOPIC, b"burst")
        burst = await take(messages, 100)
    assert len({message.frame.first for message in burst}) <= 12


@live
async def test_a_receipt_tells_when_everyone_has_read() -> None:
    async with cluster(3) as nodes, nodes[1].subscribe(TOPIC), nodes[2].subscribe(TOPIC):
        receipt = await nodes[0].publish(TOPIC, b"read me", receipt=True)
        assert receipt is not None
        assert receipt.seq == 0
        await receipt.stable()
        assert receipt.is_stable


@live
async def test_members_hear_of_comings_and_goings() -> None:
    async with cluster(1) as (first,):
        events = first.events()
        async with cubecast.join(first.address) as second:
            joined = await anext(events)
            assert joined == cubecast.MemberJoined(second.slot, second.address)
        assert await anext(events) == cubecast.MemberLeft(1)


@live
async def test_many_join_and_subscribe_at_once() -> None:
    """Waves visit newcomers that are known and not yet welcomed; none is skipped."""

    async def newcomer(seed: str, stack: AsyncExitStack) -> cubecast.Subscription:
        node = await stack.enter_async_context(cubecast.join(seed))
        return await stack.enter_async_context(node.subscribe(TOPIC))

    for _ in range(5):
        async with cubecast.start("127.0.0.1:0") as first, AsyncExitStack() as stack:
            readers = await asyncio.gather(*(newcomer(first.address, stack) for _ in range(6)))
            await first.publish(TOPIC, b"welcome")
            for reader in readers:
                assert (await anext(reader)).payload == b"welcome"


@live
async def test_a_message_says_where_it_comes_from_and_what_caused_it() -> None:
    async with (
        cubecast.start("127.0.0.1:0") as asker,
        cubecast.join(asker.address) as answerer,
        asker.subscribe(TOPIC) as at_asker,
        answerer.subscribe(TOPIC) as at_answerer,
    ):
        await asker.publish(TOPIC, "question")
        question = await anext(at_answerer)
        await answerer.publish(TOPIC, "answer")
        assert (await anext(at_asker)).payload == b"question"
        answer = await anext(at_asker)
        assert (answer.source, answer.seq) == (1, 0)
        assert answer.dependencies == ((question.source, question.seq),)
        assert answer.published_at >= question.published_at


def test_a_frame_read_in_part_gives_credit_for_the_part_and_is_not_stable() -> None:
    """Stability knows whole frames, credit knows messages: two of three are read."""
    config = Config(
        window=3, ack_delay=0, stable_delay=10, resend_after=100_000, resend_max=100_000
    )
    world = World(
        2,
        lambda node, port: CubecastNode(node, port, cluster=0b11, config=config),
        SendingQueue(10),
        consume_after=1_000_000,
    )
    world.establish(TOPIC, [1])
    writer, reader = world.processes
    assert isinstance(writer, CubecastNode)
    assert isinstance(reader, CubecastNode)
    writer.register(TOPIC, 0)
    world.post(100, lambda a, b, now: writer.publish(TOPIC, (0, 0, 0), 3, now))
    world.meter.published(0, 0)
    stream = writer._cores[TOPIC].outgoing.own
    world.post(200, lambda a, b, now: reader.consumed(TOPIC, stream, 1, now))
    world.post(300, lambda a, b, now: seen.append((writer.unstable(), writer.stable_seq(TOPIC))))
    world.post(400, lambda a, b, now: reader.consumed(TOPIC, stream, 2, now))
    world.post(500, lambda a, b, now: seen.append((writer.unstable(), writer.stable_seq(TOPIC))))
    seen: list[tuple[int, int]] = []
    world.run()
    assert seen == [(1, -1), (0, 2)]


@live
async def test_a_seed_that_is_no_text_is_refused() -> None:
    for seed in (7400, b"127.0.0.1:7400", ("127.0.0.1", 7400)):
        with pytest.raises(TypeError, match='seed must be "host:port" of a member, or None, not'):
            async with cubecast.join(seed):  # type: ignore[arg-type]
                pass


def test_types_that_join_takes_can_be_imported() -> None:
    types = " ".join(map(str, cubecast.start.__annotations__.values()))
    named = {"LinkFaults", "Network", "NodeConfig", "Node"}
    assert named <= set(re.findall(r"\w+", types))
    assert named | {"Rule"} <= set(cubecast.__all__)
