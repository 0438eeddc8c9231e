"""The places of a paper's numbers on a figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import OF_HISTOGRAMS, Experiment, PaperNumber, Plot, matches
from cubecast.lab.report.wording import rounded

SIGNS = {"at most": "≤ ", "up to": "≤ ", "at least": "≥ ", "down to": "≥ "}


@dataclass(frozen=True, slots=True)
class Mark:
    """A printed number: its place, its curves, and its label."""

    x: Value
    y: float
    series: tuple[tuple[str, Value], ...]
    text: str


def marks(experiment: Experiment, plot: Plot) -> list[Mark]:
    """The paper's numbers that belong on a figure, each once whatever its readings."""
    if not plot.marks:
        return []
    return list(dict.fromkeys(_all(experiment, plot)))


def _all(experiment: Experiment, plot: Plot) -> Iterator[Mark]:
    for number in experiment.paper:
        at = {**experiment.fixed, **number.at}
        limited = not number.counts or number.tolerance_from == "limit of ours"
        if number.fold or limited or not matches(at, plot.where):
            continue
        series = tuple((name, at[name]) for name in plot.series if name in at)
        for x, y in _places(plot, number, at):
            yield Mark(x, y, series, f"{SIGNS.get(number.bound, '')}{rounded(y)}")


def _places(plot: Plot, number: PaperNumber, at: Settings) -> Iterator[tuple[Value, float]]:
    """Where a number stands; a distribution has a place for each of its bins."""
    of_histogram = plot.kind in OF_HISTOGRAMS
    if of_histogram and number.printed is not None and number.printed.bins:
        for metric, count in zip((number.metric, *number.also), number.printed.bins, strict=True):
            if metric in plot.marks_at:
                yield plot.marks_at[metric], float(count)
        return
    x = plot.marks_at.get(number.metric) if of_histogram else at.get(plot.x)
    y = _height(plot, number)
    plain = not number.also and number.scale == 1.0 and number.offset == 0.0
    if x is not None and y is not None and plain:
        yield x, y


def _height(plot: Plot, number: PaperNumber) -> float | None:
    """The number on the axis of the figure; None if it does not belong there."""
    if plot.kind not in OF_HISTOGRAMS and number.metric not in plot.metrics():
        return None
    if not plot.ratio_to:
        return number.value if number.form == "value" else None
    if dict(number.versus) != dict(plot.ratio_to) or number.versus_metric:
        return None
    share = number.value / 100 if number.unit == "%" else number.value
    heights = {"ratio": share, "more": 1 + share, "less": 1 - share}
    return heights.get(number.form)
