"""Compares two results: the differences, point by point, by pyarrow and plain sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from cubecast.lab.statistics import summary
from cubecast.spark.results import Results

Run: TypeAlias = tuple[str, str, int]
"""Experiment, settings, seed: they identify equal runs of two directories."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric at one point: B minus A."""

    experiment: str
    cell: int
    settings: str
    metric: str
    n: int
    """Pairs of runs."""
    a: float
    b: float
    """The means of the runs that have a counterpart."""
    difference: float
    ci: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences, in the order of A's grids, and how many runs have no counterpart."""

    differences: Sequence[Difference]
    only_in_a: int
    only_in_b: int


COLUMNS = ("experiment", "cell", "settings", "seed", "metric", "value")


def compare(before: Results, after: Results) -> Comparison:
    """Compare the runs that two directories share."""
    for side in (before, after):
        side.require_tables()
    return compared(*(side.table("runs", COLUMNS) for side in (before, after)))


def compared(before: pa.Table, after: pa.Table) -> Comparison:
    """Compare two tables of runs.

    Points are matched by their settings and runs by their seed: with the same seed both saw the
    same workload, so the differences of the pairs vary less, and the interval is theirs.
    """
    a, b = (_runs(table) for table in (before, after))
    pairs: dict[tuple[str, int, str, str], list[tuple[int, float, float]]] = {}
    for (run, metric), (cell, value) in a.items():
        if (run, metric) in b:
            experiment, settings, seed = run
            place = (experiment, cell, metric, settings)
            pairs.setdefault(place, []).append((seed, value, b[run, metric][1]))
    found = [
        _difference(experiment, cell, settings, metric, sorted(values))
        for (experiment, cell, metric, settings), values in sorted(pairs.items())
    ]
    runs_of_a, runs_of_b = ({run for run, _ in side} for side in (a, b))
    return Comparison(found, len(runs_of_a - runs_of_b), len(runs_of_b - runs_of_a))


def _runs(table: pa.Table) -> dict[tuple[Run, str], tuple[int, float]]:
    """{(run, metric): (cell, value)}."""
    columns = (table[name].to_pylist() for name in COLUMNS)
    return {
        ((experiment, settings, seed), metric): (cell, value)
        for experiment, cell, settings, seed, metric, value in zip(*columns, strict=True)
    }


def _difference(
    experiment: str,
    cell: int,
    settings: str,
    metric: str,
    pairs: Sequence[tuple[int, float, float]],
) -> Difference:
    both = summary([b - a for _, a, b in pairs])
    a, b = (summary([pair[side] for pair in pairs]).mean for side in (1, 2))
    return Difference(experiment, cell, settings, metric, both.n, a, b, both.mean, both.ci)
