"""Events that a node tells its application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from cubecast.protocol.port import NodeId, Seq, Stream, Topic

KEPT = 1000
"""Unread events that an iterator keeps; older ones are dropped first."""


class MemberJoined(msgspec.Struct, frozen=True, tag=True):
    """A node joined the cluster."""

    slot: NodeId
    address: str


class MemberLeft(msgspec.Struct, frozen=True, tag=True):
    """A node left the cluster; `crashed`: it did not ask to leave, so it may come back."""

    slot: NodeId
    crashed: bool = False


class MemberMute(msgspec.Struct, frozen=True, tag=True):
    """A member answers tests, but left a wave (a subscribe, say) unanswered for `seconds`.

    Node `by` waited for it; the member is excluded, and `MemberLeft` follows.  `topic` is empty if
    the wave asked for all topics.  Told again with `disputed` if the member has answered this node:
    then one of the two lies, and both are excluded.

    With a `reason` it is no wave: the member leads, and left a change of the cluster undone that
    node `by` asked for.
    """

    slot: NodeId
    topic: Topic
    seconds: float
    by: NodeId
    disputed: bool = False
    reason: str = ""


class CutDenied(msgspec.Struct, frozen=True, tag=True):
    """A member claimed that node `source` has published message `claimed` of a topic.

    `source` itself says `published` (-1: nothing).  A node that believed the claim would wait for
    messages that do not exist; this node ignores it.  The liar is node `by`, or one below it in the
    tree of this node's subscribe; -1: it is not known.
    """

    topic: Topic
    source: NodeId
    claimed: Seq
    published: Seq
    by: NodeId


class Excluded(msgspec.Struct, frozen=True, tag=True):
    """This node was excluded: the others took it for dead.  It asks to come back.

    Meanwhile nothing is delivered, and what is published waits.
    """

    slot: NodeId


class Returned(msgspec.Struct, frozen=True, tag=True):
    """This node is in the cluster again, in `slot`, since view `epoch`.

    A `Gap` of each topic says what it missed.
    """

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

    `behind` names the nodes that it waits for, {slot: messages that its part of the tree has not
    taken in}: direct children of this node, or the node itself.  Empty before the first message,
    while the node asks for the subscribers.
    """

    topic: Topic
    seconds: float
    behind: dict[NodeId, int]


class CallbackFailed(msgspec.Struct, frozen=True, tag=True):
    """A callback of `Node.on` raised; the log has the traceback, the next message is handed out."""

    topic: Topic
    error: str


class Gap(msgspec.Struct, frozen=True, tag=True):
    """Messages that this node's subscriptions will not get, {source slot: [(first, last), ...]}.

    The node was excluded for a while, or on another side of a partition than the publisher; or no
    live node has the messages; or the node did not keep up, all its subscriptions of the topic have
    a policy that drops, and the publishers went on without it.  A source has more than one span if
    several nodes had its slot one after the other: each numbers its messages from 0.
    """

    topic: Topic
    skipped: dict[NodeId, list[tuple[Seq, Seq]]]


class Discarded(msgspec.Struct, frozen=True, tag=True):
    """Messages that were dropped by agreement, {source slot: [(first, last), ...]}.

    Their publisher is gone, and not all messages before them could be saved; no node delivers
    them.  Or they are this node's own, and the others will never get them.
    """

    topic: Topic
    dropped: dict[NodeId, list[tuple[Seq, Seq]]]


def spans_by_source(
    skipped: Mapping[Stream, tuple[Seq, Seq]],
) -> dict[NodeId, list[tuple[Seq, Seq]]]:
    """Skipped messages by slot; the spans of one slot, each of one life, are in no stated order."""
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
    them.  `exact` is False if there may be more: the former node died, and the new node knows no
    stream of it; the client had no node for as long as nodes remember (`forget_after`), or for a
    while, and the node does not know a stream that the client has read; too many streams had to be
    named; or the node is in another cluster.
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
        """Add an event."""
        self._kept.append(event)
        self._news.set()

    def close(self, error: Exception | None = None) -> None:
        """Add nothing more; after the last event, reading ends, or raises `error`."""
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
    """The iterators over the events of one node."""

    def __init__(self) -> None:
        self._listeners: list[Events] = []
        self._closed = False

    def listen(self) -> Events:
        """A new iterator over events from now on; if the node is closed, it ends at once."""
        events = Events()
        if self._closed:
            events.close()
        self._listeners.append(events)
        return events

    def tell(self, event: Event) -> None:
        """Add an event to all iterators."""
        self._listeners = [listener for listener in self._listeners if not listener.closed]
        for listener in self._listeners:
            listener.put(event)

    def close(self) -> None:
        """End all iterators."""
        self._closed = True
        for listener in self._listeners:
            listener.close()
