"""Topics of one light client are independent: one without credit holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import pytest

from cubecast.errors import NotSent, Unknown
from cubecast.net.client.client import Client
from cubecast.net.client.publishing import Pipeline
from cubecast.net.client.shell import client_shell_of
from cubecast.net.gateway import publications
from cubecast.net.gateway.publications import Publications
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import (
    BATCH_BYTES,
    PUBLISH_WINDOW,
    Declined,
    FromNode,
    Publish,
    Taken,
    Taking,
    decode_from_client,
    size_of,
)
from cubecast.protocol.config import Config
from cubecast.testing import Cluster, on_virtual_time, run
from support.clients import RawClient, raw_client
from support.live import cluster, live, small_window

STUCK = "orders"
HEALTHY = "chat/a"


def config() -> NodeConfig:
    return NodeConfig(protocol=small_window(), publish_timeout_s=5.0)


async def fill(client: Client, topic: str, size: int = 1000) -> int:
    """Publish to an unread topic until there is no room; how many were accepted."""
    accepted = 0

    async def publish_for_ever() -> None:
        nonlocal accepted
        while True:
            await client.publish(topic, b"%0*d" % (size, accepted), timeout=1)
            accepted += 1

    with pytest.raises(NotSent, match=f"{topic}.*no credit for 1 s"):
        await publish_for_ever()
    return accepted


async def leave(client: Client) -> None:
    """End a client whose publications wait, and hear of them."""
    await client.close(flush=False)
    with suppress(Unknown):
        await client.flush()


@on_virtual_time
async def test_a_topic_whose_reader_has_stopped_holds_up_no_other_topic_of_its_client() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096) as stopped,
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = await fill(client, STUCK)
        count = 2 * PUBLISH_WINDOW // 1000

        async def write() -> None:
            for number in range(count):
                await client.publish(HEALTHY, b"%0*d" % (1000, number), timeout=1)

        writing = asyncio.create_task(write())
        for number in range(count):
            async with asyncio.timeout(2):  # virtual
                assert int((await anext(healthy)).payload) == number
        await writing
        [session] = shell_of(nodes[0]).guests._sessions.values()
        assert len(session._publications._open) <= accepted
        for number in range(accepted):
            assert int((await anext(stopped)).payload) == number
        await client.flush()


@on_virtual_time
async def test_a_client_that_closes_blames_the_topic_that_the_node_did_not_take() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
    ):

        async def publish_to_both() -> None:
            async with nodes.connect(0) as client:
                await fill(client, STUCK)
                await client.publish(HEALTHY, b"first")
                await client.publish(HEALTHY, b"last")

        with pytest.raises(Unknown, match="nothing of this topic for 5 s") as caught:
            await publish_to_both()
        assert caught.value.topic == STUCK
        assert [(await anext(healthy)).payload for _ in range(2)] == [b"first", b"last"]


@on_virtual_time
async def test_a_topic_that_waits_ends_in_not_sent_although_another_one_goes_on() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096),
        nodes[1].on(HEALTHY, lambda _: None),
        nodes.connect(0) as client,
    ):
        await fill(client, STUCK)

        async def chat() -> None:
            while True:
                await client.publish(HEALTHY, b"x")
                await asyncio.sleep(0.2)

        chatting = asyncio.create_task(chat())
        async with asyncio.timeout(4):
            with pytest.raises(NotSent, match="no credit for 3 s"):
                await client.publish(STUCK, bytes(1000), timeout=3)
        chatting.cancel()
        await leave(client)


@on_virtual_time
async def test_each_topic_that_waits_leaves_room_for_the_next_one() -> None:
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe("stuck/+", queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = [await fill(client, f"stuck/{number}") for number in range(4)]
        assert accepted == sorted(accepted, reverse=True)
        await client.publish(HEALTHY, b"goes on", timeout=1)
        assert (await anext(healthy)).payload == b"goes on"
        await leave(client)


@on_virtual_time
async def test_a_node_serves_so_many_topics_that_wait_and_the_others_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publications, "TOPICS_AT_ONCE", 2)
    async with (
        Cluster(2, config=config()) as nodes,
        nodes[1].subscribe("stuck/0", queue_bytes=4096) as first,
        nodes[1].subscribe("stuck/1", queue_bytes=4096),
        nodes[1].subscribe(HEALTHY) as healthy,
        nodes.connect(0) as client,
    ):
        accepted = await fill(client, "stuck/0")
        await fill(client, "stuck/1")
        with pytest.raises(Unknown, match=HEALTHY):
            await client.publish(HEALTHY, b"behind them", timeout=1)
        for _ in range(accepted):
            await anext(first)
        assert (await anext(healthy)).payload == b"behind them"
        await leave(client)


async def news(client: RawClient) -> FromNode:
    """What a node says, but of how far it is with packet 0."""
    while isinstance(said := await client.hear(), Taking) and said.number == 0:
        pass
    return said


@live
async def test_a_packet_that_is_taken_before_others_is_told_by_its_whole_size() -> None:
    payloads = [bytes(1000)] * 60
    async with (
        cluster(2, protocol=small_window()) as nodes,
        nodes[1].subscribe(STUCK, queue_bytes=4096) as stopped,
        nodes[1].subscribe(HEALTHY) as healthy,
        raw_client(nodes[0]) as client,
    ):
        client.say(Publish(0, STUCK, payloads, False))
        client.say(Publish(1, HEALTHY, [b"a", b"b"], False))
        assert await news(client) == Taking(1, size_of([b"a", b"b"]))
        client.say(Publish(2, "", [bytes(100)], False))  # one that is refused, out of turn, too
        assert isinstance(await news(client), Declined)
        assert await news(client) == Taking(2, size_of([bytes(100)]))
        assert [(await anext(healthy)).payload for _ in range(2)] == [b"a", b"b"]
        for _ in payloads:
            await anext(stopped)
        assert await news(client) == Taken(2)


@live
async def test_a_pipeline_gives_one_topic_half_of_what_the_others_leave() -> None:
    sent: list[Publish] = []

    def send(packet: bytes) -> None:
        message = decode_from_client(packet)
        assert isinstance(message, Publish)
        sent.append(message)

    pipeline = Pipeline(send, 16_000, 30.0)
    pipeline._known.update("abc")
    sizes = dict.fromkeys("abc", 0)

    async def publish_for_ever(topic: str) -> None:
        while True:
            await pipeline.publish(topic, bytes(84), False, timeout=0)
            sizes[topic] += 100
            await asyncio.sleep(0)

    for topic in sizes:
        with pytest.raises(NotSent):
            await publish_for_ever(topic)
    assert sizes == {"a": 8_000, "b": 4_000, "c": 2_000}
    last = sent[-1]
    assert last.topic == "c"
    pipeline.on_taking(Taking(last.number, size_of(last.payloads)))  # before all others
    await pipeline.publish("c", bytes(84), False, timeout=0)
    with pytest.raises(NotSent):
        await pipeline.publish("a", bytes(84), False, timeout=0)
    pipeline.on_taken(Taken(last.number + 1))
    await pipeline.flush()
    assert pipeline._used == 0
    assert not pipeline._flows


# -- both ends count the same ----------------------------------------------------------------------

PAUSE_S = 0.05
"""What a slow reader takes for one message."""


class Ledger:
    """What both ends count of a client's window whenever the node takes a packet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipeline: Pipeline | None = None
        self.excess: list[int] = []
        """What the node counts beyond the client's own count."""
        taken = Publications.take

        def take(node: Publications, batch: Publish) -> None:
            taken(node, batch)
            assert self.pipeline is not None
            self.excess.append(node._batched - self.pipeline._used)

        monkeypatch.setattr(Publications, "take", take)


