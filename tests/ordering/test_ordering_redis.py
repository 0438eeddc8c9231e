"""Order across topics on a real Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from cubecast.bench.event_servers import NoServer, redis_server
from cubecast.errors import Closed
from cubecast.ordering.live import Ordered
from cubecast.ordering.services.names import INBOX
from cubecast.ordering.services.redis import MAX_GATHERED, RedisService
from support.ordering_talks import PATIENT, Connect, Members, check_order, hold_a_conversation

redis: Any = pytest.importorskip("redis.asyncio", reason="redis is not installed")


@pytest.fixture
def address() -> Iterator[str]:
    try:
        with redis_server() as (only,):
            yield only
    except NoServer as reason:
        pytest.skip(str(reason))


def connecting_to(address: str) -> Connect:
    async def connect(name: str, stack: AsyncExitStack) -> RedisService:
        client = redis.from_url(address)
        stack.push_async_callback(client.aclose)
        return RedisService(name, client)

    return connect


def test_all_subscribers_see_the_same_order_and_nothing_is_tagged_or_lost(address: str) -> None:
    check_order(asyncio.run(hold_a_conversation(connecting_to(address))))


def test_a_publisher_that_is_faster_than_the_server_waits_and_loses_nothing(address: str) -> None:
    count = 2 * MAX_GATHERED

    async def main() -> list[bytes]:
        got: list[bytes] = []
        done = asyncio.Event()

        def take(topic: str, data: bytes) -> None:
            got.append(data)
            if len(got) == count:
                done.set()

        async with AsyncExitStack() as stack:
            service = await connecting_to(address)("one", stack)
            await service.open(take, lambda data: None, lambda error: None)
            await service.subscribe("t")
            for number in range(count):
                await service.publish("t", b"%d" % number)
            await asyncio.wait_for(done.wait(), 60)
            await service.close()
        return got

    assert asyncio.run(main()) == [b"%d" % number for number in range(count)]


def test_a_message_of_no_ordering_module_is_dropped_and_harms_no_member(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Members:
        async with AsyncExitStack() as stack:
            members = Members(connecting_to(address), stack)
            reader = await members.add("reader", ["writer"])
            writer = await members.add("writer", ["writer"])
            await reader.subscribe("t0")
            async with redis.from_url(address) as stranger:
                for damaged in (b"", b"no stamp", bytes(range(256)), b"\x92\x91\xa2t0\xc0"):
                    await stranger.publish("t0", damaged)
                    await stranger.publish(INBOX + "writer", damaged)
            await writer.publish("t0", b"one")
            await asyncio.wait_for(members.read("reader", 1), 60)
        return members

    members = asyncio.run(main())
    assert [one.event for one in members.seen["reader"]] == [b"one"]
    assert "an event without a stamp" in caplog.text
    assert "invalid message" in caplog.text


def test_a_server_that_ends_is_told_to_who_publishes_and_who_reads() -> None:
    async def main() -> None:
        with redis_server() as (address,):
            client = redis.from_url(address, retry=None)
            ordered = Ordered(RedisService("a", client), managers=["a"], config=PATIENT)
            await ordered.__aenter__()
            await ordered.subscribe("t0")
        with pytest.raises(Closed, match="the event service failed"):
            await asyncio.wait_for(anext(ordered), 60)
        with pytest.raises(Closed, match="the event service failed"):
            await ordered.publish("t0", b"refused")
        await ordered.close()
        await client.aclose()

    try:
        asyncio.run(main())
    except NoServer as reason:
        pytest.skip(str(reason))


def test_a_client_that_decodes_text_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="without decode_responses"):
        RedisService("a", redis.from_url("redis://127.0.0.1", decode_responses=True))


@pytest.mark.parametrize("topic", ["", "\ud800", INBOX + "a"])
def test_a_channel_that_cannot_be_meant_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match=r"channel|inbox"):
        RedisService("a", redis.from_url("redis://127.0.0.1")).check_topic(topic)
