"""Encodes and decodes the messages of ordering modules: msgpack, checked by type."""

from __future__ import annotations

import msgspec

from cubecast.errors import CubecastError
from cubecast.ordering.production.layout import LIFE_BITS, MAKER_BITS
from cubecast.ordering.production.messages import Epoch, Fill
from cubecast.ordering.production.notices import AnyMessage, Beat, Open

TEN_YEARS_MS = 10 * 366 * 24 * 3600 * 1000
WRITTEN_MS = 1_767_225_600_000
"""The beginning of 2026: a clock that shows an earlier time is wrong."""


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


def check_message(message: AnyMessage, life: int) -> None:
    """Raise `OrderingError` if a message would stop a member, in this life of it, from going on.

    Epochs only rise, and begin with the time: one of the far future would be the last.  A member
    whose clock was never set must not take the present for the far future.
    """
    if isinstance(message, Open) and not message.layout.managers:
        raise OrderingError("invalid message: a layout without managers")
    latest_ms = max(life, WRITTEN_MS) + TEN_YEARS_MS
    if _epoch(message) > (latest_ms >> LIFE_BITS) << MAKER_BITS:
        raise OrderingError(f"invalid message: {message.kind} of epoch {_epoch(message)}")


def _epoch(message: AnyMessage) -> Epoch:
    match message:
        case Open():
            return message.layout.epoch
        case Fill():
            return message.request.epoch
        case Beat():
            return max(message.epoch, message.promised)
        case _:
            return message.epoch
