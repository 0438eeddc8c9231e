"""VCube-PS as published: causal broadcast per topic over trees rooted at the publisher.

This is [J] Algorithms 1 and 2, to be laid beside the pseudocode; "lines" without a number of an
algorithm are lines of Algorithm 2.  It keeps the paper's flaws (docs/deviations.md lists them):
the production protocol of this package is another module.

Theory of operation.  A publisher sends its message down a tree made of the subscribers it knows;
each of these passes it on by what *it* knows (lines 23-28, 41-53).  An ACK goes up when a subtree
has the message (lines 45-49, 54-61), and the next message of the topic leaves when the whole wave
of ACKs is back (line 31).  So messages of one source are received in the order of their counters,
which lines 64-65 and 92 use to tell what a newcomer will never receive.  A message carries its
direct predecessors and is delivered after them (lines 83-94).  SUB goes to all nodes and its ACKs
collect who is subscribed (lines 95-98); UNS goes to the subscribers.

Where the pseudocode is silent or contradicts the text around it:

1. *delv* of lines 2 and 34 is *last_delvs* ([S] has one set, "delvs", for both).
2. Subscribe and Unsubscribe return at once (Algorithm 1, lines 8 and 14), when nobody has heard
   of the change.  `Port.joined` and `Port.left` are called when the ACK wave is complete.  As in
   the paper, messages are delivered from the call of Subscribe on (line 62).
3. A topic has one task and never two, although line 11 creates one per SUB: a node that comes back
   while its UNS wave is under way would otherwise send two messages at a time.
4. The last ACK of a wave ends the wait of line 31 and updates the view at line 70; the view comes
   first, so that the next message goes to all that the SUB wave found.
5. A message that is held or was delivered already is passed on and acknowledged but not taken
   again: the text says so ("and has not already delivered m"), line 66 does not.  An ACK that
   nobody waits for is ignored.  Links that neither lose nor repeat messages, as the paper has
   them, bring neither.
6. Of several deliverable messages (line 84) the one that arrived first is delivered first.
7. A queued publication is delivered to its publisher when its turn comes (line 19), even if the
   publisher has unsubscribed since.
8. *causal_barrier* survives an UNS: lines 33-34 do not clear it.
9. Publish by a non-subscriber (NOK, Algorithm 1, line 20) raises `ValueError`; a second Subscribe
   or Unsubscribe (NOK, lines 9 and 15) does nothing.
10. The topic '*' is the set of ids below `nodes`, which need not be a power of two.
11. A call of Publish is one message with one counter, however many payloads its body has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, dimension_for, members_of

Ident: TypeAlias = tuple[NodeId, Seq]
"""⟨s, c⟩: one counter for all topics of a node, so this names a message."""
Entry: TypeAlias = tuple[NodeId, str, Seq]
"""⟨n, o, rc⟩: the latest operation of node n on a topic that somebody knows of."""
View: TypeAlias = dict[NodeId, tuple[str, Seq]]
"""view[t]: {n: (o, rc)}."""

SUB = "sub"
UNS = "uns"
NOBODY: NodeId = -1
NEVER: Seq = -1
"""In the place of a counter: no message yet."""


class Idents(dict[Seq, int]):
    """A set of ⟨s, c⟩, kept as {c: bit mask of the sources s}.

    Sources that have published equally often share an entry, so that a barrier of many messages
    costs a few operations on whole numbers.
    """

    __slots__ = ()

    def remove(self, sources: int, counter: Seq) -> None:
        """This ∖ {⟨s, counter⟩ : s in sources}; they are all here."""
        rest = self[counter] ^ sources
        if rest:
            self[counter] = rest
        else:
            del self[counter]

    def count(self) -> int:
        """How many messages are in the set."""
        return sum(sources.bit_count() for sources in self.values())

    def idents(self) -> list[Ident]:
        """The messages, in order."""
        return sorted(
            (source, counter) for counter, sources in self.items() for source in members_of(sources)
        )


class Pub:
    """A publication; `barrier` is *m.cb*, fixed when its turn to be sent comes (line 21)."""

    __slots__ = ("barrier", "body", "first", "ident", "size", "stream", "topic")
    kind: ClassVar[str] = "pub"

    def __init__(
        self, topic: Topic, stream: Stream, counter: Seq, body: tuple[object, ...], size: int
    ) -> None:
        self.topic = topic
        self.stream = stream
        self.first = counter
        self.body = body
        self.size = size
        self.ident: Ident = (stream.source, counter)
        self.barrier = Idents()

    def __repr__(self) -> str:
        return f"Pub({self.topic!r}, {self.ident}, after {self.barrier.idents()})"


class Change:
    """What SUB and UNS have in common: node ⟨s⟩ announces operation ⟨c⟩."""

    __slots__ = ("ident", "topic")
    kind: ClassVar[str]

    def __init__(self, topic: Topic, ident: Ident) -> None:
        self.topic = topic
        self.ident = ident

    def entry(self) -> Entry:
        """⟨m.s, m.type, m.c⟩ (line 72)."""
        return self.ident[0], self.kind, self.ident[1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {self.ident})"


class Sub(Change):
    """A node subscribes."""

    __slots__ = ()
    kind: ClassVar[str] = SUB


class Uns(Change):
    """A node unsubscribes."""

    __slots__ = ()
    kind: ClassVar[str] = UNS


class Ack(msgspec.Struct, gc=False):
    """A subtree has the message `ident`; `entries` is what it said of the topic's membership."""

    kind: ClassVar[str] = "ack"
    topic: Topic
    ident: Ident
    entries: tuple[Entry, ...]


