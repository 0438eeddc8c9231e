"""A user's own Spark session on a cluster, in which we are guests.

    python -m support.spark_guest MASTER OUT BARE

starts a session as a notebook does, has a job of its own wait in a thread, sweeps the toy grid in
the same session until a cell has finished, interrupts that, and tells as JSON what became of it;
also what a cell imports on an executor, and what is said of a Python that executors do not have, or
that has no packages (BARE).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cubecast.lab.cells import Cell, Measurement, measure
from cubecast.spark.compact import write_tables
from cubecast.spark.errors import LabError
from cubecast.spark.progress import Silence
from cubecast.spark.results import Results
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import run_sweep
from support.executors import send_support
from support.lab_toys import gated, toy_cells

THEIRS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.ui.enabled": "false",
}


class Interrupting(Silence):
    """As Ctrl-C does, when the first cell has finished."""

    def finished(self, cell: Cell) -> None:
        raise KeyboardInterrupt


def wait_for(file: Path) -> list[int]:
    while not file.exists():
        time.sleep(0.02)
    return [7]


def refused(**options: Any) -> str:
    try:
        with spark_session(**options):
            return ""
    except LabError as error:
        return str(error)


def imported(_: Cell) -> Measurement:
    """What a worker of Spark's has imported after a cell; each name as a metric."""
    settings = {"workload": "single-publisher", "protocol": "vcube-ps", "nodes": 8}
    measure(Cell("real", 0, {**settings, "engine": "reference"}, 0))
    return Measurement(dict.fromkeys(sys.modules, 1.0))


def modules(out: Path) -> list[str]:
    results = Results(out)
    with results.opened(), spark_session() as spark:
        run_sweep(spark, toy_cells(1, 1), results, measure=imported)
        write_tables(spark, results)
    return results.table("runs", ["metric"])["metric"].to_pylist()


def with_python(python: str, out: Path) -> str:
    """What is said of a sweep whose executors run another Python."""
    results = Results(out)
    try:
        with results.opened(), spark_session() as spark:
            spark.sparkContext.pythonExec = python
            run_sweep(spark, toy_cells(1, 1), results)
    except LabError as error:
        return str(error)
    return ""


def main() -> None:
    master, out, bare = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    out.mkdir()
    builder = SparkSession.builder.master(master).appName("theirs")
    theirs = builder.config(map=THEIRS).getOrCreate()  # type: ignore[arg-type]
    theirs.sparkContext.setLogLevel("OFF")
    send_support(theirs, out)
    gate = out / "gate"
    told: dict[str, Any] = {"modules": modules(out / "modules")}  # first: workers are used again

    def own_job() -> None:
        numbers = theirs.sparkContext.parallelize([0], 1)
        told["own job"] = numbers.flatMap(lambda _: wait_for(gate)).collect()

    own = threading.Thread(target=own_job, daemon=True)
    own.start()
    tracker = theirs.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.02)

    results, cells = Results(out / "results"), toy_cells(gate=str(gate))
    with results.opened():
        try:
            with spark_session() as spark:
                run_sweep(spark, cells, results, measure=gated, progress=Interrupting())
        except KeyboardInterrupt:
            told["interrupted"] = True
    told["active jobs"] = len(tracker.getActiveJobsIds())
    gate.touch()
    own.join()

    with results.opened(), spark_session() as spark:
        told["partitions of ours"] = spark.conf.get("spark.sql.shuffle.partitions")
        outcome = run_sweep(spark, cells, results, measure=gated)
        write_tables(spark, results)
    told["cells"] = outcome.ran + outcome.kept
    told["master"] = theirs.sparkContext.master
    told["settings"] = {key: theirs.conf.get(key) for key in THEIRS}
    told["refused master"] = refused(master="local[1]")
    told["same master"] = refused(master=master)
    told["refused conf"] = refused(conf={"spark.driver.memory": "3g"})
    told["sql conf"] = refused(conf={"spark.sql.shuffle.partitions": "5"})
    told["still there"] = theirs.range(3).count()
    told["no python"] = with_python("/no/such/python", out / "no")
    told["bare python"] = with_python(bare, out / "bare")
    theirs.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
