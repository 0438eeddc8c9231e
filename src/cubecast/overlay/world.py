"""A discrete-event world of StaN nodes: latency, jitter, loss and churn, all from one seed.

The world is also the overlay management protocol that [N] assumes below StaN: it gives first views
(those of `rounds.start_views`, so that a run in rounds starts from the same overlays), introduces
nodes that join, says how large views are to be when a topic grows or shrinks, and helps out a node
whose view is empty.  It maintains nothing else.

Each node ticks once per period, at a phase of its own, with jitter.  A message takes a random
latency and may be lost.  If a node is down, the sender hears so after another latency, as it would
from a transport with connections.  Messages may overtake each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Literal, TypeAlias

from cubecast.overlay.chance import combined
from cubecast.overlay.effects import (
    Cause,
    Effect,
    Introduce,
    JoinTopic,
    LeaveTopic,
    ReceivedFromNode,
    Resize,
    SendToNode,
    Stranded,
    Tick,
    TimeMs,
    Unreachable,
    ViewChanged,
)
from cubecast.overlay.messages import NodeId, Topic
from cubecast.overlay.rounds import start_views
from cubecast.overlay.stan import Choose, Stan, StanConfig
from cubecast.overlay.view_sizes import CONNECTED, Rounding, view_size

Make: TypeAlias = Callable[[NodeId, StanConfig, Choose], Stan]
Kind = Literal["join", "leave", "crash", "return"]
Snapshot: TypeAlias = dict[int, dict[int, tuple[NodeId, ...]]]
"""The views of the nodes that are up, by topic and node."""


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The behaviour of the network and the clocks."""

    least_latency_ms: TimeMs = 20.0
    most_latency_ms: TimeMs = 200.0
    loss: float = 0.0
    """The chance that a message is lost; its sender does not hear of it."""
    jitter: float = 0.1
    """A tick comes up to this share of a period early or late."""
    reports_failures: bool = True
    """Whether the sender hears that the node it wrote to is down."""

    def __post_init__(self) -> None:
        if not 0 <= self.least_latency_ms <= self.most_latency_ms:
            raise ValueError(
                "latencies must be 0 or more, the least first, "
                f"not {self.least_latency_ms} and {self.most_latency_ms}"
            )
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be 0 to 1, not {self.loss}")
        if not 0 <= self.jitter < 0.5:
            raise ValueError(f"jitter must be 0 or more and below 0.5, not {self.jitter}")


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of a node; join and leave have a `topic`."""

    period: float
    """The time, in periods from the start."""
    kind: Kind
    node: int
    topic: int | None = None

    def __post_init__(self) -> None:
        if self.period < 0:
            raise ValueError(f"a change's period must be 0 or more, not {self.period}")
        if (self.topic is None) != (self.kind in ("crash", "return")):
            raise ValueError(f"{self.kind} of node {self.node}: join and leave name a topic")


@dataclass
class OverlayWorld:
    """Nodes that subscribe to topics.  The number of the run is the seed of all chance."""

    run: int
    members: Mapping[int, Iterable[int]]
    """The subscribers of each topic at the start."""
    config: StanConfig = field(default_factory=StanConfig)
    network: NetworkConditions = field(default_factory=NetworkConditions)
    rounding: Rounding = "up"
    connected: float = CONNECTED
    make: Make = Stan
    nodes: dict[NodeId, Stan] = field(default_factory=dict)
    """The nodes that are up."""
    subscribers: dict[Topic, set[NodeId]] = field(default_factory=dict)
    """The subscribers, up or down, as the overlay management protocol knows them."""
    now: TimeMs = 0.0
    sent: Counter[str] = field(default_factory=Counter)
    """How many messages of each kind were sent, and how many were lost."""
    changed: int = 0
    """How often the ids in a view changed."""

    def __post_init__(self) -> None:
        self._random = Random(combined(self.run, 1))
        self._agenda: list[tuple[TimeMs, int, Callable[[], None]]] = []
        self._entries = 0
        self._lives: Counter[NodeId] = Counter()
        self.subscribers = {
            Topic(topic): {NodeId(node) for node in nodes} for topic, nodes in self.members.items()
        }
        for node in sorted(set().union(*self.subscribers.values())):
            self._start(node)
        for topic in sorted(self.subscribers):
            ids = self.subscribers[topic]
            size = view_size(len(ids), self.connected, self.rounding)
            for id_, view in start_views(self.run, topic, ids, size).items():
                others = tuple(NodeId(other) for other in view)
                self._do(NodeId(id_), JoinTopic(topic, others, size))

    # -- running ---------------------------------------------------------------------------------

    def play(self, periods: int, changes: Iterable[NodeChange] = ()) -> list[Snapshot]:
        """Run so many periods: a snapshot before the first and after each of them."""
        period_ms, start = self.config.period_ms, self.now
        for change in changes:
            self._at(start + change.period * period_ms, partial(self.apply, change))
        snapshots = [self.snapshot()]
        for period in range(1, periods + 1):
            self.run_until(start + period * period_ms)
            snapshots.append(self.snapshot())
        return snapshots

    def run_until(self, time: TimeMs) -> None:
        """Run all events that are due by then."""
        while self._agenda and self._agenda[0][0] <= time:
            self.now, _, act = heappop(self._agenda)
            act()
        self.now = time

    def snapshot(self) -> Snapshot:
        """The views of the nodes that are up."""
        return {
            topic: {node: self.nodes[node].view(topic) for node in sorted(ids & self.nodes.keys())}
            for topic, ids in sorted(self.subscribers.items())
        }

    # -- churn -----------------------------------------------------------------------------------

    def apply(self, change: NodeChange) -> None:
        """Make a change now; ignore one that does not apply (a crash of a node that is down)."""
        node = NodeId(change.node)
        match change.kind:
            case "crash":
                self.nodes.pop(node, None)
            case "return":
                self._return(node)
            case "join" if change.topic is not None:
                self._join(node, Topic(change.topic))
            case "leave" if change.topic is not None:
                self._leave(node, Topic(change.topic))

    def _return(self, node: NodeId) -> None:
        """Begin a new life with the subscriptions of the former one and none of its views."""
        if node in self.nodes or not self._lives[node]:
            return
        self._start(node)
        for topic in sorted(self.subscribers):
            if node in self.subscribers[topic]:
                self._introduce(node, topic)

    def _join(self, node: NodeId, topic: Topic) -> None:
        ids = self.subscribers.setdefault(topic, set())
        if node in ids:
            return
        if node not in self.nodes and not self._lives[node]:
            self._start(node)
        ids.add(node)
        if node in self.nodes:
            self._introduce(node, topic)

    def _leave(self, node: NodeId, topic: Topic) -> None:
        self.subscribers.get(topic, set()).discard(node)
        if node in self.nodes:
            self._do(node, LeaveTopic(topic))
        self._resize(topic)

    def _introduce(self, node: NodeId, topic: Topic) -> None:
        """Give a newcomer a random view; as many random subscribers hear of it."""
        size = self._resize(topic)
        self._do(node, JoinTopic(topic, self._sample(topic, node, size), size))
        for other in self._sample(topic, node, size):
            self._do(other, Introduce(topic, (node,)))

    def _resize(self, topic: Topic) -> int:
        """The view size by the number of subscribers; subscribers with another size are told."""
        ids = self.subscribers.get(topic, set())
        size = view_size(len(ids), self.connected, self.rounding)
        for node in sorted(ids & self.nodes.keys()):
            membership = self.nodes[node].topics.get(topic)
            if membership is not None and membership.view.size != size:
                self._do(node, Resize(topic, size))
        return size

    def _sample(self, topic: Topic, node: NodeId, size: int) -> tuple[NodeId, ...]:
        """Random subscribers of a topic that are up."""
        others = sorted((self.subscribers[topic] & self.nodes.keys()) - {node})
        return tuple(self._random.sample(others, min(size, len(others))))

    # -- events ----------------------------------------------------------------------------------

    def _start(self, node: NodeId) -> None:
        """Start a node; its first tick is at a random moment of the coming period."""
        self._lives[node] += 1
        life = self._lives[node]
        chance = Random(combined(combined(self.run, node), life))
        self.nodes[node] = self.make(node, self.config, chance.randrange)
        self._schedule_tick(node, life, self.now + self._random.random() * self.config.period_ms)

    def _schedule_tick(self, node: NodeId, life: int, due: TimeMs) -> None:
        """`due` is without jitter, so that a node's ticks do not drift."""
        jitter = self.network.jitter * self.config.period_ms
        time = max(self.now, due + self._random.uniform(-jitter, jitter))
        self._at(time, lambda: self._tick(node, life, due))

    def _tick(self, node: NodeId, life: int, due: TimeMs) -> None:
        if node in self.nodes and self._lives[node] == life:
            self._do(node, Tick())
            self._schedule_tick(node, life, due + self.config.period_ms)

    def _do(self, node: NodeId, cause: Cause) -> None:
        actor = self.nodes[node]
        effects = actor.step(cause, self.now)
        actor.check_invariants(cause)
        for effect in effects:
            self._bring_about(node, effect)

    def _bring_about(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case SendToNode():
                self._send(node, effect)
            case ViewChanged():
                self.changed += 1
            case Stranded(topic):
                size = self.nodes[node].topics[topic].view.size
                self._do(node, Introduce(topic, self._sample(topic, node, size)))

    def _send(self, sender: NodeId, effect: SendToNode) -> None:
        self.sent[type(effect.message).__name__] += 1
        if effect.to == sender:
            self._at(self.now, lambda: self._deliver(sender, effect))
        elif self._random.random() < self.network.loss:
            self.sent["lost"] += 1
        else:
            self._at(self.now + self._latency(), lambda: self._deliver(sender, effect))

    def _deliver(self, sender: NodeId, effect: SendToNode) -> None:
        if effect.to in self.nodes:
            self._do(effect.to, ReceivedFromNode(sender, effect.message))
        elif self.network.reports_failures:
            self._at(self.now + self._latency(), lambda: self._report(sender, effect.to))

    def _report(self, sender: NodeId, down: NodeId) -> None:
        if sender in self.nodes:
            self._do(sender, Unreachable(down))

    def _latency(self) -> TimeMs:
        return self._random.uniform(self.network.least_latency_ms, self.network.most_latency_ms)

    def _at(self, time: TimeMs, act: Callable[[], None]) -> None:
        self._entries += 1
        heappush(self._agenda, (time, self._entries, act))
