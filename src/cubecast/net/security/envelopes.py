"""Envelopes: frames that pass through a node, sealed once for all connections that carry them.

A frame's packet is the same on every link of its tree.  So the first node that sends it to several
others seals it under a key that is drawn for it.  Each connection carries that key, sealed like any
packet (`sealing.py`), and then the sealed frame.  A node that relays the frame sends the same bytes
on, so a frame for n nodes is sealed once and opened n times, not sealed and opened n times.

1. A key and its nonce seal one packet, ever.  Both are random, so what is known of one packet says
   nothing of any other, however many there are.
2. Key and nonce are sealed under the connection's own key and number.  An envelope that is
   changed, left out, repeated or moved does not open, as with any sealed packet, with one
   exception: that seal binds the key, not the frame.  A node that gets the frame has its key.  If
   it also is on the way between two other nodes, it can exchange the frame that passes there.  It
   is a member then, which is trusted with frames that it relays (docs/security.md).
3. An envelope is kept until the end of the burst in which it came or was written, so the table is
   bounded by what one burst reads and writes.  Until then it stays in the buffer that it was read
   into, and is copied only if it is sent on.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cubecast.net.security.noise import TAG_BYTES, Broken

ENVELOPE_BYTES = 16 * 1024
"""Smaller packets are sealed for each connection: that costs less than a key of their own."""
KEY_BYTES = 16
"""AES-128: 128 bits, and a quarter faster than AES-256, which connections use."""
NONCE_BYTES = 12
LOCK_BYTES = KEY_BYTES + NONCE_BYTES + TAG_BYTES
"""The key and the nonce of an envelope, sealed for a connection."""


class Envelope(NamedTuple):
    """A packet, the secret (key and nonce) that it has to itself, and the packet sealed by it."""

    packet: bytes
    secret: bytes
    sealed: bytes | memoryview


def seal_envelope(packet: bytes) -> Envelope:
    """Seal a packet under a key of its own."""
    secret = os.urandom(KEY_BYTES + NONCE_BYTES)
    sealed = AESGCM(secret[:KEY_BYTES]).encrypt(secret[KEY_BYTES:], packet, None)
    return Envelope(packet, secret, sealed)


def open_envelope(secret: bytes, sealed: bytes | memoryview) -> bytes:
    """The packet that was sealed by `secret`; `Broken` if it was another one."""
    try:
        return AESGCM(secret[:KEY_BYTES]).decrypt(secret[KEY_BYTES:], sealed, None)
    except (InvalidTag, ValueError) as error:
        raise Broken("an envelope that does not open") from error


class Envelopes:
    """The envelopes of one node in this burst, by the identity of their packets."""

    __slots__ = ("_kept", "_shared")

    def __init__(self) -> None:
        self._kept: dict[int, Envelope] = {}  # holds the packets, so no id is used twice
        self._shared: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._kept) + len(self._shared)

    def share(self, packet: bytes) -> None:
        """Seal this packet once: several connections are about to write it in this burst."""
        if len(packet) >= ENVELOPE_BYTES:
            self._shared[id(packet)] = packet

    def keep(self, envelope: Envelope) -> None:
        """Send this envelope on, as it came, if its packet is written in this burst.

        Its bytes are where they are until `clear`.
        """
        self._kept[id(envelope.packet)] = envelope

    def of(self, packet: bytes) -> Envelope | None:
        """The envelope of a packet; None if the packet has none, and a seal is for it alone."""
        name = id(packet)
        envelope = self._kept.get(name)
        if envelope is not None:
            if isinstance(envelope.sealed, memoryview):
                envelope = self._kept[name] = envelope._replace(sealed=bytes(envelope.sealed))
        elif name in self._shared:
            envelope = self._kept[name] = seal_envelope(packet)
        return envelope

    def clear(self) -> None:
        """The burst is over."""
        if self._kept:
            self._kept.clear()
        if self._shared:
            self._shared.clear()
