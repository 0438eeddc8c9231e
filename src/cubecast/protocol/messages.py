"""The messages between nodes of the production protocol.

`Frame` and `Ack` are the traffic of every publication: plain slotted objects, cheap to make and
never changed after they are sent.  Everything else is rare: frozen, tagged structures.  What must
arrive once and in order travels in a `Parcel` over the links of
`cubecast.protocol.subscriptions.links`.  `Ack` does what the ACK of the papers does, per route.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import ClassVar, TypeAlias

import msgspec

from cubecast.protocol.port import NodeId, Seq, Stream, Topic
from cubecast.protocol.topic.retained_values import RetainedValue

Barrier: TypeAlias = tuple[tuple[Stream, Seq], ...]
"""Direct dependencies: the last message of each stream that must be delivered before."""


ROUTE_BITS = 32
"""Bits of a route's number that count the routes of a stream; above them is the epoch."""


class Route:
    """The subscribers that a publisher addresses from sequence number `start` on.

    A stream's routes are numbered from 0; one ends where the next starts.  Every node that
    relays a frame computes its children from `members`, so the tree is the publisher's and no
    subscriber is skipped (the cure of hole 2, docs/deviations.md).  The `leaves` are fed by the
    publisher itself and pass nothing on; the tree is made of the others, the `interior`.

    A number begins with the `epoch` of the publisher's view: a slot that another node has since
    is no member of the route, whatever its bit says.
    """

    __slots__ = ("interior", "leaves", "members", "number", "start")

    def __init__(self, number: int, start: Seq, members: int, leaves: int = 0) -> None:
        self.number = number
        self.start = start
        self.members = members
        self.leaves = leaves
        self.interior = members & ~leaves

    @property
    def epoch(self) -> int:
        """The view in which its publisher made it."""
        return self.number >> ROUTE_BITS

    def __repr__(self) -> str:
        return f"Route({self.number}, start={self.start}, members={self.members:#b})"


