"""Packets of one connection, sealed: what was written at once is sealed at once.

A sealed packet (kind `SEALED`) carries whole packets, one after the other.  Its number on the
connection is in what seals it (`CipherState`), so a packet that is changed, left out, repeated or
moved does not open, and the connection ends.

A large frame that goes to several nodes is in an `ENVELOPE` instead: its key, sealed in the same
way under the next number, and the frame under that key (`envelopes.py`).
"""

from __future__ import annotations

from typing import TypeAlias

from cubecast.net.security.envelopes import LOCK_BYTES, Envelope, Envelopes, open_envelope
from cubecast.net.security.noise import TAG_BYTES, Broken, CipherState
from cubecast.net.wire.packets import ENVELOPE, FRAME, PREFIX, SEALED, WireError

Sealed: TypeAlias = bytes | memoryview

_BROKEN = "a packet that does not open: changed, repeated or left out"

ALONE_BYTES = 8 * 1024
"""A packet of so many bytes has a seal to itself: one more seal costs less than copying it."""
RECORD_BYTES = 64 * 1024
"""Smaller packets share a seal up to this."""


def lock(envelope: Envelope, cipher: CipherState) -> bytes:
    """What goes before a sealed frame on a connection: length, kind, and the frame's key."""
    length = 1 + LOCK_BYTES + len(envelope.sealed)
    return PREFIX.pack(length, ENVELOPE) + cipher.seal(envelope.secret)


class Sealer:
    """Seals what one end writes."""

    __slots__ = ("_begun", "_cipher", "_envelopes")

    def __init__(self, cipher: CipherState, envelopes: Envelopes) -> None:
        self._cipher = cipher
        self._envelopes = envelopes
        self._begun = False

    def records(self, packets: list[bytes]) -> list[Sealed]:
        """What to write for `packets`.

        The very first packet goes alone: until it has come, the other end takes small ones only.
        """
        if not packets:
            return []
        written: list[Sealed] = []
        start = 0
        if not self._begun:
            self._begun = True
            self._seal(packets[:1], written)
            start = 1
        size = 0
        for index in range(start, len(packets)):
            more = len(packets[index])
            alone = more >= ALONE_BYTES
            if start < index and (alone or size + more > RECORD_BYTES):
                self._seal(packets[start:index], written)
                start, size = index, 0
            if alone:
                self._seal_alone(packets[index], written)
                start = index + 1
            else:
                size += more
        if start < len(packets):
            self._seal(packets[start:], written)
        return written

    def _seal_alone(self, packet: bytes, written: list[Sealed]) -> None:
        envelope = self._envelopes.of(packet)
        if envelope is None:
            self._seal([packet], written)
            return
        written += lock(envelope, self._cipher), envelope.sealed

    def _seal(self, packets: list[bytes], written: list[Sealed]) -> None:
        plain = packets[0] if len(packets) == 1 else b"".join(packets)
        written.append(PREFIX.pack(1 + len(plain) + TAG_BYTES, SEALED))
        written.append(self._cipher.seal(plain))


class Opener:
    """Opens what the other end sealed."""

    __slots__ = ("_cipher", "_envelopes")

    def __init__(self, cipher: CipherState, envelopes: Envelopes) -> None:
        self._cipher = cipher
        self._envelopes = envelopes

    def __call__(self, sealed: bytes | memoryview) -> bytes:
        """The packets in a sealed packet, one after the other."""
        try:
            return self._cipher.open(sealed)
        except Broken:
            raise WireError(_BROKEN) from None

    def unwrap(self, body: memoryview, limit: int) -> bytes:
        """The frame in an envelope; one that is longer than `limit` is refused unopened.

        A node could not relay such a frame: the nodes below would close their connections to it.
        """
        length = len(body) - LOCK_BYTES - TAG_BYTES - 4
        if length > limit:
            raise WireError(f"a packet of {length} bytes in an envelope")
        try:
            secret = self._cipher.open(body[:LOCK_BYTES])
            sealed = body[LOCK_BYTES:]
            packet = open_envelope(secret, sealed)
        except Broken:
            raise WireError(_BROKEN) from None
        if len(packet) < PREFIX.size or PREFIX.unpack_from(packet) != (len(packet) - 4, FRAME):
            raise WireError("an envelope that holds no frame")
        self._envelopes.keep(Envelope(packet, secret, sealed))
        return packet
