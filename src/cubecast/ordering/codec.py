"""Bytes of events with their stamps, and of what ordering modules say: msgpack, checked by type."""

from __future__ import annotations

import msgspec

from cubecast.errors import CubecastError
from cubecast.ordering.production.messages import ProductionMessage
from cubecast.ordering.timestamps import Stamp


class OrderingError(CubecastError):
    """Bytes on a topic or in an inbox that no ordering module has sent."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """An event on its way through a service."""

    stamp: Stamp
    payload: bytes


_encode = msgspec.msgpack.Encoder().encode
_envelopes = msgspec.msgpack.Decoder(Envelope)
_messages: msgspec.msgpack.Decoder[ProductionMessage] = msgspec.msgpack.Decoder(ProductionMessage)


def encode_event(stamp: Stamp, payload: bytes) -> bytes:
    return _encode(Envelope(stamp, payload))


def decode_event(data: bytes) -> Envelope:
    """The event; `OrderingError` if its publisher does not order, or the bytes are damaged."""
    try:
        return _envelopes.decode(data)
    except msgspec.DecodeError as error:
        raise OrderingError(f"an event without a stamp: {error}") from error


def encode_message(message: msgspec.Struct) -> bytes:
    return _encode(message)


def decode_message(data: bytes) -> ProductionMessage:
    try:
        return _messages.decode(data)
    except msgspec.DecodeError as error:
        raise OrderingError(f"invalid message: {error}") from error
