"""From aggregated rows to the one value that is compared with a number of a paper.

A *row* is the mean of one metric at one point of a grid, over its seeds.  A comparison takes one
point or all points of some axes (`Point`s), and folds them into one value with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cubecast.lab.cells import Settings, Value
from cubecast.lab.comparisons import Form, PaperNumber
from cubecast.lab.experiment import matches
from cubecast.lab.intervals import deviation, interval
from cubecast.lab.papers.table import paper_of

PRINTED_CONFIDENCE = 0.99
"""Of the intervals that [B] reports, which the form `interval` is compared with."""


OF_ONE_SIDE: tuple[Form, ...] = ("value", "interval", "deviation")
"""The forms that compare no two points."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric at one point of the grid."""

    experiment: str
    settings: Settings
    metric: str
    mean: float
    ci: float
    """Half the width of the 95 % confidence interval; 0 if there is one seed."""
    n: int
    """Seeds."""


@dataclass(frozen=True, slots=True)
class Point:
    """The compared value at one point of a curve."""

    key: tuple[Value, ...]
    """Where it is, on the axes that are folded."""
    value: float
    ci: float
    n: int
    """Seeds, of the poorer side where two are compared."""

    @property
    def x(self) -> float:
        """Its place on a single axis with numbers."""
        first = self.key[0] if self.key else 0.0
        return float(first) if isinstance(first, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class Ours:
    """Our value for a number of a paper."""

    value: float
    ci: float
    n: int
    """Seeds of the point with the fewest."""
    seeds: int
    """Seeds of the point that decides: its interval is the value's."""


def our_value(number: PaperNumber, rows: Sequence[Row], grid: Sequence[Settings]) -> Ours | None:
    """Our value for a number; None if its points were not measured.

    A value that many points give needs all of those that the grid has: the largest of the small
    systems, which a quick run measures, keeps no bound of the large ones.
    """
    if number.fold and not _is_whole(number, rows, grid):
        return None
    if number.printed is not None and number.printed.kind == "distribution":
        return _distance(number, number.printed.bins, rows)
    curve = curve_of(number, rows)
    folded = _fold(number, curve)
    if folded is None:
        return None
    scale = 100.0 if number.unit == "%" and number.form in ("more", "less", "ratio") else 1.0
    scale *= number.scale
    n = min(point.n for point in curve)
    return Ours(number.offset + folded.value * scale, folded.ci * abs(scale), n, folded.n)


def curve_of(number: PaperNumber, rows: Sequence[Row]) -> list[Point]:
    """The compared value at every point of the folded axes, or at the one point."""
    axes = _axes(number)
    first = points_of(rows, (number.metric, *number.also), number.at, axes)
    curve: list[Point] = []
    if number.form in OF_ONE_SIDE:
        curve = [_alone(number, point) for point in first.values()]
    else:
        other = {**number.at, **number.versus}
        second = points_of(rows, (number.versus_metric or number.metric,), other, axes)
        for key, point in first.items():
            pair = second.get(_moved(key, axes, number.versus))
            if pair is not None and (number.form == "difference" or pair.value != 0):
                curve.append(_compared(number.form, point, pair))
    curve = [point for point in curve if _is_within(number, point.x)]
    return sorted(curve, key=lambda point: (point.x, repr(point.key)))


def _axes(number: PaperNumber) -> list[str]:
    return number.over or ([number.along] if number.along else [])


def _is_within(number: PaperNumber, x: float) -> bool:
    return number.since <= x <= (number.until or math.inf)


def _is_whole(number: PaperNumber, rows: Sequence[Row], grid: Sequence[Settings]) -> bool:
    """Whether the rows have all the places that the comparison has in the grid."""
    other = number.versus_metric or number.metric
    first = [row.settings for row in rows if row.metric == number.metric]
    second = [row.settings for row in rows if row.metric == other]
    return _places(number, grid, grid) <= _places(number, first, second)


def _places(
    number: PaperNumber, first: Sequence[Settings], second: Sequence[Settings]
) -> set[tuple[Value, ...]]:
    """The places on the folded axes where all sides of the comparison are there."""
    axes = _axes(number)
    here = {
        key
        for key in _keys(first, number.at, axes)
        if _is_within(number, Point(key, 0.0, 0.0, 0).x)
    }
    if number.form in OF_ONE_SIDE:
        return here
    there = _keys(second, {**number.at, **number.versus}, axes)
    return {key for key in here if _moved(key, axes, number.versus) in there}


def _keys(points: Sequence[Settings], at: Settings, axes: Sequence[str]) -> set[tuple[Value, ...]]:
    return {tuple(point[axis] for axis in axes) for point in points if matches(point, at)}


def _moved(
    key: tuple[Value, ...], axes: Sequence[str], versus: Mapping[str, Value]
) -> tuple[Value, ...]:
    """The place of the other point: an axis that `versus` names has its value there."""
    return tuple(versus.get(axis, value) for axis, value in zip(axes, key, strict=True))


def points_of(
    rows: Iterable[Row], metrics: Sequence[str], at: Settings, axes: Sequence[str]
) -> dict[tuple[Value, ...], Point]:
    """The sum of the metrics at the points that have these settings, by their place on the axes.

    Metrics of the same runs are not independent: their intervals are added.
    """
    found: dict[tuple[Value, ...], dict[str, Row]] = {}
    for row in rows:
        if row.metric in metrics and matches(row.settings, at):
            key = tuple(row.settings[axis] for axis in axes)
            found.setdefault(key, {})[row.metric] = row
    return {
        key: Point(
            key,
            sum(there[metric].mean for metric in metrics),
            sum(there[metric].ci for metric in metrics),
            min(row.n for row in there.values()),
        )
        for key, there in found.items()
        if len(there) == len(set(metrics))
    }


def _alone(number: PaperNumber, point: Point) -> Point:
    """The value itself, or the spread of its runs, in per cent of it."""
    if number.form == "value":
        return point
    if point.n < 2 or point.value == 0:
        return Point(point.key, 0.0, 0.0, point.n)
    share = 100 * deviation(point.ci, point.n) / abs(point.value)
    doubt = share / math.sqrt(2 * (point.n - 1)) * 2  # 95 % of a standard deviation, about
    if number.form == "interval":
        paper = paper_of(number.row)
        scale = interval(1.0, paper.runs, PRINTED_CONFIDENCE)
        share, doubt = share * scale, doubt * scale
    return Point(point.key, share, doubt, point.n)


def _compared(form: Form, a: Point, b: Point) -> Point:
    """The value, and its confidence interval by the rule for independent errors.

    Runs of one seed have the same workload in both, but hardly vary together: pairing them gives
    intervals of about the same width.
    """
    n = min(a.n, b.n)
    if form == "difference":
        return Point(a.key, a.value - b.value, math.hypot(a.ci, b.ci), n)
    ratio = a.value / b.value
    value = {"ratio": ratio, "more": ratio - 1, "less": 1 - ratio}[form]
    return Point(a.key, value, math.hypot(a.ci, ratio * b.ci) / abs(b.value), n)


# -- from a curve to one value ---------------------------------------------------------------------


def _fold(number: PaperNumber, curve: Sequence[Point]) -> Point | None:
    if not curve:
        return None
    match number.fold:
        case "log-fit" | "linear-fit":
            if len(curve) < 3:
                return None
            scale: Callable[[float], float] = math.log2 if number.fold == "log-fit" else float
            law = fit([scale(point.x) for point in curve], [point.value for point in curve])
            return Point((), law, 0.0, min(point.n for point in curve))
        case "mean":
            return Point(
                (),
                sum(point.value for point in curve) / len(curve),
                math.hypot(*(point.ci for point in curve)) / len(curve),
                min(point.n for point in curve),
            )
        case fold:
            return min(curve, key=lambda point: point.value * (-1 if fold == "max" else 1))


def fit(xs: Sequence[float], ys: Sequence[float]) -> float:
    """R² of the straight line through the points: 1 is a perfect fit."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    sxx = sum((x - mean_x) ** 2 for x in xs)
    syy = sum((y - mean_y) ** 2 for y in ys)
    sxy = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return 1.0 if syy == 0 else sxy * sxy / (sxx * syy) if sxx else 0.0


# -- a distribution --------------------------------------------------------------------------------


def _distance(number: PaperNumber, printed: Sequence[float], rows: Sequence[Row]) -> Ours | None:
    """The distance of Kolmogorov and Smirnov between two distributions over bins, in per cent.

    It is the largest difference of the shares below a bound of bins.  A share below is a sum of
    bins, and 1 less the sum of the others: the narrower of the two sums of intervals is its own.
    Nodes of a run are far from independent, so no textbook table of the statistic holds: the
    spread of single runs decides.
    """
    bins = []
    for metric in (number.metric, *number.also):
        found = points_of(rows, (metric,), number.at, ())
        if () not in found:
            return None
        bins.append(found[()])
    ours, papers = sum(point.value for point in bins), sum(printed)
    if not ours:
        return None
    best, ci = -1.0, 0.0
    for cut in range(1, len(bins)):
        below, above = bins[:cut], bins[cut:]
        apart = abs(sum(point.value for point in below) / ours - sum(printed[:cut]) / papers)
        if apart > best:
            best = apart
            ci = min(sum(p.ci for p in below), sum(p.ci for p in above)) / ours
    n = min(point.n for point in bins)
    return Ours(100 * best, 100 * ci, n, n)
