"""Order across topics on a real NATS server, and on a cluster of three."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from cubecast.bench.event_servers import NoServer, nats_servers
from cubecast.errors import Closed
from cubecast.ordering.batches import decode_batch
from cubecast.ordering.codec import OrderingError, decode_message
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.live import Ordered
from cubecast.ordering.services.names import INBOX
from cubecast.ordering.services.nats import NatsService
from support.ordering_talks import PATIENT, Connect, Members, check_order, hold_a_conversation

nats: Any = pytest.importorskip("nats", reason="nats-py is not installed")


@contextmanager
def servers(count: int) -> Iterator[list[str]]:
    try:
        with nats_servers(count) as addresses:
            yield addresses
    except NoServer as reason:
        pytest.skip(str(reason))


def connecting_to(addresses: list[str]) -> Connect:
    """Members share the servers out among them."""
    made = 0

    async def connect(name: str, stack: AsyncExitStack) -> NatsService:
        nonlocal made
        connection = await nats.connect(addresses[made % len(addresses)])
        made += 1
        stack.push_async_callback(connection.close)
        return NatsService(name, connection)

    return connect


@pytest.mark.parametrize("count", [1, 3], ids=["one server", "a cluster"])
def test_all_subscribers_see_the_same_order_and_nothing_is_tagged_or_lost(count: int) -> None:
    settle_s = count - 1  # servers tell each other who subscribes, in their own time
    with servers(count) as addresses:
        check_order(asyncio.run(hold_a_conversation(connecting_to(addresses), settle_s)))


def test_a_message_of_no_ordering_module_is_dropped_and_harms_no_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def disturbed(addresses: list[str]) -> Members:
        async with AsyncExitStack() as stack:
            members = Members(connecting_to(addresses), stack)
            reader = await members.add("reader", ["writer"])
            writer = await members.add("writer", ["writer"])
            await reader.subscribe("t0")
            stranger = await nats.connect(addresses[0])
            for damaged in (b"", b"no stamp", bytes(range(256)), b"\x92\x91\xa2t0\xc0"):
                await stranger.publish("t0", damaged)
                await stranger.publish(INBOX + "writer", damaged)
            await stranger.close()
            await writer.publish("t0", b"one")
            await asyncio.wait_for(members.read("reader", 1), 60)
        return members

    with servers(1) as addresses:
        members = asyncio.run(disturbed(addresses))
    assert [one.event for one in members.seen["reader"]] == [b"one"]
    assert "an event without a stamp" in caplog.text
    assert "invalid message" in caplog.text


def test_a_service_that_fails_is_told_to_who_publishes_and_who_reads() -> None:
    async def cut(addresses: list[str]) -> None:
        connection = await nats.connect(addresses[0])
        ordered = Ordered(NatsService("a", connection), managers=["a"], config=PATIENT)
        await ordered.__aenter__()
        await ordered.subscribe("t0")
        await connection.close()
        await ordered.publish("t0", b"lost")
        with pytest.raises(Closed, match="the event service failed"):
            await asyncio.wait_for(anext(aiter(ordered)), 60)
        with pytest.raises(Closed, match="the event service failed"):
            await ordered.publish("t0", b"refused")
        await ordered.close()

    with servers(1) as addresses:
        asyncio.run(cut(addresses))


@pytest.mark.parametrize("decode", [decode_batch, decode_message])
def test_damaged_bytes_are_an_error_with_a_reason(decode: Callable[[bytes], object]) -> None:
    for damaged in (b"", b"\xc1", b"\x93\x01\x02\x03", bytes(64)):
        with pytest.raises(OrderingError):
            decode(damaged)


def test_a_list_without_managers_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        Ordered(NatsService("a", None), managers=[])


def test_a_negative_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="wait_s must not be negative, but is -1"):
        OrderedConfig(wait_s=-1)
