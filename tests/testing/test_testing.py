"""cubecast.testing: virtual time, the network in memory, and the cluster on both."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cubecast.errors import JoinError
from cubecast.net.events import Gap
from cubecast.net.message import Message
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.port import Stream
from cubecast.testing import (
    Cluster,
    Deadlock,
    MemoryNetwork,
    Rule,
    VirtualLoop,
    on_virtual_time,
    run,
)
from cubecast.trace import Record

TOPIC = "chat/room1"


async def take(subscription: Subscription, count: int) -> list[Message]:
    return [await anext(subscription) for _ in range(count)]


# -- virtual time ----------------------------------------------------------------------------------


def test_sleeping_takes_no_real_time() -> None:
    async def sleep() -> float:
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))
        return asyncio.get_running_loop().time()

    before = time.monotonic()
    assert run(sleep(), limit_s=14_400) == pytest.approx(7200, abs=0.01)
    assert time.monotonic() - before < 3600


@on_virtual_time
async def test_timers_fire_in_order_and_at_their_time() -> None:
    loop = asyncio.get_running_loop()
    fired: list[tuple[int, float]] = []
    for delay in (30, 10, 20):
        loop.call_later(delay, lambda delay=delay: fired.append((delay, loop.time())))
    await asyncio.sleep(60)
    assert [delay for delay, _ in fired] == [10, 20, 30]
    assert all(at == pytest.approx(delay, abs=0.01) for delay, at in fired)


@on_virtual_time
async def test_a_time_out_strikes_although_nothing_else_runs() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await asyncio.get_running_loop().create_future()


@on_virtual_time
async def test_a_task_that_polls_without_sleeping_sees_time_pass() -> None:
    loop = asyncio.get_running_loop()
    seen: list[int] = []
    loop.call_later(0.001, seen.append, 1)
    while not seen:
        await asyncio.sleep(0)


def test_a_deadlock_says_who_waits_where() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        waiter = asyncio.create_task(wait_for_nobody(), name="the waiter")
        await waiter

    with pytest.raises(Deadlock) as caught:
        run(main())
    assert caught.value.reason == "nothing is left that could happen"
    (waiter,) = [line for line in caught.value.waiting if line.startswith("the waiter ")]
    assert re.search(r"waits in wait_for_nobody \(.*test_testing\.py:\d+\)", waiter)
    assert len(caught.value.waiting) == 2
    assert "in main (" in str(caught.value)


def test_a_run_that_polls_for_ever_ends() -> None:
    async def poll() -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(Deadlock, match="after 3600 s of virtual time"):
        run(poll(), limit_s=3600)


def test_half_an_hour_is_the_limit_and_the_error_names_what_raises_it() -> None:
    @on_virtual_time
    async def in_time() -> None:
        await asyncio.sleep(1790)

    @on_virtual_time
    async def too_long() -> None:
        await asyncio.sleep(1810)

    @on_virtual_time(limit_s=3600)
    async def longer() -> None:
        await asyncio.sleep(1810)

    in_time()
    longer()
    with pytest.raises(Deadlock, match=r"after 1800 s of virtual time; .*limit_s="):
        too_long()


@on_virtual_time
async def test_the_clock_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    threading.Timer(0.1, release.set).start()
    async with asyncio.timeout(1):
        assert await asyncio.to_thread(release.wait, 30)
    assert loop.time() < 0.5


def test_a_thread_that_never_ends_is_not_waited_for_for_ever() -> None:
    release = threading.Event()

    async def main() -> None:
        try:
            await asyncio.to_thread(release.wait, 30)
        finally:
            release.set()

    loop = VirtualLoop(patience_s=0.05)
    with (
        pytest.raises(Deadlock, match=r"a thread did nothing for 0\.05 s of real time"),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        runner.run(main())


@on_virtual_time
async def test_a_socket_is_waited_for_if_there_is_nothing_else() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"hello"
    writer.close()
    await writer.wait_closed()
    server.close()


# -- the network in memory -------------------------------------------------------------------------


class Noting(asyncio.Protocol):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.heard.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append(type(error).__name__ if error else "lost")


class Buffered(asyncio.BufferedProtocol):
    """Notes what it hears, a few bytes at a time."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self._room = bytearray(4)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.heard.append(bytes(self._room[:nbytes]))


