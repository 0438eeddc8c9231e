"""The numbers of live nodes: totals, rates, queues, lags, views; and how much of them is kept."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import cubecast
from cubecast.net.node import stats as stats_module
from cubecast.net.node import value_keeper
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.slow_news import TELL_EVERY_S
from cubecast.testing import Cluster, on_virtual_time

TOPIC = "numbers"
FORGOTTEN_S = 300.0
"""Longer than three times the default of `forget_after`."""


@on_virtual_time
async def test_totals_count_messages_whatever_frames_they_travel_in() -> None:
    async with Cluster(2) as cluster:
        async with cluster[1].subscribe(TOPIC) as messages:
            for number in range(50):
                await cluster[0].publish(TOPIC, str(number))
            for _ in range(50):
                await anext(messages)
            writer, reader = cluster[0].stats(), cluster[1].stats()
        assert (writer.published, writer.delivered) == (50, 0)
        assert (reader.published, reader.delivered) == (0, 50)
        assert writer.topics[0].published == 50
        await cluster.settle()
        assert cluster[0].stats().in_flight_bytes == 0


@on_virtual_time
async def test_totals_outlive_the_topics_they_were_counted_in() -> None:
    async with Cluster(2) as cluster:
        writer, reader = cluster[0], cluster[1]
        async with reader.subscribe("once") as messages:
            await writer.publish("once", b"")
            await anext(messages)
        assert writer.stats().topic_count == 1
        await asyncio.sleep(FORGOTTEN_S)
        assert writer.stats().topic_count == reader.stats().topic_count == 0
        assert (writer.stats().published, reader.stats().delivered) == (1, 1)


@on_virtual_time
async def test_a_rate_is_taken_over_the_time_since_an_earlier_reading() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        node.stats()
        await asyncio.sleep(2)
        base = node.stats()
        for _ in range(30):
            await node.publish(TOPIC, b"")
        await asyncio.sleep(3)
        rates = node.stats().rates
        assert base.rates.published == 0
        assert rates.over_s == pytest.approx(3)
        assert rates.published == pytest.approx(10)


@on_virtual_time
async def test_samples_remembered_for_rates_are_bounded() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        for _ in range(200):
            node.stats()
            await asyncio.sleep(0.01)
        assert len(shell_of(node).numbers._samples) <= stats_module.MOST_SAMPLES
        assert node.stats().rates.over_s == pytest.approx(1, abs=0.5)


@on_virtual_time
async def test_retained_values_are_counted_with_their_bytes_and_stay_within_their_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_keeper, "MAX_VALUES", 3)
    async with Cluster(2) as cluster:
        node = cluster[0]
        assert (node.stats().retained_values, node.stats().retained_bytes) == (0, 0)
        for number in range(3):
            await node.publish(f"{TOPIC}/{number}", "x" * 100, retain=True)
        await node.publish(TOPIC, "not kept")
        await cluster.settle()
        three = node.stats()
        assert three.retained_values == 3
        assert 300 < three.retained_bytes < 1000
        await node.publish(f"{TOPIC}/0", "", retain=True)  # it says that there is none
        await cluster.settle()
        fewer = node.stats()
        assert fewer.retained_values == 3
        assert fewer.retained_bytes == three.retained_bytes - 100
        await node.publish(f"{TOPIC}/3", "x" * 100, retain=True)
        await cluster.settle()
        assert node.stats().retained_values == 3
        assert cluster[1].stats().retained_values == 0, "it read none of them"
        async with cluster.connect(0) as client:
            asked = await client.stats()
        assert (asked.retained_values, asked.retained_bytes) == (3, fewer.retained_bytes)


@on_virtual_time
async def test_an_unread_queue_is_the_lag_of_its_subscriber() -> None:
    async with Cluster(2) as cluster, cluster[1].subscribe(TOPIC, queue_bytes=100_000) as messages:
        for _ in range(20):
            await cluster[0].publish(TOPIC, b"x" * 100)
        await cluster.settle()
        (slow,) = cluster[1].stats().subscriptions
        assert (slow.topic, slow.policy, slow.client) == (TOPIC, "block", False)
        assert slow.unread_messages == 20
        assert slow.unread_bytes >= 2000
        assert slow.limit_bytes == 100_000
        await anext(messages)
        assert cluster[1].stats().unread_messages == 19


@on_virtual_time
async def test_a_reader_that_stops_is_named_as_the_one_behind() -> None:
    async with Cluster(2) as cluster, cluster[1].subscribe(TOPIC, queue_bytes=100) as messages:
        sent = asyncio.create_task(_publish(cluster[0], 2000))
        await asyncio.sleep(5)
        stats = cluster[0].stats()
        assert stats.blocked == 1
        assert stats.topics[0].blocked
        assert stats.topics[0].behind == {1: stats.links[0].behind}
        assert stats.links[0].behind > 0
        assert cluster[1].stats().subscriptions[0].owes
        for _ in range(2000):
            await anext(messages)
        await sent
        await cluster.settle()
        assert cluster[0].stats().links[0].behind == 0


async def _publish(node: cubecast.Node, count: int) -> None:
    for _ in range(count):
        await node.publish(TOPIC, b"x" * 10_000)


@on_virtual_time
async def test_an_answer_without_its_question_counts_as_waiting() -> None:
    async with (
        Cluster(3) as cluster,
        cluster[1].subscribe(TOPIC) as asked,
        cluster[2].subscribe(TOPIC) as late,
    ):
        await cluster[0].publish(TOPIC, "hello")
        for messages in (asked, late):
            await anext(messages)
        cluster.delay(0, 2, 0.3)
        await cluster[0].publish(TOPIC, "question")
        await anext(asked)
        await cluster[1].publish(TOPIC, "answer")
        await asyncio.sleep(0.1)
        stats = cluster[2].stats()
        assert stats.waiting == 1
        assert stats.held_bytes > 0
        assert [(await anext(late)).payload for _ in range(2)] == [b"question", b"answer"]
        assert cluster[2].stats().waiting == 0


@on_virtual_time
async def test_views_and_members_are_those_of_the_node() -> None:
    async with Cluster(2) as cluster:
        before = cluster[0].stats()
        await cluster.grow()
        after = cluster[0].stats()
        assert (before.members, after.members) == (2, 3)
        assert after.views == before.views + 1
        assert after.epoch == cluster[0].epoch
        assert {link.slot for link in after.links} == {1, 2}
        assert after.inside


@on_virtual_time
async def test_a_client_reads_the_numbers_of_its_node() -> None:
    async with (
        Cluster(2) as cluster,
        cubecast.connect(cluster[1].address, network=shell_of(cluster[1]).network) as client,
        client.subscribe(TOPIC) as messages,
    ):
        await cluster[0].publish(TOPIC, "hello")
        await anext(messages)
        stats = await client.stats()
        assert (stats.node, stats.delivered, stats.clients) == (1, 1, 1)
        assert [(one.topic, one.client) for one in stats.subscriptions] == [(TOPIC, True)]


@on_virtual_time
async def test_clients_that_ask_all_the_time_share_one_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = []
    read = stats_module.Numbers.read

    def counted(numbers: stats_module.Numbers, now_s: float) -> cubecast.Stats:
        readings.append(now_s)
        return read(numbers, now_s)

    monkeypatch.setattr(stats_module.Numbers, "read", counted)
    async with Cluster(1) as cluster:
        address, network = cluster[0].address, shell_of(cluster[0]).network
        async with cubecast.connect(address, network=network) as client:
            await asyncio.gather(*(client.stats() for _ in range(100)))
    assert len(readings) <= 2


@on_virtual_time
async def test_a_reading_names_a_bounded_number_of_topics_and_sums_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "MOST_TOPICS", 5)
    monkeypatch.setattr(stats_module, "MOST_SUBSCRIPTIONS", 3)
    async with Cluster(1) as cluster:
        node = cluster[0]
        readers = [node.subscribe(f"t/{number}") for number in range(9)]
        for reader in readers:
            await reader.__aenter__()
        for number in range(9):
            await node.publish(f"t/{number}", b"x" * (1 + 100 * (number == 7)))
        await asyncio.sleep(0.1)
        stats = node.stats()
        assert (stats.topic_count, len(stats.topics)) == (9, 5)
        assert (stats.subscription_count, len(stats.subscriptions)) == (9, 3)
        assert stats.unread_messages == 9
        assert stats.subscriptions[0].topic == "t/7"
        for reader in readers:
            await reader.close()


@on_virtual_time
async def test_a_reading_is_plain_data() -> None:
    async with Cluster(2) as cluster:
        stats = cluster[0].stats()
        assert msgspec.json.decode(msgspec.json.encode(stats), type=cubecast.Stats) == stats


@on_virtual_time
async def test_a_closed_node_has_no_numbers() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
    with pytest.raises(cubecast.Closed):
        node.stats()


@pytest.mark.parametrize("far", [False, True], ids=["node", "client"])
@on_virtual_time
async def test_a_burst_of_drops_is_one_event_at_once_and_one_a_second(far: bool) -> None:
    async with Cluster(2) as cluster:
        node = cluster[1]
        async with (
            cubecast.connect(node.address, network=shell_of(node).network) as client,
            (client if far else node).subscribe(
                TOPIC, policy="drop-oldest", queue_bytes=500
            ) as messages,
        ):
            events = (client if far else node).events()
            begun = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < begun + 3 * TELL_EVERY_S:
                await cluster[0].publish(TOPIC, b"x" * 100)
                await asyncio.sleep(0.005)
            await asyncio.sleep(2 * TELL_EVERY_S)
            told = [event for event in events._kept if isinstance(event, cubecast.SlowSubscriber)]
            assert 2 <= len(told) <= 5
            assert [event.dropped for event in told] == sorted({event.dropped for event in told})
            assert told[-1].dropped == messages.dropped > 100


@on_virtual_time
async def test_the_last_drops_are_told_when_the_subscription_ends() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        events = node.events()
        async with node.subscribe(TOPIC, policy="drop-newest", queue_bytes=300) as messages:
            for _ in range(30):
                await node.publish(TOPIC, b"x" * 100)
                await asyncio.sleep(0.001)
        told = [event for event in events._kept if isinstance(event, cubecast.SlowSubscriber)]
        assert len(told) == 2
        assert told[-1].dropped == messages.dropped == node.stats().dropped
