"""An experiment's figures from aggregated rows: as PNG, SVG and PDF, and as SVG inside a page.

1. The figures of one experiment have the same margins: beside each other, their axes are level.
2. The same curves give the same bytes: no dates, and names inside an SVG come from a fixed salt.

Importing this module needs matplotlib (``pip install 'cubecast[lab]'``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from cubecast.lab.experiment import Experiment, Plot
from cubecast.lab.report.axes import label_axes
from cubecast.lab.report.curve_styles import (
    COLOURS,
    GRID,
    INK,
    PAPER,
    SIZES,
    Size,
    WidthName,
    style,
)
from cubecast.lab.report.curves import FEW_SEEDS, Curves, shown_in, shows_zero
from cubecast.lab.report.data import HistogramRow
from cubecast.lab.report.diamonds import LIMIT, PRINTED
from cubecast.lab.report.labels import settle
from cubecast.lab.report.lines import are_dense, are_marked, errors_of, shifts_of
from cubecast.lab.report.paper_marks import Mark, marks
from cubecast.lab.report.plots import are_many, draw_on
from cubecast.lab.report.wording import NARROW, plain, rounded
from cubecast.lab.verdicts import Row

FORMATS = ("png", "svg", "pdf")
DPI = 200
PAD = 0.05
"""Inches around everything."""
_NO_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure in its formats, and the notes of its caption."""

    files: Mapping[str, bytes]
    """{format: content}."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Margins:
    """The space around the axes, in inches."""

    left: float
    right: float
    bottom: float
    top: float

    def widened(self, other: _Margins) -> _Margins:
        return _Margins(
            max(self.left, other.left), max(self.right, other.right),
            max(self.bottom, other.bottom), max(self.top, other.top),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A drawn figure whose axes have no place yet."""

    figure: Any
    axes: Any
    notes: tuple[str, ...]


def figure_names(experiment: Experiment) -> dict[str, Plot]:
    """The plots by the names of their files, all different."""
    named: dict[str, Plot] = {}
    for index, plot in enumerate(experiment.plot, 1):
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", plot.name) or str(index)
        name = f"{experiment.id}-{short}"
        named[f"{name}-{index}" if name in named else name] = plot
    return named


def draw_all(
    experiment: Experiment,
    rows: Sequence[Row],
    histograms: Sequence[HistogramRow] = (),
    *,
    formats: Sequence[str] = ("png", "svg"),
    width: WidthName = "page",
) -> dict[str, Drawing | None]:
    """The figures of an experiment by the names of their files; None: no point was measured."""
    with _style(SIZES[width]):
        return {
            name: None if sketch is None else Drawing(
                {kind: _saved(sketch.figure, kind) for kind in formats}, sketch.notes
            )
            for name, sketch in _placed(experiment, rows, histograms, SIZES[width]).items()
        }  # fmt: skip


def figures_of(
    experiment: Experiment,
    rows: Sequence[Row],
    histograms: Sequence[HistogramRow] = (),
    *,
    width: WidthName = "page",
) -> dict[str, Figure]:
    """The same as matplotlib figures, without those that have no measured point."""
    with _style(SIZES[width]):
        placed = _placed(experiment, rows, histograms, SIZES[width])
        return {name: sketch.figure for name, sketch in placed.items() if sketch is not None}


def _placed(
    experiment: Experiment,
    rows: Sequence[Row],
    histograms: Sequence[HistogramRow],
    size: Size,
) -> dict[str, _Sketch | None]:
    """All figures of an experiment, with the same margins."""
    sketches = {
        name: _sketch(experiment, plot, rows, histograms, size)
        for name, plot in figure_names(experiment).items()
    }
    there = [sketch for sketch in sketches.values() if sketch is not None]
    margins = _Margins(0.0, 0.0, 0.0, 0.0)
    for sketch in there:
        margins = margins.widened(_margins(sketch))
    for sketch in there:
        _place(sketch, margins, size)
    return sketches


