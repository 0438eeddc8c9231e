"""What a node tells its application besides messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from cubecast.protocol.port import NodeId, Seq, Stream, Topic

KEPT = 1000
"""Events an iterator keeps if nobody reads it; older ones are dropped first."""


class MemberJoined(msgspec.Struct, frozen=True, tag=True):
    """A node joined the cluster."""

    slot: NodeId
    address: str


class MemberLeft(msgspec.Struct, frozen=True, tag=True):
    """A node left the cluster; `crashed`: without having asked for it, so it may be back."""

    slot: NodeId
    crashed: bool = False


class MemberMute(msgspec.Struct, frozen=True, tag=True):
    """A member answers tests, but left a wave (a subscribe, say) unanswered for `seconds`.

    `by` waited for it; the others go on without it, and `MemberLeft` follows.  `topic` is empty if
    the wave asked for all topics.  Told again with `disputed` if it has answered this node: then
    one of the two lies, and the others go on without both.
    """

    slot: NodeId
    topic: Topic
    seconds: float
    by: NodeId
    disputed: bool = False


class CutDenied(msgspec.Struct, frozen=True, tag=True):
    """A member claimed that node `source` has published message `claimed` of a topic.

    `source` itself says `published` (-1: nothing).  Who believed the claim would wait for messages
    that do not exist; this node does not.  The liar is node `by`, or one below it in the tree of
    this node's subscribe; -1: it is not known.
    """

    topic: Topic
    source: NodeId
    claimed: Seq
    published: Seq
    by: NodeId


class Excluded(msgspec.Struct, frozen=True, tag=True):
    """The others took this node for dead and went on without it; it asks to be taken back.

    Meanwhile nothing is delivered, and what is published waits.
    """

    slot: NodeId


class Returned(msgspec.Struct, frozen=True, tag=True):
    """This node is in the cluster again, in `slot`, since view `epoch`; `Gap` says the rest."""

    slot: NodeId
    epoch: int


class ConnectionLost(msgspec.Struct, frozen=True, tag=True):
    """The connection to a member broke; it is dialled again when there is something to send."""

    slot: NodeId
    reason: str


class SlowSubscriber(msgspec.Struct, frozen=True, tag=True):
    """A subscription's queue is full and its policy acts; `dropped` counts since it began."""

    topic: Topic
    policy: str
    dropped: int


class PublisherBlocked(msgspec.Struct, frozen=True, tag=True):
    """A `publish` has waited `seconds` for credit; told again only if it blocks anew.

    `behind` names those it waits for, {slot: messages that its part of the tree has not taken
    in}: direct children of this node, or the node itself.  Empty before the first message, while
    the node asks who is subscribed.
    """

    topic: Topic
    seconds: float
    behind: dict[NodeId, int]


class CallbackFailed(msgspec.Struct, frozen=True, tag=True):
    """A callback of `Node.on` raised; the log has the traceback, the next message is handed out."""

    topic: Topic
    error: str


class Gap(msgspec.Struct, frozen=True, tag=True):
    """Messages that this node's subscribers will not get, {source slot: [(first, last), ...]}.

    It was excluded from the cluster for a while, or apart from the publisher; or nobody who lives
    has them; or it did not keep up, all its subscriptions of the topic have a policy that drops,
    and the publishers went on without it.  A source has more than one span if nodes that held its
    slot one after the other published: each counted from 0.
    """

    topic: Topic
    skipped: dict[NodeId, list[tuple[Seq, Seq]]]


class Discarded(msgspec.Struct, frozen=True, tag=True):
    """Messages that were dropped by agreement, {source slot: [(first, last), ...]}.

    Their publisher is gone, and not all that comes before them could be saved; nobody delivers
    them.  Or they are this node's own, and the others will never hear of them.
    """

    topic: Topic
    dropped: dict[NodeId, list[tuple[Seq, Seq]]]


def spans_by_source(
    skipped: Mapping[Stream, tuple[Seq, Seq]],
) -> dict[NodeId, list[tuple[Seq, Seq]]]:
    """What a core skipped, by slot; one life of a slot after the other, in no stated order."""
    spans: dict[NodeId, list[tuple[Seq, Seq]]] = {}
    for stream, span in skipped.items():
        spans.setdefault(stream.source, []).append(span)
    return spans


class Detached(msgspec.Struct, frozen=True, tag=True):
    """A light client lost its node, or has to leave it, and looks for another one."""

    address: str
    reason: str


class Reattached(msgspec.Struct, frozen=True, tag=True):
    """A light client goes on at a node: `address`, in `slot`.

    `missed` counts the messages that its subscriptions have missed; a `Gap` of each topic names
    them.  `exact` is False if there may be more: the former node died, and no node that lives knows
    a stream of it, or one that the client has read; too many streams had to be named; or the node
    is in another cluster.
    """

    address: str
    slot: NodeId
    missed: int = 0
    exact: bool = True


Event: TypeAlias = (
    MemberJoined
    | MemberLeft
    | MemberMute
    | CutDenied
    | Excluded
    | Returned
    | ConnectionLost
    | SlowSubscriber
    | PublisherBlocked
    | CallbackFailed
    | Gap
    | Discarded
    | Detached
    | Reattached
)


class Events:
    """An async iterator over events from now on."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._news = asyncio.Event()
        self.closed = False
        self._error: Exception | None = None

    def put(self, event: Event) -> None:
        """Something happened."""
        self._kept.append(event)
        self._news.set()

    def close(self, error: Exception | None = None) -> None:
        """Nothing more will be told; with `error`, who reads on is told why."""
        self.closed = True
        self._error = error
        self._news.set()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        while not self._kept:
            if self.closed:
                raise self._error or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._kept.popleft()


class Audience:
    """Whoever listens to the events of one node."""

    def __init__(self) -> None:
        self._listeners: list[Events] = []
        self._closed = False

    def listen(self) -> Events:
        """An iterator over what happens from now on; if nothing more will, it ends at once."""
        events = Events()
        if self._closed:
            events.close()
        self._listeners.append(events)
        return events

    def tell(self, event: Event) -> None:
        """Something happened."""
        self._listeners = [listener for listener in self._listeners if not listener.closed]
        for listener in self._listeners:
            listener.put(event)

    def close(self) -> None:
        """Nothing more will happen."""
        self._closed = True
        for listener in self._listeners:
            listener.close()
