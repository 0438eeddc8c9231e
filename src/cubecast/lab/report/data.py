"""The input of a report: plain rows, and their origin.

`cubecast.spark.plain_tables` reads them from the tables of a directory; rows from elsewhere work as
well.  They may come in any order: figures and tables are ordered by the experiments' own grids, so
equal rows give equal files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Experiment
from cubecast.lab.verdicts import Row


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """One bucket of a histogram at one point of the grid."""

    experiment: str
    settings: Settings
    name: str
    bucket: int
    mean: float
    """Count per run: the mean over the seeds, where a run without the bucket counts as 0."""
    ci: float
    """Half the width of the confidence interval; 0 if it is not known."""
    n: int
    """Seeds."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of some results.  Unknown fields stay empty."""

    command: str = ""
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: int | None = None
    """Seeds per point that were asked for; None: as each experiment's file says."""
    quick: bool = False
    master: str = ""
    cells: int = 0
    seconds: float | None = None
    """From the first cell's start to the last one's end."""
    idle: float | None = None
    """Share of that time in which the executors' cores had no cell to run."""
    commit: str = ""
    """The commit of the sources; ends with "+" if they had uncommitted changes."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of some experiments."""

    experiments: Sequence[Experiment]
    """The experiments as they were when they ran."""
    rows: Sequence[Row]
    """Means with confidence intervals."""
    histograms: Sequence[HistogramRow] = ()
    provenance: Sequence[Provenance] = ()
    """The provenance of each sweep that measured cells, oldest first."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{experiment: names of the cells that the tables lack}; complete ones are left out."""
    failures: Sequence[str] = ()
    """Cells that failed in the last sweep, each with its error."""

    def rows_of(self, experiment: Experiment) -> list[Row]:
        """The rows of one experiment."""
        return [row for row in self.rows if row.experiment == experiment.id]

    def histograms_of(self, experiment: Experiment) -> list[HistogramRow]:
        """The histograms of one experiment."""
        return [row for row in self.histograms if row.experiment == experiment.id]
