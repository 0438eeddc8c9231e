"""What codecs and headers cost a message: CPU time, in nanoseconds.

    python bench/bench_codecs.py --messages 20000 --repeat 7

"encode" is `codec.encode` at the publisher.  "read" is what a subscriber does with a frame of 100
messages that has come: it is cut into messages, and `message.value` (or `message.headers`) of each
is read.  "bytes" reads `message.payload` and is what a plain subscription costs; what a row costs
more is the price of its codec.  "whole" is both ends of the library in one process: published,
encoded, acknowledged and read through a node to its own subscriber; processor time of the process.
The value is a record of five fields, 76 bytes as JSON.  The least of the repeats, which run in
turns: other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic

import cubecast
from cubecast import codecs
from cubecast.net.message import cut
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packets import FrameDecoder, OutgoingFrame, encode_frame, topic_id
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream

TOPIC = "bench"
FRAME = 100
HEADERS = {"kind": "reading", "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}


class Reading(msgspec.Struct):
    sensor: str
    celsius: float
    at: int
    tags: list[str]
    ok: bool


class Model(pydantic.BaseModel):
    sensor: str
    celsius: float
    at: int
    tags: list[str]
    ok: bool


FIELDS: dict[str, Any] = {
    "sensor": "hall-7",
    "celsius": 21.5,
    "at": 1700000000,
    "tags": ["a", "b"],
    "ok": True,
}


class StandardJson:
    """The codec that one writes with the standard library."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, payload: bytes) -> Any:
        return json.loads(payload)


CASES: dict[str, tuple[Any, Any]] = {
    "bytes": (None, b"x" * 76),
    "bytes with 2 headers": (None, b"x" * 76),
    "JSON, dict": (codecs.json(), FIELDS),
    "JSON, msgspec struct": (codecs.json(Reading), Reading(**FIELDS)),
    "MessagePack, msgspec struct": (codecs.msgpack(Reading), Reading(**FIELDS)),
    "JSON, pydantic model": (codecs.json(Model), Model(**FIELDS)),
    "JSON, standard library": (StandardJson(), FIELDS),
}


def timed(work: Callable[[], None], count: int) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / count


def encode(codec: Any, value: Any, count: int) -> None:
    for _ in range(count):
        codec.encode(value)


def received(codec: Any, value: Any, headed: bool) -> Frame:
    """A frame as it comes off the wire."""
    payload = value if codec is None else codec.encode(value)
    blob = bytes(pack(HEADERS, payload)) if headed else payload
    places = tuple(range(FRAME)) if headed else ()
    body = OutgoingFrame([blob] * FRAME, 0, places)
    frame = Frame(TOPIC, Stream(0, 1), 0, (), Route(0, 0, 1), -1, body, 10_000)
    decoded = FrameDecoder().decode(encode_frame(frame), {topic_id(TOPIC): TOPIC})
    assert decoded is not None
    return decoded


def read(frame: Frame, codec: Any, headed: bool, count: int) -> None:
    for _ in range(count // FRAME):
        messages = cut(frame, codec)
        if headed:
            for message in messages:
                _ = message.headers
        elif codec is None:
            for message in messages:
                _ = message.payload
        else:
            for message in messages:
                _ = message.value


async def whole(node: cubecast.Node, codec: Any, value: Any, headed: bool, count: int) -> float:
    async with node.subscribe(TOPIC, codec=codec) as messages:
        began = time.process_time_ns()
        publishing = asyncio.create_task(publish(node, codec, value, headed, count))
        for _ in range(count):
            message = await anext(messages)
            _ = message.headers if headed else message.value
        await publishing
        return (time.process_time_ns() - began) / count


async def publish(node: cubecast.Node, codec: Any, value: Any, headed: bool, count: int) -> None:
    headers = HEADERS if headed else None
    for _ in range(count):
        payload = value if codec is None else codec.encode(value)
        await node.publish(TOPIC, payload, headers=headers)


async def main(count: int, repeat: int) -> None:
    found: dict[str, list[list[float]]] = {name: [[], [], []] for name in CASES}
    async with cubecast.start("127.0.0.1:0") as node:
        for _ in range(repeat):
            for name, (codec, value) in CASES.items():
                headed = "headers" in name
                frame = received(codec, value, headed)
                encoding, reading, all_of_it = found[name]
                if codec is not None:
                    encoding.append(timed(lambda c=codec, v=value: encode(c, v, count), count))  # type: ignore[misc]
                reading.append(
                    timed(lambda f=frame, c=codec, h=headed: read(f, c, h, count), count)  # type: ignore[misc]
                )
                all_of_it.append(await whole(node, codec, value, headed, count))
    print(f"{'ns of CPU per message':30}{'encode':>8}{'read':>8}{'whole':>8}")
    for name, columns in found.items():
        numbers = [f"{min(one):.0f}" if one else "-" for one in columns]
        print(f"{name:30}" + "".join(f"{number:>8}" for number in numbers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    asyncio.run(main(options.messages, options.repeat))