async def connected(there: Any = None) -> tuple[Noting, Any]:
    """The end that dialled and the end that was dialled."""
    network, here, there = MemoryNetwork(), Noting(), there or Noting()
    listener = await network.listen(lambda: there, "host", 0)
    await network.dial(lambda: here, *listener.bound)
    assert here.transport.get_extra_info("peername") == listener.bound
    return here, there


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_virtual_time
async def test_data_written_arrives_in_order_before_the_end() -> None:
    here, there = await connected()
    here.transport.write(b"one")
    here.transport.writelines([b"two", b"three"])
    assert here.heard == ["made"]
    here.transport.close()
    here.transport.write(b"too late")
    assert here.transport.is_closing()
    await turns()
    assert there.heard == ["made", b"one", b"twothree", "lost"]
    assert here.heard == ["made", "lost"]


@on_virtual_time
async def test_a_protocol_with_a_buffer_of_its_own_is_filled_in_turn() -> None:
    here, there = await connected(Buffered())
    here.transport.write(b"one, two")
    here.transport.write(b"three")
    await turns()
    assert there.heard == [b"one,", b" two", b"thre", b"e"]


@on_virtual_time
async def test_an_abort_is_a_reset_at_the_other_end() -> None:
    here, there = await connected()
    await turns()
    there.transport.abort()
    await turns()
    assert here.heard == ["made", "ConnectionResetError"]
    assert there.heard == ["made", "lost"]


@on_virtual_time
async def test_paused_reading_keeps_data() -> None:
    here, there = await connected()
    await turns()
    there.transport.pause_reading()
    here.transport.write(b"one")
    here.transport.close()
    await turns()
    assert there.heard == ["made"]
    there.transport.resume_reading()
    await turns()
    assert there.heard == ["made", b"one", "lost"]


@on_virtual_time
async def test_a_dial_to_no_listener_and_a_second_listener_are_refused() -> None:
    network = MemoryNetwork()
    with pytest.raises(ConnectionRefusedError):
        await network.dial(Noting, "host", 7400)
    listener = await network.listen(Noting, "host", 7400)
    with pytest.raises(OSError, match="in use"):
        await network.listen(Noting, "host", 7400)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await network.dial(Noting, "host", 7400)
    node = Shell(NodeConfig(), network=network).node
    with pytest.raises(JoinError, match="refused"):
        await shell_of(node).start("host:7400")


# -- the cluster -----------------------------------------------------------------------------------


async def conversation(cluster: Cluster, messages: int = 100) -> list[list[int]]:
    """Everyone subscribes and publishes; what each one heard, by source."""
    subscriptions = [node.subscribe(TOPIC) for node in cluster.nodes]
    for one in subscriptions:
        await one.__aenter__()
    reading = [asyncio.create_task(take(one, messages)) for one in subscriptions]
    for number in range(messages):
        node = cluster.nodes[number % len(cluster)]
        await node.publish(TOPIC, str(number))
        await asyncio.sleep(0)
    heard = [[message.source for message in await one] for one in reading]
    await cluster.settle()
    for one in subscriptions:
        await one.close()
    return heard


@pytest.mark.parametrize("runner", [run, asyncio.run], ids=["virtual", "real time"])
def test_a_hundred_messages_on_eight_nodes(runner: Callable[..., None]) -> None:
    async def main() -> None:
        async with Cluster(8) as cluster:
            assert [node.slot for node in cluster.nodes] == list(range(8))
            heard = await conversation(cluster)
            assert all(len(one) == 100 for one in heard)
            report = cluster.check()
            assert (report.publications, report.deliveries) == (100, 800)

    runner(main())


def trace_of(seed: int) -> list[Record]:
    async def main() -> list[Record]:
        async with Cluster(5, seed=seed) as cluster:
            cluster.on_every_link(Rule(delay_s=0.001, jitter_s=0.01, loss=0.1))
            await conversation(cluster, 60)
            await cluster.shrink(1)
            cluster.heal()
            await cluster.grow()
            cluster.check()
            assert cluster.trace is not None
            return cluster.trace

    return run(main())


def test_one_seed_one_trace() -> None:
    first = trace_of(1)
    assert first == trace_of(1)
    assert first != trace_of(2)
    assert len(first) > 60 * 5


