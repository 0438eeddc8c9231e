"""`CommandChild`: a parent hears all that a child says, and waits for no other process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cubecast.processes import command
from cubecast.processes.command import CommandChild

HANGS_S = 20.0
"""A call that takes so long does not return."""

KEEPER = "open({gate!r}).read()"
"""A grandchild: it has the streams of its parent and ends when the gate is opened and shut."""
PARENT_OF_A_KEEPER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {keeper!r}], start_new_session=True)
print("no luck", file=sys.stderr, flush=True)
print("begun", flush=True)
sys.stdin.read()
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@contextmanager
def survived_by_a_grandchild(gate: Path) -> Iterator[CommandChild]:
    """A child whose own child keeps stdout and stderr open until the end of the block."""
    os.mkfifo(gate)
    begun = threading.Event()
    keeper = KEEPER.format(gate=str(gate))
    code = PARENT_OF_A_KEEPER.format(keeper=keeper)
    child = CommandChild(0, python(code), heard=lambda line: begun.set())
    try:
        assert begun.wait(HANGS_S)
        yield child
    finally:
        child.kill()
        with gate.open("w"):
            pass
        for reader in child._readers:
            reader.join()


def returns(call: Callable[[], object]) -> bool:
    """Whether a call returns."""
    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(HANGS_S)
    return not calling.is_alive()


def test_a_child_is_ended_although_a_grandchild_keeps_its_streams_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "READ_REST_S", 0.1)
    with survived_by_a_grandchild(tmp_path / "gate") as child:
        assert returns(child.end)
        assert returns(child.end), "twice does no harm"
        assert not child.alive
        assert all(reader.is_alive() for reader in child._readers), "the streams are open"
        assert child.last_line() == "no luck"


def test_the_end_of_a_child_waits_for_all_that_it_wrote() -> None:
    lines: list[bytes] = []
    complaints: list[str] = []
    code = "import sys; print('x\\n' * 20_000); print('last words', file=sys.stderr)"
    child = CommandChild(0, python(code), heard=lines.append, overheard=complaints.append)
    assert child.wait() == 0
    child.end()
    assert lines == [b"x\n"] * 20_000 + [b"\n"]
    assert complaints == ["last words"]
    assert not any(reader.is_alive() for reader in child._readers)
