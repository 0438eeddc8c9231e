"""Large packets in parts: cut here, put together at the other end.

Members' reports on the dead, a returning node's progress and the answer to a JOIN have no small
bound.  A packet above `MAX_PACKET` is cut into *parts*, packets of their own; they go over one
connection, in order.  A lost part (with the connection, or by a fault) is not asked for again: the
sender repeats such a message until it is answered.

Invariants:

1. A node keeps the parts of one packet per connection, and `MAX_HELD` bytes for all connections
   with members together; beyond that, the packet begun first is given up.  Parts of strangers are
   kept apart, `MAX_WHOLE` bytes of them, so they push out no member's.  Nothing is reserved for a
   size that is only claimed.
2. A packet comes out whole or not at all: its parts follow each other without a hole.  A part that
   does not continue what is held gives it up, and is skipped; one that begins another packet begins
   it.
3. A completed packet is of a kind that may be large, and exactly as long as it says.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from struct import Struct
from struct import error as StructError

from cubecast.net.wire.packets import CONTROL, FORWARD, MAX_PACKET, PART, PREFIX, VIEW, WireError

MAX_WHOLE = 64 * 1024 * 1024
"""Bytes of a packet that goes in parts."""
MAX_HELD = 2 * MAX_WHOLE
"""Bytes of incomplete packets that a node keeps, of all members together."""
PART_BYTES = 1024 * 1024
"""Of each part but the last; so the number of parts is bounded as well."""
LARGE = frozenset((CONTROL, VIEW, FORWARD))
"""Kinds that may go in parts."""

PART_HEADER = Struct("<III")
"""number of the whole packet on this connection, its bytes, and where this part begins in it"""


def fits(packet: bytes) -> bool:
    """Whether a packet may be sent as it is."""
    return len(packet) <= 4 + MAX_PACKET


def cut(packet: bytes, number: int) -> Iterator[bytes]:
    """The parts of a large packet."""
    total = len(packet)
    if total > MAX_WHOLE:
        raise WireError(f"a packet of {total} bytes is larger than {MAX_WHOLE}")
    for start in range(0, total, PART_BYTES):
        piece = packet[start : start + PART_BYTES]
        header = PART_HEADER.pack(number, total, start)
        yield PREFIX.pack(1 + len(header) + len(piece), PART) + header + piece


class _Gathering:
    """The parts of one packet that have come."""

    __slots__ = ("held", "number", "pieces", "total")

    def __init__(self, number: int, total: int) -> None:
        self.number = number
        self.total = total
        self.pieces: list[bytes] = []
        self.held = 0


class Parts:
    """Puts parts together, for all connections of a node with members, or with strangers."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._gatherings: dict[Hashable, _Gathering] = {}  # by connection, oldest first
        self.held = 0
        """Bytes of all incomplete packets."""

    def take(self, connection: Hashable, raw: bytes) -> tuple[int, bytes] | None:
        """One more part; the kind and the whole packet that it completes."""
        number, total, start, piece = self._read(raw)
        gathering = self._gatherings.get(connection)
        if start == 0:
            self.drop(connection)
            gathering = self._gatherings[connection] = _Gathering(number, total)
        if gathering is None:
            return None
        if (gathering.number, gathering.total, gathering.held) != (number, total, start):
            self.drop(connection)
            return None
        gathering.pieces.append(piece)
        gathering.held += len(piece)
        self.held += len(piece)
        if gathering.held == total:
            self.drop(connection)
            return self._whole(b"".join(gathering.pieces))
        while self.held > (MAX_HELD if self._limit is None else self._limit):
            self.drop(next(iter(self._gatherings)))
        return None

    def drop(self, connection: Hashable) -> None:
        """Give up the incomplete packet of a connection."""
        gathering = self._gatherings.pop(connection, None)
        if gathering is not None:
            self.held -= gathering.held

    def _read(self, raw: bytes) -> tuple[int, int, int, bytes]:
        try:
            number, total, start = PART_HEADER.unpack_from(raw, PREFIX.size)
        except StructError as error:
            raise WireError(f"broken part: {error}") from error
        piece = raw[PREFIX.size + PART_HEADER.size :]
        if total > MAX_WHOLE or start >= total or len(piece) != min(PART_BYTES, total - start):
            raise WireError(f"broken part: {len(piece)} bytes at {start} of {total}")
        return number, total, start, piece

    def _whole(self, packet: bytes) -> tuple[int, bytes]:
        if len(packet) < PREFIX.size:
            raise WireError(f"broken part: a packet of {len(packet)} bytes")
        length, kind = PREFIX.unpack_from(packet)
        if 4 + length != len(packet) or kind not in LARGE:
            raise WireError(f"broken part: a packet of kind {kind}, {length} bytes")
        return kind, packet
