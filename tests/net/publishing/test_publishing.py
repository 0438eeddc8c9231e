"""What becomes of a publication: sent, not sent, or unknown; and what holds up a publisher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import cubecast
from cubecast.errors import Closed, NotSent, Unknown
from cubecast.net.node.node import Node
from cubecast.net.publishing import outbox as outbox_module
from cubecast.net.publishing.receipt import Receipt
from support.live import TOPIC, cluster, live, small_window, take

PAYLOAD = bytes(100)


@pytest.fixture(autouse=True)
def early_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need not wait a second to learn that a publisher is held."""
    monkeypatch.setattr(outbox_module, "BLOCKED_NEWS_S", 0.02)


class Flood:
    """A publisher that goes on until it is held; what it was given for each message."""

    def __init__(self, node: Node) -> None:
        self.receipts: list[Receipt] = []
        self._node = node
        self._events = node.events()
        self.task = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        while True:
            receipt = await self._node.publish(TOPIC, PAYLOAD, receipt=True)
            assert receipt is not None
            self.receipts.append(receipt)

    async def held(self) -> cubecast.PublisherBlocked:
        """Wait until it waits for credit of node 1, which does not read."""
        async for event in self._events:
            if isinstance(event, cubecast.PublisherBlocked) and 1 in event.behind:
                return event
        raise AssertionError("the node closed")

    @property
    def accepted(self) -> int:
        return len(self.receipts)


@asynccontextmanager
async def flooded(**config: Any) -> AsyncIterator[tuple[list[Node], cubecast.Subscription, Flood]]:
    """A publisher held by a subscription of another node that reads nothing."""
    async with (
        cluster(2, protocol=small_window(), frame_messages=4, **config) as nodes,
        nodes[1].subscribe(TOPIC, queue_bytes=1000) as slow,
    ):
        flood = Flood(nodes[0])
        await flood.held()
        try:
            yield nodes, slow, flood
        finally:
            flood.task.cancel()
            await asyncio.wait([flood.task])


# -- cancelled, late ------------------------------------------------------------------------------


@live
async def test_a_publish_cancelled_while_it_waits_was_not_sent() -> None:
    async with flooded() as (nodes, slow, flood):
        flood.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flood.task
        messages = await take(slow, flood.accepted)
        await nodes[0].publish(TOPIC, b"next")
        last = await anext(slow)
        assert [message.seq for message in messages] == list(range(flood.accepted))
        assert (last.payload, last.seq) == (b"next", flood.accepted)


@live
async def test_a_publish_cancelled_when_its_frame_is_full_was_not_sent() -> None:
    """The other place where a publish waits: it lets the loop read after a full frame."""
    async with cluster(2, frame_messages=4) as nodes, nodes[1].subscribe(TOPIC) as messages:
        await nodes[0].publish(TOPIC, b"-1")
        await anext(messages)  # the publisher knows the subscribers
        accepted = 0

        async def publish() -> None:
            nonlocal accepted
            for number in range(100):
                await nodes[0].publish(TOPIC, str(number))
                accepted += 1

        publisher = asyncio.create_task(publish())
        await asyncio.sleep(0)  # it runs until it first waits
        publisher.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publisher
        assert 0 < accepted < 100
        await nodes[0].publish(TOPIC, b"next")
        payloads = [message.payload for message in await take(messages, accepted + 1)]
        assert payloads == [*(str(number).encode() for number in range(accepted)), b"next"]


@live
async def test_a_publish_has_a_timeout_of_its_own() -> None:
    async with flooded() as (nodes, slow, flood):
        for timeout in (0, 0.01):
            with pytest.raises(NotSent, match=f"no credit for {timeout:g} s"):
                await nodes[0].publish(TOPIC, b"late", timeout=timeout)
        with pytest.raises(ValueError, match="timeout must not be negative"):
            await nodes[0].publish(TOPIC, b"late", timeout=-1)
        flood.task.cancel()
        payloads = [message.payload for message in await take(slow, flood.accepted)]
        assert set(payloads) == {PAYLOAD}
        await nodes[0].publish(TOPIC, b"next")
        assert (await anext(slow)).payload == b"next"


