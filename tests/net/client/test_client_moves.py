"""Light clients that go from node to node: what they read, publish, miss and are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cubecast
from cubecast.errors import AttachError, Closed, NotSent, Unknown
from cubecast.net.client import moving
from cubecast.net.client.client import Client
from cubecast.net.client.publishing import Pipeline
from cubecast.net.client.read_positions import Floors
from cubecast.net.client.shell import ClientShell, client_shell_of
from cubecast.net.events import Detached, Events, Gap, Reattached
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.subscribing import Subscribing
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.clients import (
    Answered,
    CatchUp,
    Consumed,
    Declined,
    Farewell,
    Position,
    Publish,
    Subscribe,
    Subscribed,
    Taken,
    Taking,
    decode_from_client,
    size_of,
)
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, run
from support.clients import raw_client
from support.live import TOPIC, cluster, join, live

PATIENCE_S = 20.0


async def event_of(events: Events, kind: type) -> object:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def list_of(nodes: list[Node]) -> str:
    return ",".join(node.address for node in nodes)


# -- when the node is gone -------------------------------------------------------------------------


@live
async def test_a_client_goes_on_at_its_node_when_that_is_back_and_hears_what_it_missed() -> None:
    async with cluster(2) as nodes:
        writer, host = nodes
        where = host.address
        async with (
            cubecast.connect(where, patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC) as messages,
        ):
            events = client.events()
            await writer.publish(TOPIC, b"before")
            assert (await anext(messages)).payload == b"before"
            await nodes.pop().close()
            assert isinstance(await event_of(events, Detached), Detached)
            for number in range(3):
                await writer.publish(TOPIC, b"missed %d" % number)
            await join(nodes, listen=where)
            gap = await event_of(events, Gap)
            assert gap == Gap(TOPIC, {0: [(1, 3)]})
            back = await event_of(events, Reattached)
            assert back == Reattached(where, 1, 3, True)
            await writer.publish(TOPIC, b"after")
            assert (await anext(messages)).payload == b"after"
            assert messages.missed == 3


@live
async def test_a_client_that_ends_up_in_another_cluster_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its node began anew without a seed: what is said in the former cluster is not counted."""
    async with cluster(1) as nodes:
        where = nodes[0].address
        async with (
            cubecast.connect(where, patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC),
        ):
            events, former = client.events(), client.cluster
            await nodes.pop().close()
            await event_of(events, Detached)
            async with cubecast.start(where) as anew:
                assert anew.cluster != former
                assert await event_of(events, Reattached) == Reattached(where, 0, 0, False)
            assert client.cluster == anew.cluster
            assert f"is in cluster {anew.cluster} now, and was in {former}" in caplog.text


@live
async def test_a_client_goes_to_another_node_of_its_list_when_its_own_is_killed() -> None:
    async with (
        cluster(3) as nodes,
        cubecast.connect(list_of(nodes[::-1]), patience_s=PATIENCE_S) as client,
        client.subscribe(TOPIC) as messages,
    ):
        assert client.slot == 2
        events = client.events()
        shell_of(nodes.pop()).kill()
        back = await event_of(events, Reattached)
        assert isinstance(back, Reattached)
        assert back.address == client.address == nodes[1].address
        await client.publish(TOPIC, b"from elsewhere")
        assert (await anext(messages)).payload == b"from elsewhere"
        assert sorted(await client.members()) in ([0, 1], [0, 1, 2])


@live
async def test_questions_subscriptions_and_publications_without_a_node_wait_for_one() -> None:
    async with cluster(2) as nodes:
        where = nodes[1].address
        async with cubecast.connect(where, patience_s=PATIENCE_S) as client:
            events = client.events()
            await nodes.pop().close()
            await event_of(events, Detached)
            entering = asyncio.create_task(client.subscribe(TOPIC).__aenter__())
            asking = asyncio.create_task(client.members())
            publishing = asyncio.create_task(client.publish(TOPIC, b"later", receipt=True))
            await asyncio.sleep(0)
            assert not any(task.done() for task in (entering, asking, publishing))
            await join(nodes, listen=where)
            messages = await entering
            assert sorted(await asking) == [0, 1]
            receipt = await publishing
            assert receipt is not None
            assert (await anext(messages)).payload == b"later"
            await receipt.stable()


