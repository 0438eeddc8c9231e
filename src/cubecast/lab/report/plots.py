"""The kinds of figures: lines, bars, dots, histograms, and the paper's numbers on them.

Error bars and bands are 95 % confidence intervals.  Points of few seeds are hollow.  Open diamonds
are the numbers that a paper prints: a point of ours that agrees lies inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

from matplotlib.patheffects import withStroke

from cubecast.lab.cells import Value
from cubecast.lab.experiment import Plot
from cubecast.lab.report.axes import is_power, label_words, places_of, scale_x, scale_y
from cubecast.lab.report.curve_styles import INK, LINES, PAPER, Look, Size, looks_of
from cubecast.lab.report.curves import METRIC, Curve, Curves, MeasuredPoint
from cubecast.lab.report.paper_marks import Mark
from cubecast.lab.report.wording import plain, rounded

PRINTED = "printed in the paper"
MOST_BARS = 60
"""The most bars of a histogram; with more buckets only the outline is drawn."""
MOST_LABELS = 10
"""The most labels of dots; more would overlap."""
FEWEST_REPEATED = 3
"""A number that is marked at so many places becomes a line."""
SHORTEST_GAP = 3
"""At least this many empty classes in a row are left out of a histogram of classes."""
Group: TypeAlias = tuple[tuple[str, Value], ...]
"""The settings that the bars of one stack share."""
_HALO = [withStroke(linewidth=2.0, foreground=PAPER)]
"""A halo around numbers, so that they can be read on a line."""
Spot: TypeAlias = tuple[float, Mark]


def draw_on(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> bool:
    """Draw curves and axes; return whether numbers of a paper are among them."""
    printed = [mark for mark in printed if _is_shown(mark, plot, shown)]
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
            _draw_lines(axes, plot, shown, printed, size)
    return bool(printed)


def _is_shown(mark: Mark, plot: Plot, shown: Curves) -> bool:
    """Whether a printed number is marked: only where a point of ours is beside it, or could be."""
    own = [curve for curve in shown.curves if _belongs(mark, curve)]
    if plot.log_y and mark.y <= 0:
        return False
    if plot.kind in ("histogram", "cumulative"):
        return bool(own) and mark.y > 0
    return any(curve.level or point.x == mark.x for curve in own for point in curve.points)


def _belongs(mark: Mark, curve: Curve) -> bool:
    return all(curve.value(name) == value for name, value in mark.series)


def legend_label(text: str) -> str:
    """The text as it is: a dollar sign or a leading underscore has no effect on the drawing."""
    text = text.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def errors_of(plot: Plot, points: Sequence[MeasuredPoint]) -> list[float] | None:
    """The confidence intervals as error bars; None if there are none."""
    if not plot.error_bars or not any(point.ci > 0 for point in points):
        return None
    return [point.ci if math.isfinite(point.ci) else 0.0 for point in points]


def _draw_marks(axes: Any, spots: Sequence[Spot], size: Size) -> None:
    """Draw the paper's numbers with their values: above the diamond if it is the highest there."""
    if not spots:
        return
    axes.scatter(
        [x for x, _ in spots], [mark.y for _, mark in spots], marker="D",
        s=(1.4 * size.marker) ** 2,
        facecolors="none", edgecolors=INK, linewidths=1.2, zorder=5, label=PRINTED,
    )  # fmt: skip
    for text, y, places in _printed_once(spots):
        x = sum(places) / len(places)
        above = all(y >= mark.y for place, mark in spots if place in places)
        axes.annotate(
            text, (x, y), xytext=(0, 6.5 if above else -7.5),
            textcoords="offset points", ha="center", va="bottom" if above else "top",
            fontsize=size.tiny, zorder=6, path_effects=_HALO,
        )  # fmt: skip


def _printed_once(spots: Sequence[Spot]) -> list[tuple[str, float, list[float]]]:
    """Each number and where it is marked: bars of one group that share it need one label."""
    found: dict[tuple[str, float, Value], list[float]] = {}
    for place, mark in spots:
        found.setdefault((mark.text, mark.y, mark.x), []).append(place)
    return [(text, y, places) for (text, y, _), places in found.items()]


# -- lines ----------------------------------------------------------------------------------------


