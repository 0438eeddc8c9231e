"""The session of Spark's: what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from cubecast.spark.errors import APPLICATION_ENDED, LabError, SparkFailedError, blame
from cubecast.spark.java_log import told_how_java_ended
from cubecast.spark.java_process import JavaProcess
from cubecast.spark.masters import refuse_connect, refuse_unreachable
from cubecast.spark.scratch import LOCK, clear_dead, scratch_directory
from cubecast.spark.session import spark_session
from support.executors import needless
from support.terminal import in_front

PATIENCE_S = 600
ORPHANS_END_WITHIN_S = 60


# -- Ctrl-C while Spark starts ---------------------------------------------------------------------

STAT_SESSION = 3
"""Place of the session among the fields after the name of a process."""


def in_session(leader: int) -> dict[int, str]:
    """{process: command line} of the session of processes that a process leads, without itself."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != leader:
            try:
                state, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if state != "Z" and int(fields[STAT_SESSION - 1]) == leader:
                found[int(entry.name)] = command
    return found


LAUNCHER = "org.apache.spark.launcher.Main"
JAVA = "org.apache.spark.deploy.SparkSubmit --"
"""What the command lines of Java have, first of the one that makes the command of the other."""


def runs(*texts: str) -> Callable[[int, Path], bool]:
    """Whether a process of the session has one of these in its command line."""
    return lambda leader, out: any(
        text in command for command in in_session(leader).values() for text in texts
    )


MOMENTS: dict[str, Callable[[int, Path], bool]] = {
    "a script starts": runs(""),
    "the command of Java is made": runs(LAUNCHER, JAVA),
    "Java starts": runs(JAVA),
    "Java says something": lambda leader, out: (out / "spark.log").stat().st_size > 0,
}
"""Each holds from then on, so that none is missed."""


def lab_run(out: Path) -> subprocess.Popen[str]:
    """A `cubecast lab run` at the head of a session of processes, as in a terminal of its own."""
    command = ["lab", "run", "4.1", "--quick", "--out", str(out), "--master", "local[2]"]
    out.mkdir(parents=True)
    (out / "tmp").mkdir()
    with in_front():
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "cubecast.cli.main", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "TMPDIR": str(out / "tmp")},
        )  # fmt: skip


def assert_nothing_is_left(process: subprocess.Popen[str], out: Path, moment: object) -> None:
    """After Ctrl-C: one line, 130, no process, no scratch directory."""
    told = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 130, (moment, told)
    assert "interrupted" in told, (moment, told)
    assert len(told.splitlines()) == 1, (moment, told)
    deadline = time.monotonic() + ORPHANS_END_WITHIN_S
    while left := in_session(process.pid):
        if time.monotonic() > deadline:
            for orphan in left:
                os.kill(orphan, signal.SIGKILL)
            raise AssertionError(f"interrupted as {moment}, it leaves {left}")
        time.sleep(0.05)
    assert not list((out / "tmp").iterdir()), moment


def test_ctrl_c_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    places = {moment: tmp_path / str(n) for n, moment in enumerate(MOMENTS)}
    processes = {moment: lab_run(out) for moment, out in places.items()}
    try:
        waiting = set(MOMENTS)
        while waiting:
            for moment in sorted(waiting):
                process = processes[moment]
                assert process.poll() is None, (moment, process.communicate())
                with suppress(OSError):  # there is no log yet
                    if MOMENTS[moment](process.pid, places[moment]):
                        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                        waiting.remove(moment)
            time.sleep(0.005)
        for moment, process in processes.items():
            assert_nothing_is_left(process, places[moment], moment)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


@pytest.mark.soak
@pytest.mark.parametrize("after_s", [0.1 * n for n in range(1, 61)])
def test_ctrl_c_at_any_moment_leaves_no_java_behind(after_s: float, tmp_path: Path) -> None:
    process = lab_run(tmp_path / "out")
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(PATIENCE_S)
    assert process.returncode in (130, -signal.SIGINT)  # the latter before Python itself is up
    if process.returncode == 130:
        assert_nothing_is_left(process, tmp_path / "out", after_s)
    else:
        process.communicate()


# -- scratch directories ---------------------------------------------------------------------------

DRIVER = """
import subprocess, sys
from pathlib import Path
from cubecast.spark.scratch import scratch_directory
with scratch_directory(Path(sys.argv[1])) as scratch:
    (scratch.folder("local") / "block").write_text("large")
    if sys.argv[2] == "with Java":
        subprocess.Popen(["sleep", "600"], pass_fds=(scratch.lock,))
    print(scratch.path, flush=True)
    sys.stdin.read()
"""

