"""``cubecast demo``: what it counts, what it shows, and that it fits the terminal."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cubecast.cli import demo as module
from cubecast.cli.main import app

NARROW, WIDE = 80, 120


def demo(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, columns: int = NARROW
) -> tuple[int, list[str]]:
    monkeypatch.setattr(module, "console", Console(width=columns))
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.stderr == ""
    return result.exit_code, result.stdout.splitlines()


def counts(lines: list[str], protocol: str) -> list[int]:
    """deliveries, answers seen, before question, violations"""
    row = next(line for line in lines if line.startswith(f" {protocol} "))
    return [int(cell.replace(",", "")) for cell in row.split("│")[1:]]


@pytest.mark.parametrize("columns", [NARROW, WIDE])
def test_best_effort_inverts_and_cubecast_does_not(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    code, lines = demo(monkeypatch, "--seeds", "10", columns=columns)
    assert code == 0
    deliveries, answers, early, violations = counts(lines, "best-effort")
    assert (deliveries, answers) == (10 * 16 * 15, 10 * 15 * 16)
    assert early > 50
    assert violations >= early
    assert counts(lines, "cubecast") == [deliveries, answers, 0, 0]
    assert max(map(len, lines)) <= columns


def test_the_text_says_what_the_network_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(" ".join(demo(monkeypatch, "--seeds", "2")[1]).split())
    assert "A discussion group of 16" in text
    assert "up to 300 units of time after reading" in text
    assert "A hop takes 20 to 180 units" in text
    assert "2 discussions" in text


def test_screens_stand_side_by_side_and_mark_early_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, lines = demo(monkeypatch)
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
    _, lines = demo(monkeypatch, "--nodes", "5", "--seeds", "1")
    assert lines[-6:] == [
        "0  root",
        "├── 1  s=1  hop 1",
        "├── 2  s=2  hop 1",
        "│   └── 3  s=1  hop 2",
        "└── 4  s=3  hop 1",
        "5 members, dimension 3, height 2, 4 messages, 0 forwarders",
    ]


def test_it_says_so_if_nothing_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTING", {"network": "uniform", "low": 50, "high": 50})
    code, lines = demo(monkeypatch, "--nodes", "3", "--seeds", "1")
    assert code == 0
    assert counts(lines, "best-effort")[2] == 0
    assert "No discussion went wrong; try more with --seeds." in lines


@pytest.mark.parametrize("arguments", ["--nodes 2", "--nodes 257", "--nodes x", "--seeds 0", "now"])
def test_refusals_take_one_line(arguments: str) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments.split()])
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"cubecast demo: .*\(see cubecast demo --help\)\n", result.stderr)
