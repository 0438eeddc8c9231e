"""A stream of bytes cut into packets: what a connection reads into, and what is sealed in it."""

from __future__ import annotations

from typing import Protocol

from cubecast.net.wire.packets import ENVELOPE, FRAME, MAX_PACKET, PREFIX, SEALED, WireError

SEAL_BYTES = 128
"""A sealed packet or an envelope may be so much longer than the one in it."""
FIRST_ROOM = 8 * 1024
STEADY_ROOM = 256 * 1024
"""Receive buffer of a connection: a quiet one has the first, a busy one the second."""


def cut_packets(plain: bytes, limit: int, packets: list[tuple[int, bytes]]) -> None:
    """Append the packets that `plain` holds, each of them whole."""
    start, held = 0, len(plain)
    while start < held:
        if held - start < PREFIX.size:
            raise WireError("half a packet was sealed")
        length, kind = PREFIX.unpack_from(plain, start)
        end = start + 4 + length
        if not 1 <= length <= limit or end > held:
            raise WireError(f"a packet of {length} bytes in {held - start}")
        packets.append((kind, plain if length + 4 == held else plain[start:end]))
        start = end


class PacketOpener(Protocol):
    """Opens what the other end of a connection sealed; `WireError` for anything else."""

    def __call__(self, sealed: memoryview, /) -> bytes: ...
    def unwrap(self, body: memoryview, limit: int, /) -> bytes: ...


class PacketBuffer:
    """Cuts a stream of bytes into packets; between reads it holds one incomplete packet at most.

    A transport writes into `room()` and says how much by `filled`; bytes are copied once more,
    into their packet.  The buffer begins with `FIRST_ROOM` and doubles when a read fills it, up
    to `STEADY_ROOM`; beyond that only for a packet that is larger, as its bytes arrive (a claimed
    length reserves nothing), and only until that packet is complete.

    An incomplete packet is looked at again only when enough has come to complete it, and moved
    to the front once, so the work is linear in the bytes however they are cut.

    An envelope is opened where it was read, and copied only if it is relayed: its bytes stay in
    place until the buffer is used again.
    """

    __slots__ = ("_cut", "_held", "_memory", "_needed", "_view", "limit")

    def __init__(self, limit: int = MAX_PACKET) -> None:
        self._held = 0
        self._cut = 0  # where packets end whose bytes are to stay in place for now
        self._needed = PREFIX.size
        self.limit = limit
        self._memory = bytearray(FIRST_ROOM)
        self._view = memoryview(self._memory)

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._cut:
            self._drop(self._cut)
        if self._held == len(self._memory):
            self._resize(2 * self._held)
        return self._view[self._held :]

    def head(self, count: int) -> bytes:
        """The first bytes that are held, `count` at most."""
        if self._cut:
            self._drop(self._cut)
        return bytes(self._memory[: min(count, self._held)])

    def filled(self, count: int) -> None:
        """So many bytes were written to the beginning of `room()`."""
        self._held += count

    def packets(self) -> list[tuple[int, bytes]]:
        """The packets (kind, whole packet) that are complete."""
        if self._cut:
            self._drop(self._cut)
        held = self._held
        if held < self._needed:
            return []
        memory, view, limit = self._memory, self._view, self.limit
        packets: list[tuple[int, bytes]] = []
        start = 0
        needed = PREFIX.size
        while held - start >= PREFIX.size:
            length, kind = PREFIX.unpack_from(memory, start)
            if not 1 <= length <= limit:
                raise WireError(f"a packet of {length} bytes")
            end = start + 4 + length
            if end > held:
                needed = 4 + length
                break
            packets.append((kind, view[start:end].tobytes()))
            start = end
        self._needed = needed
        if start:
            self._drop(start)
        return packets

    def records(self, opener: PacketOpener) -> list[tuple[int, bytes]]:
        """The packets in the sealed packets and envelopes that are complete."""
        if self._cut:
            self._drop(self._cut)
        held = self._held
        if held < self._needed:
            return []
        packets: list[tuple[int, bytes]] = []
        start = 0
        enveloped = False
        needed = PREFIX.size
        while held - start >= PREFIX.size:
            length, kind = PREFIX.unpack_from(self._memory, start)
            if not 1 <= length <= self.limit + SEAL_BYTES:
                raise WireError(f"a packet of {length} bytes")
            end = start + 4 + length
            if end > held:
                needed = 4 + length
                break
            body = self._view[start + PREFIX.size : end]
            if kind == SEALED:
                cut_packets(opener(body), self.limit, packets)
            elif kind == ENVELOPE:
                packets.append((FRAME, opener.unwrap(body, self.limit)))
                enveloped = True
            else:
                raise WireError(f"a packet of kind {kind} that is not sealed")
            start = end
        self._needed = needed
        if enveloped and not self._shrinks(start):
            self._cut = start
        elif start:
            self._drop(start)
        return packets

    def first(self) -> tuple[int, bytes] | None:
        """The first packet only; what follows stays, to be cut when `limit` may be another."""
        if self._cut:
            self._drop(self._cut)
        if self._held < PREFIX.size:
            return None
        length, kind = PREFIX.unpack_from(self._memory)
        if not 1 <= length <= self.limit:
            raise WireError(f"a packet of {length} bytes")
        end = 4 + length
        if end > self._held:
            return None
        packet = self._view[:end].tobytes()
        self._needed = PREFIX.size
        self._drop(end)
        return kind, packet

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The packets that `data` completes, for callers that have bytes and no transport."""
        packets: list[tuple[int, bytes]] = []
        with memoryview(data) as rest:
            start = 0
            while start < len(rest):
                room = self.room()
                piece = rest[start : start + len(room)]
                room[: len(piece)] = piece
                self.filled(len(piece))
                packets += self.packets()
                start += len(piece)
        return packets

    def _shrinks(self, cut: int) -> bool:
        """Whether the memory is given back when the bytes before `cut` are gone."""
        return len(self._memory) > STEADY_ROOM > 2 * (self._held - cut)

    def _drop(self, cut: int) -> None:
        """Move what lies behind the cut to the front, and choose the size of the next read.

        Memory that is given back keeps its bytes for the views of it that there are.
        """
        self._cut = 0
        held, room = self._held, len(self._memory)
        if self._shrinks(cut):
            self._resize(STEADY_ROOM, cut)
        elif held == room < STEADY_ROOM:
            self._resize(2 * room, cut)
        else:
            self._held = held - cut
            if self._held:
                self._view[: self._held] = self._view[cut:held]

    def _resize(self, size: int, start: int = 0) -> None:
        """Go on in memory of `size` bytes, with what is held from `start` on.

        Nothing is resident before bytes are written to it.
        """
        memory = bytearray(size)
        view = memoryview(memory)
        held = self._held - start
        view[:held] = self._view[start : self._held]
        self._memory, self._view, self._held = memory, view, held
