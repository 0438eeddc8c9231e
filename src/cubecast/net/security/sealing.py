"""Packets of one connection, sealed: what was written at once is sealed at once.

A sealed packet (kind `SEALED`) carries whole packets, one after the other.  Its number on the
connection is in what seals it (`CipherState`), so a packet that is changed, left out, repeated or
moved does not open, and the connection ends.
"""

from __future__ import annotations

from cubecast.net.security.noise import TAG_BYTES, Broken, CipherState
from cubecast.net.wire.packets import PREFIX, SEALED, WireError

ALONE_BYTES = 8 * 1024
"""A packet of so many bytes has a seal to itself: one more seal costs less than copying it."""
RECORD_BYTES = 64 * 1024
"""Smaller packets share a seal up to this."""


class Sealer:
    """Seals what one end writes."""

    __slots__ = ("_begun", "_cipher")

    def __init__(self, cipher: CipherState) -> None:
        self._cipher = cipher
        self._begun = False

    def records(self, packets: list[bytes]) -> list[bytes]:
        """What to write for `packets`.

        The very first packet goes alone: until it has come, the other end takes small ones only.
        """
        if not packets:
            return []
        written: list[bytes] = []
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
                self._seal(packets[index : index + 1], written)
                start = index + 1
            else:
                size += more
        if start < len(packets):
            self._seal(packets[start:], written)
        return written

    def _seal(self, packets: list[bytes], written: list[bytes]) -> None:
        plain = packets[0] if len(packets) == 1 else b"".join(packets)
        written.append(PREFIX.pack(1 + len(plain) + TAG_BYTES, SEALED))
        written.append(self._cipher.seal(plain))


class Opener:
    """Opens what the other end sealed."""

    __slots__ = ("_cipher",)

    def __init__(self, cipher: CipherState) -> None:
        self._cipher = cipher

    def __call__(self, sealed: bytes | memoryview) -> bytes:
        try:
            return self._cipher.open(sealed)
        except Broken:
            raise WireError("a packet that does not open: changed, repeated or left out") from None
