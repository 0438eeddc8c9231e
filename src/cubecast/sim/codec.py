"""The wire in the simulator: every message is encoded and decoded on its way, and counted.

A simulated network hands objects from node to node, so a value that the wire format cannot express
passes unseen: a negative number, a set that is too large, a type that comes back as another.  With
``World(..., codec=WireCodec())`` every message that leaves a node is encoded as live nodes do it
(`cubecast.net.wire.packets`, `cubecast.net.wire.views`) and decoded again; the receiver gets the
decoded message.

Invariants:

1. What comes back equals what was sent, or `CodecError` is raised in the step that sent it.
2. A receiver shares no object with the sender but the bodies of publications, which the simulator
   names by number: a frame carries a payload of `payload` bytes for each.
3. `counts` and `sizes` are per copy: a frame to three children counts three times.  Bytes are those
   of whole packets, without the headers of TCP and IP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from struct import error as StructError
from typing import Any, Protocol

from cubecast.net.wire.packets import (
    Control,
    FrameDecoder,
    OutgoingFrame,
    Payloads,
    WireError,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    topic_id,
)
from cubecast.net.wire.views import decode_detector, decode_view, encode_detector, encode_view
from cubecast.protocol.cluster.detector import DetectorMessage
from cubecast.protocol.cluster.views import Clusterwide
from cubecast.protocol.messages import Ack, Frame, Parcel
from cubecast.protocol.port import Message
from cubecast.sim.values import Value

UNENCODABLE = (WireError, StructError, OverflowError, ValueError, TypeError)
LONGEST_TOLD = 300


class CodecError(AssertionError):
    """A message does not survive the wire."""


class MessageFormat(Protocol):
    """The interface that a world expects of its message format."""

    def cross(self, message: Message, copies: int = 1) -> Message:
        """Return the message that arrives when so many copies of it are sent."""


class WireCodec:
    """The wire format of live nodes."""

    def __init__(self, payload: int = 8) -> None:
        if payload < 1:
            raise ValueError(f"a payload has at least a byte, not {payload}")
        self.payload = payload
        self.counts: Counter[str] = Counter()
        """Messages by kind; a message in a parcel is named with it, as "parcel/wave"."""
        self.sizes: Counter[str] = Counter()
        """Bytes by kind."""
        self.largest: Counter[str] = Counter()
        """The largest single message of each kind, in bytes."""
        self._frames = FrameDecoder()

    def cross(self, message: Message, copies: int = 1) -> Message:
        try:
            raw, back = self._through(message)
        except UNENCODABLE as error:
            raise CodecError(f"{_told(message)} cannot cross the wire: {error}") from error
        if back is None or not _same(message, back):
            raise CodecError(f"{_told(message)} came back from the wire as {_told(back)}")
        kind = name_of(message)
        self.counts[kind] += copies
        self.sizes[kind] += copies * len(raw)
        self.largest[kind] = max(self.largest[kind], len(raw))
        return back

    def _through(self, message: object) -> tuple[bytes, Message | None]:
        match message:
            case Frame():
                return self._frame(message)
            case Ack():
                raw = encode_ack(message)
                return raw, decode_ack(raw, {topic_id(message.topic): message.topic})
            case _ if isinstance(message, Control):
                raw = encode_control(message)
                return raw, decode_control(raw)
            case _ if isinstance(message, DetectorMessage):
                raw = encode_detector(message)
                return raw, decode_detector(raw)
            case _ if isinstance(message, Clusterwide):
                raw = encode_view(message)
                return raw, decode_view(raw)
        raise WireError(f"no packet is made for a {type(message).__name__}")

    def _frame(self, frame: Frame) -> tuple[bytes, Frame]:
        """Encode and decode a frame; its payloads are message numbers, its body is kept."""
        sent = self._outgoing(frame.body)
        raw = encode_frame(_with_body(frame, sent, frame.size))
        back = self._frames.decode(raw, {topic_id(frame.topic): frame.topic})
        if back is None or not isinstance(back.body, Payloads) or back.body.cut() != sent.payloads:
            raise WireError("the payloads differ")
        if (back.body.time, [*back.body.headed]) != (sent.time, [*sent.headed]):
            raise WireError("the time or the headers differ")
        return raw, _with_body(back, frame.body, frame.size)

    def _outgoing(self, body: Collection[object]) -> OutgoingFrame:
        """The outgoing frame: payloads, or a retained value with its headers."""
        if isinstance(body, Value):
            return OutgoingFrame(body.body.payloads, body.body.time, body.body.headed)
        return OutgoingFrame([self._payload(ident) for ident in body], 0)

    def _payload(self, ident: object) -> bytes:
        assert isinstance(ident, int), "the simulator's bodies are numbers of messages"
        return ident.to_bytes(8, "little").ljust(self.payload, b".")[: self.payload]


def name_of(message: Any) -> str:
    """The kind of a message; of a parcel, also the kind of its content."""
    kind: str = message.kind
    return f"{kind}/{message.message.kind}" if isinstance(message, Parcel) else kind


def _with_body(frame: Frame, body: Any, size: int) -> Frame:
    return Frame(
        frame.topic,
        frame.stream,
        frame.first,
        frame.barrier,
        frame.route,
        frame.stable,
        body,
        size,
    )


def _same(one: object, other: object) -> bool:
    """Whether two messages are equal; frames, routes and ACKs are compared field by field."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Frame | Ack) and isinstance(other, Frame | Ack):
        return _fields(one) == _fields(other)
    return one == other


def _fields(message: Frame | Ack) -> list[object]:
    found = {name: getattr(message, name) for name in message.__slots__}
    if isinstance(message, Frame):
        route = message.route
        found["route"] = [getattr(route, name) for name in route.__slots__]
    return list(found.items())


def _told(message: object) -> str:
    """A message as text for people, cut if it is long."""
    text = repr(message)
    return text if len(text) <= LONGEST_TOLD else text[:LONGEST_TOLD] + "…"
