"""The publications of one topic on their way to the core: waits for credit, and reports of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cubecast.errors import NotSent
from cubecast.net.node.shell import shell_of
from cubecast.net.publishing.outbox import BLOCKED_NEWS_S, LOOPS_FIRST_S, Outbox
from cubecast.net.reading.subscription import READS, Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, OutgoingFrame
from cubecast.protocol.config import Config
from cubecast.protocol.port import Topic
from cubecast.testing import Cluster, on_virtual_time

WINDOW = 4096


class Publisher:
    """A node that takes frames as far as its credit goes, and notes what it is told."""

    closed = False

    def __init__(self, credit: int = WINDOW) -> None:
        protocol = Config(window=WINDOW, stable_delay=50, resend_after=200, resend_max=800)
        self.config = NodeConfig(protocol=protocol)
        self.left = credit
        self.frames: list[list[bytes]] = []
        self.waits: list[bool] = []
        self.news: list[float] = []

    def publish_frame(self, topic: Topic, body: OutgoingFrame, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        self.frames.append(list(body.payloads))
        return True

    def credit(self, topic: Topic, wanted: int) -> int:
        return self.left

    def has_to_wait(self, topic: Topic, waits: bool) -> None:
        self.waits.append(waits)

    def why_blocked(self) -> str:
        return "no credit"

    def publisher_blocked(self, topic: Topic, seconds: float) -> None:
        self.news.append(seconds)


class Behind:
    """What a task reads: it is behind with the topic."""

    def behind(self, topic: Topic) -> int:
        return 1

    def reads(self, subscription: Subscription) -> bool:
        return False


async def publish(box: Outbox, payload: bytes, reads: Behind | None = None) -> None:
    """What `Node.publish` does, in a task of its own that reads."""
    READS.set(reads)
    if box.shut or box.bytes >= box.room or len(box.payloads) >= box.frame_messages:
        await box.make_room(60)
    box.payloads.append(payload)
    box.bytes += len(payload) + MESSAGE_OVERHEAD
    if not box.planned:
        box.plan()


def count_timers(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[], object]) -> list[float]:
    """The times for which `wanted` is planned from now on."""
    loop = asyncio.get_running_loop()
    call_at, timers = loop.call_at, list[float]()

    def counted(when: float, callback: Callable[..., object], *args: Any, **more: Any) -> Any:
        if callback == wanted:
            timers.append(when)
        return call_at(when, callback, *args, **more)

    monkeypatch.setattr(loop, "call_at", counted)
    return timers


@on_virtual_time
async def test_at_first_as_much_may_gather_as_a_window_takes_in_one_frame() -> None:
    assert Outbox("t", Publisher()).room == WINDOW


@on_virtual_time
async def test_a_node_is_told_that_a_topic_has_to_wait_and_that_it_is_over() -> None:
    publisher = Publisher(credit=0)
    box = Outbox("t", publisher)
    await publish(box, b"x")
    await asyncio.sleep(0)
    assert (publisher.frames, publisher.waits) == ([], [True])
    publisher.left = 1000
    box.retry()
    await asyncio.sleep(0.01)
    assert (publisher.frames, publisher.waits) == ([[b"x"]], [True, False])
    assert not box.shut


@on_virtual_time
async def test_publishers_that_wait_long_for_the_same_credit_are_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = Publisher(credit=0)
    box = Outbox("t", publisher)
    timers = count_timers(monkeypatch, box._tell_news)
    await publish(box, b"x")
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(publish(box, b"y")) for _ in range(3)]
    await asyncio.sleep(0.9 * BLOCKED_NEWS_S)
    assert (publisher.news, len(timers)) == ([], 1)
    await asyncio.sleep(5 * BLOCKED_NEWS_S)
    assert [round(seconds, 3) for seconds in publisher.news] == [BLOCKED_NEWS_S]
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)


@on_virtual_time
async def test_those_that_only_publish_stand_back_for_one_moment_by_one_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many of them there are."""
    publisher = Publisher(credit=0)
    box = Outbox("t", publisher)
    await publish(box, b"x")
    await asyncio.sleep(0)
    reader = asyncio.ensure_future(publish(box, b"read", Behind()))
    await asyncio.sleep(0)
    timers = count_timers(monkeypatch, box._resume)
    publisher.left = 10_000
    box.retry()
    await reader
    others = [asyncio.ensure_future(publish(box, b"only")) for _ in range(20)]
    await asyncio.sleep(LOOPS_FIRST_S / 2)
    assert not any(one.done() for one in others)
    await asyncio.wait(others, timeout=1)
    assert all(one.done() for one in others)
    assert len(timers) == 1


@on_virtual_time
async def test_a_publisher_that_waits_too_long_for_credit_gets_not_sent() -> None:
    publisher = Publisher(credit=0)
    box = Outbox("t", publisher)
    await publish(box, b"x")
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        with pytest.raises(NotSent, match=r"no credit for 0\.5 s"):
            await box.make_room(0.5)
    assert round(asyncio.get_running_loop().time() - began, 2) == 0.5


@on_virtual_time
async def test_a_node_waits_to_publish_as_long_as_one_of_its_topics_does() -> None:
    async with Cluster(1) as cluster:
        node = cluster[0]
        assert not shell_of(node).publishing.waits()
        for topic in ("a", "b"):
            shell_of(node).publishing.has_to_wait(topic, True)
        shell_of(node).publishing.has_to_wait("a", False)
        assert shell_of(node).publishing.waits()
        shell_of(node).publishing.has_to_wait("b", False)
        assert not shell_of(node).publishing.waits()
