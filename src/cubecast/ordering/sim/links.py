"""Delays of links, by a hash: the same link, draw and seed give the same delay ([T] 6.1).

A link is fast or slow for good.  Its delay is drawn once, or anew for each message (`draw`); [T]
does not say which.  A negative delay is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Words: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A share of the links, and the normal distribution of their delays in ms."""

    share: float
    mean: float
    deviation: float


SIMULATED = (LinkKind(0.8, 21.0, 10.85), LinkKind(0.2, 240.0, 129.27))
"""[T] 6.1: fast channels and slow ones."""
EMULATED = (LinkKind(1.0, 21.0, 0.0),)
"""[T] 6.1, the prototype: WANem with 21 ms on average."""


def mixed(*parts: Ints | Words | int) -> Words:
    """A hash of some numbers, element by element (the finaliser of splitmix64)."""
    found: Words = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            word = np.asarray(part).astype(np.uint64)
            found = found ^ (word + np.uint64(0x9E3779B97F4A7C15))
            found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            found = found ^ (found >> np.uint64(31))
    return found


def uniform(words: Words) -> Floats:
    """Numbers in (0, 1] of the upper halves of hashes."""
    found: Floats = ((words >> np.uint64(32)).astype(np.float64) + 1.0) * 2.0**-32
    return found


class LinkDelays:
    """A link between any two nodes."""

    def __init__(
        self, seed: int, kinds: tuple[LinkKind, ...] = SIMULATED, *, fresh: bool = False
    ) -> None:
        """`fresh`: each message has a delay of its own."""
        self._seed = seed
        self._kinds = kinds
        self.fresh = fresh
        self._known: dict[tuple[int, int], float] = {}

    def delays(self, sources: Ints, targets: Ints, draw: Ints | int = 0) -> Floats:
        """Milliseconds, both ways the same; a node reaches itself at once."""
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        link = mixed(self._seed, (low << 24) + high)
        which = uniform(link)
        word = mixed(link, np.asarray(draw) + 1 if self.fresh else 0)
        length = np.sqrt(-2.0 * np.log(uniform(word)))
        normal = length * np.cos(2.0 * np.pi * uniform(word << np.uint64(32)))
        found: Floats = np.zeros(np.shape(which))
        reached = 0.0
        for kind in self._kinds:
            mine = (which > reached) & (which <= reached + kind.share)
            found = np.where(mine, kind.mean + kind.deviation * normal, found)
            reached += kind.share
        found = np.where(low == high, 0.0, np.maximum(found, 0.0))
        return found

    def delay(self, source: int, target: int, draw: int = 0) -> float:
        """The delay of one message."""
        if self.fresh:
            return float(self.delays(np.array([source]), np.array([target]), draw)[0])
        link = (min(source, target), max(source, target))
        found = self._known.get(link)
        if found is None:
            found = float(self.delays(np.array([source]), np.array([target]))[0])
            self._known[link] = found
        return found
