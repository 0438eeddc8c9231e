"""Greetings: the messages of a handshake, and those that attach a light client.

`cubecast.net.security.handshake` defines their order, and what they prove.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, TypeAlias

import msgspec

from cubecast.net.security.keys import Purpose
from cubecast.net.wire.packets import HELLO, MAX_NUMBER, MAX_SLOTS, PREFIX, WireError

MAX_HELLO = 4096
"""Bytes of the largest packet of a peer that has not proved that it knows the secret."""

NOBODY = -1
"""The slot of a node that has none yet."""

NAME = r"^[0-9A-Za-z_.@-]{1,64}$"
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
Salt: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?$")]
Tag: TypeAlias = Salt
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_.@-]{0,64}$")]
OpeningData: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=1024)]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """From the dialler: the purpose of the connection, and the peer it means to reach.

    `uid` and `slot` carry no information; earlier versions look for them, and with them refuse
    with a readable reason.  `salt` is that of the dialler's cluster, `peer` a `tag` of the uid it
    means; either may be empty: any.  `name` is that of a client with a token.
    """

    version: int
    nonce: Nonce
    uid: Uid = "-"
    slot: SlotOrNobody = NOBODY
    purpose: Purpose = "member"
    sealed: bool = False
    salt: Salt = ""
    peer: Tag = ""
    name: Name = ""


class Door(msgspec.Struct, frozen=True, tag=True):
    """From the dialled node: the salt of its cluster, for keys."""

    salt: Nonce
    nonce: Nonce


class Opening(msgspec.Struct, frozen=True, tag=True):
    """An `Introduction`, in a message of Noise where there is a secret."""

    data: OpeningData


class Introduction(msgspec.Struct, frozen=True, tag=True):
    """The sender's uid, and the slot it has or had; -1: none yet."""

    uid: Uid
    slot: SlotOrNobody


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From the dialler, which has read the other's `Introduction`: messages may follow."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The connection ends here, for this reason."""

    reason: Reason


class AttachRequest(msgspec.Struct, frozen=True, tag=True):
    """A light client wants to be served; it never becomes a member."""

    movable: bool = False
    """Whether it can go on at another node, and wants to be told when this one is to leave."""


class Attached(msgspec.Struct, frozen=True, tag=True):
    """To a light client that is now attached: which node serves it, and its limits."""

    slot: Slot
    uid: Uid
    version: Version
    cluster: Uid
    window: ByteCount
    """Bytes of publications that may be on their way to the node."""
    publish_timeout_s: Seconds
    silence_s: Seconds
    """Either side takes the other for gone if it hears nothing for so long."""


Greeting: TypeAlias = Hello | Door | Opening | Ready | Refused | AttachRequest | Attached
_uid = re.compile(UID, re.ASCII).fullmatch
_name = re.compile(NAME, re.ASCII).fullmatch
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Greeting] = msgspec.json.Decoder(Greeting)
_introduction: msgspec.json.Decoder[Introduction] = msgspec.json.Decoder(Introduction)


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


def encode_introduction(introduction: Introduction) -> bytes:
    """The payload of an `Opening`."""
    return _encoder.encode(introduction)


def decode_introduction(data: bytes) -> Introduction:
    """The introduction in the payload of an `Opening`."""
    try:
        return _introduction.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"broken introduction: {error}") from error


def is_uid(text: str) -> bool:
    """Whether `text` can name a node in one of its lives."""
    return _uid(text) is not None


def is_name(text: str) -> bool:
    """Whether `text` can name a client."""
    return _name(text) is not None


def new_nonce() -> str:
    """A nonce for one handshake."""
    return secrets.token_hex(16)
