"""Packets for tests: an example of each kind, and ways to damage them."""

from __future__ import annotations

from random import Random
from typing import Any

from cubecast.net.wire import hello
from cubecast.net.wire import packets as wire
from cubecast.net.wire.packets import (
    PREFIX,
    OutgoingFrame,
    encode_ack,
    encode_control,
    encode_frame,
    topic_id,
)
from cubecast.net.wire.views import (
    encode_detector,
    encode_forward,
    encode_view,
)
from cubecast.protocol.cluster import detector, views
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Frame,
    Op,
    Parcel,
    ParcelAck,
    Probe,
    Route,
    Stable,
    Wave,
)
from cubecast.protocol.port import Stream

TOPIC = "chat/room1"
TOPICS = {topic_id(topic): topic for topic in (TOPIC, "other")}


def example_frame(**changes: Any) -> Frame:
    values: dict[str, Any] = {
        "topic": TOPIC,
        "stream": Stream(3, 77),
        "first": 10,
        "barrier": ((Stream(1, 5), 4), (Stream(2, 6), 9)),
        "route": Route(2, 8, 0b1011),
        "stable": 7,
        "body": OutgoingFrame([b"one", b"", b"three"], 1_700_000_000_000_000),
        "size": 8,
    }
    return Frame(**(values | changes))


VIEW_ID = views.ViewId(4, views.Ballot(2, 0))
EXAMPLES = [
    encode_frame(example_frame()),
    encode_ack(Ack(TOPIC, Stream(3, 77), 2, 12, 9, 0b100, True)),
    encode_control(Probe(TOPIC, Stream(3, 77), 2)),
    encode_control(Parcel(4, Wave(TOPIC, 1, 0, Op.JOIN, 0b1111))),
    encode_control(Parcel(5, Answer(TOPIC, 1, 0, ((Stream(2, 6), 9),), 0b11))),
    encode_control(Parcel(6, Stable(TOPIC, Stream(3, 77), 2, 8, 12, 0b11))),
    encode_control(ParcelAck(7)),
    hello.encode_greeting(hello.Hello(wire.VERSION, "cd" * 16)),
    encode_view(views.Depart("ab" * 16)),
    encode_view(views.Beacon("ab", views.View(VIEW_ID, {3: views.Who("ab", "h:1", 7)}))),
    encode_view(views.Enter(views.Who("ab", "127.0.0.1:7400", 7), -1)),
    encode_detector(detector.Test(5, 77, 9)),
    encode_forward(1, 2, 3, encode_control(ParcelAck(7))),
]


def hostile_bytes(random: Random) -> bytes:
    """A valid packet with a few bytes wrong, a packet of noise, or, rarely, noise."""
    chance = random.random()
    if chance < 0.02:
        return random.randbytes(random.randint(1, 200))
    if chance < 0.2:
        body = random.randbytes(random.randint(0, 200))
        return PREFIX.pack(1 + len(body), random.randint(0, 5)) + body
    broken = mutate(random.choice(EXAMPLES), random)
    return PREFIX.pack(len(broken) - 4, broken[4]) + broken[5:]


def mutate(raw: bytes, random: Random) -> bytes:
    """Bytes flipped, cut, doubled or put in; the length and kind stay."""
    body = bytearray(raw[5:])
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(body) + 1)
        match random.randrange(4):
            case 0 if place < len(body):
                body[place] = random.randrange(256)
            case 1:
                del body[place : place + random.randint(1, 8)]
            case 2:
                body[place:place] = random.randbytes(random.randint(1, 8))
            case _:
                body[place:place] = body[place : place + 16]
    return raw[:5] + bytes(body)