@live
async def test_patience_ends_and_everything_that_waits_is_told() -> None:
    async with (
        cluster(1) as nodes,
        cubecast.connect(nodes[0].address, patience_s=0.2) as client,
        client.subscribe(TOPIC) as messages,
    ):
        await nodes.pop().close()
        with pytest.raises(NotSent):
            await client.publish(TOPIC, b"never")
        with pytest.raises(Closed, match="the node left the cluster; cannot attach to a node at"):
            await anext(messages)


@live
async def test_a_client_with_patience_waits_for_its_first_node() -> None:
    async with cluster(1) as nodes:
        where = nodes[0].address
        await nodes.pop().close()
        attaching = asyncio.create_task(cubecast.connect(where, patience_s=PATIENCE_S).__aenter__())
        await asyncio.sleep(0)
        await join(nodes, listen=where)
        client = await attaching
        assert client.address == where
        await client.close()


@live
async def test_a_refusal_that_will_not_change_is_told_at_once() -> None:
    async with cluster(1, secret="the secret of the cluster") as nodes:
        with pytest.raises(AttachError, match="secret is not the same"):
            async with cubecast.connect(
                nodes[0].address, secret="not the same secret", patience_s=1e6
            ):
                raise AssertionError("it was let in")


@live
async def test_without_patience_a_client_ends_with_its_node_as_ever() -> None:
    async with (
        cluster(2) as nodes,
        cubecast.connect(list_of(nodes[::-1])) as client,
        client.subscribe(TOPIC) as messages,
    ):
        await nodes.pop().close()
        with pytest.raises(Closed, match="the node leaves the cluster"):
            await anext(messages)


@pytest.mark.parametrize("patience_s", [-1.0, float("nan")])
@live
async def test_patience_is_a_number_of_seconds(patience_s: float) -> None:
    with pytest.raises(ValueError, match="patience_s must be a number of seconds"):
        async with cubecast.connect("127.0.0.1:1", patience_s=patience_s):
            raise AssertionError("attached")


@live
async def test_a_subscription_that_the_next_node_refuses_ends_alone() -> None:
    async with cluster(1) as nodes:
        await join(nodes, client_subscriptions=1)
        await join(nodes)
        async with (
            cubecast.connect(list_of(nodes[:0:-1]), patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC) as kept,
            client.subscribe("another") as refused,
        ):
            events = client.events()
            shell_of(nodes.pop()).kill()
            assert isinstance(await event_of(events, Reattached), Reattached)
            with pytest.raises(Closed, match="a client may have 1 subscriptions, not more"):
                await anext(refused)
            await client.publish(TOPIC, b"still here")
            assert (await anext(kept)).payload == b"still here"


# -- when the node leaves --------------------------------------------------------------------------


@live
async def test_a_node_that_leaves_hands_its_clients_over_and_they_miss_nothing() -> None:
    async with cluster(3) as nodes:
        writer = nodes[0]
        async with (
            cubecast.connect(list_of(nodes[:0:-1]), patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC) as messages,
        ):
            events = client.events()

            async def write() -> None:
                for number in range(300):
                    await writer.publish(TOPIC, b"%d" % number)
                    await asyncio.sleep(0.001)

            writing = asyncio.create_task(write())
            numbers = [int((await anext(messages)).payload) for _ in range(50)]
            leaving = asyncio.create_task(nodes.pop().close())
            numbers += [int((await anext(messages)).payload) for _ in range(250)]
            await asyncio.gather(writing, leaving)
            back = await event_of(events, Reattached)
        assert numbers == list(range(300))
        assert back == Reattached(nodes[1].address, nodes[1].slot, 0, True)


@live
async def test_a_publication_while_the_node_leaves_is_sent_once_by_another() -> None:
    async with cluster(3) as nodes:
        writer = nodes[0]
        async with (
            writer.subscribe(TOPIC) as messages,
            cubecast.connect(list_of(nodes[:0:-1]), patience_s=PATIENCE_S) as client,
        ):
            leaving = None
            for number in range(400):
                await client.publish(TOPIC, b"%d" % number)
                if number == 100:
                    leaving = asyncio.create_task(nodes.pop().close())
                if number % 10 == 0:
                    await asyncio.sleep(0.001)
            await client.flush()
            assert leaving is not None
            await leaving
            received = [int((await anext(messages)).payload) for _ in range(400)]
        assert received == list(range(400))


