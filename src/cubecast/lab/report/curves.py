"""From rows to curves: the data of a figure, before anything is drawn.

1. Equal rows in any order give equal curves: curves and points follow the experiment's grid.
2. No two points of a curve share an x: a setting that distinguishes them, and that the plot does
   not name, becomes part of the curve's name.
3. Values that are left out (not a number, not possible on a logarithmic axis, the thin end of a
   distribution) are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import OF_HISTOGRAMS, Experiment, Plot, matches
from cubecast.lab.report.data import HistogramRow
from cubecast.lab.report.wording import metric_label, setting_label, spaced, varying
from cubecast.lab.stan import PRESET
from cubecast.lab.verdicts import Row
from cubecast.overlay.universes.presets import PRESETS

METRIC = "metric"
"""The part of a curve's name that distinguishes the metrics of one plot."""
FEW_SEEDS = 5
"""Points of fewer seeds are drawn as such: their intervals say little."""
TAIL, LOG_TAIL = 0.02, 0.0005
"""The share at the end of a distribution that is left out; less on a logarithmic axis."""
Key: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured point; `ci` is half the width of its confidence interval."""

    x: Value
    y: float
    ci: float
    n: int

    @property
    def few(self) -> bool:
        return self.n < FEW_SEEDS


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one name, in the order of x."""

    key: Key
    label: str
    points: tuple[MeasuredPoint, ...]
    level: bool = False
    """Whether its one value holds for every x."""

    def value(self, name: str) -> Value | None:
        """The value of a setting in the curve's name."""
        return dict(self.key).get(name)


@dataclass(frozen=True, slots=True)
class Curves:
    """All curves of a figure, and the number of points that could not be shown."""

    curves: tuple[Curve, ...]
    xs: tuple[Value, ...]
    """Every x, in order."""
    dropped: int = 0
    """Points that the axes cannot show."""
    cut: tuple[int, float] | None = None
    """The last bucket that is shown, and the largest share that a curve has beyond it."""

    @property
    def points(self) -> list[MeasuredPoint]:
        return [point for curve in self.curves for point in curve.points]

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds of a point."""
        counts = [point.n for point in self.points]
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
    """A row or a bucket, as a point without a curve."""

    settings: Settings
    point: MeasuredPoint


def shown_in(
    experiment: Experiment, plot: Plot, rows: Iterable[Row], histograms: Iterable[HistogramRow]
) -> Curves:
    """The curves of any figure."""
    if plot.kind in OF_HISTOGRAMS:
        return buckets_of(experiment, plot, histograms)
    return curves_of(experiment, plot, rows)


# -- lines, bars, dots ----------------------------------------------------------------------------


def curves_of(experiment: Experiment, plot: Plot, rows: Iterable[Row]) -> Curves:
    """The curves of a figure of rows; with several metrics, one for each of them."""
    metrics = plot.metrics()
    rows = [row for row in rows if row.metric in metrics and matches(row.settings, plot.where)]
    if plot.ratio_to:
        rows = _ratios(plot.ratio_to, rows)
    samples = [
        _Sample({**row.settings, METRIC: row.metric}, MeasuredPoint(x, row.mean, row.ci, row.n))
        for row in rows
        if (x := _x_of(plot, row.settings)) is not None
    ]
    series = [*plot.series, METRIC] if len(metrics) > 1 else plot.series
    return _collect(experiment, plot, samples, series)


def _x_of(plot: Plot, settings: Settings) -> Value | None:
    """Where a point stands.  A correlation of -1 stands for that of the universe's preset."""
    x = settings.get(plot.x)
    if plot.x == "correlation" and x == PRESET:
        parameters = PRESETS.get(str(settings.get("universe")))
        return None if parameters is None else parameters.correlation
    return x


def _ratios(base: Settings, rows: Sequence[Row]) -> list[Row]:
    """Each row divided by the one with the settings of `base`, which is left out itself.

    The interval is that of a ratio with independent errors, as in `cubecast.lab.verdicts`.
    """
    known = {(row.metric, identity(row.settings)): row for row in rows}
    found = []
    for row in rows:
        below = known.get((row.metric, identity({**row.settings, **base})))
        if below is not None and below is not row and below.mean:
            ratio = row.mean / below.mean
            ci = math.hypot(row.ci, ratio * below.ci) / abs(below.mean)
            found.append(replace(row, mean=ratio, ci=ci, n=min(row.n, below.n)))
    return found


def identity(settings: Settings) -> str:
    """Equal for equal settings, in whatever order they stand."""
    return repr(sorted(settings.items()))


# -- histograms -----------------------------------------------------------------------------------


def buckets_of(experiment: Experiment, plot: Plot, rows: Iterable[HistogramRow]) -> Curves:
    """The curves of a histogram: counts by bucket, or shares of all in per cent."""
    own = [row for row in rows if row.name == plot.x and matches(row.settings, plot.where)]
    totals: dict[str, float] = {}
    for row in own:
        place = identity(row.settings)
        totals[place] = totals.get(place, 0.0) + row.mean
    samples = []
    for row in own:
        total = totals[identity(row.settings)]
        scale = 100.0 / total if shows_shares(plot) and total else 1.0
        x = row.bucket if plot.bin_width == 1 else row.bucket * plot.bin_width**0.5
        point = MeasuredPoint(x, row.mean * scale, row.ci * scale, row.n)
        samples.append(_Sample(row.settings, point))
    shown = _collect(experiment, plot, samples, plot.series)
    if plot.kind == "cumulative":
        shown = replace(shown, curves=tuple(map(_cumulated, shown.curves)))
    return shown if plot.kind == "timeline" or plot.log_x else _without_tail(plot, shown)


