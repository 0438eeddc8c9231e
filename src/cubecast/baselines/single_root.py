"""One root per topic: SRPT-S of [J] section 4 and the fixed tree of [B] section 6.

Theory of operation.  A publisher delegates its message to the topic's root, which stamps it with
the set of subscribers and sends it down one tree, the same for every publisher.  Each node on the
way computes its own children from that set.  The publisher, if it subscribes, receives its message
as the others do.  The root alone keeps the membership: a node tells it that it joins or leaves, and
the root answers.  The root need not subscribe.

`SingleRoot` is SRPT-S: the tree is the VCube tree over *all* nodes without the branches that hold
no subscriber, so that forwarders take part, and nothing is ordered.  `FixedTree` has a tree of
subscribers alone, and receivers deliver in causal order.  The papers describe both in a sentence
or two; this follows from them:

1. Delegations, joins, leaves and answers are control messages: they are no PUB messages, and they
   bypass a sending queue that lets control messages pass.
2. Operations of a node are numbered, so that a join and a leave that overtake each other on the
   way leave the root with the later one.
3. Messages that arrive between the call of ``subscribe`` and the root's answer wait for the answer.
4. `Pub` is the PUB of [J]; the other messages have no name there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from cubecast.protocol.paper.sets import BOTTOM, Held, Ident, Idents
from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, dimension_for, forwarding_children

Step: TypeAlias = Callable[[NodeId, int, int], tuple[NodeId, ...]]
"""(node, members, h) -> the children of the node in its clusters 1 … h."""


class Branches:
    """The children of one node in trees of one topic, computed once per set of members."""

    __slots__ = ("_found", "_members", "_node", "_step")

    def __init__(self, node: NodeId, step: Step) -> None:
        self._node = node
        self._step = step
        self._members = 0
        self._found: dict[int, tuple[NodeId, ...]] = {}

    def children(self, members: int, h: int) -> tuple[NodeId, ...]:
        if members != self._members:
            self._members = members
            self._found = {}
        found = self._found.get(h)
        if found is None:
            found = self._found[h] = self._step(self._node, members, h)
        return found


class Delegate:
    """A publisher asks the root to publish for it."""

    __slots__ = ("barrier", "body", "first", "size", "stream", "topic")
    kind: ClassVar[str] = "delegate"

    def __init__(
        self,
        topic: Topic,
        stream: Stream,
        first: Seq,
        barrier: Idents,
        body: tuple[object, ...],
        size: int,
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = first
        self.barrier = barrier
        self.body = body
        self.size = size


class Pub:
    """A publication on its way down the tree of `members`, the subscribers that the root knew."""

    __slots__ = (
        "body",
        "cb",
        "first",
        "ident",
        "members",
        "size",
        "stream",
        "topic",
    )
    kind: ClassVar[str] = "pub"

    def __init__(self, delegate: Delegate, members: int) -> None:
        self.topic = delegate.topic
        self.stream = delegate.stream
        self.first = delegate.first
        self.cb = delegate.barrier
        self.body = delegate.body
        self.size = delegate.size
        self.ident: Ident = (delegate.stream.source, delegate.first)
        self.members = members


class Join:
    """The sender subscribes: its operation `number`."""

    __slots__ = ("number", "topic")
    kind: ClassVar[str] = "sub"

    def __init__(self, topic: Topic, number: int) -> None:
        self.topic = topic
        self.number = number


class Leave(Join):
    """The sender unsubscribes."""

    __slots__ = ()
    kind: ClassVar[str] = "uns"


class Done:
    """The root has heard of operation `number`.

    `cut` names, for each publisher, the last message that was sent before: later ones are addressed
    to the new subscriber.
    """

    __slots__ = ("cut", "number", "topic")
    kind: ClassVar[str] = "ack"

    def __init__(self, topic: Topic, number: int, cut: dict[NodeId, Seq]) -> None:
        self.topic = topic
        self.number = number
        self.cut = cut


class Root:
    """The state of a topic at its root."""

    __slots__ = ("early", "members", "numbers", "sent")

    def __init__(self) -> None:
        self.members = 0
        self.numbers: dict[NodeId, int] = {}
        """The latest operation of each node."""
        self.sent: dict[NodeId, Seq] = {}
        """The last message sent of each publisher."""
        self.early: dict[Ident, Delegate] = {}
        """Messages that overtook an earlier one of their publisher (`FixedTree` only)."""


class TreeSeat:
    """The state of a topic at any node.  `delivered`, `barrier`, `held`: `FixedTree` only."""

    __slots__ = (
        "barrier",
        "branches",
        "delivered",
        "early",
        "held",
        "joined",
        "number",
        "published",
        "subscribed",
    )

    def __init__(self, branches: Branches) -> None:
        self.branches = branches
        self.number = 0
        self.subscribed = False
        """From the call of ``subscribe`` to the call of ``unsubscribe``."""
        self.joined = False
        """Subscribed, and the root has said so."""
        self.early: list[Pub] = []
        """Messages that came before the root's answer."""
        self.published: Seq = 0
        self.delivered: dict[NodeId, Seq] = {}
        self.barrier = Idents()
        self.held: Held[Pub] = Held()