# -- waiting for another node, on virtual time -----------------------------------------------------
#
# Node 0 publishes, and its children are nodes 1 and 2: what it says reaches each by a link of its
# own, and one of the links is slow.  The client goes from node 1 to node 2.

SLOW_S = 0.5


async def read_all(messages: Subscription, count: int) -> list[bytes]:
    return [(await anext(messages)).payload for _ in range(count)]


async def effect_after_move() -> list[bytes]:
    """What node 2 reads if a client reads a cause at node 1, which dies, and answers at node 2."""
    async with (
        Cluster(3) as nodes,
        nodes[2].subscribe(TOPIC) as reader,
        nodes.connect(1, 2, patience_s=PATIENCE_S) as client,
        client.subscribe(TOPIC) as messages,
    ):
        await nodes.settle()
        nodes.delay(0, 2, SLOW_S, one_way=True)
        await nodes[0].publish(TOPIC, "cause")
        assert (await anext(messages)).payload == b"cause"
        events = client.events()
        nodes.kill(1)
        await event_of(events, Detached)
        await client.publish(TOPIC, "effect")
        return await read_all(reader, 2)


def test_messages_a_client_read_are_delivered_at_its_new_node_before_it_publishes() -> None:
    assert run(effect_after_move()) == [b"cause", b"effect"]


@pytest.mark.parametrize("mutant", ["the client does not ask", "the node answers at once"])
def test_without_catching_up_an_effect_comes_before_its_cause(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_to_ask(client: Client, node: object) -> bool:
        return True

    if mutant == "the client does not ask":
        monkeypatch.setattr(ClientShell, "catch_up", nothing_to_ask)
    else:
        monkeypatch.setattr(Subscribing, "undelivered", lambda node, positions: [])
    assert run(effect_after_move()) == [b"effect", b"cause"]


async def reading_at_a_node_that_leaves() -> tuple[list[bytes], int]:
    """What a client reads whose node leaves and is behind the next one, and what it missed."""
    async with (
        Cluster(3) as nodes,
        nodes[2].subscribe(TOPIC) as reader,
        nodes.connect(1, 2, patience_s=PATIENCE_S) as client,
        client.subscribe(TOPIC) as messages,
    ):
        await nodes.settle()
        nodes.delay(0, 1, SLOW_S, one_way=True)
        for number in range(3):
            await nodes[0].publish(TOPIC, str(number))
        await read_all(reader, 3)
        events = client.events()
        leaving = asyncio.create_task(nodes.shrink(1))
        await event_of(events, Reattached)
        await nodes[0].publish(TOPIC, "last")
        found = [(await anext(messages)).payload]
        while found[-1] != b"last":
            found.append((await anext(messages)).payload)
        await leaving
        return found, messages.missed


def test_a_subscription_stays_at_its_node_until_that_has_delivered_what_the_next_one_has() -> None:
    assert run(reading_at_a_node_that_leaves()) == ([b"0", b"1", b"2", b"last"], 0)


def test_a_subscription_that_switches_at_once_misses_what_its_node_was_to_deliver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Floors, "covers", lambda floors, positions: True)
    assert run(reading_at_a_node_that_leaves()) == ([b"last"], 3)


async def publishing_at_a_node_that_leaves() -> list[bytes]:
    """What node 0 reads of a client that publishes at node 1, which leaves, and then at node 2."""
    async with (
        Cluster(3) as nodes,
        nodes[0].subscribe(TOPIC) as reader,
        nodes.connect(1, 2, patience_s=PATIENCE_S) as client,
    ):
        await client.publish(TOPIC, "first")
        await nodes[2].publish(TOPIC, "too")  # so that it knows the subscribers
        assert len(await read_all(reader, 2)) == 2
        await nodes.settle()
        nodes.delay(1, 0, SLOW_S, one_way=True)
        await client.publish(TOPIC, "before")
        await client.flush()
        leaving = asyncio.create_task(nodes.shrink(1))
        await event_of(client.events(), Detached)
        await client.publish(TOPIC, "after")
        found = await read_all(reader, 2)
        await leaving
        return found


