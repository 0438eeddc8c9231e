"""Messages between a light client and its node (packets of kind 5, docs/wire.md).

Every packet is one tagged structure in MessagePack, checked against its type on the way in; a
packet that does not fit raises `WireError`, which ends that connection and nothing else.  Both
directions are bounded: publications by a window the node grants, deliveries by one window per
subscription, requests by `MAX_REQUESTS`.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Annotated, Literal, TypeAlias

import msgspec

from cubecast.net.events import Event
from cubecast.net.reading.subscription import Policy
from cubecast.net.wire.headers import check_blob
from cubecast.net.wire.hello import Reason, Slot
from cubecast.net.wire.packets import (
    CLIENT,
    MAX_MESSAGES,
    MAX_NUMBER,
    MAX_PAYLOAD,
    MESSAGE_OVERHEAD,
    PREFIX,
    WireError,
)

PUBLISH_WINDOW = 256 * 1024
"""Bytes of publications a client may have on their way to its node."""
DELIVER_WINDOW = 256 * 1024
"""Bytes a client may hold unread per subscription; the rest waits at the node."""
BATCH_BYTES = 64 * 1024
BATCH_MESSAGES = 1024
"""Messages of one packet; a batch is sent when it has either."""
MAX_QUEUE = 64 * 1024 * 1024
"""The most a client may ask its node to keep for one subscription."""
MAX_REQUESTS = 64
"""Questions a client may have open."""
MAX_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer; a client whose question needs more gets `Unanswered`."""
MAX_TOPIC = 1024
LEAVING = "the node leaves the cluster"
MAX_POSITIONS = 4096
"""Streams whose positions one packet names; of more, the first in the order of their topics."""
MAX_CLIENT_PACKET = MAX_PAYLOAD + 1024 * 1024
"""The largest message, with a batch of others before it, fits."""

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_NUMBER)]
Unsigned: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
QueueBytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_QUEUE)]
TopicName: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TOPIC)]
Payload: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_PAYLOAD)]
Batch: TypeAlias = Annotated[list[Payload], msgspec.Meta(min_length=1, max_length=BATCH_MESSAGES)]
Places: TypeAlias = Annotated[tuple[Number, ...], msgspec.Meta(max_length=MAX_MESSAGES)]
Position: TypeAlias = tuple[TopicName, Slot, Unsigned, Number]
"""A topic, a stream of it (slot and incarnation), and the number of its next message."""
Positions: TypeAlias = Annotated[list[Position], msgspec.Meta(max_length=MAX_POSITIONS)]
StreamName: TypeAlias = tuple[TopicName, Slot, Unsigned]
"""A topic, and a stream of it: slot and incarnation."""
StreamNames: TypeAlias = Annotated[list[StreamName], msgspec.Meta(max_length=MAX_POSITIONS)]
Question: TypeAlias = Literal["members", "topics", "explain", "subscribers", "view", "stats"]


class Subscribe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Deliver a topic under this number of the client's choice; `queue_bytes` 0: the default."""

    subscription: Number
    topic: TopicName
    policy: Policy
    queue_bytes: QueueBytes
    located: bool = False
    """Say in `Subscribed` where in each stream it begins."""
    retained: bool = True
    """Hand out the retained values of the topic, or of the topics that match."""
    ends: bool = False
    """Say which streams are over (`Over`)."""


class Unsubscribe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Deliver nothing more of a subscription."""

    subscription: Number


class Read(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The application has read this many more bytes of a subscription."""

    subscription: Number
    size: Number


