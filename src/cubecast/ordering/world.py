"""A world of ordering modules in which every step is chosen: by hand, by chance, or all in turn.

Messages from point to point are in a queue per pair of nodes, first in, first out ([T] assumes it);
an event is on its way to each subscriber by itself, so the service below orders nothing.  A *move*
is one such channel; to make it delivers its first item.  Time stands still except for `tick`, which
goes on to the next time at which a module wants to be woken.  Nodes crash and return with a new
life; the notifications of each life are a sequence of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from cubecast.ordering.batches import Batch, decode_batch, encode_batch
from cubecast.ordering.codec import decode_message, encode_message
from cubecast.ordering.effects import (
    Cause,
    Effect,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Start,
    SubscribeCall,
    Time,
    UnsubscribeCall,
    Wake,
    WakeAt,
)
from cubecast.ordering.judge import Notification
from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Stamp, Timestamp, Topic


class Module(Protocol):
    """The ordering module of a node."""

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]: ...


class NodePair(NamedTuple):
    """A link: source and target of messages."""

    source: Member
    target: Member


class EventDelivery(NamedTuple):
    """One event on its way to one subscriber."""

    event: Hashable
    target: Member


Move: TypeAlias = NodePair | EventDelivery
Make: TypeAlias = Callable[..., Module]
"""Makes a module from a name, the order of topics, the manager of a topic, and its topics.

