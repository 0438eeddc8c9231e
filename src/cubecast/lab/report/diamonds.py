"""The paper's numbers on a figure: diamonds, lines, and their values.

1. A printed number has one diamond and one label, however many readings of ours it is compared
   with: it stands in their middle, and a line reaches to all of them.
2. A diamond has the colour of its curve, or of no curve if it belongs to several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from cubecast.lab.experiment import OF_HISTOGRAMS, Plot
from cubecast.lab.report.curve_styles import INK, PAPER, Size, looks_of
from cubecast.lab.report.curves import Curve, Curves
from cubecast.lab.report.labels import Label, add_label
from cubecast.lab.report.paper_marks import Mark

PRINTED = "printed in the paper"
LIMIT = "limit printed in the paper"
FEWEST_REPEATED = 3
"""A number that is marked at so many places becomes a line."""
DOTTED = (0, (1, 3))


class Spot(NamedTuple):
    """A printed number at a place of its own, with the colours of its curves."""

    place: float
    mark: Mark
    colours: frozenset[str] = frozenset()
    ends: tuple[float, float] | None = None
    """The first and the last place, if it stands for several."""


PlaceOf: TypeAlias = Callable[[Curve, Mark], float | None]


def is_shown(mark: Mark, plot: Plot, shown: Curves) -> bool:
    """Whether a printed number is marked: only where a point of ours is beside it, or could be."""
    own = [curve for curve in shown.curves if belongs(mark, curve)]
    if plot.log_y and mark.y <= 0:
        return False
    if plot.kind in OF_HISTOGRAMS:
        return bool(own) and mark.y > 0 and mark.x is not None
    if mark.x is None:
        return bool(own)
    return any(curve.level or point.x == mark.x for curve in own for point in curve.points)


def belongs(mark: Mark, curve: Curve) -> bool:
    return all(curve.value(name) == value for name, value in mark.series)


def spots_of(shown: Curves, printed: Sequence[Mark], place_of: PlaceOf) -> list[Spot]:
    """Each printed number once for each x, in the middle of the curves that it belongs to."""
    found: dict[tuple[object, ...], list[tuple[float, Mark, str]]] = {}
    looks = [look.colour for look in looks_of(shown)]
    for mark in printed:
        if mark.x is None:
            continue
        for curve, colour in zip(shown.curves, looks, strict=True):
            place = place_of(curve, mark) if belongs(mark, curve) else None
            if place is not None:
                found.setdefault((mark.number, mark.text, mark.y, mark.x), []).append(
                    (place, mark, colour)
                )
    spots = []
    for group in found.values():
        places = [place for place, _, _ in group]
        ends = (min(places), max(places))
        middle = sum(ends) / 2
        colours = frozenset(colour for _, _, colour in group)
        spots.append(Spot(middle, group[0][1], colours, ends if ends[0] < ends[1] else None))
    return spots


def draw_spots(axes: Any, spots: Sequence[Spot], size: Size, *, filled: bool = False) -> None:
    """Draw the paper's numbers with their values; filled where they stand on bars."""
    if not spots:
        return
    colours = [next(iter(spot.colours)) if len(spot.colours) == 1 else INK for spot in spots]
    for spot, colour in zip(spots, colours, strict=True):
        if spot.ends:
            axes.hlines(spot.mark.y, *spot.ends, colors=colour, linewidth=1.0, zorder=4.5)
    faces = [PAPER if filled or spot.ends else "none" for spot in spots]
    axes.scatter(
        [spot.place for spot in spots], [spot.mark.y for spot in spots], marker="D",
        s=(1.4 * size.marker) ** 2, facecolors=faces, edgecolors=colours,
        linewidths=1.2, zorder=5, clip_on=False,
        path_effects=[withStroke(linewidth=2.6, foreground=PAPER)],
    )  # fmt: skip
    add_handle(axes, size)
    for spot, colour in zip(spots, colours, strict=True):
        crowd = {
            one for one, other in zip(colours, spots, strict=True) if other.place == spot.place
        }
        above = all(spot.mark.y >= other.mark.y for other in spots if other.place == spot.place)
        label = Label(
            spot.mark.text, (spot.place, spot.mark.y), size, reach=1.05 * size.marker,
            first="above" if above else "below", colour=colour if len(crowd) > 1 else INK,
        )  # fmt: skip
        add_label(axes, label)


def add_handle(axes: Any, size: Size) -> None:
    """What the legend shows for all diamonds."""
    handle = Line2D(
        [], [], linestyle="none", marker="D", markersize=1.4 * size.marker,
        markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2, label=PRINTED,
    )  # fmt: skip
    axes.add_line(handle)


def draw_repeated(axes: Any, spots: Sequence[Spot]) -> list[Spot]:
    """Draw a line for a number that the paper prints without an x; the spots to mark.

    Such a number stands at the x of every reading.  It is marked once, at the last x.
    """
    same: dict[tuple[str, float], list[Spot]] = {}
    for spot in spots:
        same.setdefault((spot.mark.text, spot.mark.y), []).append(spot)
    left: list[Spot] = []
    for (_, y), found in same.items():
        if len({spot.place for spot in found}) < FEWEST_REPEATED:
            left += found
            continue
        axes.axhline(y, color=INK, linewidth=1.0, linestyle=DOTTED, zorder=1)
        last = max(found, key=lambda spot: spot.place)
        colours = frozenset[str]().union(*(spot.colours for spot in found))
        left.append(last._replace(colours=colours))
    return left


def draw_bounds(axes: Any, printed: Sequence[Mark], places: dict[Any, float], size: Size) -> None:
    """Draw a line for each bound that the paper prints for a range of x, with its value."""
    bounds = {(mark.number, mark.text, mark.y, mark.until) for mark in printed if mark.x is None}
    for _, text, y, until in sorted(bounds):
        within = [place for x, place in places.items() if not until or float(x) <= until]
        if not within:
            continue
        first, last = min(within) - 0.45, max(within) + 0.45
        axes.hlines(y, first, last, colors=INK, linewidth=1.2, linestyle=DOTTED, zorder=3)
        add_label(axes, Label(text, (last - 0.2, y), size, reach=1.0))
    if bounds:
        axes.add_line(Line2D([], [], color=INK, linewidth=1.2, linestyle=DOTTED, label=LIMIT))
