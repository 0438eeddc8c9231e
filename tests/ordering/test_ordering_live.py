"""What applications see of order across topics: the library call, policies, bounds and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import cubecast
from cubecast.errors import Closed, NotSent
from cubecast.ordering.batches import Batch, batches, decode_arrived, encode_batch
from cubecast.ordering.codec import OrderingError
from cubecast.ordering.effects import ServicePublish
from cubecast.ordering.library import service_of
from cubecast.ordering.live import Ordered
from cubecast.ordering.services.cubecast import CubecastService
from cubecast.ordering.services.nats import NatsService
from cubecast.ordering.services.redis import RedisService
from cubecast.ordering.timestamps import Stamp
from support.ordering_hub import Hub, HubService

GENEROUS_S = 60


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, GENEROUS_S))


@asynccontextmanager
async def pair(
    hub: Hub, policy: Any = "tagged", **config: Any
) -> AsyncIterator[tuple[Ordered, Ordered]]:
    """A member that publishes and manages all topics, and one that subscribes to a, b and c."""
    bounds = cubecast.OrderedConfig(**{"wait_s": GENEROUS_S, **config})
    async with (
        cubecast.ordered(HubService("w", hub), managers=["w"], first="abc") as writer,
        cubecast.ordered(
            HubService("r", hub), managers=["w"], first="abc", policy=policy, config=bounds
        ) as reader,
    ):
        await reader.subscribe("a", "b", "c")
        yield writer, reader


async def until_idle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


# -- the library call ------------------------------------------------------------------------------


def test_the_call_takes_a_node_and_names_the_member_by_its_address() -> None:
    async def main() -> None:
        async with cubecast.join(None) as node:
            found = service_of(node, None)
            assert isinstance(found, CubecastService)
            assert found.name == node.address
            assert service_of(node, "desk").name == "desk"

    run(main())


def test_the_call_takes_connections_of_nats_and_redis_and_finds_a_name() -> None:
    nats = pytest.importorskip("nats", reason="nats-py is not installed")
    redis = pytest.importorskip("redis.asyncio", reason="redis is not installed")
    one, other = service_of(nats.NATS(), None), service_of(redis.from_url("redis://h"), None)
    assert isinstance(one, NatsService)
    assert isinstance(other, RedisService)
    assert one.name != other.name


def test_the_call_takes_an_event_service_as_it_is() -> None:
    service = HubService("r", Hub())
    assert service_of(service, None) is service
    with pytest.raises(ValueError, match="calls this member 'r', not 's'"):
        service_of(service, "s")


def test_an_object_that_is_no_event_service_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"needs a cubecast node, .* not builtins\.object"):
        cubecast.ordered(object(), managers=["w"])
    with pytest.raises(TypeError, match="'nats://h': connect to it first"):
        cubecast.ordered("nats://h", managers=["w"])
    redis = pytest.importorskip("redis", reason="redis is not installed")
    with pytest.raises(TypeError, match=r"make it with redis\.asyncio\.from_url"):
        cubecast.ordered(redis.Redis(), managers=["w"])


def test_a_light_client_is_refused_with_advice() -> None:
    async def main() -> None:
        async with cubecast.join(None) as node, cubecast.connect(node.address) as client:
            with pytest.raises(TypeError, match=r"no member: join the cluster"):
                cubecast.ordered(client, managers=["w"])

    run(main())


@pytest.mark.parametrize(
    ("managers", "reason"),
    [
        ([], "at least one member has to manage topics"),
        (["a", "b", "a"], "named twice among the managers: a, b, a"),
        ([""], "must not be empty"),
        (["a b"], "no spaces, control characters or wildcards"),
        (["a>"], "no spaces, control characters or wildcards"),
        (["a."], "no empty part"),
        (["a" * 300], "at most 255 bytes: 300"),
    ],
)
def test_managers_that_cannot_be_meant_are_refused(managers: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cubecast.ordered(HubService("r", Hub()), managers=managers)


def test_other_arguments_that_cannot_be_meant_are_refused() -> None:
    service: Any = HubService("r", Hub())
    wrong: Any = "reorder"
    with pytest.raises(TypeError, match=r"managers is a list of names, not one: write \['w'\]"):
        cubecast.ordered(service, managers="w")
    with pytest.raises(TypeError, match="must be a str, not int"):
        cubecast.ordered(service, managers=[1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match='"tagged" or "drop", not \'reorder\''):
        cubecast.ordered(service, managers=["w"], policy=wrong)
    with pytest.raises(ValueError, match="a topic must not be empty"):
        cubecast.ordered(service, managers=["w"], first=[""])
    with pytest.raises(ValueError, match="unread must be at least 1, but is 0"):
        cubecast.OrderedConfig(unread=0)
    with pytest.raises(ValueError, match="unpublished_bytes must be at least 1, but is 0"):
        cubecast.OrderedConfig(unpublished_bytes=0)


def test_a_topic_or_payload_that_cannot_be_meant_hurts_only_its_call() -> None:
    async def main() -> None:
        async with pair(Hub()) as (writer, reader):
            wrong: Any = 7
            with pytest.raises(ValueError, match="a topic must not be empty"):
                await writer.publish("", b"x")
            with pytest.raises(ValueError, match="a topic must not be empty"):
                await reader.subscribe("a", "")
            with pytest.raises(ValueError, match="at least one topic"):
                await reader.subscribe()
            with pytest.raises(TypeError, match="bytes or str, not int"):
                await writer.publish("a", wrong)
            with pytest.raises(NotSent, match="1048576 bytes are more than 983040"):
                await writer.publish("a", bytes(1024 * 1024))
            await writer.publish("a", "text")
            assert (await anext(reader)).payload == b"text"

    run(main())


# -- policies --------------------------------------------------------------------------------------


async def publish_out_of_order(hub: Hub, writer: Ordered, reader: Ordered) -> None:
    """b's first event comes after a's, which does not wait long enough for it."""
    hub.held["b"] = []
    await writer.publish("b", "first")
    await writer.flush()
    await writer.publish("a", "second")
    assert (await anext(reader)).payload == b"second"
    late = hub.held.pop("b")
    hub.publish("b", late[0])
    await until_idle()


def test_an_event_out_of_order_is_notified_with_a_tag() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub, wait_s=0.01) as (writer, reader):
            await publish_out_of_order(hub, writer, reader)
            late = await anext(reader)
            assert (late.topic, late.payload, late.in_order) == ("b", b"first", False)
            assert reader.dropped == 0

    run(main())


def test_with_the_policy_drop_an_event_out_of_order_is_dropped_and_counted() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub, "drop", wait_s=0.01) as (writer, reader):
            await publish_out_of_order(hub, writer, reader)
            assert reader.dropped == 1
            await writer.publish("b", "third")
            assert (await anext(reader)).payload == b"third"

    run(main())


def test_an_event_waits_for_the_one_before_it() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub) as (writer, reader):
            hub.held["b"] = []
            await writer.publish("b", "first")
            await writer.flush()
            await writer.publish("a", "second")
            await until_idle()
            hub.publish("b", hub.held.pop("b")[0])
            assert [(await anext(reader)).payload for _ in "ab"] == [b"first", b"second"]

    run(main())


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["unread", "unread_bytes"])
def test_unread_events_are_missed_and_counted_if_the_service_may_lose(
    bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first ten events have a byte each."""

    async def main() -> None:
        async with pair(Hub(loses_nothing=False), **{bound: 10}) as (writer, reader):
            for number in range(50):
                await writer.publish("a", str(number))
            await until_idle()
            assert reader.missed == 40
            read = [await anext(reader) for _ in range(10)]
            assert [int(one.payload) for one in read] == list(range(10))
            await writer.publish("a", "50")
            after = await anext(reader)
            assert (after.payload, after.missed, after.in_order) == (b"50", 40, True)
            await writer.publish("a", "51")
            assert (await anext(reader)).missed == 0

    run(main())
    assert "member r: 10 events are unread; what comes is dropped" in caplog.text
    assert "member r: 40 events were dropped" in caplog.text


