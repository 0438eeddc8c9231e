"""A sweep: the missing cells of a grid, each a task of its own on Spark.

The grid is a DataFrame of one row per partition, in the order of cost.  Spark starts partitions in
their order and gives each core that falls free the next one, so that the expensive cells begin
first and only cheap ones are left when the cores run out of work.  There is no shuffle, and results
do not pass through the driver: a finished cell is a file, whatever dies after it.  Only which cells
ended and how (`executor_task.DONE`) passes: at the end of the job as its rows, and before that, for
the progress, in an accumulator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cubecast.lab.cell_details import KEEPABLE
from cubecast.lab.cells import Cell, measure
from cubecast.spark.cancellable_jobs import Jobs
from cubecast.spark.compact import tables_are_current, write_tables
from cubecast.spark.errors import ResultsError, SparkFailedError, lab_errors
from cubecast.spark.executor_task import DONE, Done, ExecutorTask, Measure, failure_of
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.progress import Progress, Silence
from cubecast.spark.results import Failure, Results, cell_name, grid_table
from cubecast.spark.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY_S = 0.25
MOST_NAMES = 5
"""The most damaged cells that are named."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The outcome of a sweep."""

    sweep: str
    """Empty if there was nothing to run."""
    ran: int
    """Cells measured now."""
    kept: int
    """Cells that were finished before."""
    failures: tuple[Failure, ...]
    cores: int
    seconds: float
    idle_share: float | None = None
    """The share of the cores' time in which they had no cell to run."""
    damaged: tuple[str, ...] = ()
    """Names of the cells that were run again because a file of theirs was damaged."""
    other_code: int = 0
    """Cells of the grid that only another version of the code has measured, and so had to run."""
    lost: tuple[str, ...] = ()
    """Damage that is not repaired, each in one line."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Which of the wanted cells a directory lacks, and why."""

    wanted: dict[str, Cell]
    missing: tuple[Cell, ...]
    damaged: dict[str, str]
    """{key: the damage}, in the order of the grid."""
    other_code: int
    unkept: tuple[str, ...] = ()
    """Folders of files that damaged cells had kept and will not keep again."""

    def told(self) -> list[str]:
        """The problems, in sentences."""
        told = []
        if self.damaged:
            names = [f"{cell_name(self.wanted[key])}: {why}" for key, why in self.damaged.items()]
            more = f"; and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            counted = f"{len(names)} cells were" if len(names) > 1 else "1 cell was"
            told.append(f"{counted} damaged and run again: {'; '.join(names[:MOST_NAMES])}{more}")
        if self.unkept:
            options = " ".join(f"--keep {folder}" for folder in self.unkept)
            told.append(f"the {' and '.join(self.unkept)} of these are lost without {options}")
        if self.other_code:
            counted = f"{self.other_code} cells are" if self.other_code > 1 else "1 cell is"
            told.append(f"{counted} of another version of the code, and measured anew")
        return told


def survey(cells: Sequence[Cell], results: Results, keep: tuple[str, ...] = ()) -> Survey:
    """Read the files that `results` has of these cells."""
    wanted = {cell.key: cell for cell in cells}
    found = results.read_cells(wanted.keys(), keep)
    missing = tuple(cell for key, cell in wanted.items() if key not in found.seals)
    damaged = {cell.key: found.damaged[cell.key] for cell in missing if cell.key in found.damaged}
    elsewhere = {key.partition("-")[0] for key in results.listed() - wanted.keys()}
    other_code = sum(cell.identity in elsewhere and cell.key not in damaged for cell in missing)
    unkept = tuple(
        folder
        for folder in KEEPABLE
        if damaged and folder not in keep and damaged.keys() & results.listed(folder)
    )
    return Survey(wanted, missing, damaged, other_code, unkept)


def bring_up_to_date(
    cells: Sequence[Cell],
    results: Results,
    session: Callable[[], AbstractContextManager[SparkSession]],
    *,
    measure: Measure = measure,
    keep: tuple[str, ...] = (),
    progress: Progress | None = None,
    facts: dict[str, Any] | None = None,
    note: Callable[[], None] = lambda: None,
) -> SweepOutcome:
    """Measure the cells that `results` (opened) lacks, and write its tables.

    Spark is started only if there is something to do: not if all cells are there and the tables
    are made of exactly these.  What the results are asked for is written (the grid, and by `note`)
    when Spark is there: a request that it refuses leaves no trace.
    """
    progress = Silence() if progress is None else progress
    found = survey(cells, results, keep)

    def begin() -> None:
        note()
        results.extend_grid(found.wanted.values())
        for line in (*results.mended, *results.lost, *found.told()):
            progress.tell(line)

    if not found.missing:
        begin()
        if tables_are_current(results):
            return SweepOutcome("", 0, len(found.wanted), (), 0, 0.0, lost=tuple(results.lost))
    with lab_errors(), session() as spark:
        if found.missing:
            begin()
        outcome = run_survey(spark, found, results, measure=measure, progress=progress, facts=facts)
        write_tables(spark, results)
    return outcome


def run_sweep(
    spark: SparkSession,
    cells: Sequence[Cell],
    results: Results,
    *,
    measure: Measure = measure,
    keep: tuple[str, ...] = (),
    progress: Progress | None = None,
    facts: dict[str, Any] | None = None,
) -> SweepOutcome:
    """Measure the cells that `results` (opened) lacks; `facts` are noted with the sweep.

    `keep` names what `measure` keeps beside the numbers (`cubecast.lab.cell_details`): a cell that
    was finished without it is missing, too.

    Raises `SparkFailedError` if Spark gives up.  Finished cells stay finished, also then and when
    interrupted.
    """
    found = survey(cells, results, keep)
    results.extend_grid(found.wanted.values())
    return run_survey(spark, found, results, measure=measure, progress=progress, facts=facts)


