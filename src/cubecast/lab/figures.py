"""Figures: an experiment's plots drawn from aggregated rows, as PNG, SVG and SVG inside a page.

Colours are safe for the colour-blind (Okabe and Ito), and no curve is told by its colour alone:
each has its own marker.  A protocol has the same colour in every figure.  Error bars are 95 %
confidence intervals.  Hollow diamonds are the numbers that a paper prints.

The same curves give the same bytes: no dates, and names inside an SVG come from a fixed salt.
Importing this module needs matplotlib (``pip install 'cubecast[lab]'``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any, TypeAlias

import matplotlib
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from cubecast.lab.cells import Value
from cubecast.lab.curves import METRIC, Curve, Curves, Point, buckets_of, curves_of, shows_shares
from cubecast.lab.experiment import Experiment, Mark, Plot, marks
from cubecast.lab.results import HistogramRow
from cubecast.lab.verdicts import Row
from cubecast.lab.words import PROTOCOL_NAMES, plain, rounded, setting_text, spaced

INK, GRID, PAPER = "#22303c", "#dde3e8", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280")
PROTOCOL_COLOURS = {
    name: COLOURS[index]
    for index, name in enumerate(
        ("vcube-ps", "srpt", "cubecast", "srpt-b", "fixed-tree", "vcube-pb", "best-effort")
    )
}
MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">", "p", "h")
LINES = ("-", "--", ":", "-.")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oo")
PRINTED = "printed in the paper"

WIDTH, HEIGHT, DPI = 5.6, 3.7, 200
MOST_TICKS = 11
MOST_BARS = 60
"""Of a histogram; of more buckets only the outline is drawn."""
Group: TypeAlias = tuple[tuple[str, Value], ...]
"""What the bars of one stack have in common."""
POWERS_FROM = 65_536
"""Axes that reach this far in powers of two are labelled 2^k."""

_STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"], "font.size": 9, "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7,
    "xtick.color": INK, "ytick.color": INK, "xtick.minor.size": 0, "ytick.minor.size": 0,
    "legend.frameon": False, "legend.fontsize": 8.5, "legend.handlelength": 2.4,
    "hatch.linewidth": 0.6, "lines.linewidth": 1.6, "lines.markersize": 5,
    "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER,
    "svg.fonttype": "path", "svg.hashsalt": "cubecast", "axes.unicode_minus": True,
    "path.simplify": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure in its formats, and what its caption has to say beside the title."""

    svg: bytes
    png: bytes
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    colour: str
    marker: str
    line: str
    hatch: str
    hollow: bool


def draw(
    experiment: Experiment,
    plot: Plot,
    rows: Sequence[Row],
    histograms: Sequence[HistogramRow] = (),
) -> Drawing | None:
    """One figure of an experiment; None if none of its points was measured."""
    if plot.kind in ("histogram", "timeline"):
        shown = buckets_of(experiment, plot, histograms)
    else:
        shown = curves_of(experiment, plot, rows)
    if not shown.curves:
        return None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(_STYLE)
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        printed = _draw_on(axes, experiment, plot, shown)
        _label_axes(axes, plot)
        _add_legend(figure, axes)
        return Drawing(_saved(figure, "svg"), _saved(figure, "png"), _notes(plot, shown, printed))