def test_an_application_that_reads_gets_its_turn_and_misses_nothing() -> None:
    async def main() -> None:
        hub = Hub(loses_nothing=False)
        async with pair(hub, unread=10) as (writer, reader):
            hub.held["a"] = []
            for number in range(200):
                await writer.publish("a", str(number))
                await writer.flush()  # so that each is a message of its own
            for message in hub.held.pop("a"):
                hub.publish("a", message)  # all are here before anything is read
            read = [await anext(reader) for _ in range(200)]
            assert [int(one.payload) for one in read] == list(range(200))
            assert reader.missed == 0

    run(main())


@pytest.mark.parametrize("bound", ["unread", "unread_bytes"])
def test_unread_events_stay_in_the_service_if_it_loses_nothing(
    bound: str,
) -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub, **{bound: 5}) as (writer, reader):
            for number in range(50):
                await writer.publish("a", str(number))
                await writer.flush()  # so that each is a message of its own
            await until_idle()
            assert len(hub.members["r"].queues["a"]) == 45
            read = [await anext(reader) for _ in range(50)]
            assert [int(one.payload) for one in read] == list(range(50))
            assert reader.missed == 0

    run(main())


def test_a_full_member_takes_what_events_wait_for_that_it_has_taken() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub, unread=1) as (writer, reader):
            await writer.publish("a", "a1")
            await until_idle()  # it is full, and a is not read any further
            hub.held["a"] = []
            await writer.publish("a", "a2")
            await writer.publish("b", "b1")
            await until_idle()  # b's waits for a's second, which has not arrived
            hub.publish("a", hub.held.pop("a")[0])
            await until_idle()
            assert not hub.members["r"].queues["a"]
            await writer.publish("a", "a3")
            await until_idle()
            assert len(hub.members["r"].queues["a"]) == 1
            read = [await anext(reader) for _ in range(4)]
            assert [one.payload for one in read] == [b"a1", b"a2", b"b1", b"a3"]

    run(main())


