"""Curves: of figures of rows, and of histograms whose buckets are times or sizes.

1. Of curves that coincide at a point all are seen: the lower marker is larger, the upper one has a
   white edge.  Where three coincide or long intervals overlap, the curves stand a little apart.
2. A curve of many points has its intervals as a band; one of few points has markers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation

from cubecast.lab.cells import Value
from cubecast.lab.experiment import Plot
from cubecast.lab.report.axes import places_of, scale_x, scale_y
from cubecast.lab.report.curve_styles import INK, LINES, PAPER, Look, Size, looks_of
from cubecast.lab.report.curves import Curve, Curves, MeasuredPoint, is_percentage
from cubecast.lab.report.diamonds import DOTTED, draw_bounds, draw_repeated, draw_spots, spots_of
from cubecast.lab.report.paper_marks import Mark

MOST_MARKED = 40
"""The most points of a curve whose points have markers and bars."""
NEAR = 0.015
"""Points so near each other, as a share of their value or of the axis, coincide."""
NEAR_ZERO = 0.1
"""The same below 1 on a logarithmic axis that has a zero."""
LONG, LONG_LOG = 0.04, 0.2
"""Intervals of this share of the axis (on a logarithmic one: of the value) are seen to overlap."""
CROWD = 3
"""So many curves at one point cannot lie over each other."""
CASING = 0.9
"""The white on both sides of a curve that lies over another, in points."""


def legend_label(text: str) -> str:
    """The text as it is: a dollar sign or a leading underscore has no effect on the drawing."""
    text = text.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def errors_of(
    plot: Plot, shown: Curves, points: Sequence[MeasuredPoint]
) -> tuple[list[float], list[float]] | None:
    """The confidence intervals as error bars, down and up; None if there are none.

    An interval of a share does not reach below 0 % or above 100 %.
    """
    if not plot.error_bars or not any(point.ci > 0 for point in points):
        return None
    widths = [point.ci if math.isfinite(point.ci) else 0.0 for point in points]
    if not is_percentage(plot, shown):
        return widths, list(widths)
    pairs = list(zip(points, widths, strict=True))
    return (
        [min(width, point.y) for point, width in pairs],
        [min(width, 100 - point.y) for point, width in pairs],
    )


def are_dense(plot: Plot, shown: Curves) -> bool:
    """Whether the curves have too many points for markers and bars."""
    most = max((len(curve.points) for curve in shown.curves), default=0)
    return plot.kind == "timeline" and most > MOST_MARKED


def are_marked(plot: Plot, shown: Curves) -> bool:
    """Whether a figure has curves, and their points have markers."""
    return plot.kind in ("lines", "timeline") and not are_dense(plot, shown)


def draw_lines(axes: Any, plot: Plot, shown: Curves, printed: Sequence[Mark], size: Size) -> None:
    """Draw curves, their intervals and the paper's numbers."""
    places = places_of(shown)
    dense = are_dense(plot, shown)
    shifts = [0.0] * len(shown.curves) if dense else shifts_of(plot, shown, size)
    for index, (curve, look) in enumerate(zip(shown.curves, looks_of(shown), strict=True)):
        own = look if plot.kind != "timeline" else replace(look, line=LINES[index % len(LINES)])
        if curve.level:
            _draw_level(axes, curve, own)
        elif dense:
            _draw_band(axes, plot, shown, curve, own, places)
        else:
            apart = any(shifts)
            over = {} if apart else _hidden_by(plot, shown, curve, shown.curves[index + 1 :])
            under = not apart and bool(_hidden_by(plot, shown, curve, shown.curves[:index]))
            drawn = _draw_curve(axes, plot, shown, curve, own, places, over, under, size)
            if shifts[index]:
                _shift(axes, drawn, shifts[index])
    if any(shifts):
        axes.margins(x=0.05 + max(shifts) / (72 * 0.85 * size.width))
    if plot.diagonal:
        ends = [min(places.values()), max(places.values())]
        axes.plot(ends, ends, color=INK, linewidth=1.0, linestyle=DOTTED, zorder=1,
                  label=plot.diagonal)  # fmt: skip
    spots = spots_of(shown, printed, lambda _, mark: None if mark.x is None else places.get(mark.x))
    draw_spots(axes, draw_repeated(axes, spots), size)
    draw_bounds(axes, printed, places, size)
    scale_y(axes, plot, shown, [mark.y for mark in printed])
    scale_x(axes, plot, shown, size)


