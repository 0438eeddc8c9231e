"""Lines to a file descriptor that may be slow, blocked, full or gone.

Theory of operation: a caller puts a line in a bounded queue and goes on.  One daemon thread writes.
A write that blocks holds up that thread alone; one that fails costs its line.

Invariants:

1. `put` never waits for a write and never raises.
2. The queue holds at most `MOST_LINES` lines and `MOST_BYTES` bytes; beyond that new lines are
   dropped.  The thread removes lines, whether or not they can be written.
3. Every line that was dropped is counted; the count goes out before the next line that can be
   written.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

MOST_LINES = 1000
MOST_BYTES = 1 << 20
MOST_PER_LINE = 1 << 14
"""Bytes of one line; the rest of a longer one is cut off."""
CLOSE_S = 1.0
"""How long the end of a process waits for its last lines."""
POLL_S = 1.0

FULL = "they came faster than they could be written"


class Later(Protocol):
    """A source of lines that become due with time."""

    def waits(self) -> bool:
        """Whether lines will become due without another event."""

    def due(self) -> Iterable[str]:
        """The lines that are due now."""


def _note(count: int, why: str) -> str:
    lines = "1 line was" if count == 1 else f"{count} lines were"
    return f"cubecast: {lines} dropped: {why}\n"


class Sink:
    """Writes lines to a descriptor of its own (a copy of `descriptor`); None: drops them all."""

    def __init__(
        self,
        descriptor: int | None,
        note: Callable[[int, str], str] = _note,
        later: Later | None = None,
    ) -> None:
        self._descriptor = None if descriptor is None else os.dup(descriptor)
        self._note = note
        self._later = later
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._untold = 0
        self._why = ""
        self._broken_line = False
        self.dropped = 0
        """Lines that were put and are not written."""
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="cubecast log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Take a line, its newline included, or drop it."""
        data = line.encode("utf-8", "backslashreplace")
        if len(data) > MOST_PER_LINE:
            data = data[:MOST_PER_LINE] + b" ... (cut off)\n"
        with self._changed:
            full = len(self._lines) >= MOST_LINES or self._bytes + len(data) > MOST_BYTES
            if full or self._closing or self._descriptor is None:
                self._drop(FULL)
                return
            self._lines.append(data)
            self._bytes += len(data)
            self._changed.notify_all()

    def nudge(self) -> None:
        """`later` has something to wait for."""
        with self._changed:
            self._changed.notify_all()

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Write what is left, if that takes no longer than this; then nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(limit_s)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self._untold += 1
        self._why = why

    # -- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while (line := self._next()) is not None:
            if self._tell_dropped():
                self._write_or_drop(line)
            else:
                with self._changed:
                    self._drop(self._why)
        self._tell_dropped()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _next(self) -> bytes | None:
        """Wait for a line; None: there will be none any more."""
        while True:
            with self._changed:
                if self._lines:
                    line = self._lines.popleft()
                    self._bytes -= len(line)
                    return line
                if self._closing:
                    return None
                waits = self._later is not None and self._later.waits()
                self._changed.wait(POLL_S if waits else None)
            for text in self._later.due() if self._later is not None else ():
                self.put(text)

    def _tell_dropped(self) -> bool:
        """Write how many lines were dropped; False if that failed."""
        with self._changed:
            count, why = self._untold, self._why
        if not count:
            return True
        if not self._written(self._note(count, why).encode("utf-8", "backslashreplace")):
            return False
        with self._changed:
            self._untold -= count
        return True

    def _write_or_drop(self, line: bytes) -> None:
        if not self._written(line):
            with self._changed:
                self._drop(self._why)

    def _written(self, line: bytes) -> bool:
        """Whether all of it is written; half a line that came before is ended first."""
        rest = memoryview(b"\n" + line if self._broken_line else line)
        assert self._descriptor is not None
        while rest:
            try:
                count = os.write(self._descriptor, rest)
            except BlockingIOError:  # another process made the shared file non-blocking
                self._wait_for_room()
                continue
            except OSError as error:
                self._why = os.strerror(error.errno or errno.EIO)
                return False
            rest = rest[count:]
            self._broken_line = bool(rest)
        return True

    def _wait_for_room(self) -> None:
        assert self._descriptor is not None
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        room.poll(POLL_S * 1000)
