"""Experiments as a library call: ``cubecast lab run`` for notebooks and scripts.

    from cubecast import lab

    ran = lab.run("4.1", seeds=40)
    ran.table()        # the mean of every metric at every point, as a pyarrow table
    ran.figure()       # the first figure, as matplotlib has it
    ran.verdicts       # the papers' numbers beside ours

1. The request is checked before Spark starts and before anything is written.
2. Finished cells stay finished: an interrupted call goes on where it stopped.
3. A Spark session of the process is used and left as it is.

Importing this module needs neither Spark nor pyarrow; calling it does (extra `spark`, figures
`lab`).
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cubecast.lab.cells import Cell
from cubecast.lab.commit import source_commit
from cubecast.lab.experiment import Experiment
from cubecast.lab.finished_run import Ran
from cubecast.lab.measuring import measured
from cubecast.lab.request import Asked, ask, own_sources, text_of, versions
from cubecast.lab.seeding import cells_of, more_seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cubecast.lab.verdicts import Row
    from cubecast.spark.progress import Progress
    from cubecast.spark.results import Results
    from cubecast.spark.sweep import SweepOutcome

DEFAULT_OUT = "lab-results"


class MoreSeeds(Protocol):
    """Says which points of a grid need more seeds for a verdict: {position: seeds in all}."""

    def __call__(
        self, experiment: Experiment, rows: Sequence[Row], limit: int
    ) -> dict[int, int]: ...


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run: so many of its cells are kept."""

    def __init__(self, kept: int, cells: int) -> None:
        super().__init__(f"{kept} of {cells} cells are kept")
        self.kept = kept
        self.cells = cells


def run(
    *experiments: str | Path | Experiment,
    seeds: int | None = None,
    quick: bool = False,
    keep: Collection[str] = (),
    until_decided: int | None = None,
    out: str | Path = DEFAULT_OUT,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Ran:
    """Run the cells of experiments that `out` lacks; return the results.

    An experiment is named by its id, by a file, by a workload (all that have it), or "all"; or it
    is an `Experiment`.  Each point of a grid gets `seeds` runs, or as many as its file says.  With
    `until_decided`, points whose verdict is undecided get more, up to that many.  `keep` names the
    details of `cubecast.lab.cell_details.KEEPABLE` that are kept beside the numbers.

    Spark's session is the one that this process has, or one of its own on `master` with `conf`.
    Raises `ExperimentError` for an impossible request, `cubecast.spark.errors.LabError` if Spark or
    the disk fail, and `Interrupted` on Ctrl-C.
    """
    asked = ask(experiments, quick=quick, seeds=seeds, keep=keep, until_decided=until_decided)
    ids = ", ".join(repr(one.id) for one in asked.experiments)
    job = Job(asked, out, master, conf or {}, progress, command=f"cubecast.lab.run({ids})")
    return job.run()


@dataclass(frozen=True, slots=True)
class Job:
    """A request, where it runs and where its results go."""

    asked: Asked
    out: str | Path
    master: str
    conf: Mapping[str, str]
    progress: Progress | None = None
    command: str = ""
    """The command line, noted with the results."""
    more_seeds: MoreSeeds = more_seeds

    def run(self) -> Ran:
        """Run the cells that the results lack, write their tables, and add seeds if asked to."""
        from cubecast.spark.session import require_pyspark

        require_pyspark()
        from cubecast.spark.errors import lab_errors
        from cubecast.spark.results import Results

        asked, results = self.asked, Results(self.out)
        cells = asked.cells()
        with lab_errors(), results.opened():
            try:
                with ExitStack() as held:
                    outcomes = list(self._rounds(results, cells, held))
            except KeyboardInterrupt:
                kept = len(results.known({cell.key for cell in cells}))
                raise Interrupted(kept, len(cells)) from None
        return Ran(asked, self.out, tuple(outcomes))

    def _rounds(
        self, results: Results, cells: Sequence[Cell], held: ExitStack
    ) -> Iterator[SweepOutcome]:
        """Sweep over the cells; then, if asked to, over more seeds until none are wanted.

        Each round adds cells, and there are at most `until_decided` for a point: so the rounds end.
        It includes the cells of all rounds before, as the tables are made of the cells asked for
        last. All share the session, which is started on demand.
        """
        from cubecast.spark.java import find_java
        from cubecast.spark.plain_tables import mean_rows
        from cubecast.spark.sweep import bring_up_to_date

        facts = self._facts()

        @cache
        def spark() -> SparkSession:
            facts["versions"]["java"] = str(find_java().version)
            return held.enter_context(self._session(results, cells))

        keep, limit = self.asked.keep, self.asked.until_decided
        wanted = {cell.key: cell for cell in cells}
        before = 0
        while len(wanted) > before:
            before = len(wanted)
            yield bring_up_to_date(
                list(wanted.values()), results, lambda: nullcontext(spark()),
                measure=partial(measured, keep=keep), keep=keep, progress=self.progress,
                facts=facts, note=partial(self._note, results),
            )  # fmt: skip
            if limit is not None:
                more = self._more_cells(mean_rows(results), limit)
                wanted |= {cell.key: cell for cell in more}

    @contextmanager
    def _session(self, results: Results, cells: Sequence[Cell]) -> Iterator[SparkSession]:
        """A session whose executors have the user's own modules."""
        from cubecast.spark.scratch import scratch_directory
        from cubecast.spark.session import spark_session

        with (
            scratch_directory() as scratch,
            spark_session(self.master, log=results.log, conf=self.conf) as spark,
        ):
            for source in own_sources(cells):
                spark.sparkContext.addPyFile(str(_packed(source, scratch.path)))
            yield spark

    def _note(self, results: Results) -> None:
        for experiment in self.asked.experiments:
            results.note_experiment(experiment.id, text_of(experiment))

    def _facts(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "experiments": [experiment.id for experiment in self.asked.experiments],
            "quick": self.asked.quick,
            "seeds": self.asked.seeds,
            "until_decided": self.asked.until_decided,
            "versions": versions(),
            "commit": source_commit(),
        }

    def _more_cells(self, rows: Sequence[Row], limit: int) -> list[Cell]:
        """The cells of the points that need more seeds, including those that were run."""
        found = []
        for experiment in self.asked.experiments:
            wanted = self.more_seeds(experiment, rows, limit)
            found += cells_of(experiment, {at: min(n, limit) for at, n in wanted.items()})
        return found


def _packed(source: Path, scratch: Path) -> Path:
    """A module's file, or the folder of a package as an archive that Python can import from."""
    if source.is_file():
        return source
    name = shutil.make_archive(str(scratch / source.name), "zip", source.parent, source.name)
    return Path(name)