async def read_slowly(messages: Subscription, count: int) -> list[int]:
    """The numbers in the first messages, read one by one with pauses."""
    numbers: list[int] = []
    async for message in messages:
        numbers.append(int(message.payload[-8:]))
        if len(numbers) == count:
            break
        await asyncio.sleep(PAUSE_S)
    return numbers


async def publish_to_slow_readers(
    cluster: Cluster, topics: int, count: int, size: int, ledger: Ledger | None = None
) -> None:
    """One client publishes to many topics at once, and each has a reader that lags behind."""
    names = [f"slow/{number}" for number in range(topics)]
    async with AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(cluster[1].subscribe(name, queue_bytes=4096))
            for name in names
        ]
        client = await stack.enter_async_context(cluster.connect(0))
        if ledger is not None:
            ledger.pipeline = client_shell_of(client).published

        async def write(topic: str) -> None:
            for number in range(count):
                await client.publish(topic, b"%0*d" % (size, number))

        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(read_slowly(reader, count)) for reader in readers]
            for name in names:
                group.create_task(write(name))
        assert all(task.result() == list(range(count)) for task in slow)
        await client.flush()
        [session] = shell_of(cluster[0]).guests._sessions.values()
        assert session._publications._batched == client_shell_of(client).published._used == 0
        assert session._line.share.used == 0


