"""Canonical forms: when are two states of a process, or two messages, the same?

The canonical form of an object is the tree of its attributes.  What it keeps and what it drops:

1. Sharing of mutable objects is kept (two names for one `Branch` are not two equal branches).
   Messages, frozen structures and the classes named as `values` are never changed, so they are
   compared by content.
2. The order of lists and tuples is kept, and so is the insertion order of a dict: it may decide
   the order in which things are sent or delivered.  Attributes named as `unordered` are the
   exception.
3. Everything else is kept, clocks and counters included, but for attributes named as `caches` and
   the content of classes named as `idle`.
   Where times are `relative`, a time is how far ahead it lies, or that it is past.

A coarser form would merge states that behave differently and miss runs; a finer one only costs
time.  `EXACT` names no attributes; the tests compare outcomes under it and under `PRODUCTION`.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.messages import Route
from cubecast.protocol.port import Time
from cubecast.protocol.topic.ack_timing import AckPace


@dataclass(frozen=True, slots=True)
class Likeness:
    """Which differences between two states make no difference; names are ``Class.attribute``."""

    unordered: frozenset[str] = frozenset()
    """Maps and tuples whose order decides nothing."""
    caches: frozenset[str] = frozenset()
    """Attributes that only cache what would be computed again, or are only shown to people."""
    values: frozenset[type] = frozenset({Route})
    """Classes whose instances are never changed."""
    idle: frozenset[type] = frozenset()
    """Classes whose instances decide nothing, wherever they are kept."""
    relative: bool = False
    """Two states that differ only in when they are reached are the same.

    Every whole number from `LONG` on is a time: clocks begin there, and nothing else that a process
    keeps is so large.  What a process does may depend on how far ahead a time lies, not on how long
    it has been past.
    """


LONG: Time = 10**15
"""How far a node's clock moves when its timers fire: beyond every delay it can ask for."""
LAST: Time = 10**18
"""No clock comes so far; numbers from here on stand for infinity."""

EXACT = Likeness()

PRODUCTION = Likeness(
    unordered=frozenset(
        {
            "Links._links",
            "AckQueue.dirty",
            "Repair.unacked",
            "Outgoing.leavers",
            "Link.early",
            "Branch.early",
            "Inbox.frames",
            "StreamTable.floor",
            "Waves._gatherings",
            "CausalFront.delivered",
            "Gathering.vector",
            "Answer.vector",
            "Membership._meanwhile",
            "Inbox.branches",
            "Listing.topics",
        }
    ),
    caches=frozenset(
        {
            "StreamTable._trees",
            "Inbox.stuck",
            "TopicGuard.dropped",
            "Agenda._heap",
            "Agenda._planned",
        }
    ),
    idle=frozenset({BranchCounts, AckPace}),
)
"""The production protocol.

The orders that decide nothing, line by line: iterated only to send, and what is in flight is a
multiset; looked up by key, or summed; merged key by key; iterated to acknowledge (one's own
branches are made, and so stand, in the order of their numbers).  `inboxes`, `frontier`, `barrier`
and `_waiting` are not among them: their order can decide which of two concurrent messages is
delivered first.  A pace decides nothing without `Config.ack_pause`, which no case sets; marks only
say what a run has passed.  The agenda has the times that topics keep besides, or earlier ones: then
nothing is done.
"""

MEMBERS = replace(
    PRODUCTION,
    relative=True,
    caches=PRODUCTION.caches
    | {"Member._due", "Member._agreement_config", "ViewAgreement._config", "Absences._remember_for"}
    | {"View.slots", "View.places", "View.mask", "View.checksum"},
    unordered=PRODUCTION.unordered | {"Member._told", "Admission.departing", "Attempt.reports"},
)
"""The production protocol where nodes die (`cubecast.protocol.cluster.member`).

Without order besides: looked up by key, or sorted before it is gone through.  The settings are the
same in all states, and have delays in them that would be taken for times.  `_due` is the earliest
of the times that are kept beside it, or earlier: then nothing is done.
"""

_PLAIN = frozenset({int, str, bool, bytes, float, type(None)})