@live
async def test_large_messages_of_one_tick_do_not_share_a_frame_too_large_to_send() -> None:
    large = 6 * 2**20
    async with cluster(2) as nodes, nodes[1].subscribe(TOPIC) as messages:
        publishing = asyncio.gather(
            *(nodes[0].publish(TOPIC, bytes([n]) * large, receipt=True) for n in range(4))
        )
        received = await take(messages, 4)
        receipts = await publishing
        assert [message.payload[:1] for message in received] == [b"\0", b"\1", b"\2", b"\3"]
        assert [receipt.seq for receipt in receipts if receipt is not None] == [0, 1, 2, 3]


@pytest.mark.parametrize("window", [4096, 1024 * 1024])
@pytest.mark.parametrize("each", [1, 20])
@live
async def test_messages_are_numbered_in_the_order_of_the_calls(each: int, window: int) -> None:
    """Also where many tasks publish at once, wait for credit and are cancelled among others."""
    tasks = 1000 // each
    async with (
        cluster(2, protocol=small_window(window), frame_messages=4) as nodes,
        nodes[1].subscribe(TOPIC, queue_bytes=1000) as messages,
    ):
        await nodes[0].publish(TOPIC, b"first")
        await anext(messages)  # the publisher knows the subscribers
        called: list[bytes] = []

        async def publish(task: int) -> None:
            for number in range(each):
                payload = f"{task}:{number}".encode()
                called.append(payload)
                try:
                    await nodes[0].publish(TOPIC, payload)
                except asyncio.CancelledError:
                    called.remove(payload)
                    raise

        publishers = [asyncio.create_task(publish(task)) for task in range(tasks)]
        received = [(await anext(messages)).payload]
        for publisher in publishers[::7]:
            publisher.cancel()
        while not all(publisher.done() for publisher in publishers):
            received.append((await anext(messages)).payload)
        received += [one.payload for one in await take(messages, len(called) - len(received))]
        assert received == called
        assert len(received) > tasks * each // 2


# -- receipts -------------------------------------------------------------------------------------


@live
async def test_a_receipt_that_is_late_says_unknown_and_may_be_asked_again() -> None:
    async with flooded() as (_, slow, flood):
        flood.task.cancel()
        last = flood.receipts[-1]
        with pytest.raises(Unknown, match=r"'chat/room1': not confirmed in 0\.01 s"):
            await last.stable(timeout=0.01)
        assert not last.is_stable
        await take(slow, flood.accepted)
        reading = asyncio.create_task(take(slow, 1))
        await last.stable()
        assert last.is_stable
        reading.cancel()


