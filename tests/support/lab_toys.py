"""Cells whose measurement is arithmetic, and a driver of sweeps over them that can be killed.

    python lab_toys.py MASTER OUT [OUT...] [--gate FILE] [--points N] [--seeds N]

sweeps the toy grid into each directory.  With a gate, cells from the middle of the grid on wait for
that file to be there, so that a sweep stands still half-way until a test lets it go on.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import pyarrow as pa

from cubecast.lab.cells import Cell, Measurement
from cubecast.spark.compact import write_tables
from cubecast.spark.results import Results
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import run_sweep
from cubecast.spark.tables import MEASURED_MESSAGE

POINTS = 6
SEEDS = 3
GATED_FROM = 3
"""Cheaper points wait: the expensive ones, which come first, do not."""


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


def gated(cell: Cell) -> Measurement:
    gate = Path(str(cell.settings["gate"]))
    while cell.number >= GATED_FROM and not gate.exists():
        time.sleep(0.02)
    return toy(cell)


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
