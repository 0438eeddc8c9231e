"""Signals that ask a parent of processes to stop: as an exception, or as a count that it polls."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SAME_SIGNAL_S = 1.0
"""Several signals within this time count once: an ending shell and terminal both send one."""


@contextmanager
def unwinding(numbers: Iterable[signal.Signals] = (signal.SIGTERM,)) -> Iterator[None]:
    """Let these signals unwind the main thread, so that ``finally`` ends what was started."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopSignals:
    """Signals that are counted and never raised.

    None of them can come between a child's start and its registration by the parent.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self.count = 0
        self._noted_at = -math.inf
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        now = time.monotonic()
        if now - self._noted_at >= SAME_SIGNAL_S:
            self.count += 1
            self._noted_at = now
