"""The places of a paper's numbers on a figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import OF_HISTOGRAMS, Experiment, PaperNumber, Plot, matches
from cubecast.lab.report.wording import NARROW, TIMES, plain

SIGNS = {"at most": "≤ ", "up to": "≤ ", "at least": "≥ ", "down to": "≥ "}


@dataclass(frozen=True, slots=True)
class Mark:
    """A printed number: its place, its curves, and its label."""

    x: Value | None
    """None: it is a bound of all x, up to `until`."""
    y: float
    series: tuple[tuple[str, Value], ...]
    text: str
    number: str = ""
    """What is printed: marks that have it in common are one number in several readings."""
    until: float = 0.0


def marks(experiment: Experiment, plot: Plot) -> list[Mark]:
    """The paper's numbers that belong on a figure, each once whatever its readings."""
    if not plot.marks:
        return []
    return list(dict.fromkeys(_all(experiment, plot)))


def _all(experiment: Experiment, plot: Plot) -> Iterator[Mark]:
    for number in experiment.paper:
        at = {**experiment.fixed, **number.at}
        limited = not number.counts or number.tolerance_from == "limit of ours"
        if limited or not matches(at, plot.where):
            continue
        series = tuple((name, at[name]) for name in plot.series if name in at)
        name = number.row or f"{number.section} {number.what}"
        if number.fold:
            if _is_limit(plot, number) and (y := _height(plot, number)) is not None:
                yield Mark(None, y, series, _text(number, number.value), name, number.until)
            continue
        for x, y, value in _places(plot, number, at):
            yield Mark(x, y, series, _text(number, value), name)


def _is_limit(plot: Plot, number: PaperNumber) -> bool:
    """Whether it bounds all points of a figure of ratios."""
    return bool(plot.ratio_to) and number.bound in SIGNS and plot.x in number.over


def _text(number: PaperNumber, value: float) -> str:
    """The value with the digits that are printed: of a distribution each count by itself."""
    printed = number.printed
    text = plain(value)
    if printed is not None and value == number.value and printed.value is None:
        decimals = len(printed.printed.partition(".")[2])
        text = f"{value:,.{decimals}f}"
    if number.form in ("more", "less"):
        unit = f"{NARROW}{number.unit}" if number.unit not in ("", TIMES) else number.unit
        text = f"{text}{unit} {number.form}"
    return f"{SIGNS.get(number.bound, '')}{text}"


def _places(plot: Plot, number: PaperNumber, at: Settings) -> Iterator[tuple[Value, float, float]]:
    """Where a number stands, and its value; a distribution has a place for each of its bins."""
    of_histogram = plot.kind in OF_HISTOGRAMS
    if of_histogram and number.printed is not None and number.printed.bins:
        for metric, count in zip((number.metric, *number.also), number.printed.bins, strict=True):
            if metric in plot.marks_at:
                yield plot.marks_at[metric], float(count), float(count)
        return
    x = plot.marks_at.get(number.metric) if of_histogram else at.get(plot.x)
    y = _height(plot, number)
    alone = not number.also and number.scale == 1.0 and number.offset == 0.0
    if x is not None and y is not None and alone:
        yield x, y, number.value


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
