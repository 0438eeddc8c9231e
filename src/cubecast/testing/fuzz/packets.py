"""Whole packets of every kind, as an honest peer might send them, and as none would."""

from __future__ import annotations

from random import Random
from struct import Struct
from typing import Any

import msgspec
from msgspec import inspect

from cubecast.net.wire import headers
from cubecast.net.wire.clients import FromClient, FromNode
from cubecast.net.wire.hello import Greeting, Introduction
from cubecast.net.wire.packets import (
    ACK,
    ACK_HEADER,
    CLIENT,
    CONTROL,
    DEPENDENCY,
    DETECTOR,
    FORWARD,
    FRAME,
    HEADED,
    HEADER,
    HELLO,
    PART,
    PREFIX,
    VIEW,
    Control,
    topic_id,
)
from cubecast.net.wire.parts import PART_BYTES, PART_HEADER
from cubecast.net.wire.views import FORWARDED, ROUTE
from cubecast.protocol.cluster.detector import DetectorMessage
from cubecast.protocol.cluster.views import Clusterwide
from cubecast.protocol.subscriptions.links import Carried
from cubecast.testing.fuzz.grammar import EDGES, Grammar, Lore

TYPES: dict[int, inspect.Type] = {
    CONTROL: inspect.type_info(Control),
    HELLO: inspect.type_info(Greeting),
    VIEW: inspect.type_info(Clusterwide),
    DETECTOR: inspect.type_info(DetectorMessage),
}
"""Kinds of packets that are JSON."""
FROM_CLIENT = inspect.type_info(FromClient)
FROM_NODE = inspect.type_info(FromNode)
INTRODUCTION = inspect.type_info(Introduction)
CARRIED = inspect.type_info(Carried)
MEMBERS_SAY = (
    *(FRAME, FRAME, FRAME, ACK, ACK, CONTROL, CONTROL, CONTROL),
    *(VIEW, VIEW, DETECTOR, DETECTOR, FORWARD, PART),
)
"""Kinds that members send; kinds with more variety stand here more often."""
WIDTHS = {"B": 8, "H": 16, "I": 32, "Q": 64, "q": 64}


def packet(kind: int, body: bytes) -> bytes:
    """A packet whose length is right."""
    return PREFIX.pack((1 + len(body)) & 0xFFFFFFFF, kind & 0xFF) + body


def pack(layout: Struct, *values: int) -> bytes:
    """Pack any numbers: one that does not fit is cut to the bits of its field."""
    fitted = []
    for letter, value in zip(layout.format.lstrip("<"), values, strict=True):
        bits = WIDTHS[letter]
        value &= (1 << bits) - 1
        fitted.append(value - (1 << bits) if letter == "q" and value >> (bits - 1) else value)
    return layout.pack(*fitted)