def _draw_curve(
    axes: Any, plot: Plot, shown: Curves, curve: Curve, look: Look, places: Mapping[Value, float],
    over: Mapping[Value, int], under: bool, size: Size,
) -> list[Any]:  # fmt: skip
    """One curve, in its parts; `over` counts the curves that lie over it at each x."""
    few = all(point.few for point in curve.points)
    effects = [withStroke(linewidth=size.line + CASING, foreground=PAPER)] if under else None
    for one, other in pairwise(curve.points):
        if (most := min(over.get(one.x, 0), over.get(other.x, 0))) > 0:
            axes.plot(
                [places[one.x], places[other.x]], [one.y, other.y], color=look.colour,
                linestyle="-", linewidth=size.line + 2 * min(most, 2), marker="",
                solid_capstyle="butt",
            )  # fmt: skip
    drawn = axes.errorbar(
        [places[point.x] for point in curve.points], [point.y for point in curve.points],
        yerr=errors_of(plot, shown, curve.points),
        color=look.colour, linestyle=look.line, marker=look.marker,
        markerfacecolor=PAPER if few else look.colour, markeredgewidth=0.24 * size.marker,
        markersize=size.marker, linewidth=size.line,
        elinewidth=1.0, capsize=2.5, label=legend_label(curve.label),
    )  # fmt: skip
    line, caps, bars = drawn.lines
    parts = [line, *caps, *bars]
    line.set_clip_on(False)
    if effects:
        line.set_path_effects(effects)
    larger: dict[tuple[int, bool], list[MeasuredPoint]] = {}
    for point in curve.points:
        larger.setdefault((min(over.get(point.x, 0), 2), point.few), []).append(point)
    for (level, hollow), points in larger.items():
        if level or (hollow and not few):
            extra = axes.plot(
                [places[point.x] for point in points], [point.y for point in points],
                linestyle="none", marker=look.marker, color=look.colour,
                markersize=(1 + 0.65 * level) * size.marker, clip_on=False,
                markeredgewidth=line.get_markeredgewidth(),
                markerfacecolor=PAPER if hollow else look.colour,
            )  # fmt: skip
            parts += extra
            if effects:
                extra[0].set_path_effects(effects)
    return parts


def _shift(axes: Any, drawn: Sequence[Any], points: float) -> None:
    """Move something to the side.  Only now: what is drawn with an offset sets no limits."""
    offset = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
    for part in drawn:
        part.set_transform(axes.transData + offset)


def _draw_band(
    axes: Any, plot: Plot, shown: Curves, curve: Curve, look: Look, places: Mapping[Value, float]
) -> None:
    """A curve of many points with a band of its intervals."""
    xs, ys = [places[point.x] for point in curve.points], [point.y for point in curve.points]
    axes.plot(xs, ys, color=look.colour, linestyle=look.line, linewidth=1.3,
              label=legend_label(curve.label))  # fmt: skip
    if (errors := errors_of(plot, shown, curve.points)) is not None:
        least = min((y for y in ys if y > 0), default=1.0) / 10 if plot.log_y else -math.inf
        axes.fill_between(
            xs,
            [max(least, y - down) for y, down in zip(ys, errors[0], strict=True)],
            [y + up for y, up in zip(ys, errors[1], strict=True)],
            color=look.colour, alpha=0.2, linewidth=0,
        )  # fmt: skip


