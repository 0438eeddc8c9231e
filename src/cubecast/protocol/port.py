"""The contract between a protocol and the world that runs it.

A protocol is a `Process`: it is handed commands, messages and the time, and it acts only through
the `Port` it was given.  A simulator, a live node, an in-process cluster and a model checker all
implement `Port`, so the same object runs in each.

Duties of a world:

1. Calls into one process never overlap, and `now` never decreases.
2. A port call may be answered later, never from inside the call: `Port` methods do not re-enter
   the process.
3. `on_wake` is called at or after the earliest time asked for with `Port.wake`; calling it early
   or twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

NodeId: TypeAlias = int
"""A slot of the cube: 0 … 2^d - 1."""
Topic: TypeAlias = str
Seq: TypeAlias = int
"""Position of a message in its stream, from 0, without holes."""
Time: TypeAlias = int
"""Whole units of the world's clock: u.t. in the simulator, microseconds in a live node."""

Wanted: TypeAlias = Callable[[Topic], bool]
"""Says whether a pattern matches a topic; the same answer each time."""


LIFE_BITS = 40
"""Bits of an incarnation that number the life; above them is the generation."""
LIFE_MASK = (1 << LIFE_BITS) - 1
MAX_GENERATION = (1 << 24) - 1
"""An incarnation has 64 bits."""


class Stream(NamedTuple):
    """What one node, in one life, publishes to one topic until it forgets that topic.

    The low `LIFE_BITS` of `incarnation` are the number of the life.  Above them is the
    *generation*: a node that takes up a topic it may have forgotten begins a stream of a generation
    that it has not used before, numbered from 0 again.
    """

    source: NodeId
    incarnation: int

    @property
    def life(self) -> Stream:
        """The life that publishes it, named by its first generation."""
        return Stream(self.source, self.incarnation & LIFE_MASK)

    @property
    def generation(self) -> int:
        return self.incarnation >> LIFE_BITS


class Load(NamedTuple):
    """How much a process keeps, in the sizes its publishers stated.

    `held` waits for delivery, `retained` is kept for repair only, and `limit` is the bound the
    protocol states for their sum (0: it states none).
    """

    held: int
    retained: int
    limit: int = 0


class Message(Protocol):
    """Anything that travels between two processes."""

    @property
    def kind(self) -> str:
        """A short name for traces and counters: ``pub``, ``ack``, …"""


class Publication(Message, Protocol):
    """A delivery: one or more consecutive messages of one stream."""

    @property
    def topic(self) -> Topic: ...
    @property
    def stream(self) -> Stream: ...
    @property
    def first(self) -> Seq: ...
    @property
    def body(self) -> Collection[object]: ...


class Port(Protocol):
    """Everything a process can do to the world."""

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        """Send bulk traffic: one copy per peer, in this order, through the sending queue."""

    def control(self, peer: NodeId, message: Message) -> None:
        """Send an acknowledgement or other control message, ahead of bulk traffic."""

    def deliver(self, publication: Publication) -> bool:
        """Hand messages to the application; True if it has consumed them already."""

    def joined(self, topic: Topic) -> None:
        """`subscribe` is complete: everything that is published from now on is delivered."""

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Messages of `topic` will never be delivered here: of each stream, from … to."""

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Messages of `topic` are dropped by agreement: of each stream, from … to.

        They were received and will never be delivered here; or they are this node's own, and no
        other node will get them.
        """

    def view(self, epoch: int, members: int) -> None:
        """This node installed a view of the cluster: its number, and `members` as a bit mask."""

    def left(self, topic: Topic) -> None:
        """`unsubscribe` is complete: no node relies on this one for the topic any more."""

    def forgotten(self, topic: Topic) -> None:
        """This node keeps nothing of a topic any more; everyone has what it published there.

        If the topic is taken up again, `CubecastNode.stream_of` names another stream.
        """

    def discovered(self, topic: Topic) -> None:
        """A pattern makes this node subscribe to `topic`, as if `subscribe` had been called.

        `joined` follows: within this call into the process if the topic is new.
        """

    def followed(self, key: Hashable, complete: bool) -> None:
        """`follow` is complete: everything that is published to a wanted topic is delivered.

        Or not `complete`: there are more topics than can be named or followed.  The pattern is
        not followed, or from now on no longer; topics that it found stay subscribed.
        """

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        """The answer to `list_topics`: topics, each with the set of its subscribers."""

    def writable(self, topic: Topic) -> None:
        """A `publish` that was refused may be tried again."""

    def wake(self, at: Time) -> None:
        """Ask for `Process.on_wake` at time `at`."""


class Accusation(NamedTuple):
    """`by` has waited for `slot` for longer than an answer to a wave of `topic` takes.

    With a `reason`: longer than a change of the view takes.
    """

    slot: NodeId
    by: NodeId
    topic: Topic
    waited: Time
    disputed: bool = False
    """`slot` has answered us: it is mute towards some nodes, or `by` lies."""
    reason: str = ""
    """`slot` leads and leaves a change of the view undone: which; empty: it is about a wave."""


class Denial(NamedTuple):
    """Node `by`, or one below it in a tree, claimed more than a publisher has published."""

    topic: Topic
    source: NodeId
    claimed: Seq
    published: Seq
    by: NodeId


class MemberPort(Port, Protocol):
    """A port that can also reach nodes that have no slot in our view."""

    def reach(self, address: str, message: Message) -> None:
        """Send to the node at an address; there may be none."""

    def departed(self) -> None:
        """`depart` is complete: the other members know that this node is gone."""

    def mute(self, accusation: Accusation) -> None:
        """Member `Accusation.by` says that another is mute: that one is to be excluded."""

    def denied(self, denial: Denial) -> None:
        """A member answered our `subscribe` with a claim that a publisher denies; it is ignored."""

    def excluded(self) -> None:
        """This life is over; `Member.who` is the next, which has no slot yet and asks for one."""


class Process(Protocol):
    """Everything a world can do to a protocol."""

    label: ClassVar[str]

    def establish(self, topic: Topic, members: int) -> None:
        """Begin with `members` (a bit mask) subscribed to `topic`, agreed by all beforehand.

        Called on every process before anything else happens to the topic.
        """

    def subscribe(self, topic: Topic, now: Time) -> None: ...
    def unsubscribe(self, topic: Topic, now: Time) -> None: ...
    def register(self, topic: Topic, now: Time) -> None:
        """Become a publisher of `topic` without subscribing to it (an open group, [B] 5.3)."""

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        """Publish `body`; False if it was refused and `Port.writable` will say when to retry."""

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None: ...
    def on_wake(self, now: Time) -> None: ...
    def load(self) -> Load: ...
