"""Keys from secrets: proof of the right to connect as a member, or as a light client.

1. A secret is never a key itself.  It is stretched (`scrypt`: about 0.1 s and 32 MiB for one guess)
   with a salt that belongs to the cluster, so that guesses made for one cluster help with no other.
   A node in no cluster takes the salt of the node it dials, and an impostor there may choose it.
2. The keys of members and of clients differ, also where both come from one secret: a client's
   handshake is not valid as a member's.
3. A client of a name has a token of its own, which is random and long, and needs no stretching.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

Purpose: TypeAlias = Literal["member", "client"]
"""What a connection is for: to be of the cluster, or to be served by a node of it."""

MIN_SECRET = 12
"""Characters; docs/security.md says how to choose them."""
MIN_TOKEN = 32
"""Characters of a client's token."""
SALT_BYTES = 16

SCRYPT_COST = 1 << 15
SCRYPT_BLOCKS = 8
_MEMORY = 2 * 128 * SCRYPT_COST * SCRYPT_BLOCKS


def new_secret() -> str:
    """A secret, or a token, that cannot be guessed."""
    return secrets.token_urlsafe(32)


def check_secret(name: str, secret: str) -> None:
    """`ValueError` if a secret is too short, or cannot be written as bytes; `TypeError` if it is
    no text."""
    if not isinstance(secret, str):
        advice = f": give {name}.decode()" if isinstance(secret, bytes) else ""
        raise TypeError(f"{name} must be a str, not {type(secret).__name__}{advice}")
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not text: it has bytes that are not UTF-8") from None
    if secret and len(secret) < MIN_SECRET:
        raise ValueError(
            f"{name} has {len(secret)} characters and must have at least {MIN_SECRET}: "
            "`cubecast secret` makes one"
        )


@lru_cache(maxsize=64)
def salt_of(cluster: str) -> str:
    """The salt of a cluster, in hexadecimal; it does not reveal the cluster's name."""
    return hashlib.sha256(f"cubecast salt {cluster}".encode()).digest()[:SALT_BYTES].hex()


@lru_cache(maxsize=16)
def _stretched(secret: str, salt: str) -> bytes:
    return hashlib.scrypt(
        secret.encode(),
        salt=bytes.fromhex(salt),
        n=SCRYPT_COST,
        r=SCRYPT_BLOCKS,
        p=1,
        maxmem=_MEMORY,
        dklen=32,
    )


class Keys:
    """The secrets that one node, or one client, knows.

    A node reads the `tokens` of its clients whenever one comes, so they may change.
    """

    def __init__(
        self,
        secret: str = "",
        client_secret: str = "",
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self._secret = secret
        self._client_secret = client_secret or secret
        self.tokens: Mapping[str, str] = {} if tokens is None else tokens
        self._decoy = new_secret()

    def sealed(self, purpose: Purpose, name: str) -> bool:
        """Whether connections for a purpose need a key."""
        if purpose == "member":
            return bool(self._secret)
        return bool(name or self._client_secret)

    def key(self, purpose: Purpose, name: str, salt: str) -> bytes:
        """The psk for a purpose; for an unknown name, one that no client has."""
        if name and purpose == "client":
            token = self.tokens.get(name) or self._decoy
            return hmac.digest(bytes.fromhex(salt), f"token {name} {token}".encode(), "sha256")
        secret = self._secret if purpose == "member" else self._client_secret
        return hmac.digest(_stretched(secret, salt), purpose.encode(), "sha256")