class SingleRoot:
    """SRPT-S: one static tree per topic, forwarders included, without order or ACKs."""

    __slots__ = ("_dimension", "_node", "_port", "_root_of", "_roots", "_seats", "_stream")
    label: ClassVar[str] = "srpt-s"
    forwarders: ClassVar[bool] = True
    """Whether nodes that do not subscribe take part in the tree."""

    def __init__(
        self, node: NodeId, port: Port, *, nodes: int, root_of: Callable[[Topic], NodeId]
    ) -> None:
        self._node = node
        self._port = port
        self._dimension = dimension_for(nodes)
        self._root_of = root_of
        self._stream = Stream(node, 0)
        self._seats: dict[Topic, TreeSeat] = {}
        self._roots: dict[Topic, Root] = {}

    # -- what the application calls --------------------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        """Begin with `members` subscribed; the root knows it."""
        if members >> self._node & 1:
            seat = self._seat(topic)
            seat.subscribed = seat.joined = True
        if self._root_of(topic) == self._node:
            self._root(topic).members = members

    def subscribe(self, topic: Topic, now: Time) -> None:
        seat = self._seat(topic)
        if not seat.subscribed:
            seat.subscribed = True
            seat.number += 1
            self._tell_root(Join(topic, seat.number))

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        seat = self._seat(topic)
        if seat.subscribed:
            seat.subscribed = seat.joined = False
            seat.early.clear()
            seat.held.clear()
            seat.number += 1
            self._tell_root(Leave(topic, seat.number))

    def register(self, topic: Topic, now: Time) -> None:
        """Nothing to do: the root takes messages from any node."""

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        """Delegate to the root; whether the publisher subscribes makes no difference."""
        seat = self._seat(topic)
        barrier = self._next_barrier(seat)
        self._tell_root(Delegate(topic, self._stream, seat.published, barrier, body, size))
        seat.published += 1
        return True

    def on_wake(self, now: Time) -> None:
        """There are no timers."""

    def load(self) -> Load:
        """Messages that wait: for the root's answer, for predecessors, or at the root."""
        held = 0
        for seat in self._seats.values():
            held += sum(message.size for message in seat.early)
            held += sum(message.size for message in seat.held.messages.values())
        for root in self._roots.values():
            held += sum(message.size for message in root.early.values())
        return Load(held, 0)

    # -- messages --------------------------------------------------------------------------------

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        kind = type(message)
        if kind is Pub:
            h = (self._node ^ sender).bit_length() - 1
            seat = self._seat(message.topic)
            self._pass_on(seat, message, h)
        elif kind is Done:
            self._on_done(message)
        else:
            self._at_root(message, sender)

    def _tell_root(self, message: Delegate | Join) -> None:
        root = self._root_of(message.topic)
        if root == self._node:
            self._at_root(message, root)
        else:
            self._port.control(root, message)

    def _at_root(self, message: Delegate | Join, sender: NodeId) -> None:
        """Handle, at the root, a message to publish, a join or a leave."""
        if type(message) is Delegate:
            self._disseminate(message)
            return
        assert isinstance(message, Join)
        root = self._root(message.topic)
        if message.number <= root.numbers.get(sender, 0):
            return
        root.numbers[sender] = message.number
        if type(message) is Leave:
            root.members &= ~(1 << sender)
        else:
            root.members |= 1 << sender
        done = Done(message.topic, message.number, dict(root.sent))
        if sender == self._node:
            self._on_done(done)
        else:
            self._port.control(sender, done)

    def _disseminate(self, delegate: Delegate) -> None:
        """Send a message down the tree of the present subscribers."""
        root = self._root(delegate.topic)
        root.sent[delegate.stream.source] = delegate.first
        message = Pub(delegate, root.members)
        self._pass_on(self._seat(delegate.topic), message, self._dimension)

    def _pass_on(self, seat: TreeSeat, message: Pub, h: int) -> None:
        """Relay to the subtrees of clusters 1 … h, and take the message if it is wanted."""
        peers = seat.branches.children(message.members, h)
        if peers:
            self._port.relay(peers, message)
        if seat.joined:
            self._accept(seat, message)
        elif seat.subscribed:
            seat.early.append(message)

    def _on_done(self, done: Done) -> None:
        """Complete ``subscribe`` or ``unsubscribe``: the root has heard of it."""
        seat = self._seat(done.topic)
        if done.number != seat.number:
            return
        if not seat.subscribed:
            self._port.left(done.topic)
            return
        seat.joined = True
        self._begin(seat, done.cut)
        self._port.joined(done.topic)
        early, seat.early = seat.early, []
        for message in early:
            self._accept(seat, message)

    # -- order: none here --------------------------------------------------------------------------

    def _next_barrier(self, seat: TreeSeat) -> Idents:
        """The barrier of the next message."""
        return seat.barrier

    def _begin(self, seat: TreeSeat, cut: dict[NodeId, Seq]) -> None:
        """Begin a subscription after `cut`."""

    def _accept(self, seat: TreeSeat, message: Pub) -> None:
        """Take a message at a subscriber: it is delivered as it comes."""
        self._port.deliver(message)

    def _seat(self, topic: Topic) -> TreeSeat:
        seat = self._seats.get(topic)
        if seat is None:
            seat = self._seats[topic] = self._new_seat()
        return seat

    def _new_seat(self) -> TreeSeat:
        return TreeSeat(Branches(self._node, forwarding_children if self.forwarders else children))

    def _root(self, topic: Topic) -> Root:
        root = self._roots.get(topic)
        if root is None:
            root = self._roots[topic] = Root()
        return root


