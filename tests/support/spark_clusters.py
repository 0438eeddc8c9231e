"""A real standalone cluster on the loopback: a master and two workers, as `start-all.sh` has them.

Their processes come from the package's own jars.  Ports are chosen by the system; the logs tell
which.  The cluster starts once for all tests of a process that ask for it, and ends with them:

    from support.spark_clusters import cluster as cluster  # the fixture

    def test_something(cluster: Cluster) -> None:
        cluster.run("driver.py", cluster.master)

A driver runs in a process of its own, as a process has one session of Spark's at a time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cubecast.spark.java import find_java
from cubecast.spark.java_process import spark_home
from support.paths import python_path

WORKERS = 2
PATIENCE_S = 600
HOST = "127.0.0.1"
LIFELINE = """
exec 3<&0
"$@" </dev/null &
child=$!
(cat <&3 >/dev/null; kill -9 $child) &
wait $child
"""
"""Runs a command, and kills it when the tests are gone, however they ended."""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs."""

    master: str
    """Its address, as `--master` takes it."""
    workers: tuple[subprocess.Popen[bytes], ...]
    folder: Path
    """Logs, and the directories of executors below ``work-N``."""

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program that is a driver on the loopback; its executors run this Python."""
        return subprocess.run(
            [sys.executable, "-W", "error", *map(str, arguments)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env={
                **os.environ,
                "PYTHONPATH": python_path(),
                "SPARK_LOCAL_IP": HOST,
                "PYSPARK_PYTHON": sys.executable,
            }
            | environment,
        )  # fmt: skip


@contextmanager
def standalone_cluster(folder: Path, workers: int = WORKERS) -> Iterator[Cluster]:
    """A master and workers of one core each; they end with the block, and what they started too."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", LIFELINE, "sh", str(spark_home() / "bin" / "spark-class"), *command],
                stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
                env={
                    **os.environ,
                    "JAVA_HOME": str(find_java().home),
                    "SPARK_DAEMON_JAVA_OPTS": QUICK,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_LOCAL_DIRS": str(folder / "local"),
                    "PYSPARK_PYTHON": sys.executable,
                },
            )  # fmt: skip
        started.append(process)
        return log

    try:
        log = start(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", HOST, "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        address = _told(log, r"Starting Spark master at (spark://\S+)", started)
        logs = [
            start(
                f"worker-{n}", "org.apache.spark.deploy.worker.Worker",
                "--host", HOST, "--port", "0", "--webui-port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(folder / f"work-{n}"), address,
            )
            for n in range(workers)
        ]  # fmt: skip
        for one in logs:
            _told(one, r"Successfully registered with master (\S+)", started)
        yield Cluster(address, tuple(started[1:]), folder)
    finally:
        for process in reversed(started):
            _end_session(process)


def _told(log: Path, pattern: str, processes: list[subprocess.Popen[bytes]]) -> str:
    """What a log says, when it says it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        match = re.search(pattern, text)
        if match is not None:
            return match.group(1)
        if any(process.poll() is not None for process in processes):
            raise AssertionError(f"a process of the cluster ended: {text}")
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started, which has its session of processes."""
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of a process: starting one takes seconds."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
