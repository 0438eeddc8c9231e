"""Troubles of order across topics: managers that are gone, late or double, and what strangers send.

Every call ends: in what it promises, or in an error that names the member without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import cubecast
from cubecast.bench.event_servers import NoServer, nats_servers
from cubecast.errors import Closed, NotSent, NotSubscribed
from cubecast.ordering.codec import encode_message
from cubecast.ordering.live import Ordered
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import Source
from cubecast.ordering.production.notices import UNKNOWN, AnyMessage, AskLayout, Beat, Close, Open
from support.ordering_hub import Hub, HubService

GENEROUS_S = 60
SHORT_S = 0.05
TIMES = {"beat_s": 0.02, "suspect_s": 0.1, "retry_s": 0.04, "drain_s": 0.05}
"""For managers that come and go within a test."""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, GENEROUS_S))


def member(hub: Hub, name: str, managers: Sequence[str], **config: Any) -> Ordered:
    bounds = cubecast.OrderedConfig(**{"wait_s": GENEROUS_S, **TIMES, **config})
    return cubecast.ordered(HubService(name, hub), managers=managers, config=bounds)


@asynccontextmanager
async def members(hub: Hub, names: str, managers: str, **config: Any) -> AsyncIterator[Any]:
    """One member for each letter; they are closed one after the other."""
    made = [member(hub, name, list(managers), **config) for name in names]
    for one in made:
        await one.__aenter__()
    yield made
    for one in made:
        await one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The wall clock, in seconds; a life of a member is the time when it began."""
    seconds = [1_000_000_000]
    monkeypatch.setattr("cubecast.ordering.live.time.time_ns", lambda: seconds[0] * 10**9)
    return seconds


# -- managers that do not answer -------------------------------------------------------------------


def test_a_subscription_that_no_manager_answers_ends_in_an_error_that_names_them() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "r", "xy", subscribe_timeout_s=SHORT_S) as (reader,):
            with pytest.raises(NotSubscribed, match=r"'a', 'b': no answer from x, y for 0\.05 s"):
                await reader.subscribe("a", "b")
            await until(lambda: not hub.members["r"].queues)

    run(main())


def test_a_subscription_that_failed_can_be_made_when_there_is_a_manager() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "r", "w", subscribe_timeout_s=SHORT_S) as (reader,):
            with pytest.raises(NotSubscribed) as failed:
                await reader.subscribe("a")
            assert failed.value.topics == ("a",)
            async with member(hub, "w", ["w"]) as writer:
                while True:
                    try:
                        await reader.subscribe("a")
                        break
                    except NotSubscribed:
                        continue
                await writer.publish("a", "one")
                assert (await anext(reader)).payload == b"one"

    run(main())


def test_a_flush_that_no_manager_answers_ends_in_an_error_that_names_them() -> None:
    async def main() -> None:
        one = member(Hub(), "p", ["x"], publish_timeout_s=SHORT_S)
        await one.__aenter__()
        await one.publish("a", "no stamp")
        with pytest.raises(NotSent, match=r"1 events wait, .* 0\.05 s; no answer from x"):
            await one.flush()
        with pytest.raises(NotSent, match="1 events have no stamps yet"):
            await one.close()

    run(main())


def test_a_publisher_that_no_manager_answers_is_told_although_there_is_room() -> None:
    async def main() -> None:
        one = member(Hub(), "p", ["x"], publish_timeout_s=SHORT_S, leave_s=0)
        await one.__aenter__()
        await one.publish("a", "no stamp")
        await asyncio.sleep(2 * SHORT_S)
        with pytest.raises(NotSent, match="none has left for"):
            await one.publish("a", "no stamp")
        with pytest.raises(NotSent):
            await one.close()

    run(main())


def test_when_the_only_manager_closes_what_others_publish_waits_for_its_return() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "rp", "w", wait_s=SHORT_S) as (reader, publisher):
            async with member(hub, "w", ["w"]):
                await reader.subscribe("a")
                await publisher.publish("a", "one")
                assert (await anext(reader)).payload == b"one"
            await publisher.publish("a", "two")
            async with member(hub, "w", ["w"]):
                assert (await anext(reader)).payload == b"two"

    run(main())


def test_managers_that_close_all_at_once_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "r", "xyz") as (reader,):
            managers = [member(hub, name, list("xyz"), leave_s=GENEROUS_S) for name in "xyz"]
            for one in managers:
                await one.__aenter__()
            await reader.subscribe("a", "b", "c")
            await asyncio.gather(*(one.close() for one in managers))

    run(main())


def test_a_manager_that_starts_late_takes_its_part() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "xr", "xy") as (early, reader):
            await reader.subscribe("a", "b", "c")
            await early.publish("a", "one")
            first = await anext(reader)
            async with member(hub, "y", ["x", "y"]) as late:
                while True:
                    await late.publish("a", "more")
                    message = await anext(reader)
                    assert message.in_order
                    if message.stamp.epoch > first.stamp.epoch:
                        break

    run(main())


