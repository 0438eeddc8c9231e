"""stdout and stderr of a process that must go on even if they block or fail.

`guard` puts streams in the place of `sys.stdout` and `sys.stderr` whose lines go through a `Sink`:
a print that would block or fail is dropped and counted.  This holds for everything that prints:
tracebacks, warnings, libraries.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from typing import TextIO

from cubecast.logs.sink import MOST_PER_LINE, Sink


class Lines(io.TextIOBase):
    """A text stream that hands lines to a sink; half a line waits for its end, or for `flush`."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, sink: Sink, descriptor: int | None) -> None:
        super().__init__()
        self.sink = sink
        self._descriptor = descriptor
        self._rest = ""
        self._one_at_a_time = threading.Lock()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._descriptor is not None and os.isatty(self._descriptor)

    def fileno(self) -> int:
        if self._descriptor is None:
            raise io.UnsupportedOperation("the stream was closed before the program began")
        return self._descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"a text stream takes str, not {type(text).__name__}")
        with self._one_at_a_time:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self.sink.put(line + "\n")
            if len(self._rest) > MOST_PER_LINE:
                self._put_rest()
        return len(text)

    def flush(self) -> None:
        """Hand half a line to the sink, without waiting until it is written."""
        with self._one_at_a_time:
            self._put_rest()

    def _put_rest(self) -> None:
        if self._rest:
            self.sink.put(self._rest)
            self._rest = ""


class Guard:
    """The streams that were put in place; `restore` gives the real ones back."""

    def __init__(self) -> None:
        self._before = sys.stdout, sys.stderr
        self.stdout = _guarded(sys.stdout)
        self.stderr = _guarded(sys.stderr)
        sys.stdout, sys.stderr = self.stdout, self.stderr

    def restore(self) -> None:
        """Write what is left, for a second at most."""
        if sys.stdout is self.stdout:
            sys.stdout, sys.stderr = self._before
        for stream in (self.stdout, self.stderr):
            if isinstance(stream, Lines):
                stream.flush()
                stream.sink.close()


def guard() -> Guard:
    """Let no print of this process block or fail from now on, until it ends."""
    _fill_standard_descriptors()
    guarded = Guard()
    atexit.register(guarded.restore)
    return guarded


def descriptor_of(stream: TextIO | None) -> int | None:
    """Where a stream writes; None: nowhere."""
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):  # no file at all, or closed
        return None


def _guarded(stream: TextIO) -> TextIO:
    """A stream that is no file (a test's, say) stays as it is; one that is closed drops all."""
    descriptor = descriptor_of(stream)
    if descriptor is None and stream is not None:
        return stream
    if stream is not None:
        stream.flush()
    lines: TextIO = Lines(Sink(descriptor), descriptor)  # type: ignore[assignment]
    return lines


def _fill_standard_descriptors() -> None:
    """Have 0, 1 and 2 open: else a socket would get one of them, and prints meant for stderr."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
