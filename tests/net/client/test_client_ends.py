"""What a client knows of the ends of streams, so that it says truly whether it missed more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from cubecast import Rule
from cubecast.net.client.attachment import Attachment
from cubecast.net.client.client import Client
from cubecast.net.client.read_positions import Floors, names_one_of
from cubecast.net.client.shell import client_shell_of
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import Detached, Event, Events, Gap, Reattached
from cubecast.net.gateway.subscriptions import Subscriptions
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.clients import Deliver, Over, Position
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, run

TOPIC = "orders"
PATIENCE_S = 3600.0
FORGOTTEN_S = 200.0
"""Longer than three times the default of `forget_after`."""
TOLD_S = 300.0
"""Longer than a node takes to tell its clients what is over, and to forget it."""


async def until(events: Events, kind: type[Event]) -> list[Event]:
    """What a client is told up to the first event of a kind."""
    told: list[Event] = []
    async for event in events:
        told.append(event)
        if isinstance(event, kind):
            break
    return told


async def leave(nodes: Cluster, slot: int) -> None:
    """A node leaves in order; `Cluster.restart` has it come back at its address."""
    nodes._killed[slot] = nodes[slot].address
    await nodes.shrink(slot)


async def renew(nodes: Cluster, slot: int) -> None:
    await leave(nodes, slot)
    await asyncio.sleep(1)
    await nodes.restart(slot)
    await asyncio.sleep(1)


def pull_cable(client: Client) -> None:
    client.faults.set(None, Rule(cut=True))
    client_shell_of(client).lose_node("the cable")


# -- how the client of node 0 comes to have no node, and has one again -----------------------------


async def by_the_cable(nodes: Cluster, client: Client, away_s: float) -> None:
    pull_cable(client)
    await asyncio.sleep(1)
    for number in range(7):
        await nodes[1].publish(TOPIC, f"missed {number}")
    await asyncio.sleep(away_s)
    client.faults.clear()


async def by_a_leave(nodes: Cluster, client: Client, away_s: float) -> None:
    await leave(nodes, 0)
    for number in range(7):
        await nodes[1].publish(TOPIC, f"missed {number}")
    await asyncio.sleep(away_s)
    await nodes.restart(0)


WAYS = [by_the_cable, by_a_leave]


@pytest.mark.parametrize("go_away", WAYS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_client_counts_what_it_missed_unless_its_nodes_have_forgotten_the_topic(
    go_away: Callable[[Cluster, Client, float], object], forgotten: bool
) -> None:
    """It was the only reader; then there may be more, and it says so."""

    async def main() -> None:
        async with (
            Cluster(3) as nodes,
            nodes.connect(0, patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC) as messages,
        ):
            events = client.events()
            await nodes[1].publish(TOPIC, "first")
            assert (await anext(messages)).payload == b"first"
            going = go_away(nodes, client, FORGOTTEN_S if forgotten else 1)
            assert asyncio.iscoroutine(going)
            await going
            *_, last = told = await until(events, Reattached)
            assert isinstance(last, Reattached)
            assert (last.missed, last.exact) == ((0, False) if forgotten else (7, True))
            assert any(isinstance(one, Gap) for one in told) is not forgotten
            await nodes[1].publish(TOPIC, "next")
            assert (await anext(messages)).payload == b"next"
            if forgotten:  # it is told once
                pull_cable(client)
                await until(events, Detached)
                client.faults.clear()
                assert (await until(events, Reattached))[-1] == Reattached(
                    client.address, 0, 0, True
                )

    run(main())


async def away(first: int, also_read_by: int | None, away_s: float) -> Reattached:
    """The client of node 0 is away while node 1 publishes; it has read `first` messages before.

    Node 2 reads these, too, perhaps.  It leaves the topic, and remembers it longer than node 1.
    """
    async with (
        Cluster(3) as nodes,
        nodes.connect(0, patience_s=PATIENCE_S) as client,
        client.subscribe(TOPIC) as messages,
    ):
        events = client.events()
        await asyncio.sleep(25)
        async with AsyncExitStack() as stack:
            if also_read_by is not None:
                await stack.enter_async_context(nodes[also_read_by].subscribe(TOPIC))
            for _ in range(first):
                await nodes[1].publish(TOPIC, "read")
                await anext(messages)
            await asyncio.sleep(1)
        await by_the_cable(nodes, client, away_s)
        *_, last = await until(events, Reattached)
        assert isinstance(last, Reattached)
        return last


@pytest.mark.parametrize(("first", "also_read_by", "away_s"), [(3, 2, 102), (0, None, FORGOTTEN_S)])
def test_a_client_that_is_away_for_as_long_as_nodes_remember_is_not_exact(
    first: int, also_read_by: int | None, away_s: float
) -> None:
    """A node may name an earlier end of a stream, or a stream may come and go meanwhile."""
    back = run(away(first, also_read_by, away_s))
    assert (back.missed, back.exact) == (0, False)
    back = run(away(first, also_read_by, 20))
    assert (back.missed, back.exact) == (7, True)


# -- streams that are over before ------------------------------------------------------------------


async def renewed_publishers(come_back: str, told_s: float) -> Reattached:
    """Publishers leave and come back, time after time; then the client's own node is away."""
    async with (
        Cluster(3) as nodes,
        nodes[0].subscribe(TOPIC),
        nodes[1].subscribe(TOPIC),
        nodes.connect(2, patience_s=PATIENCE_S) as client,
        client.subscribe(TOPIC) as messages,
    ):
        events = client.events()
        for turn in range(3):
            for slot in (0, 1):
                await nodes[slot].publish(TOPIC, f"{turn} {slot}")
                assert (await anext(messages)).payload == b"%d %d" % (turn, slot)
                await renew(nodes, slot)
        await asyncio.sleep(told_s)
        if come_back == "to its node":
            pull_cable(client)
            await until(events, Detached)
            client.faults.clear()
        else:
            await renew(nodes, 2)
        *_, last = await until(events, Reattached)
        assert isinstance(last, Reattached)
        return last


