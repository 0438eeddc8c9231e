"""The retained values that one node keeps: the newest of each topic that it published or read.

A message that is published with `retain=True` has the header ``:retain``.  Its publisher and every
subscriber keep it; the answers to a JOIN carry it to newcomers
(`cubecast.protocol.topic.retained_values`).

1. Of two values of a topic the one with the higher stamp stays: the time of its frame, then its
   stream and number.  A frame with a value has a time above that of every value that its publisher
   has seen (`stamp`), so causal order implies the order of stamps.  Concurrent values are settled
   by their stamps, the same way everywhere.
2. A value with an empty payload says that there is none.  It is not handed out, but kept like
   others: else an older value could come back.
3. Bounds: `MAX_VALUE` bytes of one value, `MAX_VALUES` values and `MAX_BYTES` of a node.  One more,
   and the value with the oldest stamp goes.
4. A value of a peer is not believed if it is too large, is no value, or has a time more than
   `MAX_AHEAD_US` after ours: one false time would win over every later value.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubecast import tracing
from cubecast.errors import NotSent
from cubecast.net.clock import wall_us
from cubecast.net.message import RETAIN
from cubecast.net.topics import Payload, encode_payload
from cubecast.net.wire.headers import MAX_HEADERS, Headed, Headers, check_headers, pack, read, split
from cubecast.net.wire.packets import MAX_KEPT, MESSAGE_OVERHEAD, Lasting, OutgoingFrame, Payloads
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Seq, Stream, Time, Topic
from cubecast.protocol.topic.retained_values import RetainedValue

MAX_VALUE = MAX_KEPT
"""Bytes of one value, its headers included."""
MAX_VALUES = 1024
"""Values of one node."""
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of all values of one node, their topics included."""
MAX_AHEAD_US = 24 * 3600 * 1_000_000
"""A value whose time is so far ahead of ours is delivered and not kept."""
_SIGN = RETAIN.encode()


def is_retained(frame: Frame) -> bool:
    """Whether a frame only hands out a retained value, and is no frame of the protocol."""
    return type(frame.body) is Lasting


def mark(topic: Topic, payload: Payload, headers: Headers | None) -> Headed:
    """The blob of a message that is to be kept; `NotSent` if it is too large for that."""
    if headers is not None:
        check_headers(headers)
        if len(headers) >= MAX_HEADERS:
            raise ValueError(
                f"a retained message takes {MAX_HEADERS - 1} headers, not {len(headers)}: "
                "put them in the payload"
            )
    if tracing.is_used():
        traced = tracing.added(headers) or {}
        if len(traced) < MAX_HEADERS:
            headers = traced
    blob = pack({**(headers or {}), RETAIN: ""}, encode_payload(payload))
    if len(blob) > MAX_VALUE:
        raise NotSent(
            topic,
            f"a retained message of {len(blob)} bytes, headers included, is more than {MAX_VALUE}: "
            "retain where to find it instead",
        )
    return blob


def is_value(blob: bytes) -> bool:
    """Whether a blob that was checked is a message to be kept."""
    if len(blob) > MAX_VALUE or _SIGN not in blob:
        return False
    return RETAIN in read(split(blob)[0])


class Retained:
    """The values of one node; a `Keeper`."""

    def __init__(self) -> None:
        self._values: dict[Topic, RetainedValue] = {}
        self._bytes = 0
        self._clock: Time = 0  # the highest time of a value that was ever here
        self._news: set[Topic] = set()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """Bytes that all values take."""
        return self._bytes

    # -- for the core ----------------------------------------------------------------------------

    def kept(self, topic: Topic) -> RetainedValue | None:
        """The value of a topic; an empty one says that the value was removed."""
        return self._values.get(topic)

    def topics(self) -> Iterable[Topic]:
        """The topics with a value that can be handed out."""
        return [topic for topic, value in self._values.items() if split(value.blob)[1]]

    def believes(self, value: RetainedValue) -> bool:
        """Whether what a peer sends is a value, and its time is not too far ahead of ours."""
        return is_value(value.blob) and value.time <= wall_us() + MAX_AHEAD_US

    def learn(self, topic: Topic, value: RetainedValue) -> None:
        """Keep the value that others sent for a topic that we join, if it is newer than ours."""
        if is_value(value.blob) and self._offer(topic, value):
            self._news.add(topic)

    # -- for the node ----------------------------------------------------------------------------

    def take_news(self, topic: Topic) -> bool:
        """Whether the last JOIN brought a value that is newer than ours."""
        news = topic in self._news
        self._news.discard(topic)
        return news

    def stamp(self, body: OutgoingFrame) -> None:
        """Give a frame with values a time above those of all values seen here."""
        if any(is_value(body.payloads[place]) for place in body.headed):
            body.time = max(body.time, self._clock + 1)

    def published(self, topic: Topic, stream: Stream, first: Seq, body: OutgoingFrame) -> None:
        """Keep the last value in a published frame with headers."""
        self._take(topic, stream, first, body, body.payloads)

    def delivered(self, frame: Frame) -> None:
        """Keep the last value in a delivered frame with headers."""
        body = frame.body
        assert isinstance(body, Payloads | OutgoingFrame)
        payloads = body.payloads if isinstance(body, OutgoingFrame) else body.cut()
        self._take(frame.topic, frame.stream, frame.first, body, payloads)

    def _take(
        self,
        topic: Topic,
        stream: Stream,
        first: Seq,
        body: Payloads | OutgoingFrame,
        payloads: list[bytes],
    ) -> None:
        for place in reversed(body.headed):
            if is_value(payloads[place]):
                value = RetainedValue(*stream, first + place, body.time, bytes(payloads[place]))
                self._offer(topic, value)
                return

    def frame(self, topic: Topic) -> Frame | None:
        """The value of a topic as a frame, which a new subscription gets first; None: no value."""
        value = self._values.get(topic)
        if value is None or not split(value.blob)[1]:
            return None
        body = Lasting([value.blob], value.time, (0,))
        route = Route(0, value.seq, 0)
        return Frame(topic, value.stream, value.seq, (), route, -1, body, body.content)

    def _offer(self, topic: Topic, value: RetainedValue) -> bool:
        """Keep a value if it is newer than ours."""
        if value.time > wall_us() + MAX_AHEAD_US:
            return False
        self._clock = max(self._clock, value.time)
        own = self._values.get(topic)
        if own is not None and own.stamp >= value.stamp:
            return False
        if own is not None:
            self._drop(topic)
        self._values[topic] = value
        self._bytes += _cost(topic, value)
        while len(self._values) > MAX_VALUES or self._bytes > MAX_BYTES:
            self._drop(min(self._values, key=lambda one: self._values[one].stamp))
        return topic in self._values

    def _drop(self, topic: Topic) -> None:
        self._bytes -= _cost(topic, self._values.pop(topic))


def _cost(topic: Topic, value: RetainedValue) -> int:
    return len(topic) + len(value.blob) + MESSAGE_OVERHEAD