def shows_shares(plot: Plot) -> bool:
    """Whether a histogram shows shares: if its axis is called a share of something."""
    return plot.kind == "cumulative" or (
        plot.kind == "histogram" and plot.y_label.startswith("share")
    )


def is_percentage(plot: Plot, shown: Curves) -> bool:
    """Whether a figure shows shares in per cent, which are from 0 to 100."""
    named = shows_shares(plot) or (plot.kind not in OF_HISTOGRAMS and "%" in plot.y_label)
    return named and all(0 <= point.y <= 100 for point in shown.points)


def _cumulated(curve: Curve) -> Curve:
    """The share of all up to each bucket.  The intervals of sums are not those of the parts."""
    total, points = 0.0, []
    for point in curve.points:
        total += point.y
        points.append(replace(point, y=total, ci=0.0))
    return replace(curve, points=tuple(points))


def _without_tail(plot: Plot, shown: Curves) -> Curves:
    """Without the buckets at the end in which no curve has more than a tiny share."""
    allowed = LOG_TAIL if plot.log_y else TAIL
    beyond = {int(x): max(_beyond(plot, curve, int(x)) for curve in shown.curves) for x in shown.xs}
    last = next((x for x, share in beyond.items() if share <= allowed), None)
    if last is None or not beyond[last]:
        return shown
    curves = (
        replace(curve, points=tuple(point for point in curve.points if int(point.x) <= last))
        for curve in shown.curves
    )
    xs = tuple(x for x in shown.xs if int(x) <= last)
    return replace(shown, curves=tuple(curves), xs=xs, cut=(last, beyond[last]))


def _beyond(plot: Plot, curve: Curve, last: int) -> float:
    """The share of a distribution that is above a bucket."""
    if plot.kind == "cumulative":
        below = [point.y for point in curve.points if int(point.x) <= last]
        return 1 - (below[-1] / 100 if below else 0.0)
    total = sum(point.y for point in curve.points)
    above = sum(point.y for point in curve.points if int(point.x) > last)
    return above / total if total else 0.0


# -- both -----------------------------------------------------------------------------------------


def _collect(
    experiment: Experiment, plot: Plot, samples: Sequence[_Sample], series: Sequence[str]
) -> Curves:
    shown = [sample for sample in samples if _can_be_shown(plot, sample.point)]
    series = [*series, *_unnamed(shown, series, plot.x)]
    order = order_of(experiment, plot.metrics(), dict.fromkeys((plot.x, *series[:1]), plot.order))
    groups: dict[Key, list[MeasuredPoint]] = {}
    for sample in shown:
        key = tuple((name, sample.settings[name]) for name in series if name in sample.settings)
        groups.setdefault(key, []).append(sample.point)
    by_x = order(plot.x)
    curves = [
        Curve(key, label(key), tuple(sorted(points, key=lambda point: by_x(point.x))),
              bool(plot.level) and matches(dict(key), plot.level))
        for key, points in groups.items()
    ]  # fmt: skip
    curves.sort(key=lambda curve: [order(name)(value) for name, value in curve.key])
    xs = {repr(point.x): point.x for curve in curves for point in curve.points}
    if curves and not any(curve.label for curve in curves):
        curves = [replace(curve, label=spaced(plot.metrics()[0])) for curve in curves]
    dropped = len(samples) - len(shown)
    return Curves(tuple(curves), tuple(sorted(xs.values(), key=by_x)), dropped)


def shows_zero(plot: Plot) -> bool:
    """Whether a logarithmic axis is linear below 1, so that it has a zero."""
    return plot.log_y and (plot.zero or plot.kind == "dots")


def _can_be_shown(plot: Plot, point: MeasuredPoint) -> bool:
    if not math.isfinite(point.y):
        return False
    if plot.log_y and (point.y < 0 if shows_zero(plot) else point.y <= 0):
        return False
    if plot.kind != "lines":  # Others stand side by side, whatever is below them.
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
    """The name of a curve: its settings and its metric."""
    words = [
        metric_label(str(value)) if name == METRIC else setting_label(name, value)
        for name, value in key
    ]
    return ", ".join(words)


Rank: TypeAlias = tuple[int, float, str]


def order_of(
    experiment: Experiment,
    metrics: Sequence[Value],
    first: Mapping[str, Sequence[Value]] = MappingProxyType({}),
) -> Callable[[str], Callable[[Value], Rank]]:
    """How values of a setting are ordered: words as the grid lists them, numbers by size.

    Words in `first` come before others.
    """

    def order(name: str) -> Callable[[Value], Rank]:
        listed = [*first.get(name, ()), *(metrics if name == METRIC else ())]
        for block in experiment.grid:
            listed += block.axes.get(name, [])

        def rank(value: Value) -> Rank:
            if isinstance(value, int | float):
                return 0, float(value), ""
            return 1, float(listed.index(value)) if value in listed else math.inf, value

        return rank

    return order
