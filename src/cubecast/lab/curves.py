"""From rows to curves: what a figure shows, before anything is drawn.

1. Equal rows in any order give equal curves: curves and points follow the experiment's grid.
2. No two points of a curve share an x: a setting that tells them apart, and that the plot does not
   name, becomes part of the curve's name.
3. What is left out (numbers that are none, what a logarithmic axis cannot show) is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import Experiment, Plot, matches
from cubecast.lab.results import HistogramRow
from cubecast.lab.verdicts import Row
from cubecast.lab.words import metric_label, setting_label, spaced, varying

METRIC = "metric"
"""The part of a curve's name that tells the metrics of one plot apart."""
Key: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A measured point; `ci` is half the width of its confidence interval."""

    x: Value
    y: float
    ci: float
    n: int


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one name, in the order of x."""

    key: Key
    label: str
    points: tuple[Point, ...]

    def value(self, name: str) -> Value | None:
        """The value of a setting in the curve's name."""
        return dict(self.key).get(name)


@dataclass(frozen=True, slots=True)
class Curves:
    """All curves of a figure, and what could not be shown."""

    curves: tuple[Curve, ...]
    xs: tuple[Value, ...]
    """Every x, in order."""
    dropped: int = 0
    """Points that the axes cannot show."""

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds of a point."""
        counts = [point.n for curve in self.curves for point in curve.points]
        return min(counts, default=0), max(counts, default=0)

    @property
    def varying(self) -> list[str]:
        """The parts of the curves' names that are not the same for all of them."""
        names = list(dict.fromkeys(name for curve in self.curves for name, _ in curve.key))
        return [
            name for name in names if len({repr(curve.value(name)) for curve in self.curves}) > 1
        ]


@dataclass(frozen=True, slots=True)
class _Sample:
    """A row or a bucket, as a point that does not know its curve yet."""

    settings: Settings
    point: Point


def curves_of(experiment: Experiment, plot: Plot, rows: Iterable[Row]) -> Curves:
    """The curves of a figure of lines or bars; with several metrics, one for each of them."""
    metrics = plot.metrics()
    rows = [row for row in rows if row.metric in metrics and matches(row.settings, plot.where)]
    samples = [
        _Sample({**row.settings, METRIC: row.metric}, Point(x, row.mean, row.ci, row.n))
        for row in rows
        if (x := row.settings.get(plot.x)) is not None
    ]
    series = [*plot.series, METRIC] if len(metrics) > 1 else plot.series
    return _collect(experiment, plot, samples, series)


def buckets_of(experiment: Experiment, plot: Plot, rows: Iterable[HistogramRow]) -> Curves:
    """The curves of a histogram: counts by bucket, or shares of all in per cent."""
    own = [row for row in rows if row.name == plot.x and matches(row.settings, plot.where)]
    totals: dict[str, float] = {}
    for row in own:
        place = repr(sorted(row.settings.items()))
        totals[place] = totals.get(place, 0.0) + row.mean
    samples = []
    for row in own:
        total = totals[repr(sorted(row.settings.items()))]
        scale = 100.0 / total if shows_shares(plot) and total else 1.0
        point = Point(row.bucket, row.mean * scale, row.ci * scale, row.n)
        samples.append(_Sample(row.settings, point))
    return _collect(experiment, plot, samples, plot.series)


def shows_shares(plot: Plot) -> bool:
    """Whether a histogram shows shares: if its axis is called a share of something."""
    return plot.kind == "histogram" and plot.y_label.startswith("share")


def _collect(
    experiment: Experiment, plot: Plot, samples: Sequence[_Sample], series: Sequence[str]
) -> Curves:
    shown = [sample for sample in samples if _can_be_shown(plot, sample.point)]
    series = [*series, *_unnamed(shown, series, plot.x)]
    order = order_of(experiment, plot.metrics())
    groups: dict[Key, list[Point]] = {}
    for sample in shown:
        key = tuple((name, sample.settings[name]) for name in series if name in sample.settings)
        groups.setdefault(key, []).append(sample.point)
    by_x = order(plot.x)
    curves = [
        Curve(key, label(key), tuple(sorted(points, key=lambda point: by_x(point.x))))
        for key, points in groups.items()
    ]
    curves.sort(key=lambda curve: [order(name)(value) for name, value in curve.key])
    xs = {repr(point.x): point.x for curve in curves for point in curve.points}
    if curves and not any(curve.label for curve in curves):
        curves = [replace(curve, label=spaced(plot.metrics()[0])) for curve in curves]
    dropped = len(samples) - len(shown)
    return Curves(tuple(curves), tuple(sorted(xs.values(), key=by_x)), dropped)


def _can_be_shown(plot: Plot, point: Point) -> bool:
    if not math.isfinite(point.y) or (plot.log_y and point.y <= 0):
        return False
    if plot.kind != "lines":  # Bars stand side by side, whatever is below them.
        return True
    return not (plot.log_x and isinstance(point.x, int | float) and point.x <= 0)


def _unnamed(samples: Sequence[_Sample], series: Sequence[str], x: str) -> list[str]:
    """Settings that differ between points of one curve with the same x."""
    together: dict[str, list[Settings]] = {}
    for sample in samples:
        place = repr(([sample.settings.get(name) for name in series], sample.point.x))
        together.setdefault(place, []).append(sample.settings)
    found = {name for points in together.values() for name in varying(points)}
    return sorted(found - {*series, x})


def label(key: Key) -> str:
    """The name of a curve: what its settings and its metric are."""
    words = [
        metric_label(str(value)) if name == METRIC else setting_label(name, value)
        for name, value in key
    ]
    return ", ".join(words)


Rank: TypeAlias = tuple[int, float, str]


def order_of(
    experiment: Experiment, metrics: Sequence[Value]
) -> Callable[[str], Callable[[Value], Rank]]:
    """How values of a setting are ordered: words as the grid lists them, numbers by size."""

    def order(name: str) -> Callable[[Value], Rank]:
        listed = list(metrics) if name == METRIC else []
        for block in experiment.grid:
            listed += block.axes.get(name, [])

        def rank(value: Value) -> Rank:
            if isinstance(value, int | float):
                return 0, float(value), ""
            return 1, float(listed.index(value)) if value in listed else math.inf, value

        return rank

    return order
