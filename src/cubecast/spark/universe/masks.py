"""Masks: one bit for each of many draws, for users and topics.

A mask is a row of 64-bit words; bit d % 64 of word d // 64 belongs to draw d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubecast.overlay.universes.streams import Bits, Longs, draws, named

_SEEDS, _PICKS = 21, 22
"""Purposes of streams."""
WORD = 64


@dataclass(frozen=True)
class Masks:
    """The masks of ids; ids are sorted, and an id that is not there has an empty mask."""

    ids: Longs
    words: Bits
    """One row for each id."""

    def of(self, ids: Longs) -> Bits:
        """The masks of these ids."""
        if not len(self.ids):
            return np.zeros((len(ids), self.words.shape[1]), dtype=np.uint64)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        known = self.ids[places] == ids
        return np.where(known[:, None], self.words[places], np.uint64(0))

    def union(self, other: Masks) -> Masks:
        """An id is in a draw if it is in it here or there."""
        ids = np.union1d(self.ids, other.ids)
        return Masks(ids, self.of(ids) | other.of(ids))

    def without(self, ids: Longs) -> Masks:
        """The masks of all but these ids."""
        others = ~np.isin(self.ids, ids)
        return Masks(self.ids[others], self.words[others])

    def within(self, draw: int) -> Longs:
        """The ids in a draw."""
        bit = self.words[:, draw // WORD] >> np.uint64(draw % WORD)
        inside: Longs = self.ids[(bit & np.uint64(1)).astype(np.bool_)]
        return inside

    def counts(self, draws: int) -> Longs:
        """How many ids are in each draw."""
        counts: Longs = bits(self.words, draws).sum(axis=0, dtype=np.int64)
        return counts


def words_for(draws: int) -> int:
    return -(-draws // WORD)


def packed(flags: NDArray[np.bool_]) -> Bits:
    """Rows of flags, one for each draw, as rows of words."""
    rows, count = flags.shape
    padded = np.zeros((rows, words_for(count) * WORD), dtype=np.bool_)
    padded[:, :count] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def bits(words: Bits, draws: int) -> NDArray[np.uint8]:
    """Rows of words as rows of zeros and ones, one for each draw."""
    flat = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(flat, axis=1, count=draws, bitorder="little")


def seed_masks(run: int, topics: Longs, seeds: int, count: int) -> Masks:
    """So many random topics in each draw: those with the least number in the draw's stream."""
    streams = named(run, _SEEDS, topics)
    flags = np.zeros((count, len(topics)), dtype=np.bool_)
    for draw in range(count):
        numbers = draws(streams, draw)
        flags[draw, np.argpartition(numbers, seeds - 1)[:seeds]] = True
    chosen = np.flatnonzero(flags.any(axis=0))
    return Masks(topics[chosen], packed(flags[:, chosen].T))


def picked(run: int, users: Longs, draw: Longs, sizes: Longs) -> Longs:
    """Which of its topics, counted in their order, each user picks in a draw."""
    numbers = draws(named(run, _PICKS, users), draw)
    scaled = (numbers >> np.uint64(32)) * sizes.astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)
