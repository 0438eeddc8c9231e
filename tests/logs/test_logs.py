"""Logging that blocks no caller: the queue, the counts, the forms, and what a peer cannot do."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cubecast import logs
from cubecast.logs import limit as limits
from cubecast.logs import sink as sinks
from cubecast.logs.escape import escaped, escaped_but_layout
from cubecast.logs.form import Json, Text
from cubecast.logs.limit import Limit, kind_of
from cubecast.logs.sink import MOST_LINES, MOST_PER_LINE, Sink
from cubecast.testing.operator_troubles import fill

GENEROUS_S = 60.0


# -- what a peer says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain words", "plain words"),
        ("größer, 漢字, 🙂", "größer, 漢字, 🙂"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("one\r\n2026-01-01 forged", r"one\r\n2026-01-01 forged"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\u2066x\u2069\u2028\ufeff", r"\u2066x\u2069\u2028\ufeff"),
        ("\udcff", r"\udcff"),
    ],
)
def test_no_character_of_a_peer_commands_a_terminal(said: str, shown: str) -> None:
    assert escaped(said) == shown


def test_a_payload_on_a_terminal_keeps_its_tabs_and_newlines() -> None:
    assert escaped_but_layout("a\tb\nc\x1bd\re") == "a\tb\nc\\x1bd\\re"


# -- forms ----------------------------------------------------------------------------------------


def record(message: str = "node %d", *values: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("cubecast", logging.WARNING, "place.py", 7, message, values, None)
    made.created = 1_000_000_000.5
    vars(made).update(extra)
    return made


def test_a_line_for_people_has_time_level_and_message() -> None:
    line = Text().format(record("closing %s: %s", "node 3", "bad\nline"))
    when, rest = line[:23], line[23:]
    assert len(when.split()) == 2
    assert when.endswith(",500")
    assert rest == r" WARNING closing node 3: bad\nline"


def test_a_line_for_machines_is_one_object_with_what_extra_gave() -> None:
    line = Json().format(record("node %d", 3, node=2, peer="10.0.0.3:7400\n"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2001-09-09T01:46:40.500Z",
        "level": "WARNING",
        "logger": "cubecast",
        "message": "node 3",
        "source": "place:7",
        "node": 2,
        "peer": r"10.0.0.3:7400\n",
    }


@pytest.mark.parametrize("form", [Text(), Json()])
@pytest.mark.parametrize("created", [-3e9, -1e30, 1e30])
def test_no_clock_stops_the_log(form: logging.Formatter, created: float) -> None:
    odd = record("node %d", 3)
    odd.created = created
    assert "node 3" in form.format(odd)


@pytest.mark.parametrize("form", [Text(), Json()])
def test_arguments_that_do_not_fit_are_told_and_raise_nothing(form: logging.Formatter) -> None:
    assert "node %d (its arguments do not fit" in form.format(record("node %d", "three"))


def test_a_traceback_begins_no_line_that_looks_like_another_record() -> None:
    try:
        raise ValueError("it said\n2026-01-01 00:00:00,000 ERROR forged")
    except ValueError:
        failed = record("failed")
        failed.exc_info = sys.exc_info()
    first, *rest = Text().format(failed).splitlines()
    assert first.endswith("failed")
    assert rest
    assert all(line.startswith("    ") for line in rest)
    assert "forged" in json.loads(Json().format(failed))["traceback"]


# -- how often ------------------------------------------------------------------------------------


def test_of_one_kind_a_few_go_out_and_the_rest_is_counted() -> None:
    limit = Limit(burst=2, every_s=10.0)
    kind, other = kind_of(record("refused %s", "a")), kind_of(record("closed %s", "a"))
    assert kind == kind_of(record("refused %s", "b"))
    assert [limit.admits(kind, now) for now in (0.0, 1.0, 2.0, 3.0)] == [True, True, False, False]
    limit.went_out(kind, "refused b")
    assert limit.admits(other, 4.0)
    assert limit.over(9.9) == []
    assert limit.over(10.0) == [(kind, 2, 10.0, "refused b")]
    assert limit.holding == 0
    assert limit.admits(kind, 10.0)


def test_kinds_that_never_come_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_KINDS", 4)
    limit = Limit(burst=1, every_s=1000.0)
    told = []
    for number in range(20):
        told += limit.over(float(number))
        kind = kind_of(record(f"number {number}"))
        assert limit.admits(kind, float(number))
        assert not limit.admits(kind, float(number))
    assert len(told) == 16
    assert limit.holding == 4


# -- the queue ------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def lines_from(reader: int, until: str) -> list[str]:
    """What comes, up to the line that ends with `until`."""
    said = b""
    while not said.endswith(f"{until}\n".encode()):
        said += os.read(reader, 65536)
    return said.lstrip(b"x").decode().splitlines()


def test_a_blocked_descriptor_blocks_no_caller_and_the_drops_are_counted(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    fill(writer)
    sink = Sink(writer)
    for number in range(MOST_LINES + 500):
        sink.put(f"line {number}\n")
    assert sink.dropped in (499, 500)  # the thread may have one in its hand
    dropped = sink.dropped
    os.read(reader, 4 * 65536)  # now there is room for all that is left
    sink.close(GENEROUS_S)
    os.write(writer, b"end\n")
    said = lines_from(reader, "end")
    assert f"cubecast: {dropped} lines were dropped: {sinks.FULL}" in said


def test_failing_writes_are_counted_and_told_when_there_is_room_again(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    full = threading.Event()
    full.set()
    tried = threading.Semaphore(0)
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if full.is_set():
            tried.release()
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(sinks.os, "write", write)
    sink = Sink(writer)
    for _ in range(3):
        sink.put("lost\n")
        assert tried.acquire(timeout=GENEROUS_S)
    while sink.dropped < 3:
        pass
    full.clear()
    sink.put("seen\n")
    assert lines_from(reader, "seen") == [
        "cubecast: 3 lines were dropped: No space left on device",
        "seen",
    ]
    sink.close(GENEROUS_S)


def test_half_a_line_is_ended_before_the_next_one(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    real = os.write
    outcomes: list[int | None] = [3, None]

    def write(descriptor: int, data: bytes) -> int:
        if outcomes:
            size = outcomes.pop(0)
            if size is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data[:size])
        return real(descriptor, data)

    monkeypatch.setattr(sinks.os, "write", write)
    sink = Sink(writer)
    sink.put("half a line\n")
    while not sink.dropped:
        pass
    sink.put("whole\n")
    assert lines_from(reader, "whole") == [
        "hal",
        "cubecast: 1 line was dropped: No space left on device",
        "whole",
    ]
    sink.close(GENEROUS_S)


def test_a_line_without_end_is_cut(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    sink = Sink(writer)
    sink.put("y" * (10 * MOST_PER_LINE) + "\n")
    (line,) = lines_from(reader, "(cut off)")
    assert len(line) < MOST_PER_LINE + 100
    sink.close(GENEROUS_S)


# -- the handler ----------------------------------------------------------------------------------


@pytest.fixture
def installed(pipe: tuple[int, int]) -> Iterator[tuple[int, logging.Logger, logs.Handler]]:
    """A log of its own: where it is read, its logger and its handler."""
    reader, writer = pipe
    handler = logs.install(writer, level="INFO", logger="cubecast.of_this_test", burst=2, every_s=1)
    logger = logging.getLogger("cubecast.of_this_test")
    logger.propagate = False
    yield reader, logger, handler
    logger.removeHandler(handler)
    handler.close()


def test_repeated_warnings_are_counted_even_if_no_more_come(
    installed: tuple[int, logging.Logger, logs.Handler],
) -> None:
    reader, logger, _ = installed
    for number in range(2000):
        logger.warning("refusing %s", number)
    first, second, counted = lines_from(reader, "refusing 1")[:2] + lines_from(reader, "refusing 1")
    assert first.endswith("WARNING refusing 0")
    assert second.endswith("WARNING refusing 1")
    assert "WARNING 1998 more like this in the last 1 s: refusing 1" in counted


def test_one_line_that_was_dropped_is_one_line() -> None:
    handler = logs.Handler(None, "text", burst=10, every_s=10.0)
    try:
        assert "1 line of this log was dropped: full" in handler._dropped(1, "full")
        assert "2 lines of this log were dropped: full" in handler._dropped(2, "full")
    finally:
        handler.close()


def test_the_node_is_named_in_json(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = logs.install(writer, format="json", logger="cubecast.of_this_test")
    handler.slot = lambda: 5
    logger = logging.getLogger("cubecast.of_this_test")
    logger.warning("end", extra={"peer": "10.0.0.3:7400"})
    said = json.loads(os.read(reader, 65536))
    assert (said["node"], said["peer"], said["message"]) == (5, "10.0.0.3:7400", "end")
    logger.removeHandler(handler)
    handler.close()


def test_a_form_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="text, json, not 'xml'"):
        logs.install(format="xml")


# -- stdout and stderr ----------------------------------------------------------------------------

GUARDED = """
import sys
from cubecast.logs import guard
guard()
print("out")
print("err", file=sys.stderr)
sys.stderr.write("no end of a line")
raise SystemExit(7)
"""


def run(program: str, *redirections: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", f'exec "$0" -c "$1" {" ".join(redirections)}', sys.executable, program]
    return subprocess.run(words, capture_output=True, text=True, timeout=GENEROUS_S, check=False)


def test_guarded_streams_say_what_they_are_given() -> None:
    done = run(GUARDED)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\nno end of a line")


@pytest.mark.parametrize("where", [">/dev/full 2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_guarded_streams_that_take_nothing_change_nothing(where: str) -> None:
    assert run(GUARDED, where).returncode == 7


def test_no_socket_gets_the_place_of_a_closed_stream() -> None:
    program = """
import os, socket
from cubecast.logs import guard
guard()
os._exit(socket.socket().fileno())
"""
    assert run(program, "<&- >&- 2>&-").returncode > 2