def run_survey(
    spark: SparkSession,
    found: Survey,
    results: Results,
    *,
    measure: Measure,
    progress: Progress | None,
    facts: dict[str, Any] | None,
) -> SweepOutcome:
    """Measure the cells that a survey found missing."""
    progress = Silence() if progress is None else progress
    sweep = uuid4().hex[:12]
    missing, kept = found.missing, len(found.wanted) - len(found.missing)
    note = {**(facts or {}), "master": spark.sparkContext.master, "cells": len(missing)}
    note |= {"started": datetime.now(UTC).isoformat(), "ended": None}
    cores = spark.sparkContext.defaultParallelism
    results.note_sweep(sweep, note | {"cores": cores})
    begun = time.monotonic()
    done: dict[str, Done] = {}
    if missing:
        with progress.shown(missing, kept=kept, cores=cores):
            done = _run(spark, missing, results, sweep, measure, progress)
    seconds = time.monotonic() - begun
    cores = spark.sparkContext.defaultParallelism  # executors may have started late
    ended = datetime.now(UTC).isoformat()
    results.note_sweep(sweep, note | {"ended": ended, "seconds": seconds, "cores": cores})
    failures = tuple(
        failure for cell in missing if (failure := failure_of(cell, done[cell.key])) is not None
    )
    busy = sum(one["seconds"] for one in done.values())
    return SweepOutcome(
        sweep=sweep,
        ran=len(missing) - len(failures),
        kept=kept,
        failures=failures,
        cores=cores,
        seconds=seconds,
        idle_share=max(0.0, 1 - busy / (cores * seconds)) if missing else None,
        damaged=tuple(cell_name(found.wanted[key]) for key in found.damaged),
        other_code=found.other_code,
        lost=tuple(results.lost),
    )


def grid_frame(spark: SparkSession, cells: Sequence[Cell]) -> DataFrame:
    """The cells as a DataFrame of one row per partition, expensive ones first."""
    from pyspark.sql import functions as F

    ordered = sorted(cells, key=lambda cell: (-cell.cost, cell.experiment, cell.number, cell.seed))
    table = grid_table(ordered)
    positions = list(range(len(ordered)))
    grid = spark.createDataFrame(table.append_column("id", [positions]))
    places = spark.range(0, len(ordered), 1, len(ordered))
    return places.join(F.broadcast(grid), "id").select(*table.column_names)


def _run(
    spark: SparkSession,
    cells: Sequence[Cell],
    results: Results,
    sweep: str,
    measure: Measure,
    progress: Progress,
) -> dict[str, Done]:
    """Run the job beside this thread, which watches it; {key: row of `DONE`} of all cells."""
    from pyspark import cloudpickle

    watch = Watch(spark, cells, results, progress)
    task = ExecutorTask(results.place.uri, sweep, cloudpickle.dumps(measure), watch.ended)
    frame = map_in_arrow(grid_frame(spark, cells), task, spark_schema(DONE))
    jobs = Jobs(spark)
    with ThreadPoolExecutor(1, thread_name_prefix="sweep") as pool:
        job = pool.submit(jobs.run, frame.collect)
        try:
            rows = _look_after(job, watch)
        except BaseException:  # above all Ctrl-C
            jobs.end()
            with suppress(Exception):
                job.result()
            raise
        finally:
            watch.ended.value.clear()  # Spark keeps accumulators for ever
    watch.add(row.asDict() for row in rows)
    if watch.left:
        names = ", ".join(cell_name(cell) for cell in list(watch.left.values())[:MOST_NAMES])
        raise SparkFailedError(f"{len(watch.left)} cells did not come back from Spark: {names}")
    return watch.done


def _look_after(job: Future[Any], watch: Watch) -> Any:
    while not job.done():
        wait([job], timeout=LOOK_EVERY_S)
        watch.look()
    with lab_errors():
        return job.result()


class Watch:
    """Tells progress and results which cells have ended."""

    def __init__(
        self, spark: SparkSession, cells: Sequence[Cell], results: Results, progress: Progress
    ) -> None:
        from pyspark.accumulators import AccumulatorParam

        class Joined(AccumulatorParam[list[Done]]):
            def zero(self, value: list[Done]) -> list[Done]:
                return []

            def addInPlace(self, a: list[Done], b: list[Done]) -> list[Done]:
                a.extend(b)
                return a

        self._results = results
        self._progress = progress
        self.ended = spark.sparkContext.accumulator([], Joined())
        self.left = {cell.key: cell for cell in cells}
        self.done: dict[str, Done] = {}
        self._looked_at = 0

    def look(self) -> None:
        """Report the cells that ended since the last look."""
        fresh = self.ended.value[self._looked_at :]
        self._looked_at += len(fresh)
        self.add(fresh)
        self._progress.refresh()

    def add(self, rows: Iterable[Done]) -> None:
        """Note cells that have ended; a row that comes twice counts once."""
        for done in rows:
            key = done["key"]
            cell = self.left.pop(key, None)
            if cell is None:
                continue
            self.done[key] = done
            failure = failure_of(cell, done)
            if failure is None:
                self._results.add_finished(key, done["seal"])
                self._progress.finished(cell)
            else:
                with suppress(ResultsError):  # a full disk: reported with the outcome
                    self._results.add_failure(failure)
                self._progress.failed(cell, failure)
