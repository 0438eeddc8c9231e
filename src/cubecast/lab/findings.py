"""What a directory of results comes to: plain data, all that a report or a comparison needs.

`cubecast.spark.gather` makes it; nothing here knows of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Experiment
from cubecast.lab.verdicts import Row


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of one point of a grid, the seeds together."""

    experiment: str
    settings: Settings
    name: str
    buckets: Mapping[int, int]
    """{bucket: count}, in the order of the buckets."""


@dataclass(frozen=True, slots=True)
class Busyness:
    """How busy the cores were in one sweep."""

    sweep: str
    cores: int
    cells: int
    busy_s: float
    """Inside cells, all cores together."""
    span_s: float
    """From the first cell's start to the last one's end."""
    tail_s: float
    """How long the first core without work waited for the last cell."""
    idle_share: float | None


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is known of some experiments."""

    directory: Path
    experiments: tuple[Experiment, ...]
    """As they were when they ran."""
    rows: tuple[Row, ...]
    """Means with confidence intervals, in the order of the grids."""
    distributions: tuple[Distribution, ...]
    sweeps: tuple[Mapping[str, Any], ...]
    """Who ran what when: command, versions, master, cores, seconds."""
    busyness: tuple[Busyness, ...]
    missing: Mapping[str, int]
    """{experiment: cells of its grid that are not finished}; those with none are left out."""
    failures: tuple[str, ...]
    """Cells that failed in the last sweep, by name, each with its error."""