def test_a_topic_that_takes_nothing_holds_up_no_other_and_no_manager() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub) as (writer, reader):
            hub.stopped.add("d")
            await writer.publish("d", "stopped")
            await reader.publish("a", "through")
            await writer.publish("b", "too")
            got = {(await anext(reader)).payload for _ in "ab"}
            assert got == {b"through", b"too"}
            hub.stopped.clear()

    run(main())


@pytest.mark.parametrize("bound", [{"unpublished": 2}, {"unpublished_bytes": 16}], ids=str)
def test_a_publisher_without_room_waits_and_then_is_told(bound: dict[str, int]) -> None:
    async def main() -> None:
        hub = Hub()
        bounds = cubecast.OrderedConfig(publish_timeout_s=0.01, leave_s=0.01, **bound)
        alone = cubecast.ordered(HubService("p", hub), managers=["gone"], config=bounds)
        await alone.__aenter__()
        for _ in range(2):
            await alone.publish("a", "no stamp")
        with pytest.raises(NotSent, match=r"2 events wait, none has left for 0\.01 s"):
            await alone.publish("a", "no room")
        with pytest.raises(NotSent, match="2 events have no stamps yet"):
            await alone.close()

    run(main())


def test_a_full_member_that_publishes_is_advised_to_read() -> None:
    async def main() -> None:
        hub = Hub()
        config = cubecast.OrderedConfig(unread=1, unpublished=1, publish_timeout_s=0.01, leave_s=0)
        only = cubecast.ordered(HubService("p", hub), managers=["p"], config=config)
        await only.__aenter__()
        await only.subscribe("a")
        await only.publish("a", "unread")
        await only.flush()
        await until_idle()
        hub.stopped.add("a")
        await only.publish("a", "waits")
        with pytest.raises(NotSent, match="this member is full, too: read it in another task"):
            await only.publish("a", "no room")
        with pytest.raises(NotSent):
            await only.close()

    run(main())


