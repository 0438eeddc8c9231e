"""Best effort: the same trees, and nothing else.

A publication travels down the tree that VCube-PS would build, and is delivered where and when it
arrives: no barriers, no ACKs, no repair.  Every node follows every SUB and UNS, so anyone may
publish.  What this shows is what a brokerless system shows that does not order by cause.
"""

from __future__ import annotations

from typing import ClassVar

from cubecast.protocol.port import Load, Message, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, cluster, dimension_for


class Pub:
    """A publication on its way down its publisher's tree."""

    __slots__ = ("body", "first", "stream", "topic")
    kind: ClassVar[str] = "pub"

    def __init__(self, topic: Topic, stream: Stream, first: Seq, body: tuple[object, ...]) -> None:
        self.topic = topic
        self.stream = stream
        self.first = first
        self.body = body


class Change:
    """A node subscribes (`kind` is "sub") or unsubscribes ("uns"); told to all nodes."""

    __slots__ = ("joins", "origin", "topic")

    def __init__(self, topic: Topic, origin: NodeId, joins: bool) -> None:
        self.topic = topic
        self.origin = origin
        self.joins = joins

    @property
    def kind(self) -> str:
        return "sub" if self.joins else "uns"


class BestEffort:
    """A `Process` without any order."""

    label: ClassVar[str] = "best-effort"

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:
        self._node = node
        self._port = port
        self._dimension = dimension_for(nodes)
        self._everyone = (1 << nodes) - 1
        self._stream = Stream(node, 0)
        self._members: dict[Topic, int] = {}
        self._next: dict[Topic, Seq] = {}

    def establish(self, topic: Topic, members: int) -> None:
        self._members[topic] = members

    def subscribe(self, topic: Topic, now: Time) -> None:
        """Tell everyone; nobody is waited for."""
        self._change(topic, True)
        self._port.joined(topic)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self._change(topic, False)
        self._port.left(topic)

    def register(self, topic: Topic, now: Time) -> None:
        """Every node follows the membership: nothing to do."""

    def _change(self, topic: Topic, joins: bool) -> None:
        change = Change(topic, self._node, joins)
        self._apply(change)
        self._port.relay(children(self._node, self._everyone, self._dimension), change)

    def _apply(self, change: Change) -> None:
        members = self._members.get(change.topic, 0)
        bit = 1 << change.origin
        self._members[change.topic] = members | bit if change.joins else members & ~bit

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        first = self._next.get(topic, 0)
        self._next[topic] = first + len(body)
        pub = Pub(topic, self._stream, first, body)
        members = self._members.get(topic, 0)
        self._port.relay(children(self._node, members, self._dimension), pub)
        if members >> self._node & 1:
            self._port.deliver(pub)
        return True

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        height = cluster(self._node, sender) - 1
        match message:
            case Pub():
                members = self._members.get(message.topic, 0)
                self._port.relay(children(self._node, members, height), message)
                if members >> self._node & 1:
                    self._port.deliver(message)
            case Change():
                self._apply(message)
                self._port.relay(children(self._node, self._everyone, height), message)
            case _:
                raise TypeError(f"best effort cannot handle {message!r}")

    def on_wake(self, now: Time) -> None:
        """Nothing is ever repeated."""

    def load(self) -> Load:
        return Load(0, 0)
