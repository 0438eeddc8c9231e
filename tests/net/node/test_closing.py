"""How nodes end: once, however often asked, with nothing begun meanwhile; on virtual time."""

from __future__ import annotations

import asyncio

import pytest

import cubecast
from cubecast.errors import Closed, NotSent, Unknown
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.gateway.attached import LAST_WORDS_S
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.testing import Cluster, on_virtual_time
from support.live import small_window

TOPIC = "chat/room1"


async def gone(cluster: Cluster, slot: int) -> None:
    """Wait until the others know that a node has left."""
    async with asyncio.timeout(60):
        while any(slot in node.members for node in cluster.nodes if node.slot != slot):
            await asyncio.sleep(0.01)


@on_virtual_time
async def test_two_who_close_a_node_wait_for_one_end() -> None:
    async with Cluster(2) as cluster:
        began = cluster.time
        await asyncio.gather(cluster[1].close(), cluster[1].close(), cluster.shrink(1))
        assert cluster.time - began < NodeConfig().leave_timeout_s / 2  # no wait timed out
        assert sorted(cluster[0].members) == [0]


@on_virtual_time
async def test_a_close_that_is_cancelled_still_closes() -> None:
    """The asker gives up; the node leaves all the same, as soon as it can."""
    async with Cluster(3) as cluster:
        leaver = cluster[2]
        cluster.cut(0, 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await leaver.close()
        cluster.heal()
        await gone(cluster, 2)
        async with asyncio.timeout(60):
            while not leaver.closed:
                await asyncio.sleep(0.01)
        with pytest.raises(OSError, match="refused"):
            await shell_of(leaver).network.dial(
                asyncio.Protocol, leaver.address.split(":")[0], int(leaver.address.split(":")[1])
            )


@on_virtual_time
async def test_a_node_closes_although_leaving_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong, its port is closed and tasks that wait at it are told."""
    async with Cluster(1) as cluster:
        node = cluster[0]
        waiting = asyncio.create_task(read_one(node))
        await asyncio.sleep(1)

        async def fail() -> None:
            raise RuntimeError("something unforeseen")

        monkeypatch.setattr(shell_of(node).readers, "leave_all", fail)
        with pytest.raises(RuntimeError, match="unforeseen"):
            await node.close()
        assert node.closed
        with pytest.raises(Closed):
            await waiting
        cluster._nodes.clear()


async def read_one(node: Node) -> None:
    async with node.subscribe(TOPIC) as messages:
        await anext(messages)


@on_virtual_time
async def test_a_client_whose_publication_fails_does_not_fail_the_close() -> None:
    async with Cluster(2) as cluster:

        async def publish_in_vain() -> None:
            await asyncio.sleep(1)
            raise NotSent(TOPIC, "no credit")

        shell_of(cluster[1]).guests._finishing.add(asyncio.create_task(publish_in_vain()))
        await cluster.shrink(1)
        assert sorted(cluster[0].members) == [0]


@on_virtual_time
@pytest.mark.parametrize("pause", [0, 0.001, 0.003, 0.006, 0.01, 0.02])
async def test_a_node_that_closes_takes_no_subscription(pause: float) -> None:
    """A task that subscribes again in a loop is told, and no member waits for the leaver."""
    async with Cluster(3) as cluster:
        leaver = cluster[2]

        async def read_for_ever() -> None:
            while True:
                async with leaver.subscribe(TOPIC) as messages:
                    async for _ in messages:
                        pass
                await asyncio.sleep(pause)

        reader = asyncio.create_task(read_for_ever())
        await asyncio.sleep(1)
        first = await cluster[0].publish(TOPIC, b"here we are", receipt=True)
        assert first is not None
        await first.stable(60)
        await cluster.shrink(2)
        with pytest.raises(Closed):
            await reader
        assert await cluster[0].subscribers(TOPIC) == []
        receipt = await cluster[0].publish(TOPIC, b"on we go", receipt=True)
        assert receipt is not None
        await receipt.stable(60)


@on_virtual_time
async def test_a_task_that_waits_to_subscribe_again_is_not_cancelled_by_a_close() -> None:
    """A close that times out ends the wait with `Closed`, not as if its task were cancelled."""
    async with Cluster(2) as cluster:
        leaver = cluster[1]
        messages = leaver.subscribe(TOPIC)
        await messages.__aenter__()
        cluster.cut(0, 1)
        await messages.close()
        again = asyncio.create_task(read_one(leaver))  # waits until the node is out of the topic
        await asyncio.sleep(1)
        await leaver.close()
        with pytest.raises(Closed):
            await again
        cluster._nodes.clear()  # node 0 waits for the one that went: nothing to end gracefully
        await asyncio.sleep(0)


@on_virtual_time
async def test_a_task_that_asks_for_topics_hears_that_the_node_closed() -> None:
    """It does not wait for others, nor blame them."""
    patient = DetectorConfig(suspect_min=10**9, suspect_max=10**9, deaf_after=10**9)
    changes = {"join_timeout_s": 100.0, "detector": patient, "mute_after": 10**9}
    config = NodeConfig.preset("local", **changes)
    async with Cluster(2, config=config) as cluster:
        leaver = cluster[1]
        cluster.cut(0, 1)
        asked = asyncio.create_task(leaver.topics())
        await asyncio.sleep(0.01)
        began = cluster.time
        closing = asyncio.create_task(leaver.close())
        with pytest.raises(Closed):
            await asked
        assert cluster.time - began < 50
        await closing
        with pytest.raises(Closed):
            await leaver.topics()
        cluster._nodes.clear()


# -- light clients ---------------------------------------------------------------------------------


async def read_until_closed(messages: RemoteSubscription, each_s: float = 0) -> tuple[int, str]:
    """How many messages came, and what the subscription said at its end."""
    count = 0
    try:
        async for _ in messages:
            count += 1
            await asyncio.sleep(each_s)
    except Closed as error:
        return count, str(error)
    raise AssertionError("the subscription ended without a word")


@pytest.mark.parametrize("frames", [0, 1, 20])
@on_virtual_time
async def test_a_client_has_everything_before_its_node_is_gone(frames: int) -> None:
    """A lone node that leaves waits only for the tasks that serve its clients."""
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            client.subscribe(TOPIC) as messages,
        ):
            for _ in range(frames):
                await node.publish(TOPIC, b"x")
                await asyncio.sleep(0)  # a frame each
            await node.close()
            assert await read_until_closed(messages) == (frames, "the node leaves the cluster")


@on_virtual_time
async def test_a_client_that_reads_slowly_has_the_rest_from_a_node_that_left() -> None:
    """What it was not sent for want of credit is sent as it reads on."""
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            client.subscribe(TOPIC, queue_bytes=1000) as messages,
        ):
            for _ in range(6):
                await node.publish(TOPIC, bytes(500))
                await asyncio.sleep(0.1)
            _, read = await asyncio.gather(node.close(), read_until_closed(messages, each_s=0.05))
            assert read == (6, "the node leaves the cluster")


@on_virtual_time
async def test_a_client_that_does_not_read_holds_its_node_up_for_a_moment_only() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            client.subscribe(TOPIC, queue_bytes=1000) as messages,
        ):
            for _ in range(10):
                await node.publish(TOPIC, bytes(500))
                await asyncio.sleep(0.1)
            began = cluster.time
            await node.close()
            assert cluster.time - began < 2 * LAST_WORDS_S
            count, why = await read_until_closed(messages)
            assert count < 10
            assert "the node left the cluster" in why


@on_virtual_time
async def test_closing_a_node_raises_for_accepted_publications_that_are_not_sent() -> None:
    """There is no receipt; without the error they would vanish with a line in the log."""
    config = NodeConfig(protocol=small_window(), leave_timeout_s=1.0)
    async with (
        Cluster(2, config=config) as cluster,
        cluster[1].subscribe(TOPIC, queue_bytes=1000) as messages,  # it is not read in time
    ):
        node, sent = cluster[0], 0

        async def publish() -> None:
            nonlocal sent
            while True:
                await node.publish(TOPIC, b"%d" % sent + bytes(500))
                sent += 1

        publishing = asyncio.create_task(publish())
        await asyncio.sleep(1)
        for _ in range(2):  # a second call is told as well
            with pytest.raises(NotSent, match="the node closed before 1 accepted message"):
                await node.close()
        with pytest.raises(NotSent, match="the node is closing"):
            await publishing
        ((topic, unsent, unknown),) = node.leftovers
        assert (topic, unsent) == (TOPIC, 1)
        arrived = [(await anext(messages)).seq for _ in range(sent - unsent)]
        assert arrived == list(range(sent - 1))
        assert 0 < unknown < sent


@on_virtual_time
async def test_closing_a_node_raises_for_publications_that_are_not_confirmed() -> None:
    config = NodeConfig(protocol=small_window(), leave_timeout_s=1.0)
    async with (
        Cluster(2, config=config) as cluster,
        cluster[1].subscribe(TOPIC, queue_bytes=1000),
    ):
        for _ in range(4):
            await cluster[0].publish(TOPIC, bytes(500))
        with pytest.raises(Unknown, match=r"the node closed before \d messages were confirmed"):
            await cluster.shrink(0)


@on_virtual_time
async def test_an_error_of_the_application_is_not_hidden_by_unconfirmed_publications() -> None:
    config = NodeConfig(protocol=small_window(), leave_timeout_s=1.0)

    async def fail(address: str, network: cubecast.Network) -> None:
        async with cubecast.join(address, config=config, network=network) as node:
            for _ in range(4):
                await node.publish(TOPIC, bytes(500))
            raise KeyError("the application's own")

    async with Cluster(1, config=config) as cluster, cluster[0].subscribe(TOPIC, queue_bytes=1000):
        with pytest.raises(KeyError, match="the application's own"):
            await fail(cluster[0].address, shell_of(cluster[0]).network)


@on_virtual_time
async def test_a_reader_at_a_node_that_is_killed_gets_closed() -> None:
    async with Cluster(2) as cluster, cluster[1].subscribe(TOPIC) as messages:
        reading = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        cluster.kill(1)
        async with asyncio.timeout(60):
            with pytest.raises(Closed):
                await reading


@on_virtual_time
async def test_a_topic_that_is_found_as_its_node_is_killed_is_no_error() -> None:
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with Cluster(2) as cluster, cluster[1].subscribe("#", policy="drop-oldest"):
        shell_of(cluster[1]).discovered("new")  # as the protocol tells it
        cluster.kill(1)
        await asyncio.sleep(0.01)
    assert errors == []
