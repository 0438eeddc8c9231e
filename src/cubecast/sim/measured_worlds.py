"""Worlds that measure more: histograms of latencies, delays and barriers; the cost of churn.

`WatchedWorld` costs more per message than `World` does, `ChangingWorld` does not; neither changes
anything in a run.  Their tallies have the same names as in compiled code.

latency            time from the publish call to delivery, publishers' own left out;
delay              time from reception to delivery ([J] 4: t_d);
barrier            direct predecessors that a publication of VCube-PS carries ([J] 3.2);
barrier_unreduced  messages delivered at the publisher since its last publication, that included:
                   what a barrier holds if nothing is ever removed from it.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cubecast.baselines.brokers import broker_ids
from cubecast.protocol.paper.state import Pub
from cubecast.protocol.port import Message, NodeId, Publication, Time, Topic
from cubecast.sim.metrics import Meter
from cubecast.sim.networks import SendingQueue
from cubecast.sim.world import Handler, SimPort, World

EXACT_BITS = 13
"""Values of so many bits are tallied exactly, larger ones rounded down to so many."""


class LateMeter(Meter):
    """Leaves out publications before `since`, the end of the warm-up."""

    def __init__(self, since: Time = 0) -> None:
        super().__init__()
        self.since = since

    def received(self, body: tuple[int, ...], subscribed: bool, now: Time) -> None:
        if self.published_at[body[0]] >= self.since:
            super().received(body, subscribed, now)

    def delivered(self, ident: int, own: bool, now: Time) -> None:
        if self.published_at[ident] >= self.since:
            super().delivered(ident, own, now)

    def summary(self) -> dict[str, float]:
        """Messages sent are counted from the beginning."""
        late = sum(at >= self.since for at in self.published_at)
        return {**super().summary(), "publications": float(late)}


class ChangingWorld(World):
    """Counts a node as subscribed from the call of ``subscribe`` on, for the meter, as VCube-PS
    delivers from then on; also counts completed subscriptions."""

    joins = 0

    def joined(self, node: NodeId, topic: Topic) -> None:
        self.joins += 1
        super().joined(node, topic)

    def _receiver(self, node: NodeId) -> Handler:
        on_message = self.processes[node].on_message
        received = self.meter.received
        wanted = self._wanted[node]

        def receive(message: Any, sender: NodeId, now: Time) -> None:
            if message.kind == "pub":
                received(message.body, message.topic in wanted, now)
            on_message(message, sender, now)

        return receive

    def figures(self) -> dict[str, float]:
        """The measurements besides the meter's summary."""
        found = {
            "receptions": float(self.meter.receptions),
            "own_deliveries": float(self.meter.own_deliveries),
            "joins": float(self.joins),
        }
        if isinstance(self._network, SendingQueue):
            found["wait_mean"] = self._network.mean_wait()
            found["wait_worst"] = max(0.0, max(self._network.mean_queues()) - 1)
        return found


