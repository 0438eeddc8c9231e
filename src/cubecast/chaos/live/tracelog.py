"""A trace that survives the sudden end of its process.

Everything that other nodes may have seen of a process must be in its trace, or the merged trace
would show deliveries of messages that were never published.  So:

1. Records leave the process with ``write(2)`` before the packets of the same burst do.  The kernel
   keeps written data, however the process ends.
2. A write that the end of the process cuts short leaves half a line at the end of the file.
   No packet that was to follow it was sent; `mend` cuts it off.

Deliveries that were recorded and not yet written are lost with the process.  No node saw them.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cubecast.net.links.writes import Writes
from cubecast.trace import Header, MessageId, Record
from cubecast.trace.files import encode_header

BACKWARDS_BYTES = 1 << 16


class TraceLog(list[Record]):
    """The records of a node, until `save` has appended them to a file."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__()
        self._encoder = msgspec.json.Encoder()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self.replies: dict[tuple[str, int], MessageId] = {}
        """The message that our publication answers, by topic and number, until it is written."""
        self._write(encode_header(header) + b"\n")

    def save(self) -> None:
        """Write all records to the file; called when no caller holds a position in the list."""
        if not self:
            return
        if self.replies:
            self[:] = [self._with_reply(record) for record in self]
        self._write(self._encoder.encode_lines(self))
        self.clear()

    def _with_reply(self, record: Record) -> Record:
        if record.kind != "publish":
            return record
        question = self.replies.pop((record.topic, record.seq), None)
        if question is None:
            return record
        return msgspec.structs.replace(record, reply_to=(question,))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        """End the trace here; later records of the node are dropped."""
        self.save()
        os.close(self._file)
        self._file = os.open(os.devnull, os.O_WRONLY)


class RecordedWrites(Writes):
    """Writes of a node whose trace goes first; given to its `Shell`."""

    __slots__ = ("_log",)

    def __init__(self, log: TraceLog) -> None:
        super().__init__()
        self._log = log

    def flush(self) -> None:
        self._log.save()
        super().flush()


def mend(path: Path) -> None:
    """Cut off half a line at the end of the trace of a process that has ended."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - BACKWARDS_BYTES)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                file.truncate(begin + newline + 1)
                return
            end = begin
        file.truncate(0)
