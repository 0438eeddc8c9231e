"""Fifty rounds of damage to results, with processes that are killed at random moments.

The rounds run with ``-m soak``: each damages files, kills processes in the middle of a sweep, fills
a disk (as root, who may mount one) or has two sweeps in one directory.  A re-run then gives what an
undamaged run gives, byte for byte.  A gate holds cells of a sweep, so that every kill hits one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from cubecast.spark.errors import LabError
from support.damages import DAMAGES, Lab
from support.paths import python_path
from support.processes import alive, ancestors, command_line, descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 50
PATIENCE_S = 600
VICTIMS = ("measuring process", "worker", "daemon")
"""A process that measures a cell, the worker of Spark's that started it, and what started that."""
FOLDERS = (
    "cells", "experiments", "grid.parquet", "messages", "sweeps", "tables", "traces",
)  # fmt: skip
EXPECTED = (
    *(how.__name__ for how in DAMAGES), *FOLDERS, *VICTIMS, "driver", "executor", "full disk",
    "two at once",
)  # fmt: skip
"""What the rounds must have done at least once."""
PAGE = 4096


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path, tmp_path / "out")


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Until something has happened; not for a time."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()}")
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.02)


def killed(pid: int) -> None:
    """End a process that is there, and see that it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def wait_for_the_end_of(processes: set[int]) -> None:
    wait_until(lambda: not any(map(alive, processes)))


@contextmanager
def small_disk(out: Path, pages: int) -> Iterator[Callable[[], None]]:
    """A file system with little room; what it yields gives it more."""
    size = f"size={pages * PAGE}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", out], check=True)

    def more_room() -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", out], check=True)

    try:
        yield more_room
    finally:
        subprocess.run(["umount", "-l", out], check=True)


class Rounds:
    """Ways to damage results; each ends with a re-run."""

    def __init__(self, lab: Lab, chance: random.Random, scratch: Path) -> None:
        self.lab, self.chance, self.scratch = lab, chance, scratch
        self.counts: Counter[str] = Counter()
        self.workers = 0
        self.reaches_the_gate_s = 0.0
        self.kinds = (
            self.files, self.worker, self.disk, self.two_at_once, self.driver, self.executor,
        )  # fmt: skip

    # -- files -------------------------------------------------------------------------------------

    def files(self) -> None:
        for _ in range(3):
            damaged = self.lab.damage(self.chance)
            self.counts.update(how for how, _ in damaged)
            self.counts.update(path.relative_to(self.lab.out).parts[0] for _, path in damaged)
            self.lab.mend(damaged)

    def disk(self) -> None:
        """Run in a place with room for some of the files, and again when it has more."""
        sizes = [one.stat().st_size for one in self.lab.whole.rglob("[!.]*") if one.is_file()]
        needed = sum(-(-size // PAGE) for size in sizes)
        out = self.scratch / "small"
        out.mkdir(exist_ok=True)
        with small_disk(out, self.chance.randrange(2, needed - 2)) as more_room:
            with pytest.raises(LabError, match="No space left on device") as refusal:
                self.lab.run(out)
            assert "\n" not in str(refusal.value)
            self.counts["full disk"] += 1
            more_room()
            self.lab.mend([], out)

    # -- sweeps ------------------------------------------------------------------------------------

    def remove_some(self) -> None:
        """Leave something to run: in any case the cells that the gate holds."""
        for path in sorted((self.lab.out / "cells").iterdir()):
            if path.stem in self.lab.held or self.chance.random() < 0.8:
                path.unlink()

    @contextmanager
    def started(self, master: str) -> Iterator[subprocess.Popen[str]]:
        """A `cubecast lab run` of its own; nothing outlives the block."""
        command = ["lab", "run", self.lab.file, "--out", self.lab.out, "--master", master]
        process = subprocess.Popen(
            [sys.executable, "-m", "cubecast.cli.main", *map(str, command),
             "--keep", "messages", "--keep", "traces"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(self.scratch), "PYTHONPATH": python_path()},
        )  # fmt: skip
        try:
            yield process
        finally:
            for child in {process.pid, *descendants(process.pid)}:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            process.communicate()

    def finished(self, process: subprocess.Popen[str]) -> None:
        """A sweep that nothing could stop."""
        told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, told
        assert not self.lab.differing()

    def worker(self) -> None:
        """Kill a worker of Spark's, or the process that measures beside it; the sweep goes on."""
        self.remove_some()
        what = VICTIMS[self.workers % len(VICTIMS)]
        self.workers += 1
        moment = self.chance.uniform(0.0, 0.5)

        def kill() -> None:
            try:
                wait_until(lambda: len(self.lab.waiting()) == 2)
                time.sleep(moment)
                measuring = self.chance.choice(self.lab.waiting())
                victim = [measuring, *ancestors(measuring)][VICTIMS.index(what)]
                named = "measuring_process" if victim == measuring else "pyspark.daemon"
                assert named in command_line(victim)
                killed(victim)
                self.counts[what] += 1
            finally:
                self.lab.gate.touch()

        with self.lab.gate_closed(), ThreadPoolExecutor(1) as pool:
            killer = pool.submit(kill)
            outcome, _ = self.lab.run(self.lab.out)
            killer.result()
        assert (outcome.failures, self.lab.differing()) == ((), [])
        self.lab.mend([])

    def executor(self) -> None:
        """Kill executors while they run cells; the sweep goes on."""
        self.remove_some()
        with self.lab.gate_closed(), self.started("local-cluster[2,1,1024]") as process:
            for _ in range(self.chance.randrange(1, 3)):
                wait_until(lambda: len(self.lab.waiting()) == 2, process)
                above = ancestors(self.chance.choice(self.lab.waiting()))
                named = (one for one in above if "CoarseGrainedExecutor" in command_line(one))
                executor = next(named)
                below = descendants(executor)
                killed(executor)
                wait_for_the_end_of(below)
                self.counts["executor"] += 1
            self.lab.gate.touch()
            self.finished(process)
        self.lab.mend([])

    def driver(self) -> None:
        """Kill a driver with all that it started, at any moment of its life."""
        self.remove_some()
        before_the_gate = not self.counts["driver"] or self.chance.random() < 0.5
        held = self.lab.gate_closed() if before_the_gate else nullcontext()
        with held, self.started("local[2]") as process:
            begun = time.monotonic()
            if not self.reaches_the_gate_s:
                wait_until(lambda: bool(self.lab.waiting()), process)
                self.reaches_the_gate_s = time.monotonic() - begun
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self.chance.uniform(0.0, 2 * self.reaches_the_gate_s))
            if process.poll() is None:
                children = descendants(process.pid)
                killed(process.pid)
                for child in filter(alive, children):
                    killed(child)
                self.counts["driver"] += 1
            else:
                assert not before_the_gate, process.communicate()
                self.finished(process)
                self.counts["driver that had ended"] += 1
        self.lab.mend([])

    def two_at_once(self) -> None:
        """Two sweeps in one directory: whichever comes second is refused, and the other goes on."""
        self.remove_some()
        with (
            self.lab.gate_closed(),
            self.started("local[1]") as one,
            self.later(),
            self.started("local[1]") as other,
        ):
            wait_until(lambda: one.poll() is not None or other.poll() is not None)
            refused, first = (one, other) if one.poll() is not None else (other, one)
            told = refused.communicate()
            assert refused.returncode == 2, told
            assert f"another sweep is writing to {self.lab.out}" in told[1]
            assert len(told[1].splitlines()) == 1
            wait_until(lambda: bool(self.lab.waiting()), first)
            self.counts["two at once"] += 1
            self.lab.gate.touch()
            self.finished(first)
        self.lab.mend([])

    @contextmanager
    def later(self) -> Iterator[None]:
        time.sleep(self.chance.uniform(0.0, 1.0))
        yield


@pytest.mark.soak
def test_fifty_rounds_of_damage_and_kills(lab: Lab) -> None:
    chance = random.Random(1616)
    with TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        rounds = Rounds(lab, chance, Path(scratch))
        for number in range(ROUNDS):
            kind = rounds.kinds[number % len(rounds.kinds)]
            begun = time.monotonic()
            kind()
            took = f"{time.monotonic() - begun:.1f} s"
            print(f"round {number}: {kind.__name__}, {took}, {dict(rounds.counts)}", flush=True)
    assert not [what for what in EXPECTED if not rounds.counts[what]]
