"""``cubecast sim``: what it prints, what it writes, and how it refuses.

Whatever is asked, a refusal is one line on stderr and exit code 2, and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cubecast.cli import sim as module
from cubecast.cli.app import app
from cubecast.cli.output import summarise
from cubecast.sim.scenarios import SCENARIOS
from cubecast.trace import TraceError, check, read
from support.paths import ROOT

COMMAND = [sys.executable, "-m", "cubecast.cli.main"]
QUICK = ["question-answer", "--messages", "5", "--seeds", "1"]


def sim(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sim", *map(str, arguments)])


def printed(*arguments: object) -> str:
    result = sim(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


def refusal(*arguments: object) -> str:
    result = sim(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("cubecast sim: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("cubecast sim: ").rstrip("\n")


def as_json(*arguments: object) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(printed(*arguments, "--json"))
    return shown


# What is printed


@pytest.mark.parametrize("name", ["pb-lost-cause", "pb-lost-message", "pb-wrong-suspicion"])
def test_where_vcube_pb_fails_and_the_production_protocol_does_not(name: str) -> None:
    path = ROOT / "scenarios" / f"{name}.toml"
    text = printed(path, "--strict")
    assert "every run passed every checker\nas the file expects: nothing broken\n" in text
    result = sim(path, "--protocol", "vcube-pb", "--strict")
    assert result.exit_code == 1
    assert "as the file expects: " in result.stdout
    assert "quiescence broken" in result.stdout


def test_without_a_scenario_it_lists_what_there_is() -> None:
    text = printed()
    for name in [
        *SCENARIOS,
        "replay",
        "FILE.toml",
        "cubecast",
        "vcube-ps",
        "vcube-pb",
        "best-effort",
        "srpt",
    ]:
        assert name in text


def test_the_verdict_comes_before_the_table_which_has_units() -> None:
    text = printed(*QUICK)
    assert text.startswith("question-answer with cubecast: questions, each answered at once")
    assert text.index("every run passed every checker") < text.index("metric")
    rows = {line.split()[0]: line.split("│") for line in text.splitlines() if "│" in line}
    assert rows["latency_mean"][3].strip() == "u.t."
    assert rows["pub_messages"][3].strip() == "messages"


def test_json_has_exactly_this_shape() -> None:
    shown = as_json("question-answer", "--messages", 5, "--seeds", 3)
    assert list(shown) == ["scenario", "protocol", "params", "metrics"]
    assert (shown["scenario"], shown["protocol"]) == ("question-answer", "cubecast")
    assert (shown["params"]["messages"], shown["params"]["runs"]) == (5, 3)
    for value in shown["metrics"].values():
        assert list(value) == ["mean", "sd", "n"]
        assert value["n"] == 3
    assert shown["metrics"]["violations"] == {"mean": 0.0, "sd": 0.0, "n": 3}


def test_json_of_storms_shows_the_parameters_all_share() -> None:
    params = as_json("storm", "--seeds", 20)["params"]
    assert params["network"] == "uniform"
    assert (params["first_seed"], params["seeds"], params["runs"]) == (0, 20, 20)
    assert "loss" not in params


def test_json_without_checkers() -> None:
    metrics = as_json(*QUICK, "--no-check")["metrics"]
    assert "violations" not in metrics
    assert metrics["publications"]["mean"] == 10


def test_summaries() -> None:
    assert summarise([{"a": 1.0, "b": 5.0}, {"a": 3.0}]) == {
        "a": {"mean": 2.0, "sd": pytest.approx(2**0.5), "n": 2},
        "b": {"mean": 5.0, "sd": 0.0, "n": 1},
    }


def test_options_reach_the_run() -> None:
    options = {
        "nodes": 9, "subscribers": 0.5, "messages": 4, "span": 77, "network": "service", "low": 3,
        "high": 5, "loss": 0.01, "duplicate": 0.02, "reorder": 0.03, "spike": 0.04, "window": 2,
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    params = as_json("question-answer", "--seeds", 1, *words)["params"]
    assert {name: params[name] for name in options} == options
    assert as_json(*QUICK, "--hop", 7, "--queue-acks")["params"]["queue_acks"] is True


def test_strict_passes_a_clean_storm_and_fails_a_broken_one() -> None:
    assert sim("storm", "--seeds", 10, "--strict").exit_code == 0
    broken = ["storm", "--seeds", 10, "--protocol", "best-effort"]
    assert sim(*broken, "--strict").exit_code == 1
    assert sim(*broken).exit_code == 0
    assert sim(*broken, "--strict", "--json").exit_code == 1


def test_a_broken_run_says_how_to_run_it_again() -> None:
    wild = ["--nodes", 7, "--network", "uniform", "--low", 20, "--high", 180]
    text = printed("question-answer", "--protocol", "best-effort", *wild)
    again = next(line for line in text.splitlines() if line.startswith("  again: cubecast sim "))
    command = again.removeprefix("  again: cubecast sim ").split()
    assert "--nodes 7" in again
    assert command[-4:-1] == ["--seeds", "1", "--first-seed"]
    first_run = as_json(*command)["metrics"]
    assert first_run["violations"]["mean"] > 0
    violation = text[text.index("question-answer, seed") :].splitlines()[0]
    assert violation in printed(*command)


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_it_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(module, "console", Console(width=columns))
    for text in (printed(), printed(*QUICK)):
        assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("command", ["", "sim", "demo", "tree"])
def test_help_teaches_by_examples(command: str) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    text = result.stdout
    assert "cubecast" in text
    if command in ("", "sim", "tree"):
        assert text.count("  cubecast ") >= 4  # examples
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("name", ["plain", "odd [/bold] name"])
def test_a_scenario_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name.replace('/', '')}.toml"
    about = "about = 'brackets [/red] and [bold] are text'\n"
    path.write_text(
        about + '[topics]\nt = [0, 1]\n[[do]]\nat = 1\nnode = 0\nact = "publish"\n'
        "[expect]\ncubecast = []\nbest-effort = ['fifo']\n"
    )
    text = printed(path)
    assert "brackets [/red] and [bold] are text" in " ".join(text.split())
    assert "as the file expects: nothing broken" in text
    assert "expects fifo to be broken, but it was nothing" in " ".join(
        printed(path, "--protocol", "best-effort").split()
    )
    assert as_json(path)["params"]["runs"] == 1
    assert as_json(path, "--seeds", 3)["params"]["runs"] == 3


def test_replay_of_the_example() -> None:
    shown = as_json("replay", "--file", ROOT / "examples" / "talk.csv", "--scale", 3, "--seeds", 2)
    assert (shown["params"]["nodes"], shown["params"]["scale"]) == (7, 3)
    assert shown["metrics"]["publications"]["mean"] == 32


# Traces


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_trace_can_be_read_and_checked_again(tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"run{suffix}"
    printed("storm", "--nodes", 70, "--seeds", 1, "--first-seed", 4, "--trace", path)
    header, records = read(path)
    assert (header.scenario, header.protocol, header.seed) == ("storm", "cubecast", 4)
    assert check(records).ok
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_trace_with_messages(tmp_path: Path) -> None:
    printed(*QUICK, "--trace", tmp_path / "a.jsonl")
    printed(*QUICK, "--trace", tmp_path / "b.jsonl", "--trace-messages", "--no-check")
    kinds = [
        {record.kind for record in read(tmp_path / name)[1]} for name in ("a.jsonl", "b.jsonl")
    ]
    assert kinds[1] - kinds[0] == {"send", "receive"}


def test_traces_that_cannot_be_kept_are_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_run(*arguments: object, **options: object) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr(module, "run", no_run)
    (tmp_path / "folder.jsonl").mkdir()
    two = tmp_path / "two.csv"
    two.write_text("channel,line,second,user,reply_to\na,0,0,u,\nb,0,0,u,\n")
    good = tmp_path / "run.jsonl"
    assert "one run, not 5: add --seeds 1" in refusal("discussion", "--trace", good)
    assert "the file has 2" in refusal("replay", "--file", two, "--seeds", 1, "--trace", good)
    assert "ends in .jsonl" in refusal(*QUICK, "--trace", tmp_path / "run.txt")
    assert "no directory" in refusal(*QUICK, "--trace", tmp_path / "none" / "run.jsonl")
    assert "Is a directory" in refusal(*QUICK, "--trace", tmp_path / "folder.jsonl")
    assert "goes with --trace" in refusal(*QUICK, "--trace-messages")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.jsonl", "two.csv"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "run.jsonl: No space left on device"),
        (TraceError("run.jsonl", None, "pyarrow is missing"), "run.jsonl: pyarrow is missing"),
    ],
)
def test_a_trace_that_fails_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(module, "write", fail)
    assert reason in refusal(*QUICK, "--trace", tmp_path / "run.jsonl")


# Refusals


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("nope", "unknown scenario 'nope'; there are: single-publisher"),
        ("storm --protocol nope", "unknown protocol 'nope'; there are: cubecast"),
        ("churn --network nope", "unknown network 'nope'; there are: queue"),
        ("churn --nodes 0", "nodes must be 1 to 65536, not 0"),
        ("churn --nodes -1", "nodes must be 1 to 65536"),
        ("churn --nodes 999999999999999999999999", "nodes must be 1 to 65536"),
        ("churn --nodes x", "'--nodes'"),
        ("churn --nodes nan", "'--nodes'"),
        ("churn --nodes 1.5", "'--nodes'"),
        ("churn --subscribers nan", "subscribers is a share above 0"),
        ("churn --subscribers inf", "subscribers is a share above 0"),
        ("churn --subscribers 0", "subscribers is a share above 0"),
        ("churn --loss nan", "loss is a probability"),
        ("churn --loss 1", "loss is a probability"),
        ("churn --spike -1", "spike is a probability"),
        ("churn --messages 0", "messages must be 1 to"),
        ("churn --messages 99999999999", "messages must be 1 to"),
        ("churn --span 1" + "0" * 30, "span must be 0 to"),
        ("churn --low 50", "high (20) must not be below low (50)"),
        ("churn --window 0", "window must be 1 to"),
        ("churn --seeds 0", "'--seeds'"),
        ("churn --seeds 99999999999", "'--seeds'"),
        ("churn --first-seed -1", "'--first-seed'"),
        ("churn --first-seed 99999999999999999999", "'--first-seed'"),
        ("churn --nodez 4", "--nodez"),
        ("churn again", "again"),
        ("storm --nodes 1", "a storm needs at least 2 nodes"),
        ("storm --loss 0.5", "--loss means nothing to storm"),
        ("storm --messages 5", "--messages means nothing to storm"),
        ("discussion --changes 5", "takes --subscribers, --span, --wait"),
        ("single-publisher --protocol srpt --nodes 5", "power of two: 8, not 5"),
        ("churn --strict --no-check", "leave out --no-check"),
        ("churn --file x.csv", "--file goes with replay"),
        ("replay", "replay needs --file"),
        ("replay --file missing.csv", "cannot read missing.csv: No such file"),
        ("missing.toml", "cannot read missing.toml: No such file"),
    ],
)
def test_refusals(command: str, reason: str) -> None:
    assert reason in refusal(*command.split())


def test_refusals_of_files(tmp_path: Path) -> None:
    """Reading is tested with the readers; here, that nothing they find ends in a traceback."""
    bad = tmp_path / "bad.toml"
    bad.write_text("about = ")
    assert "bad.toml: Invalid value" in refusal(bad)
    story = tmp_path / "story.toml"
    story.write_text('about = "x"\n[topics]\nt = [0]\n[[do]]\nat = 1\nnode = 3\nact = "publish"\n')
    assert "there is no node 3 among 0 to 1" in refusal(story, "--nodes", 2)
    assert "cannot publish" in refusal(story, "--protocol", "vcube-ps")
    talk = tmp_path / "talk.csv"
    talk.write_text("second,user,line,reply_to\n1,u,0,\n2,v,1,0\n")
    assert "2 writers" in refusal("replay", "--file", talk, "--nodes", 1)
    talk.write_text("second,user,line,reply_to\n1,u,0,1\n2,v,1,\n")
    assert "not an earlier line" in refusal("replay", "--file", talk)


def test_no_memory_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(module, "run", no_memory)
    assert refusal(*QUICK) == "not enough memory for a run of this size"


def test_a_bug_is_not_dressed_up_as_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "run", broken)
    assert isinstance(sim(*QUICK).exception, ZeroDivisionError)


def test_an_unknown_command_takes_one_line() -> None:
    result = CliRunner().invoke(app, ["fly"])
    assert result.exit_code == 2
    assert result.stderr == "cubecast: No such command 'fly'. (see cubecast --help)\n"


# Interrupts


def interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["cubecast.cli.sim.run", "cubecast.trace.files.os.fsync"])
def test_an_interrupt_takes_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In the middle of a run, and in the middle of writing its trace."""
    monkeypatch.setattr(moment, interrupt)
    result = sim(*QUICK, "--trace", tmp_path / "run.jsonl")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "cubecast: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_real_interrupt_ends_the_process() -> None:
    program = (
        "import signal, cubecast.cli.sim as sim, cubecast.cli.main as main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sim.run = lambda *a, **k: signal.raise_signal(signal.SIGINT)\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "sim", "storm"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"cubecast: interrupted\n"


# What needs a process of its own


def test_the_reader_may_go_away() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*COMMAND, "sim", *QUICK], stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_a_full_disk_takes_one_line(options: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "sim", *QUICK, *options], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"cubecast: No space left on device\n")
