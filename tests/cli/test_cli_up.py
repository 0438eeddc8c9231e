"""``cubecast up`` from outside: however it is stopped, no node is left behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from support.commands import COMMAND, background, cubecast, read_line
from support.terminal import ignoring, in_front

GENEROUS_S = 60


@contextmanager
def cluster(
    nodes: int, how: AbstractContextManager[None] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A cluster that is up, and where to reach it; all of it is gone at the end.

    It is started in front of a terminal, or as `how` says.
    """
    with in_front() if how is None else how:
        up = subprocess.Popen(
            [*COMMAND, "up", "-n", str(nodes), "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        assert up.stdout is not None
        greetings = [up.stdout.readline() for _ in range(nodes + 1)]
        assert greetings[-1].startswith(f"{nodes} node")
        yield up, greetings[0].rsplit(" ", 1)[1].strip()
    finally:
        left = children_of(up.pid)
        up.kill()
        up.communicate()
        for child in left:
            os.kill(child, signal.SIGKILL)


def children_of(parent: int) -> list[int]:
    """The processes it has started, in that order."""
    return sorted(child for child, its_parent in processes() if its_parent == parent)


def processes() -> list[tuple[int, int]]:
    """All processes with their parents; a bare Linux has /proc and no `ps`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone by now
            fields = status.read_text().rpartition(")")[2].split()
            found.append((int(status.parent.name), int(fields[1])))
    if found:
        return found
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True, timeout=60
    )
    return [(int(pid), int(ppid)) for pid, ppid in map(str.split, listed.stdout.splitlines())]


def members(seed: str) -> list[str]:
    """The slots of a cluster, as its first node says."""
    return list(json.loads(cubecast("nodes", "--json", "--at", seed).stdout)["nodes"])


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_stops_it_stops_the_nodes(number: signal.Signals) -> None:
    with cluster(2) as (up, _):
        nodes = children_of(up.pid)
        assert len(nodes) == 2
        up.send_signal(number)
        out, err = up.communicate(timeout=GENEROUS_S)
        assert (up.returncode, out, err) == (0, "stopping\n", "")
        assert all(map(gone, nodes))


def test_a_node_that_dies_is_named_and_the_others_go_on() -> None:
    """Until all have died, or are stopped."""
    with cluster(3) as (up, seed):
        nodes = children_of(up.pid)
        os.kill(nodes[1], signal.SIGKILL)
        deadline = time.monotonic() + GENEROUS_S
        while len(members(seed)) > 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert sorted(members(seed)) == ["0", "2"]
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=GENEROUS_S)
        assert up.returncode == 0
        assert (
            "cubecast up: node 1 ended by itself, killed by SIGKILL; the others go on"
            in err.splitlines()
        )
        assert all(map(gone, nodes))


def test_a_signal_while_it_starts_leaves_no_node() -> None:
    up = subprocess.Popen(
        [*COMMAND, "up", "-n", "50", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    assert up.stdout.readline().startswith("node 0 on ")
    nodes = children_of(up.pid)
    up.send_signal(signal.SIGTERM)
    out, _ = up.communicate(timeout=GENEROUS_S)
    assert "50 nodes up" not in out
    assert up.returncode == 0
    assert all(map(gone, nodes))
    assert children_of(up.pid) == []


def test_nodes_may_say_more_than_a_pipe_holds() -> None:
    """Comings and goings fill the pipe of a node that is not read; then it stops."""
    with cluster(1) as (up, seed):
        (node,) = children_of(up.pid)
        stdout = Path(f"/proc/{node}/fd/1")
        if not stdout.exists():
            pytest.skip("needs /proc to write where a node writes")
        descriptor = os.open(stdout, os.O_WRONLY | os.O_NONBLOCK)
        try:
            for _ in range(100):
                _, ready, _ = select.select([], [descriptor], [], GENEROUS_S)
                assert ready, "the output of the node is not read"
                os.write(descriptor, b"x" * 4095 + b"\n")
        finally:
            os.close(descriptor)
        listed = json.loads(cubecast("nodes", "--json", "--at", seed).stdout)
        assert listed["nodes"] == {"0": seed}


def test_nohup_lets_it_outlive_its_terminal() -> None:
    """As ``nohup cubecast up &`` in a script: neither its Ctrl-C nor its end stops the nodes."""
    with cluster(1, ignoring(signal.SIGHUP, signal.SIGINT)) as (up, seed):
        up.send_signal(signal.SIGHUP)
        up.send_signal(signal.SIGINT)
        assert members(seed) == ["0"]
        assert up.poll() is None
        up.send_signal(signal.SIGTERM)
        out, _ = up.communicate(timeout=GENEROUS_S)
        assert (up.returncode, out) == (0, "stopping\n")


def test_ctrl_c_stops_it_in_front_of_a_terminal_that_it_may_outlive() -> None:
    with cluster(1, ignoring(signal.SIGHUP)) as (up, _):
        up.send_signal(signal.SIGINT)
        out, _ = up.communicate(timeout=GENEROUS_S)
        assert (up.returncode, out) == (0, "stopping\n")


def test_ctrl_c_stops_it_in_the_background_of_a_script() -> None:
    """The script's shell has it ignore Ctrl-C; no node is left behind all the same."""
    with cluster(1, ignoring(signal.SIGINT)) as (up, _):
        nodes = children_of(up.pid)
        up.send_signal(signal.SIGINT)
        out, err = up.communicate(timeout=GENEROUS_S)
        assert (up.returncode, out, err) == (0, "stopping\n", "")
        assert all(map(gone, nodes))


def test_sighup_does_not_end_a_node_and_sigterm_does() -> None:
    with background("node", "--listen", "127.0.0.1:0") as node:
        greeting = read_line(node)
        assert greeting.startswith("node 0 on ")
        node.send_signal(signal.SIGHUP)
        assert members(greeting.rsplit(" ", 1)[1]) == ["0"]
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=GENEROUS_S) == 0
        assert read_line(node) == "node 0 leaves"
