"""A member that lies about topics it has no part in, on real sockets.

The liar runs the protocol and has a slot; what it answers to waves of the attacked topic is changed
on its way out.  The honest nodes go on, are told, and nothing is left of the lie once it is dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

import cubecast
from cubecast.errors import NotSent, Unknown
from cubecast.net.message import RETAIN
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.node.value_keeper import MAX_AHEAD_US
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packets import MAX_NUMBER, OutgoingFrame
from cubecast.protocol.messages import ROUTE_BITS, Answer, Frame, Parcel, Route
from cubecast.protocol.port import LIFE_BITS, Stream
from cubecast.protocol.topic.retained_values import RetainedValue
from support.live import live, quick, take, told, until

TOPIC = "chat"
FAR = 10**9
Lie = Callable[[Answer], Answer]


class Liar(Shell):
    """A member whose answers about the attacked topic are what `lie` makes of them."""

    lie: Lie | None = None

    def control(self, peer: int, message: Any) -> None:
        if self.lie is not None and isinstance(message, Parcel):
            answer = message.message
            if isinstance(answer, Answer) and answer.topic == TOPIC:
                message = Parcel(message.number, self.lie(answer))
        super().control(peer, message)


@asynccontextmanager
async def infiltrated(honest: int = 3) -> AsyncIterator[tuple[list[Node], Liar]]:
    """Honest nodes in the first slots, and a liar in the next one."""
    shells = [Shell(quick()) for _ in range(honest)]
    liar = Liar(quick())
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


@live
async def test_the_death_of_a_liar_heals_every_topic() -> None:
    async with infiltrated() as (nodes, liar):
        reader, writer, late = nodes
        await said_before(writer, 1)
        liar.lie = claiming(life_of(writer), FAR)
        async with reader.subscribe(TOPIC) as messages:
            liar.kill()
            await until(lambda: len(reader.members) == 3)
            async with late.subscribe(TOPIC) as others, late.subscribe("new") as more:
                await writer.publish(TOPIC, b"after")
                await reader.publish("new", b"also")
                assert (await anext(messages)).payload == b"after"
                assert (await anext(others)).payload == b"after"
                assert (await anext(more)).payload == b"also"
