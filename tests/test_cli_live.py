"""The commands of a live cluster, as a newcomer types them in two terminals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "cubecast.cli.main"]


def cubecast(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=60
    )


@contextmanager
def background(*arguments: str) -> Iterator[subprocess.Popen[str]]:
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


@pytest.fixture(scope="module")
def seed() -> Iterator[str]:
    """A cluster of three processes, and where to join it."""
    with background("up", "-n", "3", "--listen", "127.0.0.1:0", "--secret", "s3cret") as up:
        lines = [read_line(up) for _ in range(4)]
        assert [line.split(" on ")[0] for line in lines[:3]] == ["node 0", "node 1", "node 2"]
        assert lines[3].startswith("3 nodes up")
        yield lines[0].rsplit(" ", 1)[1]
    assert up.returncode == 0


def test_two_terminals_talk(seed: str) -> None:
    options = ("--join", seed, "--secret", "s3cret")
    with background("sub", "chat/room1", "--json", "--count", "3", *options) as sub:
        # `pub` returns when every subscriber has consumed; until `sub` has joined that is nobody,
        # so publish until the first message is seen.
        while sub.poll() is None:
            assert cubecast("pub", "chat/room1", *options, stdin="one\ntwo\n").returncode == 0
        assert sub.stdout is not None
        messages = [json.loads(line) for line in sub.stdout]
    assert len(messages) == 3
    assert {message["payload"] for message in messages} == {"one", "two"}
    assert messages[0]["seq"] == 0


def test_nodes_are_listed(seed: str) -> None:
    listed = json.loads(cubecast("nodes", "--json", "--join", seed, "--secret", "s3cret").stdout)
    assert set(listed["nodes"]) >= {"0", "1", "2"}
    assert listed["nodes"]["0"] == seed


def test_a_wrong_secret_is_refused_in_one_line(seed: str) -> None:
    refused = cubecast("pub", "chat", "hello", "--join", seed, "--secret", "wrong")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "secret" in refused.stderr


def test_nobody_listens_there() -> None:
    refused = cubecast("sub", "chat", "--join", "127.0.0.1:1")
    assert refused.returncode == 2
    assert refused.stderr.startswith("cubecast sub: cannot join the cluster at 127.0.0.1:1")


def test_a_cluster_may_be_set_up_by_a_file(tmp_path: Path) -> None:
    """Its secret is read by every process; `join` is for `node`, while `up` begins a cluster."""
    (tmp_path / "hidden").write_text("from a file", encoding="utf-8")
    path = tmp_path / "cubecast.toml"
    path.write_text(
        'preset = "lan"\nlisten = "0.0.0.0:0"\nadvertise = "127.0.0.1"\n'
        'secret_file = "hidden"\njoin = "127.0.0.1:1"\n',
        encoding="utf-8",
    )
    with background("up", "-n", "2", "--config", str(path)) as up:
        addresses = [read_line(up).rsplit(" ", 1)[1] for _ in range(2)]
        assert read_line(up).startswith("2 nodes up")
        joined = ("--join", addresses[1], "--secret", "from a file")
        listed = json.loads(cubecast("nodes", "--json", *joined).stdout)
        assert [listed["nodes"][slot] for slot in "01"] == addresses
        with background("node", "--config", str(path), "--join", addresses[0]) as node:
            assert read_line(node).startswith("node 2 on 127.0.0.1:")


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "t", "m", "--rate", "-1"),
        ("pub", "t", "m", "--file", "nowhere"),
        ("sub", "t", "--join", "host:port"),
        ("up", "--listen", "127.0.0.1:port"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: tuple[str, ...]) -> None:
    refused = cubecast(*arguments)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""
