"""Discrete power laws fitted to counts, after Clauset, Shalizi and Newman (SIAM Review 51, 2009).

The data are a histogram: distinct values and how often each occurs.  A law says that a value x of
at least `least` has a probability of x^-exponent / zeta(exponent, least), with Hurwitz's zeta.

1. For each candidate of `least`, the exponent of the greatest likelihood.
2. The candidate whose law is nearest to the data beyond it, by the Kolmogorov-Smirnov distance.
3. Goodness: the share of synthetic data sets (the law beyond `least`, the data itself below), each
   fitted in the same way, that lie farther from their laws than the data from its own.  Below 0.1
   the data are told apart from a power law; with many values that happens for any small bend.

Candidates are at most `MOST_CANDIDATES` of the values, evenly spaced in rank, that leave at least
`LEAST_TAIL` observations; the original looks at all values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cubecast.overlay.universes.streams import Doubles, Longs

MOST_CANDIDATES = 60
LEAST_TAIL = 50
RESAMPLES = 100
SMALLEST_EXPONENT, LARGEST_EXPONENT = 1.01, 10.0
HALVINGS = 30
TABLE = 1 << 16
"""Synthetic values up to so many above `least` are drawn exactly, larger ones as a continuum."""


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law."""

    exponent: float
    least: int
    """The law holds from here on."""
    distance: float
    """The greatest difference of the two cumulative distributions beyond `least`."""
    tail: int
    """Observations from `least` on."""
    goodness: float | None
    """The share of synthetic data sets that lie farther from their laws; None if there are none."""
    resamples: int

    @property
    def error(self) -> float:
        """The standard error of the exponent, from the size of the tail."""
        return (self.exponent - 1.0) / float(np.sqrt(self.tail))


def fit(values: Longs, counts: Longs, resamples: int = RESAMPLES, seed: int = 0) -> PowerLaw | None:
    """The law of a histogram; None if fewer than two values leave enough observations."""
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    if len(values) and values[0] < 1:
        raise ValueError(f"a power law has values from 1 on, not {values[0]}")
    found = _nearest(values, counts)
    if found is None:
        return None
    exponent, least, distance = found
    chance = np.random.default_rng(seed)
    farther = 0
    for _ in range(resamples):
        again = _nearest(*_synthetic(values, counts, exponent, least, chance))
        farther += again is not None and again[2] >= distance
    tail = int(counts[values >= least].sum())
    goodness = farther / resamples if resamples else None
    return PowerLaw(exponent, least, distance, tail, goodness, resamples)


def bounded_exponent(values: Longs, counts: Longs) -> float:
    """The likeliest exponent of a law that begins and ends with the data; NaN if it has none.

    With fewer than two distinct values all exponents are equally likely.

    In a small universe a node cannot have more topics than there are: the law is cut, and a fit
    without an end takes the cut for a steep tail.
    """
    if np.count_nonzero(counts) < 2:
        return float("nan")
    support = np.arange(int(values.min()), int(values.max()) + 1, dtype=np.float64)
    logs = np.log(support)
    mean_log = float((counts * np.log(values)).sum() / counts.sum())
    low, high = -LARGEST_EXPONENT, LARGEST_EXPONENT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shares = np.exp(-middle * (logs - logs[0]))
        if float((shares * logs).sum() / shares.sum()) > mean_log:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def zeta(exponent: float | Doubles, start: float | Doubles | Longs) -> Doubles:
    """Hurwitz's zeta: the sum of (start + k)^-exponent for k = 0, 1, ...; for exponents above 1.

    Ten terms, then the sum of Euler and Maclaurin: ten digits and more.
    """
    s, q = np.broadcast_arrays(np.asarray(exponent, float), np.asarray(start, float))
    total: Doubles = np.zeros(s.shape)
    for k in range(10):
        total += (q + k) ** -s
    end = q + 10
    total += end ** (1 - s) / (s - 1) + end**-s / 2 + s * end ** (-s - 1) / 12
    total -= s * (s + 1) * (s + 2) * end ** (-s - 3) / 720
    total += s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * end ** (-s - 5) / 30_240
    return total


