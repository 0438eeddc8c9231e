"""Messages and local variables of VCube-PS ([J] 3.3), for the listing in `vcube_ps`.

An operation on a set in the listing is a method here, with the formula in its docstring, if the
fast way needs more than one statement.

Messages have the paper's names (PUB, SUB, UNS, ACK), which other modules use for the same messages:
`cubecast.baselines`, `vcube_pb` ([B] has ACK as well) and `cubecast.protocol.messages` (`Ack`).
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import ClassVar, TypeAlias

import msgspec

from cubecast.protocol.paper.sets import NEVER, Held, Ident, Idents
from cubecast.protocol.port import NodeId, Seq, Stream, Topic
from cubecast.topology import children, members_of

SUB = "sub"
UNS = "uns"

Entry: TypeAlias = tuple[NodeId, str, Seq]
"""⟨n, o, rc⟩: the latest operation o of node n on a topic, and its counter rc."""
View: TypeAlias = dict[NodeId, tuple[str, Seq]]
"""view[t], kept as {n: (o, rc)}."""


class Pub:
    """PUB: a publication; `cb` is set when its turn to be sent comes (line 21).

    The world knows m.t as `topic`, ⟨m.s⟩ as `stream`, m.c as `first` and m.data as `body`.
    """

    __slots__ = ("body", "c", "cb", "first", "ident", "s", "size", "stream", "topic")
    kind: ClassVar[str] = "pub"

    def __init__(
        self, topic: Topic, stream: Stream, counter: Seq, body: tuple[object, ...], size: int
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = counter
        self.body = body
        self.size = size
        self.s: NodeId = stream.source
        self.c = counter
        self.ident: Ident = (self.s, counter)
        self.cb = Idents()

    def __repr__(self) -> str:
        return f"Pub({self.topic!r}, {self.ident}, after {self.cb.idents()})"


class MembershipChange:
    """The common part of SUB and UNS: node s announces its operation c."""

    __slots__ = ("c", "ident", "s", "topic")
    kind: ClassVar[str]

    def __init__(self, topic: Topic, ident: Ident) -> None:
        self.topic = topic
        self.ident = ident
        self.s, self.c = ident

    def entry(self) -> Entry:
        """⟨m.s, m.type, m.c⟩ (line 72)."""
        return self.s, self.kind, self.c

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {self.ident})"


class Sub(MembershipChange):
    """SUB: a node subscribes."""

    __slots__ = ()
    kind: ClassVar[str] = SUB


class Uns(MembershipChange):
    """UNS: a node unsubscribes."""

    __slots__ = ()
    kind: ClassVar[str] = UNS


class Ack(msgspec.Struct, gc=False):
    """ACK: a subtree has the message `ident`; `data` is membership that the subtree reports."""

    kind: ClassVar[str] = "ack"
    topic: Topic
    ident: Ident
    data: tuple[Entry, ...]


class Pending(msgspec.Struct, gc=False):
    """⟨k, nb, ⟨s, t, c, mem⟩⟩ of *acks*: `nb` children have not acknowledged yet."""

    k: NodeId
    """The parent in the tree, ⊥ at the source."""
    nb: int
    mem: tuple[Entry, ...] = ()


class Variables:
    """The local variables of a node for one topic t: `x` here is x[t] in the listing.

    `first_rec` and `last_delvs` are lists with a place for every node, made when the node
    subscribes: in a large system that is much less memory to walk through than a mapping is, and
    the speed of a simulation follows from that.
    """

    __slots__ = (
        "_i",
        "_members",
        "_nodes",
        "_shared",
        "_tree",
        "br_queue",
        "causal_barrier",
        "first_rec",
        "last_delvs",
        "latest",
        "name",
        "not_delvs",
        "own",
        "sent",
        "view",
    )

    def __init__(self, name: Topic, i: NodeId, nodes: int, dimension: int) -> None:
        self.name = name
        self.view: View = {}
        self.own: tuple[Entry, ...] = ()
        """{⟨i, SUB, c⟩ : ⟨i, SUB, c⟩ ∈ view[t]}: empty if this node is not subscribed."""
        self.br_queue: deque[Pub | Sub | Uns] = deque()
        self.sent: Pub | Sub | Uns | None = None
        """The message m for whose ACKs the task waits at line 31."""
        self.causal_barrier = Idents()
        self.first_rec: list[Seq] = []
        self.last_delvs: list[Seq] = []
        self.latest = Idents()
        """`last_delvs` as a set of ⟨s, c⟩: `Idents.without` compares a barrier with it at once."""
        self.not_delvs: Held[Pub] = Held()
        self._i = i
        self._nodes = nodes
        self._members = 0
        """{n : ⟨n, SUB, _⟩ ∈ view[t]} as a bit mask; this node's own bit makes no difference."""
        self._tree: list[tuple[NodeId, ...] | None] = [None] * (dimension + 1)
        """CHILDREN(i, t, h) for h = 0 … log2 N, each computed once per view."""
        self._shared = False
        """The view is shared by all subscribers of an established topic, until it changes here."""

    # -- view[t] ---------------------------------------------------------------------------------

    def enter(self, counter: Seq) -> None:
        """view[t] ← {⟨i, SUB, counter⟩} (Algorithm 1, line 6)."""
        self._subscribe(counter, {self._i: (SUB, counter)}, 1 << self._i)

    def establish(self, rc: Seq, members: int) -> None:
        """view[t] ← {⟨n, SUB, rc⟩ : n ∈ members}."""
        self._subscribe(rc, _established(members, rc), members)
        self._shared = True

    def _subscribe(self, rc: Seq, view: View, members: int) -> None:
        self.own = ((self._i, SUB, rc),)
        self.view = view
        self._shared = False
        self._members = members
        self._tree = [None] * len(self._tree)
        if not self.first_rec:
            self.first_rec = [NEVER] * self._nodes
            self.last_delvs = [NEVER] * self._nodes

    def leave(self) -> None:
        """view[t] ← view[t] ∖ {⟨i, SUB, _⟩} (Algorithm 1, line 12)."""
        self.own = ()
        self._unshare()
        del self.view[self._i]

    def put(self, n: NodeId, o: str, rc: Seq) -> None:
        """view[t] ← view[t] ∖ {⟨n, _, _⟩} ∪ {⟨n, o, rc⟩}."""
        self._unshare()
        self.view[n] = (o, rc)
        bit = 1 << n
        self._members = self._members | bit if o == SUB else self._members & ~bit
        self._tree = [None] * len(self._tree)

    def _unshare(self) -> None:
        if self._shared:
            self.view = dict(self.view)
            self._shared = False

    def children(self, h: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) by this node's own view."""
        found = self._tree[h]
        if found is None:
            found = self._tree[h] = children(self._i, self._members, h)
        return found

    # -- first_rec[t], last_delvs[t], not_delvs[t] ------------------------------------------------

    def receive_first(self, s: NodeId, c: Seq) -> None:
        """first_rec[t] ← first_rec[t] ∪ {⟨s, c⟩}."""
        self.first_rec[s] = c
        if s in self.not_delvs.filed:
            self.not_delvs.touch(s)

    def deliver_last(self, s: NodeId, c: Seq) -> None:
        """last_delvs[t] ← last_delvs[t] ∖ {⟨s, _⟩} ∪ {⟨s, c⟩}."""
        before = self.last_delvs[s]
        if before != NEVER:
            self.latest.remove(1 << s, before)
        self.last_delvs[s] = c
        self.latest.add(s, c)
        if s in self.not_delvs.filed:
            self.not_delvs.touch(s)

    def is_repeated(self, m: Pub) -> bool:
        """Whether m was delivered or waits already (deviation 5)."""
        return m.c <= self.last_delvs[m.s] or m.ident in self.not_delvs.messages

    def forget(self) -> None:
        """first_rec[t] ← ∅; last_delvs[t] ← ∅."""
        self.first_rec = [NEVER] * len(self.first_rec)
        self.last_delvs = [NEVER] * len(self.last_delvs)
        self.latest = Idents()


@lru_cache(maxsize=64)
def _established(members: int, rc: Seq) -> View:
    """The view of an established topic, which its subscribers share until it changes."""
    return dict.fromkeys(members_of(members), (SUB, rc))
