"""What happens on an executor: one cell is measured and its file is put in place.

A cell that fails is a failure of that cell: it is noted, and the sweep goes on.  A cell that takes
its process down with it (out of memory, say), or whose file cannot be written, is tried again by
Spark; the third attempt notes the failure instead of measuring, so that one cell cannot bring down
the sweep.
"""

from __future__ import annotations

import json
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.lab.cells import Cell, Measurement
from cubecast.spark.errors import ResultsError
from cubecast.spark.results import Failure, Results, cell_name, write_atomically
from cubecast.spark.tables import CELL, MEASURED_MESSAGE, MESSAGE
from cubecast.trace.parquet import write_parquet

Measure = Callable[[Cell], Measurement]

ATTEMPTS = 2
"""How often a cell may end without a result before it is given up."""
DONE = pa.schema([pa.field("key", pa.string(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Task:
    """Everything an executor needs to know; the cells come as rows of the grid."""

    root: str
    sweep: str
    measure: Measure
    keep: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: rows of the grid in, their keys out."""
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        results = Results(Path(self.root))
        self._require_shared(results)
        for batch in batches:
            for row in batch.to_pylist():
                run_cell(results, row, self, attempt)
                yield pa.RecordBatch.from_pylist([{"key": row["key"]}], schema=DONE)

    def _require_shared(self, results: Results) -> None:
        """The driver wrote the note of its sweep before any task: it must be seen here."""
        if not (results.folder("sweeps") / f"{self.sweep}.json").exists():
            raise ResultsError(
                f"executor {_executor()} does not see {self.root} as the driver does: "
                "on a cluster --out must be on a file system that all executors share"
            )


def run_cell(results: Results, row: dict[str, Any], task: Task, attempt: int = 0) -> None:
    """Measure the cell of a row of the grid and keep what came of it, be it a failure."""
    cell = cell_of(row)
    if attempt >= ATTEMPTS:
        lost = (
            f"{attempt} attempts ended without a result: its process died (it may need more "
            "memory), or its file could not be written; spark.log says which"
        )
        results.add_failure(Failure(cell.key, cell_name(cell), lost))
        return
    if results.is_finished(cell.key, task.keep):  # an earlier attempt came to its end after all
        return
    started = datetime.now(UTC)
    try:
        if cell.key != row["key"]:
            raise ResultsError("this executor has another version of cubecast than the driver")
        measurement = task.measure(cell)
        table = _cell_table(cell, measurement, task.sweep, started)
        messages = _messages_table(cell, measurement)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        failure = Failure(row["key"], cell_name(cell), what, traceback.format_exc())
        results.add_failure(failure)
        return
    if messages is not None:  # first: the file of the cell says that all is there
        write_atomically(results.messages_file(cell.key), _writer(messages))
    if measurement.trace is not None:
        write_parquet(results.trace_file(cell.key), *measurement.trace)
    write_atomically(results.cell_file(cell.key), _writer(table))


def cell_of(row: dict[str, Any]) -> Cell:
    """The cell that a row of the grid stands for."""
    settings = json.loads(row["settings"])
    return Cell(row["experiment"], row["cell"], settings, row["seed"], row["cost"])


def _cell_table(cell: Cell, measurement: Measurement, sweep: str, started: datetime) -> pa.Table:
    """The one row of a finished cell, in an order that depends on nothing but its content."""
    buckets = [
        {"name": name, "bucket": int(bucket), "count": int(count)}
        for name, counts in sorted(measurement.histograms.items())
        for bucket, count in sorted(counts.items())
    ]
    row = {
        "key": cell.key,
        "metrics": [
            {"metric": name, "value": float(value)}
            for name, value in sorted(measurement.metrics.items())
        ],
        "histograms": buckets,
        "sweep": sweep,
        "executor": _executor(),
        "worker": os.getpid(),
        "started": started,
        "ended": datetime.now(UTC),
    }
    return pa.Table.from_pylist([row], schema=CELL)


def _messages_table(cell: Cell, measurement: Measurement) -> pa.Table | None:
    batch = measurement.messages
    if batch is None:
        return None
    if batch.schema.names != MEASURED_MESSAGE.names:
        raise ValueError(
            f"messages have the columns {', '.join(batch.schema.names)}, "
            f"not {', '.join(MEASURED_MESSAGE.names)}"
        )
    keys = pa.array([cell.key] * batch.num_rows, pa.string())
    pairs = zip(batch, MEASURED_MESSAGE, strict=True)
    columns = [column.cast(field.type) for column, field in pairs]
    return pa.Table.from_arrays([keys, *columns], schema=MESSAGE)


def _writer(table: pa.Table) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table, path, compression="zstd")


def _executor() -> str:
    """The host and the process that all workers of an executor are children of."""
    return f"{socket.gethostname()}/{os.getppid()}"
