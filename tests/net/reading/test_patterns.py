"""Wildcards: what they match, and live nodes that follow them over real sockets."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.errors import CubecastError, TooManyTopics
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.packets import WireError, decode_control, encode_control
from cubecast.protocol.messages import Answer, Parcel
from cubecast.protocol.subscriptions import discovery
from cubecast.protocol.subscriptions import topic_names as listing
from cubecast.protocol.subscriptions.patterns import Pattern, is_pattern
from cubecast.protocol.subscriptions.topic_names import ENTRY, MAX_LISTING, Listing
from cubecast.trace import Record
from cubecast.trace.checkers.patterns import matcher_of
from support.live import cluster, join, judge, live, small_window, take

# -- matching -------------------------------------------------------------------------------------

MQTT = [
    # From the examples of the MQTT standard, 4.7.1 and 4.7.2.
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("+/tennis/#", "sport/tennis", True),
    ("#", "$SYS/monitor/Clients", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor/Clients", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("sport/#", "sports", False),
    ("sport/+/player1", "sport/tennis/player1", True),
    ("sport/+/player1", "sport/tennis/player2", False),
    ("+/#", "sport", True),
    ("a/+/#", "a", False),
    ("a/+/#", "a/", True),
    ("#", "", True),
    ("/#", "", True),
    ("a/#", "a/$b", True),
]


@pytest.mark.parametrize(("pattern", "topic", "matches"), MQTT)
def test_patterns_match_topics_as_in_mqtt(pattern: str, topic: str, matches: bool) -> None:
    assert Pattern(pattern)(topic) is matches


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("", "not empty"),
        ("sport/#/ranking", "# is not the last level"),
        ("#/", "# is not the last level"),
        ("sport/tennis#", "mixes a wildcard with text"),
        ("sport+", "mixes a wildcard with text"),
        ("++", "mixes a wildcard with text"),
        ("+#", "mixes a wildcard with text"),
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Pattern(pattern)


LEVEL = st.sampled_from(["", "a", "b", "$", "$a", "ab"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join)
PATTERN = st.tuples(
    st.lists(st.one_of(LEVEL, st.just("+")), max_size=4), st.booleans()
).map(lambda drawn: "/".join([*drawn[0], *(["#"] if drawn[1] else [])]))  # fmt: skip


def oracle(pattern: str, topic: str) -> bool:
    """By definition: cut ``#`` into all its meanings and compare level by level."""
    if pattern[0] in "+#" and topic[:1] == "$":
        return False
    theirs = topic.split("/")
    mine = pattern.split("/")
    readings = [mine]
    if mine[-1] == "#":
        readings = [mine[:-1] + ["+"] * more for more in range(len(theirs) + 1)]
    return any(
        len(reading) == len(theirs)
        and all(one in ("+", other) for one, other in zip(reading, theirs, strict=True))
        for reading in readings
    )


@given(PATTERN.filter(bool), TOPIC)
def test_patterns_match_by_definition(pattern: str, topic: str) -> None:
    # An empty list of levels is no topic: "#" alone has no level above it, and matches all.
    assert Pattern(pattern)(topic) == oracle(pattern, topic)


@given(PATTERN.filter(is_pattern), TOPIC)
def test_the_checkers_read_patterns_in_the_same_way(pattern: str, topic: str) -> None:
    matcher = matcher_of(pattern)
    assert isinstance(matcher, re.Pattern)
    assert (matcher.match(topic) is not None) == Pattern(pattern)(topic)


# -- listings -------------------------------------------------------------------------------------


