"""A sweep: the missing cells of a grid, each a task of its own on Spark.

The grid is a DataFrame of one row per partition, in the order of cost.  Spark starts partitions in
their order and gives each core that falls free the next one, so that the expensive cells begin
first and only cheap ones are left when the cores run out of work.  There is no shuffle, and results
do not pass through the driver: a finished cell is a file, whatever dies after it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cubecast.lab.cells import Cell, measure
from cubecast.spark.errors import SparkFailedError, lab_errors
from cubecast.spark.progress import Progress, Silence
from cubecast.spark.results import Failure, Results, grid_table
from cubecast.spark.tables import spark_schema
from cubecast.spark.task import DONE, Measure, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sweep did."""

    sweep: str
    ran: int
    """Cells measured now."""
    kept: int
    """Cells that were finished before."""
    failures: tuple[Failure, ...]
    cores: int
    seconds: float


def run_sweep(
    spark: SparkSession,
    cells: Sequence[Cell],
    results: Results,
    *,
    measure: Measure = measure,
    keep: tuple[str, ...] = (),
    progress: Progress | None = None,
    facts: dict[str, Any] | None = None,
) -> Outcome:
    """Measure the cells that `results` (opened) lacks; `facts` are noted with the sweep.

    `keep` is what `measure` keeps beside the numbers (`cubecast.lab.keeping`): a cell that was
    finished without it is lacking, too.

    Raises `SparkFailedError` if Spark gives up.  What is finished stays finished, also then and
    when interrupted.
    """
    progress = Silence() if progress is None else progress
    sweep = uuid4().hex[:12]
    finished = results.finished(keep)
    wanted = {cell.key: cell for cell in cells}
    missing = [cell for key, cell in wanted.items() if key not in finished]
    note = {**(facts or {}), "master": spark.sparkContext.master, "cells": len(missing)}
    note |= {"started": datetime.now(UTC).isoformat(), "ended": None}
    results.extend_grid(wanted.values())
    cores = spark.sparkContext.defaultParallelism
    results.note_sweep(sweep, note | {"cores": cores})
    begun = time.monotonic()
    failed: set[str] = set()
    if missing:
        task = Task(str(results.root), sweep, measure, keep)
        with progress.shown(missing, kept=len(wanted) - len(missing), cores=cores):
            failed = _run(spark, missing, results, task, progress)
    seconds = time.monotonic() - begun
    cores = spark.sparkContext.defaultParallelism  # executors may have come late
    ended = datetime.now(UTC).isoformat()
    results.note_sweep(sweep, note | {"ended": ended, "seconds": seconds, "cores": cores})
    failures = tuple(results.failure(cell.key) for cell in missing if cell.key in failed)
    ran = len(missing) - len(failures)
    return Outcome(sweep, ran, len(wanted) - len(missing), failures, cores, seconds)


def grid_frame(spark: SparkSession, cells: Sequence[Cell]) -> DataFrame:
    """The cells as a DataFrame of one row per partition, expensive ones first."""
    from pyspark.sql import functions as F

    ordered = sorted(cells, key=lambda cell: (-cell.cost, cell.experiment, cell.number, cell.seed))
    table = grid_table(ordered)
    positions = list(range(len(ordered)))
    grid = spark.createDataFrame(table.append_column("id", [positions]))
    places = spark.range(0, len(ordered), 1, len(ordered))
    return places.join(F.broadcast(grid), "id").select(*table.column_names)


def map_in_arrow(frame: DataFrame, function: Any, schema: Any) -> DataFrame:
    """`DataFrame.mapInArrow`; Spark's own refuses to work where pandas is not installed.

    The operator has no use for pandas: only the helper that Spark wraps the function with asks.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    wrapped: Any = UserDefinedFunction(
        function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    call = wrapped(*[frame[name] for name in frame.columns])
    plan: Any = frame
    return DataFrame(plan._jdf.mapInArrow(call._jc, False, None), frame.sparkSession)


def _run(
    spark: SparkSession,
    cells: Sequence[Cell],
    results: Results,
    task: Task,
    progress: Progress,
) -> set[str]:
    """Run the job beside this thread, which looks after it; the keys of the cells that failed."""
    frame = map_in_arrow(grid_frame(spark, cells), task, spark_schema(DONE))
    watch = Watch(cells, results, progress, task.keep)
    with ThreadPoolExecutor(1, thread_name_prefix="sweep") as pool:
        job = pool.submit(lambda: frame.write.format("noop").mode("overwrite").save())
        try:
            _look_after(job, watch)
        except BaseException:  # above all Ctrl-C
            with suppress(Exception):
                spark.sparkContext.cancelAllJobs()
            with suppress(Exception):
                job.result()
            watch.look()
            raise
    if watch.left:
        lost = f"{len(watch.left)} cells are neither finished nor failed"
        raise SparkFailedError(f"{lost}: is {results.root} the same directory for all executors?")
    return watch.failed


def _look_after(job: Future[None], watch: Watch) -> None:
    while not job.done():
        wait([job], timeout=LOOK_EVERY_S)
        watch.look()
    watch.look()
    with lab_errors():
        job.result()


class Watch:
    """Tells the progress what the directory of results has to say."""

    def __init__(
        self, cells: Sequence[Cell], results: Results, progress: Progress, keep: tuple[str, ...]
    ) -> None:
        self._results = results
        self._keep = keep
        self._progress = progress
        self.left = {cell.key: cell for cell in cells}
        self.failed: set[str] = set()

    def look(self) -> None:
        """Report the cells that ended since the last look."""
        for key in self._results.finished(self._keep) & self.left.keys():
            self._progress.finished(self.left.pop(key))
        for key in self._results.failed() & self.left.keys():
            self.failed.add(key)
            self._progress.failed(self.left.pop(key), self._results.failure(key))
        self._progress.refresh()
