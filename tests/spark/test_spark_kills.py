"""Processes that die in the middle of a sweep (a driver, Java, an executor), and Ctrl-C.

The processes are real ones.  A gate holds the sweep half-way, so that no test depends on how fast
the machine is.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.lab_toys import GATED_FROM, POINTS, SEEDS, toy, toy_cells
from support.paths import SUPPORT
from support.processes import alive, command_line, descendants
from support.terminal import in_front

TOYS = SUPPORT / "lab_toys.py"
MEASURING = "cubecast.spark.measuring_process"
ALL = POINTS * SEEDS
BEFORE_THE_GATE = GATED_FROM * SEEDS
PATIENCE_S = 600


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the drivers of a test have their scratch directories."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


@pytest.fixture
def start(scratch: Path) -> Iterator[Start]:
    """Runs Python with warnings as errors; nothing outlives a test that fails."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
        with in_front():
            process = subprocess.Popen(
                [sys.executable, "-W", "error", *map(str, arguments)],
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
                text=True,
                env={**os.environ, "TMPDIR": str(scratch)},
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until something has happened; not for a time."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()}")
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.02)


def finished(out: Path) -> list[Path]:
    return sorted((out / "cells").glob("[!.]*.parquet"))


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    return told


def javas(pid: int) -> set[int]:
    return {child for child in descendants(pid) if "/bin/java" in command_line(child)}


