"""What light clients and nodes say to each other, byte by byte; and clients that talk nonsense."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from cubecast.net.events import ConnectionLost, MemberJoined, MemberLeft, SlowSubscriber
from cubecast.net.node.node import Node
from cubecast.net.wire import clients as wire
from cubecast.net.wire.clients import (
    BATCH_MESSAGES,
    MAX_QUEUE,
    MAX_TOPIC,
    decode_from_client,
    decode_from_node,
    encode,
)
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packets import CLIENT, MAX_PAYLOAD, PREFIX, WireError
from support.clients import RawClient, raw_client
from support.insider import SECRET
from support.live import TOPIC, cluster, live, still_works, subscribed
from support.packets import mutate

BLOB = bytes(pack({"name": "value"}, b""))
"""A message with headers."""

FROM_CLIENT: list[wire.FromClient] = [
    wire.Subscribe(1, TOPIC, "drop-oldest", 4096),
    wire.Unsubscribe(1),
    wire.Read(1, 100),
    wire.Publish(0, TOPIC, [b"one", b"", b"three"], True),
    wire.Publish(1, TOPIC, [b"one", bytes(pack({"name": "value"}, b"two"))], True, (1,)),
    wire.Listen(),
    wire.Ask(2, "explain", TOPIC),
    wire.Ask(3, "members", ""),
    wire.Ask(4, "topics", ""),
    wire.Ask(5, "subscribers", TOPIC),
    wire.Ping(),
]
FROM_NODE: list[wire.FromNode] = [
    wire.Subscribed(1, 4096),
    wire.Deliver(1, 3, TOPIC, 2, 77, 10, 1_700_000_000, [(1, 5, 4)], [b"one", b"", b"three"]),
    wire.Deliver(
        *(1, 3, TOPIC, 2, 77, 10, 1_700_000_000, [(1, 5, 4)]),
        [bytes(pack({"name": "value"}, b"one")), b"two"],
        (0,),
    ),
    wire.Dropped(1, 3),
    wire.Ended(1, "the node leaves the cluster", 0),
    wire.Taken(4),
    wire.Declined(5, "no"),
    wire.Consumed([1, 2, 3]),
    wire.Answered(2, msgspec.Raw(msgspec.msgpack.encode({"a": [1, None]}))),
    wire.Unanswered(3, "no"),
    wire.Happened(MemberJoined(1, "127.0.0.1:7400")),
    wire.Happened(MemberLeft(1)),
    wire.Happened(ConnectionLost(1, "closed by peer")),
    wire.Happened(SlowSubscriber(TOPIC, "block", 0)),
    wire.Pong(),
    wire.Farewell("the node left the cluster"),
]
NAMES = [type(message).__name__ for message in [*FROM_CLIENT, *FROM_NODE]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence the log: thousands of warnings are expected."""
    log = logging.getLogger("cubecast")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def packet(body: object) -> bytes:
    encoded = msgspec.msgpack.encode(body)
    return PREFIX.pack(1 + len(encoded), CLIENT) + encoded


# -- packets ---------------------------------------------------------------------------------------


def test_every_message_comes_back_as_it_was() -> None:
    for asked in FROM_CLIENT:
        assert decode_from_client(encode(asked)) == asked
    for said in FROM_NODE:
        again = decode_from_node(encode(said))
        if isinstance(said, wire.Answered):
            assert isinstance(again, wire.Answered)
            assert (again.request, bytes(again.body)) == (said.request, bytes(said.body))
        else:
            assert again == said


@pytest.mark.parametrize("message", [*FROM_CLIENT, *FROM_NODE], ids=NAMES)
def test_a_packet_cut_short_or_too_long_is_an_error(
    message: wire.FromClient | wire.FromNode,
) -> None:
    raw = encode(message)
    for decode in (decode_from_client, decode_from_node):
        for length in range(PREFIX.size, len(raw)):
            with pytest.raises(WireError):
                decode(raw[:length])
        with pytest.raises(WireError):
            decode(raw + b"\x01")


def test_neither_side_takes_the_other_sides_words() -> None:
    for asked in FROM_CLIENT:
        with pytest.raises(WireError):
            decode_from_node(encode(asked))
    for said in FROM_NODE:
        with pytest.raises(WireError):
            decode_from_client(encode(said))


def test_mutated_packets_are_read_or_refused() -> None:
    random = Random(5)
    raws = [encode(message) for message in [*FROM_CLIENT, *FROM_NODE]]
    for number in range(20_000):
        broken = mutate(raws[number % len(raws)], random)
        for decode in (decode_from_client, decode_from_node):
            try:
                decode(broken)
            except WireError:
                continue


