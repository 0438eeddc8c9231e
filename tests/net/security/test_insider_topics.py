"""A member that lies about topics it has no part in, on real sockets.

The liar runs the protocol and has a slot; what it answers to waves of the attacked topic is changed
on its way out.  The honest nodes go on, are told, and nothing is left of the lie once it is dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import cubecast
from cubecast.errors import NotSent, Unknown
from cubecast.net.clock import wall_us
from cubecast.net.message import RETAIN
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.node.value_keeper import MAX_AHEAD_US
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packets import MAX_NUMBER, OutgoingFrame
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.messages import ROUTE_BITS, Ack, Answer, Frame, Parcel, Route
from cubecast.protocol.port import LIFE_BITS, Stream
from cubecast.protocol.topic.retained_values import RetainedValue
from support.live import PATIENCE_S, live, quick, take, told, until

TOPIC = "chat"
FAR = 10**9
HASTY = DetectorConfig(
    test_every=50_000, suspect_min=200_000, suspect_max=400_000, deaf_after=1_000_000
)
"""Takes others for dead soon."""
Lie = Callable[[Answer], Answer]


class Liar(Shell):
    """A member whose answers about the attacked topic are what `lie` makes of them."""

    lie: Lie | None = None
    withheld: tuple[type, ...] = ()
    """Kinds of messages about the topic that it does not send."""
    lies = 0
    """How often it has lied."""

    def control(self, peer: int, message: Any) -> None:
        said = message.message if isinstance(message, Parcel) else message
        if getattr(said, "topic", "") == TOPIC:
            if isinstance(said, self.withheld):
                self.lies += 1
                return
            if self.lie is not None and isinstance(said, Answer):
                self.lies += 1
                message = Parcel(message.number, self.lie(said))
        super().control(peer, message)


@asynccontextmanager
async def infiltrated(
    honest: int = 3, config: NodeConfig | None = None
) -> AsyncIterator[tuple[list[Node], Liar]]:
    """Honest nodes in the first slots, and a liar in the next one."""
    config = config or quick()
    shells = [Shell(config) for _ in range(honest)]
    liar = Liar(config)
    nodes = [shell.node for shell in shells]
    try:
        for shell in (*shells, liar):
            await shell.start(None if shell is shells[0] else shells[0].address)
        for node in (*nodes, liar.node):
            await until(lambda node=node: len(node.members) == honest + 1)
        yield nodes, liar
    finally:
        for node in (*nodes, liar.node):
            with suppress(NotSent, Unknown):
                await node.close()


def claiming(stream: Stream, seq: int) -> Lie:
    """Says of a stream that it has come as far as `seq`."""

    def lie(answer: Answer) -> Answer:
        vector = {**dict(answer.vector), stream: seq}
        return msgspec.structs.replace(answer, vector=tuple(vector.items()))

    return lie


async def said_before(node: Node, count: int) -> None:
    """Publish without subscribers, and wait until it is done."""
    for _ in range(count):
        await node.publish(TOPIC, b"before")
    await until(lambda: not count or node.explain(TOPIC).get("next") == count)


def known_members(node: Node) -> Any:
    return node.explain(TOPIC).get("members", ())


def life_of(node: Node, generation: int = 0) -> Stream:
    return Stream(node.slot, generation << LIFE_BITS | shell_of(node).member.incarnation)


@pytest.mark.parametrize("generation", [0, 1, (1 << 24) - 1])
@pytest.mark.parametrize("published", [0, 3])
@live
async def test_an_invented_cut_silences_no_publisher(
    published: int, generation: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with infiltrated() as (nodes, liar):
        reader, writer, late = nodes
        await said_before(writer, published)
        liar.lie = claiming(life_of(writer, generation), FAR)
        events = reader.events()
        async with reader.subscribe(TOPIC) as messages:
            await writer.publish(TOPIC, b"heard")
            assert (await anext(messages)).payload == b"heard"
            event = await told(events, cubecast.CutDenied)
            assert (event.topic, event.source, event.claimed) == (TOPIC, writer.slot, FAR)
            assert event.by in {2, liar.slot}
            dropped = reader.explain(TOPIC)["dropped"]
            assert dropped == {"a cut that its publisher denies": 1}
            assert any("ignored" in record.getMessage() for record in caplog.records)
            liar.lie = None
            async with late.subscribe(TOPIC) as others:  # the reader does not pass the lie on
                await writer.publish(TOPIC, b"again")
                assert (await anext(others)).payload == b"again"
                assert (await anext(messages)).payload == b"again"


@live
async def test_an_invented_cut_of_the_reader_itself_is_ignored() -> None:
    async with infiltrated() as (nodes, liar):
        reader, other, _ = nodes
        await said_before(reader, 1)
        liar.lie = claiming(life_of(reader), FAR)
        async with other.subscribe(TOPIC) as others, reader.subscribe(TOPIC) as messages:
            await reader.publish(TOPIC, b"own")
            assert (await anext(messages)).payload == b"own"
            assert (await anext(others)).payload == b"own"


@live
async def test_a_busy_topic_is_joined_without_a_false_alarm() -> None:
    """Others have read what was published since the publisher answered: that is no lie."""
    async with infiltrated() as (nodes, _):
        reader, writer, other = nodes
        events = reader.events()
        done = False

        async def write() -> None:
            number = 0
            while not done:
                await writer.publish(TOPIC, str(number))
                number += 1
                await asyncio.sleep(0)

        async with other.subscribe(TOPIC, policy="drop-oldest"):
            writing = asyncio.create_task(write())
            for _ in range(20):
                async with reader.subscribe(TOPIC) as messages:
                    found = [int(one.payload) for one in await take(messages, 20)]
                    assert found == list(range(found[0], found[0] + 20))
            done = True
            await writing
        assert "a cut that its publisher denies" not in reader.explain(TOPIC)["dropped"]  # type: ignore[operator]
        events.close()
        assert not [one async for one in events if isinstance(one, cubecast.CutDenied)]


@pytest.mark.parametrize("lie", ["from the future", "an older one", "no value"])
@live
async def test_a_lie_about_a_retained_value_does_not_hide_the_newest(lie: str) -> None:
    """The newcomer hears of the true one by nodes that are honest."""
    async with infiltrated() as (nodes, liar):
        _, writer, late = nodes
        await writer.publish(TOPIC, b"true", retain=True)
        await until(lambda: shell_of(writer).keeper.kept(TOPIC) is not None)
        true = shell_of(writer).keeper.kept(TOPIC)
        assert true is not None
        told = []

        def tell(answer: Answer) -> Answer:
            ahead_us = {"from the future": 2 * MAX_AHEAD_US, "an older one": -1, "no value": 1}
            headers = {} if lie == "no value" else {RETAIN: ""}
            blob = bytes(pack({"kind": "lie", **headers}, b"lie"))
            time = true.time + ahead_us[lie]
            told.append(answer)
            return msgspec.structs.replace(answer, kept=RetainedValue(liar.slot, 1, 5, time, blob))

        liar.lie = tell
        async with late.subscribe(TOPIC) as messages:
            first = await anext(messages)
            assert (first.payload, first.retained) == (b"true", True)
        assert told


@pytest.mark.parametrize("what", ["members", "own", "owed"])
@live
async def test_a_member_that_answers_for_nodes_not_below_it_is_excluded(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer for nodes that are not below its sender is refused, and not waited for any more."""
    caplog.set_level(logging.WARNING, "cubecast")
    async with infiltrated() as (nodes, liar):
        reader, writer, _ = nodes
        owed = ((life_of(writer), FAR),)

        def lie(answer: Answer) -> Answer:
            match what:
                case "members":
                    return msgspec.structs.replace(answer, members=0b1111)
                case "own":
                    return msgspec.structs.replace(answer, own=owed)
            return msgspec.structs.replace(answer, vector=owed)

        async with reader.subscribe(TOPIC):
            liar.lie = lie
        liar.lie = lie
        async with reader.subscribe(TOPIC) as messages:  # after the leave
            await writer.publish(TOPIC, b"heard")
            assert (await anext(messages)).payload == b"heard"
        assert "for nodes that are not below it" in caplog.text


