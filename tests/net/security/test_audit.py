"""The log of refusals: one JSON object a line, bounded, and never in the way of a node."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cubecast.errors import ConfigError
from cubecast.net.security import audit
from cubecast.net.security.audit import Audit, LineWriter
from support.files import lines_of
from support.live import PATIENCE_S, live


@live
async def test_refusals_of_a_kind_are_one_line_and_a_count(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    book = Audit(str(path), lambda: "0 at here")
    for _ in range(1000):
        book.denied("client:alice", "publish", "a\n\x1b", "no rule allows it", "127.0.0.1:5")
    book.denied("client:alice", "subscribe", "a", "no rule allows it")
    book.refused("10.0.0.1:5", "the secret is not the same")
    book.refused("10.0.0.1:6", "the secret is not the same")
    book.close()
    lines = lines_of(path)
    assert [(line["what"], line["count"]) for line in lines] == [
        ("publish", 1), ("subscribe", 1), ("connect", 1), ("publish", 999), ("connect", 1),
    ]  # fmt: skip
    assert lines[0]["who"] == "client:alice"
    assert lines[0]["topic"] == "a\n\x1b"
    assert lines[0]["node"] == "0 at here"
    assert lines[2]["from"] == "10.0.0.1:5"
    assert b"\x1b" not in path.read_bytes()
    assert book.count == 1003
    assert path.stat().st_mode & 0o777 == 0o600


@live
async def test_kinds_beyond_the_bound_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_KINDS", 3)
    path = tmp_path / "audit.jsonl"
    book = Audit(str(path), lambda: "")
    for number in range(10):
        book.denied("client:", "publish", str(number), "no")
    book.close()
    assert [(line["who"], line["count"]) for line in lines_of(path)] == [
        ("client:", 1), ("client:", 1), ("client:", 1), ("others", 7),
    ]  # fmt: skip


@live
async def test_a_full_disk_drops_lines_and_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    book = Audit("/dev/full", lambda: "")
    for number in range(10):
        book.denied("client:", "publish", str(number), "no")
    book.close()
    assert book.dropped == 10
    assert caplog.text.count("No space left on device") == 1


def test_an_unread_pipe_blocks_no_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = LineWriter(str(pipe))
    line = "x" * 1000
    for _ in range(3000):
        writer.write(line)
    assert writer.dropped >= 3000 - audit.MAX_WAITING - 100
    os.close(reader)  # the thread that waits gets an error, and ends
    writer.close()


def test_after_a_gap_the_next_line_says_how_many_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.symlink_to("/dev/full")
    writer = LineWriter(str(path))
    writer.write('{"line": 1}')
    wait_for(lambda: writer.dropped == 1)
    path.unlink()
    writer.write('{"line": 2}')
    writer.close()
    lines = lines_of(path)
    assert [line.get("line") for line in lines] == [None, 2]
    assert lines[0]["what"] == "lines dropped"
    assert lines[0]["count"] == 1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_file_is_renamed_when_it_is_full_and_one_old_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", 1000)
    path = tmp_path / "audit.jsonl"
    writer = LineWriter(str(path))
    for number in range(200):
        writer.write(json.dumps({"line": number}))
    writer.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    kept = lines_of(tmp_path / "audit.jsonl.1") + lines_of(path)
    assert [line["line"] for line in kept] == list(range(200 - len(kept), 200))
    assert all(one.stat().st_size < 1100 for one in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "no/such/folder/log"])
def test_an_audit_log_that_can_never_be_written_is_refused_at_once(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match="audit_log"):
        LineWriter(str(tmp_path / name))


@live
async def test_without_a_file_a_refused_connection_is_not_logged_a_second_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    book = Audit("", lambda: "0 at here")
    with caplog.at_level("INFO", logger="cubecast"):
        book.refused("10.0.0.1:5", "the secret is not the same")  # the code that refuses it logs it
        book.denied("client:alice", "publish", "a", "no rule allows it")
        book.close()
    assert [json.loads(line)["what"] for line in caplog.messages] == ["publish"]
    assert book.count == 2
