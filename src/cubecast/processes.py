"""The processes of a benchmark, seen from their parent: started, spoken to, and always ended.

A child is a Python of its own that runs ``target(*args, pipe)`` and sends ``(kind, value)`` pairs.
Whatever happens to the parent's work, no child outlives it: a stopped one is continued and killed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from cubecast.interrupts import held
from cubecast.net.loop import run_loop

CLOSE_TIMEOUT_S = 15.0
CONTEXT = multiprocessing.get_context("spawn")


class BenchError(Exception):
    """A process of a benchmark failed or fell silent."""


def be_child(work: Coroutine[Any, Any, None], pipe: Connection) -> None:
    """Run a child's part; its parent ends it, and hears of whatever goes wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.ERROR)
    try:
        run_loop(work)
    except (EOFError, BrokenPipeError):
        pass  # the parent has given up
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


class Child:
    """A process and our end of its pipe."""

    def __init__(self, index: int, target: Callable[..., None], *args: object) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.index = index
        self.process: BaseProcess = CONTEXT.Process(
            target=target, args=(*args, theirs), daemon=True
        )
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def tell(self, message: object) -> None:
        """Send it something."""
        try:
            self.pipe.send(message)
        except OSError:
            raise BenchError(f"process {self.index} ended early") from None

    def receive(self, kind: str) -> Any:
        """The next report, which is to be of `kind`."""
        try:
            found, value = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise BenchError(f"process {self.index} ended early") from None
        if found != kind:
            raise BenchError(f"process {self.index}: {value}")
        return value

    def end(self) -> None:
        """End it if it runs still, even if a signal has stopped it."""
        if self.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def children(starts: Sequence[Callable[[], Child]]) -> Iterator[list[Child]]:
    """Start them all; at the end close one after the other, as a cluster shrinks one by one."""
    running: list[Child] = []
    try:
        resource_tracker.ensure_running()  # it would end the hold on signals when it starts
        for start in starts:
            with held():
                running.append(start())
        yield running
        for one in reversed(running):
            one.tell("close")
            one.process.join(CLOSE_TIMEOUT_S)
    finally:
        for one in running:
            one.end()


def gather(
    running: Sequence[Child],
    kind: str,
    timeout: float,
    *,
    every: float | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Any]:
    """One report of `kind` from each, whoever comes first; `meanwhile` is called now and then."""
    values: dict[int, Any] = {}
    by_pipe: dict[Connection, Child] = {one.pipe: one for one in running}
    deadline = time.monotonic() + timeout
    while by_pipe:
        left = deadline - time.monotonic()
        ready = wait(list(by_pipe), max(0.0, left if every is None else min(left, every)))
        if not ready and left <= 0:
            silent = sorted(one.index for one in by_pipe.values())
            raise BenchError(f"no {kind!r} from processes {silent} in {timeout:g} s")
        for pipe in ready:
            one = by_pipe.pop(pipe)  # type: ignore[call-overload]
            values[one.index] = one.receive(kind)
        meanwhile()
    return [values[one.index] for one in running]


def tell_all(running: Sequence[Child], message: object) -> None:
    """Send everyone the same."""
    for one in running:
        one.tell(message)


@contextmanager
def unwinding_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the main thread, so that ``finally`` ends what was started."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
