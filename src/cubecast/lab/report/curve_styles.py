"""How curves look: colours, markers, lines, hatches, and the style of all figures.

Colours are safe for the colour-blind (Okabe and Ito), and no curve is identified by its colour
alone: each has its own marker.  A protocol has the same colour in every figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cubecast.lab.cells import Value
from cubecast.lab.report.curves import Curves

INK, GRID, PAPER = "#22303c", "#dde3e8", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7280")
PROTOCOL_COLOURS = {
    name: COLOURS[index]
    for index, name in enumerate(
        ("vcube-ps", "srpt", "cubecast", "srpt-b", "fixed-tree", "vcube-pb", "best-effort")
    )
} | {"srpt-told": COLOURS[1]}
MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">", "p", "h")
LINES = ("-", "--", ":", "-.")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oo")

WidthName = Literal["page", "column"]


@dataclass(frozen=True, slots=True)
class Size:
    """The measures of a figure, in inches and points."""

    width: float
    plot_height: float
    """Of the area inside the axes."""
    font: float
    small: float
    """Of legends."""
    tiny: float
    """Of numbers beside points."""
    line: float
    marker: float
    most_ticks: int


SIZES: dict[WidthName, Size] = {
    "page": Size(5.6, 2.75, 9.0, 8.5, 7.5, 1.6, 5.0, 11),
    "column": Size(3.4, 1.9, 7.0, 6.5, 6.0, 1.1, 3.6, 7),
}
"""A page has two such figures beside each other; 3.4 inches are a column of most papers."""


def style(size: Size) -> dict[str, Any]:
    """The settings of matplotlib for every figure."""
    return {
        "font.family": ["DejaVu Sans"], "font.size": size.font, "text.color": INK,
        "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.linewidth": 0.8,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
        "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7,
        "xtick.color": INK, "ytick.color": INK, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "legend.frameon": False, "legend.fontsize": size.small, "legend.handlelength": 2.4,
        "hatch.linewidth": 0.6, "lines.linewidth": size.line, "lines.markersize": size.marker,
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER,
        "svg.fonttype": "path", "svg.hashsalt": "cubecast", "pdf.fonttype": 42,
        "axes.unicode_minus": True, "path.simplify": False,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """The style of one curve."""

    colour: str
    marker: str
    line: str
    hatch: str


def looks_of(shown: Curves) -> list[Look]:
    """Colour by protocol if there are several, else by the first varying setting; lines and hatches
    by the rest; markers by the curve."""
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
        looks.append(Look(colour, MARKERS[index % len(MARKERS)], line, hatch))
    return looks