def test_a_listing_says_when_it_is_not_complete() -> None:
    names = {f"{number:07}": 1 for number in range(MAX_LISTING // (ENTRY + 7) + 1)}
    listed, more = Listing(names).packed()
    assert more
    assert [name for name, _ in listed] == sorted(names)[: len(names) - 1]
    above = Listing({"other": 2})
    above.merge(listed[:3], more)
    assert above.packed() == ((*listed[:3], ("other", 2)), True)


def test_the_largest_listing_fits_a_packet_and_is_read_back() -> None:
    names = {f"{number:07}\x00\x01" + "\x02" * 23: (1 << 8192) - 1 for number in range(900)}
    names |= {f"{number:07}" + "\x02" * 25: 0 for number in range(100_000)}
    listed, more = Listing(names).packed()
    assert more
    parcel = Parcel(0, Answer("", 0, 0, (), 0, 0, listed, more))
    assert decode_control(encode_control(parcel)) == parcel


@pytest.mark.parametrize(
    "topics",
    [
        (("a", -1),),
        (("a", 1 << 8192),),
        (("a" * (MAX_LISTING + 1), 0),),
        (("a", 0),) * (MAX_LISTING // ENTRY + 1),
    ],
    ids=["negative", "set", "name", "count"],
)
def test_a_listing_out_of_bounds_is_refused(topics: tuple[tuple[str, int], ...]) -> None:
    packet = encode_control(Parcel(0, Answer("", 0, 0, (), 0, 0, topics)))
    with pytest.raises(WireError, match="out of bounds"):
        decode_control(packet)


# -- live -----------------------------------------------------------------------------------------


async def drain(subscription: Subscription, until: dict[str, int]) -> dict[str, list[bytes]]:
    """Read until every topic has as many messages as it should."""
    seen: dict[str, list[bytes]] = defaultdict(list)
    while any(len(seen[topic]) < count for topic, count in until.items()):
        message = await anext(subscription)
        seen[message.topic].append(message.payload)
    return seen


async def read_all(subscription: Subscription) -> list[tuple[str, int, int]]:
    """Read until it is closed."""
    return [(message.topic, message.source, message.seq) async for message in subscription]


async def all_stable(nodes: list[Node]) -> None:
    """Wait until whatever was published has been consumed by everyone it was addressed to."""
    while any(
        shell_of(node).core.unstable()
        or any(box.payloads for box in shell_of(node).publishing.boxes.values())
        for node in nodes
    ):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("count", [1, 2, 5])
@live
async def test_the_first_message_of_a_new_topic_reaches_a_follower(count: int) -> None:
    trace: list[Record] = []
    async with cluster(count, trace=trace) as nodes, nodes[0].subscribe("#") as messages:
        for index in range(10):
            await nodes[-1].publish(f"room/{index}", "first")
        seen = await drain(messages, {f"room/{index}": 1 for index in range(10)})
        assert all(payloads == [b"first"] for payloads in seen.values())
        assert messages.topic == "#"
    judge(trace, 10)


@live
async def test_nothing_published_after_the_entry_is_lost_at_full_speed() -> None:
    """Publishers begin topics and write to old ones while patterns open on two nodes."""
    trace: list[Record] = []
    rooms, stop = 12, asyncio.Event()
    sent: dict[str, int] = defaultdict(int)

    async def chatter(node: Node, first: int) -> None:
        number = 0
        while not stop.is_set() or number < rooms:
            topic = f"room/{(first + number) % rooms}" if number % 3 else f"new/{first}/{number}"
            await node.publish(topic, f"{node.slot}.{number}")
            sent[topic] += 1
            number += 1
            await asyncio.sleep(0)

    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(cluster(5, trace=trace))
        tasks = [asyncio.create_task(chatter(node, index)) for index, node in enumerate(nodes[2:])]
        await asyncio.sleep(0)
        opened = [
            await stack.enter_async_context(nodes[index].subscribe(pattern))
            for index, pattern in ((0, "#"), (1, "room/+"), (1, "new/#"), (2, "new/+/#"))
        ]
        assert not any(task.done() for task in tasks)
        before = dict(sent)
        while sum(sent.values()) < sum(before.values()) + 300:
            await asyncio.sleep(0)
        stop.set()
        await asyncio.gather(*tasks)
        reading = [asyncio.create_task(read_all(messages)) for messages in opened]
        await all_stable(nodes)
        while_open = list(trace)  # a pattern that is closed is owed nothing any more
        for messages in opened:
            await messages.close()
        read = await asyncio.gather(*reading)
    judge(while_open, sum(sent.values()))
    judge(trace, sum(sent.values()))
    assert all(len(set(messages)) == len(messages) for messages in read)
    joins = [index for index, one in enumerate(trace) if one.kind == "join" and one.topic == "#"]
    assert len(joins) == 1
    begun = {one.topic for one in trace[: joins[0]] if one.kind == "publish"}
    after = {one.topic for one in trace[joins[0] :] if one.kind == "publish"}
    assert begun & after, "no topic was older than the pattern"
    assert after - begun, "no topic began under the pattern"
    assert set(read[0]) >= {
        (one.topic, one.source, one.seq) for one in trace[joins[0] :] if one.kind == "publish"
    }


@live
async def test_a_follower_reads_what_it_publishes_itself() -> None:
    trace: list[Record] = []
    async with cluster(2, trace=trace) as nodes, nodes[1].subscribe("a/#") as messages:
        await nodes[1].publish("a", "own")
        await nodes[1].publish("a/b", "own")
        assert {m.topic for m in await take(messages, 2)} == {"a", "a/b"}
    judge(trace, 2)


@live
async def test_overlapping_patterns_and_a_topic_get_one_copy_each() -> None:
    trace: list[Record] = []
    async with (
        cluster(3, trace=trace) as nodes,
        nodes[0].subscribe("a/+") as one,
        nodes[0].subscribe("#") as everything,
        nodes[0].subscribe("a/+") as again,
        nodes[0].subscribe("a/b") as plain,
    ):
        await nodes[1].publish("a/b", "x")
        await nodes[2].publish("c", "y")
        await nodes[1].publish("a/b", "z")
        expected = [b"x", b"z"]
        for messages in (one, again, plain):
            assert [m.payload for m in await take(messages, 2)] == expected
        seen = await drain(everything, {"a/b": 2, "c": 1})
        assert seen == {"a/b": expected, "c": [b"y"]}
        assert not any(messages._frames for messages in (one, again, plain, everything))
    judge(trace, 3)


@live
async def test_closing_the_last_reader_leaves_its_topics() -> None:
    trace: list[Record] = []
    async with cluster(3, trace=trace) as nodes:
        everything = nodes[0].subscribe("#")
        rooms = nodes[0].subscribe("room/+")
        plain = nodes[0].subscribe("room/1")
        for subscription in (everything, rooms, plain):
            await subscription.__aenter__()
        for topic in ("room/1", "room/2", "other"):
            await nodes[1].publish(topic, "x")
        await drain(everything, {"room/1": 1, "room/2": 1, "other": 1})
        assert await nodes[2].topics() == {"room/1": [0], "room/2": [0], "other": [0]}
        await everything.close()
        assert await subscribers(nodes, "other") == []
        assert (await nodes[2].topics())["room/2"] == [0]
        await rooms.close()
        assert await subscribers(nodes, "room/2") == []
        assert (await nodes[2].topics())["room/1"] == [0]
        await plain.close()
        assert await subscribers(nodes, "room/1") == []
        await nodes[1].publish("new", "this is not read")
        async with nodes[0].subscribe("#") as messages:  # and open it again
            await nodes[1].publish("new", "read")
            await nodes[2].publish("room/2", "read")
            seen = await drain(messages, {"new": 1, "room/2": 1})
            assert seen["room/2"] == [b"read"]
            assert seen["new"][-1] == b"read"
    judge(trace, 6)


async def subscribers(nodes: list[Node], topic: str) -> list[int]:
    """The subscribers once no node is leaving any more."""
    while any(node.explain(topic)["standing"] == "leaving" for node in nodes):
        await asyncio.sleep(0.001)
    return (await nodes[2].topics())[topic]


@live
async def test_a_node_that_comes_later_is_heard_from_its_first_message_on() -> None:
    trace: list[Record] = []
    async with cluster(2, trace=trace) as nodes, nodes[1].subscribe("+/x") as messages:
        newcomer = await join(nodes, trace=trace)
        await newcomer.publish("late/x", "hello")
        await newcomer.publish("late/y", "not matched")
        assert (await take(messages, 1))[0].topic == "late/x"
        await nodes.pop().close()
        another = await join(nodes, trace=trace)  # the same slot, another life
        await another.publish("late/x", "again")
        assert (await take(messages, 1))[0].payload == b"again"
    judge(trace, 3)


@live
async def test_a_newcomer_follows_topics_that_are_older_than_itself() -> None:
    trace: list[Record] = []
    async with cluster(2, trace=trace) as nodes, nodes[0].subscribe("old/1") as plain:
        await nodes[1].publish("old/1", "before")
        await nodes[1].publish("old/2", "before")
        await take(plain, 1)
        newcomer = await join(nodes, trace=trace)
        async with newcomer.subscribe("old/#") as messages:
            await nodes[1].publish("old/1", "after")
            await nodes[1].publish("old/2", "after")
            seen = await drain(messages, {"old/1": 1, "old/2": 1})
            assert seen["old/1"] == [b"after"]
    judge(trace, 4)


@live
async def test_a_slow_reader_of_a_pattern_slows_each_publisher_and_loses_nothing() -> None:
    trace: list[Record] = []
    async with (
        cluster(3, trace=trace, protocol=small_window(), frame_messages=4) as nodes,
        nodes[0].subscribe("#", queue_bytes=1000) as messages,
    ):

        async def publish(node: Node) -> None:
            for number in range(150):
                await node.publish(f"t/{number % 3}", f"{number} " + "x" * 90)

        tasks = [asyncio.create_task(publish(node)) for node in nodes[1:]]
        while not all(
            any(b.blocked for b in shell_of(node).publishing.boxes.values()) for node in nodes[1:]
        ):
            await asyncio.sleep(0)
        await drain(messages, {f"t/{room}": 100 for room in range(3)})
        await asyncio.gather(*tasks)
    judge(trace, 300)


@live
async def test_two_that_publish_while_they_read_each_others_topics_do_not_wait_for_ever() -> None:
    async with (
        cluster(2, protocol=small_window(), publish_timeout_s=20) as nodes,
        nodes[0].subscribe("t/#", queue_bytes=1000) as left,
        nodes[1].subscribe("t/#", queue_bytes=1000) as right,
    ):

        async def publish(node: Node) -> None:
            for number in range(200):
                await node.publish(f"t/{node.slot}", f"{number} " + "x" * 90)

        await asyncio.gather(*(publish(node) for node in nodes))
        for messages in (left, right):
            await drain(messages, {"t/0": 200, "t/1": 200})


@live
async def test_topics_lists_what_is_known_and_who_reads_it() -> None:
    async with cluster(3) as nodes, nodes[2].subscribe("a"), nodes[0].subscribe("a"):
        await nodes[1].publish("b", "x")
        first, second = await asyncio.gather(nodes[0].topics(), nodes[1].topics())
        assert first == second == {"a": [0, 2], "b": []}


@live
async def test_more_topics_than_can_be_named_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_LISTING", 40)
    async with cluster(2) as nodes:
        for index in range(10):
            await nodes[1].publish(f"room/{index}", "x")
        with pytest.raises(TooManyTopics, match="too many topics to follow '#'"):
            await nodes[0].subscribe("#").__aenter__()
        with pytest.raises(CubecastError, match="too many topics to list"):
            await nodes[0].topics()
        monkeypatch.undo()
        async with nodes[0].subscribe("#") as messages:
            await nodes[1].publish("room/3", "y")
            assert (await take(messages, 1))[0].topic == "room/3"


@live
async def test_a_pattern_that_outgrows_its_node_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "MAX_TOPICS", 3)
    async with cluster(2) as nodes, nodes[0].subscribe("room/+") as messages:
        for index in range(3):
            await nodes[1].publish(f"room/{index}", "x")
        assert len(await drain(messages, {f"room/{index}": 1 for index in range(3)})) == 3
        await nodes[1].publish("other", "x")
        await nodes[1].publish("room/3", "one too many")
        with pytest.raises(TooManyTopics, match="too many topics to follow 'room/\\+'"):
            await anext(messages)
        with pytest.raises(TooManyTopics):
            await nodes[0].subscribe("room/+").__aenter__()
        monkeypatch.undo()
        async with nodes[0].subscribe("room/+") as again:
            await nodes[1].publish("room/3", "y")
            assert (await take(again, 1))[0].payload == b"y"


@live
async def test_a_pattern_is_for_subscribing() -> None:
    async with cluster(1) as nodes:
        with pytest.raises(ValueError, match="'a/#' is a pattern"):
            await nodes[0].publish("a/#", "x")
        with pytest.raises(ValueError, match="not the last level"):
            nodes[0].subscribe("#/a")


@live
async def test_an_entry_that_is_cancelled_leaves_nothing_behind() -> None:
    async with cluster(3) as nodes:
        await nodes[1].publish("a", "x")
        entering = asyncio.create_task(nodes[0].subscribe("#").__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await nodes[1].publish("b", "x")
        await nodes[2].publish("a", "x")
        assert await subscribers(nodes, "a") == await subscribers(nodes, "b") == []
        assert not shell_of(nodes[0]).readers._by_pattern
