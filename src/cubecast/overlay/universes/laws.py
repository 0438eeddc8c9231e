"""Power laws with a given mean, as sorted lists of sizes rather than as random numbers.

A size is the quantile of its rank.  So the sizes of a universe, and their sum, are the same in
every run; chance only decides which topic or node has which.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cubecast.overlay.universes.streams import Doubles, Longs

STEEPEST, FLATTEST = 12.0, 0.0
"""The range of exponents that is searched."""
HALVINGS = 60


def topic_sizes(count: int, total: int, least: int, most: int) -> tuple[Longs, float]:
    """So many sizes of this sum, largest first, and the exponent of their density.

    A size is ``least / q^(1 / (exponent - 1))`` for q = (rank + 1/2) / count, and at most `most`.
    """
    if not least * count <= total <= most * count:
        raise ValueError(
            f"{count:,} topics of {least:,} to {most:,} subscribers cannot have {total:,} pairs"
        )
    ranks = (np.arange(count) + 0.5) / count

    def sizes(slope: float) -> Doubles:
        return np.minimum(least * ranks**-slope, most)

    slope = _root(lambda slope: float(sizes(slope).sum()) - total, 0.0, 50.0)
    exact = sizes(slope)
    sums = np.concatenate([[0.0], np.cumsum(exact)])
    rounded = np.floor(sums * (total / sums[-1]) + 0.5).astype(np.int64)
    return _within(np.diff(rounded), total, least, most), 1.0 + 1.0 / max(slope, 1e-9)


def _within(sizes: Longs, total: int, least: int, most: int) -> Longs:
    """Sizes, largest first, moved between their bounds without a change of their sum.

    Rounding may leave a size beside a bound.  And near the largest sum no slope is steep enough,
    so that sizes are scaled beyond `most`: the excess goes to the next lower topics, as a steeper
    law would have it.
    """
    clipped = np.clip(sizes, least, most)
    missing = total - int(clipped.sum())
    if missing > 0:
        return clipped + _dealt(missing, most - clipped)
    # Those next to the least first, so that the order stays.
    return clipped - _dealt(-missing, (clipped - least)[::-1])[::-1]


def _dealt(amount: int, room: Longs) -> Longs:
    """The share of each in an amount that fills their rooms one after the other."""
    before = np.cumsum(room) - room
    shares: Longs = np.clip(amount - before, 0, room)
    return shares


def degrees(count: int, mean: float, most: int) -> tuple[Longs, float]:
    """So many numbers from 1 to `most`, smallest first, of about this mean, and their exponent.

    m has a probability in proportion to m^-exponent.
    """
    if not 1 <= mean <= most:
        raise ValueError(f"numbers from 1 to {most:,} cannot have a mean of {mean:,.2f}")
    values = np.arange(1, most + 1, dtype=np.float64)

    def excess(exponent: float) -> float:
        shares = values**-exponent
        return float((shares * values).sum() / shares.sum()) - mean

    # The mean falls with the exponent, so look for its negative.
    exponent = -_root(lambda negative: excess(-negative), -STEEPEST, -FLATTEST)
    shares = values**-exponent
    bounds = np.cumsum(shares / shares.sum())[:-1]
    ranks = (np.arange(count) + 0.5) / count
    found = np.searchsorted(bounds, ranks, side="right") + 1
    return found.astype(np.int64), exponent


def _root(growing: Callable[[float], float], low: float, high: float) -> float:
    """Where a growing function crosses zero; an end of the interval if it does not."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if growing(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
