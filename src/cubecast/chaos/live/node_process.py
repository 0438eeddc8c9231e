"""The processes of a chaos run, seen from their driver: started, spoken to, hurt, always ended."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from cubecast.chaos.live.messages import Order, Report, Up

MOST_LINES_KEPT = 20
_reports = msgspec.json.Decoder(Report)


class Heard(NamedTuple):
    """A report and who made it; None: the process has ended."""

    process: Process
    report: Report | None


class Process:
    """One life of one node: a process, its trace, and what it has told."""

    def __init__(
        self, number: int, life: int, trace: Path, heard: queue.Queue[Heard], prefix: Sequence[str]
    ) -> None:
        self.number = number
        self.life = life
        self.trace = trace
        self.up: Up | None = None
        self.began = time.monotonic()
        self.ended_at: float | None = None
        self.ending = ""
        """How the driver ended it: "crash", "leave"; empty if it did not."""
        self.last_lines: deque[str] = deque(maxlen=MOST_LINES_KEPT)
        self._heard = heard
        self._popen = subprocess.Popen(
            [*prefix, sys.executable, "-m", "cubecast.chaos.live.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        self._threads = [
            threading.Thread(target=read, daemon=True) for read in (self._hear, self._overhear)
        ]
        for thread in self._threads:
            thread.start()

    def __str__(self) -> str:
        return f"node {self.number}"

    def _hear(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
            for line in lines:
                try:
                    self._heard.put(Heard(self, _reports.decode(line)))
                except msgspec.DecodeError:  # half a line of one that was killed
                    self.last_lines.append(line.decode(errors="replace").rstrip())
        self._heard.put(Heard(self, None))

    def _overhear(self) -> None:
        assert self._popen.stderr is not None
        with self._popen.stderr as lines:
            for line in lines:
                self.last_lines.append(line.decode(errors="replace").rstrip())

    @property
    def alive(self) -> bool:
        """Whether the process exists, stopped or not."""
        return self._popen.poll() is None

    def order(self, what: Order) -> None:
        """Tell it what to do; one that has ended hears nothing, which its end will explain."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._popen.stdin.write(msgspec.json.encode(what) + b"\n")
            self._popen.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def kill(self) -> float:
        """End it at once, stopped or not; when that was."""
        at = time.monotonic()
        self._popen.kill()
        self._popen.wait()
        return at

    def bury(self) -> None:
        """Let go of everything that belongs to a process, which is ended if need be."""
        self.kill()
        for thread in self._threads:
            thread.join()
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()

    def last_words(self) -> str:
        """Why it ended by itself."""
        for thread in self._threads:
            thread.join(timeout=5.0)
        code = self._popen.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = [line for line in self.last_lines if line.strip()]
        return f"{how}: {said[-1]}" if said else how
