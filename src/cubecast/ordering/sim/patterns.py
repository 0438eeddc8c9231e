"""Patterns of three events that subscribers look for ([T] Figure 21).

[T] looks for "event e precedes e', that in turn precedes e''", each of one of three kinds, and does
not say what may lie between them.  Readings: nothing (`in a row`), or anything (`one by one`: the
next e, after it the next e', after that the next e'', then all over again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

Pattern: TypeAlias = tuple[int, ...]
KINDS = 3


def in_a_row(events: Sequence[int], kind_of: Mapping[int, int]) -> set[Pattern]:
    """Three consecutive notifications of kinds 0, 1, 2."""
    found: set[Pattern] = set()
    for (one, two), (_, three) in pairwise(pairwise(events)):
        if (kind_of[one], kind_of[two], kind_of[three]) == (0, 1, 2):
            found.add((one, two, three))
    return found


def one_by_one(events: Sequence[int], kind_of: Mapping[int, int]) -> set[Pattern]:
    """The next event of each kind in turn, whatever lies between."""
    found: set[Pattern] = set()
    begun: list[int] = []
    for event in events:
        if kind_of[event] == len(begun):
            begun.append(event)
            if len(begun) == KINDS:
                found.add(tuple(begun))
                begun = []
    return found


PATTERNS: dict[str, Callable[[Sequence[int], Mapping[int, int]], set[Pattern]]] = {
    "in a row": in_a_row,
    "one by one": one_by_one,
}


def detected(found: Iterable[set[Pattern]]) -> float:
    """[T] 6.1: patterns that all subscribers found, of those that any did; 0 if there are none."""
    each = list(found)
    either: set[Pattern] = set().union(*each)
    return len(either.intersection(*each)) / max(1, len(either))