def save(drawing: Drawing, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg."""
    png, svg = (stem.parent / f"{stem.name}.{kind}" for kind in ("png", "svg"))
    png.write_bytes(drawing.png)
    svg.write_bytes(drawing.svg)
    return png, svg


def _saved(figure: Any, kind: str) -> bytes:
    buffer = BytesIO()
    nothing = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(buffer, format=kind, dpi=DPI if kind == "png" else 72, metadata=nothing)
    return buffer.getvalue()


def _draw_on(axes: Any, experiment: Experiment, plot: Plot, shown: Curves) -> bool:
    """Draw curves and axes; whether numbers of a paper are among them."""
    if plot.kind == "histogram":
        _draw_histogram(axes, plot, shown)
        return False
    if plot.kind == "timeline":
        _draw_lines(axes, plot, shown, [])
        return False
    printed = [mark for mark in marks(experiment, plot) if _is_shown(mark, plot, shown)]
    if plot.kind == "bars":
        printed = [] if _is_stacked(shown) else printed
        _draw_bars(axes, plot, shown, printed)
    else:
        _draw_lines(axes, plot, shown, printed)
    return bool(printed)


def _is_shown(mark: Mark, plot: Plot, shown: Curves) -> bool:
    """A printed number is marked only where a point of ours is beside it."""
    return any(
        point.x == mark.x and _belongs(mark, curve)
        for curve in shown.curves
        for point in curve.points
    ) and not (plot.log_y and mark.y <= 0)


def _belongs(mark: Mark, curve: Curve) -> bool:
    return all(curve.value(name) == value for name, value in mark.series.items())


def _notes(plot: Plot, shown: Curves, printed: bool) -> tuple[str, ...]:
    fewest, most = shown.seeds
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    notes = []
    if most == 1:
        notes.append("One seed per point: no confidence intervals.")
    elif _has_error_bars(plot, shown):
        notes.append(f"Error bars: 95 % confidence intervals over {seeds} seeds.")
    else:
        notes.append(f"Means over {seeds} seeds.")
    if printed:
        notes.append("Diamonds: the numbers that the paper prints.")
    if shown.dropped:
        what = "points are" if shown.dropped > 1 else "point is"
        notes.append(f"{shown.dropped} {what} not shown: zero on a logarithmic axis, or no number.")
    return tuple(notes)


def _has_error_bars(plot: Plot, shown: Curves) -> bool:
    if plot.kind == "histogram" and _are_many(plot, shown):
        return False
    return any(_errors(plot, curve.points) for curve in shown.curves)


# -- looks ----------------------------------------------------------------------------------------


def _looks(shown: Curves) -> list[_Look]:
    """Colour by protocol if there are several, else by the first thing that varies; lines and
    hatches by the rest; markers by the curve."""
    varying = shown.varying
    main = "protocol" if "protocol" in varying else (varying or [""])[0]
    kinds: list[Value | None] = []
    rests: list[str] = []
    looks = []
    for index, curve in enumerate(shown.curves):
        kind = curve.value(main)
        rest = repr([curve.value(name) for name in varying if name != main])
        kinds += [] if kind in kinds else [kind]
        rests += [] if rest in rests else [rest]
        colour = COLOURS[kinds.index(kind) % len(COLOURS)]
        if main == "protocol" or not varying:
            colour = PROTOCOL_COLOURS.get(str(curve.value("protocol")), colour)
        which = rests.index(rest)
        line, hatch = LINES[which % len(LINES)], HATCHES[which % len(HATCHES)]
        looks.append(_Look(colour, MARKERS[index % len(MARKERS)], line, hatch, which % 2 == 1))
    return looks


def _legend_label(text: str) -> str:
    """As it is: a dollar sign or a leading underscore means nothing to the drawing."""
    text = text.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def _add_legend(figure: Any, axes: Any) -> None:
    """Above the axes, where it hides nothing: the curves, then what the diamonds mean."""
    pairs = list(zip(*axes.get_legend_handles_labels(), strict=True))
    if len(pairs) < 2:
        return
    pairs.sort(key=lambda pair: pair[1] == PRINTED)
    handles = [_without_error_bar(handle) for handle, _ in pairs]
    labels = [label for _, label in pairs]
    widest = max(len(text) for text in labels)
    lines = math.ceil(len(labels) / max(1, int(76 / (widest + 7))))
    columns = math.ceil(len(labels) / lines)
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.6, borderpad=0.2,
        borderaxespad=0.2, labelspacing=0.35,
    )  # fmt: skip


def _without_error_bar(handle: Any) -> Any:
    return handle[0] if isinstance(handle, ErrorbarContainer) else handle


# -- lines ----------------------------------------------------------------------------------------


def _draw_lines(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark]) -> None:
    places = _places(plot, shown)
    for index, (curve, look) in enumerate(zip(shown.curves, _looks(shown), strict=True)):
        # Of curves that coincide the lower ones are wider, so that each can be seen.
        over = sum(_coincide(curve, other) for other in shown.curves[index + 1 :])
        axes.errorbar(
            [places[point.x] for point in curve.points],
            [point.y for point in curve.points],
            yerr=_errors(plot, curve.points),
            color=look.colour, linestyle=look.line, marker=look.marker,
            markerfacecolor=PAPER if look.hollow else look.colour, markeredgewidth=1.2,
            markersize=min(5.0 + 1.6 * over, 8.2), linewidth=min(1.6 + 1.0 * over, 3.6),
            elinewidth=1.0, capsize=2.5, label=_legend_label(curve.label),
        )  # fmt: skip
    _draw_marks(axes, [(places[mark.x], mark) for mark in printed])
    _scale_y(axes, plot, shown)
    _scale_x(axes, plot, shown)


def _coincide(curve: Curve, other: Curve) -> bool:
    """Whether one would hide the other: equal to about the width of a line."""
    theirs = {point.x: point.y for point in other.points}
    both = [(point.y, theirs[point.x]) for point in curve.points if point.x in theirs]
    return len(both) > 1 and all(math.isclose(a, b, rel_tol=0.015) for a, b in both)


def _errors(plot: Plot, points: Sequence[Point]) -> list[float] | None:
    if not plot.error_bars or not any(point.ci > 0 for point in points):
        return None
    return [point.ci if math.isfinite(point.ci) else 0.0 for point in points]


def _places(plot: Plot, shown: Curves) -> dict[Value, float]:
    """Where each x is drawn: numbers where they belong, words one after the other."""
    if _is_numeric(shown.xs):
        return {x: float(x) for x in shown.xs}
    return {x: float(index) for index, x in enumerate(shown.xs)}


def _is_numeric(xs: Sequence[Value]) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)


def _draw_marks(axes: Any, printed: Sequence[tuple[float, Mark]]) -> None:
    """The paper's numbers, each with its value: above the diamond if it is the highest there."""
    if not printed:
        return
    axes.scatter(
        [x for x, _ in printed], [mark.y for _, mark in printed], marker="D", s=50,
        facecolors="none", edgecolors=INK, linewidths=1.2, zorder=5, label=PRINTED,
    )  # fmt: skip
    for y, places in _printed_once(printed):
        x = sum(places) / len(places)
        above = all(y >= mark.y for place, mark in printed if place in places)
        axes.annotate(
            rounded(y), (x, y), xytext=(0, 7 if above else -8),
            textcoords="offset points", ha="center", va="bottom" if above else "top",
            fontsize=7.5, zorder=6,
        )  # fmt: skip


def _printed_once(printed: Sequence[tuple[float, Mark]]) -> list[tuple[float, list[float]]]:
    """Each number and where it is marked: bars of one group that share it need one label."""
    found: dict[tuple[float, Value], list[float]] = {}
    for place, mark in printed:
        found.setdefault((mark.y, mark.x), []).append(place)
    return [(y, places) for (y, _), places in found.items()]


# -- bars -----------------------------------------------------------------------------------------


def _is_stacked(shown: Curves) -> bool:
    return any(curve.value(METRIC) is not None for curve in shown.curves)


def _draw_bars(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark]) -> None:
    """Groups side by side, only those that there are at an x; metrics of a group are stacked."""
    groups = list(dict.fromkeys(_group(curve) for curve in shown.curves))
    places, width = _bar_places(shown, groups)
    heights: dict[tuple[Group, Value], float] = {}
    for curve, look in zip(shown.curves, _looks(shown), strict=True):
        group = _group(curve)
        bottoms = [heights.get((group, point.x), 0.0) for point in curve.points]
        for point, bottom in zip(curve.points, bottoms, strict=True):
            heights[group, point.x] = bottom + point.y
        _add_bars(
            axes, plot, curve, look, [places[group, point.x] for point in curve.points],
            width * 0.92, bottoms,
        )  # fmt: skip
    spots = [
        (places[_group(curve), mark.x], mark)
        for mark in printed
        for curve in shown.curves
        if _belongs(mark, curve) and (_group(curve), mark.x) in places
    ]
    _draw_marks(axes, spots)
    axes.grid(visible=False, axis="x")
    _scale_y(axes, plot, shown)
    _label_words(axes, plot.x, shown.xs)