@asynccontextmanager
async def with_a_lying_relay() -> AsyncIterator[tuple[list[Node], Liar]]:
    """Slots 0, 1 and 3 are honest; slot 2 lies, and answers for slot 3 to waves of slot 0."""
    nodes: list[Node] = []
    liar = Liar(quick())
    try:
        for slot in range(4):
            shell = liar if slot == 2 else Shell(quick())
            await shell.start(nodes[0].address if nodes else None)
            nodes.append(shell.node)
        for node in nodes:
            await until(lambda node=node: len(node.members) == 4)
        yield [*nodes[:2], nodes[3]], liar
    finally:
        for node in nodes:
            with suppress(NotSent, Unknown):
                await node.close()


@pytest.mark.parametrize("dies", [False, True])
@live
async def test_a_false_member_does_not_hold_up_publishers(dies: bool) -> None:
    """The relay says that the node below it subscribes; that one knows nothing of the topic."""
    async with with_a_lying_relay() as (nodes, liar):
        writer, reader, third = nodes

        def lie(answer: Answer) -> Answer:
            if answer.origin != writer.slot:
                return answer
            return msgspec.structs.replace(answer, members=1 << third.slot)

        liar.lie = lie
        async with reader.subscribe(TOPIC) as messages:
            await writer.publish(TOPIC, b"first")
            await until(lambda: third.slot in known_members(writer))
            if dies:
                liar.kill()
            for _ in range(299):  # more than the window takes in
                await writer.publish(TOPIC, bytes(1000), timeout=10)
            receipt = await writer.publish(TOPIC, b"last", receipt=True)
            assert receipt is not None
            assert (await take(messages, 301))[-1].payload == b"last"
            await receipt.stable()
        reason = "acknowledgements of a node that is no subscriber"
        assert writer.explain(TOPIC)["dropped"] == {reason: 1}
        assert third.slot not in await writer.subscribers(TOPIC)


