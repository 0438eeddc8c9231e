"""Processes that can crash and are simple enough to be seen through, to try the machinery on.

None is a protocol anybody would want.  Each is wrong in a way that is known beforehand, so that it
is known which property the machinery must find broken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from cubecast.protocol.port import Load, Message, NodeId, Port, Stream, Time, Topic


@dataclass(frozen=True, slots=True)
class Pub:
    """A publication as the simulator expects one."""

    topic: Topic
    stream: Stream
    first: int
    body: tuple[object, ...]
    kind: ClassVar[str] = "pub"


class Silent:
    """Takes everything and does nothing: nobody ever joins, nothing is ever delivered."""

    label: ClassVar[str] = "silent"

    def __init__(self, node: NodeId, port: Port, life: int, nodes: int) -> None:
        self.node = node
        self.port = port
        self.life = life
        self.others = tuple(peer for peer in range(nodes) if peer != node)

    def establish(self, topic: Topic, members: int) -> None: ...
    def subscribe(self, topic: Topic, now: Time) -> None: ...
    def unsubscribe(self, topic: Topic, now: Time) -> None: ...
    def register(self, topic: Topic, now: Time) -> None: ...

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        return True

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None: ...
    def on_wake(self, now: Time) -> None: ...

    def load(self) -> Load:
        return Load(0, 0)


class Flood(Silent):
    """Sends to everybody and delivers as it comes: no order, no repair, no view of who is there."""

    label: ClassVar[str] = "flood"

    def __init__(self, node: NodeId, port: Port, life: int, nodes: int) -> None:
        super().__init__(node, port, life, nodes)
        self.topics: set[Topic] = set()
        self.sent: Counter[Topic] = Counter()
        self.marks: Counter[str] = Counter()
        self.heard: list[tuple[NodeId, int]] = []
        """Who sent what we received, and in which life."""

    def establish(self, topic: Topic, members: int) -> None:
        if members >> self.node & 1:
            self.topics.add(topic)

    def subscribe(self, topic: Topic, now: Time) -> None:
        self.topics.add(topic)
        self.port.joined(topic)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self.topics.discard(topic)

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        pub = Pub(topic, Stream(self.node, self.life), self.sent[topic], body)
        self.sent[topic] += 1
        self.take(pub)
        self.port.relay(self.others, pub)
        return True

    def on_packet(self, message: Message, sender: NodeId, life: int, now: Time) -> None:
        self.marks["heard"] += 1
        self.heard.append((sender, life))
        assert isinstance(message, Pub)
        self.take(message)

    def take(self, pub: Pub) -> None:
        if pub.topic in self.topics:
            self.port.deliver(pub)


class Oracle(Flood):
    """A flood that is told who is up: the world's truth, so that its views are right.

    It deals out views when `tell` is called, which is not fair and makes convergence testable.
    """

    label: ClassVar[str] = "oracle"

    def tell(self, epoch: int, members: int) -> None:
        self.port.view(epoch, members)
