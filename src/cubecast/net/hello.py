"""What nodes say before they trust each other, and how the cluster changes.

A secret is never sent: each side proves that it knows it by an HMAC over both sides' nonces.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TypeAlias

import msgspec

from cubecast.net.wire import HELLO, PREFIX, WireError
from cubecast.protocol.port import NodeId

MAX_HELLO = 1024 * 1024
"""Nobody who has not proved the secret may send a larger packet."""


class Member(msgspec.Struct, frozen=True):
    """A node of the cluster: who it is and where it listens."""

    uid: str
    address: str


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The one who dials: who am I (slot -1: nobody yet), and a nonce to prove the secret on."""

    version: int
    uid: str
    slot: NodeId
    nonce: str


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """The one who was dialled: my proof, and a nonce for yours."""

    uid: str
    slot: NodeId
    nonce: str
    proof: str


class Proof(msgspec.Struct, frozen=True, tag=True):
    """The one who dials proves the secret in turn."""

    proof: str


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The connection is open for messages."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The connection ends here, for this reason."""

    reason: str


class JoinRequest(msgspec.Struct, frozen=True, tag=True):
    """A newcomer asks for a slot."""

    uid: str
    address: str


class Redirect(msgspec.Struct, frozen=True, tag=True):
    """Ask there: that node has the lowest slot and gives them out."""

    address: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Your slot; everyone in `members` knows you."""

    slot: NodeId
    epoch: int
    members: dict[NodeId, Member]


class ClusterUpdate(msgspec.Struct, frozen=True, tag=True):
    """The cluster is now this."""

    epoch: int
    members: dict[NodeId, Member]


class UpdateAck(msgspec.Struct, frozen=True, tag=True):
    """I know, and no operation of mine still relies on the cluster before."""

    epoch: int


class LeaveRequest(msgspec.Struct, frozen=True, tag=True):
    """I have no subscription and nothing under way; let me go."""


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """Nobody will send you anything more."""


Greeting: TypeAlias = (
    Hello
    | Challenge
    | Proof
    | Accepted
    | Refused
    | JoinRequest
    | Redirect
    | Welcome
    | ClusterUpdate
    | UpdateAck
    | LeaveRequest
    | Goodbye
)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Greeting] = msgspec.json.Decoder(Greeting)


def encode_greeting(message: Greeting) -> bytes:
    """The packet of a greeting."""
    body = _encoder.encode(message)
    return PREFIX.pack(1 + len(body), HELLO) + body


def decode_greeting(raw: bytes) -> Greeting:
    """The greeting in packet `raw`, checked against its type."""
    try:
        return _decoder.decode(raw[PREFIX.size :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"broken greeting: {error}") from error


def new_nonce() -> str:
    """A nonce for one handshake."""
    return secrets.token_hex(16)


def prove(secret: str, role: str, dialler: str, dialled: str) -> str:
    """The proof of one side (`role`) over both nonces; useless for the other side."""
    text = f"cubecast/{role}/{dialler}/{dialled}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def proved(claim: str, secret: str, role: str, dialler: str, dialled: str) -> bool:
    """Whether `claim` is that proof; takes the same time whatever it is."""
    expected = prove(secret, role, dialler, dialled).encode()
    return hmac.compare_digest(claim.encode("utf-8", "replace"), expected)
