"""The kinds of figures: lines, bars, dots, histograms, and the paper's numbers on them.

Error bars and bands are 95 % confidence intervals.  Points of few seeds are hollow.  Open diamonds
are the numbers that a paper prints: a point of ours that agrees lies inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from matplotlib.ticker import MaxNLocator

from cubecast.lab.cells import Value
from cubecast.lab.experiment import Plot
from cubecast.lab.report.axes import is_power, label_words, scale_x, scale_y
from cubecast.lab.report.curve_styles import INK, LINES, PAPER, Look, Size, looks_of
from cubecast.lab.report.curves import METRIC, Curve, Curves
from cubecast.lab.report.diamonds import (
    Spot,
    belongs,
    draw_bounds,
    draw_spots,
    is_shown,
    spots_of,
)
from cubecast.lab.report.labels import Label, add_label
from cubecast.lab.report.lines import draw_lines, errors_of, legend_label
from cubecast.lab.report.paper_marks import Mark
from cubecast.lab.report.wording import plain, rounded

MOST_BARS = 60
"""The most bars of a histogram; with more buckets only the outline is drawn."""
MOST_LABELS = 10
"""The most values beside dots."""
SHORTEST_GAP = 3
"""At least this many empty classes in a row are left out of a histogram of classes."""
Group: TypeAlias = tuple[tuple[str, Value], ...]
"""The settings that the bars of one stack share."""
Places: TypeAlias = dict[tuple[Group, Value], float]


def draw_on(
    axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size
) -> list[Mark]:
    """Draw curves and axes; return the numbers of a paper that are among them."""
    printed = [mark for mark in printed if is_shown(mark, plot, shown)]
    match plot.kind:
        case "histogram":
            _draw_histogram(axes, plot, shown, printed, size)
        case "cumulative":
            _draw_cumulative(axes, plot, shown, printed, size)
        case "bars":
            printed = [] if _is_stacked(shown) else printed
            _draw_bars(axes, plot, shown, printed, size)
        case "dots":
            _draw_dots(axes, plot, shown, printed, size)
        case _:
            draw_lines(axes, plot, shown, printed, size)
    return printed


# -- bars and dots --------------------------------------------------------------------------------


def _is_stacked(shown: Curves) -> bool:
    return any(curve.value(METRIC) is not None for curve in shown.curves)


def _draw_bars(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    """Draw groups side by side, only those present at an x; metrics of a group are stacked."""
    groups = {curve.key: _group(curve) for curve in shown.curves}
    places, width = _side_by_side(shown, groups)
    heights: Places = {}
    for curve, look in zip(shown.curves, looks_of(shown), strict=True):
        group = groups[curve.key]
        bottoms = [heights.get((group, point.x), 0.0) for point in curve.points]
        for point, bottom in zip(curve.points, bottoms, strict=True):
            heights[group, point.x] = bottom + point.y
        middles = [places[group, point.x] for point in curve.points]
        _add_bars(axes, plot, shown, curve, look, middles, width * 0.92, bottoms)
        if not _is_stacked(shown) and not plot.log_y:
            _write_zeros(axes, middles, curve, size)
    draw_spots(axes, _spots(shown, printed, groups, places), size, filled=True)
    axes.grid(visible=False, axis="x")
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    label_words(axes, plot.x, shown.xs, size)


def _draw_dots(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    """Draw a point instead of each bar: its size does not mislead on an axis without zero."""
    groups: dict[Group, Group] = {curve.key: curve.key for curve in shown.curves}
    places, width = _side_by_side(shown, groups)
    for curve, look in zip(shown.curves, looks_of(shown), strict=True):
        xs = [places[curve.key, point.x] for point in curve.points]
        errors = errors_of(plot, shown, curve.points)
        few = all(point.few for point in curve.points)
        drawn = axes.errorbar(
            xs, [point.y for point in curve.points], yerr=errors,
            color=look.colour, linestyle="none", marker=look.marker,
            markersize=1.25 * size.marker, markeredgewidth=0.24 * size.marker,
            markerfacecolor=PAPER if few else look.colour,
            elinewidth=1.0, capsize=2.5, label=legend_label(curve.label),
        )  # fmt: skip
        drawn.lines[0].set_clip_on(False)
        if not few:
            _hollow(axes, drawn.lines[0], xs, curve)
        if len(shown.points) <= MOST_LABELS:
            _write_values(axes, xs, curve, errors, size)
    beside = {place: middle - min(0.42 * width, 0.12) for place, middle in places.items()}
    draw_spots(axes, _spots(shown, printed, groups, beside), size)
    draw_bounds(axes, printed, {x: float(index) for index, x in enumerate(shown.xs)}, size)
    axes.grid(visible=False, axis="x")
    for between in range(1, len(shown.xs)):
        axes.axvline(between - 0.5, color=axes.yaxis.get_gridlines()[0].get_color(), linewidth=0.7)
    axes.set_xlim(-0.5, len(shown.xs) - 0.5)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    label_words(axes, plot.x, shown.xs, size)


def _hollow(axes: Any, line: Any, places: Sequence[float], curve: Curve) -> None:
    """Open the markers of the points that have few seeds."""
    few = [(x, point.y) for x, point in zip(places, curve.points, strict=True) if point.few]
    if few:
        axes.plot(
            [x for x, _ in few], [y for _, y in few], linestyle="none", marker=line.get_marker(),
            markersize=line.get_markersize(), markeredgewidth=line.get_markeredgewidth(),
            markerfacecolor=PAPER, markeredgecolor=line.get_color(), zorder=line.get_zorder() + 0.1,
            clip_on=False,
        )  # fmt: skip


def _write_values(
    axes: Any, xs: Sequence[float], curve: Curve,
    errors: tuple[Sequence[float], Sequence[float]] | None, size: Size,
) -> None:  # fmt: skip
    """Write values beside dots, where there is room."""
    for index, (x, point) in enumerate(zip(xs, curve.points, strict=True)):
        down, up = (errors[0][index], errors[1][index]) if errors else (0.0, 0.0)
        ends = (point.y - down, point.y + up)
        label = Label(
            rounded(point.y),
            (x, point.y),
            size,
            reach=1.05 * size.marker + 0.4,
            value=True,
            ends=ends,
        )
        add_label(axes, label)


def _write_zeros(axes: Any, xs: Sequence[float], curve: Curve, size: Size) -> None:
    """Write 0 where a bar has no height: it is measured, and cannot be seen."""
    for x, point in zip(xs, curve.points, strict=True):
        if point.y == 0:
            add_label(axes, Label("0", (x, 0.0), size, reach=1.0, ends=(0.0, max(point.ci, 0.0))))


def _spots(
    shown: Curves, printed: Sequence[Mark], groups: Mapping[Group, Group], places: Places
) -> list[Spot]:
    """The bars or dots that a printed number belongs to."""

    def place_of(curve: Curve, mark: Mark) -> float | None:
        return None if mark.x is None else places.get((groups[curve.key], mark.x))

    return spots_of(shown, printed, place_of)


def _side_by_side(shown: Curves, groups: dict[Group, Group]) -> tuple[Places, float]:
    """The middle of each bar, and the width of a bar."""
    there: dict[Value, list[Group]] = {x: [] for x in shown.xs}
    for curve in shown.curves:
        for point in curve.points:
            own = there[point.x]
            own += [] if groups[curve.key] in own else [groups[curve.key]]
    order = list(dict.fromkeys(groups.values()))
    width = 0.8 / max(1, *(len(found) for found in there.values()))
    places = {
        (group, x): middle + (index - (len(found) - 1) / 2) * width
        for middle, (x, found) in enumerate(there.items())
        for index, group in enumerate(sorted(found, key=order.index))
    }
    return places, width


def _add_bars(
    axes: Any, plot: Plot, shown: Curves, curve: Curve, look: Look, middles: Sequence[float],
    width: float, bottoms: Sequence[float],
) -> None:  # fmt: skip
    """Bars of one curve; those of few seeds are hollow."""
    few = [point.few for point in curve.points]
    axes.bar(
        middles, [point.y for point in curve.points], width, bottom=bottoms,
        yerr=errors_of(plot, shown, curve.points),
        color=[PAPER if one else look.colour for one in few],
        edgecolor=[look.colour if one else PAPER for one in few], linewidth=0.8,
        hatch=look.hatch, error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
        label=legend_label(curve.label),
    )  # fmt: skip


def _group(curve: Curve) -> Group:
    return tuple(part for part in curve.key if part[0] != METRIC)


# -- histograms -----------------------------------------------------------------------------------


def _draw_histogram(
    axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size
) -> None:
    """Bars for few buckets; of many only the outline, so that curves can lie over each other."""
    marked = [int(mark.x) for mark in printed if mark.x is not None]
    if are_many(plot, shown):
        _draw_outlines(axes, plot, shown)
        axes.margins(x=0.01)
        draw_spots(axes, spots_of(shown, printed, _own_place), size)
    else:
        slots = _slots(plot, shown, marked)
        middles = {bucket: float(index) for index, bucket in enumerate(slots) if bucket is not None}
        beside, width = _side_by_side(shown, {curve.key: curve.key for curve in shown.curves})
        at = {x: index for index, x in enumerate(shown.xs)}
        places = {
            (group, x): middles[int(x)] + place - at[x] for (group, x), place in beside.items()
        }
        for curve, look in zip(shown.curves, looks_of(shown), strict=True):
            own = [places[curve.key, point.x] for point in curve.points]
            _add_bars(axes, plot, shown, curve, look, own, width * 0.92, [0.0] * len(own))

        def place_of(curve: Curve, mark: Mark) -> float | None:
            """The bar's place; of a class in which no reading has a bar, the middle."""
            if mark.x is None:
                return None
            same = [one for one in printed if (one.number, one.x) == (mark.number, mark.x)]
            with_bars = [
                other
                for other in shown.curves
                if (other.key, mark.x) in places and any(belongs(one, other) for one in same)
            ]
            return places.get((curve.key, mark.x)) if with_bars else middles[int(mark.x)]

        draw_spots(axes, spots_of(shown, printed, place_of), size, filled=True)
        _label_slots(axes, slots, size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    axes.grid(visible=False, axis="x")


def _own_place(_: Curve, mark: Mark) -> float | None:
    """The place of a number on an axis of numbers."""
    return None if mark.x is None else float(mark.x)


def _draw_outlines(axes: Any, plot: Plot, shown: Curves) -> None:
    buckets = _buckets(plot, shown, ())
    step = buckets[1] - buckets[0]
    edges = [bucket - step / 2 for bucket in [*buckets, buckets[-1] + step]]
    floor = None if plot.log_y else 0.0
    for index, (curve, look) in enumerate(zip(shown.curves, looks_of(shown), strict=True)):
        points = {int(point.x): point for point in curve.points}
        heights = [points[b].y if b in points else 0.0 for b in buckets]
        axes.stairs(
            heights, edges, color=look.colour, linestyle=LINES[index % len(LINES)], linewidth=1.3,
            baseline=floor, label=legend_label(curve.label),
        )  # fmt: skip
        if errors_of(plot, shown, curve.points):
            widths = [points[b].ci if b in points else 0.0 for b in buckets]
            pairs = list(zip(heights, widths, strict=True))
            least = min((y for y in heights if y > 0), default=1.0) / 10 if plot.log_y else 0.0
            axes.stairs(
                [y + ci for y, ci in pairs], edges,
                baseline=[max(least, y - ci) for y, ci in pairs],
                fill=True, color=look.colour, alpha=0.2, linewidth=0,
            )  # fmt: skip


def _draw_cumulative(
    axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size
) -> None:
    """The share of all that is at most x: a staircase up to 100 %."""
    last = int(shown.xs[-1])
    for index, (curve, look) in enumerate(zip(shown.curves, looks_of(shown), strict=True)):
        xs = [0, *(int(point.x) for point in curve.points), last]
        ys = [0.0, *(point.y for point in curve.points), curve.points[-1].y]
        axes.plot(
            xs, ys, drawstyle="steps-post", color=look.colour,
            linestyle=LINES[index % len(LINES)],
            label=legend_label(curve.label),
        )  # fmt: skip
    draw_spots(axes, spots_of(shown, printed, _own_place), size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    axes.set_ylim(0, 105)
    scale_x(axes, plot, shown, size)
    axes.xaxis.set_major_locator(MaxNLocator(size.most_ticks, integer=True))


def are_many(plot: Plot, shown: Curves) -> bool:
    """Whether a histogram is drawn as outlines."""
    return len(_buckets(plot, shown, ())) * len(shown.curves) > MOST_BARS


def _buckets(plot: Plot, shown: Curves, more: Sequence[int]) -> list[int]:
    """All buckets from the first to the last: in equal steps, or zero and the powers of two."""
    found = sorted({*(int(x) for x in shown.xs), *more})
    if plot.log_x and _doubles(found):
        least = min((bucket for bucket in found if bucket), default=1)
        powers = [1 << power for power in range(least.bit_length() - 1, found[-1].bit_length())]
        return [0, *powers] if 0 in found else powers
    step = math.gcd(*(bucket - found[0] for bucket in found)) or 1
    return list(range(found[0], found[-1] + 1, step))


def _slots(plot: Plot, shown: Curves, marked: Sequence[int]) -> list[int | None]:
    """The buckets side by side; None stands for a row of empty classes that are left out."""
    buckets = _buckets(plot, shown, marked)
    if not (plot.log_x and _doubles(buckets)):
        return list(buckets)
    there = {*(int(x) for x in shown.xs), *marked}
    slots: list[int | None] = []
    for filled, run in groupby(buckets, key=there.__contains__):
        row = list(run)
        slots += row if filled or len(row) < SHORTEST_GAP else [None]
    return slots


def _label_slots(axes: Any, slots: Sequence[int | None], size: Size) -> None:
    step = 1 if _doubles([b for b in slots if b is not None]) else 0
    step = step or math.ceil(len(slots) / size.most_ticks)
    axes.set_xticks(range(0, len(slots), step))
    axes.set_xlim(-0.5, len(slots) - 0.5)
    labels = ["…" if bucket is None else plain(bucket) for bucket in slots[::step]]
    room = 60 * size.width / 5.6 * 9 / size.font
    axes.set_xticklabels(labels, rotation=30 if len("  ".join(labels)) > room else 0)


def _doubles(buckets: Sequence[int]) -> bool:
    return all(bucket == 0 or is_power(bucket) for bucket in buckets)