@on_virtual_time
async def test_a_delay_lets_an_answer_overtake_and_it_waits() -> None:
    config = NodeConfig(trace_arrivals=True)
    async with (
        Cluster(3, config=config) as cluster,
        cluster[0].subscribe(TOPIC),
        cluster[1].subscribe(TOPIC) as second,
        cluster[2].subscribe(TOPIC) as third,
    ):
        cluster.delay(0, 2, 0.4)
        began = cluster.time
        await cluster[0].publish(TOPIC, "question")
        await anext(second)
        await cluster[1].publish(TOPIC, "answer")
        assert [one.payload for one in await take(third, 2)] == [b"question", b"answer"]
        assert cluster.time - began == pytest.approx(0.4, abs=0.05)
        await cluster.settle()
        cluster.check()
        assert cluster.trace is not None
        arrivals = [one.source for one in cluster.trace if (one.kind, one.node) == ("receive", 2)]
        assert arrivals[:2] == [1, 0]


@on_virtual_time
async def test_a_short_partition_stalls_and_heals() -> None:
    """No node is taken for dead in a second."""
    async with Cluster(4) as cluster, cluster[3].subscribe(TOPIC) as messages:
        await cluster[0].publish(TOPIC, "before")
        await anext(messages)
        await cluster.settle()
        cluster.partition({0, 1}, {2, 3})
        await cluster[0].publish(TOPIC, "during")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.5)
        told = r"not settled after 0\.5 s: node 0 waits in 'chat/room1' for node [23]$"
        with pytest.raises(TimeoutError, match=told):
            await cluster.settle(0.5)
        with pytest.raises(AssertionError, match=r"(?s)completeness: 1 violations"):
            cluster.check()
        cluster.heal()
        assert (await anext(messages)).payload == b"during"
        await cluster.settle()
        assert cluster.check().gaps == 0


@on_virtual_time
async def test_a_settle_that_fails_names_the_topic_the_node_and_the_full_subscription() -> None:
    async with (
        Cluster(2) as cluster,
        cluster[1].subscribe(TOPIC, queue_bytes=1000) as messages,
    ):
        for _ in range(5):
            await cluster[0].publish(TOPIC, bytes(900))
        with pytest.raises(TimeoutError) as caught:
            await cluster.settle(5)
        told = str(caught.value)
        assert told.startswith("not settled after 5 s: node 0 waits in 'chat/room1' for node 1; ")
        assert "a subscription to 'chat/room1' at node 1 (the application, policy block)" in told
        assert told.endswith("bytes unread, limit 1000")
        await take(messages, 5)
        reading = asyncio.create_task(take(messages, 1))  # as a reader that comes for more
        await cluster.settle()
        reading.cancel()


@on_virtual_time
async def test_cuts_and_losses_by_direction() -> None:
    async with (
        Cluster(2) as cluster,
        cluster[0].subscribe(TOPIC) as zero,
        cluster[1].subscribe(TOPIC) as one,
    ):
        cluster.cut(0, 1, one_way=True)
        await cluster[1].publish(TOPIC, "this way")
        assert (await anext(zero)).payload == b"this way"
        await cluster[0].publish(TOPIC, "not this way")
        assert (await anext(one)).source == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(one), 0.5)
        cluster.heal()
        assert (await anext(one)).payload == b"not this way"
        cluster.lose(0, 1, 0.3)
        for number in range(50):
            await cluster[0].publish(TOPIC, str(number))
            await asyncio.sleep(0.01)
        assert [int(message.payload) for message in await take(one, 50)] == list(range(50))
        assert cluster[0].faults.lost > 10
        cluster.heal()
        await cluster.settle()
        cluster.check()


@on_virtual_time
async def test_a_gap_is_right_where_it_was_asked_for_and_nowhere_else() -> None:
    config = NodeConfig.preset("local", window=20_000)
    async with Cluster(3, config=config) as cluster, cluster[2].subscribe(TOPIC) as strict:
        events = cluster[1].events()
        async with cluster[1].subscribe(TOPIC, policy="drop-oldest") as lossy:
            for number in range(100):
                await cluster[0].publish(TOPIC, bytes(1000))
                await anext(strict)
                if number == 0:  # the publisher knows the subscribers by now
                    cluster.cut(0, 1)
            cluster.heal()
            while not isinstance(event := await anext(events), Gap):
                pass
            await cluster.settle()
            report = cluster.check()
            assert report.gaps == lossy.dropped > 0
            assert sum(b - a + 1 for a, b in event.skipped[0]) == report.gaps

        shell_of(cluster[2]).gap(TOPIC, {Stream(0, 1): (0, 4)})  # as if the protocol were broken
        with pytest.raises(AssertionError, match="loss-reports: 5 violations"):
            cluster.check()


