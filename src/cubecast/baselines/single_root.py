"""Single root per topic: a publisher hands its message to the root, the root sends it down.

`SingleRoot` is SRPT-S of [J] section 4, the Scribe-like system VCube-PS is compared with: the
tree is a VCube tree over *all* nodes, cut back to the branches that hold subscribers, so nodes
that do not subscribe forward.  `FixedTree` is the comparison of [B] section 6: the same root for
every publisher, a tree of the subscribers alone, and causal barriers at the receivers.

The root keeps the membership and writes it into every message (one shared number), so a relay
needs no view of its own.  Handing a message to the root bypasses the sending queue and is no
publication message; the publisher receives its own message as everyone else does
(docs/deviations.md, "The time model").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from cubecast.protocol.port import Load, Message, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, cluster, dimension_for, forwarding_children

Barrier = tuple[tuple[NodeId, Seq], ...]


class Delegate:
    """A publication on its way from its publisher to the root."""

    __slots__ = ("barrier", "body", "first", "stream", "topic")
    kind: ClassVar[str] = "delegate"

    def __init__(
        self, topic: Topic, stream: Stream, first: Seq, barrier: Barrier, body: tuple[object, ...]
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = first
        self.barrier = barrier
        self.body = body


class Pub(Delegate):
    """The same publication on its way down the tree of `members`."""

    __slots__ = ("members",)
    kind: ClassVar[str] = "pub"

    def __init__(self, delegate: Delegate, members: int) -> None:
        super().__init__(
            delegate.topic, delegate.stream, delegate.first, delegate.barrier, delegate.body
        )
        self.members = members


class Change:
    """A node tells the root that it subscribes or unsubscribes."""

    __slots__ = ("joins", "topic")

    def __init__(self, topic: Topic, joins: bool) -> None:
        self.topic = topic
        self.joins = joins

    @property
    def kind(self) -> str:
        return "sub" if self.joins else "uns"


class Done:
    """The root has made the change."""

    __slots__ = ("joins", "topic")
    kind: ClassVar[str] = "ack"

    def __init__(self, topic: Topic, joins: bool) -> None:
        self.topic = topic
        self.joins = joins


class SingleRoot:
    """SRPT-S: forwarders included, no order."""

    label: ClassVar[str] = "srpt"

    def __init__(
        self, node: NodeId, port: Port, *, nodes: int, root_of: Callable[[Topic], NodeId]
    ) -> None:
        self._node = node
        self._port = port
        self._dimension = dimension_for(nodes)
        self._root_of = root_of
        self._stream = Stream(node, 0)
        self._subscribed: set[Topic] = set()
        self._members: dict[Topic, int] = {}
        self._next: dict[Topic, Seq] = {}

    # -- commands --------------------------------------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        if members >> self._node & 1:
            self._subscribed.add(topic)
        if self._root_of(topic) == self._node:
            self._members[topic] = members

    def subscribe(self, topic: Topic, now: Time) -> None:
        self._to_root(topic, Change(topic, True), now)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self._subscribed.discard(topic)
        self._to_root(topic, Change(topic, False), now)

    def register(self, topic: Topic, now: Time) -> None:
        """Anyone may hand a message to the root."""

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        first = self._next.get(topic, 0)
        self._next[topic] = first + len(body)
        barrier = self.take_barrier(topic, first)
        self._to_root(topic, Delegate(topic, self._stream, first, barrier, body), now)
        return True

    def _to_root(self, topic: Topic, message: Message, now: Time) -> None:
        root = self._root_of(topic)
        if root == self._node:
            self.on_message(message, self._node, now)
        else:
            self._port.control(root, message)

    # -- messages --------------------------------------------------------------------------------

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        match message:
            case Pub():
                below = self.tree(message.members, cluster(self._node, sender) - 1)
                self._pass_on(message, below)
            case Delegate():
                members = self._members.get(message.topic, 0)
                self._pass_on(Pub(message, members), self.tree(members, self._dimension))
            case Change():
                self._change(message, sender, now)
            case Done():
                self._done(message)
            case _:
                raise TypeError(f"a single-root node cannot handle {message!r}")

    def tree(self, members: int, height: int) -> tuple[NodeId, ...]:
        """The children of this node: forwarders are used where they are on the way."""
        return forwarding_children(self._node, members, height)

    def _pass_on(self, pub: Pub, below: tuple[NodeId, ...]) -> None:
        if below:
            self._port.relay(below, pub)
        if pub.topic in self._subscribed:
            self.receive(pub)

    def _change(self, change: Change, sender: NodeId, now: Time) -> None:
        members = self._members.get(change.topic, 0)
        bit = 1 << sender
        self._members[change.topic] = members | bit if change.joins else members & ~bit
        done = Done(change.topic, change.joins)
        if sender == self._node:
            self._done(done)
        else:
            self._port.control(sender, done)

    def _done(self, done: Done) -> None:
        if done.joins:
            self._subscribed.add(done.topic)
            self._port.joined(done.topic)
        else:
            self._port.left(done.topic)

    # -- order: none -----------------------------------------------------------------------------

    def take_barrier(self, topic: Topic, first: Seq) -> Barrier:
        """SRPT-S orders nothing."""
        return ()

    def receive(self, pub: Pub) -> None:
        """Deliver at once."""
        self._port.deliver(pub)

    def on_wake(self, now: Time) -> None:
        """Nothing is ever repeated."""

    def load(self) -> Load:
        return Load(0, 0)


class FixedTree(SingleRoot):
    """[B] 6: subscribers only, and delivery after the causal barrier ([B] Algorithm 5.3)."""

    label: ClassVar[str] = "fixed-tree"

    def __init__(
        self, node: NodeId, port: Port, *, nodes: int, root_of: Callable[[Topic], NodeId]
    ) -> None:
        super().__init__(node, port, nodes=nodes, root_of=root_of)
        self._delivered: dict[Topic, dict[NodeId, Seq]] = {}
        self._first_received: dict[Topic, dict[NodeId, Seq]] = {}
        self._frontier: dict[Topic, dict[NodeId, Seq]] = {}
        self._held: dict[Topic, list[Pub]] = {}

    def tree(self, members: int, height: int) -> tuple[NodeId, ...]:
        return children(self._node, members, height)

    def take_barrier(self, topic: Topic, first: Seq) -> Barrier:
        """The frontier goes into the message; the next one depends on this one alone."""
        barrier = tuple(self._frontier.get(topic, {}).items())
        self._frontier[topic] = {self._node: first}
        return barrier

    def receive(self, pub: Pub) -> None:
        """CHECKRECS: deliver whatever the barriers allow, in order of arrival."""
        self._first_received.setdefault(pub.topic, {}).setdefault(pub.stream.source, pub.first)
        held = self._held.setdefault(pub.topic, [])
        held.append(pub)
        progress = True
        while progress:
            progress = False
            for waiting in list(held):
                if self._satisfied(waiting):
                    held.remove(waiting)
                    self._deliver(waiting)
                    progress = True

    def _satisfied(self, pub: Pub) -> bool:
        """CHECKCB: delivered, or before the first message this node got of that source."""
        delivered = self._delivered.get(pub.topic, {})
        first_received = self._first_received[pub.topic]
        return all(
            delivered.get(source, -1) >= seq or first_received.get(source, -1) > seq
            for source, seq in pub.barrier
        )

    def _deliver(self, pub: Pub) -> None:
        source = pub.stream.source
        delivered = self._delivered.setdefault(pub.topic, {})
        delivered[source] = max(delivered.get(source, -1), pub.first)
        frontier = self._frontier.setdefault(pub.topic, {})
        for dependency, seq in pub.barrier:
            if frontier.get(dependency, seq + 1) <= seq:
                del frontier[dependency]
        frontier[source] = max(frontier.get(source, -1), pub.first)
        self._port.deliver(pub)

    def load(self) -> Load:
        return Load(sum(map(len, self._held.values())), 0)