class WatchedWorld(World):
    """A `World` that tallies; `brokers` is how many of its nodes are brokers (SRPT-B)."""

    def __init__(self, nodes: int, *args: Any, brokers: int = 0, **options: Any) -> None:
        self.histograms: dict[str, Counter[int]] = {
            name: Counter() for name in ("latency", "delay", "barrier", "barrier_unreduced")
        }
        self.dependent = 0
        """Publications by nodes that had delivered a message of the topic before."""
        self.delayed: set[int] = set()
        """Messages that waited for a predecessor somewhere."""
        self._arrived: dict[tuple[NodeId, int], Time] = {}
        self._since_own: dict[tuple[NodeId, Topic], int] = {}
        self.tree_sum = 0
        """From the publish call until a broker has a message: once for each subscriber that it
        serves, and once for itself if it subscribes."""
        self._broker_of = _broker_of(nodes, brokers) if brokers else []
        super().__init__(nodes, *args, **options)

    def _port(self, node: NodeId) -> SimPort:
        return WatchedPort(self, node, self._network)

    def _receiver(self, node: NodeId) -> Handler:
        receive = super()._receiver(node)
        arrived = self._arrived
        wanted = self._wanted[node]
        is_broker = bool(self._broker_of) and self._broker_of[node] == node

        def note(message: Any, sender: NodeId, now: Time) -> None:
            if message.kind == "pub" and message.topic in wanted:
                for ident in message.body:
                    arrived.setdefault((node, ident), now)
                if is_broker:
                    self._tally_tree(message.body, 1)
            receive(message, sender, now)

        return note

    def _new_message(self, node: NodeId, topic: Topic, reply_to: tuple[int, ...]) -> int:
        self.dependent += (node, topic) in self._since_own
        return super()._new_message(node, topic, reply_to)

    def delivered(self, node: NodeId, publication: Publication) -> None:
        super().delivered(node, publication)
        key = node, publication.topic
        self._since_own[key] = self._since_own.get(key, 0) + len(publication.body)
        root_of = self._root_of
        start = root_of(publication.topic) if root_of else publication.stream.source
        if node != start:
            self._tally(node, publication.body)

    def figures(self) -> dict[str, float]:
        """The measurements besides the meter's summary."""
        delays = self.histograms["delay"]
        found = {
            "dependent": float(self.dependent),
            "delayed": float(delays.total() - delays[0]),
            "delayed_messages": float(len(self.delayed)),
            "held": float(sum(process.load().held for process in self.processes)),
        }
        if self._broker_of:
            meter = self.meter
            found["tree_mean"] = self.tree_sum / max(meter.receptions, 1)
            found["last_hop_mean"] = meter.summary()["reception_mean"] - found["tree_mean"]
        return found

    def rounded_histograms(self) -> dict[str, dict[int, int]]:
        """The histograms as compiled code keeps them."""
        return {name: rounded(tally) for name, tally in self.histograms.items()}

    def _tally(self, node: NodeId, body: Collection[object]) -> None:
        for ident in body:
            assert isinstance(ident, int)
            self.histograms["latency"][self.now - self.meter.published_at[ident]] += 1
            delay = self.now - self._arrived.pop((node, ident), self.now)
            self.histograms["delay"][delay] += 1
            if delay:
                self.delayed.add(ident)

    def published_with(self, node: NodeId, topic: Topic, barrier: int) -> None:
        """A publication of `node`, which has delivered it, leaves with so many predecessors."""
        key = node, topic
        self.histograms["barrier"][barrier] += 1
        self.histograms["barrier_unreduced"][self._since_own[key] - 1] += 1
        self._since_own[key] = 1

    def relayed(self, node: NodeId, peers: Sequence[NodeId], body: tuple[int, ...]) -> None:
        """Time that passed before a broker served its own subscribers."""
        if self._broker_of:
            self._tally_tree(body, sum(self._broker_of[peer] == node for peer in peers))

    def _tally_tree(self, body: tuple[int, ...], receivers: int) -> None:
        published_at = self.meter.published_at
        self.tree_sum += receivers * sum(self.now - published_at[ident] for ident in body)


def rounded(tally: Mapping[int, int]) -> dict[int, int]:
    """The histogram with large values rounded down, as compiled code keeps it."""
    found: Counter[int] = Counter()
    for value, count in tally.items():
        excess = max(0, value.bit_length() - EXACT_BITS)
        found[value >> excess << excess] += count
    return dict(sorted(found.items()))


def _broker_of(nodes: int, brokers: int) -> list[NodeId]:
    """The broker of each node's block; a broker belongs to its own."""
    ids = broker_ids(nodes, brokers)
    return [ids[bisect(ids, node) - 1] for node in range(nodes)]


class WatchedPort(SimPort):
    """Tells the world what a publication carries when it leaves its source."""

    __slots__ = ()

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        self._watch(peers, message)
        super().relay(peers, message)

    def _watch(self, peers: Sequence[NodeId], message: Any) -> None:
        world = self._world
        assert isinstance(world, WatchedWorld)
        if message.kind == "pub":
            world.relayed(self._node, peers, message.body)
        if type(message) is Pub and message.stream.source == self._node:
            world.published_with(self._node, message.topic, message.cb.count())
