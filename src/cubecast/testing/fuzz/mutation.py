"""Changes to packets: of their bytes, and of the JSON or MessagePack in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import msgspec

from cubecast.net.wire.packets import CLIENT, CONTROL, DETECTOR, HELLO, PREFIX, VIEW
from cubecast.testing.fuzz.grammar import EDGES, WORDS
from cubecast.testing.fuzz.packets import clipped, packet

JSON_KINDS = frozenset((CONTROL, HELLO, VIEW, DETECTOR))
DEPTHS = (100, 2_000, 20_000)
"""Levels of nesting: below, about and above what a parser that calls itself can take."""
NOT_TEXT = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x00", b"\\ud800", b'"')
"""Bytes that are no UTF-8, or no JSON."""
LARGEST = 1 << 20
"""Bytes of a packet that is made here, about: what is larger is slow to make, and no worse."""


class Mutator:
    """Changes packets, the same way from the same `random`."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def mutate(self, raw: bytes, others: Sequence[bytes]) -> bytes:
        """A packet like `raw` but for a few changes; its length is right, mostly."""
        random = self.random
        kind, body = raw[4], raw[PREFIX.size :]
        shape = random.random()
        if shape < 0.5 and kind in JSON_KINDS | {CLIENT}:
            body = self._restructured(kind, body)
        else:
            changed = bytearray(body)
            for _ in range(random.choice((1, 1, 2, 4))):
                self._change(changed, others)
            body = bytes(changed)
        if random.random() < 0.03:
            kind = random.randrange(12)
        mutated = packet(kind, body)
        if random.random() < 0.01:
            return PREFIX.pack(random.choice(EDGES) & 0xFFFFFFFF, kind) + body
        return mutated

    # -- bytes -------------------------------------------------------------------------------------

    def _change(self, body: bytearray, others: Sequence[bytes]) -> None:
        random = self.random
        place = random.randrange(len(body) + 1)
        match random.randrange(9):
            case 0 if place < len(body):
                body[place] ^= 1 << random.randrange(8)
            case 1 if place < len(body):
                body[place] = random.randrange(256)
            case 2:
                del body[place : place + random.choice((1, 1, 4, 8, 64))]
            case 3:
                body[place:place] = random.randbytes(random.choice((1, 1, 4, 8, 64)))
            case 4:
                body[place:place] = body[place : place + random.choice((4, 16, 200))]
            case 5:
                del body[place:]
            case 6:
                width = random.choice((1, 2, 4, 8))
                number = random.choice(EDGES) & ((1 << 8 * width) - 1)
                order: Literal["little", "big"] = random.choice(("little", "big"))
                body[place : place + width] = number.to_bytes(width, order)
            case 7 if others:
                other = random.choice(others)[PREFIX.size :]
                start = random.randrange(len(other) + 1)
                body[place:] = other[start : start + LARGEST]
            case _:
                body[place:place] = random.choice(NOT_TEXT)

    # -- structure ---------------------------------------------------------------------------------

    def _restructured(self, kind: int, body: bytes) -> bytes:
        """One place in a document replaced, left out, doubled or nested."""
        try:
            tree = msgspec.msgpack.decode(body) if kind == CLIENT else json.loads(body)
        except (ValueError, RecursionError):
            return body[: self.random.randrange(len(body) + 1)]
        if self.random.random() < 0.02:
            return self._nested(kind, body)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            tree = self._replaced(tree)
        if kind == CLIENT:
            try:
                return msgspec.msgpack.encode(clipped(tree))
            except (OverflowError, TypeError, UnicodeEncodeError):
                return body
        return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _replaced(self, tree: Any) -> Any:
        """The tree with one place, at any depth, that is another."""
        random = self.random
        if isinstance(tree, dict) and tree and random.random() < 0.85:
            key = random.choice(list(tree))
            changed = dict(tree)
            match random.randrange(8):
                case 0:
                    del changed[key]
                case 1:
                    changed[random.choice(WORDS)] = changed[key]
                case _:
                    changed[key] = self._replaced(tree[key])
            return changed
        if isinstance(tree, list) and tree and random.random() < 0.85:
            place = random.randrange(len(tree))
            match random.randrange(8):
                case 0:
                    return tree[:place] + tree[place + 1 :]
                case 1:
                    return (tree * random.choice((2, 100, 5000)))[:5000]
                case _:
                    return [*tree[:place], self._replaced(tree[place]), *tree[place + 1 :]]
        return self._leaf(tree)

    def _leaf(self, leaf: Any) -> Any:
        random = self.random
        if isinstance(leaf, int) and not isinstance(leaf, bool) and random.random() < 0.8:
            return random.choice((*EDGES, leaf + 1, leaf - 1, leaf * 2, -leaf))
        if isinstance(leaf, str) and random.random() < 0.5:
            return random.choice((*WORDS, leaf + "x", leaf[1:], leaf * 2, "\ud800"))
        return random.choice(
            (None, True, False, 0.5, 1e308, float("nan"), float("inf"), "", [], {}, [[]], {"": 0})
        )

    def _nested(self, kind: int, body: bytes) -> bytes:
        """Deeper than it should be: alone, or where a value was."""
        depth = self.random.choice(DEPTHS)
        if kind == CLIENT:
            return body[:2] + b"\x91" * depth
        opening, closing = self.random.choice(((b"[", b"]"), (b'{"x":', b"}")))
        deep = opening * depth + b"0" + self.random.choice((closing * depth, b""))
        before, colon, _ = body.rpartition(b":")
        return before + colon + deep + self.random.choice((b"", b"}"))
