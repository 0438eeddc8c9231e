"""Flooding without memory: the smallest protocol, and one that can crash.

A publication goes to every node and is delivered as it arrives.  There is no order, no repair, and
no membership.  Nothing needs to be recovered, and nothing is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, NamedTuple

from cubecast.protocol.port import Load, Message, NodeId, Port, Seq, Stream, Time, Topic


class FloodPub(NamedTuple):
    """A publication."""

    topic: Topic
    stream: Stream
    first: Seq
    body: tuple[object, ...]
    kind: str = "pub"


class Flood:
    """A `Process` in life number `life` of its node."""

    label: ClassVar[str] = "flood"

    def __init__(self, node: NodeId, port: Port, life: int, nodes: int) -> None:
        self.node = node
        self.life = life
        self.port = port
        self._others = tuple(peer for peer in range(nodes) if peer != node)
        self._subscribed: set[Topic] = set()
        self._published: Counter[Topic] = Counter()

    def establish(self, topic: Topic, members: int) -> None:
        if members >> self.node & 1:
            self._subscribed.add(topic)

    def subscribe(self, topic: Topic, now: Time) -> None:
        self._subscribed.add(topic)
        self.port.joined(topic)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self._subscribed.discard(topic)
        self.port.left(topic)

    def register(self, topic: Topic, now: Time) -> None:
        """Nothing to do: any node may publish."""

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        stream = Stream(self.node, self.life)
        publication = FloodPub(topic, stream, self._published[topic], body)
        self._published[topic] += len(body)
        self.take(publication)
        self.port.relay(self._others, publication)
        return True

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        assert isinstance(message, FloodPub)
        self.take(message)

    def take(self, publication: FloodPub) -> None:
        """Deliver a publication if this node subscribes to its topic."""
        if publication.topic in self._subscribed:
            self.port.deliver(publication)

    def on_wake(self, now: Time) -> None:
        """Nothing is ever planned."""

    def load(self) -> Load:
        return Load(0, 0)
