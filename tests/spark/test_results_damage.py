"""Results that are damaged in every way: a re-run makes them whole, or says what is missing.

The files are those of real sweeps.  A few rounds run with the other tests; fifty, with processes
that are killed at random moments, run with ``-m soak``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cubecast.lab.cells import Cell
from cubecast.spark.compact import read_messages
from cubecast.spark.errors import LabError, ResultsError
from cubecast.spark.progress import Silence
from cubecast.spark.results import Results, cell_name
from cubecast.spark.seal import (
    DamagedError,
    json_facts,
    seal_of,
    sealed_json,
    sealed_parquet,
    sealed_toml,
    toml_text,
)
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import SweepOutcome, bring_up_to_date
from support.executors import send_support
from support.lab_toys import dies_at_four, gated, toy, toy_cells, toy_with_messages
from support.paths import SUPPORT
from support.processes import command_line, descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOYS = SUPPORT / "lab_toys.py"
COMPARED = ("grid.parquet", "tables/runs.parquet", "tables/histograms.parquet")
POINTS, SEEDS = 3, 2
ROUNDS = 50


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process, if it has one already."""
    with spark_session("local[2]", log=tmp_path_factory.mktemp("spark") / "spark.log") as session:
        send_support(session, tmp_path_factory.getbasetemp())
        yield session


# -- seals -----------------------------------------------------------------------------------------


def files() -> list[tuple[str, bytes]]:
    table = pa.table({"key": ["k"], "value": [0.5]})
    return [
        ("cells/k.parquet", sealed_parquet("cells/k.parquet", table.schema, [table])),
        ("sweeps/s.json", sealed_json("sweeps/s.json", {"cells": 3})),
        ("experiments/e.toml", sealed_toml("experiments/e.toml", 'id = "e"\n')),
    ]


@pytest.mark.parametrize(("name", "content"), files(), ids=["parquet", "json", "toml"])
def test_every_changed_bit_and_every_cut_is_noticed(name: str, content: bytes) -> None:
    seal_of(name, content)
    for at in range(8 * len(content)):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError):
            seal_of(name, bytes(changed))
    for length in range(len(content)):
        with pytest.raises(DamagedError):
            seal_of(name, content[:length])
    with pytest.raises(DamagedError):
        seal_of(f"{name}x", content)


def test_sealed_notes_read_as_they_were_written() -> None:
    assert json_facts(sealed_json("a", {"x": [1, "é"]})) == {"x": [1, "é"]}
    assert toml_text(sealed_toml("a", "id = 1\n# end")) == "id = 1\n# end"


# -- damage ----------------------------------------------------------------------------------------


def emptied(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def bit_flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = chance.randrange(8 * len(content))
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)


def deleted(path: Path, chance: random.Random) -> None:
    path.unlink()


def foreign(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.randrange(1, 5000)))


def of_a_neighbour(path: Path, chance: random.Random) -> None:
    others = sorted(path.parent.glob(f"[!.]*{path.suffix}"))
    path.write_bytes(chance.choice(others).read_bytes())


def broken_json(path: Path, chance: random.Random) -> None:
    path.write_bytes(b'{"sweep": [')


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    emptied, cut, bit_flipped, deleted, foreign, of_a_neighbour, broken_json,
)  # fmt: skip


@dataclass
class Heard(Silence):
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.lines.append(text)


class Lab:
    """A directory of results that is run again and again, and an undamaged one."""

    def __init__(self, spark: SparkSession, whole: Path, out: Path) -> None:
        self._spark = spark
        self.cells = toy_cells(POINTS, SEEDS, gate="/")
        self.whole = whole
        self.out = out
        if whole.exists():
            shutil.copytree(whole, out)
        else:
            self.run(whole)

    def run(self, out: Path, cells: list[Cell] | None = None) -> tuple[SweepOutcome, list[str]]:
        results, heard = Results(out), Heard()
        with results.opened():
            results.note_experiment("toy", 'id = "toy"\n')
            outcome = bring_up_to_date(
                cells or self.cells, results, lambda: nullcontext(self._spark), measure=gated,
                progress=heard,
            )  # fmt: skip
        return outcome, heard.lines

    def files(self) -> list[Path]:
        found = [path for path in self.out.rglob("[!.]*") if path.is_file()]
        return sorted(path for path in found if path.name != "spark.log")

    def is_whole(self) -> bool:
        return all(
            (self.out / name).read_bytes() == (self.whole / name).read_bytes() for name in COMPARED
        )

    def damage(self, chance: random.Random) -> list[tuple[str, Path]]:
        """Damage one to four files; what was done to which."""
        done = []
        for path in chance.sample(self.files(), chance.randrange(1, 5)):
            how = chance.choice(DAMAGES)
            before = path.read_bytes()
            how(path, chance)
            if not path.exists() or path.read_bytes() != before:
                done.append((how.__name__, path))
        return done

    def mend(self, damaged: list[tuple[str, Path]]) -> None:
        """Run again: the tables are those of an undamaged run, and damaged cells are named."""
        names = {cell.key: cell_name(cell) for cell in self.cells}
        hit = {
            names[path.stem]
            for how, path in damaged
            if path.parent.name == "cells" and how != "deleted"
        }
        outcome, _ = self.run(self.out)
        assert set(outcome.damaged) == hit, damaged
        assert (outcome.failures, outcome.lost) == ((), ())
        assert self.is_whole(), damaged


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    return Lab(spark, folder / "whole", folder / "none").whole


