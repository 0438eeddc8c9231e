"""The metrics of many overlays in one compiled call ([N] 3.5; `shape` has the algorithms)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.rounds import shape
from cubecast.kernel.rounds.arithmetic import Ints, Longs, Word
from cubecast.kernel.rounds.play import Played
from cubecast.kernel.shared.jit import apart, entry, sources_digest

EXACT_UP_TO = 2000
"""In overlays up to this size, distances are measured from every node."""
SOURCES = 64
"""In larger overlays, distances are measured from this many nodes."""

Doubles: TypeAlias = npt.NDArray[np.float64]
COLUMNS = (
    "unknown", "in_degree_sd", "in_degree_max", "weak_components", "strong_components", "outside",
    "clustering", "diameter", "distance", "distance_error", "unreached", "sources",
)  # fmt: skip
WHOLE = frozenset(
    {"unknown", "in_degree_max", "weak_components", "strong_components", "outside", "diameter",
     "sources"}
)  # fmt: skip
"""The columns that hold whole numbers."""
(
    UNKNOWN, DEGREE_SD, DEGREE_MAX, WEAK, STRONG, OUTSIDE, CLUSTERING, DIAMETER, DISTANCE,
    DISTANCE_ERROR, UNREACHED, SOURCES_USED,
) = range(len(COLUMNS))  # fmt: skip


@dataclass(frozen=True, slots=True)
class OverlayMetrics:
    """One number per topic in each array; all 0 for an overlay without links.

    Distances go along the links' direction.  Pairs without a path have none; `unreached` is their
    share.  Where `sources` is smaller than the overlay, distances were measured from that many
    random nodes: `distance` has an error of `distance_error` (half of a 95 % interval), and
    `diameter` is a lower bound.
    """

    topics: Longs
    nodes: Longs
    view_sizes: Longs
    unknown: Longs
    """Nodes that no view names."""
    in_degree_sd: Doubles
    in_degree_max: Longs
    weak_components: Longs
    strong_components: Longs
    outside: Longs
    """Nodes outside the largest strong component."""
    clustering: Doubles
    """Links among a node's neighbours / k (k - 1), the mean over nodes."""
    diameter: Longs
    distance: Doubles
    distance_error: Doubles
    unreached: Doubles
    sources: Longs


def overlay_metrics(
    played: Played,
    round_: int,
    *,
    run: int = 0,
    exact_up_to: int = EXACT_UP_TO,
    sources: int = SOURCES,
) -> OverlayMetrics:
    """The metrics of each topic's overlay after a round.

    Without sources (0) distances are not measured in overlays larger than `exact_up_to`.
    """
    table = np.zeros((len(played.topics), len(COLUMNS)), np.float64)
    measure(
        played.topics, played.offsets, played.sizes, played.view_offsets, played.row(round_),
        np.uint64(run & (2**64 - 1)), exact_up_to, sources, table,
    )  # fmt: skip
    columns: dict[str, Any] = {
        name: column.astype(np.int64) if name in WHOLE else column.copy()
        for name, column in zip(COLUMNS, table.T, strict=True)
    }
    return OverlayMetrics(played.topics, np.diff(played.offsets), played.sizes, **columns)


def in_degrees(played: Played, round_: int) -> Longs:
    """How many views of its topic name each entry of ``played.members``."""
    lengths = np.diff(played.view_offsets)
    named = played.row(round_) + np.repeat(played.offsets[:-1], lengths)
    return np.bincount(named, minlength=len(played.members)).astype(np.int64)


# -- compiled --------------------------------------------------------------------------------------


@apart
def _measure_degrees(views: Ints, n: int, k: int, row: Doubles) -> None:
    degrees = np.zeros(n, np.int64)
    shape.count_in_degrees(views, degrees)
    squares = 0.0
    for degree in degrees:
        row[UNKNOWN] += degree == 0
        row[DEGREE_MAX] = max(row[DEGREE_MAX], degree)
        squares += (degree - k) ** 2
    row[DEGREE_SD] = np.sqrt(squares / n)


@apart
def _measure_overlay(views: Ints, n: int, k: int, sources: int, stream: Word, row: Doubles) -> None:
    _measure_degrees(views, n, k, row)
    row[WEAK] = shape.weak_components(views, n, k)
    parts, largest = shape.strong_components(views, n, k)
    row[STRONG], row[OUTSIDE] = parts, n - largest
    row[CLUSTERING] = shape.clustering(views, n, k)
    if sources:
        diameter, distance, error, unreached, used = shape.distances(views, n, k, sources, stream)
        row[DIAMETER], row[DISTANCE], row[DISTANCE_ERROR] = diameter, distance, error
        row[UNREACHED], row[SOURCES_USED] = unreached, used


Measure: TypeAlias = Callable[
    [Longs, Longs, Longs, Longs, Ints, Word, int, int, npt.NDArray[np.float64]], None
]


def _make_measure(digest: str) -> Measure:
    """The entry point; `digest` is part of the key under which it is kept."""

    @entry
    def measure(
        topics: Longs, offsets: Longs, sizes: Longs, view_offsets: Longs, views: Ints, run: Word,
        exact_up_to: int, sources: int, table: npt.NDArray[np.float64],
    ) -> None:  # fmt: skip
        for number in range(len(topics) if digest else 0):
            n = offsets[number + 1] - offsets[number]
            if sizes[number] == 0:
                continue
            own = views[view_offsets[number] : view_offsets[number + 1]]
            stream = shape.sources_stream(run, np.uint64(topics[number]))
            count = n if n <= exact_up_to else sources
            _measure_overlay(own, n, sizes[number], count, stream, table[number])

    return measure


measure = _make_measure(sources_digest(__package__))