@live
async def test_a_stream_that_ends_above_all_numbers_is_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reader could not name it to others: its answers to waves would be refused."""
    caplog.set_level(logging.WARNING, "cubecast")
    async with infiltrated() as (nodes, liar):
        reader, _, late = nodes
        stream, last = life_of(liar.node), MAX_NUMBER - 2
        liar.lie = lambda answer: msgspec.structs.replace(
            answer, vector=((stream, last),), own=((stream, last),)
        )
        async with reader.subscribe(TOPIC):
            liar.lie = None
            route = Route(
                liar.presence.epoch << ROUTE_BITS, last + 1, 1 << reader.slot | 1 << liar.slot
            )
            body = OutgoingFrame([b"one", b"too many"], 0)
            liar.relay([reader.slot], Frame(TOPIC, stream, last + 1, (), route, last, body, 400))
            await until(lambda: "broken frame" in caplog.text)
            async with late.subscribe(TOPIC) as others:
                await reader.publish(TOPIC, b"heard")
                assert (await anext(others)).payload == b"heard"


async def invent_a_cut(writer: Node, liar: Liar) -> None:
    liar.lie = claiming(life_of(writer), FAR)


async def name_itself_and_acknowledge_nothing(writer: Node, liar: Liar) -> None:
    """It is no subscriber, and says that it is."""
    liar.withheld = (Ack,)
    liar.lie = lambda answer: msgspec.structs.replace(
        answer, members=answer.members | 1 << liar.node.slot
    )


async def owe_its_own_messages(writer: Node, liar: Liar) -> None:
    """It says that it has published a billion, which others have read."""
    own = ((life_of(liar.node), FAR),)
    liar.lie = lambda answer: msgspec.structs.replace(answer, vector=own, own=own)


async def subscribe_and_acknowledge_nothing(writer: Node, liar: Liar) -> None:
    await liar.node.subscribe(TOPIC).__aenter__()
    liar.withheld = (Ack,)


async def take_up_routes(writer: Node, liar: Liar) -> None:
    """It publishes by routes without end, each with a number of its own and none of them whole."""
    everyone = (1 << len(writer.members)) - 1
    first = liar.presence.epoch << ROUTE_BITS
    for number in range(2000):
        route = Route(first + number, number, everyone)
        body = OutgoingFrame([b"routes"], 0)
        stream = life_of(liar.node)
        others = [slot for slot in writer.members if slot != liar.node.slot]
        liar.relay(others, Frame(TOPIC, stream, number + 1, (), route, -1, body, 400))
    liar.lies += 1


async def answer_no_wave(writer: Node, liar: Liar) -> None:
    liar.withheld = (Answer,)


@pytest.mark.parametrize(
    "lie",
    [
        invent_a_cut, name_itself_and_acknowledge_nothing, owe_its_own_messages,
        subscribe_and_acknowledge_nothing, take_up_routes, answer_no_wave,
    ],
)  # fmt: skip
@live
async def test_the_death_of_a_liar_heals_every_topic(
    lie: Callable[[Node, Liar], Awaitable[None]],
) -> None:
    """Nodes subscribe and publish while it lies; when it is gone all is said, and heard."""
    hasty = replace(quick(), leave_timeout_s=0.05, detector=HASTY)
    async with infiltrated(config=hasty) as (nodes, liar):
        reader, writer, late = nodes
        await said_before(writer, 1)
        async with reader.subscribe(TOPIC) as messages:
            await lie(writer, liar)
            sent = [b"%0*d" % (1000, number) for number in range(100)]  # more than the window

            async def write(node: Node) -> None:
                for payload in sent:
                    await node.publish(TOPIC, payload, timeout=PATIENCE_S)

            async def enter_and_write() -> Subscription:
                others = await late.subscribe(TOPIC).__aenter__()
                await write(late)
                return others

            writing = asyncio.create_task(write(writer))
            entering = asyncio.create_task(enter_and_write())
            await until(lambda: liar.lies)
            liar.kill()
            await until(lambda: len(reader.members) == 3)
            others = await entering
            await writing
            async with late.subscribe("new") as more:
                await writer.publish(TOPIC, b"after")
                await reader.publish("new", b"also")
                heard = await take(messages, 201)
                for node, words in ((writer, [*sent, b"after"]), (late, sent)):
                    assert [one.payload for one in heard if one.source == node.slot] == words
                while (await anext(others)).payload != b"after":
                    pass
                assert (await anext(more)).payload == b"also"


# -- retained values -------------------------------------------------------------------------------


@live
async def test_a_member_can_invent_a_retained_value_in_anothers_name_until_a_newer_one_comes() -> (
    None
):
    async with infiltrated() as (nodes, liar):
        reader, writer, _ = nodes
        blob = bytes(pack({RETAIN: ""}, b"never said"))

        def tell(answer: Answer) -> Answer:
            value = RetainedValue(*life_of(writer), 0, wall_us(), blob)
            return msgspec.structs.replace(answer, kept=value)

        liar.lie = tell
        async with reader.subscribe(TOPIC) as messages:
            first = await anext(messages)
            assert (first.payload, first.source, first.retained) == (
                b"never said", writer.slot, True,
            )  # fmt: skip
        liar.lie = None
        await writer.publish(TOPIC, b"said", retain=True)
        async with reader.subscribe(TOPIC) as messages:
            assert (await anext(messages)).payload == b"said"


@live
async def test_a_member_can_withhold_a_retained_value_of_nodes_below_it_until_it_dies() -> None:
    async with with_a_lying_relay() as (nodes, liar):
        reader, other, third = nodes
        await third.publish(TOPIC, b"kept by this node alone", retain=True)
        await until(lambda: shell_of(third).keeper.kept(TOPIC) is not None)
        liar.lie = lambda answer: msgspec.structs.replace(answer, kept=None)
        async with reader.subscribe(TOPIC) as messages:
            await other.publish(TOPIC, b"the first that is heard")
            assert (await anext(messages)).payload == b"the first that is heard"
        liar.kill()
        await until(lambda: len(reader.members) == 3)
        async with reader.subscribe(TOPIC) as messages:
            assert (await anext(messages)).payload == b"kept by this node alone"
