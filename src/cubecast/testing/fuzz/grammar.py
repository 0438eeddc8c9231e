"""Random values of a type: messages are made from the very types that their decoders check.

A message that is added to the wire is made here without more code.  Numbers and names are drawn
from `Lore`, what is known of the victims, so that many messages fit their state; some are at the
edges of what can be written.  Values are builtins (a structure is a dict, or a list where it is
sent as one), so they may also be values that no structure would hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

EDGES = (
    0, -1, 1, 2, 127, 128, 255, 256, 4095, 4096, 8191, 8192, 65535, 65536,
    *(base + step for power in (31, 32, 53, 61, 62, 63, 64) for base in (1 << power,)
      for step in (-1, 0, 1)),
    -(1 << 31), -(1 << 63), 1 << 100, (1 << 160) - 1, 1 << 160, 1 << 4095, 1 << 8191, 1 << 8192,
)  # fmt: skip
"""Numbers at which something ends: a type, a bound, a sign."""

LEAPS = tuple((1 << power) + step for power in (16, 18, 19, 20) for step in (-1, 0, 1))
"""Steps at which stamps, rounds and epochs are no longer believed: a lie up to such a line is."""

WORDS = ("", "x", "\0", "\n", "+", "#", "a/b", "$x", "ä", "\U0001f980", "x" * 1024, "x" * 1025)
"""Texts at which something ends."""

SLOTS = frozenset(("slot", "source", "origin", "heir", "wish", "target", "destination"))
SETS = frozenset(("survivors", "gone", "there", "members", "cluster", "lossy"))
LIVES = frozenset(("incarnation",))
EPOCHS = frozenset(("epoch", "since", "apart", "view", "version", "number", "wave", "route"))


@dataclass(slots=True)
class Lore:
    """What a liar knows of its victims: each list is what it draws from, and is short."""

    topics: list[str] = field(default_factory=lambda: ["attacked"])
    uids: list[str] = field(default_factory=lambda: ["fuzz"])
    addresses: list[str] = field(default_factory=lambda: ["127.0.0.1:1"])
    slots: list[int] = field(default_factory=lambda: [0, 1, 2, 3])
    lives: dict[int, int] = field(default_factory=dict)
    """Incarnations by slot."""
    numbers: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Epochs, rounds, routes and sequence numbers that are, or were, in use."""
    members: dict[int, Any] = field(default_factory=dict)
    """The victims and the liar, as members, by slot."""
    own: tuple[int, int] | None = None
    """The slot and the incarnation of the liar itself: much is believed of it alone."""
    epoch: int = 0
    """Of the view the victims are in."""