def _bar_places(
    shown: Curves, groups: Sequence[Group]
) -> tuple[dict[tuple[Group, Value], float], float]:
    """The middle of each bar, and the width of a bar."""
    there = {
        x: [
            group
            for group in groups
            if any(
                _group(curve) == group and any(point.x == x for point in curve.points)
                for curve in shown.curves
            )
        ]
        for x in shown.xs
    }
    width = 0.8 / max(len(found) for found in there.values())
    width = min(width, 0.55)
    places = {
        (group, x): middle + (index - (len(found) - 1) / 2) * width
        for middle, (x, found) in enumerate(there.items())
        for index, group in enumerate(found)
    }
    return places, width


def _add_bars(
    axes: Any, plot: Plot, curve: Curve, look: _Look, middles: Sequence[float], width: float,
    bottoms: Sequence[float],
) -> None:  # fmt: skip
    axes.bar(
        middles, [point.y for point in curve.points], width, bottom=bottoms,
        yerr=_errors(plot, curve.points), color=look.colour, edgecolor=PAPER, linewidth=0.8,
        hatch=look.hatch, error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
        label=_legend_label(curve.label),
    )  # fmt: skip


def _group(curve: Curve) -> Group:
    return tuple(part for part in curve.key if part[0] != METRIC)


# -- histograms -----------------------------------------------------------------------------------