def test_a_client_publishes_again_when_everyone_has_what_it_published_before() -> None:
    assert run(publishing_at_a_node_that_leaves()) == [b"before", b"after"]


def test_a_client_that_does_not_wait_for_its_former_node_publishes_out_of_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "FORMER_S", 0.0)
    assert run(publishing_at_a_node_that_leaves()) == [b"after", b"before"]


def test_a_client_that_comes_back_to_its_node_knows_what_it_missed() -> None:
    """Its cable was pulled: the node has never published, and is there to say so."""

    async def main() -> None:
        async with (
            Cluster(2) as nodes,
            nodes.connect(1, 0, patience_s=PATIENCE_S) as client,
            client.subscribe(TOPIC) as messages,
        ):
            events = client.events()
            client_shell_of(client).lose_node("the cable")
            await event_of(events, Detached)
            await nodes[0].publish(TOPIC, "missed")
            back = await event_of(events, Reattached)
            assert isinstance(back, Reattached)
            assert (back.slot, back.exact) == (1, True)
            await nodes[0].publish(TOPIC, "read")
            while (await anext(messages)).payload != b"read":
                pass

    run(main())


# -- publications under way ------------------------------------------------------------------------


class Wire:
    """What a pipeline sends, as its node would see it."""

    def __init__(self) -> None:
        self.sent: list[Publish] = []

    def send(self, packet: bytes) -> None:
        message = decode_from_client(packet)
        assert isinstance(message, Publish)
        self.sent.append(message)

    def payloads(self) -> list[bytes]:
        return [payload for message in self.sent for payload in message.payloads]


def pipelines(retry_unknown: bool) -> tuple[Wire, Pipeline]:
    wire = Wire()
    return wire, Pipeline(wire.send, 1 << 20, 30.0, retry_unknown)


async def sent(pipeline: Pipeline, payload: bytes) -> cubecast.ClientReceipt:
    """Publish to a topic that the node knows, and let the packet go."""
    pipeline._known.add(TOPIC)
    receipt = await pipeline.publish(TOPIC, payload, True)
    assert receipt is not None
    await asyncio.sleep(0)
    return receipt


@live
async def test_a_publication_that_the_lost_node_may_have_sent_is_unknown() -> None:
    wire, pipeline = pipelines(retry_unknown=False)
    receipt = await sent(pipeline, b"perhaps")
    pipeline.interrupted("the cable")
    waiting = await sent(pipeline, b"surely not")
    with pytest.raises(Unknown, match="the cable"):
        await receipt.stable()
    again = Wire()
    pipeline.resume(again.send, 1 << 20)
    assert wire.payloads() == [b"perhaps"]
    assert again.payloads() == [b"surely not"]
    assert again.sent[0].number == 0
    assert not waiting.is_stable
    pipeline.on_taken(Taken(0))
    await pipeline.flush()  # the receipt has told


@live
async def test_flush_tells_once_of_unknown_publications_without_receipts() -> None:
    _, pipeline = pipelines(retry_unknown=False)
    pipeline._known.add(TOPIC)
    await pipeline.publish(TOPIC, b"perhaps", False)
    await asyncio.sleep(0)
    pipeline.interrupted("the cable")
    pipeline.resume(Wire().send, 1 << 20)
    with pytest.raises(Unknown, match="the cable"):
        await pipeline.flush()
    await pipeline.flush()


@live
async def test_a_publication_that_is_unknown_is_sent_again_before_later_ones_by_choice() -> None:
    _, pipeline = pipelines(retry_unknown=True)
    taken = await sent(pipeline, b"taken")
    pipeline.on_taken(Taken(0))
    perhaps = await sent(pipeline, b"perhaps")
    pipeline.interrupted("the cable")
    await sent(pipeline, b"later")
    again = Wire()
    pipeline.resume(again.send, 1 << 20)
    assert again.payloads() == [b"taken", b"perhaps", b"later"]
    pipeline.on_taken(Taken(2))
    await pipeline.flush()
    assert not taken.is_stable
    assert not perhaps.is_stable
    assert pipeline._used == 0


