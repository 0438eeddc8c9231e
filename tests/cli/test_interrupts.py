"""Ctrl-C in every command that takes longer than a moment, at several moments of it.

The terminal sends SIGINT to all processes in front of it.  Whatever the moment: one line on stderr,
130 (or 0 from those that run until Ctrl-C), no traceback, no process that is left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from support.paths import SOURCE
from support.terminal import in_front

LIMIT_S = 60.0
ORPHANS_END_WITHIN_S = 5.0
POLL_S = 0.005
BUSY_TICKS = 150
"""More processor time than reading modules takes."""
INTERRUPTED = "cubecast: interrupted"


@dataclass(frozen=True)
class Command:
    """A command that would run for long, and how it says that it is in the middle of it."""

    words: str
    until_ctrl_c: bool = False
    """Whether Ctrl-C is its proper end: then it ends with 0, and has nothing to say."""
    children: int = 0
    """Processes of its own that it has in the middle of its work."""
    says: str = ""
    """What it has printed by then."""


COMMANDS = [
    Command("demo --nodes 3 --rounds 20 --trace demo.jsonl", children=3),
    Command("demo --simulated --seeds 1000"),
    Command("sim storm --seeds 5000"),
    Command("sim chaos --seeds 5000 --jobs 2 --counts counts.json", children=2),
    Command("up -n 2 --listen 127.0.0.1:0", until_ctrl_c=True, says="2 nodes up"),
    Command("node --listen 127.0.0.1:0", until_ctrl_c=True, says="node 0 on"),
    Command("sub t --at {node}", until_ctrl_c=True, says="subscribed to t"),
    Command("pub t --at {node}"),  # until the end of stdin
    Command("top --at {node} --json", until_ctrl_c=True, says='"node":0'),
    Command("topics --at {mute}"),
    Command("nodes --at {mute}"),
    Command("why t --at {mute}"),
    Command("tree t --at {mute}"),
    Command("ordered manage {node}", until_ctrl_c=True, says="manager"),
    Command("ordered sub {node} t --managers absent"),
    Command("ordered pub {node} t --managers absent"),
    Command("bench fanout --processes 3 --seconds 30", children=3),
    Command("bench causal --processes 3 --questions 1000000", children=3),
    Command("chaos -n 3 --seconds 30", children=3),
]


class Run:
    """A command in a session of its own, as in a terminal; what it prints is read as it comes."""

    def __init__(self, words: str, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.text = ""
        with in_front():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cubecast", *words.split()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, cwd=folder,
                env={**os.environ, "CUBECAST_TEST_MARK": self.mark, "PYTHONPATH": str(SOURCE)},
            )  # fmt: skip
        self.errors = ""
        self._readers = [
            threading.Thread(target=self._read, args=(stream, name), daemon=True)
            for stream, name in ((self.process.stdout, "text"), (self.process.stderr, "errors"))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[bytes], name: str) -> None:
        while chunk := os.read(stream.fileno(), 4096):
            setattr(self, name, getattr(self, name) + chunk.decode(errors="replace"))

    def processes(self) -> list[int]:
        """Those that live of all that descend from it, whatever their sessions are."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is(pid)]

    def _is(self, pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return state != "Z" and self.mark.encode() in environment

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a moment; the command must not end before it."""
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert self.process.poll() is None, (self.process.returncode, self.text, self.errors)
            assert time.monotonic() < deadline, (self.text, self.errors)
            time.sleep(POLL_S)

    def interrupt(self) -> None:
        """Ctrl-C: to all processes in front of the terminal."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        code = self.process.wait(LIMIT_S)
        for reader in self._readers:
            reader.join(LIMIT_S)
        return code

    def close(self) -> list[int]:
        """End whatever is left of it; that is told."""
        left = self.processes()
        if self.process.poll() is not None:
            deadline = time.monotonic() + ORPHANS_END_WITHIN_S
            while (left := self.processes()) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return left


@contextmanager
def running(words: str, folder: Path) -> Iterator[Run]:
    run = Run(words, folder)
    try:
        yield run
    finally:
        left = run.close()
    assert not left, f"{words} leaves processes behind"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node for the commands that need one."""
    with running("node --listen 127.0.0.1:0", tmp_path_factory.mktemp("node")) as run:
        run.until(lambda: run.text.endswith("\n"))
        yield run.text.split()[-1]
        run.interrupt()
        assert run.end() == 0


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        yield f"{host}:{port}"


def loaded(run: Run) -> bool:
    """Python is up and reads the command's modules: it has mapped what compiled modules need."""
    return "_ssl" in _maps(run.process.pid) or "msgspec" in _maps(run.process.pid)


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def working(command: Command, run: Run) -> bool:
    """It is in the middle of its work, as far as one sees from outside."""
    if command.says:
        return command.says in run.text + run.errors
    if command.children:
        return len(run.processes()) > command.children
    return _ticks(run.process.pid) > BUSY_TICKS or _waits(run.process.pid)


def _ticks(pid: int) -> int:
    """Processor time that it has used, in hundredths of a second."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _waits(pid: int) -> bool:
    """Whether it waits for a network: its loop sleeps."""
    try:
        return "poll" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False


def check(command: Command, run: Run) -> None:
    """How a command that was interrupted has ended."""
    code = run.end()
    said = run.errors.splitlines()
    expected = (0, 130) if command.until_ctrl_c else (130,)
    assert code in expected, (code, run.errors)
    if code == 130:
        assert said[-1:] == [INTERRUPTED], run.errors
    assert run.errors.count(INTERRUPTED) == (code == 130)
    for word in ("Traceback", "Error", "Exception", "never awaited", "destroyed"):
        assert word not in run.errors, run.errors


MOMENTS = [
    pytest.param(
        command,
        moment,
        id=f"{moment}-{command.words}",
        marks=() if moment == "middle" or place % 6 == 0 else pytest.mark.soak,
    )
    for moment in ("start", "middle", "twice")
    for place, command in enumerate(COMMANDS)
]
"""All commands in the middle; at the other moments each sixth, and all of them in the soak runs."""


@pytest.mark.parametrize(("command", "moment"), MOMENTS)
def test_ctrl_c_takes_one_line_and_leaves_nothing(
    command: Command, moment: str, node: str, mute: str, tmp_path: Path
) -> None:
    """At the start modules are read; twice: once more while the command cleans up."""
    with running(command.words.format(node=node, mute=mute), tmp_path) as run:
        run.until((lambda: loaded(run)) if moment == "start" else (lambda: working(command, run)))
        run.interrupt()
        if moment == "twice":
            run.interrupt()
        check(command, run)


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_ctrl_c_at_any_moment_takes_one_line(
    command: Command, node: str, mute: str, tmp_path: Path
) -> None:
    """Before Python has read our first module, an interrupt is Python's own to tell."""
    for twentieth in range(1, 61):
        with running(command.words.format(node=node, mute=mute), tmp_path) as run:
            run.until(lambda: "msgspec" in _maps(run.process.pid))
            time.sleep(twentieth / 20)
            run.interrupt()
            check(command, run)


ENDING = [
    Command("sim question-answer --seeds 3", says="cubecast"),
    Command("demo --simulated --seeds 3", says="\n"),
    Command("tree --nodes 8", says="root"),
    Command("top --at {node} --once", says="cluster"),
    Command("topics --at {node} --json", says="topics"),
    Command("bench fanout --processes 2 --seconds 0.2", says="deliver"),
    Command("chaos -n 2 --seconds 0.5", says="checking"),
    Command("sim chaos --seeds 30 --jobs 2", says="\n"),
]


@pytest.mark.parametrize("command", ENDING, ids=lambda command: command.words)
def test_ctrl_c_as_the_result_appears_leaves_the_result_or_one_line(
    command: Command, node: str, tmp_path: Path
) -> None:
    with running(command.words.format(node=node), tmp_path) as run:
        while run.process.poll() is None and command.says not in run.text + run.errors:
            time.sleep(POLL_S)
        run.interrupt()
        assert run.end() in (0, 130), run.errors
        assert "Traceback" not in run.errors, run.errors


def test_a_second_ctrl_c_ends_a_command_whose_clean_up_hangs(tmp_path: Path) -> None:
    program = (
        "import threading, time\n"
        "from cubecast import interrupts\n"
        "interrupts.PATIENCE_S = 0.0\n"
        "interrupts.install()\n"
        "try:\n"
        "    print('works', flush=True)\n"
        "    threading.Event().wait()\n"
        "finally:\n"
        "    print('cleans up', flush=True)\n"
        "    threading.Event().wait()\n"
    )
    with in_front():
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as lines:
        for said in ("works\n", "cleans up\n"):
            assert lines.readline() == said
            process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
