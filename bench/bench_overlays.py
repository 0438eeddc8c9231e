"""How long do StaN's overlays of a large universe take on Spark, and how much memory?

A universe of one of the sizes of [N] Table 1 is generated (or a table of subscriptions is read) and
put in Parquet.  Measured then: time, CPU time, and peak memory so far, the last two of the whole
process tree (driver, Java, Python's workers):

- views: all overlays through their rounds, every view of every kept round brought to a sink
  that forgets it;
- physical: the same, and the physical view size of every node in every kept round, in Parquet.

The last column is the CPU time per subscription and round, all included.  ``--kernel`` plays the
same table in one process without Spark as well.  Loading compiled code is part of the first run on
each worker.  ``--digest`` prints a digest of the physical sizes: it must be the same for every
master.

    python bench/bench_overlays.py [--size L8] [--table FILE.parquet] [--master local[2]]
        [--memory-mib 12288] [--mode faithful] [--rounds 8] [--kernel] [--digest] [--physical-only]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.kernel.rounds import Subscribers, play_overlays
from cubecast.overlay.rounds import MODES, RoundConfig
from cubecast.overlay.universes.bipartite import chunks, plan
from cubecast.overlay.universes.presets import preset
from cubecast.spark.large import default_memory_mib, large_session
from cubecast.spark.universe.overlays import overlays
from cubecast.spark.universe.physical import mean_sizes, physical_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY_S = 1.0


class PeakMemory:
    """Watches the resident memory of this process and of all below it, in MiB."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self.peak = max(self.peak, resident_mib())


def process_tree() -> dict[int, list[str]]:
    """This process and all below it: {id: fields of its stat, from the state on}."""
    stats: dict[int, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
    below = {os.getpid()}
    while True:
        more = {process for process, fields in stats.items() if int(fields[1]) in below} - below
        if not more:
            return {process: stats[process] for process in below}
        below |= more


def resident_mib() -> float:
    """Proportional set sizes of this process tree: pages shared by workers count once."""
    return sum(map(_proportional_kib, process_tree())) / 1024


def cpu_s() -> float:
    """CPU time of this process tree so far, with that of processes that ended."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in process_tree().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def _proportional_kib(process: int) -> int:
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def generate(name: str, path: Path) -> None:
    """Write a universe of this size, some topics at a time."""
    dealt = plan(0, preset(name))
    schema = pa.schema(
        [
            pa.field("user", pa.int64(), nullable=False),
            pa.field("topic", pa.int64(), nullable=False),
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for universe in chunks(dealt, 0, preset(name).topics):
            topics = np.repeat(universe[0], np.diff(universe[1]))
            writer.write_table(pa.table([universe[2], topics], schema=schema))


def play_alone(path: Path, config: RoundConfig, rounds: int) -> None:
    """The kernel in this process, without Spark."""
    table = pq.read_table(path)
    subscribers = Subscribers.of_pairs(table["user"].to_numpy(), table["topic"].to_numpy())
    few = Subscribers.of_arrays([1], [0, 3], [1, 2, 3])
    play_overlays(few, config, (0, rounds))  # loads the compiled code
    begun, used = time.perf_counter(), cpu_s()
    play_overlays(subscribers, config, (0, rounds))
    seconds, used = time.perf_counter() - begun, cpu_s() - used
    steps = len(subscribers.members) * rounds
    tell("kernel", seconds, used, resident_mib(), steps)


def digest_of(sizes: DataFrame) -> str:
    """A digest of all rows, in an order of their own."""
    columns = sizes.orderBy("user", "round").toArrow().combine_chunks()
    digest = hashlib.sha256()
    for column in columns.columns:
        digest.update(column.to_numpy().astype(np.int64).tobytes())
    return digest.hexdigest()[:16]


def measured(what: str, memory: PeakMemory, steps: int, step: Callable[[], object]) -> None:
    begun, used = time.perf_counter(), cpu_s()
    step()
    seconds, used = time.perf_counter() - begun, cpu_s() - used
    tell(what, seconds, used, memory.peak, steps)


def tell(what: str, seconds: float, used: float, peak: float, steps: int) -> None:
    per_step = 1e6 * used / steps
    print(f"{what:>9} {seconds:>9.1f} {used:>9.1f} {peak:>9.0f} {per_step:>9.3f}", flush=True)


def run(
    spark: SparkSession, path: Path, options: argparse.Namespace, config: RoundConfig,
    memory: PeakMemory,
) -> None:  # fmt: skip
    subscriptions = spark.read.parquet(str(path))
    pairs = subscriptions.count()
    steps = pairs * options.rounds
    topics, users = (subscriptions.select(name).distinct().count() for name in ("topic", "user"))
    print(f"{users:,} users x {topics:,} topics, {pairs:,} subscriptions, {options.master}")
    print(f"{'what':>9} {'s':>9} {'CPU s':>9} {'MiB':>9} {'us/step':>9}")
    out = str(path.with_suffix(".sizes"))

    def views() -> DataFrame:
        return overlays(subscriptions, config, (0, options.rounds))

    if not options.physical_only:
        measured(
            "views", memory, steps, lambda: views().write.format("noop").mode("overwrite").save()
        )
    measured("physical", memory, steps, lambda: physical_views(views()).write.parquet(out))
    written = spark.read.parquet(out)
    for row in mean_sizes(written).collect():
        print(
            f"round {row['round']}: {row['users']:,} users, logical {row['logical']:.2f}, "
            f"physical {row['physical']:.2f}"
        )
    if options.digest:
        print(f"digest {digest_of(written)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", default="L8", help="a universe of Table 1: L0 to L8, W0 to W8")
    parser.add_argument("--table", type=Path, help="Parquet with user and topic instead")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory-mib", type=int, default=default_memory_mib())
    parser.add_argument("--mode", choices=MODES, default="faithful")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kernel", action="store_true", help="the kernel alone, too")
    parser.add_argument("--physical-only", action="store_true", help="leave the views alone out")
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    config = RoundConfig(rounds=options.rounds, mode=options.mode)
    with tempfile.TemporaryDirectory() as scratch, PeakMemory() as memory:
        path = options.table
        if path is None:
            path = Path(scratch) / f"{options.size}.parquet"
            generate(options.size, path)
        else:
            link = Path(scratch) / "table.parquet"
            link.symlink_to(path.resolve())
            path = link
        with large_session(options.master, memory_mib=options.memory_mib) as spark:
            run(spark, path, options, config, memory)
        if options.kernel:
            play_alone(path, config, options.rounds)


if __name__ == "__main__":
    main()
