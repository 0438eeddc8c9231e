"""What a report is made of: plain rows, and where they come from.

`cubecast.spark.plain_tables` reads them from the tables of a directory; rows from anywhere else do
as well.  They may come in any order: what is drawn from them is ordered by the experiments' own
grids, so equal rows give equal files.
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
    """How some of the results came about.  What is not known stays empty."""

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
    """Of the sources that ran; ends with "+" if they had changes that no commit has."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is known of some experiments."""

    experiments: Sequence[Experiment]
    """As they were when they ran."""
    rows: Sequence[Row]
    """Means with confidence intervals."""
    histograms: Sequence[HistogramRow] = ()
    provenance: Sequence[Provenance] = ()
    """Of each sweep that measured something, oldest first."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{experiment: names of the cells that the tables lack}; those that lack none are left out."""
    failures: Sequence[str] = ()
    """Cells that failed in the last sweep, each with its error."""

    def rows_of(self, experiment: Experiment) -> list[Row]:
        """The rows of one experiment."""
        return [row for row in self.rows if row.experiment == experiment.id]

    def histograms_of(self, experiment: Experiment) -> list[HistogramRow]:
        """The histograms of one experiment."""
        return [row for row in self.histograms if row.experiment == experiment.id]