SMALL, DEFAULT = small_window(), NodeConfig().protocol
CELLS = [
    *((topics, 16, SMALL) for topics in (2, 8, 64)),
    *((topics, 1000, SMALL) for topics in (2, 3, 4, 8, 64)),
    *((topics, 8000, SMALL) for topics in (2, 3, 4, 8, 64)),
    *((topics, BATCH_BYTES + 1, SMALL) for topics in (2, 8, 64)),
    *((topics, 8000, DEFAULT) for topics in (2, 3, 4, 8)),
    *((topics, 1000, DEFAULT) for topics in (4, 64)),
    (3, BATCH_BYTES + 1, DEFAULT),
]
"""Topics, bytes of a message, and the credit of nodes."""


def enough(topics: int, size: int, window: int) -> int:
    """Messages of each topic: more than both windows, but no more than a test has time for."""
    wanted = (window + 8 * PUBLISH_WINDOW // topics) // size
    return max(4, min(wanted, 16_000 // topics))


@pytest.mark.parametrize(
    ("topics", "size", "protocol"),
    CELLS,
    ids=[f"{topics}-topics-{size}-of-{cell.window}" for topics, size, cell in CELLS],
)
def test_a_client_within_its_window_is_not_refused_however_many_topics_are_slow(
    topics: int, size: int, protocol: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)

    async def main() -> None:
        config = NodeConfig(protocol=protocol, publish_timeout_s=600.0)
        async with Cluster(2, trace=False, config=config) as nodes:
            count = enough(topics, size, protocol.window)
            await publish_to_slow_readers(nodes, topics, count, size, ledger)

    run(main())
    assert len(ledger.excess) > 2 * topics
    assert max(ledger.excess) <= 0, "the node counts more than its client"


@on_virtual_time
async def test_a_node_holds_no_message_that_it_has_told_to_be_published() -> None:
    """So the bytes that it holds are within the window, in however many topics packets are open."""
    async with Cluster(2, trace=False, config=config()) as nodes, asyncio.TaskGroup() as group:
        work = group.create_task(publish_to_slow_readers(nodes, 8, 150, 1000))
        partly = 0
        while not work.done():
            await asyncio.sleep(PAUSE_S / 2)
            for session in shell_of(nodes[0]).guests._sessions.values():
                counts = session._publications
                held = [size_of(list(packet.payloads)) for packet in counts._open.values()]
                assert sum(held) <= counts._batched <= PUBLISH_WINDOW + BATCH_BYTES
                assert session._line.share.used == counts._batched
                partly += any(one.counted < one.size for one in counts._open.values())
        assert partly > 10, "packets were partly published for long"


# -- a client beyond its window --------------------------------------------------------------------


def has_always_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "_has_room", lambda pipeline, topic: True)


def counts_what_is_taken_in_part_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Pipeline.on_taking

    def on_taking(pipeline: Pipeline, news: Taking) -> None:
        parcel = pipeline._sent.get(news.number)
        if parcel is not None and news.size < parcel.size:
            pipeline._use(parcel.topic, parcel.published - news.size)
        told(pipeline, news)

    monkeypatch.setattr(Pipeline, "on_taking", on_taking)


@pytest.mark.parametrize("greed", [has_always_room, counts_what_is_taken_in_part_twice])
def test_a_client_that_sends_more_than_it_has_credit_for_is_refused(
    greed: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    greed(monkeypatch)

    async def main() -> None:
        async with Cluster(2, trace=False, config=config()) as nodes:
            await publish_to_slow_readers(nodes, 8, 300, 1000)

    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    told = "more publications than it has credit for"
    assert caught.value.subgroup(lambda error: isinstance(error, NotSent) and told in str(error))