Modules that can return take a `life`, too: 2 for the first time that a node returns.
"""


@dataclass
class OrderingWorld:
    """Nodes with a module each; the manager of a topic is a node of the topic's name."""

    make: Make
    order: Sequence[Topic]
    nodes: Collection[Member] = ()
    modules: dict[Member, Module] = field(default_factory=dict)
    channels: dict[Move, deque[Cause]] = field(default_factory=dict)
    subscribed: dict[Topic, set[Member]] = field(default_factory=dict)
    """Topic -> the nodes that the service below notifies."""
    seen: dict[Member, list[Notification]] = field(default_factory=dict)
    """Notifications by node; by node and life for nodes that returned."""
    wire: bool = False
    """Whether messages and stamps cross the wire format."""
    in_sequence: bool = True
    """Whether messages from one node to another arrive in the order in which they were sent."""
    now: Time = 0
    wakes: dict[Member, Time] = field(default_factory=dict)
    """When modules want to be woken."""
    lives: dict[Member, int] = field(default_factory=dict)
    """How often nodes have returned."""

    def __post_init__(self) -> None:
        for name in (*map(manager, self.order), *self.nodes):
            self._begin(name)
        for name in list(self.modules):
            self._do(name, Start())

    def _begin(self, name: Member) -> None:
        managed = [topic for topic in self.order if manager(topic) == name]
        again = {"life": self.lives[name] + 1} if name in self.lives else {}
        self.modules[name] = self.make(name, self.order, manager, managed, **again)

    # -- what applications do --------------------------------------------------------------------

    def subscribe(self, node: Member, *topics: Topic) -> None:
        for topic in topics:
            self._do(node, SubscribeCall(topic))

    def unsubscribe(self, node: Member, topic: Topic) -> None:
        self._do(node, UnsubscribeCall(topic))

    def publish(self, node: Member, topic: Topic, event: Hashable) -> None:
        self._do(node, PublishCall(topic, event))

    def tell(self, node: Member, cause: Cause) -> None:
        """Let a node's module act on a cause."""
        self._do(node, cause)

    # -- what happens to nodes -------------------------------------------------------------------

    def crash(self, node: Member) -> None:
        """Stop a node; messages that it sent still arrive."""
        del self.modules[node]
        self.wakes.pop(node, None)
        for subscribers in self.subscribed.values():
            subscribers.discard(node)

    def restart(self, node: Member) -> None:
        """Begin a new life at a node that crashed."""
        self.lives[node] = self.lives.get(node, 0) + 1
        for move in [move for move in self.channels if isinstance(move, EventDelivery)]:
            if move.target == node:
                del self.channels[move]  # they were for the earlier life
        self._begin(node)
        self._do(node, Start())

    def life_of(self, node: Member) -> str:
        """The name of a node in its present life, for its notifications."""
        life = self.lives.get(node, 0)
        return f"{node} in life {life}" if life else node

    # -- what the world does ---------------------------------------------------------------------

    def moves(self) -> list[Move]:
        """The channels that are not empty, in the order in which they became so."""
        return [move for move, waiting in self.channels.items() if waiting]

    def move(self, move: Move, place: int = 0) -> None:
        """Deliver the first item of a channel, or another one where links keep no order."""
        cause = self._take(move, place)
        if move.target in self.modules:
            self._do(move.target, cause)

    def lose(self, link: NodePair) -> None:
        """Lose the first item of a link."""
        self._take(link, 0)

    def _take(self, move: Move, place: int) -> Cause:
        waiting = self.channels[move]
        cause = waiting[place]
        del waiting[place]
        if not waiting:
            del self.channels[move]
        return cause

    def move_by_chance(self, rng: Random, moves: Sequence[Move] | None = None) -> None:
        """Deliver a random item; out of sequence, if links keep no order."""
        move = rng.choice(self.moves() if moves is None else moves)
        anywhere = isinstance(move, NodePair) and not self.in_sequence
        self.move(move, rng.randrange(len(self.channels[move])) if anywhere else 0)

    def tick(self) -> None:
        """Go on to the next time at which a module wants to be woken, and wake it."""
        node = min(self.wakes, key=lambda name: (self.wakes[name], name))
        self.now = max(self.now, self.wakes.pop(node))
        self._do(node, Wake())

    def along(self, *names: Member) -> None:
        """Deliver one message on each link of a path."""
        for source, target in pairwise(names):
            self.move(NodePair(source, target))

    def notify(self, event: Hashable, *nodes: Member) -> None:
        """Have the service notify an event to these nodes, one after the other."""
        for node in nodes:
            self.move(EventDelivery(event, node))

    def settle(self, choose: Callable[[list[Move]], Move] = lambda moves: moves[0]) -> None:
        """Make moves until all channels are empty."""
        while moves := self.moves():
            self.move(choose(moves))

    def settle_by_chance(self, rng: Random) -> None:
        while self.moves():
            self.move_by_chance(rng)

    def run_by_chance(self, rng: Random, until: Time, ticks: float = 0.05) -> None:
        """Make moves and let time pass, by chance, until a time; then deliver everything."""
        while self.now < until:
            if self.wakes and (not self.channels or rng.random() < ticks):
                self.tick()
            elif self.channels:
                self.move_by_chance(rng)
            else:
                break
        self.settle_by_chance(rng)

    def _do(self, node: Member, cause: Cause) -> None:
        for effect in self.modules[node].step(cause, self.now):
            self._bring_about(node, effect)
        next_wake = getattr(self.modules[node], "next_wake", None)
        wanted = None if next_wake is None else next_wake()
        if wanted is not None:
            # A live member looks at `next_wake` after `Wake` only, and else relies on `WakeAt`.
            asked = self.wakes.get(node)
            told = isinstance(cause, Wake) or (asked is not None and asked <= wanted)
            assert told, f"{node} does not ask to be woken by {wanted} after {cause}"
            self.wakes[node] = wanted

    def _bring_about(self, node: Member, effect: Effect) -> None:
        match effect:
            case SendToModule():
                message = over_the_wire(effect.message) if self.wire else effect.message
                self._hold(NodePair(node, effect.to), ReceivedFromModule(message))
            case ServicePublish():
                stamp = stamp_over_the_wire(effect.timestamp) if self.wire else effect.timestamp
                for target in sorted(self.subscribed.get(effect.topic, ())):
                    arrived = ServiceNotified(effect.topic, effect.payload, stamp)
                    self._hold(EventDelivery(_name(effect.payload), target), arrived)
            case ServiceSubscribe():
                self.subscribed.setdefault(effect.topic, set()).add(node)
            case ServiceUnsubscribe():
                self.subscribed.setdefault(effect.topic, set()).discard(node)
            case Notify():
                name = _name(effect.payload)
                seen = Notification(name, effect.topic, effect.timestamp, effect.in_order)
                self.seen.setdefault(self.life_of(node), []).append(seen)
            case WakeAt():
                self.wakes[node] = min(effect.time, self.wakes.get(node, effect.time))

    def _hold(self, move: Move, cause: Cause) -> None:
        self.channels.setdefault(move, deque()).append(cause)

    def order_of(self, node: Member) -> list[Hashable]:
        """The events that a node saw; tagged ones are in brackets."""
        return [one.event if one.in_order else (one.event,) for one in self.seen.get(node, ())]


def over_the_wire(message: msgspec.Struct) -> msgspec.Struct:
    """A message as its receiver decodes it, which must be equal."""
    decoded = decode_message(encode_message(message))
    assert decoded == message, f"{message} became {decoded}"
    return decoded


def stamp_over_the_wire(stamp: Timestamp | Stamp) -> Stamp:
    assert isinstance(stamp, Stamp)
    return decode_batch(encode_batch(Batch(stamp, (b"",)))).stamp


def manager(topic: Topic) -> Member:
    """The node that manages a topic here."""
    return f"manager of {topic}"


def _name(payload: object) -> Hashable:
    assert isinstance(payload, Hashable)
    return payload


def stamps(world: OrderingWorld) -> Mapping[Hashable, object]:
    """The timestamp of every event that was notified."""
    return {one.event: one.timestamp for seen in world.seen.values() for one in seen}
