"""Cells whose measurement is arithmetic, and a driver of sweeps over them that can be killed.

    python lab_toys.py MASTER OUT [OUT...] [--gate FILE] [--points N] [--seeds N]

sweeps the toy grid into each directory.  With a gate, cells from the middle of the grid on wait for
that file to be there, so that a sweep stands still half-way until a test lets it go on.

`TOYS` is a workload of the same numbers, for experiments that `cubecast lab run` reads.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cubecast.lab.cell_details import KEEPABLE
from cubecast.lab.cells import Cell, Measurement, Settings, Trace
from cubecast.lab.workload import Workload, number, whole
from cubecast.spark.compact import write_tables
from cubecast.spark.results import Results
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import run_sweep
from cubecast.spark.tables import MEASURED_MESSAGE
from cubecast.trace import Header, Record

POINTS = 6
SEEDS = 3
GATED_FROM = 3
"""Cheaper points wait: the expensive ones, which come first, do not."""
HELD_FROM = 4
"""Of the workload, points with so many nodes wait at the gate; they are the cheapest."""


def toy_cells(
    points: int = POINTS, seeds: int = SEEDS, **settings: int | float | str
) -> list[Cell]:
    """Points 0, 1, …, each cheaper than the one before."""
    return [
        Cell("toy", number, {"nodes": 2**number, **settings}, seed, float(points - number))
        for number in range(points)
        for seed in range(seeds)
    ]


def toy(cell: Cell) -> Measurement:
    """Numbers that differ from cell to cell, and are no whole ones."""
    nodes = cell.settings["nodes"]
    assert isinstance(nodes, int)
    metrics = {"latency": nodes / 7 + cell.seed / 3, "messages": float(nodes * (cell.seed + 1))}
    return Measurement(metrics, {"delay": {0: nodes, 3 + cell.seed: 1}})


def latency_is_nodes(cell: Cell) -> Measurement:
    return Measurement({"latency_mean": float(cell.settings["nodes"])})


def toy_with_messages(cell: Cell) -> Measurement:
    plain = toy(cell)
    values = ["p0"], ["news"], [cell.seed], [0], [cell.settings["nodes"]], [1.5], [2], [0.5], [1]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, MEASURED_MESSAGE, strict=True)],
        schema=MEASURED_MESSAGE,
    )
    return Measurement(plain.metrics, plain.histograms, batch)


def fails_at_four(cell: Cell) -> Measurement:
    if cell.settings["nodes"] == 4:
        raise ArithmeticError("no measurement\nof four")
    return toy(cell)


def dies_at_four(cell: Cell) -> Measurement:
    """As where the system kills a process that takes too much memory."""
    if cell.settings["nodes"] == 4 and cell.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return toy(cell)


def exits_at_four(cell: Cell) -> Measurement:
    """As code of a user's own that was once a script."""
    if cell.settings["nodes"] == 4:
        sys.exit(5)
    return toy(cell)


ROOM = 1000


def fill_the_disk() -> tuple[int, int]:
    """Have the system refuse this process all but the first bytes of a file; what it was before."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    return before


@contextmanager
def full_disk() -> Iterator[None]:
    before = fill_the_disk()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def toy_on_a_full_disk(cell: Cell) -> Measurement:
    """There is no room for the file of the cell.  The process ends when the task has failed."""
    fill_the_disk()
    return toy(cell)


def gated(cell: Cell) -> Measurement:
    gate = Path(str(cell.settings["gate"]))
    while cell.number >= GATED_FROM and not gate.exists():
        time.sleep(0.02)
    return toy(cell)


# -- a workload ------------------------------------------------------------------------------------


def at_the_gate(gate: Path) -> set[int]:
    """The processes that wait for a gate to be there, and those that ended while they did."""
    return {int(note.name.rpartition("-")[2]) for note in gate.parent.glob(f"{gate.name}-*")}


def wait_at(gate: Path) -> None:
    if gate.exists():
        return
    note = gate.with_name(f"{gate.name}-{os.getpid()}")
    note.touch()
    while not gate.exists():
        time.sleep(0.02)
    note.unlink(missing_ok=True)


def traced(settings: Settings, seed: int) -> tuple[Measurement, Trace]:
    """The numbers of `toy`, and the trace of a publication to all nodes."""
    nodes = whole(settings, "nodes")
    if nodes >= HELD_FROM:
        wait_at(Path(str(settings["gate"])))
    published = Record("publish", 0, 0, "news", seed, source=0)
    delivered = [Record("deliver", n + seed, n, "news", seed, source=0) for n in range(nodes + 1)]
    trace = Trace(Header(scenario="toy", seed=seed), [published, *delivered])
    return toy(Cell("toy", 0, settings, seed)), trace


TOYS = Workload(
    name="toys",
    about="arithmetic",
    defaults={"nodes": 1, "gate": "/"},
    metrics=("latency", "messages"),
    measure=lambda settings, seed: traced(settings, seed)[0],
    cost=lambda settings: 1 / number(settings, "nodes"),
    histograms=("delay",),
    traced=traced,
    keeps=KEEPABLE,
)
"""The object of `workload = "support.lab_toys:TOYS"`."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--gate", default="/")
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    cells = toy_cells(options.points, options.seeds, gate=options.gate)
    with spark_session(options.master, log=options.out[0].with_suffix(".log")) as spark:
        for out in options.out:
            results = Results(out)
            with results.opened():
                outcome = run_sweep(spark, cells, results, measure=gated)
                write_tables(spark, results)
            print(f"{outcome.ran} ran, {outcome.kept} kept, {outcome.cores} cores", flush=True)


if __name__ == "__main__":
    main()