Drivers = Callable[..., tuple[subprocess.Popen[str], Path]]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Drivers]:
    """Starts processes with a scratch directory each."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str = "") -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        for left in in_session(process.pid):
            os.kill(left, signal.SIGKILL)
        process.communicate()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_the_next_driver_clears_what_killed_ones_left_and_nothing_else(
    driver: Drivers, tmp_path: Path
) -> None:
    living, living_folder = driver()
    dead, dead_folder = driver()
    killed(dead)
    orphaned, orphaned_folder = driver("with Java")
    killed(orphaned)
    foreign = tmp_path / "cubecast-spark-of-another-program"
    foreign.mkdir()
    (foreign / "theirs").write_text("theirs")
    just_made = tmp_path / "cubecast-spark-just-made"
    just_made.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "cubecast-spark-link").symlink_to(elsewhere)
    with scratch_directory(tmp_path) as scratch:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            path.name
            for path in (
                living_folder, orphaned_folder, foreign, elsewhere, scratch.path,
                tmp_path / "cubecast-spark-link",
            )
        )  # fmt: skip
        assert (living_folder / "local" / "block").exists()
    assert not scratch.path.exists()
    assert living.poll() is None
    for java in in_session(orphaned.pid):
        os.kill(java, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while orphaned_folder.exists() and time.monotonic() < deadline:
        clear_dead(tmp_path)
    assert not orphaned_folder.exists()
    assert dead_folder != living_folder


def test_a_directory_that_is_half_removed_is_tried_again(tmp_path: Path) -> None:
    also = tmp_path / "work"
    also.mkdir()
    with scratch_directory(tmp_path) as scratch:
        scratch.remove_also(also)
    assert not list(tmp_path.iterdir())
    half = tmp_path / "cubecast-spark-half"
    half.mkdir()
    (half / LOCK).touch()
    clear_dead(tmp_path)
    assert not list(tmp_path.iterdir())


# -- masters that do not answer --------------------------------------------------------------------


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SparkFailedError, match=r"no master answers there \(Connection refused\)$"):
        refuse_unreachable(f"spark://127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as server:  # one of two is enough
        refuse_unreachable(f"spark://127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}")
    with pytest.raises(LabError, match="spark://head:x: head:x is not host:port"):
        refuse_unreachable("spark://head:x")
    refuse_unreachable("yarn")
    with pytest.raises(LabError, match="Spark Connect"):
        refuse_connect("sc://head:15002")


def test_the_master_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(master: str, **conf: str) -> str:
        with pytest.raises(LabError) as raised, spark_session(master, conf=conf):
            pass
        return str(raised.value)

    both = refused("local[2]", **{"spark.master": "local[1]"})
    assert both == "the master is local[2], and spark.master=local[1]: name one of them"
    assert "Spark Connect" in refused("local[*]", **{"spark.master": "sc://head:15002"})
    monkeypatch.setenv("SPARK_REMOTE", "sc://head:15002")
    assert "this process uses Spark Connect" in refused("local[2]")


# -- executors -------------------------------------------------------------------------------------

EXECUTOR = """
import sys
import cubecast.spark.compact, cubecast.spark.executor_task, cubecast.spark.measuring_process
from cubecast.lab.cell_details import KEEPABLE
from cubecast.lab.cells import Cell, measure
from cubecast.lab.workloads import WORKLOADS
point = {"protocol": "vcube-ps", "nodes": 8, "engine": "reference"}
measure(Cell("4.1", 0, WORKLOADS["single-publisher"].complete(point), 0), KEEPABLE)
print(*sys.modules)
"""
"""The imports of a worker and of the process that measures, and a cell."""


def test_an_executor_imports_what_a_cell_needs_and_no_network() -> None:
    modules = subprocess.run(
        [sys.executable, "-c", EXECUTOR], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"cubecast.sim.run", "cubecast.trace.parquet", "cubecast.net.wire"} <= set(modules)
    assert not needless(modules)


# -- blame -----------------------------------------------------------------------------------------

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
WHAT_TO_SET = (
    f"name a Python {PYTHON} with cubecast[lab] that is there (PYSPARK_PYTHON=/path/to/python), or "
    "send one along (--conf spark.archives=env.tar.gz#env and PYSPARK_PYTHON=./env/bin/python)"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "An error occurred while calling o85.save.\n: org.apache.spark.SparkException: Job "
            "aborted\n\tat java.lang.Thread.run\nCaused by: cubecast.spark.errors.ResultsError: x",
            "x",
        ),
        (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage "
            "0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (host "
            "executor 4): ExecutorLostFailure (executor 4 exited caused by one of the running "
            "tasks) Reason: Command exited with code 137\nDriver stacktrace:\n",
            "Spark gave up: a task lost its executor each time it was tried, at last because: "
            "Command exited with code 137",
        ),
        (
            "java.lang.OutOfMemoryError: Java heap space\n\tat x",
            "Spark is out of memory (Java heap space): give it more by --conf "
            "spark.driver.memory=4g, on a cluster by --conf spark.executor.memory=4g",
        ),
        (
            "An error occurred while calling o71.save.\n: org.apache.spark.SparkException: "
            "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent "
            "failure: Lost task 0.3 in stage 1.0 (TID 8) (10.0.0.7 executor 1): "
            "org.apache.spark.SparkException: \nError from python worker:\n"
            "  ModuleNotFoundError: No module named 'pyarrow'\nPYTHONPATH was:\n  /spark/python",
            f"the executors' Python has no package pyarrow: {WHAT_TO_SET}",
        ),
        (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 "
            'times: java.io.IOException: Cannot run program "/no/such/python": error=2, No such '
            "file or directory\n\tat java.base/java.lang.ProcessBuilder.start",
            f"the executors have no program /no/such/python: {WHAT_TO_SET}",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python "
            "in worker has different version: 3.8 than that in driver: 3.13",
            f"the executors run another Python than the driver's {PYTHON}: {WHAT_TO_SET}",
        ),
        ("Something\nsaid: Exception: deep\n\tat x", "Spark gave up: said: Exception: deep"),
        ("", "Spark gave up: no reason given"),
    ],
)
def test_a_failure_is_told_in_one_line(text: str, line: str) -> None:
    assert blame(text) == line


@pytest.mark.parametrize(
    ("logged", "line"),
    [
        ("ERROR Executor: x\njava.lang.OutOfMemoryError: Java heap space\n\tat y", "out of memory"),
        ("ERROR StandaloneSchedulerBackend: Application has been killed", "the cluster ended"),
    ],
)
def test_a_driver_that_ends_for_want_of_memory_is_told_by_its_log(
    logged: str, line: str, tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(logged, encoding="utf-8")
    java = cast(JavaProcess, None)  # only asked how it ended, and it has not
    with pytest.raises(SparkFailedError, match=line), told_how_java_ended(java, log):
        raise SparkFailedError(APPLICATION_ENDED)
