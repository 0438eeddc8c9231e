"""Headers of a message: a few short texts by name, beside its payload.

A message with headers is one run of bytes, a *blob*: the size of the headers (u16, little-endian),
the headers (MessagePack, a map from text to text), then the payload.  A message without headers is
its payload alone.  Which messages of a frame are blobs is said once per frame, in the sizes
(`cubecast.net.wire.packets`) or in a list of places (`cubecast.net.wire.clients`).  So a plain
message costs nothing for it, on the wire and in the process.

1. Headers are bounded: `MAX_HEADERS` of them, `MAX_HEADER_BYTES` encoded.  A message with its
   headers is within `MAX_PAYLOAD` and counts against every window as the blob it is.
2. A blob from a peer is checked where its packet is decoded (`check_blob`): what `split` gets
   afterwards is well-formed.
3. Names that begin with ``:`` are cubecast's own.  An application reads them and cannot set them.
   Code of cubecast sets them: `pack` makes a `Headed` of them, which `publish` takes as a payload.
   That is a rule for applications and no barrier: a peer that speaks the protocol by itself may
   send any name, so whatever reads such a header checks what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import msgspec

MAX_HEADERS = 32
"""Headers of one message."""
MAX_NAME = 64
"""Characters of a header's name."""
MAX_HEADER_BYTES = 4096
"""Bytes of all headers of a message, as they are encoded."""
RESERVED = ":"
"""The first character of names that only cubecast sets."""
PREFIX_BYTES = 2
MAX_PREFIX = PREFIX_BYTES + MAX_HEADER_BYTES
"""What of a blob is not payload, at most."""

Headers: TypeAlias = Mapping[str, str]
"""Headers as the application reads them; they cannot be changed."""

NO_HEADERS: Headers = MappingProxyType({})
"""The headers of a plain message."""

_pattern = re.compile(f"[!-~]{{1,{MAX_NAME}}}")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    """Whether a header may be called so; applications use few names again and again."""
    return _pattern.fullmatch(name) is not None


class Headed(bytes):
    """A blob that waits to be sent, told from a payload by its type."""

    unheard = False
    """Whether it was sent to no subscriber: its node knew of none."""


def check_headers(headers: object) -> None:
    """Raise TypeError or ValueError, with advice, unless an application may set these."""
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise TypeError(f'headers must be a mapping like {{"kind": "news"}}, not {headers!r:.80}')
    if len(headers) > MAX_HEADERS:
        raise ValueError(
            f"a message takes {MAX_HEADERS} headers, not {len(headers)}: put them in the payload"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"a header is text by name, not {name!r:.80}: {value!r:.80}; use str()")
        if name.startswith(RESERVED):
            raise ValueError(f"header {name!r:.80}: names with {RESERVED!r} first are cubecast's")
        if not _is_name(name):
            raise ValueError(
                f"header {name!r:.80}: a name is 1 to {MAX_NAME} ASCII characters without spaces"
            )


def pack(headers: Headers, payload: bytes) -> Headed:
    """The blob of a message; names are not looked at, so this also takes reserved ones."""
    try:
        encoded = _encode(headers if type(headers) is dict else dict(headers))
    except UnicodeEncodeError:
        raise ValueError("headers must be valid Unicode") from None
    if len(encoded) > MAX_HEADER_BYTES:
        raise ValueError(
            f"headers of {len(encoded)} bytes are more than {MAX_HEADER_BYTES}: "
            "put what is large in the payload"
        )
    return Headed(blob_of(encoded, payload))


def blob_of(encoded: bytes, payload: bytes) -> bytes:
    """The blob of encoded headers and a payload; the payload itself if there are none."""
    if not encoded:
        return payload
    return b"".join((len(encoded).to_bytes(PREFIX_BYTES, "little"), encoded, payload))


def check_blob(blob: bytes) -> None:
    """ValueError unless a peer's bytes are headers within the bounds, and a payload."""
    size = int.from_bytes(blob[:PREFIX_BYTES], "little")
    end = PREFIX_BYTES + size
    if size > MAX_HEADER_BYTES or end > len(blob):
        raise ValueError(f"headers of {size} bytes in a message of {len(blob)}")
    try:
        names = _decode(blob[PREFIX_BYTES:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"broken headers: {error}") from error
    if not 0 < len(names) <= MAX_HEADERS or not all(map(_is_name, names)):
        raise ValueError(f"broken headers: {len(names)} of them, or a name that is none")


def split(blob: bytes) -> tuple[bytes, bytes]:
    """The encoded headers and the payload of a blob that was checked."""
    end = PREFIX_BYTES + int.from_bytes(blob[:PREFIX_BYTES], "little")
    return blob[PREFIX_BYTES:end], blob[end:]


def value_of(blob: bytes, name: str) -> str:
    """One header of a blob that was checked; empty if it has none of that name."""
    end = PREFIX_BYTES + int.from_bytes(blob[:PREFIX_BYTES], "little")
    return read(blob[PREFIX_BYTES:end]).get(name, "")


def read(encoded: bytes) -> Headers:
    """The headers, for the application."""
    return MappingProxyType(_decode(encoded)) if encoded else NO_HEADERS


def marked(blobs: list[bytes], headed: Sequence[int]) -> list[bytes]:
    """Messages to be sent, those at the places `headed` told from payloads by their type."""
    if not headed:
        return blobs
    blobs = blobs.copy()
    for place in headed:
        blobs[place] = Headed(blobs[place])
    return blobs


def unmarked(blobs: list[bytes]) -> tuple[list[bytes], tuple[int, ...]]:
    """Messages to be sent as bytes and nothing else, and the places of those with headers."""
    headed = places(blobs)
    return [bytes(blob) for blob in blobs] if headed else blobs, headed


def places(blobs: list[bytes]) -> tuple[int, ...]:
    """Which of the messages about to be sent have headers."""
    return tuple(index for index, blob in enumerate(blobs) if type(blob) is Headed)
