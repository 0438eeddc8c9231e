"""Trees without order: the dissemination of VCube-PS and nothing on top of it.

A publication goes down the tree of the subscribers its publisher knows, and is delivered where and
when it arrives.  There are no barriers, no ACKs of publications, and no waiting for earlier ones:
an answer may come before its question, and a message may miss a subscriber that its publisher has
not heard of.  The latency is the network's alone.

Joining: SUB goes to all nodes as in VCube-PS ([J] Algorithm 2, lines 23-28), and each answers the
newcomer directly whether it subscribes; ``subscribe`` is complete when all have.  Leaving: UNS goes
to the subscribers, and no node waits for an answer.

`Pub`, `Sub` and `Uns` are the PUB, SUB and UNS of [J], without the fields that serve order there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cubecast.baselines.single_root import Branches
from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, dimension_for


class Pub:
    """A publication; `members` are the subscribers that its publisher knows."""

    __slots__ = ("body", "first", "members", "stream", "topic")
    kind: ClassVar[str] = "pub"

    def __init__(
        self, topic: Topic, stream: Stream, first: Seq, members: int, body: tuple[object, ...]
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = first
        self.members = members
        self.body = body


class BestEffortChange:
    """`source` joins or leaves: its operation `number`.  It travels down the tree of `members`."""

    __slots__ = ("members", "number", "source", "topic")
    kind: ClassVar[str]

    def __init__(self, topic: Topic, source: NodeId, number: int, members: int) -> None:
        self.topic = topic
        self.source = source
        self.number = number
        self.members = members


class Sub(BestEffortChange):
    """A node subscribes."""

    __slots__ = ()
    kind: ClassVar[str] = "sub"


class Uns(BestEffortChange):
    """A node unsubscribes."""

    __slots__ = ()
    kind: ClassVar[str] = "uns"


class SubAnswer:
    """The sender has heard of the newcomer's operation `number`.

    `own` is the number of the sender's own latest operation, and `subscribed` what that was.
    """

    __slots__ = ("number", "own", "subscribed", "topic")
    kind: ClassVar[str] = "ack"

    def __init__(self, topic: Topic, number: int, own: int, subscribed: bool) -> None:
        self.topic = topic
        self.number = number
        self.own = own
        self.subscribed = subscribed


class BestEffortSeat:
    """A node's state of a topic."""

    __slots__ = ("branches", "members", "missing", "number", "numbers", "published", "subscribed")

    def __init__(self, node: NodeId) -> None:
        self.branches = Branches(node, children)
        self.subscribed = False
        self.members = 0
        self.numbers: dict[NodeId, int] = {}
        """The latest operation of each node that was heard of."""
        self.number = 0
        """The latest operation of this node."""
        self.missing = 0
        """The number of nodes that have not answered its SUB yet."""
        self.published: Seq = 0

    def learn(self, node: NodeId, number: int, subscribed: bool) -> None:
        """Believe the later of two operations of a node."""
        if number > self.numbers.get(node, -1):
            self.numbers[node] = number
            self.members = self.members & ~(1 << node) | subscribed << node


class BestEffort:
    """VCube trees rooted at the publisher; a message is delivered as it arrives."""

    __slots__ = ("_dimension", "_everyone", "_node", "_nodes", "_port", "_seats", "_stream")
    label: ClassVar[str] = "best-effort"

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:
        self._node = node
        self._port = port
        self._nodes = nodes
        self._dimension = dimension_for(nodes)
        self._everyone = (1 << nodes) - 1
        self._stream = Stream(node, 0)
        self._seats: dict[Topic, BestEffortSeat] = {}

    # -- what the application calls --------------------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        if members >> self._node & 1:
            seat = self._seat(topic)
            seat.subscribed = True
            seat.members = members

    def subscribe(self, topic: Topic, now: Time) -> None:
        seat = self._seat(topic)
        if seat.subscribed:
            return
        seat.subscribed = True
        seat.members |= 1 << self._node
        seat.number += 1
        seat.missing = self._nodes - 1
        if seat.missing:
            self._pass_on(
                seat, Sub(topic, self._node, seat.number, self._everyone), self._dimension
            )
        else:
            self._port.joined(topic)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        seat = self._seat(topic)
        if seat.subscribed:
            seat.subscribed = False
            seat.members &= ~(1 << self._node)
            seat.number += 1
            self._pass_on(seat, Uns(topic, self._node, seat.number, seat.members), self._dimension)
            self._port.left(topic)

    def register(self, topic: Topic, now: Time) -> None:
        """Only a subscriber knows the subscribers, as in VCube-PS."""
        raise ValueError(
            f"node {self._node} cannot register for {topic!r}: there are no open groups here, "
            "only subscribers publish"
        )

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        """Deliver here and send at once."""
        seat = self._seat(topic)
        if not seat.subscribed:
            raise ValueError(f"node {self._node} cannot publish on {topic!r}: it is not subscribed")
        message = Pub(topic, self._stream, seat.published, seat.members, body)
        seat.published += 1
        self._port.deliver(message)
        self._pass_on(seat, message, self._dimension)
        return True

    def on_wake(self, now: Time) -> None:
        """There are no timers."""

    def load(self) -> Load:
        """Nothing is ever kept."""
        return Load(0, 0)

    # -- messages --------------------------------------------------------------------------------

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        seat = self._seat(message.topic)
        if type(message) is SubAnswer:
            self._on_answer(seat, message, sender)
            return
        self._pass_on(seat, message, (self._node ^ sender).bit_length() - 1)
        if type(message) is Pub:
            if seat.subscribed:
                self._port.deliver(message)
            return
        seat.learn(message.source, message.number, type(message) is Sub)
        if type(message) is Sub:
            answer = SubAnswer(message.topic, message.number, seat.number, seat.subscribed)
            self._port.control(message.source, answer)

    def _on_answer(self, seat: BestEffortSeat, answer: SubAnswer, sender: NodeId) -> None:
        seat.learn(sender, answer.own, answer.subscribed)
        if answer.number == seat.number and seat.missing:
            seat.missing -= 1
            if not seat.missing:
                self._port.joined(answer.topic)

    def _pass_on(self, seat: BestEffortSeat, message: Pub | BestEffortChange, h: int) -> None:
        peers = seat.branches.children(message.members, h)
        if peers:
            self._port.relay(peers, message)

    def _seat(self, topic: Topic) -> BestEffortSeat:
        seat = self._seats.get(topic)
        if seat is None:
            seat = self._seats[topic] = BestEffortSeat(self._node)
        return seat
