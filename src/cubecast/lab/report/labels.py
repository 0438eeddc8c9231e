"""Numbers beside points: each is put where it covers nothing else.

1. A label avoids every marker, interval, bar and label of the figure, and the edges of its axes.
2. A label that must be there takes the least bad place.  Values beside dots, which only help, have
   one place for all of a figure, and are left out if some would cover something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from cubecast.lab.report.curve_styles import INK, PAPER, Size

HALO = [withStroke(linewidth=2.0, foreground=PAPER)]
"""A halo around numbers, so that they can be read on a line."""
POINTS = 72.0
APART = 3.0
"""Pixels between a value and what is beside it."""
STEP = 3.0
"""Pixels between the places at which a line counts as an obstacle."""
SOLID, LINE, OUTSIDE, OVER = 10.0, 0.4, 100.0, 3.0
"""The costs of covering a mark, of a piece of a line, of leaving the axes, of rising above them."""
PLACES = {
    "above": (0.0, 1.0), "below": (0.0, -1.0), "right": (1.0, 0.0), "left": (-1.0, 0.0),
    "above right": (0.8, 0.8), "above left": (-0.8, 0.8), "below right": (0.8, -0.8),
    "below left": (-0.8, -0.8), "far above": (0.0, 2.6), "far below": (0.0, -2.6),
    "farther above": (0.0, 4.2), "farther below": (0.0, -4.2),
}  # fmt: skip
VALUES = ("right", "above", "below")
"""The places of values beside dots."""


class Box(NamedTuple):
    """A part of a figure, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether they have a place in common."""
        return (
            self.left < other.right and other.left < self.right
            and self.bottom < other.top and other.bottom < self.top
        )  # fmt: skip

    def widened(self, by: float) -> Box:
        """With so much more room on both sides."""
        return self._replace(left=self.left - by, right=self.right + by)


class Label(Annotation):
    """A number beside the point `xy`, whose mark reaches `reach` points to each side.

    `ends` are the ends of the point's interval: above and below, the label is beyond them.
    """

    def __init__(
        self, text: str, xy: tuple[float, float], size: Size, *, reach: float,
        first: str = "above", value: bool = False, ends: tuple[float, float] | None = None,
        colour: str = INK,
    ) -> None:  # fmt: skip
        super().__init__(
            text, xy, xytext=(0.0, reach), textcoords="offset points", ha="center", va="center",
            fontsize=size.tiny, zorder=6, path_effects=HALO, annotation_clip=False,
            color=colour,
        )  # fmt: skip
        self.reach, self.first, self.value = reach, first, value
        self.low, self.high = ends or (xy[1], xy[1])


def add_label(axes: Any, label: Label) -> None:
    axes.add_artist(label)
    label.set_clip_on(False)


def settle(axes: Any) -> None:
    """Put the labels of some axes, whose size and limits are final, at their places."""
    labels = [text for text in axes.texts if isinstance(text, Label)]
    if not labels:
        return
    solid, lines = list(solid_of(axes)), list(_lines(axes))
    inside = box_of(axes.get_window_extent())
    for label in labels:
        if not label.value:
            costs = {
                place: _cost(_moved(axes, label, place), solid, lines, inside) + 0.2 * rank
                for rank, place in enumerate(_in_order(label.first))
            }
            _put(axes, label, min(costs, key=costs.__getitem__), solid)
    values = [label for label in labels if label.value]
    place = _place_of_all(axes, values, solid, inside)
    for label in values:
        label.set_visible(place is not None)
        if place is not None:
            _put(axes, label, place, solid)


def _in_order(first: str) -> Iterator[str]:
    """All places, the preferred one first."""
    yield first
    yield from (place for place in PLACES if place != first)


def _place_of_all(
    axes: Any, labels: Sequence[Label], solid: Sequence[Box], inside: Box
) -> str | None:
    """The place at which none of some labels covers a mark or another of them."""
    for place in VALUES if labels else ():
        boxes = [_moved(axes, label, place).widened(APART) for label in labels]
        others = [[*solid, *boxes[:index], *boxes[index + 1 :]] for index in range(len(boxes))]
        if not any(_cost(box, other, (), inside) for box, other in zip(boxes, others, strict=True)):
            return place
    return None


def _cost(box: Box, solid: Sequence[Box], lines: Sequence[Box], inside: Box) -> float:
    cost = SOLID * sum(map(box.meets, solid)) + LINE * sum(map(box.meets, lines))
    if box.left < inside.left or box.right > inside.right or box.bottom < inside.bottom:
        cost += OUTSIDE
    return cost + (OVER if box.top > inside.top else 0.0)


def _put(axes: Any, label: Label, place: str, solid: list[Box]) -> None:
    """Move a label; from now on others avoid it."""
    x, y = _middle(axes, label, place)
    at_x, at_y = axes.transData.transform(label.xy)
    scale = POINTS / axes.figure.dpi
    label.xyann = ((x - at_x) * scale, (y - at_y) * scale)
    solid.append(_moved(axes, label, place))


def _moved(axes: Any, label: Label, place: str) -> Box:
    """The room that a label takes at a place."""
    x, y = _middle(axes, label, place)
    width, height = _extent(label)
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _middle(axes: Any, label: Label, place: str) -> tuple[float, float]:
    """The middle of a label at a place, in pixels."""
    right, up = PLACES[place]
    width, height = _extent(label)
    pixels = axes.figure.dpi / POINTS
    gap = (label.reach + 1.5) * pixels
    end = label.high if up > 0 else label.low if up < 0 else label.xy[1]
    x, y = axes.transData.transform((label.xy[0], end))
    along = (gap + width / 2) * (1 if right > 0 else -1 if right < 0 else 0)
    over = 0.0
    if up:
        steps = max(0.0, abs(up) - 1)
        room = gap * (min(abs(up), 1.0) if right else 1.0) + height / 2 + steps * height
        over = room if up > 0 else -room
    return float(x) + along * (min(abs(right), 1.0) if up else 1.0), float(y) + over


def _extent(label: Label) -> tuple[float, float]:
    shown = label.get_visible()
    label.set_visible(True)
    extent = label.get_window_extent()
    label.set_visible(shown)
    return float(extent.width), 0.86 * float(extent.height)


# -- what is in the way ---------------------------------------------------------------------------


def solid_of(axes: Any) -> Iterator[Box]:
    """Markers, intervals with their ends, and bars."""
    pixels = axes.figure.dpi / POINTS
    for line in axes.lines:
        marker = line.get_marker()
        if marker in ("", " ", "None", None):
            continue
        half = (line.get_markersize() / 2 + 0.7) * pixels
        tall = pixels if marker == "_" else half
        for x, y in line.get_transform().transform(line.get_xydata()):
            yield Box(x - half, y - tall, x + half, y + tall)
    for drawn in axes.collections:
        if isinstance(drawn, LineCollection):
            for segment in drawn.get_segments():
                ends = drawn.get_transform().transform(segment)
                yield _around(ends, pixels)
        elif isinstance(drawn, PathCollection):
            reach = 0.75 * float(drawn.get_sizes().max(initial=0)) ** 0.5 * pixels
            for x, y in drawn.get_offset_transform().transform(drawn.get_offsets()):
                yield Box(x - reach, y - reach, x + reach, y + reach)
    for patch in axes.patches:
        if isinstance(patch, Rectangle):
            yield box_of(patch.get_window_extent())


def _lines(axes: Any) -> Iterator[Box]:
    """Pieces of curves and outlines."""
    for line in axes.lines:
        if line.get_linestyle() not in ("", " ", "None", "none"):
            yield from _pieces(line.get_transform().transform(line.get_xydata()))
    for patch in axes.patches:
        if isinstance(patch, StepPatch) and not patch.get_fill():
            yield from _pieces(patch.get_transform().transform(patch.get_path().vertices))


def _pieces(corners: Any) -> Iterator[Box]:
    for (x, y), (to_x, to_y) in pairwise(corners):
        length = float(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5)
        if not length < 1e5:  # no number, or an end that the axis cannot show
            continue
        count = max(1, int(length / STEP))
        for step in range(count + 1):
            share = step / count
            at_x, at_y = x + share * (to_x - x), y + share * (to_y - y)
            yield Box(at_x - 1, at_y - 1, at_x + 1, at_y + 1)


def _around(ends: Any, reach: float) -> Box:
    return Box(
        float(ends[:, 0].min()) - reach, float(ends[:, 1].min()) - reach,
        float(ends[:, 0].max()) + reach, float(ends[:, 1].max()) + reach,
    )  # fmt: skip


def box_of(extent: Any) -> Box:
    return Box(float(extent.x0), float(extent.y0), float(extent.x1), float(extent.y1))
