"""One node of a chaos run, seen from its driver: a process that reports, and can be killed."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from cubecast.chaos.live.messages import Order, Report, Up
from cubecast.processes.command import CommandChild

_reports = msgspec.json.Decoder(Report)


class Heard(NamedTuple):
    """A report and the process that made it; None: the process has ended."""

    process: NodeProcess
    report: Report | None


class NodeProcess(CommandChild):
    """One life of one node: a process, its trace, and its reports."""

    def __init__(
        self, number: int, life: int, trace: Path, heard: queue.Queue[Heard], prefix: Sequence[str]
    ) -> None:
        self.life = life
        self.trace = trace
        self.up: Up | None = None
        self.began = time.monotonic()
        self.ended_at: float | None = None
        self.ending = ""
        """How the driver ended it: "crash", "leave"; empty if it did not."""
        self._reported = heard
        super().__init__(
            number,
            [*prefix, sys.executable, "-m", "cubecast.chaos.live.worker"],
            heard=self._take,
            silent=lambda: heard.put(Heard(self, None)),
        )

    def __str__(self) -> str:
        return f"node {self.number}"

    def _take(self, line: bytes) -> None:
        try:
            self._reported.put(Heard(self, _reports.decode(line)))
        except msgspec.DecodeError:  # half a line of one that was killed
            self.complaints.append(line.decode(errors="replace").rstrip())

    def order(self, what: Order) -> None:
        """Send an order; a process that has ended ignores it, and its end explains why."""
        self.say(msgspec.json.encode(what))

    def crash(self) -> float:
        """Kill the process; return the time."""
        at = time.monotonic()
        self.kill()
        return at

    def last_words(self) -> str:
        """Why the process ended by itself."""
        said = self.last_line()
        return f"{self.how_it_ended()}: {said}" if said else self.how_it_ended()
