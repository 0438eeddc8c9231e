"""One message as the application gets it, cut from the frame it came in.

1. A plain message is a `Message` and nothing else: five references.  Headers and a codec, which not
   every message has, are in classes of their own, used only for frames that have them.
2. `Message.id` is unique for ever: no message of another topic, slot or life has it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, cast
from weakref import ref

import msgspec

from cubecast.codecs import Codec
from cubecast.errors import DecodeError
from cubecast.net.topics import Payload, is_reply_topic
from cubecast.net.wire import headers
from cubecast.net.wire.headers import NO_HEADERS, Headers
from cubecast.net.wire.packets import Lasting, OutgoingFrame, Payloads
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import NodeId, Seq, Topic

if TYPE_CHECKING:
    from cubecast.net.requests.requests import Requests

if TYPE_CHECKING:  # the default, which makes `Message` a `Message[bytes]`, is of Python 3.13
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=bytes)
    Value = TypeVar("Value", default=bytes)  # what a codec makes of a payload
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)
    Value = TypeVar("Value")

SHOWN = 60
"""Bytes of a payload that are printed."""
REPLY = ":reply"
"""The header that names the topic for an answer."""
ID = ":id"
"""The header that numbers a request; an answer repeats it."""
RETAIN = ":retain"
"""The header of a message that is kept for later subscribers."""


class Message(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One message, as delivered; `T_co` is the type of its `value`, bytes without a codec."""

    topic: Topic
    """The topic it was published to, also where the subscription has a pattern."""
    payload: bytes
    """The published bytes."""
    source: NodeId
    """The slot of the node that published it."""
    seq: Seq
    """Its number among the messages of that node, in one life, in this topic; from 0 on."""
    frame: Frame

    def __repr__(self) -> str:
        shown = repr(self.payload[:SHOWN])
        if len(self.payload) > SHOWN:
            shown += f"... ({len(self.payload)} bytes)"
        about = f"{self.id!r}, {shown}, published_at={_date(self.published_at)}"
        if self.headers:
            about += f", headers={dict(self.headers)!r}"
        return f"Message({about})"

    @property
    def value(self) -> T_co:
        """The payload as the codec of the subscription decodes it; without one, the payload.

        `DecodeError`, which has the payload, if the codec cannot decode it, as may be with a
        message that removes a retained value (`removed`): it is empty.
        """
        return cast(T_co, self.payload)

    @property
    def id(self) -> str:
        """A unique name: topic, slot, life of the publisher, number.

        As in "chat/room1#0.6dad3eae5b.9".  The life is a number that each process draws, of 39
        bits, so a node that restarts, or another one in the same slot, repeats no id.
        """
        stream = self.frame.stream
        return f"{self.topic}#{stream.source}.{stream.incarnation:x}.{self.seq}"

    @property
    def headers(self) -> Headers:
        """Texts that its publisher gave it besides the payload; empty for a plain message."""
        return NO_HEADERS

    @property
    def encoded_headers(self) -> bytes:
        """The headers as they travel; empty for a plain message."""
        return b""

    @property
    def retained(self) -> bool:
        """Whether it was published before the subscription began, and kept (`retain=True`)."""
        return type(self.frame.body) is Lasting

    @property
    def removed(self) -> bool:
        """Whether it removes the retained value of its topic: an empty payload, `retain=True`."""
        return False

    @property
    def stamp(self) -> tuple[int, NodeId, int, Seq]:
        """A key that orders the retained messages of a topic, the same at all nodes, causes first.

        It is the time, then the slot and life of the publisher, and the number.  A subscriber that
        wants only the newest value keeps the message with the highest stamp.
        """
        body, stream = self.frame.body, self.frame.stream
        assert isinstance(body, Payloads | OutgoingFrame)
        return body.time, stream.source, stream.incarnation, self.seq

    @property
    def wants_reply(self) -> bool:
        """Whether it is a request, which `reply` answers."""
        return False

    def reply(
        self, payload: Payload, *, headers: Headers | None = None
    ) -> Coroutine[Any, Any, None]:
        """Answer a request; its sender gets the payload.  A request may be answered several times.

        Await it, in the loop of the node or client.  It raises what `publish` raises, and
        ValueError, at once, if the message is no request.  In another thread, pass it to
        `asyncio.run_coroutine_threadsafe`.  For a message that `cubecast.sync` has read it raises
        TypeError, at once: use ``client.reply(message, payload)``.
        """
        return self._replier("reply(message, payload)").reply(self, payload, headers)

    def reply_error(self, text: str, *, error: str = "Error") -> Coroutine[Any, Any, None]:
        """Answer a request with an error; the caller of `request` gets `RequestFailed`."""
        replier = self._replier("reply_error(message, text)")
        return replier.reply(self, text, None, error or "Error")

    def _replier(self, call: str) -> Requests:
        """What answers; it raises if none does, or only `call` of the sync facade may."""
        raise ValueError(f"message {self.id!r} asks for no answer: it was published, not requested")

    @property
    def published_at(self) -> float:
        """When its publisher sent it, in seconds since the epoch, by that node's clock.

        It is the time of the frame: messages that were gathered in one tick have the same.  A frame
        with a retained message has a time above all retained messages that its publisher had seen.
        """
        body = self.frame.body
        assert isinstance(body, Payloads | OutgoingFrame)
        return body.time / 1e6

    @property
    def dependencies(self) -> tuple[tuple[NodeId, Seq], ...]:
        """The direct causes of its frame: (source, seq) of the last message of each."""
        return tuple((stream.source, seq) for stream, seq in self.frame.barrier)