class Maker:
    """Makes packets; the same ones from the same `random` and lore."""

    def __init__(self, random: Random, lore: Lore) -> None:
        self.random = random
        self.lore = lore
        self.grammar = Grammar(random, lore)
        self.tempers: tuple[float, ...] = (0.0, 0.0, 0.01, 0.05, 0.3)
        """How wild packets are; one of these is chosen for each."""

    def make(self, kind: int) -> bytes:
        """A packet of a kind."""
        self.grammar.wildness = self.random.choice(self.tempers)
        match kind:
            case _ if kind in TYPES:
                return packet(kind, _json(self.grammar.value(TYPES[kind])))
            case 1:
                return self._frame()
            case 2:
                return self._ack()
            case 5:
                return self.from_client()
            case 8:
                return self._forward()
            case 9:
                return self._part()
            case _:
                return packet(kind, self.random.randbytes(self.random.randrange(200)))

    def from_client(self) -> bytes:
        """What a light client says."""
        return packet(CLIENT, _msgpack(self.grammar.value(FROM_CLIENT)))

    def from_node(self) -> bytes:
        """What a node says to its client."""
        return packet(CLIENT, _msgpack(self.grammar.value(FROM_NODE)))

    def introduction(self) -> bytes:
        """The payload of an `Opening`."""
        return _json(self.grammar.value(INTRODUCTION))

    def greeting(self) -> bytes:
        """A packet of the handshake, out of turn or not."""
        return self.make(HELLO)

    def parcel(self, number: int) -> bytes:
        """A parcel that is the next of its link."""
        self.grammar.wildness = self.random.choice(self.tempers)
        body = {"type": "Parcel", "number": number, "message": self.grammar.value(CARRIED)}
        return packet(CONTROL, _json(body))

    def noise(self) -> bytes:
        """A packet of any kind, with anything in it."""
        random = self.random
        return packet(random.randrange(256), random.randbytes(random.choice((0, 1, 9, 80, 600))))

    def _mask(self, name: str = "members") -> bytes:
        mask = abs(self.grammar.number(name))
        return mask.to_bytes((mask.bit_length() + 7) // 8, "little")[: 1 << 11]

    def _topic(self) -> int:
        return topic_id(self.random.choice(self.lore.topics))

    def _route(self) -> int:
        """Its epoch is above the lower bits."""
        return self.grammar.number("epoch") << 32 | self.random.choice((0, 0, 0, 1, 2, 1 << 31))

    def _frame(self) -> bytes:
        random, number = self.random, self.grammar.number
        payloads = [self._payload() for _ in range(self._count())]
        first = number()
        start = random.choice((0, 0, first, max(0, first - 1), number()))
        stable = random.choice((-1, -1, first - 1, first - 1, number()))
        members = self._mask()
        leaves = random.choice((b"", b"", members, self._mask()))
        if self._honest():  # else it may be at odds with itself
            start, stable = min(start, first), min(stable, first - 1)
            leaves = leaves if leaves == members else b""
        barrier = [(*self.grammar.stream(), number()) for _ in range(random.choice((0, 0, 1, 3)))]
        source, life = self.lore.own if self._honest() and self.lore.own else self.grammar.stream()
        route = self._route()
        head = pack(
            HEADER, self._topic(), source, life, first, len(payloads), stable, route, start,
            number(), len(members), len(leaves), len(barrier),
        )  # fmt: skip
        needs = b"".join(pack(DEPENDENCY, *one) for one in barrier)
        sizes = b"".join(self._size(one) for one in payloads)
        return packet(FRAME, b"".join((head, members, leaves, needs, sizes, *payloads)))

    def _payload(self) -> bytes:
        """A message; some have headers, good ones or others."""
        random = self.random
        payload = random.randbytes(random.choice((0, 3, 30)))
        if random.randrange(4):
            return payload
        return headers.pack({"name": "x" * random.randrange(9)}, payload)

    def _size(self, payload: bytes) -> bytes:
        """The size of a message, marked if it has headers, and sometimes if it has none."""
        marked = type(payload) is headers.Headed or not self._honest()
        return (len(payload) | HEADED * marked).to_bytes(4, "little")

    def _honest(self) -> bool:
        """Whether this packet is to be taken, most likely."""
        return self.random.random() >= self.grammar.wildness * 10 + 0.02

    def _count(self) -> int:
        return self.random.choice((1, 1, 1, 2, 5, 40))

    def _ack(self) -> bytes:
        random, number = self.random, self.grammar.number
        absent, slow = self._mask(), random.choice((b"", self._mask()))
        covered = number() - 1
        have = max(covered, number() - 1)
        route = self._route()
        head = pack(
            ACK_HEADER, self._topic(), *self.grammar.stream(), route, have, covered,
            random.randrange(2), len(absent), len(slow),
        )  # fmt: skip
        return packet(ACK, head + absent + slow)

    def _forward(self) -> bytes:
        slots, random = self.lore.slots, self.random
        inner = self.make(random.choice(sorted(FORWARDED)))
        to, by = random.choice(slots), self.grammar.number("origin")
        return packet(FORWARD, pack(ROUTE, to, by, self.grammar.number("epoch")) + inner)

    def _part(self) -> bytes:
        """A part of something: the only one, or the first of many that never come."""
        random = self.random
        whole = self.make(random.choice((CONTROL, VIEW, FORWARD)))
        total, start = len(whole), 0
        if not self._honest():
            total, start = random.choice(EDGES), random.choice((0, PART_BYTES, 1))
        header = pack(PART_HEADER, random.randrange(3), total, start)
        return packet(PART, header + whole)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _msgpack(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # MessagePack has no larger numbers
        return msgspec.msgpack.encode(clipped(value))


def clipped(value: Any) -> Any:
    """The same with every number within 64 bits."""
    if isinstance(value, int):
        return min(max(value, -(1 << 63)), (1 << 64) - 1)
    if isinstance(value, list):
        return [clipped(one) for one in value]
    if isinstance(value, dict):
        return {clipped(key): clipped(one) for key, one in value.items()}
    return value