@live
async def test_publications_that_a_leaving_node_declines_go_to_the_next_in_order() -> None:
    _, pipeline = pipelines(retry_unknown=False)
    for payload in (b"1", b"2", b"3"):
        await sent(pipeline, payload)
    pipeline.hold()
    await sent(pipeline, b"4")
    pipeline.on_declined(Declined(2, "it leaves", leaving=True))
    pipeline.on_declined(Declined(1, "it leaves", leaving=True))
    pipeline.on_taken(Taken(0))
    pipeline.interrupted("it has left")
    again = Wire()
    pipeline.resume(again.send, 1 << 20)
    assert again.payloads() == [b"2", b"3", b"4"]
    pipeline.on_taken(Taken(2))
    await pipeline.flush()
    assert pipeline._used == 0


@live
@pytest.mark.parametrize("retry_unknown", [False, True])
@pytest.mark.parametrize("denied", [False, True])
@pytest.mark.parametrize("receipt", [False, True])
async def test_a_refused_publication_is_settled_although_its_node_is_lost_before_it_says_taken(
    retry_unknown: bool, denied: bool, receipt: bool
) -> None:
    """The application is told once; the window is free; the next node does not get it."""
    _, pipeline = pipelines(retry_unknown)
    pipeline._known.add(TOPIC)
    await pipeline.publish(TOPIC, bytes(1 << 20), receipt)
    pipeline.on_declined(Declined(0, "no", denied))
    assert pipeline._used > 1 << 20, "until the node says `Taken`"
    pipeline.interrupted("the cable")
    assert pipeline._used == 0
    assert not pipeline._flows
    again = Wire()
    pipeline.resume(again.send, 1 << 20)
    assert again.sent == []
    with pytest.raises(cubecast.NotAllowed if denied else NotSent, match="no"):
        await pipeline.flush()
    later = await sent(pipeline, b"later")
    assert again.payloads() == [b"later"]
    pipeline.on_taken(Taken(0))
    pipeline.on_consumed(Consumed([0]))
    await later.stable()
    await pipeline.flush()
    assert pipeline._used == 0


@live
async def test_a_publication_that_goes_from_node_to_node_counts_once() -> None:
    """One that the first node has taken, and no later one before it is lost, too."""
    _, pipeline = pipelines(retry_unknown=True)
    receipt = await sent(pipeline, bytes(100_000))
    pipeline.on_taken(Taken(0))
    for _ in range(3):
        pipeline.interrupted("the cable")
        assert pipeline._used == size_of([bytes(100_000)])
        again = Wire()
        pipeline.resume(again.send, 1 << 20)
        assert len(again.sent) == 1
        pipeline.on_taking(Taking(0, 1000))
    pipeline.on_taken(Taken(0))
    pipeline.on_consumed(Consumed([0]))
    await receipt.stable()
    assert pipeline._used == 0
    assert not pipeline._flows


@live
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("denied", [False, True])
async def test_a_publication_that_a_lost_node_may_have_sent_and_the_next_refuses_is_unknown(
    denied: bool, taken: bool
) -> None:
    _, pipeline = pipelines(retry_unknown=True)
    perhaps = await sent(pipeline, b"perhaps")
    if taken:
        pipeline.on_taken(Taken(0))
    pipeline.interrupted("the cable")
    pipeline.resume(Wire().send, 1 << 20)
    pipeline.on_declined(Declined(0, "the rules say no", denied))
    with pytest.raises(Unknown, match="the rules say no"):
        await perhaps.stable()
    pipeline.interrupted("the cable")
    third = Wire()
    pipeline.resume(third.send, 1 << 20)
    assert third.sent == [], "it is settled"
    assert pipeline._used == 0


@live
async def test_publications_that_wait_for_a_node_are_sent_as_fast_as_it_takes_them() -> None:
    _, pipeline = pipelines(retry_unknown=False)
    pipeline.interrupted("the cable")
    for number in range(40):
        await sent(pipeline, b"%d" % number * 4000)
    again = Wire()
    pipeline.resume(again.send, 65536)
    assert 0 < len(again.sent) < 40
    while len(again.sent) < 40:
        pipeline.on_taken(Taken(again.sent[-1].number))
    assert [int(payload[:2]) % 10 for payload in again.payloads()][:3] == [0, 1, 2]


