"""Retained values: a later subscriber is handed the newest first, the same one everywhere."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import cubecast
from cubecast.errors import CubecastError, NotSent
from cubecast.net.links.faults import Rule
from cubecast.net.message import RETAIN, Message
from cubecast.net.node import value_keeper
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.node.value_keeper import MAX_VALUE, MAX_VALUES, Retained, mark
from cubecast.net.publishing import outbox
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire import packets as wire
from cubecast.net.wire.headers import MAX_HEADERS, pack
from cubecast.net.wire.packets import WireError, decode_control, encode_control
from cubecast.protocol.messages import Answer, Parcel
from cubecast.protocol.port import Stream
from cubecast.protocol.topic.retained_values import RetainedValue
from cubecast.testing import Cluster, run
from support.files import written
from support.live import TOPIC, cluster, live


async def value_at(node: Node, topic: str = TOPIC) -> bytes | None:
    """What a new subscription is handed before anything else; None if that is nothing."""
    async with node.subscribe(topic) as messages:
        first = await first_of(messages)
    return None if first is None else first.payload


async def first_of(messages: Subscription) -> Message | None:
    """What is there to be read at once."""
    if not messages.load[0]:
        return None
    first = await anext(messages)
    assert first.retained
    return first


# -- what a user sees ------------------------------------------------------------------------------


def test_a_later_subscription_gets_the_newest_first_and_then_what_is_published() -> None:
    async def main() -> None:
        async with Cluster(4) as nodes:
            await nodes[0].publish(TOPIC, "old", retain=True, headers={"kind": "news"})
            await nodes[0].publish(TOPIC, "new", retain=True, headers={"kind": "news"})
            await nodes[0].publish(TOPIC, "not kept")
            await nodes.settle()
            async with nodes[3].subscribe(TOPIC) as first, nodes[3].subscribe(TOPIC) as second:
                await nodes[1].publish(TOPIC, "live", retain=True)
                for messages in (first, second):
                    kept, live_one = await anext(messages), await anext(messages)
                    assert (kept.payload, kept.retained) == (b"new", True)
                    assert (kept.source, kept.seq, kept.headers["kind"]) == (0, 1, "news")
                    assert (live_one.payload, live_one.retained) == (b"live", False)
                    assert live_one.stamp > kept.stamp

    run(main())


def test_an_empty_value_removes_what_was_kept_also_where_it_was_published_long_ago() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes, nodes[2].subscribe(TOPIC) as reader:
            await nodes[0].publish(TOPIC, "value", retain=True)
            await anext(reader)
            await nodes[1].publish(TOPIC, "", retain=True)
            await anext(reader)
            late = await nodes.grow()
            assert await value_at(late) is None
            assert shell_of(nodes[0]).keeper.kept(TOPIC) is not None, (
                "its publisher does not read the topic"
            )
            assert await value_at(nodes[2]) is None

    run(main())


def test_a_removal_says_that_it_is_one() -> None:
    async def main() -> None:
        numbers = cubecast.TypedTopic(TOPIC, cubecast.codecs.json(int))
        async with (
            Cluster(2) as nodes,
            nodes.connect(1) as client,
            nodes[1].subscribe(TOPIC) as plain,
            client.subscribe(TOPIC) as remote,
            numbers.subscribe(nodes[1]) as typed,
        ):
            await numbers.publish(nodes[0], 5, retain=True)
            await nodes[0].publish(TOPIC, b"")  # empty, and no removal
            await numbers.clear(nodes[0])
            await nodes.settle()
            await numbers.clear(client)
            for messages in (plain, remote, typed):
                read = [await anext(messages) for _ in range(4)]
                assert [one.removed for one in read] == [False, False, True, True]
                assert [one.payload for one in read] == [b"5", b"", b"", b""]
                assert not any(one.retained for one in read)
            with pytest.raises(cubecast.DecodeError):
                _ = read[2].value
            late = await nodes.grow()
            assert await value_at(late) is None

    run(main())


def test_a_pattern_gets_the_values_of_all_topics_that_match() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes:
            for number in range(5):
                await nodes[number % 2].publish(f"room/{number}", str(number), retain=True)
            await nodes[0].publish("hall/1", "other", retain=True)
            await nodes[0].publish("room/4", "", retain=True)
            await nodes.settle()
            for _ in range(2):  # the second one finds the topics joined
                reader = nodes[2]
                async with reader.subscribe("room/+") as some, reader.subscribe("room/#") as more:
                    for messages in (some, more):
                        assert messages.load[0] == 4
                        got = {one.payload async for one in _these(messages, 4)}
                        assert got == {b"0", b"1", b"2", b"3"}

    run(main())


async def _these(messages: Subscription, count: int) -> Any:
    for _ in range(count):
        message = await anext(messages)
        assert message.retained
        yield message


def test_a_pattern_finds_a_value_whose_topic_all_nodes_have_forgotten() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes:
            await nodes[0].publish(TOPIC, "kept", retain=True)
            await nodes.settle()
            while any(TOPIC in shell_of(node).core.memberships for node in nodes.nodes):
                await asyncio.sleep(60)
            async with nodes[1].subscribe("#") as messages:
                assert (await anext(messages)).payload == b"kept"
                await nodes[2].publish(TOPIC, "live")
                assert not (await anext(messages)).retained

    run(main())


def test_the_value_outlives_its_publisher_if_another_node_has_read_it() -> None:
    async def main() -> None:
        async with Cluster(4) as nodes:
            async with nodes[1].subscribe(TOPIC) as reader:
                await nodes[0].publish(TOPIC, "read", retain=True)
                await anext(reader)
            await nodes[3].publish("alone", "unread", retain=True)
            nodes.kill(0)
            nodes.kill(3)
            await nodes.settle()
            assert await value_at(nodes[2]) == b"read"
            assert await value_at(nodes[2], "alone") is None, "no other node had it"

    run(main())


def test_light_clients_publish_and_get_retained_values_as_nodes_do() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes, nodes.connect(0) as writer, nodes.connect(2) as reader:
            await writer.publish(TOPIC, "old", retain=True)
            await writer.publish(TOPIC, "new", retain=True)
            await writer.flush()
            await nodes.settle()
            for _ in range(2):
                async with reader.subscribe(TOPIC) as messages:
                    kept = await anext(messages)
                    assert (kept.payload, kept.retained, kept.seq) == (b"new", True, 1)
                    await writer.publish(TOPIC, "live")
                    live_one = await anext(messages)
                    assert (live_one.payload, live_one.retained) == (b"live", False)

    run(main())


def test_typed_topics_and_callbacks_have_retained_values() -> None:
    async def main() -> None:
        topic = cubecast.TypedTopic("numbers", cubecast.codecs.json(int))
        async with Cluster(2) as nodes:
            await topic.publish(nodes[0], 17, retain=True)
            await nodes.settle()
            async with topic.subscribe(nodes[1]) as messages:
                message = await anext(messages)
                assert (message.value, message.retained) == (17, True)
            called: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            async with nodes[1].on("numbers", called.set_result):
                assert (await called).retained

    run(main())


def test_a_client_that_moves_is_not_handed_values_again() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes:
            await nodes[0].publish(TOPIC, "kept", retain=True)
            await nodes.settle()
            async with (
                nodes.connect(1, 2, patience_s=60) as client,
                client.subscribe(TOPIC) as messages,
            ):
                assert (await anext(messages)).retained
                await nodes.shrink(1)
                await nodes[0].publish(TOPIC, "live", retain=True)
                live_one = await anext(messages)
                assert (live_one.payload, live_one.retained) == (b"live", False)
                assert messages.missed == 0

    run(main())


@live
async def test_over_sockets_nodes_and_clients_hand_out_the_newest_value() -> None:
    async with cluster(3) as nodes, cubecast.connect(nodes[0].address) as writer:
        for number in range(10):
            await writer.publish(TOPIC, str(number), retain=True)
        await writer.flush()
        large_one = bytes(MAX_VALUE - 100)
        receipt = await nodes[0].publish("large", large_one, retain=True, receipt=True)
        await receipt.stable()
        async with (
            nodes[2].subscribe(TOPIC) as messages,
            nodes[1].subscribe("large") as large,
            cubecast.connect(nodes[1].address) as reader,
            reader.subscribe("#") as everything,
        ):
            assert (await anext(messages)).payload == b"9"
            assert len((await anext(large)).payload) == MAX_VALUE - 100
            found = {one.topic: one.retained for one in [await anext(everything) for _ in range(2)]}
            assert found == {TOPIC: True, "large": True}


@live
async def test_wrong_uses_are_told_before_anything_is_sent() -> None:
    async with cluster(1) as nodes, cubecast.connect(nodes[0].address) as client:
        many = {str(number): "" for number in range(MAX_HEADERS)}
        for where in (nodes[0], client):
            with pytest.raises(NotSent, match="retain where to find it"):
                await where.publish(TOPIC, bytes(MAX_VALUE), retain=True)
            with pytest.raises(ValueError, match="31 headers, not 32"):
                await where.publish(TOPIC, b"", retain=True, headers=many)
            with pytest.raises(ValueError, match="cubecast's"):
                await where.publish(TOPIC, b"", headers={RETAIN: ""})


# -- order, by chance ------------------------------------------------------------------------------


MORTAL = 0
"""The node that crashes with every second seed."""


class Chat:
    """Nodes that publish values which say what their publisher had seen before."""

    def __init__(self, nodes: Cluster, random: Random) -> None:
        self.nodes = nodes
        self.random = random
        self.tasks: list[asyncio.Task[None]] = []
        self.values = 0
        self.superseded: set[str] = set()
        """What a value depends on that a node which lives on has delivered."""

    async def speak(self, place: int, count: int) -> None:
        """Read, and publish now and then a value or a plain message."""
        node, seen = self.nodes[place], set[str]()
        with suppress(CubecastError):
            async with node.subscribe(TOPIC) as messages:
                reading = asyncio.ensure_future(self.read(messages, seen, place))
                for number in range(count):
                    await asyncio.sleep(self.random.random() * 0.02)
                    name = f"{node.uid}/{number}"
                    text = json.dumps([name, sorted(seen)])
                    await node.publish(TOPIC, text, retain=self.random.random() < 0.6)
                    seen.add(name)
                reading.cancel()

    async def read(self, messages: Subscription, seen: set[str], place: int) -> None:
        with suppress(CubecastError):
            async for message in messages:
                name, causes = json.loads(message.payload)
                seen.add(name)
                if RETAIN in message.headers and place != MORTAL:
                    self.superseded |= set(causes)

    async def listen(self, place: int, wait_s: float, topic: str = TOPIC) -> None:
        """Subscribe late: what comes after the retained value is none of its causes."""
        await asyncio.sleep(wait_s)
        if place not in self.nodes.places:
            return
        with suppress(CubecastError):
            async with self.nodes[place].subscribe(topic) as messages:
                causes: set[str] = set()
                async for message in messages:
                    name, seen = json.loads(message.payload)
                    assert name not in causes, f"{name} after a value that depends on it"
                    if message.retained:
                        self.values += 1
                        causes |= {*seen, name}

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))


async def chance(seed: int) -> int:
    """Publishers, late subscribers, a crash, lost and delayed packets: how many got a value."""
    random = Random(seed)
    async with Cluster(5, seed=seed) as nodes:
        if seed % 3:
            nodes.on_every_link(Rule(loss=0.05 * (seed % 2), jitter_s=0.01))
        chat = Chat(nodes, random)
        speakers = [asyncio.ensure_future(chat.speak(place, 12)) for place in (0, 1, 2)]
        for place in (3, 4, 4, 1):
            topic = random.choice([TOPIC, "#"])
            chat.start(chat.listen(place, random.random() * 0.3, topic))
        if seed % 2:
            await asyncio.sleep(random.random() * 0.3)
            nodes.kill(MORTAL)
            speakers[MORTAL].cancel()
        await asyncio.gather(*speakers, return_exceptions=True)
        nodes.heal()
        await nodes.settle()
        late = await nodes.grow()
        found = {node.slot: await value_at(node) for node in (late, *nodes.nodes)}
        assert len(set(found.values())) == 1, found
        newest = found[late.slot]
        assert newest is not None
        assert json.loads(newest)[0] not in chat.superseded
        for task in chat.tasks:
            if task.done() and not task.cancelled():
                await task
            task.cancel()
        await asyncio.gather(*chat.tasks, return_exceptions=True)
        nodes.check()
        return chat.values


@pytest.mark.parametrize("seed", range(12))
def test_late_subscribers_agree_and_see_no_cause_after_its_effect(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Random(seed)

    def skewed() -> int:  # a clock that is wrong by up to a second, differently each time
        return 10**15 + clock.randrange(10**6)

    monkeypatch.setattr(outbox, "wall_us", skewed)
    monkeypatch.setattr(value_keeper, "wall_us", skewed)
    assert sum(run(chance(20 * seed + number)) for number in range(5)) > 0


def test_of_concurrent_values_the_same_one_is_handed_out_everywhere() -> None:
    async def main(seed: int) -> None:
        async with Cluster(4, seed=seed) as nodes:
            nodes.on_every_link(Rule(jitter_s=0.02))
            async with nodes[0].subscribe(TOPIC), nodes[1].subscribe(TOPIC):
                await asyncio.gather(
                    *(nodes[slot].publish(TOPIC, str(slot), retain=True) for slot in range(4))
                )
                await nodes.settle()
                found = {await value_at(node) for node in nodes.nodes}
                assert len(found) == 1
                kept = [shell_of(nodes[slot]).keeper.kept(TOPIC) for slot in (0, 1)]
                assert kept[0] == kept[1]

    for seed in range(10):
        run(main(seed))


def test_an_answer_to_a_value_has_a_later_stamp_however_wrong_its_clock_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with Cluster(3) as nodes, nodes[1].subscribe(TOPIC) as reader:
            await nodes[0].publish(TOPIC, "question", retain=True)
            question = await anext(reader)
            monkeypatch.setattr(outbox, "wall_us", lambda: 5)  # a clock that shows 1970
            await nodes[1].publish(TOPIC, "answer", retain=True)
            answer = await anext(reader)
            assert answer.stamp > question.stamp
            assert await value_at(nodes[2]) == b"answer"

    run(main())


def test_after_a_gap_a_reader_is_handed_the_value_that_it_missed() -> None:
    async def main() -> None:
        async with Cluster(3) as nodes, nodes[2].subscribe(TOPIC) as reader:
            await nodes[0].publish(TOPIC, "before", retain=True)
            assert (await anext(reader)).payload == b"before"
            nodes.partition({2})
            while len(nodes[0].members) == 3:
                await asyncio.sleep(0.1)
            await nodes[0].publish(TOPIC, "missed", retain=True)
            nodes.heal()
            await nodes.settle()
            message = await anext(reader)
            assert (message.payload, message.retained) == (b"missed", True)

    run(main())


# -- bounds and lies -------------------------------------------------------------------------------


def value(time: int, payload: bytes = b"x", seq: int = 0) -> RetainedValue:
    return RetainedValue(0, 1, seq, time, bytes(mark(TOPIC, payload, None)))


def test_a_node_keeps_so_many_values_and_so_many_bytes_and_the_oldest_goes() -> None:
    kept = Retained()
    for number in range(MAX_VALUES + 10):
        kept.learn(str(number), value(number))
    assert len(kept) == MAX_VALUES
    assert kept.kept("9") is None
    assert kept.kept("10") is not None
    for number in range(MAX_VALUES):
        kept.learn(f"large/{number}", value(10_000 + number, bytes(MAX_VALUE - 100)))
    assert kept.size <= value_keeper.MAX_BYTES
    assert kept.kept(f"large/{MAX_VALUES - 1}") is not None
    for topic in list(kept.topics()):
        kept.learn(topic, value(10**6, b""))
    assert list(kept.topics()) == []


def test_an_older_value_never_replaces_a_newer_one() -> None:
    kept = Retained()
    for time in (5, 3, 9, 9, 1):
        kept.learn(TOPIC, value(time))
    found = kept.kept(TOPIC)
    assert found is not None
    assert found.time == 9
    assert kept.take_news(TOPIC)
    assert not kept.take_news(TOPIC)


def test_a_value_of_the_far_future_or_without_the_header_is_not_kept() -> None:
    kept = Retained()
    kept.learn(TOPIC, value(wire.MAX_NUMBER - 1))
    kept.learn(TOPIC, RetainedValue(0, 1, 0, 1, bytes(pack({"kind": ":retain"}, b":retain"))))
    assert kept.kept(TOPIC) is None
    body = wire.OutgoingFrame([mark(TOPIC, b"x", None)], 7, (0,))
    kept.stamp(body)
    assert body.time == 7


@pytest.mark.parametrize(
    "lie",
    [
        RetainedValue(-1, 1, 0, 0, bytes(pack({RETAIN: ""}, b"x"))),
        RetainedValue(0, 1 << 64, 0, 0, bytes(pack({RETAIN: ""}, b"x"))),
        RetainedValue(0, 1, -1, 0, bytes(pack({RETAIN: ""}, b"x"))),
        RetainedValue(0, 1, 0, -1, bytes(pack({RETAIN: ""}, b"x"))),
        RetainedValue(0, 1, 0, 1 << 62, bytes(pack({RETAIN: ""}, b"x"))),
        RetainedValue(0, 1, 0, 0, b""),
        RetainedValue(0, 1, 0, 0, b"\xff\xff"),
        RetainedValue(0, 1, 0, 0, b"\x01\x00\x80"),
        RetainedValue(0, 1, 0, 0, bytes(pack({RETAIN: ""}, bytes(MAX_VALUE)))),
    ],
)
def test_a_broken_value_is_refused_where_bytes_become_messages(lie: RetainedValue) -> None:
    answer = Answer(TOPIC, 1, 0, ((Stream(0, 1), 3),), 0)
    fine = msgspec.structs.replace(answer, kept=value(5))
    assert decode_control(encode_control(Parcel(0, fine))) == Parcel(0, fine)
    broken = msgspec.structs.replace(answer, kept=lie)
    packet = encode_control(Parcel(0, broken))
    with pytest.raises(WireError, match="broken"):
        decode_control(packet)


@live
async def test_a_value_goes_to_and_comes_from_members_that_may_have_it_alone(
    tmp_path: Path,
) -> None:
    rule = '[[rule]]\nwho = "node:"\npublish = ["in", "both"]\nsubscribe = ["out/#", "both"]\n'
    async with cluster(2, permissions=str(written(tmp_path, rule))) as (node, _):
        assert shell_of(node).access is not None
        for topic, told, believed in (
            ("in", False, True),
            ("out/1", True, True),
            ("both", True, True),
            ("other", False, False),
        ):
            parcel = Parcel(0, Answer(topic, 0, 0, (), 0, kept=value(5)))
            bare = Parcel(0, Answer(topic, 0, 0, (), 0))
            assert shell_of(node).access.outgoing(parcel, 1) == (parcel if told else bare)
            assert shell_of(node).access.control(parcel, 1, None, "") == (
                parcel if believed else bare
            )


def test_values_wait_in_answers_only_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> bytes | None:
        async with Cluster(2) as nodes:
            await nodes[0].publish(TOPIC, "kept", retain=True)
            await nodes.settle()
            return await value_at(nodes[1])

    assert run(main()) == b"kept"
    monkeypatch.setattr("cubecast.protocol.subscriptions.waves.MAX_VALUES_BYTES", 0)
    assert run(main()) is None
