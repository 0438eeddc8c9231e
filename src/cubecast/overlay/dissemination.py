"""One event through the overlays, in rounds: the plain world of `gossip.py`, and an oracle.

The publisher has the event in round 0; messages of a round arrive in the next.  Views stand still
meanwhile: an event takes a few hops, a period of StaN is much longer.

A message is lost with a chance that depends on nothing but (run, event, sender, receiver, overlay),
so that engines which handle messages in another order lose the same ones.  A node that crashes in
round r receives and pushes nothing from round r on; views still hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cubecast.overlay.chance import below, combined, draw, stream
from cubecast.overlay.gossip import (
    DeliverEvent,
    Discard,
    EventId,
    Gossip,
    PublishEvent,
    PushArrived,
    SendPush,
)
from cubecast.overlay.measures import Overlays
from cubecast.overlay.messages import NodeId, Topic

GOSSIP = 0x676F73736970
"""Keeps the draws of gossip apart from those of walks in the same run."""
CONTACT = 1 << 48
"""The draw by which a publisher's contact in a topic is chosen: above all draws of messages."""

Views: TypeAlias = dict[NodeId, dict[Topic, tuple[NodeId, ...]]]


@dataclass(frozen=True, slots=True)
class GossipEvent:
    """An event, its publisher and its topics."""

    event: int
    publisher: int
    topics: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.topics or len(set(self.topics)) != len(self.topics):
            raise ValueError(f"event {self.event} needs one or more topics, each once")


@dataclass(frozen=True, slots=True)
class Conditions:
    """How events are disseminated."""

    shared: bool = True
    """Whether topics that share a physical link share the message."""
    loss: float = 0.0
    crashes: Mapping[int, int] = field(default_factory=dict)
    """The round from which on a node is down; 0: down before the event is published."""

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be 0 to 1, not {self.loss}")


@dataclass(frozen=True, slots=True)
class GossipOutcome:
    """The outcome of an event, or of several."""

    wanted: int = 0
    """Subscribers of its topics that stayed up, without the publisher."""
    delivered: int = 0
    """Subscribers among them that got it."""
    by_round: tuple[int, ...] = ()
    """How many got it in round 0 (none), 1, 2, ..."""
    messages: int = 0
    """Messages sent; each is received, or lost, or for a node that is down."""
    topic_links: int = 0
    """Messages if each topic that shares a link had its own."""
    duplicates: int = 0
    strays: int = 0
    """Messages to nodes that subscribe to no topic of the event."""
    lost: int = 0
    to_down: int = 0

    @property
    def complete(self) -> bool:
        """Whether all wanting nodes got it."""
        return self.delivered == self.wanted

    @property
    def latency(self) -> float:
        """The mean round of a delivery; 0 if there is none."""
        total = sum(round_ * count for round_, count in enumerate(self.by_round))
        return total / sum(self.by_round) if any(self.by_round) else 0.0

    def __add__(self, other: GossipOutcome) -> GossipOutcome:
        """The sum of both."""
        rounds = max(len(self.by_round), len(other.by_round))
        padded = [tuple(by) + (0,) * (rounds - len(by)) for by in (self.by_round, other.by_round)]
        return GossipOutcome(
            by_round=tuple(map(sum, zip(*padded, strict=True))),
            **{
                name: getattr(self, name) + getattr(other, name)
                for name in GossipOutcome.__slots__
                if name != "by_round"
            },
        )


def disseminate(
    run: int,
    overlays: Overlays,
    events: Iterable[GossipEvent],
    conditions: Conditions | None = None,
) -> list[GossipOutcome]:
    """The outcome of each event; each finds the same overlays and no memory of others."""
    given = conditions or Conditions()
    views = views_of(overlays)
    return [Dissemination(run, overlays, views, event, given).play() for event in events]


def views_of(overlays: Overlays) -> Views:
    """The views of each node, by topic."""
    views: Views = {}
    for topic, overlay in overlays.items():
        for node, view in overlay.items():
            views.setdefault(NodeId(node), {})[Topic(topic)] = tuple(map(NodeId, view))
    return views


