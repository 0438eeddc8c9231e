"""A trace that survives the sudden end of its process.

What others may have seen of a process must be in its trace, or the merged trace would show
deliveries of messages that nobody published.  So:

1. Records leave the process with ``write(2)`` before the packets of the same burst do.  What the
   kernel has been given it keeps, however the process ends.
2. A write that the end of the process cuts short leaves half a line at the end of the file.
   Nothing that was to follow it was sent; `mend` cuts it off.

Deliveries that were recorded and not yet written are lost with the process.  Nobody saw them.
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
    """What a node records, until `save` has written it to the end of a file."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__()
        self._encoder = msgspec.json.Encoder()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self.replies: dict[tuple[str, int], MessageId] = {}
        """What a publication of ours answers, by topic and number, until it is written."""
        self._write(encode_header(header) + b"\n")

    def save(self) -> None:
        """Give the kernel what there is; called when nobody holds a position in the list."""
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
        """The trace ends here, whatever the node still does."""
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
    """Cut off half a line at the end of the trace of a process that is no more."""
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
