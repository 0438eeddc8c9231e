"""Writes the product of a command to stdout by a thread of its own.

An unread pipe, or a held terminal, blocks that thread and not the event loop: the client still
answers its node, and Ctrl-C still ends it.  At most `MOST_WAITING` bytes wait here and one message
more; then `put` waits, and the policy of the subscription decides at the node what happens to the
rest.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable

import cubecast

MOST_WAITING = 256 * 1024
STUCK_S = 1.0
"""A command that is to end goes on writing until nothing is written for this long."""


class Printer:
    """Bytes to a descriptor; made in the event loop.  `failed` is called there, at most once."""

    def __init__(self, descriptor: int, failed: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._writing = 0
        self._ended = False
        self._stopped = False
        self._error: OSError | None = None
        threading.Thread(target=self._work, name="cubecast stdout", daemon=True).start()

    async def put(self, data: bytes) -> None:
        """Queue bytes for writing; return when there is room for more."""
        with self._changed:
            self._waiting += data
            self._changed.notify()
        while self._left() > MOST_WAITING and not self._stopped and self._error is None:
            self._moved.clear()
            await self._moved.wait()

    def stop(self) -> None:
        """Stop: `put` waits no longer, and `close` only while bytes are written."""
        self._stopped = True
        self._moved.set()

    async def close(self) -> None:
        """Write the remaining bytes; raise the first error of any write."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        while self._error is None and (left := self._left()):
            self._moved.clear()
            try:
                async with asyncio.timeout(STUCK_S if self._stopped else None):
                    await self._moved.wait()
            except TimeoutError:
                if self._left() == left:
                    return
        if self._error is None:
            return
        if self._error.errno == errno.EPIPE:  # the reader of our output has gone: no error
            raise self._error
        reason = self._error.strerror or str(self._error)
        raise cubecast.CubecastError(f"cannot write to stdout: {reason}")

    def _left(self) -> int:
        """Bytes that are not written."""
        with self._changed:
            return len(self._waiting) + self._writing

    # -- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if not self._waiting:
                    return
                data = bytes(self._waiting)
                self._waiting.clear()
                self._writing = len(data)
            try:
                self._write(data)
            except OSError as error:
                self._error = error
                self._tell(self._failed)
                self._tell(self._moved.set)
                return

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                count = os.write(self._descriptor, rest)
            except BlockingIOError:  # another process made it non-blocking
                with self._changed:
                    self._changed.wait(0.01)
                continue
            rest = rest[count:]
            with self._changed:
                self._writing = len(rest)
            self._tell(self._moved.set)

    def _tell(self, what: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop has ended: no `put` waits
            return