@contextmanager
def _style(size: Size) -> Iterator[None]:
    """Our style, whatever the user's matplotlib is set to."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(style(size))
        yield


def _sketch(
    experiment: Experiment,
    plot: Plot,
    rows: Sequence[Row],
    histograms: Sequence[HistogramRow],
    size: Size,
) -> _Sketch | None:
    shown = shown_in(experiment, plot, rows, histograms)
    if not shown.curves:
        return None
    figure = Figure(figsize=(size.width, size.plot_height + 1.0))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.12, 0.15, 0.86, size.plot_height / (size.plot_height + 1.0)))
    printed = draw_on(axes, plot, shown, marks(experiment, plot), size)
    label_axes(axes, plot)
    _add_legend(figure, axes, size, (plot.diagonal, PRINTED, LIMIT))
    settle(axes)
    return _Sketch(figure, axes, notes_of(plot, shown, printed))


def _add_legend(figure: Any, axes: Any, size: Size, last: Sequence[str]) -> None:
    """Add a legend above the axes, where it hides nothing: the curves, then what is no curve."""
    pairs = list(zip(*axes.get_legend_handles_labels(), strict=True))
    if len(pairs) < 2:
        return
    pairs.sort(key=lambda pair: pair[1] in last)
    handles = [one[0] if isinstance(one, ErrorbarContainer) else one for one, _ in pairs]
    labels = [label for _, label in pairs]
    widest = max(len(text) for text in labels)
    room = 76 * size.width / 5.6 * 8.5 / size.small
    lines = math.ceil(len(labels) / max(1, int(room / (widest + 7))))
    columns = math.ceil(len(labels) / lines)
    figure.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 0.9), ncols=columns,
        columnspacing=1.6, borderpad=0.2, borderaxespad=0.2, labelspacing=0.35,
    )  # fmt: skip


# -- margins --------------------------------------------------------------------------------------


def _margins(sketch: _Sketch) -> _Margins:
    """The room that ticks, labels and the legend take."""
    figure, dpi = sketch.figure, sketch.figure.dpi
    renderer = figure.canvas.get_renderer()
    figure.draw_without_rendering()
    inside = sketch.axes.get_window_extent(renderer)
    whole = sketch.axes.get_tightbbox(renderer)
    legends = [legend.get_window_extent(renderer).height for legend in figure.legends]
    return _Margins(
        left=(inside.x0 - whole.x0) / dpi + PAD,
        right=max(0.0, whole.x1 - inside.x1) / dpi + PAD,
        bottom=(inside.y0 - whole.y0) / dpi + PAD,
        top=_above(sketch) + sum(legends) / dpi + 2 * PAD,
    )


def _above(sketch: _Sketch) -> float:
    """How far ticks and labels rise above the axes, in inches."""
    renderer = sketch.figure.canvas.get_renderer()
    whole = sketch.axes.get_tightbbox(renderer)
    over = whole.y1 - sketch.axes.get_window_extent(renderer).y1
    return max(0.0, float(over)) / float(sketch.figure.dpi)


def _place(sketch: _Sketch, margins: _Margins, size: Size) -> None:
    height = margins.bottom + size.plot_height + margins.top
    inside = size.width - margins.left - margins.right
    above = _above(sketch)
    sketch.figure.set_size_inches(size.width, height)
    sketch.axes.set_position((
        margins.left / size.width, margins.bottom / height,
        inside / size.width, size.plot_height / height,
    ))  # fmt: skip
    for legend in sketch.figure.legends:
        foot = (margins.bottom + size.plot_height + above + PAD) / height
        legend.set_bbox_to_anchor((0, foot), transform=sketch.figure.transFigure)
    settle(sketch.axes)


def _saved(figure: Any, kind: str) -> bytes:
    buffer = BytesIO()
    figure.savefig(
        buffer, format=kind, dpi=DPI if kind == "png" else 72, metadata=_NO_METADATA[kind]
    )
    return buffer.getvalue()


def save(drawing: Drawing | None, stem: Path, formats: Sequence[str]) -> None:
    """Write `stem`.png and so on; remove files of other formats of an earlier report."""
    for kind in FORMATS:
        path = stem.parent / f"{stem.name}.{kind}"
        if drawing is not None and kind in formats:
            path.write_bytes(drawing.files[kind])
        else:
            path.unlink(missing_ok=True)


# -- captions -------------------------------------------------------------------------------------


def notes_of(plot: Plot, shown: Curves, printed: Sequence[Mark]) -> tuple[str, ...]:
    """The notes that a reader of a figure needs."""
    notes = [_note_of_seeds(plot, shown)]
    few = [point.few for point in shown.points]
    drawn = plot.kind in ("bars", "dots") or are_marked(plot, shown)
    if any(few) and not all(few) and drawn:
        notes.append(f"Hollow: fewer than {FEW_SEEDS} seeds.")
    elif all(few) and shown.seeds[1] > 1:
        notes.append("So few seeds tell little" + ("; all points are hollow." if drawn else "."))
    if any(mark.x is not None for mark in printed):
        notes.append("Diamonds: the numbers that the paper prints.")
    if any(mark.x is None for mark in printed):
        notes.append("Dotted: a limit that the paper prints.")
    if are_marked(plot, shown) and any(shifts_of(plot, shown, SIZES["page"])):
        notes.append("Curves stand a little apart at the same x.")
    if plot.kind == "cumulative":
        notes.append("Sums have no intervals: those of their parts are not independent.")
    if not plot.from_zero:
        notes.append("The axis does not begin at zero.")
    if plot.bin_width > 1:
        notes.append("Each point stands in the middle of its bin.")
    if shown.cut is not None:
        last, share = shown.cut
        notes.append(f"Up to {rounded(100 * share)}{NARROW}% of a curve lies beyond {plain(last)}.")
    if shows_zero(plot) and (plot.zero or any(point.y == 0 for point in shown.points)):
        notes.append("The axis is linear below 1.")
    if shown.dropped:
        what = "points are" if shown.dropped > 1 else "point is"
        notes.append(f"{shown.dropped} {what} not shown: zero on a logarithmic axis, or no number.")
    return tuple(notes)


def _note_of_seeds(plot: Plot, shown: Curves) -> str:
    fewest, most = shown.seeds
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    if most == 1:
        return "One seed per point: no confidence intervals."
    if not any(errors_of(plot, shown, curve.points) for curve in shown.curves):
        return f"Means over {seeds} seeds."
    banded = are_dense(plot, shown) or (plot.kind == "histogram" and are_many(plot, shown))
    return f"{'Bands' if banded else 'Error bars'}: 95 % confidence intervals over {seeds} seeds."


# -- inside a page --------------------------------------------------------------------------------

_VARIABLES = {
    INK: "var(--ink)", GRID: "var(--grid)", PAPER: "var(--card)",
    **{colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)},
}  # fmt: skip


def inline(svg: bytes, prefix: str, title: str) -> str:
    """The SVG as an element of a page: it takes the page's colours, and shares no ids with others.

    `title` and `prefix` must be safe in an attribute already.
    """
    text = svg.decode("utf-8")
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