class Pending(msgspec.Struct, gc=False):
    """⟨j, nb, ⟨s, t, c, mem⟩⟩ of *acks*: `missing` children of a tree have not answered yet."""

    parent: NodeId
    """Who is to be told, or `NOBODY` at the source (⊥)."""
    missing: int
    entries: tuple[Entry, ...] = ()


class TopicState:
    """What a node keeps for one topic ([J] 3.3, "local variables").

    `first_rec` and `last_delvs` are lists with a place for every node, made when the node
    subscribes: in a large system that is much less memory to walk through than a mapping is, and
    the speed of a simulation follows from that.
    """

    __slots__ = (
        "_members",
        "_node",
        "_shared",
        "barrier",
        "br_queue",
        "first_rec",
        "held",
        "last_delvs",
        "latest",
        "name",
        "own",
        "sending",
        "tree",
        "view",
    )

    def __init__(self, name: Topic, node: NodeId, dimension: int) -> None:
        self.name = name
        self.view: View = {}
        self.own: tuple[Entry, ...] = ()
        """⟨i, SUB, c⟩ while it is in the view, that is, while this node is subscribed."""
        self.br_queue: deque[Pub | Sub | Uns] = deque()
        self.sending: Pub | Sub | Uns | None = None
        """The message whose wave of ACKs is awaited at line 31."""
        self.barrier = Idents()
        self.first_rec: list[Seq] = []
        self.last_delvs: list[Seq] = []
        self.latest = Idents()
        """`last_delvs` as a set: most barriers are found met by comparing them with it."""
        self.held: Held[Pub] = Held()
        self.tree: list[tuple[NodeId, ...] | None] = [None] * (dimension + 1)
        """CHILDREN(i, t, h) for h = 0 … d, each computed once per view."""
        self._node = node
        self._members = 0
        self._shared = False
        """The view belongs to all members of an established topic, until it changes here."""

    def enter(self, rc: Seq, nodes: int) -> None:
        """Algorithm 1, line 6: the view is ⟨i, SUB, rc⟩ alone."""
        self._subscribe(rc, nodes, {self._node: (SUB, rc)}, 1 << self._node)

    def establish(self, rc: Seq, nodes: int, members: int) -> None:
        """The view is ⟨n, SUB, rc⟩ for every member n."""
        self._subscribe(rc, nodes, _established(members, rc), members)
        self._shared = True

    def _subscribe(self, rc: Seq, nodes: int, view: View, members: int) -> None:
        self.own = ((self._node, SUB, rc),)
        self.view = view
        self._shared = False
        self._members = members
        self.tree = [None] * len(self.tree)
        if not self.first_rec:
            self.first_rec = [NEVER] * nodes
            self.last_delvs = [NEVER] * nodes

    def leave(self) -> None:
        """Algorithm 1, line 12: the view loses ⟨i, SUB, _⟩."""
        self.own = ()
        self._unshare()
        del self.view[self._node]

    def record(self, node: NodeId, op: str, rc: Seq) -> None:
        """Put ⟨node, op, rc⟩ in the place of what the view said about the node."""
        self._unshare()
        self.view[node] = (op, rc)
        bit = 1 << node
        self._members = self._members | bit if op == SUB else self._members & ~bit
        self.tree = [None] * len(self.tree)

    def children(self, h: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) by this node's own view."""
        found = self.tree[h]
        if found is None:
            found = self.tree[h] = children(self._node, self._members, h)
        return found

    def delivered(self, source: NodeId, counter: Seq) -> None:
        """Lines 20 and 88: ⟨s, c⟩ takes the place of ⟨s, _⟩ in *last_delvs*."""
        bit = 1 << source
        before = self.last_delvs[source]
        if before != NEVER:
            self.latest.remove(bit, before)
        self.last_delvs[source] = counter
        self.latest[counter] = self.latest.get(counter, 0) | bit
        if source in self.held.filed:
            self.held.touch(source)

    def forget(self) -> None:
        """Lines 33-34: after an UNS."""
        self.held.clear()
        self.first_rec = [NEVER] * len(self.first_rec)
        self.last_delvs = [NEVER] * len(self.last_delvs)
        self.latest = Idents()

    def _unshare(self) -> None:
        if self._shared:
            self.view = dict(self.view)
            self._shared = False


