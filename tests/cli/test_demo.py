"""``cubecast demo``: what it counts, what it shows, and that it fits the terminal."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cubecast.cli import demo as module
from cubecast.cli import demo_live, demo_simulated
from cubecast.cli.app import app
from cubecast.cli.demo_chat import QUESTIONS, TALK, answer, in_words, share_in_words
from cubecast.cli.demo_live import DemoFailed, as_it_arrived, crew, tree_taken
from cubecast.cli.demo_screens import EARLY, Screens, command_name, show_screens
from cubecast.cli.demo_worker import LIFE_S, DemoJoin, DemoReady
from cubecast.topology import tree
from cubecast.trace import Record, answers_before_questions, check, merge, read
from support.terminal import in_front

NARROW, USUAL, WIDE = 60, 80, 100


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


def prose(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def counts(lines: list[str], protocol: str) -> list[int]:
    """deliveries, answers seen, before question, violations"""
    told = re.search(
        rf"With {protocol} [^(]* \(([\d,]+) of ([\d,]+)\)\. The checkers count (\S+) breach(?:es)? "
        r"of order in ([\d,]+) messages\.",
        prose(lines),
    )
    assert told is not None
    words = {in_words(number): number for number in range(13)}
    early, answers, violations, deliveries = (one.replace(",", "") for one in told.groups())
    return [int(deliveries), int(answers), int(early), int(words.get(violations, violations))]


def screens(lines: list[str]) -> list[list[str]]:
    """What stands in each panel, best effort first, whether side by side or not."""
    first = next(line for line in lines if line.startswith("╭"))
    inside = [line for line in lines if line.startswith("│") and line.rstrip().endswith("│")]
    beside = [[cell.strip() for cell in line.strip(" │").split("│")] for line in inside]
    if first.count("╭") == 2:
        return [[row[0] for row in beside], [row[-1] for row in beside]]
    half = len(inside) // 2
    return [[row[0] for row in beside[:half]], [row[0] for row in beside[half:]]]


# -- simulated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [NARROW, USUAL, WIDE])
def test_best_effort_inverts_and_cubecast_does_not(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    code, lines = simulated(monkeypatch, "--seeds", "10", columns=columns)
    assert code == 0
    deliveries, answers, early, violations = counts(lines, "best effort")
    assert (deliveries, answers) == (10 * 16 * 15, 10 * 15 * 16)
    assert early > 50
    assert violations >= early
    assert counts(lines, "cubecast") == [deliveries, answers, 0, 0]
    assert max(map(len, lines)) <= columns


def test_the_text_says_what_the_network_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = prose(simulated(monkeypatch, "--seeds", "2")[1])
    assert "Sixteen friends chat, simulated." in text
    assert "up to 300 units of time after reading" in text
    assert "A hop takes 20 to 180 units" in text
    assert "The same two chats" in text


@pytest.mark.parametrize("columns", [NARROW, USUAL])
def test_an_answer_stands_above_its_question_and_with_cubecast_below(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    _, lines = simulated(monkeypatch, columns=columns)
    titles = [line for line in lines if line.startswith("╭")]
    assert len(titles) == (2 if columns == NARROW else 1)
    assert re.search(r"─ \w+, best effort ─", titles[0])
    best, ours = screens(lines)
    asked = next(number for number, line in enumerate(best) if line.endswith(QUESTIONS[0]))
    assert asked > 0
    assert best[asked - 1].endswith("< early")
    assert ours[0].endswith(QUESTIONS[0])
    assert not any("early" in line for line in ours)


def test_the_tree_names_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = simulated(monkeypatch, "--nodes", "5", "--seeds", "1")
    start = lines.index("Ann")
    drawn = ["Ann", "├── Bob", "├── Cem", "│   └── Dee", "└── Eli"]
    assert [line.rstrip() for line in lines[start : start + 5]] == drawn
    assert "How Ann's question travels: four messages, at most two hops" in prose(lines)


def test_it_says_so_if_nothing_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_simulated, "SETTING", {"network": "uniform", "low": 50, "high": 50})
    code, lines = simulated(monkeypatch, "--nodes", "3", "--seeds", "1")
    assert code == 0
    assert counts(lines, "best effort")[2] == 0
    assert "No chat went wrong; try more with --seeds." in lines


def test_members_beyond_the_names_have_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = simulated(monkeypatch, "--nodes", "100", "--seeds", "1", columns=NARROW)
    assert code == 0
    assert any("No. 99" in line for line in lines)
    assert max(map(len, lines)) <= NARROW


# -- words -----------------------------------------------------------------------------------------


def test_numbers_below_a_hundred_are_words() -> None:
    numbers = {0: "no", 1: "one", 12: "twelve", 20: "twenty", 21: "twenty-one", 99: "ninety-nine"}
    assert {number: in_words(number) for number in numbers} == numbers
    assert in_words(1234) == "1,234"


def test_shares_are_told_in_words() -> None:
    assert share_in_words(21, 336) == "about one answer in sixteen stood above its question"
    assert share_in_words(1, 300) == "about one answer in 300 stood above its question"
    assert share_in_words(9, 10).startswith("more than half of the answers stood above their")
    assert share_in_words(0, 10) == "no answer stood above its question"


def test_every_text_fits_two_screens_in_80_columns() -> None:
    texts = [*TALK, *(text for answers in TALK.values() for text in answers)]
    assert max(map(len, texts)) + len("Ann: ") + len(EARLY) <= 80 // 2 - len("│  │ ")
    for number, texts_of in enumerate(TALK.values()):
        for asker in range(8):
            others = [member for member in range(8) if member != asker]
            said = {answer(number, asker, member) for member in others}
            assert said == set(texts_of)


# -- live ------------------------------------------------------------------------------------------


COMMANDS = [
    "  cubecast up -n 3",
    "  cubecast sub 'chat/#'",
    '  cubecast pub chat/room1 "is anybody there?"',
]


@pytest.mark.parametrize("columns", [NARROW, WIDE])
def test_live_nodes_keep_the_order_that_arrival_breaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines = demo(monkeypatch, "--nodes", "5", "--rounds", "4", columns=columns)
    assert code == 0
    deliveries, answers, early, violations = counts(lines, "best effort")
    assert (deliveries, answers) == (4 * 5 * 5, 4 * 4 * 5)
    assert 0 < early <= violations
    assert counts(lines, "cubecast") == [deliveries, answers, 0, 0]
    assert max(map(len, lines)) <= columns
    text = prose(lines)
    assert "Five friends chat. Each is a real node" in text
    assert "They ask four questions" in text
    assert "question travels: four messages, at most two hops, no broker." in text
    best, ours = screens(lines)
    assert any("< early" in line for line in best)
    assert not any("< early" in line for line in ours)
    assert "The trace is in demo-trace.jsonl: the checkers found nothing wrong." in text
    assert lines[-3:] == COMMANDS

    header, records = read(tmp_path / "demo-trace.jsonl")
    assert (header.time_unit, header.params["nodes"]) == ("us", 5)
    assert check(records).ok
    assert answers_before_questions(records)[:2] == (answers, 0)
    assert answers_before_questions(as_it_arrived(list(records)))[:2] == (answers, early)


TALKED = [
    Record("publish", 0, 0, "t", "q", 0, 0),
    Record("publish", 1, 1, "t", "a", 1, 0, reply_to=("q",)),
    Record("deliver", 2, 2, "t", "a", 1, 0),
    Record("deliver", 3, 2, "t", "q", 0, 0),
]


def shown(**how: Any) -> str:
    screens = Screens(TALKED)
    window = screens.find_early()
    assert window is not None
    stream = io.StringIO()
    show_screens(Console(file=stream, width=NARROW, **how), {"best effort": screens}, window)
    return stream.getvalue()


def test_an_early_answer_is_red_in_a_terminal() -> None:
    out = shown(force_terminal=True, color_system="standard", legacy_windows=False, _environ={})
    assert "\x1b[1;31mBob: At the harbour. < early\x1b[0m" in out
    assert "is red." in out


def test_no_colour_codes_where_stdout_is_no_terminal() -> None:
    assert "\x1b" not in shown(_environ={})
    assert "is marked." in shown(_environ={})
    done = subprocess.run(
        [sys.executable, "-m", "cubecast.cli.main", "demo", "--simulated", "--seeds", "2"],
        env={**os.environ, "COLUMNS": "60"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-3:] == COMMANDS
    assert max(map(len, done.stdout.splitlines())) <= 60


def test_the_commands_to_try_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` runs .venv/bin/cubecast, which need not be on the path."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/cubecast", "demo"])
    monkeypatch.setenv("PATH", "")
    assert command_name() == ".venv/bin/cubecast"
    monkeypatch.setattr(sys, "argv", ["/some/where/__main__.py"])
    assert command_name() == "cubecast"


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
    """Wait for less time than a worker lives if it is not ended."""
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
        worker.order(DemoJoin(None))
        assert worker.report(DemoReady, deadline).slot == 0
        worker.kill()
        with pytest.raises(DemoFailed, match="a member ended by itself: without a word"):
            worker.report(DemoReady, deadline)
    with crew(1) as [worker]:
        worker.order(DemoJoin("127.0.0.1:1"))
        with pytest.raises(DemoFailed, match="cannot join the cluster"):
            worker.report(DemoReady, deadline)


def test_a_worker_ends_when_its_orders_end() -> None:
    with crew(1) as [worker]:
        worker.order(DemoJoin(None))
        worker.report(DemoReady, time.monotonic() + 30)
        worker.hang_up()
        assert worker.wait(30) == 1


def test_the_tree_is_read_from_the_receive_records() -> None:
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
