"""Confidence intervals over seeds: Student's t, and samples summed up in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from cubecast.lab.intervals import CONFIDENCE, within

TABULATED = 100
"""Up to so many degrees of freedom the critical values are exact; beyond, by expansion."""
_Z = 1.959963984540054
EXPANSION = (
    _Z,
    (_Z**3 + _Z) / 4,
    (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
    (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
)
"""Of the critical value by powers of 1/freedom (Abramowitz & Stegun, 26.7.5)."""


@cache
def critical_value(freedom: int) -> float:
    """The t that a Student variable keeps within, on both sides, with 95 % probability."""
    if freedom > TABULATED:
        inverse = 1.0 / freedom
        return _added([term * inverse**power for power, term in enumerate(EXPANSION)])
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        if within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


class Summary(NamedTuple):
    """A sample: its size, its mean, and half the width of its 95 % confidence interval."""

    n: int
    mean: float
    ci: float | None
    """None with one value, which has no interval."""


def summary(values: Sequence[float]) -> Summary:
    """Sum up a sample.  Additions are made in the order given, so that equal samples give equal
    bits here and in `cubecast.spark.aggregate` (`sum` of newer Pythons compensates)."""
    n = len(values)
    mean = _added(values) / n
    if n < 2:
        return Summary(n, mean, None)
    spread = math.sqrt(_added([(value - mean) * (value - mean) for value in values]) / (n - 1))
    return Summary(n, mean, critical_value(n - 1) * spread / math.sqrt(n))


def _added(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total
