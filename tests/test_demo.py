"""``cubecast demo``: what it counts, what it shows, and that it fits the terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from rich.console import Console
from terminal import in_front
from typer.testing import CliRunner

from cubecast.cli import demo as module
from cubecast.cli import demo_live, demo_simulated
from cubecast.cli.app import app
from cubecast.cli.demo_live import DemoFailed, as_it_arrived, crew, tree_taken
from cubecast.cli.demo_worker import LIFE_S, Join, Ready
from cubecast.topology import tree
from cubecast.trace import Record, answers_before_questions, check, merge, read

NARROW, WIDE = 80, 120


def demo(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, columns: int = NARROW
) -> tuple[int, list[str]]:
    monkeypatch.setattr(module, "console", Console(width=columns))
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.stderr == ""
    return result.exit_code, result.stdout.splitlines()


def simulated(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, columns: int = NARROW
) -> tuple[int, list[str]]:
    return demo(monkeypatch, "--simulated", *arguments, columns=columns)


def counts(lines: list[str], protocol: str) -> list[int]:
    """deliveries, answers seen, before question, violations"""
    row = next(line for line in lines if line.startswith(f" {protocol} "))
    return [int(cell.replace(",", "")) for cell in row.split("│")[1:]]


# -- simulated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [NARROW, WIDE])
def test_best_effort_inverts_and_cubecast_does_not(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    code, lines = simulated(monkeypatch, "--seeds", "10", columns=columns)
    assert code == 0
    deliveries, answers, early, violations = counts(lines, "best-effort")
    assert (deliveries, answers) == (10 * 16 * 15, 10 * 15 * 16)
    assert early > 50
    assert violations >= early
    assert counts(lines, "cubecast") == [deliveries, answers, 0, 0]
    assert max(map(len, lines)) <= columns


def test_the_text_says_what_the_network_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(" ".join(simulated(monkeypatch, "--seeds", "2")[1]).split())
    assert "A discussion group of 16" in text
    assert "up to 300 units of time after reading" in text
    assert "A hop takes 20 to 180 units" in text
    assert "2 discussions" in text


def test_screens_stand_side_by_side_and_mark_early_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, lines = simulated(monkeypatch)
    title = next(line for line in lines if line.startswith("╭"))
    assert re.fullmatch(r"╭─+ best-effort ─+╮ ╭─+ cubecast ─+╮ *", title)
    start = lines.index(title)
    left = [line.split("│")[1] for line in lines[start + 1 : start + 13]]
    right = [line.split("│")[3] for line in lines[start + 1 : start + 13]]
    asked = next(index for index, line in enumerate(left) if "asks" in line)
    assert asked > 0
    assert all("< early" in line for line in left[:asked])
    assert "asks" in right[0]
    assert not any("early" in line for line in right)


def test_the_tree_is_that_of_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = simulated(monkeypatch, "--nodes", "5", "--seeds", "1")
    assert lines[-6:] == [
        "0  root",
        "├── 1  s=1  hop 1",
        "├── 2  s=2  hop 1",
        "│   └── 3  s=1  hop 2",
        "└── 4  s=3  hop 1",
        "5 members, dimension 3, height 2, 4 messages, 0 forwarders",
    ]


def test_it_says_so_if_nothing_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_simulated, "SETTING", {"network": "uniform", "low": 50, "high": 50})
    code, lines = simulated(monkeypatch, "--nodes", "3", "--seeds", "1")
    assert code == 0
    assert counts(lines, "best-effort")[2] == 0
    assert "No discussion went wrong; try more with --seeds." in lines


# -- live ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [NARROW, WIDE])
def test_live_nodes_keep_the_order_that_arrival_breaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines = demo(monkeypatch, "--nodes", "5", "--rounds", "4", columns=columns)
    assert code == 0
    deliveries, answers, early, violations = counts(lines, "best-effort")
    assert (deliveries, answers) == (4 * 5 * 5, 4 * 4 * 5)
    assert 0 < early <= violations
    assert counts(lines, "cubecast") == [deliveries, answers, 0, 0]
    assert max(map(len, lines)) <= columns
    assert "5 members, dimension 3, height 2, 4 messages, 0 forwarders" in lines
    assert any("< early" in line.split("│")[1] for line in lines if line.startswith("│ #"))
    assert "the trace is in demo-trace.jsonl: the checkers found nothing wrong." in lines[-1]

    header, records = read(tmp_path / "demo-trace.jsonl")
    assert (header.time_unit, header.params["nodes"]) == ("us", 5)
    assert check(records).ok
    assert answers_before_questions(records)[:2] == (answers, 0)
    assert answers_before_questions(as_it_arrived(list(records)))[:2] == (answers, early)


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def processes_with(marker: str) -> list[str]:
    """The processes that have `marker` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue  # it has just ended, or is not ours
    return found


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_no_process_is_left_behind(how: signal.Signals, tmp_path: Path) -> None:
    marker = f"cubecast-demo-{uuid4()}"
    with in_front():
        process = subprocess.Popen(
            [sys.executable, "-m", "cubecast.cli.main", "demo", "--rounds", "20"],
            cwd=tmp_path,
            env={**os.environ, "MARKER": marker},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    wait_until(lambda: len(processes_with(marker)) == 9)
    process.send_signal(how)
    _, complaint = process.communicate(timeout=30)
    if how == signal.SIGINT:
        assert (process.returncode, complaint) == (130, "cubecast: interrupted\n")
    wait_until(lambda: not processes_with(marker))
    assert not list(tmp_path.iterdir())


def wait_until(condition: Callable[[], bool]) -> None:
    """Bounded by less than a worker lives if nobody ends it."""
    deadline = time.monotonic() + LIFE_S / 2
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_conversation_that_takes_too_long_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_live, "DEADLINE_S", 0.0)
    result = CliRunner().invoke(app, ["demo", "--nodes", "3"])
    assert result.exit_code == 1
    assert result.stderr == "cubecast demo: not at an end after 0 s\n"
    assert not list(tmp_path.iterdir())


