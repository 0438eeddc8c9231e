"""Writes of one node, gathered: one system call per connection for a burst of packets."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cubecast.net.security.envelopes import Envelopes


class Writer(Protocol):
    """A connection that gathers packets to write."""

    def flush(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


class Writes:
    """The connections with packets to write, written in bursts.

    What a node sends in answer to one read, or for one frame it publishes, is a *burst*: written
    when the burst ends, before the application handles what was delivered, so that a relay costs
    the nodes below it as little time as possible.  What is sent outside of a burst is written at
    the end of the tick.
    """

    __slots__ = ("_in_burst", "_loop", "_planned", "_waiting", "envelopes")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Writer] = []
        self._in_burst = False
        self._planned = False
        self.envelopes = Envelopes()
        """Sealed frames that connections read and write in this burst."""

    def add(self, writer: Writer) -> None:
        """A connection has its first packet to write."""
        self._waiting.append(writer)
        self._plan()

    def share(self, packet: bytes) -> None:
        """Several connections are about to write this packet: with a secret it is sealed once."""
        self.envelopes.share(packet)
        self._plan()

    def _plan(self) -> None:
        if not self._in_burst and not self._planned:
            self._planned = True
            self._loop.call_soon(self._end_of_tick)

    def begin(self) -> None:
        """Begin a burst; the caller calls `end`, also after an exception."""
        self._in_burst = True

    def end(self) -> None:
        """End the burst and write everything.  Bursts do not nest; the inner end ends both."""
        self._in_burst = False
        if self._waiting:
            self.flush()
        else:
            self.envelopes.clear()

    def _end_of_tick(self) -> None:
        self._planned = False
        self.flush()

    def flush(self) -> None:
        """Flush all writers; one that fails does not keep the others from writing."""
        waiting, self._waiting = self._waiting, []
        try:
            for writer in waiting:
                try:
                    writer.flush()
                except Exception as error:
                    writer.failed(error)
        finally:
            self.envelopes.clear()
