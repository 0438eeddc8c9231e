"""Codecs, which turn values into payloads and back, for a topic or a subscription.

A codec has `encode` and `decode`; any object with these two will do.  Here are those for bytes,
text, JSON, MessagePack and models of pydantic.

    readings = cubecast.TypedTopic("sensors/+", cubecast.codecs.json(Reading))
    async with node.subscribe("sensors/+", codec=cubecast.codecs.json(Reading)) as messages:
        async for message in messages:
            print(message.value.celsius)        # a Reading; message.payload are its bytes

1. `decode` may raise any exception for bytes that it cannot decode: `Message.value` turns it into a
   `DecodeError`, which has the bytes.
2. `encode` of a codec with a class takes only instances of that class, so that a mistake shows at
   the publisher and not at every reader.
3. Nothing is imported that is not used: pydantic only by `pydantic`, or a model given to `json`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec

T = TypeVar("T")


class Codec(Protocol[T]):
    """The methods of a codec."""

    def encode(self, value: T, /) -> bytes:
        """The payload of a value; TypeError or ValueError if it has none."""

    def decode(self, payload: bytes, /) -> T:
        """The value of a payload; raises if it has none."""


class FunctionCodec(Generic[T]):
    """A codec of two functions, `kind` being the class of what it encodes."""

    def __init__(
        self,
        name: str,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], T],
        kind: type = object,
    ) -> None:
        self.name = name
        self.decode = decode
        self._encode = encode
        self._kind = kind

    def __repr__(self) -> str:
        return f"<codec {self.name}>"

    def encode(self, value: T) -> bytes:
        """The payload of a value; TypeError if it is of another class."""
        if not isinstance(value, self._kind):
            raise TypeError(f"{self} takes {self._kind.__name__}, not {value!r:.80}")
        return self._encode(value)


def _same(payload: bytes) -> bytes:
    return payload


def _text(payload: bytes) -> str:
    return payload.decode()


raw: FunctionCodec[bytes] = FunctionCodec("bytes", _same, _same, bytes)
"""Bytes as they are; `Message.value` is then `Message.payload`."""
text: FunctionCodec[str] = FunctionCodec("text", str.encode, _text, str)
"""Text in UTF-8."""


@overload
def json() -> FunctionCodec[Any]: ...
@overload
def json(kind: type[T]) -> FunctionCodec[T]: ...
def json(kind: Any = Any) -> FunctionCodec[Any]:
    """JSON: of anything (None, numbers, texts, lists, dicts), or of a class.

    A class is a msgspec `Struct`, a dataclass, a `TypedDict`, a `NamedTuple` or one of attrs, whose
    fields are checked when it is decoded; or a model of pydantic.
    """
    if hasattr(kind, "model_validate_json"):
        return pydantic(kind)
    name = "JSON" if kind is Any else f"JSON of {_name(kind)}"
    try:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    except TypeError as error:
        raise TypeError(f"no codec for {_name(kind)}: {error}") from None
    return FunctionCodec(name, msgspec.json.Encoder().encode, decoder.decode, _class(kind))


@overload
def msgpack() -> FunctionCodec[Any]: ...
@overload
def msgpack(kind: type[T]) -> FunctionCodec[T]: ...
def msgpack(kind: Any = Any) -> FunctionCodec[Any]:
    """MessagePack, smaller and faster than JSON: of anything, or of a class as `json` takes."""
    name = "MessagePack" if kind is Any else f"MessagePack of {_name(kind)}"
    try:
        decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
    except TypeError as error:
        raise TypeError(f"no codec for {_name(kind)}: {error}") from None
    return FunctionCodec(name, msgspec.msgpack.Encoder().encode, decoder.decode, _class(kind))


def pydantic(kind: type[T]) -> FunctionCodec[T]:
    """JSON of a model of pydantic, or of any type that pydantic checks."""
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise ImportError(
            "this codec needs pydantic: pip install pydantic, or use cubecast.codecs.json"
        ) from None
    adapter = TypeAdapter(kind)
    name = f"JSON of {_name(kind)} by pydantic"
    return FunctionCodec(name, adapter.dump_json, adapter.validate_json, _class(kind))


def check_codec(codec: object) -> None:
    """TypeError, in one line with advice, unless it is a codec."""
    if isinstance(codec, type) and not hasattr(codec, "decode"):
        raise TypeError(
            f"codec must be a codec, not the class {codec.__name__}: "
            f"cubecast.codecs.json({codec.__name__})"
        )
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        raise TypeError(
            f"codec must have encode and decode, as cubecast.codecs.json() has, not {codec!r:.80}"
        )


def _class(kind: Any) -> type:
    """The class whose instances are accepted; `object` if instances cannot be checked."""
    if hasattr(kind, "__total__"):
        return dict  # which a `TypedDict` is
    if kind is Any or kind is float or not isinstance(kind, type):
        return object  # an int is as good as a float, also in JSON
    return kind


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
