"""Counts the entries of every table that a process keeps, without knowing the tables.

From an object of the protocol the census follows attributes and entries, and counts the entries of
every table (dict, list, set, deque, tuple) under the class and the attribute that hold it.  A table
that is added to the protocol tomorrow is counted without a change here.

1. Only objects of the protocol are followed (`PACKAGES`).  The world, ports and functions are not
   followed: their tables do not belong to the process.
2. Each object is counted once per census, where the shortest way leads to it.  Objects that two
   processes of one simulation share are counted in both.
3. Numbers, bit masks, text and bytes are not tables; an int that is a set of slots has at most as
   many bits as there are slots.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from cubecast.protocol.branch_counts import BranchCounts

PACKAGES = ("cubecast.protocol.", "cubecast.topology")
"""Objects of classes from these modules are followed."""

Tables: TypeAlias = Counter[str]
"""``Class.attribute`` -> entries of the tables there, those inside tables included."""

_LEAVES = (int, float, complex, str, bytes, bytearray, memoryview, type(None), type, BranchCounts)


def census(*roots: object) -> Tables:
    """Count the entries of all tables that can be reached from `roots`."""
    found: Tables = Counter()
    seen: set[int] = set()
    todo: deque[tuple[str, object]] = deque(("", root) for root in roots)
    while todo:
        place, thing = todo.popleft()
        if isinstance(thing, _LEAVES) or id(thing) in seen:
            continue
        seen.add(id(thing))
        fields = _fields(thing)
        if fields is not None:
            name = type(thing).__name__
            todo += [(f"{name}.{attribute}", value) for attribute, value in fields]
        elif isinstance(thing, Mapping):
            found[place] += len(thing)
            todo += [(place, one) for pair in thing.items() for one in pair]
        elif isinstance(thing, list | tuple | set | frozenset | deque):
            found[place] += len(thing)
            todo += [(place, one) for one in thing]
    return +found


def _fields(thing: object) -> Iterable[tuple[str, Any]] | None:
    """The attributes of an object of the protocol; None for a tuple, a table or any other object.

    A named tuple has as many fields as its class says: that is a record, not a table, so its
    fields are followed and not counted.
    """
    kind = type(thing)
    if not kind.__module__.startswith(PACKAGES):
        return None
    if isinstance(thing, tuple):
        return zip(getattr(kind, "_fields", ()), thing, strict=False)
    return None if isinstance(thing, dict | list | set | deque) else _attributes(thing, kind)


def _attributes(thing: object, kind: type) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for one in kind.__mro__:
        if not one.__module__.startswith(PACKAGES):
            continue
        slots = one.__dict__.get("__slots__") or one.__dict__.get("__struct_fields__") or ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)
