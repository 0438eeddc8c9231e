"""What nodes say before they trust each other, and how a light client is taken in.

A secret is never sent: each side proves that it knows it by an HMAC over what both sides said of
themselves, their fresh nonces included.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Annotated, TypeAlias

import msgspec

from cubecast.net.wire import HELLO, MAX_NUMBER, MAX_SLOTS, PREFIX, VERSION, WireError

MAX_HELLO = 4096
"""Nobody who has not proved the secret may send a larger packet."""

NOBODY = -1
"""The slot of a node that has none yet."""

UID = r"^[0-9A-Za-z_.-]{1,64}$"
MAX_ADDRESS = 512
"""Characters of an address."""

Slot: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SLOTS)]
SlotOrNobody: TypeAlias = Annotated[int, msgspec.Meta(ge=NOBODY, lt=MAX_SLOTS)]
Uid: TypeAlias = Annotated[str, msgspec.Meta(pattern=UID)]
Nonce: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
Reason: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]
Version: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
ByteCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=MAX_NUMBER)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
ProofText: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The one who dials: who am I (slot -1: nobody yet), and a nonce to prove the secret on."""

    version: int
    uid: Uid
    slot: SlotOrNobody
    nonce: Nonce


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """The one who was dialled: my proof, and a nonce for yours."""

    uid: Uid
    slot: SlotOrNobody
    nonce: Nonce
    proof: ProofText


class Proof(msgspec.Struct, frozen=True, tag=True):
    """The one who dials proves the secret in turn."""

    proof: ProofText


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The connection is open for messages."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The connection ends here, for this reason."""

    reason: Reason


class AttachRequest(msgspec.Struct, frozen=True, tag=True):
    """A light client wants to be served; it never becomes a member."""


class Attached(msgspec.Struct, frozen=True, tag=True):
    """You are a client of this node: who it is, and what it allows you."""

    slot: Slot
    uid: Uid
    version: Version
    window: ByteCount
    """Bytes of publications that may be on their way to the node."""
    publish_timeout_s: Seconds
    silence_s: Seconds
    """Either side takes the other for gone if it hears nothing for so long."""


Greeting: TypeAlias = Hello | Challenge | Proof | Accepted | Refused | AttachRequest | Attached
_uid = re.compile(UID, re.ASCII).fullmatch
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


def is_uid(text: str) -> bool:
    """Whether `text` can name a node in one of its lives."""
    return _uid(text) is not None


def new_nonce() -> str:
    """A nonce for one handshake."""
    return secrets.token_hex(16)


def transcript(hello: Hello, uid: str, slot: int, nonce: str) -> str:
    """What both sides said of themselves: the dialler in its `Hello`, then the dialled."""
    return f"{VERSION}/{hello.uid}/{hello.slot}/{hello.nonce}/{uid}/{slot}/{nonce}"


def prove(secret: str, role: str, said: str) -> str:
    """The proof of one side (`role`) over the transcript; useless for the other side."""
    return hmac.new(secret.encode(), f"cubecast/{role}/{said}".encode(), hashlib.sha256).hexdigest()


def proved(claim: str, secret: str, role: str, said: str) -> bool:
    """Whether `claim` is that proof; takes the same time whatever it is."""
    return hmac.compare_digest(claim.encode(), prove(secret, role, said).encode())
