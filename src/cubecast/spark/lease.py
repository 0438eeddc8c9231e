"""A lock on a file system that has none: an object that its owner keeps renewing.

pyarrow has no conditional write, so the lease is not a proof.  It guarantees, on a store whose
reads see the last complete write:

1. An owner that renews is never displaced: a sweep that finds a lease waits and watches it, and
   refuses as soon as it is renewed.
2. A lease that is not renewed for `LEASE_S` is taken over.  No clocks are compared: a watcher
   counts the time itself.
3. Of two that take a free lease at the same moment the one that wrote last has it, and the other
   refuses, if no write takes longer than `SETTLE_S`.  Slower writes may let both go on.
4. An owner that was displaced (it stood still for `LEASE_S`) notices at its next renewal, and
   writes no tables after that.

Two sweeps at once cost work and no results: cells with equal keys are equal, every file is whole,
and tables of two sweeps are told apart when they are read.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from cubecast.spark.errors import ResultsError

if TYPE_CHECKING:
    from cubecast.spark.storage import Held, Place

LEASE_S = 30.0
RENEW_S = 5.0
SETTLE_S = 1.0


@contextmanager
def lease(place: Place, name: str) -> Iterator[Held]:
    """Hold a place for the block."""
    mine = _Lease(place, name)
    mine.take()
    try:
        yield mine.require
    finally:
        mine.give_back()


class _Lease:
    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self._owner = uuid4().hex
        self._beat = 0
        self._lost = False
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> None:
        self._watch()
        self._write()
        time.sleep(SETTLE_S)
        since = time.monotonic()
        while (found := self._look()) is None and time.monotonic() - since < LEASE_S:
            time.sleep(RENEW_S / 5)  # a store may show it late
        if found is None or found.get("owner") != self._owner:
            raise self._taken(found)
        self._renewer.start()

    def _watch(self) -> None:
        """Wait until the present lease, if any, has not been renewed for its time."""
        seen, since = self._look(), time.monotonic()
        while seen is not None and time.monotonic() - since < LEASE_S:
            time.sleep(RENEW_S / 5)
            found = self._look()
            if found is not None and found != seen:
                raise self._taken(found)
            seen = found

    def _taken(self, found: dict[str, object] | None) -> ResultsError:
        from cubecast.spark.storage import taken

        return taken(self._place.name, str((found or {}).get("by", "")))

    def _look(self) -> dict[str, object] | None:
        """The content of the lease; {} if it is not valid."""
        try:
            found = json.loads(self._place.read(self._name))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self) -> None:
        by = f"process {os.getpid()} on {socket.gethostname()}"
        note = {"owner": self._owner, "by": by, "beat": self._beat}
        self._place.write(self._name, json.dumps(note).encode())
        self._beat += 1

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self._ended.wait(RENEW_S):
            with suppress(ResultsError):  # the store is out of reach; the time counts
                found = self._look()
                if found is not None and found.get("owner") != self._owner:
                    self._lost = True
                    return
                self._write()
                renewed = time.monotonic()
            self._lost = time.monotonic() - renewed > LEASE_S

    def require(self) -> None:
        """Raise `ResultsError` if another may have taken the lease."""
        if self._lost:
            raise ResultsError(
                f"the lock of {self._place.name} was lost to another sweep: what is finished is "
                "kept, and the same command goes on from there"
            )

    def give_back(self) -> None:
        self._ended.set()
        self._renewer.join()
        with suppress(ResultsError):
            found = self._look()
            if found is None or found.get("owner") == self._owner:
                self._place.delete(self._name)
