"""Processes that can crash and are simple enough to be seen through, to try the machinery on.

Each is wrong in a way that is known beforehand, so that it is known which property the machinery
must find broken.
"""

from __future__ import annotations

from collections import Counter

from cubecast.baselines import Flood
from cubecast.baselines.flood import FloodPub
from cubecast.chaos.simulated.driver import Population
from cubecast.protocol.port import Message, NodeId, Port, Time, Topic
from cubecast.sim.protocols import Mortality


class Silent(Flood):
    """Takes everything and does nothing: no node ever joins, nothing is ever delivered."""

    def subscribe(self, topic: Topic, now: Time) -> None: ...

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        return True


class Listener(Flood):
    """A flood that remembers which life of which node it heard, and counts it."""

    def __init__(self, node: NodeId, port: Port, life: int, nodes: int) -> None:
        super().__init__(node, port, life, nodes)
        self.marks: Counter[str] = Counter()
        self.heard: list[tuple[NodeId, int]] = []

    def on_packet(self, message: Message, sender: NodeId, life: int, now: Time) -> None:
        self.marks["heard"] += 1
        self.heard.append((sender, life))
        self.on_message(message, sender, now)


class Failing(Flood):
    """Raises at its third publication."""

    def take(self, publication: FloodPub) -> None:
        assert publication.first < 2, "two is enough"
        super().take(publication)


def people(kind: type[Flood]) -> Population:
    """Nodes of one kind."""
    return lambda params: Mortality(lambda node, port, life: kind(node, port, life, params.nodes))
