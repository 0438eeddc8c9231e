"""Callbacks: in order, one at a time, under the subscription's policy, and what ends them."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

import cubecast
from cubecast.errors import Overflow, TooManyTopics
from cubecast.net.node.node import Node
from cubecast.net.publishing import outbox as outbox_module
from cubecast.protocol.subscriptions import discovery
from support.live import TOPIC, cluster, live, small_window


async def until(count: int, seen: list[Any]) -> None:
    """Wait until `seen` has `count` entries; `live` bounds it."""
    while len(seen) < count:
        await asyncio.sleep(0.001)


async def publish_numbers(node: Node, count: int) -> None:
    for number in range(count):
        await node.publish(TOPIC, str(number))


@live
async def test_a_plain_function_is_called_in_order() -> None:
    seen: list[cubecast.Message] = []
    async with cluster(2) as nodes, nodes[1].on(TOPIC, seen.append) as listener:
        await publish_numbers(nodes[0], 500)
        await until(500, seen)
        assert [int(message.payload) for message in seen] == list(range(500))
        assert listener.failures == 0


@live
async def test_a_coroutine_is_awaited_before_the_next_message() -> None:
    seen: list[int] = []
    running = 0

    async def handle(message: cubecast.Message) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(int(message.payload) % 3):
            await asyncio.sleep(0)
        seen.append(int(message.payload))
        running -= 1

    async with cluster(2) as nodes, nodes[1].on(TOPIC, handle) as listener:
        await publish_numbers(nodes[0], 100)
        await until(100, seen)
        assert (seen, listener.failures) == (list(range(100)), 0)


@live
async def test_a_slow_callback_holds_its_publishers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "BLOCKED_NEWS_S", 0.02)
    seen: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: cubecast.Message) -> None:
        await go_on.wait()
        seen.append(message.seq)

    async with (
        cluster(2, protocol=small_window(), frame_messages=4) as nodes,
        nodes[1].on(TOPIC, handle, policy="block", queue_bytes=1000) as listener,
    ):
        events = nodes[0].events()
        publisher = asyncio.create_task(publish_numbers(nodes[0], 2000))
        while not isinstance(await anext(events), cubecast.PublisherBlocked):
            pass
        assert not publisher.done()
        go_on.set()
        await publisher
        await until(2000, seen)
        assert seen == list(range(2000))
        assert listener.subscription.dropped == 0


@live
async def test_a_callback_that_raises_is_logged_told_and_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    async def handle(message: cubecast.Message) -> None:
        seen.append(message.seq)
        if message.seq == 1:
            raise RuntimeError("no good")
        if message.seq == 2:
            raise asyncio.CancelledError  # of something it waited for; it was not cancelled itself

    async with cluster(2) as nodes, nodes[1].on(TOPIC, handle) as listener:
        events = nodes[1].events()
        with caplog.at_level(logging.ERROR, "cubecast"):
            await publish_numbers(nodes[0], 5)
            await until(5, seen)
        assert seen == [0, 1, 2, 3, 4]
        assert await anext(events) == cubecast.CallbackFailed(TOPIC, "RuntimeError('no good')")
        assert await anext(events) == cubecast.CallbackFailed(TOPIC, "CancelledError()")
        assert listener.failures == 2
        assert f"a callback of '{TOPIC}' failed" in caplog.text
        assert 'raise RuntimeError("no good")' in caplog.text  # the traceback


@live
async def test_closing_waits_for_the_call_that_runs_and_makes_no_other() -> None:
    begun: list[int] = []
    ended: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: cubecast.Message) -> None:
        begun.append(message.seq)
        await go_on.wait()
        ended.append(message.seq)

    async with cluster(2) as nodes:
        async with nodes[1].on(TOPIC, handle) as listener:
            receipt = None
            for number in range(10):
                receipt = await nodes[0].publish(TOPIC, str(number), receipt=True)
            assert receipt is not None
            await receipt.stable()  # all ten are queued
            await until(1, begun)
            closing = asyncio.create_task(listener.close())
            await asyncio.sleep(0)
            go_on.set()
            await closing
            assert begun == ended == [0]
        await listener.finished()
        assert begun == [0]


@live
async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def handle(message: cubecast.Message) -> None:
        begun.append(message.seq)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(message.seq)

    async with cluster(2, leave_timeout_s=1.0) as nodes:
        async with nodes[1].on(TOPIC, handle) as listener:
            await nodes[0].publish(TOPIC, b"")
            await until(1, begun)
            with caplog.at_level(logging.WARNING, "cubecast"):
                await listener.close()
        await listener.finished()
        assert ended == [0]
        assert "did not end: cancelled" in caplog.text


@live
async def test_a_callback_may_close_its_own_listener() -> None:
    seen: list[int] = []
    listeners: list[cubecast.Listener] = []

    async def handle(message: cubecast.Message) -> None:
        seen.append(message.seq)
        if message.seq == 2:
            await listeners[0].close()

    async with cluster(2) as nodes, nodes[1].on(TOPIC, handle) as listener:
        listeners.append(listener)
        await publish_numbers(nodes[0], 10)
        await listener.finished()
        assert (seen, listener.failures) == ([0, 1, 2], 0)


@live
async def test_a_listener_that_is_cut_off_says_so(caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()

    async def handle(message: cubecast.Message) -> None:
        await go_on.wait()

    async with cluster(2) as nodes:
        on = nodes[1].on(TOPIC, handle, policy="disconnect", queue_bytes=1000)
        async with on as listener:
            for _ in range(40):
                receipt = await nodes[0].publish(TOPIC, bytes(500), receipt=True)
                assert receipt is not None
                await receipt.stable()
            go_on.set()
            with pytest.raises(Overflow):
                await listener.finished()
        assert "cut off" in caplog.text


@live
async def test_a_listener_whose_pattern_is_given_up_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "MAX_TOPICS", 2)
    async with cluster(2) as nodes, nodes[1].on("room/+", print) as listener:
        for number in range(3):
            await nodes[0].publish(f"room/{number}", "x")
        with pytest.raises(TooManyTopics):
            await listener.finished()
        assert "callbacks of 'room/+' end: there are too many topics" in caplog.text


@live
async def test_closing_waits_for_the_end_of_a_call_that_is_cancelled() -> None:
    began, ended = asyncio.Event(), False

    async def handle(message: cubecast.Message) -> None:
        nonlocal ended
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended = True

    async with cluster(1, leave_timeout_s=0.1) as nodes:
        listener = nodes[0].on(TOPIC, handle)
        await listener.__aenter__()
        await nodes[0].publish(TOPIC, "x")
        await began.wait()
        await listener.close()
        assert ended


@live
async def test_a_listener_ends_with_its_node_after_what_is_queued() -> None:
    seen: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: cubecast.Message) -> None:
        await go_on.wait()
        seen.append(message.seq)

    async with cluster(1) as nodes, nodes[0].on(TOPIC, handle) as listener:
        await publish_numbers(nodes[0], 10)
        await nodes[0].close()
        assert nodes[0].closed
        go_on.set()
        await listener.finished()
        assert seen == list(range(10))


@live
async def test_callbacks_that_publish_to_their_own_topic_do_not_deadlock() -> None:
    seen: dict[int, int] = {0: 0, 1: 0}
    each = 200

    def handler(node: Node) -> Any:
        published = 1

        async def handle(message: cubecast.Message) -> None:
            nonlocal published
            seen[node.slot] += 1
            if message.source == node.slot:
                for _ in range(min(3, each - published)):
                    published += 1
                    await node.publish(TOPIC, bytes(200))

        return handle

    async with (
        cluster(2, protocol=small_window(2000), frame_messages=2) as nodes,
        nodes[0].on(TOPIC, handler(nodes[0]), queue_bytes=500) as first,
        nodes[1].on(TOPIC, handler(nodes[1]), queue_bytes=500) as second,
    ):
        for node in nodes:
            await node.publish(TOPIC, bytes(200))
        while seen != {0: 2 * each, 1: 2 * each}:
            await asyncio.sleep(0.001)
        assert first.failures == second.failures == 0


@live
async def test_a_callback_that_is_not_callable_is_refused() -> None:
    async with cluster(1) as nodes:
        with pytest.raises(TypeError, match="a callback must be callable, not str"):
            nodes[0].on(TOPIC, "print")  # type: ignore[arg-type]


SCRIPT = """
import asyncio, cubecast

async def main():
    called = asyncio.Event()

    def show(message):
        called.set()
        print(int(message.payload))

    async with cubecast.start("127.0.0.1:0") as node, node.on("chat", show):
        await node.publish("chat", PAYLOAD)
        await called.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize(("payload", "complaint"), [("17", ""), ("x", "ValueError: invalid lit")])
def test_a_script_that_sets_up_no_logging_sees_what_went_wrong_and_only_that(
    payload: str, complaint: str
) -> None:
    script = SCRIPT.replace("PAYLOAD", repr(payload))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert complaint in done.stderr
    assert bool(done.stderr) == bool(complaint)


@live
async def test_a_listener_that_was_never_entered_can_be_closed() -> None:
    async with cluster(1) as nodes:
        await nodes[0].on(TOPIC, print).close()