def wait_for_the_end_of(processes: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(map(alive, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(out: Path) -> list[tuple[str, str, float]]:
    table = pq.read_table(out / "tables" / "runs.parquet")
    return [(row["key"], row["metric"], row["value"]) for row in table.to_pylist()]


def expected(gate: Path) -> list[tuple[str, str, float]]:
    """What a plain loop measures."""
    return [
        (cell.key, metric, value)
        for cell in toy_cells(gate=str(gate))
        for metric, value in sorted(toy(cell).metrics.items())
    ]


def test_a_driver_that_is_killed_loses_only_the_cells_in_flight(
    start: Start, scratch: Path, tmp_path: Path
) -> None:
    out, whole, gate = tmp_path / "out", tmp_path / "whole", tmp_path / "gate"
    driver = start(TOYS, "local[2]", out, "--gate", gate)
    wait_until(lambda: len(finished(out)) == BEFORE_THE_GATE, driver)
    children = descendants(driver.pid)
    driver.kill()
    driver.communicate()
    wait_for_the_end_of(children)  # Java and its workers see that the driver is gone
    assert all(left.name.startswith("cubecast-spark-") for left in scratch.iterdir())
    assert len(finished(out)) == BEFORE_THE_GATE
    assert not (out / "tables").exists()
    before = {path: path.stat().st_mtime_ns for path in finished(out)}

    gate.touch()
    told, complaints = ended(start(TOYS, "local[2]", out, whole, "--gate", gate))
    assert told.splitlines() == [
        f"{ALL - BEFORE_THE_GATE} ran, {BEFORE_THE_GATE} kept, 2 cores",
        f"{ALL} ran, 0 kept, 2 cores",
    ]
    assert complaints == ""
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert runs(out) == expected(gate)
    for table in ("runs", "histograms"):
        files = [one / "tables" / f"{table}.parquet" for one in (out, whole)]
        assert files[0].read_bytes() == files[1].read_bytes(), table
    assert not list(scratch.iterdir()), "what the killed driver left is cleared by the next"


def busy_executors(driver: int) -> list[int]:
    """The executors of a driver that measure a cell."""
    return [
        pid
        for pid in descendants(driver)
        if "CoarseGrainedExecutorBackend" in command_line(pid)
        and "/java" in command_line(pid)
        and any(MEASURING in command_line(child) for child in descendants(pid))
    ]


LOST = 3
"""More often than a cell may take its own process down."""


def test_executors_of_their_own_give_the_same_tables_also_when_they_are_killed_again_and_again(
    start: Start, tmp_path: Path
) -> None:
    out, gate = tmp_path / "out", tmp_path / "gate"
    driver = start(TOYS, "local-cluster[2,1,1024]", out, "--gate", gate)
    wait_until(lambda: len(finished(out)) == BEFORE_THE_GATE, driver)
    for _ in range(LOST):
        wait_until(lambda: len(busy_executors(driver.pid)) == 2, driver)
        executors = busy_executors(driver.pid)
        for executor in executors:
            os.kill(executor, signal.SIGKILL)
        wait_for_the_end_of(set(executors))
    gate.touch()
    told, complaints = ended(driver)
    assert told == f"{ALL} ran, 0 kept, 2 cores\n"
    assert complaints == ""
    assert runs(out) == expected(gate)


EXPERIMENT = """
id = "endless"
title = "More cells than anyone waits for"
source = "ours"
workload = "single-publisher"
metrics = ["latency_mean"]
seeds = { full = 20000 }
fixed = { engine = "reference" }
grid = { nodes = [8] }
"""


def test_ctrl_c_and_a_java_that_dies_are_told_in_one_line(start: Start, tmp_path: Path) -> None:
    mine, out = tmp_path / "endless.toml", tmp_path / "out"
    mine.write_text(EXPERIMENT, encoding="utf-8")
    command = ("lab", "run", mine, "--out", out, "--master", "local[2]")

    process = start("-m", "cubecast.cli.main", *command)
    wait_until(lambda: len(finished(out)) > 3, process)
    children = descendants(process.pid)
    (java,) = javas(process.pid)
    os.kill(java, signal.SIGKILL)
    printed, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, printed) == (2, "")
    *progress, last = complaints.splitlines()
    assert last == (
        "cubecast lab run: Spark's Java process is gone (killed, perhaps for want of memory): what "
        "is finished is kept, and the same command goes on from there"
    )
    assert all(re.match(r"\d+ of 20000 cells, ", line) for line in progress), complaints
    wait_for_the_end_of(children)
    before = len(finished(out))

    process = start("-m", "cubecast.cli.main", *command, start_new_session=True)
    wait_until(lambda: len(finished(out)) > before + 3, process)
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes in front of it
    printed, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, printed) == (130, "")
    *progress, last = complaints.splitlines()
    kept = len(finished(out))
    assert last == (
        f"cubecast lab run: interrupted; {kept} of 20000 cells are kept in {out}, "
        "and the same command goes on from there"
    )
    told = rf"\d+ of {20000 - before} cells, \d+ left, {before} kept from before, "
    assert all(re.match(told, line) for line in progress), complaints
    wait_for_the_end_of(children)
    assert not list((out / "cells").glob(".*.tmp"))


def has_workers(pid: int) -> bool:
    """Whether a job of Spark's runs Python."""
    return any("pyspark.daemon" in command_line(child) for child in descendants(pid))


def test_ctrl_c_in_a_job_on_a_universe_is_told_in_one_line(start: Start, tmp_path: Path) -> None:
    """The job runs in the main thread, which waits for Java when it is interrupted."""
    told = tmp_path / "told"
    with told.open("w", encoding="utf-8") as stderr:
        process = start(
            "-m", "cubecast.cli.main", "universe", "generate", "W3", "--out", tmp_path / "w3",
            "--master", "local[2]", start_new_session=True, stderr=stderr,
        )  # fmt: skip
        wait_until(lambda: has_workers(process.pid), process)
        children = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    *progress, last = told.read_text(encoding="utf-8").splitlines()
    assert last == "cubecast: interrupted"
    assert all(line.startswith("generating") for line in progress), progress
    wait_for_the_end_of(children)
    assert [one.name for one in tmp_path.iterdir()] == ["told"]


def test_a_master_that_spark_does_not_know(start: Start, tmp_path: Path) -> None:
    command = ("lab", "run", "4.1", "--quick", "--master", "local[x]", "--out", tmp_path / "out")
    process = start("-m", "cubecast.cli.main", *command)
    told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, *told) == (
        2,
        "",
        "cubecast lab run: Spark does not start on local[x]: Could not parse Master URL: "
        "'local[x]'\n",
    )


def test_a_setting_that_java_does_not_take(start: Start, scratch: Path, tmp_path: Path) -> None:
    command = ("lab", "run", "4.1", "--quick", "--master", "local[1]", "--out", tmp_path / "out")
    process = start("-m", "cubecast.cli.main", *command, "--conf", "spark.driver.memory=lots")
    told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, *told) == (
        2,
        "",
        "cubecast lab run: Spark does not start on local[1]: Invalid maximum heap size: -Xmxlots\n",
    )
    assert not list(scratch.iterdir())