@live
async def test_a_node_that_closes_says_of_each_message_what_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stable, unknown or not sent; and none of the last is ever seen."""
    async with flooded(leave_timeout_s=0.3) as (nodes, slow, flood):
        events = nodes[1].events()
        with (
            caplog.at_level(logging.WARNING, "cubecast"),
            pytest.raises(NotSent, match="accepted messages were sent"),
        ):
            await nodes[0].close()
        with pytest.raises(NotSent, match="the node is closing"):
            await flood.task  # it waited
        said: dict[str, list[int]] = {"stable": [], "Unknown": [], "NotSent": []}
        for receipt in flood.receipts:
            try:
                await receipt.stable()
                said["stable"].append(receipt.seq)
            except (Unknown, NotSent) as error:
                said[type(error).__name__].append(receipt.seq)
        assert all(said.values())
        assert [seq for seqs in said.values() for seq in seqs] == list(range(flood.accepted))
        sent = len(said["stable"]) + len(said["Unknown"])
        assert [message.seq for message in await take(slow, sent)] == list(range(sent))
        while not isinstance(await anext(events), cubecast.ConnectionLost):
            pass
        await slow.close()
        assert [message.seq async for message in slow] == []  # the rest did not come after all
        counts = f"{len(said['NotSent'])} messages were not sent and {len(said['Unknown'])} are"
        assert counts in caplog.text


@live
async def test_a_closed_node_accepts_nothing_also_where_it_did_before() -> None:
    async with cluster(1) as nodes:
        await nodes[0].publish(TOPIC, b"in time")
        await nodes[0].close()
        for receipt in (False, True):
            with pytest.raises(Closed):
                await nodes[0].publish(TOPIC, b"too late", receipt=receipt)


@live
async def test_a_node_that_leaves_accepts_nothing_more() -> None:
    async with flooded(leave_timeout_s=0.3) as (nodes, _, flood):
        closing = asyncio.create_task(nodes[0].close())
        await asyncio.wait([flood.task])
        assert not nodes[0].closed
        for topic in (TOPIC, "another"):
            with pytest.raises(Closed):
                await nodes[0].publish(topic, b"too late")
        with pytest.raises((NotSent, Unknown)):  # what it had accepted is not read in time
            await closing


# -- what holds up a publisher --------------------------------------------------------------------


@live
async def test_explain_and_an_event_tell_who_holds_the_credit() -> None:
    async with (
        cluster(4, protocol=small_window(), frame_messages=4) as nodes,
        nodes[3].subscribe(TOPIC) as quick,
        nodes[1].subscribe(TOPIC, queue_bytes=1000) as slow,
    ):
        flood = Flood(nodes[0])
        reading = asyncio.create_task(take(quick, 10**9))
        event = await flood.held()
        assert (event.topic, event.seconds > 0) == (TOPIC, True)
        assert set(event.behind) <= {1, 3}  # node 3 reads, but may be late on a busy machine
        explained: dict[str, Any] = nodes[0].explain(TOPIC)
        while set(explained["behind"]) != {1}:
            await asyncio.sleep(0.005)
            explained = nodes[0].explain(TOPIC)
        assert explained["blocked"] is True
        assert explained["accepted"] > 0
        assert explained["behind"][1] == explained["next"] - stable(flood)
        flood.task.cancel()
        await take(slow, flood.accepted)
        last = asyncio.create_task(take(slow, 1))  # as a reader that comes back for more
        await flood.receipts[-1].stable()
        assert nodes[0].explain(TOPIC)["behind"] == {}
        for task in (reading, last):
            task.cancel()


def stable(flood: Flood) -> int:
    return sum(receipt.is_stable for receipt in flood.receipts)


# -- names and payloads ---------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "empty": ("", b"", ValueError, "a topic must not be empty"),
    "plus": ("chat/+/x", b"", ValueError, "'chat/[+]/x' is a pattern"),
    "hash": ("#", b"", ValueError, "'#' is a pattern"),
    "nul": ("chat\0", b"", ValueError, "must not contain NUL"),
    "long": ("é" * 513, b"", ValueError, "at most 1024 bytes, not 1026"),
    "surrogate": ("\ud800", b"", ValueError, "must be valid Unicode"),
    "bytes": (b"chat", b"", TypeError, "a topic must be a str, not bytes"),
    "list": (["chat"], b"", TypeError, "a topic must be a str, not list"),
    "none": (None, b"", TypeError, "a topic must be a str, not NoneType"),
    "int payload": (TOPIC, 5, TypeError, "a payload must be bytes or str, not int"),
    "list payload": (TOPIC, [1], TypeError, "bytes or str, not list"),
    "no payload": (TOPIC, None, TypeError, "bytes or str, not NoneType"),
    "broken text": (TOPIC, "\ud800", ValueError, "must be valid Unicode; send bytes"),
}


@live
async def test_an_invalid_publication_is_refused_and_nothing_is_lost() -> None:
    async with cluster(2) as nodes, nodes[1].subscribe(TOPIC) as messages:
        for number, (topic, payload, kind, said) in enumerate(WRONG.values()):
            with pytest.raises(kind, match=said) as refused:
                await nodes[0].publish(topic, payload)
            assert "\n" not in str(refused.value)
            await nodes[0].publish(TOPIC, str(number))
            message = await anext(messages)
            assert (message.seq, message.payload) == (number, str(number).encode())


@pytest.mark.parametrize("topic", ["a", "/", "a//b", "é" * 512, "a b"])
@live
async def test_other_names_are_fine(topic: str) -> None:
    async with cluster(2) as nodes, nodes[1].subscribe(topic) as messages:
        await nodes[0].publish(topic, "text")
        assert (await anext(messages)).payload == b"text"
