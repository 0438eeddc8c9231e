"""The nodes of ``cubecast up``, seen from their parent: started, listened to, and always ended.

A child that nobody reads blocks when its pipe is full, so a thread reads each of its streams for as
long as it lives.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import typer

from cubecast.cli.live import stop_signals

POLL_S = 0.1
SAME_SIGNAL_S = 1.0
"""Several signals within this time are one wish: a shell and a terminal that end both send one."""
MOST_LINES_KEPT = 100


class Child:
    """One node in a process of its own; `greeting` is the line that says where it listens.

    With `named`, what it complains of is passed on with its number; JSON names the node itself.
    """

    def __init__(
        self, number: int, options: list[str], environment: dict[str, str], named: bool = True
    ) -> None:
        self.number = number
        self._prefix = f"node {number}: " if named else ""
        self.greeting = ""
        self._complaints: deque[str] = deque(maxlen=MOST_LINES_KEPT)
        self._started = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cubecast.cli.main", "node", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # signals are ours to pass on
        )
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._hear, self._overhear)
        ]
        for reader in self._readers:
            reader.start()

    def _hear(self) -> None:
        """Its first line is the greeting; who comes and goes, `up` need not repeat for each."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.greeting = lines.readline().strip()
            for _ in lines:
                pass

    def _overhear(self) -> None:
        """Pass its warnings on; those of a node that does not start are kept, as the reason."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._complaints.append(line.rstrip())
                if self._started:
                    self._pass_on()

    def _pass_on(self) -> None:
        while self._complaints:
            typer.echo(f"{self._prefix}{self._complaints.popleft()}", err=True)

    def started(self) -> None:
        """It is up: what it complained of until now was no reason to end."""
        self._started = True
        self._pass_on()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> str:
        """How a process that is no more has ended."""
        code = self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        """Why a process that is no more did not start."""
        for reader in self._readers:
            reader.join(timeout=5.0)
        said = self._complaints[-1] if self._complaints else self.end()
        return said.removeprefix("cubecast node: ")

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(number)


class StopSignals:
    """Ctrl-C, a request to end, a terminal that is closed: noted, and never raised.

    So none of them can come between the start of a child and our knowing of it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._noted_at = -math.inf
        for number in stop_signals():
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        now = time.monotonic()
        if now - self._noted_at >= SAME_SIGNAL_S:
            self.count += 1
            self._noted_at = now


def stop(children: Sequence[Child], limit_s: float, hurry: Callable[[], bool]) -> list[int]:
    """End all children; the numbers of those that took longer than `limit_s` and were killed.

    `hurry` says that waiting has been enough.
    """
    for child in reversed(children):
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    while any(child.alive for child in children):
        if time.monotonic() > deadline or hurry():
            break
        time.sleep(POLL_S)
    killed = [child.number for child in children if child.alive]
    for child in children:
        child.signal(signal.SIGKILL)
    for child in children:
        child.end()
    return killed