def _draw_histogram(axes: Any, plot: Plot, shown: Curves) -> None:
    """Bars for few buckets; of many only the outline, so that curves can lie over each other."""
    buckets = _buckets(plot, shown)
    places = {bucket: float(index) for index, bucket in enumerate(buckets)}
    many = _are_many(plot, shown)
    width = 0.8 / len(shown.curves)
    for index, (curve, look) in enumerate(zip(shown.curves, _looks(shown), strict=True)):
        if many:
            heights = {int(point.x): point.y for point in curve.points}
            axes.stairs(
                [heights.get(bucket, 0.0) for bucket in buckets],
                [bucket - 0.5 for bucket in [*buckets, buckets[-1] + 1]],
                color=look.colour, linestyle=LINES[index % len(LINES)], linewidth=1.3,
                baseline=None if plot.log_y else 0.0, label=_legend_label(curve.label),
            )  # fmt: skip
        else:
            offset = (index - (len(shown.curves) - 1) / 2) * width
            middles = [places[int(point.x)] + offset for point in curve.points]
            ground = [0.0] * len(middles)
            _add_bars(axes, plot, curve, look, middles, width * 0.92, ground)
    _scale_y(axes, plot, shown)
    axes.grid(visible=False, axis="x")
    axes.margins(x=0.01)
    if not many:
        step = 1 if _doubles(buckets) else math.ceil(len(buckets) / MOST_TICKS)
        axes.set_xticks([places[bucket] for bucket in buckets[::step]])
        labels = [plain(bucket) for bucket in buckets[::step]]
        axes.set_xticklabels(labels, rotation=30 if len("  ".join(labels)) > 60 else 0)


def _are_many(plot: Plot, shown: Curves) -> bool:
    return len(_buckets(plot, shown)) * len(shown.curves) > MOST_BARS


def _buckets(plot: Plot, shown: Curves) -> list[int]:
    """All buckets from the first to the last: every number, or zero and the powers of two."""
    found = [int(x) for x in shown.xs]
    if plot.log_x and _doubles(found):
        least = min((bucket for bucket in found if bucket), default=1)
        powers = [1 << power for power in range(least.bit_length() - 1, found[-1].bit_length())]
        return [0, *powers] if 0 in found else powers
    return list(range(found[0], found[-1] + 1))


