"""A Python function as a child process that exchanges objects with its parent over a pipe.

A child is a Python of its own that runs ``target(*args, pipe)`` and sends ``(kind, value)`` pairs.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from cubecast.net.loop import run_loop
from cubecast.processes.child import Child, ChildError, started

CLOSE_TIMEOUT_S = 15.0
CONTEXT = multiprocessing.get_context("spawn")


def be_child(work: Coroutine[Any, Any, None], pipe: Connection) -> None:
    """Run a child's part; report an exception to the parent, which ends the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.ERROR)
    try:
        run_loop(work)
    except (EOFError, BrokenPipeError):
        pass  # the parent has given up
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


class FunctionChild(Child):
    """A process and our end of its pipe."""

    def __init__(self, number: int, target: Callable[..., None], *args: object) -> None:
        super().__init__(number)
        self.pipe, theirs = CONTEXT.Pipe()
        self._process: BaseProcess = CONTEXT.Process(
            target=target, args=(*args, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode

    def tell(self, message: object) -> None:
        """Send it something."""
        try:
            self.pipe.send(message)
        except OSError:
            raise ChildError(f"process {self.number} ended early") from None

    def receive(self, kind: str) -> Any:
        """The next report, which is to be of `kind`."""
        try:
            found, value = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise ChildError(f"process {self.number} ended early") from None
        if found != kind:
            raise ChildError(f"process {self.number}: {value}")
        return value

    def end(self) -> None:
        self.kill()
        self.pipe.close()


@contextmanager
def closing_children(
    starts: Sequence[Callable[[], FunctionChild]],
) -> Iterator[list[FunctionChild]]:
    """Start children; at the end close one after the other, as a cluster shrinks one by one."""
    resource_tracker.ensure_running()  # it would end the hold on signals when it starts
    with started(starts) as running:
        yield running
        for one in reversed(running):
            one.tell("close")
            one.wait(CLOSE_TIMEOUT_S)


def gather(
    running: Sequence[FunctionChild],
    kind: str,
    timeout: float,
    *,
    every: float | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Any]:
    """One report of `kind` from each, as they come; `meanwhile` is called now and then."""
    values: dict[int, Any] = {}
    by_pipe: dict[Connection, FunctionChild] = {one.pipe: one for one in running}
    deadline = time.monotonic() + timeout
    while by_pipe:
        left = deadline - time.monotonic()
        ready = wait(list(by_pipe), max(0.0, left if every is None else min(left, every)))
        if not ready and left <= 0:
            silent = sorted(one.number for one in by_pipe.values())
            raise ChildError(f"no {kind!r} from processes {silent} in {timeout:g} s")
        for pipe in ready:
            one = by_pipe.pop(pipe)  # type: ignore[call-overload]
            values[one.number] = one.receive(kind)
        meanwhile()
    return [values[one.number] for one in running]


def tell_all(running: Sequence[FunctionChild], message: object) -> None:
    """Send all children the same message."""
    for one in running:
        one.tell(message)