@pytest.mark.parametrize(
    ("come_back", "told_s"), [("to its node", TOLD_S), ("to the next life of its node", 0)]
)
@pytest.mark.parametrize("tells", [True, False], ids=["", "the node does not tell the ends"])
def test_a_client_whose_publishers_were_renewed_knows_that_it_missed_nothing(
    come_back: str, told_s: float, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that leaves tells the ends before, so that also a rolling restart is exact."""
    if not tells:
        monkeypatch.setattr(Subscriptions, "tell_over", lambda one: None)
    back = run(renewed_publishers(come_back, told_s))
    assert (back.slot, back.missed, back.exact) == (2, 0, tells)


@pytest.mark.parametrize("tells", [True, False], ids=["", "the node does not tell the ends"])
def test_a_client_with_a_pattern_stays_exact_when_topics_have_been_forgotten(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not tells:
        monkeypatch.setattr(Subscriptions, "tell_over", lambda one: None)

    async def main() -> Reattached:
        async with (
            Cluster(2) as nodes,
            nodes.connect(0, patience_s=PATIENCE_S) as client,
            client.subscribe("room/#") as messages,
        ):
            events = client.events()
            for number in range(3):
                await nodes[1].publish(f"room/{number}", "once")
                await anext(messages)
            await asyncio.sleep(2 * FORGOTTEN_S)
            pull_cable(client)
            await until(events, Detached)
            client.faults.clear()
            *_, last = await until(events, Reattached)
            assert isinstance(last, Reattached)
            return last

    back = run(main())
    assert (back.missed, back.exact) == (0, tells)


# -- what a node says, and when --------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Deliver | Over]:
    """What clients hear of their subscriptions, in order."""
    found: list[Deliver | Over] = []
    on_deliver, on_over = RemoteSubscription.on_deliver, RemoteSubscription.on_over

    def deliver(one: RemoteSubscription, node: Attachment, news: Deliver) -> None:
        found.append(news)
        on_deliver(one, node, news)

    def over(one: RemoteSubscription, node: Attachment, news: Over) -> None:
        found.append(news)
        on_over(one, node, news)

    monkeypatch.setattr(RemoteSubscription, "on_deliver", deliver)
    monkeypatch.setattr(RemoteSubscription, "on_over", over)
    return found


@pytest.mark.parametrize(
    ("congested", "count"), [(False, 6), (True, 1)], ids=["the reader stops", "the network is full"]
)
def test_a_node_says_that_a_stream_is_over_when_it_has_sent_all_of_it(
    congested: bool, count: int, heard: list[Deliver | Over], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the client would not know that it missed the rest, if that never comes."""

    async def main() -> None:
        async with (
            Cluster(3) as nodes,
            nodes.connect(0, patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC, queue_bytes=100_000) as messages,
        ):
            room = asyncio.Event()
            await nodes[1].publish(TOPIC, "first")
            await anext(messages)
            if congested:
                [session] = shell_of(nodes[0]).guests._sessions.values()
                monkeypatch.setattr(session._line, "room", room.wait)
            for number in range(count):
                await nodes[1].publish(TOPIC, str(number) * 30_000)
            await nodes.settle()
            ended = shell_of(nodes[1]).core.stream_of(TOPIC)
            await renew(nodes, 1)
            await asyncio.sleep(TOLD_S)
            early = list(heard)
            assert not any(isinstance(one, Over) for one in early)
            room.set()
            for number in range(count):
                assert (await anext(messages)).payload[:1] == b"%d" % number
            await asyncio.sleep(TOLD_S)
            *delivered, last = heard
            assert last == Over(1, [(TOPIC, *ended)])
            sizes = [len(one.payloads) for one in delivered if isinstance(one, Deliver)]
            assert sum(sizes) == 1 + count
            assert len(early) < len(delivered), "not all was sent yet"

    run(main())


# -- floors ----------------------------------------------------------------------------------------


def positions(*entries: tuple[int, int]) -> list[Position]:
    return [(TOPIC, source, 7, first) for source, first in entries]


def test_a_stream_is_open_from_its_first_message_until_it_is_over() -> None:
    floors = Floors()
    assert floors.are_named([])
    floors[TOPIC, Stream(0, 7)] = 3
    floors.raise_to(positions((1, 5)))
    assert floors.are_named(positions((0, 9), (1, 5), (2, 0)))
    assert not floors.are_named(positions((0, 9)))
    assert not floors.are_named(positions((1, 5)))
    floors.close([(TOPIC, 0, 7), (TOPIC, 2, 7)])
    assert floors.are_named(positions((1, 5)))
    assert floors[TOPIC, Stream(0, 7)] == 3, "it is not read again"
    floors[TOPIC, Stream(0, 7)] += 0  # the next node delivers of it all the same
    assert not floors.are_named(positions((1, 5)))
    floors.close_all_but(positions((2, 0)))
    assert floors.are_named([])


def test_a_node_that_ended_is_known_by_a_stream_of_its_slot() -> None:
    assert names_one_of(positions((0, 12), (1, 3)), 1)
    assert not names_one_of(positions((0, 12)), 1)