@live
async def test_publications_left_when_patience_ends_are_not_sent_or_unknown() -> None:
    _, pipeline = pipelines(retry_unknown=True)
    perhaps = await sent(pipeline, b"perhaps")
    pipeline.interrupted("the cable")
    later = await sent(pipeline, b"later")
    pipeline.broken("no node")
    with pytest.raises(Unknown):
        await perhaps.stable()
    with pytest.raises(NotSent):
        await later.stable()


# -- positions -------------------------------------------------------------------------------------


def positions(*entries: tuple[int, int]) -> list[Position]:
    return [(TOPIC, source, 7, first) for source, first in entries]


def test_floors_name_what_was_missed_and_never_sink() -> None:
    floors = Floors()
    assert floors.raise_to(positions((0, 5))) == {TOPIC: {Stream(0, 7): (0, 4)}}
    floors[TOPIC, Stream(0, 7)] = 9
    assert floors.covers(positions((0, 9)))
    assert not floors.covers(positions((0, 10)))
    assert not floors.covers(positions((1, 1)))
    assert floors.raise_to(positions((0, 7))) == {}
    assert list(floors.positions()) == positions((0, 9))
    assert floors.raise_to(positions((0, 12))) == {TOPIC: {Stream(0, 7): (9, 11)}}
    assert floors.are_named(positions((0, 12), (1, 3)))
    assert not floors.are_named(positions((1, 3)))


def cuts() -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.dictionaries(st.integers(0, 3), st.integers(0, 20)).map(lambda one: list(one.items()))


@given(st.lists(cuts(), max_size=6))
def test_floors_account_for_every_message_once(history: list[list[tuple[int, int]]]) -> None:
    """What lies below the floors was missed exactly once, as nothing is handed out here."""
    floors = Floors()
    missed: list[tuple[Stream, int]] = []
    for cut in history:
        for spans in floors.raise_to(positions(*cut)).values():
            missed += list(_numbers(spans))
    highest = {
        source: max(first for cut in history for one, first in cut if one == source)
        for source in {source for cut in history for source, _ in cut}
    }
    expected = [(Stream(source, 7), n) for source, top in highest.items() for n in range(top)]
    assert sorted(missed) == sorted(expected)


def _numbers(spans: dict[Stream, tuple[int, int]]) -> Iterator[tuple[Stream, int]]:
    for stream, (first, last) in spans.items():
        yield from ((stream, number) for number in range(first, last + 1))


@live
async def test_a_subscription_says_where_it_begins_if_it_is_asked() -> None:
    async with (
        cluster(2) as nodes,
        raw_client(nodes[1]) as client,
        nodes[1].subscribe(TOPIC) as messages,
    ):
        for number in range(4):
            await nodes[0].publish(TOPIC, b"%d" % number)
        for _ in range(4):
            await anext(messages)
        client.say(Subscribe(1, TOPIC, "block", 0, located=True))
        news = await client.hear()
        assert isinstance(news, Subscribed)
        [(topic, source, _, first)] = news.positions
        assert (topic, source, first, news.whole) == (TOPIC, 0, 4, True)


@live
async def test_a_client_that_asks_twice_at_once_to_catch_up_is_hung_up_on() -> None:
    async with (
        cluster(1) as (node,),
        raw_client(node) as client,
        node.subscribe(TOPIC) as messages,
    ):
        await node.publish(TOPIC, b"one")
        await anext(messages)
        own = shell_of(node).core.stream_of(TOPIC)
        ahead = [(TOPIC, own.source, own.incarnation, 10**6)]
        client.say(CatchUp(1, ahead))
        client.say(CatchUp(2, ahead))
        farewell = await client.hear()
        assert isinstance(farewell, Farewell)
        assert farewell.reason == "CatchUp out of turn"


@live
async def test_catching_up_with_streams_that_are_gone_or_unknown_waits_for_nothing() -> None:
    async with cluster(1) as nodes, raw_client(nodes[0]) as client:
        client.say(CatchUp(5, [(TOPIC, 0, 0, 10**6), ("elsewhere", 9, 3, 1)]))
        answer = await client.hear()
        assert isinstance(answer, Answered)
        assert answer.request == 5
