"""Gossip over the overlays: each node that an event reaches pushes it on once ([N] 2.1, 2.2).

*Infect and die*: a node pushes an event when it first has it, and never again, to all ids in its
views of those of the event's topics that it subscribes to.  Their number is the view size, so the
rule of connectivity is also the fan-out.

Two ways to use the overlays:

- *shared*: a physical link that several of the event's topics share carries the event once.  A
  node that has the event, by whichever link, pushes it on in all of its topics.
- *separate*: one overlay per topic, as without StaN's dissemination: the event spreads in each
  topic for itself, and a node pushes it on in the topic by which it came.

Invariants: a node delivers an event at most once, and only if it subscribes to one of its topics
(*accuracy*); it remembers the last `memory` events, and an event that comes again after that is
delivered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, TypeAlias, TypeVar

import msgspec

from cubecast.overlay.messages import NodeId, Topic

EventId = NewType("EventId", int)
Key = TypeVar("Key")


class Push(msgspec.Struct, frozen=True, tag="push"):
    """An event on a link."""

    event: EventId
    topics: tuple[Topic, ...]
    """All topics that it was published to."""
    overlay: Topic | None = None
    """The overlay that it travels in; none if the link is shared."""


@dataclass(frozen=True, slots=True)
class PublishEvent:
    """The node publishes an event."""

    event: EventId
    topics: tuple[Topic, ...]
    contacts: Mapping[Topic, NodeId] = field(default_factory=dict)
    """A subscriber of each topic that the publisher does not subscribe to, if it knows one."""


@dataclass(frozen=True, slots=True)
class PushArrived:
    """An event came over a link."""

    push: Push


Cause: TypeAlias = PublishEvent | PushArrived


@dataclass(frozen=True, slots=True)
class SendPush:
    """Push an event to a node."""

    to: NodeId
    push: Push
    links: int = 1
    """How many links of single topics this message stands for."""


@dataclass(frozen=True, slots=True)
class DeliverEvent:
    """Hand an event to the application, for the first time."""

    event: EventId


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop an event that was here before, or is of no topic that the node subscribes to."""

    event: EventId
    duplicate: bool


Effect: TypeAlias = SendPush | DeliverEvent | Discard


@dataclass
class Gossip:
    """The dissemination of one node."""

    node: NodeId
    views: Mapping[Topic, Sequence[NodeId]]
    """The node's view of each topic that it subscribes to, kept up to date by StaN."""
    shared: bool = True
    memory: int = 10_000
    """How many pairs of an event and an overlay are remembered; the oldest is forgotten first."""
    seen: dict[tuple[EventId, Topic | None], None] = field(default_factory=dict)
    """(event, overlay) pairs that were pushed on; the overlay is None for shared links."""
    delivered: dict[EventId, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory < 1:
            raise ValueError(f"memory must be 1 or more, not {self.memory}")

    def step(self, cause: Cause) -> list[Effect]:
        """Act on a cause: the only method that changes the node."""
        match cause:
            case PublishEvent():
                return list(self._publish(cause))
            case PushArrived(push):
                return list(self._arrive(push))

    def _publish(self, cause: PublishEvent) -> Iterator[Effect]:
        """Push the publisher's own event to its views and to contacts."""
        self._remember(self.delivered, cause.event)
        for push in self._pushes(cause.event, cause.topics):
            self._remember(self.seen, (cause.event, push.overlay))
            yield from self._forward(push)
        for topic in sorted(set(cause.topics) - self.views.keys()):
            if topic in cause.contacts:
                overlay = None if self.shared else topic
                yield SendPush(cause.contacts[topic], Push(cause.event, cause.topics, overlay))

    def _arrive(self, push: Push) -> Iterator[Effect]:
        if not any(topic in self.views for topic in push.topics):
            yield Discard(push.event, duplicate=False)
            return
        if push.event in self.delivered:
            yield Discard(push.event, duplicate=True)
        else:
            self._remember(self.delivered, push.event)
            yield DeliverEvent(push.event)
        if (push.event, push.overlay) not in self.seen:
            self._remember(self.seen, (push.event, push.overlay))
            yield from self._forward(push)

    def _pushes(self, event: EventId, topics: tuple[Topic, ...]) -> list[Push]:
        if self.shared:
            return [Push(event, topics)]
        return [Push(event, topics, topic) for topic in topics if topic in self.views]

    def _forward(self, push: Push) -> Iterator[SendPush]:
        """Push to each id in the views concerned, in the order of ids."""
        concerned = push.topics if push.overlay is None else (push.overlay,)
        links: dict[NodeId, int] = {}
        for topic in concerned:
            for other in self.views.get(topic, ()):
                links[other] = links.get(other, 0) + 1
        for other in sorted(links):
            yield SendPush(other, push, links[other])

    def _remember(self, table: dict[Key, None], key: Key) -> None:
        table[key] = None
        if len(table) > self.memory:
            del table[next(iter(table))]
