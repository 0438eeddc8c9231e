"""Student's t: how far a mean of a few runs may be from the mean of all.

Rows carry the half width of a 95 % interval.  From it and the number of seeds comes the standard
deviation of a single run, and from that the interval of any other confidence or number of runs.
"""

from __future__ import annotations

import math
from functools import cache

CONFIDENCE = 0.95
"""Of the intervals that rows carry."""
_LARGE = 2000
"""Beyond so many degrees of freedom t is that of so many: the difference is below 0.1 %."""


@cache
def critical_value(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t that a Student variable keeps within, on both sides, with this probability."""
    if freedom < 1:
        return math.inf
    freedom = min(freedom, _LARGE)
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        if within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def within(t: float, freedom: int) -> float:
    """P(|T| <= t), the finite sums for whole degrees of freedom (Abramowitz & Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(freedom))
    if freedom == 1:
        return 2 * angle / math.pi
    cosine, odd = math.cos(angle), freedom % 2
    term = cosine if odd else 1.0
    total = term
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    total *= math.sin(angle)
    return 2 * (angle + total) / math.pi if odd else total


def deviation(ci: float, n: int) -> float:
    """The standard deviation of one run, from the 95 % interval of the mean of n."""
    return ci * math.sqrt(n) / critical_value(n - 1) if n > 1 else math.inf


def interval(sd: float, n: int, confidence: float = CONFIDENCE) -> float:
    """Half the width of the interval of a mean of n runs."""
    return 0.0 if sd == 0 else critical_value(n - 1, confidence) * sd / math.sqrt(n)


def widened(ci: float, n: int, confidence: float) -> float:
    """The 95 % interval of a mean of n runs, at another confidence; one run has none."""
    if n < 2:
        return math.inf
    return ci * critical_value(n - 1, confidence) / critical_value(n - 1)