class Numbered(Protocol):
    """A message with a name."""

    @property
    def ident(self) -> Ident: ...


M = TypeVar("M", bound=Numbered)


class Held(Generic[M]):
    """*not_delvs* and *msgs*: what was received and waits for a predecessor.

    A message is filed under the source of *one* dependency it lacks, and is not looked at before
    something changes for that source.  That finds what the loop of line 84 finds: while that
    dependency is not met, CHECKCB is false.
    """

    __slots__ = ("_arrivals", "filed", "messages", "ready")

    def __init__(self) -> None:
        self.messages: dict[Ident, M] = {}
        self.ready: list[tuple[int, M]] = []
        """A heap, by arrival, of what has to be looked at."""
        self.filed: dict[NodeId, list[tuple[int, M]]] = {}
        self._arrivals = 0

    def arrive(self, message: M) -> tuple[int, M]:
        """Keep a message: it comes after those that are here already."""
        self.messages[message.ident] = message
        self._arrivals += 1
        return self._arrivals, message

    def file(self, item: tuple[int, M], source: NodeId) -> None:
        """The message lacks a predecessor by `source`."""
        self.filed.setdefault(source, []).append(item)

    def touch(self, source: NodeId) -> None:
        """Something of `source` was delivered, or will never come: look at who waited for it."""
        for item in self.filed.pop(source, ()):
            heappush(self.ready, item)

    def pop(self) -> tuple[int, M]:
        """The earliest arrival of what has to be looked at."""
        return heappop(self.ready)

    def clear(self) -> None:
        """Drop everything (line 33)."""
        self.messages.clear()
        self.ready.clear()
        self.filed.clear()


