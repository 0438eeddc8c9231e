"""The task on an executor: measures one cell and puts its file in place.

A cell that raises, or ends its process (`cubecast.spark.measuring_process`) as often as it is
tried, is a failure of that cell: the task reports it, and the sweep goes on.  A file that cannot be
written is no failure of a cell: it ends the task, and Spark tries again.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.lab.cells import Cell, Measurement, Trace
from cubecast.spark.errors import ResultsError
from cubecast.spark.measuring_process import Apart, ProcessDiedError
from cubecast.spark.results import Failure, Results, cell_name
from cubecast.spark.tables import CELL, MEASURED_MESSAGE, MESSAGE, required
from cubecast.trace.parquet import write_parquet

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

Measure = Callable[[Cell], Measurement]
Done: TypeAlias = dict[str, Any]
"""A row of `DONE`."""

ATTEMPTS = 2
"""How often a cell may end its process before it is given up."""
DONE = required(
    *((name, pa.string()) for name in ("key", "seal", "error", "details")),
    ("seconds", pa.float64()),
)
"""The result of a task: the seal of a cell, or its error."""


@dataclass(frozen=True, slots=True)
class ExecutorTask:
    """The data that an executor needs; the cells come as rows of the grid."""

    uri: str
    sweep: str
    measure: bytes
    """Pickled: only the process that measures imports what it needs."""
    ended: Accumulator[list[Done]] | None = None
    """Gets each cell that ends, so that the driver knows before the job has ended."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: rows of the grid in, rows of `DONE` out."""
        for batch in batches:
            for row in batch.to_pylist():
                done = run_apart(row, self)
                if self.ended is not None:
                    self.ended.add([done])
                yield pa.RecordBatch.from_pylist([done], schema=DONE)


_children: list[Apart] = []
"""The process of this worker that measures, if there is one."""


def run_apart(row: dict[str, Any], task: ExecutorTask) -> Done:
    """Run the cell of a row of the grid in the measuring process; return a row of `DONE`."""
    run = pickle.dumps(run_cell)
    died = ""
    for _ in range(ATTEMPTS):
        if not _children:
            _children.append(Apart())
        try:
            done: Done = _children[0].call(run, row, task.uri, task.sweep, task.measure, executor())
            return done
        except ProcessDiedError as error:
            _children.clear()
            died = str(error)
    return _failed(row, f"its process {died}, {ATTEMPTS} times of {ATTEMPTS}")


def run_cell(row: dict[str, Any], uri: str, sweep: str, measure: bytes, where: str) -> Done:
    """Measure the cell of a row of the grid and keep the result; return a row of `DONE`."""
    results = _shared_results(uri, sweep, where)
    started = datetime.now(UTC)
    try:
        cell = cell_of(row)
        if cell.key != row["key"]:
            raise ResultsError("this executor has another version of cubecast than the driver")
        measurement = pickle.loads(measure)(cell)
        kept = _kept(cell, measurement)
        table = _cell_table(cell, measurement)
    except (Exception, SystemExit) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return _failed(row, what, traceback.format_exc())
    # The file of the cell comes last: it says that all is there.
    digests = {folder: results.write_kept(folder, cell.key, one) for folder, one in kept.items()}
    ended = datetime.now(UTC)
    ran = {"sweep": sweep, "executor": where, "worker": os.getpid()}
    table |= {"kept": _named(digests), **ran, "started": started, "ended": ended}
    seal = results.write_cell(cell.key, pa.Table.from_pylist([table], schema=CELL))
    return _done(row["key"], seal=seal, seconds=(ended - started).total_seconds())


@lru_cache(maxsize=1)
def _shared_results(uri: str, sweep: str, where: str) -> Results:
    """The results that the driver writes to; its note of the sweep must be seen here, too."""
    results = Results(uri)
    if not results.has_sweep(sweep):
        raise ResultsError(
            f"executor {where} does not see {results.name} as the driver does: "
            "on a cluster --out must be on a file system that all executors share"
        )
    return results


def _done(key: str, **facts: Any) -> Done:
    return {"key": key, "seal": "", "error": "", "details": "", "seconds": 0.0, **facts}


def _failed(row: dict[str, Any], error: str, details: str = "") -> Done:
    return _done(row["key"], error=error, details=details)


def failure_of(cell: Cell, done: Done) -> Failure | None:
    """The failure in a row of `DONE`, if the cell failed."""
    if not done["error"]:
        return None
    return Failure(cell.key, cell_name(cell), done["error"], done["details"])


def cell_of(row: dict[str, Any]) -> Cell:
    """The cell that a row of the grid stands for."""
    settings = json.loads(row["settings"])
    return Cell(row["experiment"], row["cell"], settings, row["seed"], row["cost"])


def _cell_table(cell: Cell, measurement: Measurement) -> dict[str, Any]:
    """The measurement as a table, in an order that depends only on its content."""
    return {
        "key": cell.key,
        "metrics": [
            {"metric": name, "value": float(value)}
            for name, value in sorted(measurement.metrics.items())
        ],
        "histograms": [
            {"name": name, "bucket": int(bucket), "count": int(count)}
            for name, counts in sorted(measurement.histograms.items())
            for bucket, count in sorted(counts.items())
        ],
    }


def _named(digests: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "sha256": digest} for name, digest in sorted(digests.items())]


def _kept(cell: Cell, measurement: Measurement) -> dict[str, bytes]:
    """{folder: file} of the kept details of a cell."""
    kept = {}
    if measurement.messages is not None:
        kept["messages"] = _messages_file(cell, measurement.messages)
    if measurement.trace is not None:
        kept["traces"] = _trace_file(measurement.trace)
    return kept


def _messages_file(cell: Cell, batch: pa.RecordBatch) -> bytes:
    if batch.schema.names != MEASURED_MESSAGE.names:
        raise ValueError(
            f"messages have the columns {', '.join(batch.schema.names)}, "
            f"not {', '.join(MEASURED_MESSAGE.names)}"
        )
    keys = pa.array([cell.key] * batch.num_rows, pa.string())
    pairs = zip(batch, MEASURED_MESSAGE, strict=True)
    columns = [column.cast(field.type) for column, field in pairs]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([keys, *columns], schema=MESSAGE)
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _trace_file(trace: Trace) -> bytes:
    with tempfile.TemporaryDirectory(prefix="cubecast-trace-") as folder:
        path = Path(folder) / "trace.parquet"
        write_parquet(path, *trace)
        return path.read_bytes()


def executor() -> str:
    """The host and the process that all workers of an executor are children of."""
    return f"{socket.gethostname()}/{os.getppid()}"