@dataclass
class Dissemination:
    """One event on its way."""

    run: int
    overlays: Overlays
    views: Views
    event: GossipEvent
    conditions: Conditions
    nodes: dict[NodeId, Gossip] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    reached: dict[NodeId, int] = field(default_factory=dict)
    """The round in which each node got the event."""

    def play(self) -> GossipOutcome:
        """Publish, and go on until nothing is under way."""
        publisher, round_ = NodeId(self.event.publisher), 0
        under_way: list[tuple[NodeId, SendPush]] = []
        if self._is_up(publisher, 0):
            cause = PublishEvent(EventId(self.event.event), self._topics(), self._contacts())
            effects = self._node(publisher).step(cause)
            under_way = [(publisher, push) for push in effects if isinstance(push, SendPush)]
        while under_way:
            round_ += 1
            under_way = [
                (forward.to, further)
                for sender, forward in under_way
                if self._arrives(sender, forward, round_)
                for further in self._receive(forward, round_)
            ]
        return self._outcome(round_)

    def _arrives(self, sender: NodeId, forward: SendPush, round_: int) -> bool:
        self.count["messages"] += 1
        self.count["topic_links"] += forward.links
        if self._is_lost(sender, forward):
            self.count["lost"] += 1
        elif not self._is_up(forward.to, round_):
            self.count["to_down"] += 1
        else:
            return True
        return False

    def _receive(self, forward: SendPush, round_: int) -> list[SendPush]:
        effects = self._node(forward.to).step(PushArrived(forward.push))
        for effect in effects:
            match effect:
                case DeliverEvent():
                    self.reached[forward.to] = round_
                case Discard(_, duplicate):
                    self.count["duplicates" if duplicate else "strays"] += 1
        return [effect for effect in effects if isinstance(effect, SendPush)]

    def _outcome(self, rounds: int) -> GossipOutcome:
        """Count; a node that crashed later may have had the event, and is left out."""
        crashed = self.conditions.crashes.keys()
        wanted = {node for topic in self.event.topics for node in self.overlays.get(topic, ())}
        wanted -= {self.event.publisher, *crashed}
        at = Counter(round_ for node, round_ in self.reached.items() if node in wanted)
        return GossipOutcome(
            wanted=len(wanted),
            delivered=sum(at.values()),
            by_round=tuple(at[round_] for round_ in range(rounds + 1)),
            **self.count,
        )

    # -- chance and places -----------------------------------------------------------------------

    def _is_lost(self, sender: NodeId, forward: SendPush) -> bool:
        """Draw 0 for a shared link, draw topic + 1 for a topic's own."""
        name = self._stream(sender, forward.to)
        number = 0 if forward.push.overlay is None else forward.push.overlay + 1
        return (draw(name, number) >> 11) * 2.0**-53 < self.conditions.loss

    def _contacts(self) -> dict[Topic, NodeId]:
        """A random live subscriber of each topic that the publisher does not subscribe to."""
        contacts: dict[Topic, NodeId] = {}
        for topic in self._topics():
            members = sorted(node for node in self.overlays.get(topic, ()) if self._is_up(node, 0))
            if members and self.event.publisher not in self.overlays[topic]:
                bits = draw(self._stream(self.event.publisher, topic), CONTACT)
                contacts[topic] = NodeId(members[below(bits, len(members))])
        return contacts

    def _stream(self, first: int, second: int) -> int:
        return stream(combined(self.run, GOSSIP), self.event.event, first, second)

    def _is_up(self, node: int, round_: int) -> bool:
        return round_ < self.conditions.crashes.get(node, round_ + 1)

    def _topics(self) -> tuple[Topic, ...]:
        return tuple(map(Topic, self.event.topics))

    def _node(self, node: NodeId) -> Gossip:
        if node not in self.nodes:
            self.nodes[node] = Gossip(node, self.views.get(node, {}), self.conditions.shared)
        return self.nodes[node]