class VCubePS:
    """One node of VCube-PS ([J] Algorithms 1 and 2)."""

    __slots__ = (
        "_acks",
        "_counter",
        "_dimension",
        "_everyone",
        "_node",
        "_nodes",
        "_port",
        "_stream",
        "_topics",
    )
    label: ClassVar[str] = "vcube-ps"

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:
        self._node = node
        self._port = port
        self._nodes = nodes
        self._dimension = dimension_for(nodes)
        self._stream = Stream(node, 0)
        self._counter = 0
        self._topics: dict[Topic, TopicState] = {}
        self._acks: dict[Ident, Pending] = {}
        self._everyone = [children(node, (1 << nodes) - 1, h) for h in range(self._dimension + 1)]

    # -- Algorithm 1: what the application calls -------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        """Views as if `members` had subscribed one after the other, long ago.

        Every entry has rc = 0, and a member's counter moves on by one for its SUB, so whatever it
        does next is later.  Others know nothing of the topic (line 62).
        """
        if members >> self._node & 1:
            self._state(topic).establish(0, self._nodes, members)
            self._counter += 1

    def subscribe(self, topic: Topic, now: Time) -> None:
        """Algorithm 1, lines 4-9."""
        state = self._state(topic)
        if not state.own:
            state.enter(self._counter, self._nodes)
            self.co_broadcast(state, Sub(topic, (self._node, self._counter)))

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        """Algorithm 1, lines 10-15."""
        state = self._state(topic)
        if state.own:
            state.leave()
            self.co_broadcast(state, Uns(topic, (self._node, self._counter)))

    def register(self, topic: Topic, now: Time) -> None:
        """The paper has no open groups: Algorithm 1, line 17."""
        raise ValueError(
            f"node {self._node} cannot register for {topic!r}: VCube-PS has no open groups, "
            "only subscribers publish"
        )

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        """Algorithm 1, lines 16-20; always accepted, as *br_queue* has no bound."""
        state = self._state(topic)
        if not state.own:
            raise ValueError(f"node {self._node} cannot publish on {topic!r}: it is not subscribed")
        self.co_broadcast(state, Pub(topic, self._stream, self._counter, body, size))
        return True

    def on_wake(self, now: Time) -> None:
        """The paper has no timers."""

    def load(self) -> Load:
        """Messages that wait: for predecessors, or for their turn to be sent."""
        held = 0
        for state in self._topics.values():
            held += sum(message.size for message in state.held.messages.values())
            held += sum(message.size for message in state.br_queue if type(message) is Pub)
        return Load(held, 0)

    def view(self, topic: Topic) -> View:
        """view[t]: the latest operation of each node this one has heard of."""
        return dict(self._state(topic).view)

    # -- Algorithm 2 -----------------------------------------------------------------------------

    def co_broadcast(self, state: TopicState, message: Pub | Sub | Uns) -> None:
        """Lines 5-12: number the message (the caller used `counter`) and queue it."""
        self._counter += 1
        state.br_queue.append(message)
        self.start_msg_propagation(state)

    def start_msg_propagation(self, state: TopicState) -> None:
        """Lines 13-36: one turn of the topic's task, unless it waits at line 31 or at line 15."""
        while state.br_queue and state.sending is None:
            message = state.br_queue.popleft()
            if type(message) is Pub:
                self._take_own(state, message)
            if type(message) is Sub:
                chd = self._everyone[self._dimension]
            else:
                chd = state.children(self._dimension)
            state.sending = message
            if chd:
                self._acks[message.ident] = Pending(NOBODY, len(chd))
                self._port.relay(chd, message)
            else:
                self._wave_complete(state)

    def _take_own(self, state: TopicState, message: Pub) -> None:
        """Lines 16-22: deliver an own publication and give it its barrier."""
        if state.first_rec[self._node] == NEVER:
            state.first_rec[self._node] = message.first
        self._port.deliver(message)
        state.delivered(self._node, message.first)
        message.barrier = state.barrier
        state.barrier = Idents({message.first: 1 << self._node})

    def _wave_complete(self, state: TopicState) -> None:
        """Lines 31-36: all ACKs are back."""
        message = state.sending
        state.sending = None
        if type(message) is Uns:
            state.forget()
            if not state.own:
                self._port.left(state.name)
        elif type(message) is Sub and state.own == (message.entry(),):
            self._port.joined(state.name)

    def handle_received_msg(self, message: Any, sender: NodeId, now: Time) -> None:
        """Lines 37-74."""
        kind = type(message)
        if kind is Ack:
            self._handle_ack(message)
            return
        state = self._topics.get(message.topic) or self._state(message.topic)
        h = (self._node ^ sender).bit_length() - 1
        chd = self._everyone[h] if kind is Sub else state.tree[h]
        if chd is None:
            chd = state.children(h)
        if chd:
            self._acks[message.ident] = Pending(sender, len(chd))
            self._port.relay(chd, message)
        else:
            self.send_acks(state, sender, message.ident, ())
        if state.own:
            if kind is Pub:
                self._receive(state, message)
            else:
                self._learn(state, message)

    on_message = handle_received_msg

    def _receive(self, state: TopicState, message: Pub) -> None:
        """Lines 64-68: a subscriber has received a publication."""
        source, counter = message.ident
        held = state.held
        if state.first_rec[source] == NEVER:
            state.first_rec[source] = counter
            if source in held.filed:
                held.touch(source)
        if counter <= state.last_delvs[source] or (
            held.messages and message.ident in held.messages
        ):
            return
        if held.ready:
            heappush(held.ready, held.arrive(message))
        elif (lacking := self.check_cb(state, message.barrier)) == NOBODY:
            self._co_deliver(state, message)
        else:
            held.file(held.arrive(message), lacking)
        if held.ready:
            self.check_delivery(state)

    def _learn(self, state: TopicState, message: Sub | Uns) -> None:
        """Lines 72-74: a subscriber hears of a subscription or its end."""
        self.update(state, (message.entry(),))
        if type(message) is Uns:
            state.first_rec[message.ident[0]] = NEVER

    def _handle_ack(self, message: Ack) -> None:
        """Lines 55-61 and 69-70: a child's subtree has the message."""
        pending = self._acks.get(message.ident)
        if pending is None:
            return
        state = self._topics[message.topic]
        entries = message.entries
        if pending.entries:
            entries = pending.entries + entries
        if pending.missing > 1:
            pending.missing -= 1
            pending.entries = entries
            if entries and state.own:
                self.update(state, entries)
            return
        del self._acks[message.ident]
        if pending.parent != NOBODY:
            self.send_acks(state, pending.parent, message.ident, entries)
        if entries and state.own:
            self.update(state, entries)
        if pending.parent == NOBODY:
            self._wave_complete(state)
            self.start_msg_propagation(state)

    def update(self, state: TopicState, entries: Iterable[Entry]) -> None:
        """UPDATE, lines 75-82: of two entries for one node the one with the higher rc stays."""
        for node, op, rc in entries:
            known = state.view.get(node)
            if known is None or rc > known[1]:
                state.record(node, op, rc)

    def check_delivery(self, state: TopicState) -> None:
        """Lines 83-89: deliver what can be, in order of arrival."""
        held = state.held
        while held.ready:
            item = held.pop()
            message = item[1]
            lacking = self.check_cb(state, message.barrier)
            if lacking == NOBODY:
                del held.messages[message.ident]
                self._co_deliver(state, message)
            else:
                held.file(item, lacking)

    def _co_deliver(self, state: TopicState, message: Pub) -> None:
        """Lines 85 and 88-89."""
        self._port.deliver(message)
        source, counter = message.ident
        state.delivered(source, counter)
        barrier = state.barrier
        for number, sources in message.barrier.items():
            implied = sources & barrier.get(number, 0)
            if implied:
                barrier.remove(implied, number)
        barrier[counter] = barrier.get(counter, 0) | 1 << source

    def check_cb(self, state: TopicState, barrier: Idents) -> NodeId:
        """CHECKCB, lines 90-94: `NOBODY` if the barrier is met, else whose message is missing."""
        latest = state.latest
        for counter, sources in barrier.items():
            met = sources & latest.get(counter, 0)
            if met != sources:
                rest = sources ^ met
                while rest:
                    source = rest.bit_length() - 1
                    if state.last_delvs[source] < counter and state.first_rec[source] <= counter:
                        return source
                    rest ^= 1 << source
        return NOBODY

    def send_acks(
        self, state: TopicState, parent: NodeId, ident: Ident, entries: tuple[Entry, ...]
    ) -> None:
        """SENDACKS, lines 95-98: say that one is subscribed, unless the source must know."""
        if state.own and state.first_rec[ident[0]] == NEVER:
            entries = entries + state.own if entries else state.own
        self._port.control(parent, Ack(state.name, ident, entries))

    def _state(self, topic: Topic) -> TopicState:
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(topic, self._node, self._dimension)
        return state


@lru_cache(maxsize=64)
def _established(members: int, rc: Seq) -> View:
    """The view of an established topic, which its members share until it changes."""
    return dict.fromkeys(members_of(members), (SUB, rc))
