"""What finished sweeps hand to the report: plain rows, and where they come from.

Whoever aggregates the measurements fills a `Results` (`results_of` does so from what
`cubecast.spark` gathers); figures, tables and verdicts need nothing else.  Rows may come in any
order: what is drawn from them is ordered by the experiments' own grids, so equal rows give equal
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Experiment
from cubecast.lab.verdicts import Row, Verdict, judge


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


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a report is made of."""

    experiments: Sequence[Experiment]
    rows: Sequence[Row]
    histograms: Sequence[HistogramRow] = ()
    provenance: Sequence[Provenance] = ()
    """Of each sweep that measured something, oldest first."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """{experiment: cells of its grid that are not finished}."""
    failures: Sequence[str] = ()
    """Cells that could not be measured, each with its error."""

    def rows_of(self, experiment: Experiment) -> list[Row]:
        """The rows of one experiment."""
        return [row for row in self.rows if row.experiment == experiment.id]

    def histograms_of(self, experiment: Experiment) -> list[HistogramRow]:
        """The histograms of one experiment."""
        return [row for row in self.histograms if row.experiment == experiment.id]

    def verdicts(self) -> list[Verdict]:
        """One for every number of the papers that the experiments name."""
        return [one for experiment in self.experiments for one in judge(experiment, self.rows)]


# -- from a directory of results ------------------------------------------------------------------


class Distribution(Protocol):
    """A histogram of one point, the counts of all its seeds together."""

    @property
    def experiment(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def name(self) -> str: ...
    @property
    def buckets(self) -> Mapping[int, int]: ...


class Busyness(Protocol):
    """How busy the cores were in one sweep."""

    @property
    def sweep(self) -> str: ...
    @property
    def cells(self) -> int: ...
    @property
    def span_s(self) -> float: ...
    @property
    def idle_share(self) -> float | None: ...


class Findings(Protocol):
    """What `cubecast.spark` gathers from a directory, as far as a report needs it."""

    @property
    def experiments(self) -> Sequence[Experiment]: ...
    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def distributions(self) -> Sequence[Distribution]: ...
    @property
    def sweeps(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def busyness(self) -> Sequence[Busyness]: ...
    @property
    def missing(self) -> Mapping[str, int]: ...
    @property
    def failures(self) -> Sequence[str]: ...


def results_of(findings: Findings) -> Results:
    """What a directory of results comes to, as a report takes it."""
    seeds = {(row.experiment, _identity(row.settings)): row.n for row in findings.rows}
    histograms = [
        HistogramRow(one.experiment, one.settings, one.name, bucket, count / n, 0.0, n)
        for one in findings.distributions
        if (n := seeds.get((one.experiment, _identity(one.settings)), 1))
        for bucket, count in one.buckets.items()
    ]
    busy = {one.sweep: one for one in findings.busyness}
    made = [_provenance(sweep, busy.get(str(sweep.get("sweep")))) for sweep in findings.sweeps]
    return Results(
        findings.experiments,
        findings.rows,
        histograms,
        [one for one in made if one.cells] or made[-1:],
        findings.missing,
        findings.failures,
    )


def _identity(settings: Settings) -> str:
    return repr(sorted(settings.items()))


def _provenance(sweep: Mapping[str, Any], busy: Busyness | None) -> Provenance:
    seeds = sweep.get("seeds")
    return Provenance(
        command=str(sweep.get("command", "")),
        date=str(sweep.get("started", ""))[:10],
        versions=dict(sweep.get("versions") or {}),
        seeds=None if seeds is None else int(seeds),
        quick=bool(sweep.get("quick")),
        master=str(sweep.get("master", "")),
        cells=busy.cells if busy else 0,
        seconds=busy.span_s if busy else None,
        idle=busy.idle_share if busy else None,
    )