class FixedTree(SingleRoot):
    """The fixed tree of [B] 6: one tree of subscribers per topic, delivery in causal order.

    Barriers are those of VCube-PS ([J] Algorithm 2, lines 21-22 and 83-94).  The root sends the
    messages of each publisher in their order, so what it has sent when a newcomer joins is
    causally closed: the newcomer needs nothing of it, and receives everything that comes after.
    """

    __slots__ = ()
    label: ClassVar[str] = "fixed-tree"
    forwarders: ClassVar[bool] = False

    def _disseminate(self, delegate: Delegate) -> None:
        """Send the messages of a publisher in the order in which it published them."""
        root = self._root(delegate.topic)
        source = delegate.stream.source
        if delegate.first <= root.sent.get(source, -1):
            return
        root.early[source, delegate.first] = delegate
        while (following := (source, root.sent.get(source, -1) + 1)) in root.early:
            super()._disseminate(root.early.pop(following))

    def _next_barrier(self, seat: TreeSeat) -> Idents:
        barrier = seat.barrier
        seat.barrier = Idents({seat.published: 1 << self._node})
        return barrier

    def _begin(self, seat: TreeSeat, cut: dict[NodeId, Seq]) -> None:
        for source, seq in cut.items():
            if seat.delivered.get(source, -1) < seq:
                seat.delivered[source] = seq

    def _accept(self, seat: TreeSeat, message: Pub) -> None:
        """Deliver messages that have all their predecessors, in order of arrival."""
        held = seat.held
        source, seq = message.ident
        if seq <= seat.delivered.get(source, -1) or message.ident in held.messages:
            return
        held.add(message)
        while found := held.first(self._lacking, seat):
            held.remove(found)
            self._deliver(seat, found)

    def _lacking(self, seat: TreeSeat, barrier: Idents) -> NodeId:
        """The source of a message of `barrier` that is not delivered yet, or `BOTTOM`."""
        delivered = seat.delivered
        for seq, sources in barrier.items():
            while sources:
                source = sources.bit_length() - 1
                if delivered.get(source, -1) < seq:
                    return source
                sources ^= 1 << source
        return BOTTOM

    def _deliver(self, seat: TreeSeat, message: Pub) -> None:
        """[J] lines 85-89; the own message of a publisher is in its barrier since it was sent."""
        self._port.deliver(message)
        source, seq = message.ident
        seat.delivered[source] = seq
        seat.held.touch(source)
        if source != self._node:
            seat.barrier.subtract(message.cb)
            seat.barrier.add(source, seq)
