"""The audit of refusals (who, what, why): one JSON object a line, for finding attacks.

Bounds, however many refusals there are:

1. The first refusal of a kind (who, what, topic) is written at once.  Others of the kind within
   `REPEAT_S` are counted, and the count is written when that time is over.
2. `MAX_KINDS` kinds are told apart at a time; refusals beyond those are counted together.
3. `MAX_WAITING` lines wait to be written.  A thread writes them, so a disk or pipe that blocks
   holds up no node; lines that do not fit, or that fail, are dropped and counted, and the next line
   that can be written says how many.
4. A file has at most `MAX_FILE_BYTES` and a line.  Then it is renamed to ``….1``, and the one that
   had this name is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cubecast.errors import ConfigError

log = logging.getLogger("cubecast.audit")

REPEAT_S = 10.0
MAX_KINDS = 1024
MAX_WAITING = 1024
MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_TEXT = 256
"""Characters of a name, topic or reason in a line."""
LAST_LINES_S = 0.5
"""How long a node that closes waits for its last lines."""
STDERR = "-"
CONNECT = "connect"


class RefusalKind(NamedTuple):
    """One kind of refusal; `topic` is empty for a connection."""

    who: str
    what: str
    topic: str


class Repeated:
    """Refusals of one kind that are not written yet, with the last one's address and reason."""

    __slots__ = ("address", "count", "why")

    def __init__(self) -> None:
        self.count = 0
        self.address = ""
        self.why = ""


class Audit:
    """The refusals of one node; `name` says which node that is."""

    def __init__(self, path: str, name: Callable[[], str]) -> None:
        self._name = name
        self._writer = LineWriter(path) if path else None
        self._recent: dict[RefusalKind, Repeated] = {}
        self._others = 0
        self._timer: asyncio.TimerHandle | None = None
        self.count = 0
        """Refusals so far."""

    def refused(self, connection: object, why: str) -> None:
        """A connection was refused: a wrong secret, certificate, name or cluster."""
        address = str(connection)
        host = address.rpartition(":")[0]  # every attempt has another port
        self.denied(host or address, CONNECT, "", why, address)

    def denied(self, who: str, what: str, topic: str, why: str, address: str = "") -> None:
        """Note that `who` was refused `what`."""
        self.count += 1
        kind = RefusalKind(who[:MAX_TEXT], what, topic[:MAX_TEXT])
        recent = self._recent.get(kind)
        if recent is not None:
            recent.count += 1
            recent.address, recent.why = address, why
        elif len(self._recent) >= MAX_KINDS:
            self._others += 1
        else:
            self._recent[kind] = Repeated()
            self._write(kind, 1, why, address)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPEAT_S, self._look_back)

    def _look_back(self) -> None:
        """Write the counts of repeated refusals; forget the others."""
        self._timer = None
        recent, self._recent = self._recent, {}
        for kind, repeated in recent.items():
            if repeated.count:
                self._recent[kind] = Repeated()
                self._write(kind, repeated.count, repeated.why, repeated.address)
        others, self._others = self._others, 0
        if others:
            self._write(
                RefusalKind("others", "anything", ""), others, "too many kinds at a time", ""
            )
        if self._recent:
            self._timer = asyncio.get_running_loop().call_later(REPEAT_S, self._look_back)

    def _write(self, kind: RefusalKind, count: int, why: str, address: str) -> None:
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "node": self._name(),
            "who": kind.who,
            "from": address,
            "what": kind.what,
            "topic": kind.topic,
            "why": why[:MAX_TEXT],
            "count": count,
        }
        line = json.dumps(record)  # ASCII: what a peer chose cannot steer a terminal
        if self._writer is not None:
            self._writer.write(line)
        elif kind.what != CONNECT:  # the log of the node has refused connections already
            log.warning("%s", line)

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return 0 if self._writer is None else self._writer.dropped

    def close(self) -> None:
        """Write what was counted, and wait a moment until it is written."""
        if self._timer is not None:
            self._timer.cancel()
            self._look_back()
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.close()


class LineWriter:
    """Appends lines to a file, or stderr, from a thread of its own; it never raises nor blocks.

    The thread begins with the first line.  `dropped` counts the lines that were not written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        if path != STDERR:
            _check_place(Path(path))
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._untold = 0  # dropped since a line was written
        self._complained = False
        self._torn = False  # the file ends within a line
        self.dropped = 0

    def write(self, line: str) -> None:
        """Have a line written."""
        with self._changed:
            if self._closing or len(self._lines) >= MAX_WAITING:
                self._drop()
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Take no more lines, and wait at most `LAST_LINES_S` for those under way."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(LAST_LINES_S)

    def _drop(self) -> None:
        self.dropped += 1
        self._untold += 1

    def _run(self) -> None:
        """The thread: write one line after the other until there are no more to come."""
        while True:
            with self._changed:
                while not self._lines and not self._closing:
                    self._changed.wait()
                if not self._lines:
                    return
                line = self._lines.popleft()
                untold = self._untold
            try:
                if untold:
                    self._append(_lost(untold))
                    with self._changed:
                        self._untold -= untold
                self._append(line)
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        with self._changed:
            self._drop()
        if not self._complained:  # once: the log may be on the same full disk
            self._complained = True
            log.error("cannot write to %s: %s", self._path, error.strerror or error)

    def _append(self, line: str) -> None:
        """Write one line; OSError if that does not succeed as a whole."""
        if self._path == STDERR:
            self._put(2, line)
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_size >= MAX_FILE_BYTES:
                os.replace(self._path, f"{self._path}.1")
                os.close(descriptor)
                descriptor = -1
                descriptor = os.open(self._path, flags, 0o600)
                self._torn = False
            self._put(descriptor, line)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _put(self, descriptor: int, line: str) -> None:
        data = (("\n" if self._torn else "") + line + "\n").encode()
        done = 0
        while done < len(data):
            try:
                done += os.write(descriptor, data[done:])
            except BlockingIOError:  # a terminal or pipe that others set so
                time.sleep(0.01)
            except OSError:
                self._torn = self._torn or done > 0
                raise
        self._torn = False
        self._complained = False


def _lost(count: int) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "what": "lines dropped", "count": count})


def _check_place(path: Path) -> None:
    """`ConfigError` if nothing can ever be written there; a full disk may have room again."""
    if path.is_dir():
        raise ConfigError(f"audit_log {str(path)!r} is a directory")
    if not path.parent.is_dir():
        raise ConfigError(f"audit_log {str(path)!r} is in no directory that exists")
