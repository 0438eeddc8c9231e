"""What holds for every child process, seen from its parent.

1. A child that `started` has begun is ended at the end of the block, whatever ends that.
2. Ctrl-C cannot come between a child's start and its registration by the parent: a child is begun
   inside `cubecast.interrupts.held`.
3. A child that a signal has stopped is ended like any other: SIGKILL needs no SIGCONT before it.
4. A signal is never sent to a process that took over the id of a child: a child keeps its id until
   its parent has seen its exit code, and gets no signal after that.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from cubecast.interrupts import held


class ChildError(Exception):
    """A child process failed, fell silent or ended too early."""


class Child(ABC):
    """One process; `number` is its name in messages."""

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    @abstractmethod
    def pid(self) -> int:
        """Its process id."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, negative for a signal; None if it still runs after so many seconds."""

    @abstractmethod
    def end(self) -> None:
        """End it if it still runs, and release its resources; twice does no harm."""

    @property
    def alive(self) -> bool:
        """Whether the process exists, stopped or not."""
        return self.wait(0.0) is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once, stopped or not, and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def how_it_ended(self) -> str:
        """The exit code or the signal of a process that ends, in words."""
        code = self.wait()
        assert code is not None, "without a timeout it waits for the end"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


C = TypeVar("C", bound=Child)


@contextmanager
def started(starts: Sequence[Callable[[], C]]) -> Iterator[list[C]]:
    """Children, begun one after the other; all are ended at the end."""
    running: list[C] = []
    try:
        for start in starts:
            with held():
                running.append(start())
        yield running
    finally:
        end_all(running)


def end_all(children: Iterable[Child]) -> None:
    """End children that may still run."""
    for one in children:
        one.end()
