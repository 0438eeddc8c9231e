"""Noise_NNpsk0_25519_AESGCM_SHA256: a handshake by a shared key, and what seals packets after it.

The Noise Protocol Framework (revision 34) says what each step does; its names are kept here.  Both
sides know a key of 32 bytes, the *psk*.  The pattern is ``NNpsk0: -> psk, e; <- e, ee``:

1. Only a holder of the psk can read a message, and only as the answer to what came before it, the
   *prologue* included: everything that both sides agree on beforehand.
2. The keys of the transport come from both ephemeral keys: a psk that becomes known later opens
   nothing that was recorded.
3. An attacker that recorded the first message can send it again.  So the dialled side knows that
   the dialler is there only when it opens something sealed.

`tests/net/security/test_noise.py` holds this module to published vectors.
"""

from __future__ import annotations

import hashlib
import hmac
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PROTOCOL = b"Noise_NNpsk0_25519_AESGCM_SHA256"
KEY_BYTES = 32
TAG_BYTES = 16
"""What sealing adds."""
REKEY_BYTES = 1 << 34
REKEY_MESSAGES = 1 << 20
"""A key of the transport is replaced after so much: far below what AES-GCM bears."""

_nonce = Struct(">IQ").pack
_REKEY_NONCE = _nonce(0, (1 << 64) - 1)
"""The counter that no message has: Noise keeps it for new keys (section 4.2)."""


class Broken(Exception):
    """A message was not sealed with the key, or was changed, or is not the next one."""


class CipherState:
    """One direction: each message under the next number, so that none can be left out or repeated.

    Both ends count alike, so they take a new key at the same message.
    """

    __slots__ = ("_cipher", "_number", "_sealed", "_since")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._number = 0
        self._since = 0  # the number of the first message under this key
        self._sealed = 0  # bytes under this key

    def seal(self, plain: bytes, ad: bytes | None = None) -> bytes:
        """The next message, sealed for the other end alone."""
        sealed = self._cipher.encrypt(_nonce(0, self._number), plain, ad)
        self._count(len(plain))
        return sealed

    def open(self, sealed: bytes | memoryview, ad: bytes | None = None) -> bytes:
        """What the other end sealed as its next message; `Broken` if this is not it."""
        try:
            plain = self._cipher.decrypt(_nonce(0, self._number), sealed, ad)
        except (InvalidTag, ValueError) as error:
            raise Broken("a message that does not open") from error
        self._count(len(plain))
        return plain

    def _count(self, size: int) -> None:
        self._number += 1
        self._sealed += size
        if self._sealed >= REKEY_BYTES or self._number - self._since >= REKEY_MESSAGES:
            self._rekey()

    def _rekey(self) -> None:
        key = self._cipher.encrypt(_REKEY_NONCE, bytes(KEY_BYTES), None)[:KEY_BYTES]
        self._cipher = AESGCM(key)
        self._since = self._number
        self._sealed = 0


class NoiseHandshake:
    """One side of the handshake: `write` and `read` in turn, the initiator first; then `split`.

    `ephemeral` is for the test vectors alone: no other caller may choose that key.
    """

    def __init__(
        self,
        initiator: bool,
        psk: bytes,
        prologue: bytes,
        *,
        ephemeral: X25519PrivateKey | None = None,
    ) -> None:
        if len(psk) != KEY_BYTES:
            raise ValueError(f"a psk has {KEY_BYTES} bytes, not {len(psk)}")
        self._initiator = initiator
        self._psk = psk
        self._ephemeral = X25519PrivateKey.generate() if ephemeral is None else ephemeral
        self._remote: X25519PublicKey | None = None
        # The name has exactly 32 bytes, so it is the first hash as it is (section 5.2).
        self._hash = self._chaining = PROTOCOL
        self._cipher: CipherState | None = None
        self._mix_hash(prologue)

    @property
    def hash(self) -> bytes:
        """The hash of all messages so far: the same at both ends, and in no other handshake."""
        return self._hash

    def write(self, payload: bytes) -> bytes:
        """Our message."""
        if self._initiator:
            self._mix_psk()
        own = self._ephemeral.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._mix_ephemeral(own)
        if not self._initiator:
            self._mix_shared()
        assert self._cipher is not None
        sealed = self._cipher.seal(payload, self._hash)
        self._mix_hash(sealed)
        return own + sealed

    def read(self, message: bytes) -> bytes:
        """The payload of the other side's message; `Broken` if it has another psk or prologue."""
        if len(message) < KEY_BYTES + TAG_BYTES:
            raise Broken(f"a handshake message of {len(message)} bytes")
        if not self._initiator:
            self._mix_psk()
        theirs = message[:KEY_BYTES]
        self._remote = X25519PublicKey.from_public_bytes(theirs)
        self._mix_ephemeral(theirs)
        if self._initiator:
            self._mix_shared()
        assert self._cipher is not None
        payload = self._cipher.open(message[KEY_BYTES:], self._hash)
        self._mix_hash(message[KEY_BYTES:])
        return payload

    def split(self) -> tuple[CipherState, CipherState]:
        """What seals our messages, and what opens theirs."""
        first, second = self._derive(b"", 2)
        ours, theirs = (first, second) if self._initiator else (second, first)
        return CipherState(ours), CipherState(theirs)

    # -- the symmetric state -----------------------------------------------------------------------

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _mix_key(self, material: bytes) -> None:
        self._chaining, key = self._derive(material, 2)
        self._cipher = CipherState(key)

    def _mix_psk(self) -> None:
        self._chaining, hashed, key = self._derive(self._psk, 3)
        self._mix_hash(hashed)
        self._cipher = CipherState(key)

    def _mix_ephemeral(self, public: bytes) -> None:
        """In patterns with a psk an ephemeral key is a key as well (section 9.2)."""
        self._mix_hash(public)
        self._mix_key(public)

    def _mix_shared(self) -> None:
        assert self._remote is not None
        try:
            self._mix_key(self._ephemeral.exchange(self._remote))
        except ValueError as error:  # a point of low order: all zeros
            raise Broken("an ephemeral key that is none") from error

    def _derive(self, material: bytes, count: int) -> list[bytes]:
        """HKDF of the framework (section 4.3)."""
        root = hmac.digest(self._chaining, material, "sha256")
        keys: list[bytes] = []
        for number in range(1, count + 1):
            before = keys[-1] if keys else b""
            keys.append(hmac.digest(root, before + bytes((number,)), "sha256"))
        return keys