class Grammar:
    """Draws values of a type.

    `wildness` is the chance that a number or a name is at an edge: 0 gives messages that decoders
    take, 0.3 hardly any.
    """

    def __init__(self, random: Random, lore: Lore) -> None:
        self.random = random
        self.lore = lore
        self.wildness = 0.02

    def value(self, kind: inspect.Type, name: str = "") -> Any:
        """One value; `name` is that of the field it is for."""
        match kind:
            case inspect.UnionType():
                return self.value(self.random.choice(kind.types), name)
            case inspect.StructType():
                return self._struct(kind)
            case inspect.NamedTupleType():
                return self._named(kind)
            case inspect.DictType():
                return self._dict(kind, name)
            case inspect.ListType() | inspect.VarTupleType():
                size = max(self._size(), kind.min_length or 0)
                return [self.value(kind.item_type, name) for _ in range(size)]
            case inspect.TupleType():
                first, *rest = kind.item_types  # an int that comes first is a slot
                return [self.value(first, "slot"), *(self.value(one, name) for one in rest)]
            case _:
                return self._scalar(kind, name)

    def _dict(self, kind: inspect.DictType, name: str) -> dict[Any, Any]:
        lore, random = self.lore, self.random
        if name == "members" and lore.members and random.random() < 0.8:
            members = dict(lore.members)  # the present members, but for one
            if random.random() < 0.4:
                members.pop(random.choice(list(members)))
            if random.random() < 0.3:
                members[self.number("slot")] = self.value(kind.value_type)
            return members
        key = "slot" if isinstance(kind.key_type, inspect.IntType) else name
        keys = [self.value(kind.key_type, key) for _ in range(self._size())]
        return {one: self.value(kind.value_type, name) for one in keys}

    def _struct(self, kind: inspect.StructType) -> Any:
        if kind.cls.__name__ == "Who" and self.lore.members and self.random.random() < 0.5:
            return self.random.choice(list(self.lore.members.values()))
        fields = {
            one.encode_name: self.value(one.type, one.name)
            for one in kind.fields
            if one.required or self.random.random() < 0.8
        }
        if kind.array_like:  # what is left out must be last
            values = [self.value(one.type, one.name) for one in kind.fields]
            return values if kind.tag is None else [kind.tag, *values]
        return fields if kind.tag is None else {kind.tag_field: kind.tag, **fields}

    def _named(self, kind: inspect.NamedTupleType) -> list[Any]:
        names = [one.name for one in kind.fields]
        if names == ["source", "incarnation"]:
            return list(self.stream())
        return [self.value(one.type, one.name) for one in kind.fields]

    def _scalar(self, kind: inspect.Type, name: str) -> Any:
        random = self.random
        match kind:
            case inspect.IntType():
                return self._within(kind, self.number(name))
            case inspect.StrType():
                return self.text(name, kind)
            case inspect.BytesType():
                return random.randbytes(random.choice((0, 1, 5, 40, 200)))
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.FloatType():
                return random.choice((0.0, 0.5, 1.0, 60.0, 1e9, 1e300, -1.0))
            case inspect.EnumType():
                return random.choice([one.value for one in kind.cls])
            case inspect.LiteralType():
                return random.choice(kind.values)
            case inspect.NoneType():
                return None
            case inspect.RawType():
                return msgspec.Raw(b"\xc0")
            case _:
                raise TypeError(f"no values are known for {kind}")

    def _within(self, kind: inspect.IntType, number: int) -> int:
        """Within the bounds that its type states, mostly."""
        if self.random.random() < self.wildness:
            return number
        if kind.ge is not None and number < kind.ge:
            number = int(kind.ge)
        if kind.lt is not None and number >= kind.lt:
            number = int(kind.lt) - 1
        if kind.le is not None and number > kind.le:
            number = int(kind.le)
        return number

    def _size(self) -> int:
        return self.random.choice((0, 0, 1, 1, 2, 3, 6))

    def number(self, name: str = "") -> int:
        """A number for a field of this name."""
        random, lore = self.random, self.lore
        if random.random() < self.wildness:
            return random.choice(EDGES)
        if name in SLOTS:
            own = lore.own is not None and random.random() < 0.5
            return lore.own[0] if own and lore.own is not None else random.choice(lore.slots)
        if name in SETS:
            chance = random.choice((0.5, 1.0, 1.0))
            return sum(1 << slot for slot in lore.slots if random.random() < chance)
        if name == "epoch" and random.random() < 0.7:
            return lore.epoch
        if name in LIVES:
            return random.choice(list(lore.lives.values()) or [1])
        known = random.choice(lore.numbers)
        if random.random() < self.wildness:
            return known + random.choice(LEAPS)
        return max(0, known + random.choice((0, 0, 0, 1, 1, 2, -1, random.randrange(50))))

    def stream(self) -> tuple[int, int]:
        """A stream: of the liar itself, of another member, or made up."""
        chance, lore = self.random.random(), self.lore
        if lore.own is not None and chance < 0.6:
            return lore.own
        if lore.lives and chance < 0.95:
            return self.random.choice(list(lore.lives.items()))
        return self.number("source"), self.number("incarnation")

    def text(self, name: str = "", kind: inspect.StrType | None = None) -> str:
        """A text for a field of this name."""
        random, lore = self.random, self.lore
        if random.random() < self.wildness:
            return random.choice(WORDS)
        if name in ("uid", "proof", "nonce", "forgotten", "cluster"):
            if kind is not None and kind.pattern is not None and "{32}" in kind.pattern:
                return f"{random.getrandbits(128):032x}"
            return random.choice((*lore.uids, "fuzz", f"fuzz.{random.randrange(4)}"))
        if name in ("salt", "peer"):
            return random.choice(("", f"{random.getrandbits(128):032x}"))
        if name == "address":
            return random.choice(lore.addresses)
        if name in ("name", "reason", "version", "error", "policy"):
            return random.choice(("", "x", "fuzz"))
        return random.choice((*lore.topics, f"made up {random.randrange(20)}"))
