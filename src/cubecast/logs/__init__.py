"""Logging that never blocks its caller: for the commands, and for applications that want it.

    handler = cubecast.logs.install(level="INFO", format="json")

The library logs to the logger ``cubecast`` and installs no handler itself.  `install` adds a
handler whose lines go through a bounded queue to a thread (`logs.sink`).  It writes records of one
kind a few times in ten seconds and counts the rest (`logs.limit`), and writes no control
characters of a peer's (`logs.escape`).  A full disk, a closed terminal or an unread pipe costs
lines, which are counted, and nothing else.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from cubecast.logs.escape import escaped, escaped_but_layout
from cubecast.logs.form import FORMATS, Json, Text, message_of
from cubecast.logs.limit import BURST, EVERY_S, HeldBack, Limit, kind_of
from cubecast.logs.output import Guard, descriptor_of, guard
from cubecast.logs.sink import Sink

__all__ = [
    "FORMATS",
    "LEVELS",
    "Guard",
    "Handler",
    "Json",
    "Text",
    "escaped",
    "escaped_but_layout",
    "guard",
    "install",
]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Handler(logging.Handler):
    """Queues lines for a thread that writes them; never waits, never raises."""

    def __init__(self, descriptor: int | None, format: str, burst: int, every_s: float) -> None:
        super().__init__()
        self.setFormatter(FORMATS[format]())
        self.slot: Callable[[], int] | None = None
        """Returns the slot of the node that writes this log; None until it is known."""
        self._limit = Limit(burst, every_s)
        self._counting = threading.Lock()  # not the handler's lock, which closing holds
        self._sink = Sink(descriptor, self._dropped, self)

    @property
    def dropped(self) -> int:
        """Lines that were to be written and never will be."""
        return self._sink.dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held, which no write ever holds."""
        for line in self.due():
            self._sink.put(line)
        kind = kind_of(record)
        with self._counting:
            admitted = self._limit.admits(kind, time.monotonic())
        if admitted:
            self._limit.went_out(kind, message_of(record))
            self._sink.put(self._line(record))
        elif self._limit.holding == 1:
            self._sink.nudge()

    def _line(self, record: logging.LogRecord) -> str:
        if self.slot is not None:
            record.node = self.slot()
        return self.format(record) + "\n"

    def _dropped(self, count: int, why: str) -> str:
        what = "line of this log was" if count == 1 else "lines of this log were"
        template = f"%d {what} dropped: %s"
        return self._line(_record("cubecast.logs", logging.WARNING, template, count, why))

    # -- what was held back ------------------------------------------------------------------------

    def waits(self) -> bool:
        """Whether a count has to be written after a while."""
        return self._limit.holding > 0

    def due(self, *, all_of_them: bool = False) -> list[str]:
        """The counts whose time has come."""
        with self._counting:
            over = self._limit.over(time.monotonic(), all_of_them=all_of_them)
        return [self._more(held) for held in over]

    def _more(self, held: HeldBack) -> str:
        name, level, _, _, _ = held.kind
        template = "%d more like this in the last %.0f s: %s"
        return self._line(_record(name, level, template, held.number, held.seconds, held.sample))

    def close(self) -> None:
        """Write what is left, for a second at most; `logging` does this when a program ends."""
        for line in self.due(all_of_them=True):
            self._sink.put(line)
        self._sink.close()
        super().close()


def _record(name: str, level: int, template: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 0, template, values, None)


def install(
    stream: TextIO | int | None = None,
    *,
    level: str | int = "WARNING",
    format: str = "text",
    logger: str = "cubecast",
    burst: int = BURST,
    every_s: float = EVERY_S,
) -> Handler:
    """Have a logger write to `stream` (by default stderr) without ever waiting for it.

    `format` is ``"text"`` or ``"json"``.  `logger` ``""`` is the root: all loggers.  Of records
    that differ only in their arguments, `burst` go out in `every_s` seconds; the rest is counted.
    `Handler.close` ends it.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
    target = sys.stderr if stream is None else stream
    descriptor = target if isinstance(target, int) else descriptor_of(target)
    handler = Handler(descriptor, format, burst, every_s)
    owner = logging.getLogger(logger)
    owner.addHandler(handler)
    owner.setLevel(level)
    return handler