def _draw_lines(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    places = places_of(shown)
    dense = plot.kind == "timeline"
    for index, (curve, look) in enumerate(zip(shown.curves, looks_of(shown), strict=True)):
        # Of curves that coincide the lower ones are wider, so that all are visible.
        over = sum(_coincide(curve, other) for other in shown.curves[index + 1 :])
        if curve.level:
            _draw_level(axes, curve, look, size)
            continue
        few = all(point.few for point in curve.points)
        drawn = axes.errorbar(
            [places[point.x] for point in curve.points],
            [point.y for point in curve.points],
            yerr=errors_of(plot, curve.points),
            color=look.colour, linestyle=LINES[index % len(LINES)] if dense else look.line,
            marker="" if dense else look.marker,
            markerfacecolor=PAPER if few else look.colour, markeredgewidth=0.24 * size.marker,
            markersize=min(1 + 0.32 * over, 1.64) * size.marker,
            linewidth=min(1 + 0.62 * over, 2.25) * size.line,
            elinewidth=1.0, capsize=2.5, label=legend_label(curve.label),
        )  # fmt: skip
        if not few and not dense:
            _hollow(axes, drawn.lines[0], [places[point.x] for point in curve.points], curve)
    spots = [(places[mark.x], mark) for mark in printed if mark.x in places]
    _draw_marks(axes, _draw_repeated(axes, spots), size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    scale_x(axes, plot, shown, size)


def _draw_repeated(axes: Any, spots: Sequence[Spot]) -> list[Spot]:
    """Draw a line for a number that the paper prints without an x; the spots to mark.

    Such a number stands at the x of every reading.  It is marked once, at the last x.
    """
    same: dict[tuple[str, float], list[Spot]] = {}
    for spot in spots:
        same.setdefault((spot[1].text, spot[1].y), []).append(spot)
    left: list[Spot] = []
    for (_, y), found in same.items():
        if len({place for place, _ in found}) < FEWEST_REPEATED:
            left += found
            continue
        axes.axhline(y, color=INK, linewidth=1.0, linestyle=(0, (1, 3)), zorder=1)
        left.append(max(found, key=lambda spot: spot[0]))
    return left


def _hollow(axes: Any, line: Any, places: Sequence[float], curve: Curve) -> None:
    """Open the markers of the points that have few seeds."""
    few = [(x, point.y) for x, point in zip(places, curve.points, strict=True) if point.few]
    if few:
        axes.plot(
            [x for x, _ in few], [y for _, y in few], linestyle="none", marker=line.get_marker(),
            markersize=line.get_markersize(), markeredgewidth=line.get_markeredgewidth(),
            markerfacecolor=PAPER, markeredgecolor=line.get_color(), zorder=line.get_zorder() + 0.1,
        )  # fmt: skip


def _draw_level(axes: Any, curve: Curve, look: Look, size: Size) -> None:
    """A value that holds for every x, with its name's line from side to side."""
    for point in curve.points[:1]:
        axes.axhline(
            point.y, color=look.colour, linestyle=look.line, label=legend_label(curve.label)
        )
        if point.ci > 0:
            axes.axhspan(point.y - point.ci, point.y + point.ci, color=look.colour, alpha=0.15)


def _coincide(curve: Curve, other: Curve) -> bool:
    """Whether one curve would hide the other: equal to about the width of a line."""
    theirs = {point.x: point.y for point in other.points}
    both = [(point.y, theirs[point.x]) for point in curve.points if point.x in theirs]
    return len(both) > 1 and all(math.isclose(a, b, rel_tol=0.015) for a, b in both)


# -- bars and dots --------------------------------------------------------------------------------


def _is_stacked(shown: Curves) -> bool:
    return any(curve.value(METRIC) is not None for curve in shown.curves)


def _draw_bars(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    """Draw groups side by side, only those present at an x; metrics of a group are stacked."""
    groups = {curve.key: _group(curve) for curve in shown.curves}
    places, width = _side_by_side(shown, groups)
    heights: dict[tuple[Group, Value], float] = {}
    for curve, look in zip(shown.curves, looks_of(shown), strict=True):
        group = groups[curve.key]
        bottoms = [heights.get((group, point.x), 0.0) for point in curve.points]
        for point, bottom in zip(curve.points, bottoms, strict=True):
            heights[group, point.x] = bottom + point.y
        _add_bars(
            axes, plot, curve, look, [places[group, point.x] for point in curve.points],
            width * 0.92, bottoms,
        )  # fmt: skip
    _draw_marks(axes, _spots(shown, printed, groups, places), size)
    axes.grid(visible=False, axis="x")
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    label_words(axes, plot.x, shown.xs, size)


def _draw_dots(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    """Draw a point instead of each bar: its size does not mislead on an axis without zero."""
    groups: dict[Group, Group] = {curve.key: curve.key for curve in shown.curves}
    places, width = _side_by_side(shown, groups)
    for curve, look in zip(shown.curves, looks_of(shown), strict=True):
        xs = [places[curve.key, point.x] for point in curve.points]
        few = all(point.few for point in curve.points)
        drawn = axes.errorbar(
            xs, [point.y for point in curve.points], yerr=errors_of(plot, curve.points),
            color=look.colour, linestyle="none", marker=look.marker,
            markersize=1.25 * size.marker, markeredgewidth=0.24 * size.marker,
            markerfacecolor=PAPER if few else look.colour,
            elinewidth=1.0, capsize=2.5, label=legend_label(curve.label),
        )  # fmt: skip
        if not few:
            _hollow(axes, drawn.lines[0], xs, curve)
        if len(shown.points) <= MOST_LABELS:
            _write_values(axes, xs, curve, size)
    beside = {place: middle - 0.3 * width for place, middle in places.items()}
    _draw_marks(axes, _spots(shown, printed, groups, beside), size)
    axes.grid(visible=False, axis="x")
    for between in range(1, len(shown.xs)):
        axes.axvline(between - 0.5, color=axes.yaxis.get_gridlines()[0].get_color(), linewidth=0.7)
    axes.set_xlim(-0.5, len(shown.xs) - 0.5)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    label_words(axes, plot.x, shown.xs, size)


def _write_values(axes: Any, xs: Sequence[float], curve: Curve, size: Size) -> None:
    for x, point in zip(xs, curve.points, strict=True):
        axes.annotate(
            rounded(point.y), (x, point.y), xytext=(1.4 * size.marker, 0),
            textcoords="offset points", ha="left", va="center", fontsize=size.tiny, zorder=6,
            path_effects=_HALO,
        )  # fmt: skip


def _spots(
    shown: Curves,
    printed: Sequence[Mark],
    groups: dict[Group, Group],
    places: dict[tuple[Group, Value], float],
) -> list[Spot]:
    """The bars or dots that a printed number belongs to."""
    return [
        (places[groups[curve.key], mark.x], mark)
        for mark in printed
        for curve in shown.curves
        if _belongs(mark, curve) and (groups[curve.key], mark.x) in places
    ]


def _side_by_side(
    shown: Curves, groups: dict[Group, Group]
) -> tuple[dict[tuple[Group, Value], float], float]:
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
    axes: Any, plot: Plot, curve: Curve, look: Look, middles: Sequence[float], width: float,
    bottoms: Sequence[float],
) -> None:  # fmt: skip
    """Bars of one curve; those of few seeds are hollow."""
    few = [point.few for point in curve.points]
    axes.bar(
        middles, [point.y for point in curve.points], width, bottom=bottoms,
        yerr=errors_of(plot, curve.points),
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
    marked = [int(mark.x) for mark in printed]
    if are_many(plot, shown):
        _draw_outlines(axes, plot, shown)
        axes.margins(x=0.01)
        _draw_marks(axes, [(float(mark.x), mark) for mark in printed], size)
    else:
        slots = _slots(plot, shown, marked)
        places = {bucket: float(index) for index, bucket in enumerate(slots) if bucket is not None}
        width = 0.8 / len(shown.curves)
        offsets = {
            curve.key: (index - (len(shown.curves) - 1) / 2) * width
            for index, curve in enumerate(shown.curves)
        }
        for curve, look in zip(shown.curves, looks_of(shown), strict=True):
            middles = [places[int(point.x)] + offsets[curve.key] for point in curve.points]
            ground = [0.0] * len(middles)
            _add_bars(axes, plot, curve, look, middles, width * 0.92, ground)
        spots = [
            (places[int(mark.x)] + offsets[curve.key], mark)
            for mark in printed
            for curve in shown.curves
            if _belongs(mark, curve)
        ]
        _draw_marks(axes, spots, size)
        _label_slots(axes, slots, size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    axes.grid(visible=False, axis="x")


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
        if errors_of(plot, curve.points):
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
    _draw_marks(axes, [(float(mark.x), mark) for mark in printed], size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    axes.set_ylim(0, 105)
    scale_x(axes, plot, shown, size)


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
