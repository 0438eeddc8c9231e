"""`cubecast.overlay.chance` for whole arrays, and the flat form that all generators give.

`mixed`, `combined` and `draws` give the same bits as `mix`, `combined` and `draw` there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cubecast.overlay import chance

Longs: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]
Doubles: TypeAlias = NDArray[np.float64]
Universe: TypeAlias = tuple[Longs, Longs, Longs]
"""Topics, offsets, members."""

UNIT = 1.0 / (1 << 53)


def mixed(numbers: Bits) -> Bits:
    """`chance.mix` of each number; arrays of numpy wrap modulo 2^64 by themselves."""
    x = numbers + np.uint64(chance.GOLDEN)
    x ^= x >> np.uint64(30)
    x *= np.uint64(chance.FIRST_FACTOR)
    x ^= x >> np.uint64(27)
    x *= np.uint64(chance.SECOND_FACTOR)
    x ^= x >> np.uint64(31)
    return x


def named(run: int, purpose: int, ids: Longs) -> Bits:
    """One stream for each id: `chance.stream` of the run, the purpose, the id and 0."""
    base = np.uint64(chance.mix(chance.combined(run, purpose)))
    return mixed(mixed(mixed(base + ids.astype(np.uint64))))


def draws(streams: Bits, number: int | Longs) -> Bits:
    """One draw of each stream."""
    return mixed(streams + np.asarray(number).astype(np.uint64))


def units(bits: Bits) -> Doubles:
    """Numbers from 0 to below 1, from the upper 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * UNIT


def flat(rows: Iterable[tuple[int, Longs]]) -> Universe:
    """The flat form of (topic, sorted members) in the order of topics; empty topics fall out."""
    kept = [(topic, members) for topic, members in rows if len(members)]
    topics = np.array([topic for topic, _ in kept], dtype=np.int64)
    sizes = np.array([0, *(len(members) for _, members in kept)], dtype=np.int64)
    members = [members for _, members in kept]
    return topics, np.cumsum(sizes), np.concatenate([np.zeros(0, np.int64), *members])
