"""The streams of chance and the weights of links, compiled (`cubecast.overlay.chance`, `.weights`).

Every number is an unsigned word of 64 bits and overflows as the reference's arithmetic modulo 2^64
does.  A word must never meet a signed number: numba would compute with floating point.  So every
constant here is a word, and ids are turned into words where they enter.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.shared.jit import forced
from cubecast.overlay import chance

Word: TypeAlias = np.uint64
Words: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

MIXED: Final = 0
CONCATENATED: Final = 1
SYMMETRIC: Final = 2
HASH_CODES: Final = {"mixed": MIXED, "concatenated": CONCATENATED, "symmetric": SYMMETRIC}

GOLDEN: Final = np.uint64(chance.GOLDEN)
FIRST_FACTOR: Final = np.uint64(chance.FIRST_FACTOR)
SECOND_FACTOR: Final = np.uint64(chance.SECOND_FACTOR)
BY_11: Final = np.uint64(11)
BY_27: Final = np.uint64(27)
BY_30: Final = np.uint64(30)
BY_31: Final = np.uint64(31)
BY_32: Final = np.uint64(32)
TEN: Final = np.uint64(10)


@forced
def wide(number: int) -> int:
    """The same number in 64 bits: numba compiles a function anew for every width and literal."""
    return np.int64(number)  # type: ignore[return-value]


@forced
def mix(number: Word) -> Word:
    """`chance.mix`."""
    number = number + GOLDEN
    number = (number ^ (number >> BY_30)) * FIRST_FACTOR
    number = (number ^ (number >> BY_27)) * SECOND_FACTOR
    return number ^ (number >> BY_31)


@forced
def combined(first: Word, second: Word) -> Word:
    """`chance.combined`."""
    return mix(mix(first) + second)


@forced
def drawn_below(stream: Word, number: int, limit: int) -> int:
    """`chance.below` of one draw of a stream."""
    bits = mix(stream + np.uint64(number))
    return wide(((bits >> BY_32) * np.uint64(limit)) >> BY_32)  # type: ignore[arg-type]


@forced
def drawn_share(stream: Word, number: int) -> float:
    """One draw of a stream as a number from 0 to below 1, in steps of 2^-53."""
    return float(mix(stream + np.uint64(number)) >> BY_11) * 2.0**-53


@forced
def _shifted(first: Word, second: Word) -> Word:
    """The number whose decimal text is that of both, one after the other."""
    factor = TEN
    rest = second // TEN
    while rest:
        factor *= TEN
        rest //= TEN
    return first * factor + second


@forced
def half_weight(p: Word, hashing: int) -> Word:
    """The part of the weights of a node's links that they share; computed once per node."""
    return mix(p) if hashing == MIXED else p


@forced
def weight(half: Word, q: Word, hashing: int) -> Word:
    """`weights.weight` of the link to q, from the half that belongs to the node."""
    if hashing == MIXED:
        return mix(half + q)
    if hashing == CONCATENATED:
        return mix(_shifted(half, q))
    return combined(min(half, q), max(half, q))