def test_events_wait_longer_where_the_service_loses_nothing() -> None:
    usual = cubecast.OrderedConfig()
    assert usual.waits_s(loses_nothing=True) > usual.waits_s(loses_nothing=False)
    assert cubecast.OrderedConfig(wait_s=3).waits_s(loses_nothing=True) == 3


def test_flushing_between_two_topics_keeps_their_order() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub) as (writer, reader):
            for number in range(20):
                await writer.publish("ab"[number % 2], str(number))
                await writer.flush()
            assert [int((await anext(reader)).payload) for _ in range(20)] == list(range(20))

    run(main())


# -- life ------------------------------------------------------------------------------------------


def test_closing_waits_for_what_was_published() -> None:
    async def main() -> None:
        hub = Hub()
        async with pair(hub) as (_, reader):
            async with cubecast.ordered(HubService("p", hub), managers=["w"]) as publisher:
                for number in range(20):
                    await publisher.publish("a", str(number))
            assert [int((await anext(reader)).payload) for _ in range(20)] == list(range(20))

    run(main())


def test_after_closing_reading_ends_and_the_rest_raises() -> None:
    async def main() -> None:
        async with pair(Hub()) as (writer, reader):
            await writer.publish("a", "unread")
            await until_idle()
            await reader.close()
            assert [one.payload async for one in reader] == [b"unread"]
            for call in (reader.subscribe("d"), reader.unsubscribe("a"), reader.publish("a", "x")):
                with pytest.raises(Closed, match="closed by this member"):
                    await call

    run(main())


def test_an_error_in_the_block_is_what_one_sees() -> None:
    async def main() -> None:
        async with cubecast.ordered(HubService("p", Hub()), managers=["gone"]) as publisher:
            await publisher.publish("a", "no stamp")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_unsubscribing_ends_a_topic() -> None:
    async def main() -> None:
        async with pair(Hub()) as (writer, reader):
            await reader.unsubscribe("a")
            await until_idle()
            await writer.publish("a", "not read")
            await writer.publish("b", "read")
            assert (await anext(reader)).payload == b"read"

    run(main())


# -- messages of several events --------------------------------------------------------------------


def effects(*stamps: Stamp, payload: bytes = b"x") -> list[ServicePublish]:
    return [ServicePublish(one.topic, payload, one) for one in stamps]


def test_events_of_one_answer_share_a_message_and_get_their_own_stamps_back() -> None:
    higher, passed = (("a", 3),), (("c", 1),)
    first = Stamp("b", 7, higher, passed)
    (batch,) = batches(effects(first, Stamp("b", 8, higher), Stamp("b", 9, higher)))
    arrived = decode_arrived("b", encode_batch(batch))
    stamps = [stamp for stamp, _ in arrived.events()]
    assert stamps == [first, Stamp("b", 8, higher), Stamp("b", 9, higher)]


@pytest.mark.parametrize(
    "second",
    [
        Stamp("b", 9),
        Stamp("b", 8, (("a", 1),)),
        Stamp("b", 8, (), (("c", 1),)),
    ],
    ids=["a gap", "other higher topics", "something passed"],
)
def test_events_whose_stamps_do_not_follow_each_other_go_alone(second: Stamp) -> None:
    stamps = [Stamp("b", 7), second]
    found = list(batches(effects(*stamps)))
    assert [[stamp for stamp, _ in one.events()] for one in found] == [[one] for one in stamps]


def test_large_events_go_alone() -> None:
    found = list(batches(effects(*(Stamp("b", n) for n in (1, 2, 3)), payload=bytes(40_000))))
    assert [len(one.payloads) for one in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (Batch(Stamp("b", 1), ()), "a stamp that no manager gives"),
        (Batch(Stamp("b", 0), (b"x",)), "a stamp that no manager gives: number 0"),
        (Batch(Stamp("a", 1), (b"x",)), "a stamp of another topic, 'a'"),
    ],
)
def test_events_that_no_module_publishes_are_refused(batch: Batch, reason: str) -> None:
    with pytest.raises(OrderingError, match=reason):
        decode_arrived("b", encode_batch(batch))