@pytest.mark.parametrize(
    "body",
    [
        ["Subscribe", -1, TOPIC, "block", 0],
        ["Subscribe", 1 << 62, TOPIC, "block", 0],
        ["Subscribe", 1, "x" * (MAX_TOPIC + 1), "block", 0],
        ["Subscribe", 1, TOPIC, "hoard", 0],
        ["Subscribe", 1, TOPIC, "block", MAX_QUEUE + 1],
        ["Subscribe", 1, TOPIC, "block", -1],
        ["Read", 1, -1],
        ["Publish", 0, TOPIC, [], False],
        ["Publish", 0, TOPIC, [b""] * (BATCH_MESSAGES + 1), False],
        ["Publish", 0, TOPIC, [bytes(MAX_PAYLOAD + 1)], False],
        ["Publish", 0, TOPIC, ["text"], False],
        ["Publish", 0, TOPIC, [b"no headers"], False, [0]],
        ["Publish", 0, TOPIC, [b"\0\0payload"], False, [0]],
        ["Publish", 0, TOPIC, [BLOB], False, [1]],
        ["Publish", 0, TOPIC, [BLOB, BLOB], False, [1, 0]],
        ["Publish", 0, TOPIC, [BLOB], False, [0, 0]],
        ["Publish", 0, TOPIC, [BLOB[:-1]], False, [0]],
        ["Ask", 0, "secret", ""],
        ["Shout"],
        {"type": "Ping"},
        "Ping",
        [[[[[[[[]]]]]]]],
    ],
    ids=lambda body: str(body)[:40],
)
def test_out_of_bounds_is_out(body: object) -> None:
    with pytest.raises(WireError):
        decode_from_client(packet(body))


# -- against a live node ---------------------------------------------------------------------------


def nonsense(random: Random) -> bytes:
    """Noise in a packet, a valid packet with a few bytes wrong, or a valid one out of place."""
    match random.randrange(8):
        case 0:
            noise = random.randbytes(random.randint(0, 200))
            return PREFIX.pack(1 + len(noise), CLIENT) + noise
        case 1:
            return encode(random.choice(FROM_CLIENT))
        case 2:
            return encode(random.choice(FROM_NODE))
        case _:
            broken = mutate(encode(random.choice(FROM_CLIENT)), random)
            return PREFIX.pack(len(broken) - 4, CLIENT) + broken[5:]


async def bother(node: Node, random: Random, packets: int) -> None:
    sent = 0
    while sent < packets:
        async with raw_client(node, SECRET) as client:
            burst = random.randint(1, 20)
            for _ in range(burst):
                client.write(nonsense(random))
            client.say_no_more()
            await client.ended()
            sent += burst


@live
async def test_thousands_of_hostile_client_packets_harm_no_node() -> None:
    """On topics of their own: what is valid by chance is published, as any client may."""
    random = Random(17)
    here = "quiet/room"
    async with cluster(2, secret=SECRET) as nodes, subscribed(nodes, here) as subscriptions:
        for _ in range(3):
            await bother(nodes[0], random, 1500)
            for node in nodes:
                await node.publish(here, b"still here")
            for one in subscriptions:
                assert {(await anext(one)).payload for _ in nodes} == {b"still here"}
        assert sorted(nodes[1].members) == [0, 1]
        while 0 in await nodes[1].subscribers(TOPIC):  # whatever they subscribed to has ended
            await asyncio.sleep(0.005)


@live
async def test_a_flood_of_questions_ends_the_connection_and_nothing_else() -> None:
    async with cluster(2, secret=SECRET) as nodes, subscribed(nodes) as subscriptions:
        async with raw_client(nodes[0], SECRET) as client:
            client.write(encode(wire.Ask(1, "members", "")) * 10_000)
            await client.ended()
        await still_works(nodes, subscriptions)


@pytest.mark.parametrize(
    "message",
    [
        wire.Ping(),
        wire.Subscribe(1, "x" * 1000, "block", 0),
        wire.Publish(0, "unread", [b""], True),
    ],
    ids=["pings", "subscriptions", "publications"],
)
@live
async def test_a_flood_from_a_client_that_never_reads_ends_or_is_kept_in_bounds(
    message: wire.FromClient,
) -> None:
    async with (
        cluster(2, secret=SECRET, client_silence_s=1.0) as nodes,
        subscribed(nodes) as subscriptions,
        raw_client(nodes[0], SECRET) as client,
    ):
        await flood(client, encode(message))
        await still_works(nodes, subscriptions)


async def flood(client: RawClient, raw: bytes) -> None:
    for _ in range(50):
        client.write(raw * 1000)
        await asyncio.sleep(0)
