"""Bytes of what ordering modules say to each other: msgpack, checked by type."""

from __future__ import annotations

import msgspec

from cubecast.errors import CubecastError
from cubecast.ordering.production.notices import AnyMessage


class OrderingError(CubecastError):
    """Bytes on a topic or in an inbox that no ordering module has sent."""


_encode = msgspec.msgpack.Encoder().encode
_messages: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: msgspec.Struct) -> bytes:
    return _encode(message)


def decode_message(data: bytes) -> AnyMessage:
    try:
        return _messages.decode(data)
    except msgspec.DecodeError as error:
        raise OrderingError(f"invalid message: {error}") from error