def _date(seconds: float) -> str:
    """A time for people; a peer may send any number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


class HandedOut(ref["Requests"]):
    """Answers messages that `cubecast.sync` hands to threads without a loop.

    A coroutine that such a thread gets would never be awaited, so it gets an error.
    """

    __slots__ = ()


class RichMessage(Message[T_co], Generic[T_co], frozen=True):
    """A message with headers, which are decoded when they are first read.

    Until then it holds no more memory than came over the network.
    """

    carried: bytes = b""
    opened: Headers | None = None
    host: ref[Requests] | None = None
    """Answers it where it was read; weak, as the garbage collector does not track messages."""

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

    @property
    def removed(self) -> bool:
        """Whether it removes the retained value of its topic: an empty payload, `retain=True`."""
        return not self.payload and RETAIN in self.headers

    @property
    def wants_reply(self) -> bool:
        """Whether it is a request, which `reply` answers."""
        return is_reply_topic(self.headers.get(REPLY, "")) and ID in self.headers

    def _replier(self, call: str) -> Requests:
        host = None if self.host is None else self.host()
        if host is None or not self.wants_reply:
            return super()._replier(call)
        if type(self.host) is HandedOut and not host.runs_here():
            raise TypeError(
                "an answer is sent in the event loop of the node or client: "
                f"with cubecast.sync, call client.{call}"
            )
        return host

    __repr__ = Message.__repr__


class TypedMessage(RichMessage[T_co], Generic[T_co], frozen=True, gc=True):
    """A message of a subscription with a codec; it is decoded when `value` is first read."""

    codec: Codec[Any] | None = None
    meaning: Any = msgspec.UNSET

    @property
    def value(self) -> T_co:
        """The decoded payload; `DecodeError`, which has the payload, if it cannot be decoded."""
        if self.meaning is msgspec.UNSET:
            assert self.codec is not None
            try:
                meaning = self.codec.decode(self.payload)
            except Exception as error:
                raise DecodeError(self.id, self.payload, f"{self.codec!r}: {error}") from error
            msgspec.structs.force_setattr(self, "meaning", meaning)
        return cast(T_co, self.meaning)

    __repr__ = Message.__repr__


def cut(
    frame: Frame, codec: Codec[Any] | None = None, replies: ref[Requests] | None = None
) -> list[Message[Any]]:
    """The messages of a frame, cut from its packet (or from our own publication).

    `replies` answers requests among them, at the node or client where they are read.
    """
    body = frame.body
    if isinstance(body, OutgoingFrame):
        payloads = body.payloads
    else:
        assert isinstance(body, Payloads)
        payloads = body.cut()
    if body.headed or codec is not None:
        return list(_rich(frame, payloads, body.headed, codec, replies))
    topic, source = repeat(frame.topic), repeat(frame.stream.source)
    numbers = range(frame.first, frame.last + 1)
    return list(map(_plain, topic, payloads, source, numbers, repeat(frame)))


_plain: type[Message[Any]] = Message


def typed(message: Message[Any], codec: Codec[Any]) -> Message[Any]:
    """The same message with a codec, so that it has a `value`."""
    about = message.topic, message.payload, message.source, message.seq, message.frame
    return TypedMessage(*about, message.encoded_headers, None, None, codec)


def has_headers(frame: Frame) -> bool:
    """Whether any message of a frame has headers."""
    body = frame.body
    assert isinstance(body, Payloads | OutgoingFrame)
    return bool(body.headed)


def _rich(
    frame: Frame,
    blobs: list[bytes],
    headed: Iterable[int],
    codec: Codec[Any] | None,
    host: ref[Requests] | None,
) -> Iterable[Message[Any]]:
    """The messages of a frame with headers or a codec."""
    topic, source, with_headers = frame.topic, frame.stream.source, set(headed)
    for index, blob in enumerate(blobs):
        seq = frame.first + index
        carried, payload = headers.split(blob) if index in with_headers else (b"", blob)
        if codec is not None:
            yield TypedMessage(topic, payload, source, seq, frame, carried, None, host, codec)
        elif carried:
            yield RichMessage(topic, payload, source, seq, frame, carried, None, host)
        else:
            yield Message(topic, payload, source, seq, frame)