@pytest.fixture
def lab(spark: SparkSession, whole: Path, tmp_path: Path) -> Lab:
    return Lab(spark, whole, tmp_path / "out")


def test_damaged_results_are_whole_after_a_re_run(lab: Lab) -> None:
    chance = random.Random(16)
    for _ in range(3):
        lab.mend(lab.damage(chance))


def test_two_sweeps_give_the_same_bytes(lab: Lab) -> None:
    shutil.rmtree(lab.out)
    assert lab.run(lab.out)[0].ran == POINTS * SEEDS
    assert lab.is_whole()


def test_damaged_files_are_named(lab: Lab) -> None:
    first, second, third = lab.cells[:3]
    (lab.out / "cells" / f"{first.key}.parquet").write_bytes(b"")
    bit_flipped(lab.out / "cells" / f"{second.key}.parquet", random.Random(1))
    (lab.out / "cells" / f"{third.key}.parquet").rename(
        lab.out / "cells" / f"{third.identity}-of-other-code.parquet"
    )
    (note,) = (lab.out / "sweeps").iterdir()
    note.write_bytes(b'{"sweep": [')
    (lab.out / "sweeps" / "mine.json").write_bytes(b"a file that is not ours")
    outcome, told = lab.run(lab.out)
    changed = "changed since it was written, or not written under this name"
    assert told == [
        f"{note} was damaged (cut short, changed, or not written by the lab: it has no seal) "
        "and is removed",
        f"2 cells were damaged and run again: {cell_name(first)}: empty; "
        f"{cell_name(second)}: {changed}",
        "1 cell is of another version of the code, and measured anew",
    ]
    assert (outcome.ran, outcome.kept, outcome.other_code) == (3, 3, 1)
    assert lab.is_whole()
    assert (lab.out / "sweeps" / "mine.json").exists()
    outcome, told = lab.run(lab.out)
    assert (outcome.sweep, outcome.ran, outcome.kept, told) == ("", 0, 6, [])


def test_a_lost_grid_is_told_until_its_experiments_are_run_again(lab: Lab) -> None:
    other = [Cell("other", 0, {"nodes": 5, "gate": "/"}, 0)]
    results = Results(lab.out)
    results.note_experiment("other", 'id = "other"\n')
    lab.run(lab.out, other)
    bit_flipped(lab.out / "grid.parquet", random.Random(2))
    with pytest.raises(ResultsError, match=r"out/grid.parquet is damaged \(.*lab run` on it again"):
        results.grid()
    outcome, told = lab.run(lab.out)
    assert told == list(outcome.lost)
    assert "it may have had other; the tables lack them until they are run again" in told[0]
    assert lab.is_whole()
    outcome, _ = lab.run(lab.out, other)
    assert (outcome.ran, outcome.kept, outcome.lost) == (0, 1, ())


def test_readers_name_the_damaged_file(spark: SparkSession, tmp_path: Path) -> None:
    results = Results(tmp_path)
    cells = toy_cells(2, 1)
    with results.opened():
        session = lambda: nullcontext(spark)  # noqa: E731
        bring_up_to_date(cells, results, session, measure=toy_with_messages)
    cut(tmp_path / "messages" / f"{cells[0].key}.parquet", random.Random(3))
    told = rf"messages/{cells[0].key}.parquet is damaged \(not the file that was written\)"
    with pytest.raises(Exception, match=told):
        read_messages(spark, results).collect()
    results.read_cells({cell.key for cell in cells})
    for name in ("runs", "timings"):
        path = tmp_path / "tables" / f"{name}.parquet"
        before = path.read_bytes()
        bit_flipped(path, random.Random(4))
        with pytest.raises(ResultsError, match=f"tables/{name}.parquet is damaged"):
            Results(tmp_path).require_tables()
        path.write_bytes(before)
    Results(tmp_path).require_tables()


# -- what a cell does to itself, and what is done to it --------------------------------------------


def test_a_cell_that_takes_its_process_down_is_given_up_and_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    results, cells = Results(tmp_path), toy_cells(3, 2)
    with results.opened():
        outcome = bring_up_to_date(cells, results, lambda: nullcontext(spark), measure=dies_at_four)
    (failure,) = outcome.failures
    assert str(failure) == (
        "toy (nodes=4) seed 0: its process was killed by SIGKILL (out of memory?), 2 times of 2"
    )
    assert (outcome.ran, results.failed()) == (5, {failure.key})
    assert results.failure(failure.key) == failure


def test_a_place_that_is_full_is_told_with_the_file_and_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    results, cells = Results(tmp_path), toy_cells(3, 2)
    (tmp_path / "cells").write_bytes(b"where a folder should be")
    with (
        results.opened(),
        pytest.raises(LabError, match=rf"cannot \w+ {tmp_path}/cells.*: (Not a dir|File exists)"),
    ):
        bring_up_to_date(cells, results, lambda: nullcontext(spark), measure=toy)