class Publish(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Publications to one topic: all of them or none; packets are numbered from 0."""

    number: Number
    topic: TopicName
    payloads: Batch
    receipt: bool
    headed: Places = ()
    """The messages with headers, by their places: these are blobs (`headers.py`)."""


class Listen(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Send the events of the cluster, as `Happened`."""


class Ask(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A question; `topic` where it is about one."""

    request: Number
    about: Question
    topic: TopicName


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks for a `Pong`, and shows that the client is alive."""


class CatchUp(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks for an answer once the node has delivered what the client read at another node.

    After a while the node answers anyway.  So what the client publishes next depends on it here,
    too.
    """

    request: Number
    positions: Positions


class Moved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The client reads at another node, or does not want to: the node may leave at once."""


class Subscribed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Everything published from now on will be delivered, within the given window."""

    subscription: Number
    window: Number
    positions: Positions = []
    """If it was asked for: the first message of each stream that will be delivered.  Streams that
    are not named are delivered from their beginning."""
    whole: bool = True
    """Whether all streams are named that have to be."""
    memory_s: Annotated[float, msgspec.Meta(ge=0)] = inf
    """If it was asked for: what was published in so many last seconds is not forgotten, so the
    streams of it are named."""


class Deliver(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Consecutive messages of one publisher; `dropped` counts those lost to the policy so far."""

    subscription: Number
    dropped: Number
    topic: str
    source: Slot
    incarnation: Unsigned
    first: Number
    time: Unsigned
    dependencies: list[tuple[Slot, Unsigned, Number]]
    payloads: list[Payload]
    headed: Places = ()
    """The messages with headers, by their places: these are blobs (`headers.py`)."""
    retained: bool = False
    """A retained value, which was published before the subscription began."""


class Dropped(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The client reads too slowly: its policy has dropped so many messages so far."""

    subscription: Number
    dropped: Number


class Over(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The client was sent all messages of these streams, and there will be no more."""

    subscription: Number
    streams: StreamNames


class Ended(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A subscription has ended; `overflow` is the limit that was exceeded, if that is why."""

    subscription: Number
    reason: Reason
    overflow: Number = 0
    denied: bool = False
    """The permissions do not allow it."""
    leaving: bool = False
    """The node leaves the cluster; another one may go on."""


class Taken(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The node will send every publication up to this packet, but for those it refused."""

    number: Number


class Taking(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The node has published so many bytes of this packet and waits for credit for the rest.

    These bytes no longer count against the window, at the node since it sent this.
    If that is all of it the packet is taken, before an earlier one of another topic.
    """

    number: Number
    size: Number


class Declined(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The publications of this packet were not sent and will not be."""

    number: Number
    reason: Reason
    denied: bool = False
    """The permissions do not allow it."""
    leaving: bool = False
    """The node leaves the cluster; another one may take them."""


class Consumed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Every subscriber has consumed the publications of these packets; for `unknown` ones this
    will never be known, because the node was excluded from the cluster meanwhile."""

    numbers: list[Number]
    unknown: list[Number] = []


class Answered(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to a question, in MessagePack; its type depends on the question."""

    request: Number
    body: msgspec.Raw


class Unanswered(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """There is no answer to that question."""

    request: Number
    reason: Reason
    denied: bool = False
    """The permissions do not allow it."""


class Happened(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An event of the cluster."""

    event: Event


class Pong(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `Ping`."""


class Leaving(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The node is about to leave the cluster and waits a little for the client's `Moved`."""


class Farewell(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The node ends the connection, for this reason."""

    reason: Reason


FromClient: TypeAlias = (
    Subscribe | Unsubscribe | Read | Publish | Listen | Ask | Ping | CatchUp | Moved
)
FromNode: TypeAlias = (
    Subscribed
    | Deliver
    | Dropped
    | Over
    | Ended
    | Taken
    | Taking
    | Declined
    | Consumed
    | Answered
    | Unanswered
    | Happened
    | Pong
    | Leaving
    | Farewell
)

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_node: msgspec.msgpack.Decoder[FromNode] = msgspec.msgpack.Decoder(FromNode)


def encode(message: FromClient | FromNode) -> bytes:
    """The packet of a message."""
    body = _encoder.encode(message)
    return PREFIX.pack(1 + len(body), CLIENT) + body


def decode_from_client(raw: bytes) -> FromClient:
    """The client's message in packet `raw`, checked against its type."""
    try:
        message = _from_client.decode(memoryview(raw)[PREFIX.size :])
        if type(message) is Publish and message.headed:
            _check_headers(message.payloads, message.headed)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WireError(f"broken client message: {error}") from error


def decode_from_node(raw: bytes) -> FromNode:
    """The node's message to its client in packet `raw`, checked against its type."""
    try:
        message = _from_node.decode(memoryview(raw)[PREFIX.size :])
        if type(message) is Deliver and message.headed:
            _check_headers(message.payloads, message.headed)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WireError(f"broken message to a client: {error}") from error


def _check_headers(payloads: list[bytes], headed: tuple[int, ...]) -> None:
    """ValueError unless the messages that are said to have headers exist and have good ones."""
    if headed[-1] >= len(payloads) or any(one >= other for one, other in pairwise(headed)):
        raise ValueError(f"headers at {headed[:8]} of {len(payloads)} messages")
    for place in headed:
        check_blob(payloads[place])


def clipped(reason: object) -> str:
    """A reason that fits a packet."""
    return str(reason)[:1024]


def size_of(payloads: list[bytes]) -> int:
    """What messages count for in the windows, the same at both ends."""
    return sum(map(len, payloads)) + MESSAGE_OVERHEAD * len(payloads)


def without_first(news: Deliver, count: int) -> Deliver:
    """The messages after the first `count` of these; headers stay with their messages."""
    return msgspec.structs.replace(
        news,
        first=news.first + count,
        payloads=news.payloads[count:],
        headed=tuple(place - count for place in news.headed if place >= count),
    )
