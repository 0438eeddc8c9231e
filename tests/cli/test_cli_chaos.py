"""``cubecast sim chaos``: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cubecast.chaos.schedule import read_schedule
from cubecast.cli.app import app
from cubecast.trace import check, read

FLOOD = ("--protocol", "flood")


def chaos(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sim", "chaos", *map(str, arguments)])


def refusal(*arguments: object) -> str:
    result = chaos(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_many_schedules_are_added_up() -> None:
    result = chaos("--seeds", 10, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "10 schedules" in result.stdout
    assert "recovery_time" in result.stdout
    assert "branches taken" in result.stdout
    assert "every schedule kept every property" in result.stdout


def test_json_has_the_metrics() -> None:
    result = chaos("--seeds", 6, "--jobs", 1, "--json")
    found = json.loads(result.stdout)
    assert (found["scenario"], found["protocol"], found["params"]["runs"]) == (
        "chaos",
        "cubecast",
        6,
    )
    wanted = {
        "violations", "gaps", "discards", "crashes", "partitions", "pauses", "restarts",
        "one_way", "exclusions", "recovery_time",
    }  # fmt: skip
    assert wanted <= found["metrics"].keys()
    assert found["metrics"]["violations"]["mean"] == 0


def test_a_failure_ends_with_1_and_says_how_to_see_it_again() -> None:
    result = chaos("--seeds", 3, *FLOOD, "--jobs", 1)
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if "--replay" in line)
    again = line.partition("cubecast sim chaos ")[2].split()
    replayed = chaos(*again)
    assert replayed.exit_code == 1
    assert "BROKEN" in replayed.stdout


def test_a_run_is_told_as_a_story() -> None:
    result = chaos("--replay", 2)
    assert result.exit_code == 0, result.output
    assert "view 1: " in result.stdout
    assert "crash of node" in result.stdout
    assert "the bound is" in result.stdout


def test_a_failing_run_is_cut_down_saved_and_run_again(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    result = chaos("--replay", 9, *FLOOD, "--shrink", "--save", path)
    assert result.exit_code == 1
    assert "cut down to" in result.stdout
    assert len(read_schedule(path).entries) < 10
    again = chaos("--schedule", path, *FLOOD, "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["params"]["failures"]


def test_a_trace_of_the_run_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert chaos("--replay", 2, "--trace", path).exit_code == 0
    header, records = read(path)
    assert (header.scenario, header.protocol, header.seed) == ("chaos", "cubecast", 2)
    kinds = {record.kind for record in records}
    assert {"crash", "restart", "view"} <= kinds
    assert check(records).ok


def test_parts_are_added_up_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    options = ("--counts", path, "--jobs", 1, "--json", "--nodes", 3)
    chaos("--seeds", 5, *options)
    found = json.loads(chaos("--first", 5, "--seeds", 5, *options).stdout)
    assert found["params"]["runs"] == 10


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "no.toml"
    assert "choose one" in refusal("--replay", 1, "--schedule", file)
    assert "go with many runs" in refusal("--replay", 1, "--seeds", 3)
    assert "go with --replay" in refusal("--shrink")
    assert "cannot read" in refusal("--schedule", file)
    assert "cannot crash" in refusal("--protocol", "srpt")
    assert "name of a trace ends in" in refusal("--replay", 1, "--trace", tmp_path / "x.txt")
    assert "cannot write" in refusal("--replay", 1, "--save", tmp_path / "no" / "x.toml")


def test_sim_itself_is_what_it_was() -> None:
    result = CliRunner().invoke(app, ["sim"])
    assert result.exit_code == 0
    assert "chaos" in result.stdout