class CanonicalForm:
    """Digests of the canonical forms of one exploration's objects."""

    def __init__(self, port: object, likeness: Likeness) -> None:
        self.numbered: dict[int, int] = {}
        """Address of a message that was sent: its number, which stands for its content."""
        self._port = port
        self._likeness = likeness
        self.now: Time = 0
        """When the state is looked at; matters where times are relative."""
        self._values = likeness.values
        self._idle = likeness.idle
        self._plain = _PLAIN - {int} if likeness.relative else _PLAIN
        self._inside_value = False
        self._numbers = self.numbered
        self._seen: dict[int, int] = {}
        self._unordered: dict[type, frozenset[str]] = {}
        self._names: dict[tuple[type, tuple[str, ...]], tuple[str, ...]] = {}

    def of(self, obj: object) -> bytes:
        """A digest that two objects share if and only if their canonical forms are equal."""
        self._numbers = self.numbered
        return self._digest(obj)

    def of_content(self, obj: object) -> bytes:
        """`of`, but by content also where the object or a part of it has a number."""
        self._numbers = {}
        return self._digest(obj)

    def _digest(self, obj: object) -> bytes:
        self._seen.clear()
        self._inside_value = False
        return blake2b(marshal.dumps(self._walk(obj), 2), digest_size=16).digest()

    def _walk(self, obj: Any, unordered: bool = False) -> Any:
        kind = type(obj)
        if kind in self._plain:
            return obj
        if kind is int:
            return obj if not LONG <= obj < LAST else ("time", max(obj - self.now, 0))
        number = self._numbers.get(id(obj))
        if number is not None:
            return ("message", number)
        if obj is self._port:
            return "port"
        if kind in self._idle:
            return kind.__name__
        if self._inside_value:
            pass  # what a value contains is never changed either
        elif kind in self._values or _is_value(kind):  # type: ignore[arg-type]
            if not issubclass(kind, tuple):
                self._inside_value = True
                form = self._content(obj, kind, unordered)
                self._inside_value = False
                return form
        else:
            seen = self._seen.get(id(obj))
            if seen is not None:
                return ("again", seen)
            self._seen[id(obj)] = len(self._seen)
        return self._content(obj, kind, unordered)

    def _content(self, obj: Any, kind: type, unordered: bool) -> Any:
        match _shape_of(kind):
            case "tuple":
                items = self._walk_all(obj)
                return (kind.__name__, *(sorted(items, key=_sort_key) if unordered else items))
            case "set":
                return (kind.__name__, *sorted(self._walk_all(obj), key=_sort_key))
            case "list":
                return (kind.__name__, *self._walk_all(obj))
            case "dict":
                return self._walk_dict(obj, kind, unordered)
            case "enum":
                return (kind.__name__, obj.name)
            case "bytes":
                return (kind.__name__, bytes(obj))
        return self._walk_attributes(obj, kind)

    def _walk_all(self, items: Iterable[Any]) -> list[Any]:
        walk, plain = self._walk, self._plain
        return [item if type(item) in plain else walk(item) for item in items]

    def _walk_dict(self, obj: dict[Any, Any], kind: type, unordered: bool) -> Any:
        pairs = list(zip(self._walk_all(obj), obj.values(), strict=True))
        if unordered and len(pairs) > 1:
            pairs.sort(key=lambda pair: _sort_key(pair[0]))
        values = self._walk_all(value for _, value in pairs)
        return (kind.__name__, *[key for key, _ in pairs], *values)

    def _walk_attributes(self, obj: Any, kind: type) -> Any:
        form: list[Any] = [kind.__qualname__]
        slots = _slots_of(kind)
        if slots:
            names = self._names_in(kind, slots)
            form += self._walk_named(kind, names, [getattr(obj, name) for name in names])
        if hasattr(obj, "__dict__"):
            names = self._names_in(kind, tuple(obj.__dict__))
            form += names
            form += self._walk_named(kind, names, [obj.__dict__[name] for name in names])
        elif not slots and not issubclass(kind, msgspec.Struct):  # one without fields is its name
            raise TypeError(f"no canonical form for a {kind.__qualname__}: {obj!r}")
        return tuple(form)

    def _walk_named(self, kind: type, names: tuple[str, ...], values: list[Any]) -> list[Any]:
        loose = self._unordered.get(kind)
        if loose is None:
            loose = self._unordered[kind] = _names_for(kind, self._likeness.unordered)
        walk, plain = self._walk, self._plain
        return [
            value if type(value) in plain else walk(value, name in loose)
            for name, value in zip(names, values, strict=True)
        ]

    def _names_in(self, kind: type, names: tuple[str, ...]) -> tuple[str, ...]:
        """Attributes in one order, without caches."""
        found = self._names.get((kind, names))
        if found is None:
            kept = set(names) - _names_for(kind, self._likeness.caches)
            found = self._names[kind, names] = tuple(sorted(kept))
        return found


def _names_for(kind: type, qualified: frozenset[str]) -> frozenset[str]:
    """Of names ``Class.attribute`` the attributes that are the class's own or inherited."""
    bases = {base.__name__ for base in kind.__mro__}
    split = [name.split(".") for name in qualified]
    return frozenset(name for base, name in split if base in bases)


def _sort_key(form: Any) -> bytes:
    return marshal.dumps(form, 2)


@cache
def _shape_of(kind: type[Any]) -> str:
    """How the content of an object is reached."""
    shapes: dict[str, tuple[type, ...]] = {
        "enum": (Enum,),
        "tuple": (tuple,),
        "set": (set, frozenset),
        "list": (list, deque),
        "dict": (dict,),
        "bytes": (bytearray,),
    }
    for shape, bases in shapes.items():
        if issubclass(kind, bases):
            bare = not hasattr(kind, "__dictoffset__") or kind.__dictoffset__ == 0
            if shape != "enum" and not bare:
                raise TypeError(f"a {kind.__qualname__} has attributes besides its items")
            return shape
    return "object"


@cache
def _is_value(kind: type[Any]) -> bool:
    """Whether equal instances are interchangeable: what is never changed after it is made."""
    if issubclass(kind, (tuple, frozenset, Enum)):
        return True
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_config__.frozen
    return isinstance(getattr(kind, "kind", None), str)


@cache
def _slots_of(kind: type[Any]) -> tuple[str, ...]:
    """Names of the attributes that are not in ``__dict__``, in one order."""
    if issubclass(kind, msgspec.Struct):
        return tuple(sorted(kind.__struct_fields__))
    names = {
        name
        for base in kind.__mro__
        for name in base.__dict__.get("__slots__", ())
        if name not in ("__dict__", "__weakref__")
    }
    return tuple(sorted(names))
