"""Writes of one node, gathered: one system call per connection for a burst of packets."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Writer(Protocol):
    """What has gathered packets to write."""

    def flush(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


class Writes:
    """Who has something to write, and when it is written.

    What a node sends in answer to one read, or for one frame it publishes, is a *burst*: written
    when the burst ends, before the application gets to work on what was delivered, so a relay
    costs those below it as little time as possible.  What is sent outside of a burst is written
    at the end of the tick.
    """

    __slots__ = ("_in_burst", "_loop", "_planned", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Writer] = []
        self._in_burst = False
        self._planned = False

    def add(self, writer: Writer) -> None:
        """A connection has its first packet to write."""
        self._waiting.append(writer)
        if not self._in_burst and not self._planned:
            self._planned = True
            self._loop.call_soon(self._end_of_tick)

    def begin(self) -> None:
        """A burst begins; whoever calls this calls `end`, whatever happens."""
        self._in_burst = True

    def end(self) -> None:
        """The burst is over: write everything.  Bursts do not nest; the inner end ends both."""
        self._in_burst = False
        if self._waiting:
            self.flush()

    def _end_of_tick(self) -> None:
        self._planned = False
        self.flush()

    def flush(self) -> None:
        """Write what everyone has gathered; one that fails keeps nobody else from writing."""
        waiting, self._waiting = self._waiting, []
        for writer in waiting:
            try:
                writer.flush()
            except Exception as error:
                writer.failed(error)
