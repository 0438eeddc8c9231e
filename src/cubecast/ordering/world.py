"""A world of ordering modules in which every step is chosen: by hand, by chance, or all in turn.

Messages from point to point are in a queue per pair of nodes, first in, first out ([T] assumes it);
an event is on its way to each subscriber by itself, so the service below orders nothing.  A *move*
is one such channel; to make it delivers what it holds first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from cubecast.ordering.effects import (
    Arrived,
    Cause,
    Effect,
    Notify,
    Publish,
    Received,
    Send,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Subscribe,
    Time,
    Unsubscribe,
    WakeAt,
)
from cubecast.ordering.judge import Notification
from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Topic


class Module(Protocol):
    """The ordering module of a node."""

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]: ...


class Link(NamedTuple):
    """Messages of one node to another."""

    source: Member
    target: Member


class Way(NamedTuple):
    """One event on its way to one subscriber."""

    event: Hashable
    target: Member


Move: TypeAlias = Link | Way
Make: TypeAlias = Callable[
    [Member, Sequence[Topic], Callable[[Topic], Member], Collection[Topic]], Module
]


@dataclass
class World:
    """Nodes with a module each; the manager of a topic is a node of the topic's name."""

    make: Make
    order: Sequence[Topic]
    nodes: Collection[Member] = ()
    modules: dict[Member, Module] = field(default_factory=dict)
    channels: dict[Move, deque[Cause]] = field(default_factory=dict)
    subscribed: dict[Topic, set[Member]] = field(default_factory=dict)
    """Whom the service below notifies."""
    seen: dict[Member, list[Notification]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*map(manager, self.order), *self.nodes):
            managed = [topic for topic in self.order if manager(topic) == name]
            self.modules[name] = self.make(name, self.order, manager, managed)

    # -- what applications do --------------------------------------------------------------------

    def subscribe(self, node: Member, *topics: Topic) -> None:
        for topic in topics:
            self._do(node, Subscribe(topic))

    def unsubscribe(self, node: Member, topic: Topic) -> None:
        self._do(node, Unsubscribe(topic))

    def publish(self, node: Member, topic: Topic, event: Hashable) -> None:
        self._do(node, Publish(topic, event))

    # -- what the world does ---------------------------------------------------------------------

    def moves(self) -> list[Move]:
        """The channels that hold something, in the order in which they came to."""
        return [move for move, waiting in self.channels.items() if waiting]

    def move(self, move: Move) -> None:
        """Deliver what a channel holds first."""
        cause = self.channels[move].popleft()
        if not self.channels[move]:
            del self.channels[move]
        self._do(move.target, cause)

    def along(self, *names: Member) -> None:
        """Deliver one message on each link of a path."""
        for source, target in pairwise(names):
            self.move(Link(source, target))

    def notify(self, event: Hashable, *nodes: Member) -> None:
        """Have the service notify an event to these nodes, one after the other."""
        for node in nodes:
            self.move(Way(event, node))

    def settle(self, choose: Callable[[list[Move]], Move] = lambda moves: moves[0]) -> None:
        """Make moves until there is none."""
        while moves := self.moves():
            self.move(choose(moves))

    def settle_by_chance(self, rng: Random) -> None:
        self.settle(rng.choice)

    def _do(self, node: Member, cause: Cause) -> None:
        for effect in self.modules[node].step(cause):
            self._bring_about(node, effect)

    def _bring_about(self, node: Member, effect: Effect) -> None:
        match effect:
            case Send():
                self._hold(Link(node, effect.to), Received(effect.message))
            case ServicePublish():
                for target in sorted(self.subscribed.get(effect.topic, ())):
                    arrived = Arrived(effect.topic, effect.payload, effect.timestamp)
                    self._hold(Way(_name(effect.payload), target), arrived)
            case ServiceSubscribe():
                self.subscribed.setdefault(effect.topic, set()).add(node)
            case ServiceUnsubscribe():
                self.subscribed.setdefault(effect.topic, set()).discard(node)
            case Notify():
                name = _name(effect.payload)
                seen = Notification(name, effect.topic, effect.timestamp, effect.in_order)
                self.seen.setdefault(node, []).append(seen)
            case WakeAt():
                pass

    def _hold(self, move: Move, cause: Cause) -> None:
        self.channels.setdefault(move, deque()).append(cause)

    def order_of(self, node: Member) -> list[Hashable]:
        """The events that a node saw, those that are tagged in brackets."""
        return [one.event if one.in_order else (one.event,) for one in self.seen.get(node, ())]


def manager(topic: Topic) -> Member:
    """The node that manages a topic here."""
    return f"manager of {topic}"


def _name(payload: object) -> Hashable:
    assert isinstance(payload, Hashable)
    return payload


def stamps(world: World) -> Mapping[Hashable, object]:
    """The timestamp of every event that somebody saw."""
    return {one.event: one.timestamp for seen in world.seen.values() for one in seen}