def test_an_event_that_was_numbered_by_later_managers_which_its_reader_does_not_know_is_tagged(
    clock: list[int],
) -> None:
    async def main() -> None:
        hub = Hub()
        async with member(hub, "x", ["x"]), member(hub, "r", ["x"], wait_s=SHORT_S) as reader:
            await reader.subscribe("a")
            clock[0] += 100
            async with member(hub, "y", ["y"]) as publisher:
                for number in range(3):
                    await publisher.publish("a", str(number))
                got = [await anext(reader) for _ in range(3)]
        assert [(one.payload, one.in_order) for one in got] == [
            (b"%d" % number, False) for number in range(3)
        ]

    run(main())


def test_a_member_that_takes_no_messages_holds_up_no_other() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "srw", "w") as (deaf, reader, writer):
            await reader.subscribe("a")
            hub.deaf.add("s")
            await deaf.publish("b", "its stamp does not reach it")
            await until(lambda: "w" in hub.held_up)
            await writer.publish("a", "through")
            assert (await anext(reader)).payload == b"through"
            hub.deaf.clear()

    run(main())


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(SHORT_S / 10)


# -- clocks that go back ---------------------------------------------------------------------------


def test_managers_that_return_with_a_clock_that_went_back_go_above_what_members_know(
    clock: list[int],
) -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "rp", "w", wait_s=SHORT_S) as (reader, publisher):
            async with member(hub, "w", ["w"]):
                await reader.subscribe("a")
                await publisher.publish("a", "one")
                first = await anext(reader)
            clock[0] -= 100_000
            await publisher.publish("a", "two")
            async with member(hub, "w", ["w"]):
                second = await anext(reader)
            assert (second.payload, second.in_order) == (b"two", True)
            assert second.stamp.epoch > first.stamp.epoch

    run(main())


def test_a_subscriber_that_returns_with_a_clock_that_went_back_is_known_with_its_new_topics(
    clock: list[int],
) -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "w", "w") as (writer,):
            async with member(hub, "r", ["w"]) as reader:
                await reader.subscribe("a")
            clock[0] -= 100_000
            async with member(hub, "r", ["w"]) as reader:
                await reader.subscribe("a", "b")
                await writer.publish("a", "one")
                await anext(reader)
                await writer.publish("b", "two")
                message = await anext(reader)
            assert message.stamp.higher == (("a", 1),), "b's stamp names a, which the reader has"

    run(main())


# -- what strangers and many topics do -------------------------------------------------------------


FAR = 2**62


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (Open(Layout(FAR << 1, "x", (Source("x", 1),)), (), UNKNOWN), "open of epoch"),
        (Open(Layout(1, "x", ()), (), UNKNOWN), "a layout without managers"),
        (Beat(Source("x", 1), -1, FAR << 1, leaving=False), "beat of epoch"),
        (Close(FAR << 1, "x", ("x",)), "close of epoch"),
        (AskLayout("x", FAR << 1), "ask of epoch"),
    ],
    ids=["open", "no managers", "beat", "close", "ask"],
)
def test_a_forged_epoch_of_the_far_future_is_refused(
    forged: AnyMessage, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "rw", "w") as (reader, writer):
            await reader.subscribe("a")
            stranger = HubService("x", hub)
            for name in "rw":
                await stranger.send(name, encode_message(forged))
            await until(lambda: caplog.text.count(reason) == 2)
            await writer.publish("a", "one")
            assert (await anext(reader)).payload == b"one"

    run(main())


def test_a_message_that_the_service_does_not_take_costs_its_event_and_no_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "rw", "w", subscribe_timeout_s=SHORT_S) as (reader, writer):
            await reader.subscribe("a")
            hub.members["r"].largest = 1000
            many = [f"topic-{number:04}" for number in range(100)]
            with pytest.raises(NotSubscribed, match="no answer from w"):
                await reader.subscribe(*many)
            await writer.publish("a", "one")
            assert (await anext(reader)).payload == b"one"

    run(main())
    assert "a message to w has" in caplog.text


def test_a_member_may_publish_in_thousands_of_topics() -> None:
    async def main() -> None:
        hub = Hub()
        async with members(hub, "rw", "w") as (reader, writer):
            await reader.subscribe("t7", "t77", "t777")
            for number in range(3000):
                await writer.publish(f"t{number}", str(number))
            await writer.flush()
            assert [(await anext(reader)).payload for _ in range(3)] == [b"7", b"77", b"777"]

    run(main())


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("went_back", [False, True], ids=["later", "by a clock that is behind"])
def test_of_two_members_of_one_name_only_one_stays_and_the_other_is_told(
    went_back: bool, clock: list[int]
) -> None:
    """On a real service: in a `Hub` a name is one member."""

    async def main(address: str) -> None:
        nats: Any = pytest.importorskip("nats", reason="nats-py is not installed")
        async with await nats.connect(address) as one, await nats.connect(address) as other:
            first = cubecast.ordered(one, name="w", managers=["w"])
            await first.__aenter__()
            await first.subscribe("a")
            clock[0] += -100 if went_back else 100
            second = cubecast.ordered(other, name="w", managers=["w"])
            await second.__aenter__()
            gone, stays = (second, first) if went_back else (first, second)
            with pytest.raises(Closed, match="another member that began later is named 'w', too"):
                await anext(gone)
            await stays.subscribe("a")
            await stays.publish("a", "one")
            assert (await anext(stays)).payload == b"one"
            await gone.close()
            await stays.close()

    try:
        with nats_servers() as (address,):
            run(main(address))
    except NoServer as reason:
        pytest.skip(str(reason))
