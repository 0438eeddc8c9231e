"""The results of a run of experiments: a table, figures and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.lab.experiment import ExperimentError
from cubecast.lab.request import Asked

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from cubecast.lab.report.data import Findings
    from cubecast.lab.verdicts import Row, Verdict
    from cubecast.spark.results import Failure
    from cubecast.spark.sweep import SweepOutcome


@dataclass(frozen=True)
class Ran:
    """Experiments that were run; results are read on demand."""

    asked: Asked
    out: str | Path
    sweeps: tuple[SweepOutcome, ...]
    """The first over the cells asked for, each further one over added seeds."""

    @property
    def ran(self) -> int:
        """Cells measured now."""
        return sum(sweep.ran for sweep in self.sweeps)

    @property
    def kept(self) -> int:
        """Cells that were finished before."""
        return self.sweeps[0].kept

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Cells that could not be measured; the same call tries them again."""
        return tuple(failure for sweep in self.sweeps for failure in sweep.failures)

    @property
    def seconds(self) -> float:
        return sum(sweep.seconds for sweep in self.sweeps)

    @property
    def idle_share(self) -> float | None:
        """The share of the cores' time in the last sweep in which they had no cell to run."""
        return self.sweeps[-1].idle_share

    @property
    def damaged(self) -> tuple[str, ...]:
        """Cells that were run again because a file of theirs was damaged."""
        return tuple(name for sweep in self.sweeps for name in sweep.damaged)

    @property
    def other_code(self) -> int:
        """Cells that only another version of the code had measured."""
        return self.sweeps[0].other_code

    @property
    def lost(self) -> tuple[str, ...]:
        """Damage that is not repaired, each in one line."""
        return self.sweeps[-1].lost

    @property
    def cores(self) -> int:
        """The number of cores at the end."""
        return self.sweeps[-1].cores

    @property
    def rows(self) -> list[Row]:
        """The mean of every metric at every point of the experiments that were asked for."""
        return [row for row in self.findings.rows if row.experiment in self._ids]

    @cached_property
    def findings(self) -> Findings:
        """All findings in the directory of results, also of other experiments."""
        from cubecast.spark.plain_tables import gather
        from cubecast.spark.results import Results

        return gather(Results(self.out))

    @property
    def verdicts(self) -> list[Verdict]:
        """One for every number of the papers that the experiments name."""
        from cubecast.lab.verdicts import judge

        rows = self.rows
        return [one for experiment in self.asked.experiments for one in judge(experiment, rows)]

    def table(self) -> pa.Table:
        """A row per point and metric: mean, 95 % interval (± `ci`) and number of seeds `n`.

        Settings that differ between points are columns of their own, null where an experiment has
        no such setting.  ``to_pandas()`` makes a data frame of it.
        """
        import pyarrow as pa

        rows = self.rows
        names = _varying([row.settings for row in rows])
        columns: dict[str, Any] = {"experiment": [row.experiment for row in rows]}
        for name in names:
            columns[name] = _column([row.settings.get(name) for row in rows])
        for name in ("metric", "mean", "ci", "n"):
            columns[name] = [getattr(row, name) for row in rows]
        return pa.table(columns)

    def figures(self) -> dict[str, Figure]:
        """Every figure whose points were measured, by the name of its file in a report."""
        from cubecast.lab.report.figures import figures_of

        found: dict[str, Figure] = {}
        for experiment in self.asked.experiments:
            rows = self.findings.rows_of(experiment)
            found |= figures_of(experiment, rows, self.findings.histograms_of(experiment))
        return found

    def figure(self, name: str | None = None) -> Figure:
        """One figure, by its name; the first, if none is given."""
        found = self.figures()
        chosen = next(iter(found), None) if name is None else name
        if chosen is None or chosen not in found:
            there = ", ".join(found) or "none: no point of a figure was measured"
            raise ExperimentError(f"no figure {name or ''!r}; there are: {there}")
        return found[chosen]

    @property
    def _ids(self) -> set[str]:
        return {experiment.id for experiment in self.asked.experiments}


def _varying(points: list[Mapping[str, Any]]) -> list[str]:
    """The settings that differ between points, in the order in which points have them."""
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({repr(point.get(name)) for point in points}) > 1]


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: numbers as numbers, mixed types as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        return [None if value is None else str(value) for value in values]
    return values