class Frame:
    """Consecutive messages of one stream under one barrier; never split, never changed.

    `stable` is what the publisher knew when it sent the frame: every message up to and including
    that one has been consumed by every subscriber it was addressed to.
    """

    __slots__ = (
        "barrier",
        "body",
        "first",
        "last",
        "route",
        "size",
        "stable",
        "stream",
        "topic",
    )
    kind: ClassVar[str] = "pub"

    def __init__(
        self,
        topic: Topic,
        stream: Stream,
        first: Seq,
        barrier: Barrier,
        route: Route,
        stable: Seq,
        body: Collection[object],
        size: int,
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = first
        self.last = first + len(body) - 1
        self.barrier = barrier
        self.route = route
        self.stable = stable
        self.body = body
        self.size = size

    def __repr__(self) -> str:
        return f"Frame({self.topic!r}, {self.stream}, {self.first}..{self.last}, {self.barrier})"


class Ack:
    """A child tells its parent in a route's tree how far it and its subtree have come.

    `have`: the child holds every frame of the route up to here.  `covered`: every node of its
    subtree, itself included, has consumed every message of the route up to here.  `absent`: the
    nodes of the subtree that had unsubscribed and only passed frames on.  `asked`: this answers
    a `Probe`, so what lies above `have` was lost.  `slow`: nodes of the subtree that do not answer
    their parent, so that the nodes below them may starve.
    """

    __slots__ = ("absent", "asked", "covered", "have", "route", "slow", "stream", "topic")
    kind: ClassVar[str] = "ack"

    def __init__(
        self,
        topic: Topic,
        stream: Stream,
        route: int,
        have: Seq,
        covered: Seq,
        absent: int,
        asked: bool,
        slow: int = 0,
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.route = route
        self.have = have
        self.covered = covered
        self.absent = absent
        self.asked = asked
        self.slow = slow

    def __repr__(self) -> str:
        return (
            f"Ack({self.topic!r}, {self.stream}, route={self.route}, "
            f"have={self.have}, covered={self.covered})"
        )


class Probe(msgspec.Struct, frozen=True, tag=True):
    """A parent that has not heard from a child in time asks how far it is."""

    kind: ClassVar[str] = "probe"
    topic: Topic
    stream: Stream
    route: int


class Direct(msgspec.Struct, frozen=True, tag=True):
    """A publisher takes a subscriber of an old route out of its tree and feeds it itself.

    The receiver acknowledges to the publisher from now on and passes nothing of the route on.
    It is also a question, like `Probe`: how far are you?  `last` is where the route ends.
    """

    kind: ClassVar[str] = "direct"
    topic: Topic
    stream: Stream
    route: int
    start: Seq
    last: Seq
    stable: Seq
    epoch: int = -1
    """The view that made the sender the heir of a dead publisher; -1: it is the publisher."""


class Suspended(msgspec.Struct, frozen=True, tag=True):
    """A publisher goes on without a lossy subscriber that did not keep up.

    Nothing of the routes up to `route` will reach it any more, so it has to join again.
    """

    kind: ClassVar[str] = "suspended"
    topic: Topic
    stream: Stream
    route: int


class Stable(msgspec.Struct, frozen=True, tag=True):
    """An idle publisher tells receivers what they may forget.

    It goes down a tree of `members`, the subscribers of `route` that have not left since: a leaver
    that was released passes nothing on.
    """

    kind: ClassVar[str] = "stable"
    topic: Topic
    stream: Stream
    route: int
    start: Seq
    seq: Seq
    members: int


class Inquiry(msgspec.Struct, frozen=True, tag=True):
    """A receiver asks a publisher what is stable.

    It still keeps frames after a relay died, or was told that messages it lacks are stable.
    """

    kind: ClassVar[str] = "inquiry"
    topic: Topic
    stream: Stream


class Release(msgspec.Struct, frozen=True, tag=True):
    """A publisher tells a leaver that everything addressed to it is stable.

    `wave` is the number of the leaver's LEAVE: a `Release` for an earlier one is old.
    """

    kind: ClassVar[str] = "release"
    topic: Topic
    stream: Stream
    wave: int = 0


class Settled(msgspec.Struct, frozen=True, tag=True):
    """The heir of a dead stream says that all have it up to its end, as of the view `epoch`.

    Or a publisher that has forgotten the topic answers an `Inquiry`: everyone has all of it.
    """

    kind: ClassVar[str] = "settled"
    topic: Topic
    stream: Stream
    seq: Seq
    epoch: int


class CaughtUp(msgspec.Struct, frozen=True, tag=True):
    """The sender came back from another view and has asked everyone for all that it missed."""

    kind: ClassVar[str] = "caught-up"


class Mute(msgspec.Struct, frozen=True, tag=True):
    """The sender has waited for `slot` to answer a wave of `topic` for longer than it should take.

    Every member is told, so that the leader changes the view `epoch` to one without `slot`.
    """

    kind: ClassVar[str] = "mute"
    topic: Topic
    slot: NodeId
    waited: int
    epoch: int


class Op(Enum):
    """The operation that a wave carries through the cluster."""

    JOIN = "join"
    LEAVE = "leave"
    REGISTER = "register"
    TOPICS = "topics"
    PRESENT = "present"
    """To one node, and without effect there: does it answer waves?"""


class Wave(msgspec.Struct, frozen=True, tag=True):
    """An operation on a topic, on its way down the tree of all nodes from its origin."""

    kind: ClassVar[str] = "wave"
    topic: Topic
    origin: NodeId
    number: int
    op: Op
    cluster: int
    lossy: bool = False
    """JOIN: the newcomer would rather miss messages than hold publishers up."""
    epoch: int = 0
    """The view its origin was in; when members are excluded, older waves are started again."""
    since: int = 0
    """The origin remembers the lives that ended from this view on."""
    apart: int = 0
    """The first view that the origin missed; it has had all of streams that were over before."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The answer of a subtree to a wave.

    `vector` is the elementwise maximum of the answers' vectors, `members` the set of nodes that
    are subscribed or about to be.  A TOPICS wave is answered with `topics` and their subscribers
    in the subtree; `more`: there were more topics than fit.
    """

    kind: ClassVar[str] = "answer"
    topic: Topic
    origin: NodeId
    number: int
    vector: Barrier
    members: int
    lossy: int = 0
    """Those of `members` that would rather miss messages than hold publishers up."""
    topics: tuple[tuple[Topic, int], ...] = ()
    more: bool = False
    epoch: int = 0
    """The epoch of the wave."""
    over: Barrier = ()
    """Streams of `vector` that ended, each with the view that ended it."""
    own: Barrier = ()
    """The nodes of the subtree about themselves: the stream in which each publishes to the topic,
    and its last message (-1: none)."""
    kept: RetainedValue | None = None
    """To a JOIN: the newest retained value of the topic in the subtree."""


class Parcel(msgspec.Struct, frozen=True, tag=True):
    """A control message with its place in the sequence of one link."""

    kind: ClassVar[str] = "parcel"
    number: int
    message: Stable | Release | Suspended | Settled | CaughtUp | Mute | Wave | Answer


class ParcelAck(msgspec.Struct, frozen=True, tag=True):
    """Every parcel of this link before `expected` has arrived."""

    kind: ClassVar[str] = "parcel-ack"
    expected: int