# -- fifty rounds ----------------------------------------------------------------------------------


def started(master: str, out: Path, scratch: Path) -> subprocess.Popen[bytes]:
    """A driver of its own."""
    return subprocess.Popen(
        [sys.executable, TOYS, master, out, "--points", str(POINTS), "--seeds", str(SEEDS)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(scratch)},
    )  # fmt: skip


def killed(pid: int) -> None:
    """End a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def full_disk(out: Path) -> Iterator[None]:
    """A file system without room for all that a sweep writes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", out], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", out], check=True)


class Rounds:
    """Ways to damage results that need processes, a disk or two sweeps."""

    def __init__(self, lab: Lab, chance: random.Random, scratch: Path) -> None:
        self.lab, self.chance, self.scratch = lab, chance, scratch
        self.counts: Counter[str] = Counter()
        self.driver_s = 0.0

    def files(self) -> None:
        damaged = self.lab.damage(self.chance)
        self.counts.update(how for how, _ in damaged)
        self.lab.mend(damaged)

    def remove_some(self) -> None:
        """Leave something to run."""
        for path in sorted((self.lab.out / "cells").iterdir()):
            if self.chance.random() < 0.8:
                path.unlink(missing_ok=True)

    def worker(self) -> None:
        """Kill a worker of Spark's, or the process that measures beside it, in a sweep."""
        self.remove_some()
        moment, stop = self.chance.uniform(0.0, 2.0), threading.Event()

        def kill() -> None:
            stop.wait(moment)
            found = [
                pid
                for pid in descendants(os.getpid())
                if "pyspark.worker" in command_line(pid) or "spark.apart" in command_line(pid)
            ]
            if found and not stop.is_set():
                killed(self.chance.choice(found))
                self.counts["worker"] += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            self.tolerated(lambda: self.lab.run(self.lab.out))
        finally:
            stop.set()
            killer.join()
        self.lab.mend([])

    def tolerated(self, run: Callable[[], tuple[SweepOutcome, list[str]]]) -> None:
        """A run may fail, if it says so."""
        told = ""
        try:
            outcome, _ = run()
        except LabError as error:
            told = str(error)
            self.counts[f"told: {told[:40]}"] += 1
        assert "\n" not in told
        assert told or outcome.failures or self.lab.is_whole()

    def disk(self) -> None:
        self.counts["full disk"] += 1
        out = self.scratch / "small"
        out.mkdir(exist_ok=True)
        with full_disk(out), pytest.raises(LabError, match="No space left on device"):
            self.lab.run(out)

    def two_at_once(self) -> None:
        self.remove_some()
        refused: list[str] = []

        def run() -> None:
            try:
                self.lab.run(self.lab.out)
            except ResultsError as error:
                refused.append(str(error))

        both = [threading.Thread(target=run) for _ in range(2)]
        for one in both:
            one.start()
            time.sleep(self.chance.uniform(0.0, 0.5))
        for one in both:
            one.join()
        assert all("another sweep is writing to" in line for line in refused)
        self.counts["two at once"] += 1
        self.lab.mend([])

    def driver(self) -> None:
        """Kill a driver with all that it started, at any moment of its life."""
        self.remove_some()
        begun = time.monotonic()
        process = started("local[2]", self.lab.out, self.scratch)
        try:
            process.wait(self.chance.uniform(0.0, self.driver_s) if self.driver_s else None)
            self.driver_s = time.monotonic() - begun
        except subprocess.TimeoutExpired:
            self.counts["driver"] += 1
            children = descendants(process.pid)
            killed(process.pid)
            process.wait()
            for child in children:
                killed(child)
        self.lab.mend([])

    def executor(self) -> None:
        """Kill executors while they run cells; the sweep goes on."""
        self.remove_some()
        process = started("local-cluster[2,1,1024]", self.lab.out, self.scratch)
        while process.poll() is None:
            time.sleep(self.chance.uniform(0.0, 4.0))
            found = [
                pid
                for pid in descendants(process.pid)
                if "CoarseGrainedExecutorBackend" in command_line(pid)
            ]
            if found and self.counts["executor"] % 3 < 2:
                killed(self.chance.choice(found))
            self.counts["executor"] += bool(found)
        self.lab.mend([])


@pytest.mark.soak
def test_fifty_rounds_of_damage_and_kills(lab: Lab) -> None:
    chance = random.Random(1616)
    with TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        rounds = Rounds(lab, chance, Path(scratch))
        order = [
            *[rounds.files] * 5, rounds.worker, rounds.disk, rounds.two_at_once,
            rounds.worker, rounds.driver,
        ]  # fmt: skip
        for number in range(ROUNDS):
            kind = rounds.executor if number % 20 == 19 else order[number % len(order)]
            begun = time.monotonic()
            kind()
            took = f"{time.monotonic() - begun:.1f} s"
            print(f"round {number}: {kind.__name__}, {took}, {dict(rounds.counts)}", flush=True)
