"""Commands of a live cluster, run as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.terminal import in_front

COMMAND = [sys.executable, "-m", "cubecast.cli.main"]


GENEROUS_S = 180.0
"""How long a command may take; on a busy machine one of them takes half a minute to begin."""


def cubecast(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=GENEROUS_S
    )


def answer(*arguments: str) -> str:
    """What a command prints that must succeed."""
    done = cubecast(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def background(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with in_front():
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


PATIENT = """
suspect_min = "60s"
suspect_max = "60s"
deaf_after = "60s"
"""
"""No node is taken for dead because the machine is busy."""


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of three processes, and where to join it."""
    path = tmp_path_factory.mktemp("seed") / "cubecast.toml"
    path.write_text(PATIENT, encoding="utf-8")
    options = ("--listen", "127.0.0.1:0", "--secret", "s3cret of twelve", "--config", str(path))
    with background("up", "-n", "3", *options) as up:
        lines = [read_line(up) for _ in range(4)]
        assert [line.split(" on ")[0] for line in lines[:3]] == ["node 0", "node 1", "node 2"]
        assert lines[3].startswith("3 nodes up")
        yield lines[0].rsplit(" ", 1)[1]
    assert up.returncode == 0


def at(address: str) -> tuple[str, ...]:
    return ("--at", address, "--secret", "s3cret of twelve")


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that failed says, and only that."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def addresses(seed: str) -> dict[int, str]:
    listed = json.loads(answer("nodes", "--json", *at(seed)))
    return {int(slot): address for slot, address in listed["nodes"].items()}


def wait_for_subscriber(topic: str, seed: str) -> list[int]:
    """The slots subscribed to a topic, once there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listed = json.loads(answer("topics", "--json", *at(seed)))["topics"]
        if listed.get(topic):
            return list(listed[topic])
    raise AssertionError(f"no node subscribed to {topic!r} in 60 s")
