"""Thousands of storms: ``make soak ARGS="--first 0 --count 5000"``.

Runs a range of seeds on all cores, keeps a tally in a file so that an interrupted run goes on
where it stopped, and prints the replay command of every failure.  Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS

BLOCK = 50
SMALL_SHARE = 10  # one block in ten is of 64 nodes


def storm_block(first: int) -> dict[str, float]:
    """Run `BLOCK` seeds; return sums of their contents and the seeds that failed."""
    scenario = SCENARIOS["storm"]
    nodes = 64 if first // BLOCK % SMALL_SHARE == SMALL_SHARE - 1 else 8
    params = Params().with_({**scenario.defaults, "nodes": nodes})
    sums: dict[str, float] = {"runs": 0, "failed": 0}
    for seed in range(first, first + BLOCK):
        outcome = run(scenario, "cubecast", params, seed)
        good = all(outcome.metrics[name] == 0 for name in ("violations", "gaps", "kept"))
        sums["runs"] += 1
        for name in ("violations", "gaps", "deliveries", "publications", "events"):
            sums[name] = sums.get(name, 0) + outcome.metrics[name]
        drawn = outcome.params
        for name, happened in (
            ("lossy", drawn.loss > 0), ("duplicating", drawn.duplicate > 0),
            ("reordering", drawn.reorder > 0), ("partitions", len(drawn.partitions)),
            ("joins and leaves", drawn.changes),
        ):  # fmt: skip
            sums[name] = sums.get(name, 0) + happened
        if not good:
            sums["failed"] += 1
            print(
                f"FAILED: cubecast sim storm --nodes {nodes} --seeds 1 --first-seed {seed}",
                flush=True,
            )
    return sums


def load_tally(path: Path) -> dict[str, dict[str, float]]:
    """Blocks done so far, by their first seed."""
    return json.loads(path.read_text()) if path.exists() else {}


def add_up(blocks: Iterable[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for block in blocks:
        for name, value in block.items():
            total[name] = total.get(name, 0) + value
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=5000, help="how many seeds")
    parser.add_argument("--tally", type=Path, default=Path(".soak.json"), help="where to keep it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    first = options.first // BLOCK * BLOCK
    wanted = range(first, options.first + options.count, BLOCK)
    tally = load_tally(options.tally)
    missing = [block for block in wanted if str(block) not in tally]
    print(f"{len(wanted)} blocks of {BLOCK} storms, {len(wanted) - len(missing)} done before")
    started = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, (block, sums) in enumerate(
            zip(missing, pool.map(storm_block, missing), strict=True), 1
        ):
            tally[str(block)] = sums
            scratch = options.tally.with_suffix(".tmp")
            scratch.write_text(json.dumps(tally))
            scratch.replace(options.tally)
            if done % 10 == 0 or done == len(missing):
                left = (time.monotonic() - started) / done * (len(missing) - done)
                print(f"{done} of {len(missing)} blocks, about {left:.0f} s left", flush=True)
    total = add_up(tally[str(block)] for block in wanted)
    for name, value in total.items():
        print(f"{name:>18}: {value:,.0f}")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
