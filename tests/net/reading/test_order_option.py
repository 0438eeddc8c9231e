"""Subscriptions without order: messages as they arrive, each once."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, cast

import pytest

import cubecast
from cubecast.net.checks import check_order
from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.net.reading.subscription import Subscription
from cubecast.ordering.services.cubecast import CubecastService, members_at
from cubecast.testing import on_virtual_time
from cubecast.trace import Record
from support.live import TOPIC, cluster, judge, live, quick_repair, subscribed, take, talk
from support.readers import EACH, STREAM, Desk, frame


@live
async def test_without_order_an_answer_comes_before_its_late_question_and_each_once() -> None:
    trace: list[Record] = []
    async with (
        cluster(3, trace=trace, protocol=quick_repair()) as nodes,
        subscribed(nodes) as subscriptions,
        nodes[2].subscribe(TOPIC, order="none", policy="drop-oldest") as unordered,
    ):
        nodes[0].faults.set(2, Rule(delay_s=0.3))
        await nodes[0].publish(TOPIC, "question")
        assert (await anext(subscriptions[1])).payload == b"question"
        await nodes[1].publish(TOPIC, "answer")
        early = await take(unordered, 2)
        assert [message.payload for message in early] == [b"answer", b"question"]
        heard = await take(subscriptions[2], 2)
        assert [message.payload for message in heard] == [b"question", b"answer"]
        await nodes[0].publish(TOPIC, "end")
        assert (await anext(unordered)).payload == b"end"
    judge(trace, 3)


@live
async def test_without_order_each_message_comes_once_whatever_links_do() -> None:
    count = 100
    async with (
        cluster(3, protocol=quick_repair()) as nodes,
        nodes[2].subscribe(TOPIC) as ordered,
        nodes[2].subscribe(TOPIC, order="none", policy="drop-oldest") as unordered,
        nodes[0].subscribe(TOPIC),
        nodes[1].subscribe(TOPIC),
    ):
        for node in nodes[:2]:
            node.faults.set(None, Rule(loss=0.1, delay_s=0.001, jitter_s=0.01))
        await asyncio.gather(*(talk(node, count) for node in nodes[:2]))
        heard = await take(ordered, 2 * count)
        early = await take(unordered, 2 * count)
        assert Counter(one.payload for one in early) == Counter(one.payload for one in heard)
        assert unordered.dropped == 0


def unordered_one() -> Subscription:
    return Subscription(cast(cubecast.Node, Desk()), "t", "drop-oldest", 1000, None, "none")


@on_virtual_time
async def test_a_frame_that_was_taken_ahead_is_not_queued_again_when_its_turn_comes() -> None:
    async with unordered_one() as messages:
        messages.take_ahead(frame(2, 1))
        messages.take_ahead(frame(1, 1))
        for first in (0, 1, 2, 3):
            assert messages.deliver(frame(first, 1))
        assert [(await anext(messages)).seq for _ in range(4)] == [2, 1, 0, 3]
        assert messages.unread == EACH  # the one that is being read


@on_virtual_time
async def test_nothing_is_remembered_of_what_will_have_no_turn() -> None:
    async with unordered_one() as messages:
        messages.take_ahead(frame(2, 1))
        messages.take_ahead(frame(4, 1))
        messages.forget_ahead(("t", STREAM), 3)
        assert messages.deliver(frame(4, 1))
        assert messages.unread == 2 * EACH
        messages.forget_all_ahead()
        assert messages.deliver(frame(2, 1))  # as in a new life, which counts anew
        assert messages.unread == 3 * EACH


def test_orders_that_cannot_be_meant_are_refused_with_advice() -> None:
    with pytest.raises(ValueError, match='order must be one of causal, none, "total", not'):
        check_order("fifo", "block")
    with pytest.raises(ValueError, match="holds up no publisher"):
        check_order("none", "block")
    with pytest.raises(ValueError, match='managers are for order="total", not for'):
        check_order("causal", "block", ["a:1"])


@live
async def test_a_node_refuses_an_order_when_it_is_asked_for() -> None:
    async with cubecast.join(None, faults=LinkFaults(random=Random(1))) as node:
        subscribe: Any = node.subscribe
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            (TOPIC, {}, "needs the members that number events"),
            (TOPIC, {"managers": ["a:1"], "policy": "disconnect"}, "has no policy"),
            (TOPIC, {"managers": ["a:1"], "queue_bytes": 9}, "has no queue_bytes"),
            ([], {"managers": ["a:1"]}, "at least one topic"),
            (["a", "b/#"], {"managers": ["a:1"]}, "wildcard"),
        ]
        for topics, options, advice in wrong:
            with pytest.raises(ValueError, match=advice):
                subscribe(topics, order="total", **options)
        with pytest.raises(TypeError, match="a topic must be a str, not list"):
            subscribe(["a", "b"])
        with pytest.raises(TypeError, match="managers is a list of names"):
            subscribe("a", order="total", managers="a:1")


@live
async def test_subscriptions_with_total_order_see_topics_in_one_order() -> None:
    """Two at the node that manages, one elsewhere; publishers are subscriptions as well."""
    count = 30
    async with cluster(2) as nodes:
        managers = [nodes[0].address]
        async with (
            nodes[0].subscribe(["a", "b"], order="total", managers=managers) as first,
            nodes[0].subscribe(["a", "b"], order="total", managers=managers) as second,
            nodes[1].subscribe(["b", "a"], order="total", managers=managers) as third,
            nodes[1].subscribe("a", order="total", managers=managers) as only_a,
        ):
            assert first.name == nodes[0].address
            assert len({one.name for one in (first, second, third, only_a)}) == 4

            async def publish(desk: cubecast.Ordered, topic: str) -> None:
                for number in range(count):
                    await desk.publish(topic, f"{topic}{number}")

            await asyncio.gather(publish(first, "a"), publish(third, "b"))
            seen = [[await anext(one) for _ in range(2 * count)] for one in (first, second, third)]
            assert seen[0] == seen[1] == seen[2]
            assert all(one.in_order for one in seen[0])
            some = [await anext(only_a) for _ in range(count)]
            assert [one.payload for one in some] == [
                one.payload for one in seen[0] if one.topic == "a"
            ]
    assert not members_at(nodes[0])


@live
async def test_a_total_subscription_that_no_manager_answers_ends_in_an_error_and_is_closed() -> (
    None
):
    async with cluster(1) as nodes:
        config = cubecast.OrderedConfig(subscribe_timeout_s=0.05, leave_s=0.05)
        service = CubecastService("reader", nodes[0])
        lonely = cubecast.Ordered(service, managers=["gone"], topics=["a"], config=config)
        with pytest.raises(cubecast.NotSubscribed, match="no answer from gone"):
            await lonely.__aenter__()
        assert not members_at(nodes[0])