def _doubles(buckets: Sequence[int]) -> bool:
    return all(bucket == 0 or _is_power(bucket) for bucket in buckets)


# -- axes -----------------------------------------------------------------------------------------


def _label_axes(axes: Any, plot: Plot) -> None:
    metrics = " and ".join(spaced(metric) for metric in plot.metrics())
    counts = "count per run" if plot.kind == "histogram" else metrics
    unit = " (%)" if shows_shares(plot) and "%" not in plot.y_label else ""
    axes.set_xlabel((plot.x_label or spaced(plot.x)).replace("$", r"\$"))
    axes.set_ylabel(((plot.y_label or counts) + unit).replace("$", r"\$"))


def _scale_y(axes: Any, plot: Plot, shown: Curves) -> None:
    values = [point.y for curve in shown.curves for point in curve.points]
    if plot.log_y:
        axes.set_yscale("log", nonpositive="clip")
        _plain_decades(axes.yaxis, values)
        low, high = axes.get_ylim()
        # A confidence interval that reaches to zero must not stretch the axis for ever.
        axes.set_ylim(max(low, min(values) / 3), high)
        return
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    if min(values) >= 0:
        axes.set_ylim(bottom=0)
        axes.margins(y=0.08)


def _scale_x(axes: Any, plot: Plot, shown: Curves) -> None:
    if not _is_numeric(shown.xs):
        _label_words(axes, plot.x, shown.xs)
        return
    numbers = [float(x) for x in shown.xs]
    if plot.log_x and all(_is_power(x) for x in numbers):
        axes.set_xscale("log", base=2)
        step = math.ceil(len(numbers) / MOST_TICKS)
        axes.xaxis.set_major_locator(FixedLocator(numbers[::-1][::step][::-1]))
        axes.xaxis.set_minor_locator(NullLocator())
        large = max(numbers) >= POWERS_FROM
        axes.xaxis.set_major_formatter(
            FuncFormatter(
                lambda x, _: rf"$\mathdefault{{2^{{{math.log2(x):.0f}}}}}$" if large else plain(x)
            )
        )
    elif plot.log_x:
        axes.set_xscale("log")
        _plain_decades(axes.xaxis, numbers)
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
        if len(numbers) <= MOST_TICKS and _are_even(numbers):
            axes.xaxis.set_major_locator(FixedLocator(numbers))


def _is_power(x: float) -> bool:
    return x >= 1 and x == int(x) and int(x) & (int(x) - 1) == 0


def _are_even(numbers: Sequence[float]) -> bool:
    """Whether labels at the measured points themselves would not crowd each other."""
    gaps = [after - before for before, after in pairwise(numbers)]
    return not gaps or min(gaps) >= 0.06 * (numbers[-1] - numbers[0])


def _plain_decades(axis: Any, values: Sequence[float]) -> None:
    """1, 10, 100, 1,000, and between them 2 and 5 if there are few of them."""
    few = max(values) / min(values) < 300
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{plain(value / 1e6)} M" if value >= 1e6 else plain(value)


def _label_words(axes: Any, name: str, xs: Sequence[Value]) -> None:
    words = [_word(name, x) for x in xs]
    room = int(78 / max(1, len(words)))
    axes.set_xticks(range(len(words)))
    if max(len(word) for word in words) > 2 * room:
        axes.set_xticklabels(words, rotation=30, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticklabels([fill(word, max(room, 6)) for word in words])


def _word(name: str, x: Value) -> str:
    text = PROTOCOL_NAMES.get(str(x), str(x)) if name == "protocol" else setting_text(x)
    return text.replace("$", r"\$")


# -- inside a page --------------------------------------------------------------------------------

_VARIABLES = {
    INK: "var(--ink)", GRID: "var(--grid)", PAPER: "var(--card)",
    **{colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)},
}  # fmt: skip


def inline(drawing: Drawing, prefix: str, title: str) -> str:
    """The SVG as an element of a page: it takes the page's colours, and shares no ids with others.

    `title` and `prefix` must be safe in an attribute already.
    """
    text = drawing.svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1).strip()