def test_a_member_that_dies_is_noticed() -> None:
    deadline = time.monotonic() + 30
    with crew(1) as [worker]:
        worker.order(Join(None))
        assert worker.report(Ready, deadline).slot == 0
        worker.process.kill()
        with pytest.raises(DemoFailed, match="a member ended by itself: without a word"):
            worker.report(Ready, deadline)
    with crew(1) as [worker]:
        worker.order(Join("127.0.0.1:1"))
        with pytest.raises(DemoFailed, match="cannot join the cluster"):
            worker.report(Ready, deadline)


def test_a_member_ends_when_nobody_gives_orders() -> None:
    with crew(1) as [worker]:
        worker.order(Join(None))
        worker.report(Ready, time.monotonic() + 30)
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(timeout=30) == 1


def test_the_tree_is_read_from_who_had_it_from_whom() -> None:
    expected = tree(2, 0b10111101, 3)
    trace = [Record("publish", 0, 2, "t", "q")]
    trace += [
        Record("receive", 1, child, "t", "q", peer=parent) for parent, child in expected.edges
    ]
    trace.append(Record("receive", 2, 5, "t", "q", peer=0))  # a copy
    assert tree_taken(trace, [0, 2, 3, 4, 5, 7]) == expected


def test_best_effort_shows_the_first_copy_of_each_message() -> None:
    trace = [
        Record("join", 0, 0, "t"),
        Record("publish", 1, 1, "t", "q", 1, 0),
        Record("deliver", 1, 1, "t", "q", 1, 0),
        Record("receive", 2, 0, "t", "q", 1, 0, peer=1, message="pub"),
        Record("receive", 3, 0, "t", "q", 1, 0, peer=2, message="pub"),
        Record("deliver", 9, 0, "t", "q", 1, 0),
    ]
    assert as_it_arrived(trace) == [*trace[:3], Record("deliver", 2, 0, "t", "q", 1, 0)]


def test_traces_are_merged_with_causes_first_whatever_the_clocks_say() -> None:
    asker = [
        Record("publish", 100, 0, "t", "q"),
        Record("deliver", 100, 0, "t", "q"),
        Record("deliver", 101, 0, "t", "a"),
    ]
    answerer = [
        Record("join", 1, 1, "t"),
        Record("deliver", 2, 1, "t", "q"),
        Record("publish", 3, 1, "t", "a"),
    ]
    merged = list(merge([asker, answerer]))
    assert merged == [answerer[0], asker[0], *answerer[1:], *asker[1:]]
    nobody_published_it = [Record("deliver", 5, 2, "t", "x"), Record("leave", 6, 2, "t")]
    assert list(merge([nobody_published_it])) == nobody_published_it


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["--nodes 2", "--nodes 257", "--nodes x", "--seeds 0", "now"])
def test_refusals_take_one_line(arguments: str) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments.split()])
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"cubecast demo: .*\(see cubecast demo --help\)\n", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--seeds 3", "--seeds needs --simulated"),
        ("--simulated --rounds 3", "--rounds and --trace are for live nodes"),
        ("--simulated --trace x.jsonl", "--rounds and --trace are for live nodes"),
        ("--nodes 17", "at most 16 live nodes"),
        ("--trace trace.txt", "cannot leave a trace at trace.txt"),
        ("--trace nowhere/trace.jsonl", "cannot leave a trace at nowhere/trace.jsonl"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: str, complaint: str) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments.split()])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"cubecast demo: {complaint}")
    assert result.stderr.count("\n") == 1