def _draw_level(axes: Any, curve: Curve, look: Look) -> None:
    """A value that holds for every x, with its name's line from side to side."""
    for point in curve.points[:1]:
        axes.axhline(
            point.y, color=look.colour, linestyle=look.line, label=legend_label(curve.label)
        )
        if point.ci > 0:
            axes.axhspan(point.y - point.ci, point.y + point.ci, color=look.colour, alpha=0.15)


# -- curves at the same place ---------------------------------------------------------------------


def _hidden_by(
    plot: Plot, shown: Curves, curve: Curve, others: Sequence[Curve]
) -> dict[Value, int]:
    """How many others are at the place of each point; points that have none are left out."""
    found: dict[Value, int] = {}
    for other in others:
        for point in curve.points:
            theirs = None if other.level else _height_at(plot, other, point.x)
            if theirs is not None and _coincide(plot, shown, point.y, theirs):
                found[point.x] = found.get(point.x, 0) + 1
    return found


def _height_at(plot: Plot, curve: Curve, x: Value) -> float | None:
    """Where a curve is at some x, at a point or between two; None where it is not."""
    heights = {point.x: point.y for point in curve.points}
    if x in heights or isinstance(x, str):
        return heights.get(x)
    for one, other in pairwise(curve.points):
        if float(one.x) < x < float(other.x):
            ends = float(one.x), float(x), float(other.x)
            left, at, right = map(math.log, ends) if plot.log_x and ends[0] > 0 else ends
            share = (at - left) / (right - left)
            if plot.log_y and one.y > 0 and other.y > 0:
                return float(one.y ** (1 - share) * other.y**share)
            return one.y + share * (other.y - one.y)
    return None


def _coincide(plot: Plot, shown: Curves, one: float, other: float) -> bool:
    """Whether one point would hide the other."""
    most = max((abs(point.y) for point in shown.points), default=0.0)
    apart = 0.0 if plot.log_y else NEAR * most
    return math.isclose(one, other, rel_tol=NEAR, abs_tol=NEAR_ZERO if plot.zero else apart)


def shifts_of(plot: Plot, shown: Curves, size: Size) -> list[float]:
    """How far each curve is moved to the side, in points: all by nothing unless it is crowded."""
    moved = [index for index, curve in enumerate(shown.curves) if not curve.level]
    count = len(moved)
    shifts = [0.0] * len(shown.curves)
    xs = sorted(places_of(shown).values())
    if count < 2 or not _is_crowded(plot, shown):
        return shifts
    steps = [math.log(x) for x in xs] if plot.log_x and min(xs) > 0 else xs
    least = min((after - before for before, after in pairwise(steps)), default=0.0)
    whole = (steps[-1] - steps[0]) or 1.0
    room = 72 * 0.8 * size.width * least / whole if least else 72 * 0.4 * size.width
    step = min(1.3 * size.marker, 0.75 * room / count)
    for place, index in enumerate(moved):
        shifts[index] = (place - (count - 1) / 2) * step
    return shifts


def _is_crowded(plot: Plot, shown: Curves) -> bool:
    """Whether three curves are at one place, or intervals that are seen overlap."""
    most = max((abs(point.y) for point in shown.points), default=0.0)
    at: dict[Value, list[MeasuredPoint]] = {}
    for curve in shown.curves:
        for point in () if curve.level else curve.points:
            at.setdefault(point.x, []).append(point)
    crowds = 0
    for points in at.values():
        near = [
            sum(_coincide(plot, shown, point.y, other.y) for other in points) for point in points
        ]
        crowds += max(near) >= CROWD
        for one, other in combinations(points, 2):
            scale = LONG_LOG * min(one.y, other.y) if plot.log_y else LONG * most
            both = min(one.ci, other.ci) > scale if plot.error_bars else False
            if both and abs(one.y - other.y) < one.ci + other.ci:
                return True
    shared = sum(len(points) >= CROWD for points in at.values())
    return 2 * crowds >= shared > 0
