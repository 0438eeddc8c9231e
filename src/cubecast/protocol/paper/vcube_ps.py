"""VCube-PS as published: the listing of [J], Algorithms 1 and 2, in its order.

The number in the margin is the line of the listing that the statement carries out; Algorithm 1
comes first, and numbers start again with Algorithm 2.  In prose a line is one of Algorithm 2 unless
it says otherwise.  Lines 1, 6, 80 and 93 are empty in the text that we have: they are taken for
"Init", "NEW(m)", "else" and "cb ← cb ∖ {⟨s, c⟩}".  The paper's flaws are kept.  "Deviation 4" is a
decision where the listing is silent or contradicts its text: docs/deviations.md has them all.  The
production protocol of this package is another module.

Theory of operation.  A publisher sends its message down a tree made of the subscribers it knows;
each of these passes it on by what *it* knows (lines 23-28, 41-53).  An ACK goes up when a subtree
has the message (lines 45-49, 54-61), and the next message of the topic leaves when the whole wave
of ACKs is back (line 31).  So messages of one source are received in the order of their counters,
which lines 64-65 and 92 use to tell what a newcomer will never receive.  A message carries its
direct predecessors and is delivered after them (lines 83-94).  SUB goes to all nodes and its ACKs
collect the subscribers (lines 95-98); UNS goes to the subscribers.

Notation:

listing                      here
---------------------------  -----------------------------------------------------------------------
x[t]                         `t.x`: `t` is the node's `Variables` of the topic, `t.name` its name
i, N, log2 N                 `self.i`, `self.nodes`, `self.d`
⊥                            `BOTTOM`
⟨s, c⟩ ∈ first_rec[t]        `t.first_rec[s] == c`; ⟨s, _⟩ ∉ first_rec[t]: `t.first_rec[s] == NEVER`
⟨s, c⟩ ∈ last_delvs[t]       `t.last_delvs[s] == c`; `NEVER` is below every counter
⟨n, o, rc⟩ ∈ view[t]         `t.view[n] == (o, rc)`
⟨i, SUB, _⟩ ∈ view[t]        `t.own`, the set {⟨i, SUB, c⟩ : ⟨i, SUB, c⟩ ∈ view[t]}, is not empty
⟨k, nb, ⟨s, t, c, mem⟩⟩      `acks[s, c] == Pending(k, nb, mem)`: a node has one counter for all
  ∈ acks                     topics, so ⟨s, c⟩ names a message
msgs, not_delvs[t]           `t.not_delvs`: the messages themselves
m.type = PUB                 `type(m) is Pub`
m.t, m.s, m.c, m.cb          `m.topic`, `m.s`, `m.c`, `m.cb`; `m.ident` is ⟨m.s, m.c⟩
m.data                       `m.body` of a PUB, `m.data` of an ACK; a SUB and an UNS have none
m.data ∪ mem                 `pending.mem + m.data`: children are in disjoint clusters and a node
                             adds its own entry alone, so no entry is in both
CLUSTER(i, j)                `cluster(i, j)`
CHILDREN(i, t, h)            `t.children(h)`
CHILDREN(i, *, h)            `self.everyone[h]`
CO_DELIVER(m)                `port.deliver(m)`
SEND(m) to p_k, k ∈ chd      `port.relay(chd, m)`; of an ACK: `port.control(k, m)`

A task of the listing blocks.  Here a call returns where the task blocks, and the next event calls
it again: `start_msg_propagation` returns at line 15 if the queue is empty and at line 31 while
`t.sent` waits for ACKs; `handle_received_msg` is called for each message (line 39).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from cubecast.protocol.paper.sets import BOTTOM, NEVER, Ident, Idents
from cubecast.protocol.paper.state import Ack, Entry, Pending, Pub, Sub, Uns, Variables, View
from cubecast.protocol.port import Load, NodeId, Port, Stream, Time, Topic
from cubecast.topology import children, cluster, dimension_for


class VCubePS:
    """One node of VCube-PS ([J] Algorithms 1 and 2)."""

    __slots__ = ("acks", "counter", "d", "everyone", "i", "nodes", "port", "stream", "topics")
    label: ClassVar[str] = "vcube-ps"

    # fmt: off
    # ruff: noqa: SIM108 - if and else stand as in the listing

    # Algorithm 1: functions offered as the interface to the application ---------------------------

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:    # 1
        self.i = node
        self.port = port
        self.nodes = nodes
        self.d = dimension_for(nodes)
        self.stream = Stream(node, 0)
        self.everyone = [children(node, (1 << nodes) - 1, h) for h in range(self.d + 1)]
        self.counter = 0                                                    # 2
        self.topics: dict[Topic, Variables] = {}                            # 3; Algorithm 2: 1-3
        self.acks: dict[Ident, Pending] = {}                                # deviations 1, 13

    def subscribe(self, topic: Topic, now: Time) -> None:                   # 4
        t = self.variables(topic)
        if not t.own:                                                       # 5
            t.enter(self.counter)                                           # 6
            self.co_broadcast(t, Sub(topic, (self.i, self.counter)))        # 7
                                                                            # 8-9: deviations 2, 9

    def unsubscribe(self, topic: Topic, now: Time) -> None:                 # 10
        t = self.variables(topic)
        if t.own:                                                           # 11
            t.leave()                                                       # 12
            self.co_broadcast(t, Uns(topic, (self.i, self.counter)))        # 13
                                                                            # 14-15: deviations 2, 9

    def publish(
        self, topic: Topic, body: tuple[object, ...], size: int, now: Time
    ) -> bool:                                                              # 16
        t = self.variables(topic)
        if t.own:                                                           # 17
            m = Pub(topic, self.stream, self.counter, body, size)
            self.co_broadcast(t, m)                                         # 18: deviation 11
            return True                                                     # 19
        raise ValueError(                                                   # 20: deviation 9
            f"node {self.i} cannot publish on {topic!r}: it is not subscribed"
        )

    # Algorithm 2: causal broadcast algorithm and delivery -----------------------------------------

                                                                            # 4: see on_message
    def co_broadcast(self, t: Variables, m: Pub | Sub | Uns) -> None:       # 5
        """The caller has made m: type, s = i, t, c = counter, data."""     # 6-8
        self.counter += 1                                                   # 9
                                                                            # 10-11: deviation 3
        t.br_queue.append(m)                                                # 12
        self.start_msg_propagation(t)

    def start_msg_propagation(self, t: Variables) -> None:                  # 13
        """The task of a topic: it goes on until it blocks, at line 15 or at line 31."""
        while t.br_queue and t.sent is None:                                # 14
            m = t.sent = t.br_queue.popleft()                               # 15
            if type(m) is Pub:                                              # 16
                if t.first_rec[self.i] == NEVER:                            # 17
                    t.receive_first(self.i, m.c)                            # 18
                self.port.deliver(m)                                        # 19: deviation 7
                t.deliver_last(self.i, m.c)                                 # 20
                m.cb = t.causal_barrier                                     # 21
                t.causal_barrier = Idents({m.c: 1 << self.i})               # 22
            if type(m) is Sub:                                              # 23
                chd = self.everyone[self.d]                                 # 24: deviation 10
            else:                                                           # 25
                chd = t.children(self.d)                                    # 26
            if chd:                                                         # 27, 29
                self.port.relay(chd, m)                                     # 28
                self.acks[m.ident] = Pending(BOTTOM, len(chd))              # 30
            self.end_msg_propagation(t)

    def end_msg_propagation(self, t: Variables) -> None:
        """The rest of the loop: it ends the propagation of m when the ACKs of m are back."""
        m = t.sent
        if m is None or m.ident in self.acks:                               # 31
            return
        t.sent = None
        if type(m) is Uns:                                                  # 32
            t.not_delvs.clear()                                             # 33
            t.forget()                                                      # 34: deviations 1, 8
                                                                            # 35-36: deviation 3
            if not t.own and not t.br_queue:                                # deviation 2
                self.port.left(t.name)
        elif type(m) is Sub and t.own == (m.entry(),):
            self.port.joined(t.name)                                        # deviation 2

    def handle_received_msg(self, m: Any, j: NodeId, now: Time) -> None:    # 37-39
        t = self.topics.get(m.topic) or self.variables(m.topic)
        if type(m) is not Ack:                                              # 40
            if type(m) is Sub:                                              # 41
                chd = self.everyone[cluster(self.i, j) - 1]                 # 42: deviation 10
            else:                                                           # 43
                chd = t.children(cluster(self.i, j) - 1)                    # 44
            if not chd:                                                     # 45
                self.send_acks(t, j, m.ident, ())                           # 46-49: deviation 12
            else:                                                           # 50
                self.acks[m.ident] = Pending(j, len(chd))                   # 51
                self.port.relay(chd, m)                                     # 52-53
        else:                                                               # 54
            pending = self.acks.get(m.ident)                                # 55
            if pending is None:
                return                                                      # deviation 5
            data = pending.mem + m.data                                     # 57
            if pending.nb > 1:                                              # 58
                pending.nb -= 1                                             # 56, 59
                pending.mem = data
            else:
                del self.acks[m.ident]                                      # 56
                if pending.k != BOTTOM:                                     # 60
                    self.send_acks(t, pending.k, m.ident, data)             # 61
        if t.own:                                                           # 62
            if type(m) is Pub:                                              # 63
                if t.first_rec[m.s] == NEVER:                               # 64
                    t.receive_first(m.s, m.c)                               # 65
                if t.is_repeated(m):
                    return                                                  # deviation 5
                t.not_delvs.add(m)                                          # 66-67
                self.check_delivery(t)                                      # 68
            elif type(m) is Ack:                                            # 69
                self.update(t, data)                                        # 70
            else:                                                           # 71
                self.update(t, (m.entry(),))                                # 72
                if type(m) is Uns:                                          # 73
                    t.first_rec[m.s] = NEVER                                # 74
        if type(m) is Ack and t.sent is not None:
            self.end_msg_propagation(t)                                     # 31: deviation 4
            self.start_msg_propagation(t)

    on_message = handle_received_msg  # the world is the task of line 4: it calls this

    def update(self, t: Variables, set_2: Iterable[Entry]) -> None:         # 75
        """view[t] ← UPDATE(view[t], set_2): of a node, the entry with the highest rc stays.

        The listing goes through set_1, view[t].  An entry of a node that set_2 lacks stays as it
        is, so to go through set_2 comes to the same.
        """
        for n, o, rc_2 in set_2:                                            # 76
            known = t.view.get(n)                                           # 77
            if known is None or rc_2 > known[1]:                            # 78
                t.put(n, o, rc_2)                                           # 79, 82: deviation 14
                                                                            # 80-81: else it is left

    def check_delivery(self, t: Variables) -> None:                         # 83
        # `first` returns the earliest m for which `check_cb` returns `BOTTOM`: CHECKCB is true
        while m := t.not_delvs.first(self.check_cb, t):                     # 84: deviation 6
            self.port.deliver(m)                                            # 85
            t.not_delvs.remove(m)                                           # 86-87
            t.deliver_last(m.s, m.c)                                        # 88
            t.causal_barrier.subtract(m.cb)                                 # 89
            t.causal_barrier.add(m.s, m.c)                                  # 89

    def check_cb(self, t: Variables, cb: Idents) -> NodeId:                 # 90
        """The source of a message that stays in cb; `BOTTOM` if none stays: CHECKCB is true."""
        for s, c in cb.without(t.latest):                                   # 91: others meet 92
            if not (t.last_delvs[s] >= c or t.first_rec[s] > c):            # 92-93
                return s
        return BOTTOM                                                       # 94

    def send_acks(
        self, t: Variables, j: NodeId, ident: Ident, data: tuple[Entry, ...]
    ) -> None:                                                              # 95
        if t.own and t.first_rec[ident[0]] == NEVER:                        # 96
            data = data + t.own                                             # 97: deviation 14
        self.port.control(j, Ack(t.name, ident, data))                      # 98

    # fmt: on

    # Beside the listing: what this package asks of any protocol -----------------------------------

    def variables(self, topic: Topic) -> Variables:
        """The local variables for a topic; they begin empty (Algorithm 2, line 2)."""
        t = self.topics.get(topic)
        if t is None:
            t = self.topics[topic] = Variables(topic, self.i, self.nodes, self.d)
        return t

    def establish(self, topic: Topic, members: int) -> None:
        """Set the views as if `members` had subscribed one after the other, long ago.

        Every entry has rc = 0, and a subscriber's counter moves on by one for its SUB, so its next
        operation is later.  Others know nothing of the topic (line 62).
        """
        if members >> self.i & 1:
            self.variables(topic).establish(0, members)
            self.counter += 1

    def register(self, topic: Topic, now: Time) -> None:
        """The paper has no open groups: Algorithm 1, line 17."""
        raise ValueError(
            f"node {self.i} cannot register for {topic!r}: VCube-PS has no open groups, "
            "only subscribers publish"
        )

    def on_wake(self, now: Time) -> None:
        """The paper has no timers."""

    def load(self) -> Load:
        """Messages that wait: for predecessors, or for their turn to be sent."""
        held = 0
        for t in self.topics.values():
            held += sum(m.size for m in t.not_delvs.messages.values())
            held += sum(m.size for m in t.br_queue if type(m) is Pub)
        return Load(held, 0)

    def view(self, topic: Topic) -> View:
        """view[t]: the latest operation of each node this one has heard of."""
        return dict(self.variables(topic).view)
