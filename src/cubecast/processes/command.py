"""Programs as child processes: `CommandChild` exchanges lines with one, `ServerChild` nothing.

A thread reads each stream of a `CommandChild` for as long as it lives: a child whose pipe is full
blocks.  What it writes to stderr is kept, up to a bound, as the reason if it ends.

A parent that ends a child waits for these threads at most `READ_REST_S`: processes that the child
has started may keep its streams open for as long as they like.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from cubecast.processes.child import Child

MOST_LINES_KEPT = 100
READ_REST_S = 5.0
"""How long the last lines of a process that has ended may take to be read."""


def _ignore(line: bytes) -> None:
    """A line that the parent has no use for."""


class _Program(Child):
    """A program that runs."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(number)
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        self.kill()


class ServerChild(_Program):
    """A program that other processes reach; its output is discarded."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        quiet = subprocess.DEVNULL
        super().__init__(number, subprocess.Popen(command, stdout=quiet, stderr=quiet))


class CommandChild(_Program):
    """A process in its own session: signals of the terminal reach it only through its parent.

    `heard` is given each line of its stdout, and `overheard` each line of its stderr, by a thread;
    `silent` is called when stdout has ended.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        *,
        heard: Callable[[bytes], None] = _ignore,
        overheard: Callable[[str], None] = lambda line: None,
        silent: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.complaints: deque[str] = deque(maxlen=MOST_LINES_KEPT)
        """The last lines of its stderr."""
        self._heard, self._overheard, self._silent = heard, overheard, silent
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
        )
        super().__init__(number, process)
        self._readers = [
            threading.Thread(target=self._hear, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._overhear, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _hear(self, stream: IO[bytes]) -> None:
        with stream as lines:
            for line in lines:
                self._heard(line)
        self._silent()

    def _overhear(self, stream: IO[bytes]) -> None:
        with stream as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                self.complaints.append(text)
                self._overheard(text)

    def say(self, line: bytes) -> bool:
        """Write a line to its stdin; False if the child has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it has ended, or we have ended it
            return False
        return True

    def hang_up(self) -> None:
        """Close its stdin, so that the child reads its end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def last_line(self) -> str:
        """The last line that a process which has ended wrote to stderr; empty if there is none."""
        self._read_rest()
        return next((line for line in reversed(self.complaints) if line.strip()), "")

    def end(self) -> None:
        super().end()
        self._read_rest()
        self.hang_up()

    def _read_rest(self) -> None:
        """Wait until all that a process which has ended wrote is read, at most `READ_REST_S`."""
        deadline = time.monotonic() + READ_REST_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