async def fill_and_cut(cluster: Cluster, publisher: int, subscriber: int) -> None:
    """Publish until a publisher goes on without a subscriber that it cannot reach any more."""
    receipt = None
    for number in range(100):
        receipt = await cluster[publisher].publish(TOPIC, bytes(1000), receipt=True)
        await asyncio.sleep(0.001)
        if number == 0:
            cluster.cut(publisher, subscriber)
    assert receipt is not None
    await receipt.stable()
    assert cluster[publisher].explain(TOPIC)["suspended"] == [subscriber]


@on_virtual_time
async def test_a_subscriber_no_longer_lossy_misses_nothing_after_a_late_suspension_notice() -> None:
    """Waves reach the publisher by way of others, its notice does not come through."""
    config = NodeConfig.preset("local", window=20_000)
    async with (
        Cluster(4, config=config) as cluster,
        cluster[0].subscribe(TOPIC, policy="drop-oldest") as lossy,
    ):
        await fill_and_cut(cluster, 3, 0)
        strict = cluster[0].subscribe(TOPIC)
        entering = asyncio.create_task(strict.__aenter__())
        await asyncio.sleep(10)
        cluster.heal()
        await entering
        missed = lossy.dropped
        assert missed > 0
        for number in range(100):
            await cluster[3].publish(TOPIC, str(number))
            await asyncio.sleep(0.001)
        heard = [one.payload for one in await take(strict, 100)]
        assert heard == [str(number).encode() for number in range(100)]
        assert (strict.dropped, lossy.dropped) == (0, missed)
        await cluster.settle()
        cluster.check()
        await strict.close()


@on_virtual_time
async def test_a_gap_names_what_is_missing_of_every_life_of_a_slot() -> None:
    async with Cluster(1) as cluster:
        events = cluster[0].events()
        shell_of(cluster[0]).gap(
            TOPIC, {Stream(1, 7): (3, 9), Stream(2, 1): (0, 0), Stream(1, 8): (0, 4)}
        )
        assert await anext(events) == Gap(TOPIC, {1: [(3, 9), (0, 4)], 2: [(0, 0)]})


@on_virtual_time
async def test_nodes_come_and_go() -> None:
    async with Cluster(3) as cluster:
        await cluster.shrink(1)
        assert [node.slot for node in cluster.nodes] == [0, 2]
        with pytest.raises(KeyError, match=r"no node 1; there are \[0, 2\]"):
            cluster[1]
        assert (await cluster.grow()).slot == 1
        assert (await cluster.grow()).slot == 3
        assert len(cluster) == 4
        assert {tuple(node.members) for node in cluster.nodes} == {(0, 1, 2, 3)}


@on_virtual_time
async def test_a_reader_that_waits_in_vain_is_a_deadlock() -> None:
    """The loop raises it, so it is looked at from a loop outside."""

    async def read_in_vain() -> None:
        async with Cluster(2) as cluster, cluster[1].subscribe(TOPIC) as messages:
            await anext(messages)

    with pytest.raises(Deadlock, match="read_in_vain"):
        await asyncio.to_thread(partial(run, read_in_vain(), limit_s=600))


@on_virtual_time
async def test_invalid_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(0)
    async with Cluster(2, trace=False) as cluster:
        with pytest.raises(ValueError, match="trace=False"):
            cluster.check()
        with pytest.raises(ValueError, match="two ends"):
            cluster.cut(1, 1)
        with pytest.raises(KeyError, match="no node 7"):
            cluster.delay(0, 7, 1.0)
        with pytest.raises(ValueError, match="two groups"):
            cluster.partition({0, 1}, {1})
        with pytest.raises(ValueError, match=r"no nodes \[5\]"):
            cluster.partition({0}, {5})
        with pytest.raises(ValueError, match="probability"):
            cluster.lose(0, 1, 2.0)


@on_virtual_time
async def test_killing_and_restarting_nodes_that_are_not_there_is_told_in_words() -> None:
    async with Cluster(2) as cluster:
        with pytest.raises(KeyError, match="no node 5; there are"):
            cluster.kill(5)
        with pytest.raises(KeyError, match=r"node 1 was not killed; .* comes back by grow"):
            await cluster.restart(1)