def _nearest(values: Longs, counts: Longs) -> tuple[float, int, float] | None:
    """Exponent, least value and distance of the law that is nearest to the data."""
    tails = np.cumsum(counts[::-1])[::-1]
    # A tail of one value has no exponent.
    possible = np.flatnonzero(tails[:-1] >= LEAST_TAIL)
    if not len(possible):
        return None
    places = np.linspace(0, len(possible) - 1, min(len(possible), MOST_CANDIDATES))
    starts = possible[np.unique(places.astype(np.int64))]
    logs = np.cumsum((counts * np.log(values))[::-1])[::-1]
    exponents = _likeliest(values[starts], logs[starts] / tails[starts])
    distances = [
        _distance(values[start:], counts[start:], exponent)
        for start, exponent in zip(starts, exponents, strict=True)
    ]
    best = int(np.argmin(distances))
    return float(exponents[best]), int(values[starts[best]]), float(distances[best])


def _likeliest(least: Longs, mean_logs: Doubles) -> Doubles:
    """The exponents of greatest likelihood: those whose law has the mean logarithm of the data."""
    low: Doubles = np.full(len(least), SMALLEST_EXPONENT)
    high: Doubles = np.full(len(least), LARGEST_EXPONENT)
    step = 1e-5
    for _ in range(HALVINGS):
        middle: Doubles = (low + high) / 2
        ahead, behind = zeta(middle + step, least), zeta(middle - step, least)
        expected = -(np.log(ahead) - np.log(behind)) / (2 * step)
        flatter = expected > mean_logs  # the law's values are too large: it must be steeper
        low, high = np.where(flatter, middle, low), np.where(flatter, high, middle)
    return middle


def _distance(values: Longs, counts: Longs, exponent: float) -> float:
    """The greatest difference of the cumulative distributions, over all whole numbers.

    Between two values of the data only the law grows: so look at each value, and just before the
    next one.
    """
    data = np.cumsum(counts) / counts.sum()
    whole = zeta(exponent, values[0])
    beyond = zeta(exponent, values)
    at = 1.0 - (beyond - values.astype(float) ** -exponent) / whole
    before = 1.0 - beyond[1:] / whole
    return float(max(np.abs(data - at).max(), np.abs(data[:-1] - before).max(initial=0.0)))


def _synthetic(
    values: Longs, counts: Longs, exponent: float, least: int, chance: np.random.Generator
) -> tuple[Longs, Longs]:
    """As many observations: of the law beyond `least`, of the data below."""
    total, below = int(counts.sum()), values < least
    tail = chance.binomial(total, counts[~below].sum() / total)
    found, numbers = _drawn(exponent, least, int(tail), chance)
    if below.any():
        body = chance.multinomial(total - tail, counts[below] / counts[below].sum())
        found, numbers = np.concatenate([values[below], found]), np.concatenate([body, numbers])
    return found[numbers > 0], numbers[numbers > 0]


def _drawn(
    exponent: float, least: int, count: int, chance: np.random.Generator
) -> tuple[Longs, Longs]:
    """Values of a law and how often each occurs."""
    table = np.arange(least, least + TABLE, dtype=np.int64)
    shares = table.astype(float) ** -exponent / zeta(exponent, least)
    rest = max(0.0, 1.0 - float(shares.sum()))
    numbers = chance.multinomial(count, np.append(shares, rest) / (shares.sum() + rest))
    far = int(numbers[-1])
    # Beyond the table the law is as good as continuous; no value may leave 63 bits.
    beyond = (least + TABLE) * (1.0 - chance.random(far)) ** (-1.0 / (exponent - 1.0))
    others, often = np.unique(np.minimum(beyond, 2.0**62).astype(np.int64), return_counts=True)
    return np.concatenate([table, others]), np.concatenate([numbers[:-1], often])
