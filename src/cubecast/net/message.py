"""One message as the application gets it, cut from the frame it came in."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import msgspec

from cubecast.net import headers
from cubecast.net.headers import NO_HEADERS, Headers
from cubecast.net.wire import Outgoing, Payloads
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import NodeId, Seq, Topic

SHOWN = 60
"""Bytes of a payload that are printed."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message, as delivered."""

    topic: Topic
    payload: bytes
    source: NodeId
    seq: Seq
    frame: Frame

    def __repr__(self) -> str:
        shown = repr(self.payload[:SHOWN])
        if len(self.payload) > SHOWN:
            shown += f"... ({len(self.payload)} bytes)"
        about = f"topic={self.topic!r}, payload={shown}, source={self.source}, seq={self.seq}"
        if self.headers:
            about += f", headers={dict(self.headers)!r}"
        return f"Message({about})"

    @property
    def headers(self) -> Headers:
        """Texts that its publisher gave it besides the payload; empty for a plain message."""
        return NO_HEADERS

    @property
    def encoded_headers(self) -> bytes:
        """The headers as they travel; empty for a plain message."""
        return b""

    @property
    def published_at(self) -> float:
        """When its publisher sent it, in seconds since the epoch, by that node's clock."""
        body = self.frame.body
        assert isinstance(body, Payloads | Outgoing)
        return body.time / 1e6

    @property
    def dependencies(self) -> tuple[tuple[NodeId, Seq], ...]:
        """The direct causes of its frame: (source, seq) of the last message of each."""
        return tuple((stream.source, seq) for stream, seq in self.frame.barrier)


class RichMessage(Message, frozen=True):
    """A message with headers.  They are decoded when they are first read: until then it holds no
    more memory than came over the network."""

    carried: bytes = b""
    opened: Headers | None = None

    @property
    def headers(self) -> Headers:
        """Texts that its publisher gave it besides the payload."""
        if self.opened is None:
            msgspec.structs.force_setattr(self, "opened", headers.read(self.carried))
        assert self.opened is not None
        return self.opened

    @property
    def encoded_headers(self) -> bytes:
        """The headers as they travel."""
        return self.carried

    __repr__ = Message.__repr__


def cut(frame: Frame) -> list[Message]:
    """The messages of a frame, cut from its packet (or from what we published ourselves)."""
    body = frame.body
    if isinstance(body, Outgoing):
        payloads = body.payloads
    else:
        assert isinstance(body, Payloads)
        payloads = body.cut()
    if body.headed:
        return list(_rich(frame, payloads, body.headed))
    topic, source = repeat(frame.topic), repeat(frame.stream.source)
    numbers = range(frame.first, frame.last + 1)
    return list(map(Message, topic, payloads, source, numbers, repeat(frame)))


def has_headers(frame: Frame) -> bool:
    """Whether any message of a frame has headers."""
    body = frame.body
    assert isinstance(body, Payloads | Outgoing)
    return bool(body.headed)


def _rich(frame: Frame, blobs: list[bytes], headed: Iterable[int]) -> Iterable[Message]:
    """The messages of a frame some of which have headers."""
    topic, source, with_headers = frame.topic, frame.stream.source, set(headed)
    for index, blob in enumerate(blobs):
        seq = frame.first + index
        if index in with_headers:
            carried, payload = headers.split(blob)
            yield RichMessage(topic, payload, source, seq, frame, carried)
        else:
            yield Message(topic, blob, source, seq, frame)
