"""How much faster is a sweep on two cores than on one, and how long do the cores idle?

Sweeps a skewed grid (few expensive cells, many cheap ones, as in the experiments) on 1, 2, … cores,
each into a fresh directory, and prints seconds, the speed-up, and the idle share and the tail (how
long the first core without work waited) from the table of timings.  Cells are real runs of the
reference simulator.  Starting Spark and writing tables are told apart: they do not depend on cores.

    python bench/bench_lab.py [--cores 1 2] [--scale 1] [--master local-cluster[{cores},1,1024]]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from cubecast.lab.cells import Cell
from cubecast.lab.workloads import WORKLOADS
from cubecast.spark.compact import write_tables
from cubecast.spark.results import Results
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import run_sweep

SIZES = {1024: 2, 512: 4, 256: 8, 64: 40, 8: 120}
"""{nodes: how many cells}: half of the work is in the six largest."""


def skewed_grid(scale: int) -> list[Cell]:
    work = WORKLOADS["single-publisher"]
    cells = []
    for number, (nodes, count) in enumerate(SIZES.items()):
        settings = work.complete({"nodes": nodes, "messages": 400, "engine": "reference"})
        cost = work.cost(settings)
        cells += [Cell("skewed", number, settings, seed, cost) for seed in range(count * scale)]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cores", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--scale", type=int, default=1, help="so many times the cells")
    parser.add_argument("--master", default="local[{cores}]")
    options = parser.parse_args()
    cells = skewed_grid(options.scale)
    print(f"{len(cells)} cells")
    columns = ("cores", "start s", "sweep s", "speed-up", "busy s", "idle %", "tail s", "tables s")
    print(" ".join(f"{name:>9}" for name in columns))
    alone = 0.0
    for cores in options.cores:
        with tempfile.TemporaryDirectory() as scratch:
            results = Results(Path(scratch) / "out")
            begun = time.perf_counter()
            with (
                results.opened(),
                spark_session(options.master.format(cores=cores)) as spark,
            ):
                started = time.perf_counter()
                outcome = run_sweep(spark, cells, results)
                swept = time.perf_counter()
                write_tables(spark, results)
                written = time.perf_counter()
                (busy,) = results.table("busyness").to_pylist()
        assert not outcome.failures, outcome.failures[0]
        alone = alone or outcome.seconds
        numbers = (
            started - begun, outcome.seconds, alone / outcome.seconds, busy["busy_s"],
            100 * (busy["idle_share"] or 0.0), busy["tail_s"], written - swept,
        )  # fmt: skip
        print(f"{cores:>9} " + " ".join(f"{number:>9.2f}" for number in numbers))


if __name__ == "__main__":
    main()
