"""VCube-PB as published: reliable causal broadcast per topic that survives crashes.

This is [B] Algorithms 5.1-5.3, to be laid beside the pseudocode: "5.2:23" is line 23 of Algorithm
5.2, counted as its listing numbers them (the prose counts the condition of lines 37-38 once, so
its lines 42 and 44 are 43 and 45 there).

Theory of operation.  VCube-Top tells every subscriber and publisher of a topic which processes have
subscribed or left, once per round of tests (`membership`), and tells every process which ones have
crashed (`crashed`); links lose nothing, and no crash is announced of a process that works.  A
publisher sends its message to the first subscriber of each of its clusters, these pass it on
(5.2:23-25, 45-48), and ACKs come back up (5.3:19-22); the next message leaves when they are all
back (5.2:16).  If the receiver crashes, or leaves, before its ACK, the sender sends the message to
the next subscriber of that cluster (5.3:29-39).  If the *publisher* crashes, every process that has
its last message broadcasts it (5.2:42-44, 5.3:40-42).  So what one correct process has delivered,
all correct processes deliver.  Messages carry their direct predecessors and are delivered after
them (5.3:1-18).  A publisher need not subscribe.

Where the listing contradicts its text, or breaks the paper's own properties under the paper's own
assumptions, this module does what the text says.  Each is a method of its own, and
tests/papers/test_vcube_pb_as_printed.py puts the printed line back and shows what breaks:

1. 5.3:33 `q = j` is `y = j` (q is not bound).
2. 5.2:44 `return` belongs to the `if` of line 42: otherwise nothing is ever passed on.
3. 5.2:9 makes the task of a topic when the counter is 1.  Here a topic always has one, so that
   a process that never published can broadcast the last message of a dead publisher.
4. 5.2:16-22 and 26 are for the process's own messages.  A dead publisher's message that is
   broadcast again was delivered in its turn or will be, and keeps its barrier; as printed it is
   delivered again, or too early, with the barrier of another process (hole 6).  Nor does it wait
   for the ACKs of the publisher's message before (line 16): a child that hears of the crash forgets
   those of its subtree (5.3:31-32) and never sends its own, so everything behind it in the queue
   would wait for ever.
5. 5.2:23 sends such a message to the children of the *dead* root.  But receivers work out their
   part of the tree from the sender (5.2:45), so branches are left out.  Here the process that
   broadcasts is the root.
6. 5.2:42 `s not in members` is "s has crashed", as the text says: members are subscribers, and
   every message of a publisher outside the group would be broadcast by all.
   Likewise 5.3:21 lets a parent that is the publisher have its ACK, and 5.3:31 compares s with
   those that have crashed.
7. 5.3:31 drops what a process itself is the root of, as the bottom is no member, and then no
   process sends it round a crashed child.  Here a root drops nothing.
8. 5.2:28: an ACK answers all copies that were sent to that child; one ACK may be all there is.
9. 5.3:25-27 returns before the pending ACKs are looked at, so that a publisher outside the group
   waits for ever for the last subscriber, if that one crashed.  Here it goes on.
10. 5.3:28 empties *first_rec* whenever a process leaves or crashes; then the next message of a
    source hides those of it that wait for delivery.  Here that is done when the process itself
    leaves, and what it holds is dropped with it ([J] Algorithm 2, lines 33-34): it begins anew.
11. 5.3:40 looks for the dead publisher's last message among those *not* delivered.  The text
    ("every correct process that detected the failure") means the last one received.  It is done
    after a crash, not after a leave.
12. 5.3:15-16 remove a message from *msgs* when a later one has come, but only if that came before
    the delivery.  Here a process keeps the newest message of each source and those it holds.
13. 5.3:38-39 stand inside the `if` of line 34 by their indentation: the ACK of a process that is
    gone is then awaited for ever if its cluster is empty, or the next process there has the message
    already.  Here it is no longer awaited in any case.
14. 5.2:3 takes in every newcomer.  News of a join may come after that of the newcomer's crash; here
    such a newcomer is no member, as no later news would take it out again.
15. 5.2:5-6 and 5.3:24 take the leavers of one round out one by one, so what one of them has not
    acknowledged is sent to the next leaver.  Here all are out first.

Silence of the paper, filled in: subscribers are registered as publishers too (a subscriber of this
package may publish); publish by others (NOK, 5.1:15) raises `ValueError`; counters begin at 1
(5.2:9); *stopics* of 5.2:4 and 5.3:26 is every topic the process has heard of; of several
deliverable messages the one that arrived first is delivered first; an ACK that is not awaited is
ignored; n need not be a power of two.  As printed, a publisher delivers its own message although it
does not subscribe (the paper's validity), and a process delivers what reaches it after Unsubscribe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from cubecast.protocol.paper.sets import BOTTOM, NEVER, Held, Ident, Idents
from cubecast.protocol.paper.state import Pub
from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.topology import children, cluster, dimension_for, first_member, members_of

SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"

News: TypeAlias = tuple[Topic, int, int]
"""(topic, nodes that have subscribed, nodes that have left): sets of nodes."""


class Top(Protocol):
    """VCube-Top ([B] 5.2), as far as a process uses it."""

    def enter(self, node: NodeId, port: Port) -> None:
        """Register a process that begins; its port is woken when there is news for it."""

    def establish(self, topic: Topic, members: int) -> None:
        """Make `members` subscribers and publishers; all of them know it."""

    def join(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        """VCUBE_JOIN(t, kind): others hear of it with the next round of tests."""

    def leave(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        """VCUBE_LEAVE(t, kind)."""

    def news(self, node: NodeId, now: Time) -> Iterable[News]:
        """The news that `node` was not told yet; asks for the next wake if more is to come."""


class TreeMessage(Pub):
    """⟨TREE, m⟩: a publication; `first` is its counter, `cb` its barrier."""

    __slots__ = ()


class Ack(msgspec.Struct, gc=False):
    """⟨ACK, ⟨s, t, c⟩⟩: a subtree has the message."""

    kind: ClassVar[str] = "ack"
    topic: Topic
    ident: Ident


class TopicState:
    """The state of a process for one topic."""

    __slots__ = (
        "_node",
        "acks",
        "barrier",
        "branches",
        "counter",
        "delvs",
        "first_rec",
        "latest",
        "members",
        "msgs",
        "name",
        "queue",
        "recs",
        "registered",
        "subscribed",
    )

    def __init__(self, name: Topic, node: NodeId, nodes: int) -> None:
        self.name = name
        self._node = node
        self.members = 0
        self.subscribed = False
        """t in *stopics* of 5.1."""
        self.registered = False
        """t in *ptopics*, apart from being subscribed."""
        self.counter: Seq = 1
        self.queue: deque[TreeMessage] = deque()
        self.barrier = Idents()
        self.first_rec: list[Seq] = [NEVER] * nodes
        self.delvs: list[Seq] = [NEVER] * nodes
        self.latest = Idents()
        """`delvs` as a set: most barriers are found met by comparing them with it."""
        self.recs: Held[TreeMessage] = Held()
        self.msgs: dict[NodeId, TreeMessage] = {}
        """The newest message of each source; older ones are here no longer or in `recs`."""
        self.acks: dict[Ident, dict[NodeId, int]] = {}
        """⟨x, y, ⟨s, t, c⟩⟩ as {⟨s, c⟩: {x: set of y}}; x is `BOTTOM` (⊥) at a root."""
        self.branches: dict[int, tuple[NodeId, ...]] = {}

    def neighborhood(self, h: int) -> tuple[NodeId, ...]:
        """*neighborhood_i(t, h)*, computed once per set of members."""
        found = self.branches.get(h)
        if found is None:
            found = self.branches[h] = children(self._node, self.members, h)
        return found

    def change(self, members: int) -> None:
        """Set *members_i[t]*."""
        self.members = members
        self.branches = {}

    def delivered(self, source: NodeId, counter: Seq) -> None:
        """5.2:21, 5.3:12: ⟨s, c⟩ joins *delvs*, where only the last of each source matters."""
        before = self.delvs[source]
        if before != NEVER:
            self.latest.remove(1 << source, before)
        self.delvs[source] = counter
        self.latest.add(source, counter)
        self.recs.touch(source)

    def received(self, message: TreeMessage) -> None:
        """5.2:35-36: *first_rec* has the first message of each source."""
        source, counter = message.ident
        if self.first_rec[source] == NEVER:
            self.first_rec[source] = counter
            self.recs.touch(source)

    def is_new(self, message: TreeMessage) -> bool:
        """5.2:37-38: neither waiting for delivery nor delivered."""
        source, counter = message.ident
        return self.delvs[source] < counter and message.ident not in self.recs.messages

    def message(self, ident: Ident) -> TreeMessage | None:
        """5.3:36: m in *msgs* with this name; None if a later message has replaced it."""
        newest = self.msgs.get(ident[0])
        if newest is not None and newest.ident == ident:
            return newest
        return self.recs.messages.get(ident)

    def keep(self, message: TreeMessage) -> None:
        """5.2:17 and 40, 5.3:15-16: the newest message of a source replaces the one before."""
        newest = self.msgs.get(message.ident[0])
        if newest is None or newest.first < message.first:
            self.msgs[message.ident[0]] = message


class VCubePB:
    """One process of VCube-PB ([B] Algorithms 5.1-5.3)."""

    __slots__ = (
        "_dimension",
        "_faulty",
        "_node",
        "_nodes",
        "_port",
        "_stream",
        "_top",
        "_topics",
    )
    label: ClassVar[str] = "vcube-pb"

    def __init__(self, node: NodeId, port: Port, *, nodes: int, top: Top) -> None:
        self._node = node
        self._port = port
        self._nodes = nodes
        self._top = top
        self._dimension = dimension_for(nodes)
        self._stream = Stream(node, 0)
        self._faulty = 0
        """The processes whose crash VCube-Top has announced."""
        self._topics: dict[Topic, TopicState] = {}
        top.enter(node, port)

    # -- Algorithm 5.1: what the application calls -----------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        """Begin with `members` subscribed and registered as publishers."""
        self._top.establish(topic, members)
        if members >> self._node & 1:
            state = self._state(topic)
            state.subscribed = True
            state.change(members)

    def subscribe(self, topic: Topic, now: Time) -> None:
        """5.1:1-3, and 7-9 with it."""
        state = self._state(topic)
        if not state.subscribed:
            state.subscribed = True
            self._top.join(self._node, topic, SUBSCRIBER, now)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        """5.1:4-6, and 10-12 unless the process registered as a publisher by itself."""
        state = self._state(topic)
        if state.subscribed:
            state.subscribed = False
            self._top.leave(self._node, topic, SUBSCRIBER, now)

    def register(self, topic: Topic, now: Time) -> None:
        """5.1:7-9.  What is published before VCube-Top names the members reaches no other node."""
        state = self._state(topic)
        if not state.registered:
            state.registered = True
            self._top.join(self._node, topic, PUBLISHER, now)

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        """5.1:13-21; always accepted, as the queue has no bound."""
        state = self._state(topic)
        if not (state.subscribed or state.registered):
            raise ValueError(
                f"node {self._node} cannot publish on {topic!r}: "
                "it is neither subscribed nor registered as a publisher"
            )
        message = TreeMessage(topic, self._stream, state.counter, body, size)
        state.counter += 1
        self.co_broadcast(state, message)
        return True

    def load(self) -> Load:
        """Messages that wait for predecessors or their turn, and those kept for a crash."""
        held = retained = 0
        for state in self._topics.values():
            held += sum(message.size for message in state.recs.messages.values())
            held += sum(message.size for message in state.queue)
            retained += sum(
                message.size for message in state.msgs.values() if not self._waits(state, message)
            )
        return Load(held, retained)

    @staticmethod
    def _waits(state: TopicState, message: TreeMessage) -> bool:
        return message.ident in state.recs.messages or message in state.queue

    # -- what VCube-Top tells --------------------------------------------------------------------

    def on_wake(self, now: Time) -> None:
        """Take in the news of a round of tests."""
        for topic, joined, left in self._top.news(self._node, now):
            self.membership(topic, joined, left)

    def membership(self, topic: Topic, joined: int, left: int) -> None:
        """5.2:1-6, for one topic."""
        state = self._state(topic)
        state.change(state.members | self._living(joined))
        if joined >> self._node & 1:
            self._port.joined(topic)
        self._take_leave(state, left)
        if left >> self._node & 1:
            state.recs.clear()
            self._port.left(topic)

    def _living(self, joined: int) -> int:
        """5.2:2-3: a newcomer known to have crashed is no member; its crash is told only once."""
        return joined & ~self._faulty

    def _take_leave(self, state: TopicState, left: int) -> None:
        """5.2:5-6: remove all leavers first, then send round what each has not acknowledged."""
        if left:
            state.change(state.members & ~left)
            for node in members_of(left):
                self.check_leave(state, node)

    def crashed(self, node: NodeId, now: Time) -> None:
        """5.2:49-51 (CRASH): perfect detection, so `node` has crashed and stays so."""
        self._faulty |= 1 << node
        for state in self._topics.values():
            state.change(state.members & ~(1 << node))
            self.check_leave(state, node)
            self._inherit(state, node)

    # -- Algorithm 5.2 ---------------------------------------------------------------------------

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        if type(message) is Ack:
            self._receive_ack(message, sender)
        else:
            self._receive_tree(message, sender)

    def co_broadcast(self, state: TopicState, message: TreeMessage) -> None:
        """5.2:7-11."""
        state.queue.append(message)
        self.task(state)

    def task(self, state: TopicState) -> None:
        """5.2:12-26, task T1: one message after the other, as far as line 16 lets it."""
        while state.queue:
            message = state.queue[0]
            if self._must_wait(state, message):
                return
            state.queue.popleft()
            if message.ident[0] == self._node:
                self._take_own(state, message)
            self._pass_on(state, BOTTOM, self._roots_children(state, message), message)

    def _must_wait(self, state: TopicState, message: TreeMessage) -> bool:
        """5.2:16: the last own message has not been acknowledged by all."""
        source, counter = message.ident
        return source == self._node and BOTTOM in state.acks.get((source, counter - 1), ())

    def _take_own(self, state: TopicState, message: TreeMessage) -> None:
        """5.2:17-22 and 26: deliver an own message and give it its barrier."""
        state.keep(message)
        state.received(message)
        self._port.deliver(message)
        state.delivered(self._node, message.first)
        message.cb = state.barrier
        state.barrier = Idents({message.first: 1 << self._node})
        if state.recs.ready:
            self.check_recs(state)

    def _roots_children(self, state: TopicState, message: TreeMessage) -> tuple[NodeId, ...]:
        """5.2:23: the nodes that the root of a broadcast sends to."""
        return state.neighborhood(self._dimension)

    def _pass_on(
        self, state: TopicState, parent: NodeId, peers: Iterable[NodeId], message: TreeMessage
    ) -> None:
        """5.2:23-25 and 45-48: send to peers whose ACK for this parent is not awaited already."""
        pending = state.acks.get(message.ident, {}).get(parent, 0)
        fresh = [peer for peer in peers if not pending >> peer & 1]
        if not fresh:
            return
        for peer in fresh:
            pending |= 1 << peer
        state.acks.setdefault(message.ident, {})[parent] = pending
        self._port.relay(fresh, message)

    def _receive_ack(self, message: Ack, sender: NodeId) -> None:
        """5.2:27-31."""
        state = self._state(message.topic)
        entry = state.acks.get(message.ident, {})
        for parent in self._answered(entry, sender):
            entry[parent] &= ~(1 << sender)
            self.check_acks(state, parent, message.ident)

    def _answered(self, entry: dict[NodeId, int], sender: NodeId) -> list[NodeId]:
        """5.2:28: the parents on whose behalf the message was sent to `sender`."""
        return [parent for parent, peers in entry.items() if peers >> sender & 1]

    def _receive_tree(self, message: TreeMessage, sender: NodeId) -> None:
        """5.2:32-49."""
        state = self._state(message.topic)
        state.received(message)
        if state.is_new(message):
            self._receive_new(state, message)
            if self._is_orphan(state, message):
                self.co_broadcast(state, message)
                return
        elif state.recs.ready:
            self.check_recs(state)
        h = (self._node ^ sender).bit_length() - 1
        self._pass_on(state, sender, state.neighborhood(h), message)
        self.check_acks(state, sender, message.ident)

    def _receive_new(self, state: TopicState, message: TreeMessage) -> None:
        """5.2:39-41."""
        state.keep(message)
        state.recs.add(message)
        self.check_recs(state)

    def _is_orphan(self, state: TopicState, message: TreeMessage) -> bool:
        """5.2:42: the publisher has crashed."""
        return self._faulty >> message.ident[0] & 1 == 1

    # -- Algorithm 5.3 ---------------------------------------------------------------------------

    def check_cb(self, state: TopicState, barrier: Idents) -> NodeId:
        """5.3:1-5: `BOTTOM` if the barrier is met, else the source of a missing message."""
        for source, counter in barrier.without(state.latest):
            if not (state.delvs[source] >= counter or state.first_rec[source] > counter):
                return source
        return BOTTOM

    def check_recs(self, state: TopicState) -> None:
        """5.3:6-18: deliver what can be, in order of arrival."""
        while message := state.recs.first(self.check_cb, state):
            state.recs.remove(message)
            self._co_deliver(state, message)

    def _co_deliver(self, state: TopicState, message: TreeMessage) -> None:
        """5.3:12-14."""
        self._port.deliver(message)
        source, counter = message.ident
        state.delivered(source, counter)
        state.barrier.subtract(message.cb)
        state.barrier.add(source, counter)

    def check_acks(self, state: TopicState, parent: NodeId, ident: Ident) -> None:
        """5.3:19-22: tell the parent when nothing is awaited for it any more."""
        entry = state.acks.get(ident)
        if entry is not None:
            if entry.get(parent):
                return
            entry.pop(parent, None)
            if not entry:
                del state.acks[ident]
        if parent == BOTTOM:
            self.task(state)
        elif self._takes_acks(state, parent, ident):
            self._port.control(parent, Ack(state.name, ident))

    def _takes_acks(self, state: TopicState, parent: NodeId, ident: Ident) -> bool:
        """5.3:21: a forwarder is a member, the publisher need not be one."""
        if parent == ident[0]:
            return not self._faulty >> parent & 1
        return state.members >> parent & 1 == 1

    def check_leave(self, state: TopicState, node: NodeId) -> None:
        """5.3:23-39: `node` has left or crashed; send round it what it has not acknowledged.

        The caller has taken it out of *members* (line 24).
        """
        self._forget_first(state, node)
        heir = self._heir(state, node)
        for ident, entry in list(state.acks.items()):
            for parent in list(entry):
                if self._no_longer_awaited(state, parent, ident):
                    del entry[parent]
                elif entry[parent] >> node & 1:
                    self._send_round(state, parent, ident, node, heir)
            if not entry:
                state.acks.pop(ident, None)

    def _heir(self, state: TopicState, node: NodeId) -> NodeId | None:
        """5.3:29: *FF_neighbor_i(t, cluster_i(j))*."""
        if node == self._node:
            return None
        return first_member(self._node, cluster(self._node, node), state.members)

    def _forget_first(self, state: TopicState, node: NodeId) -> None:
        """5.3:28."""
        if node == self._node:
            state.first_rec = [NEVER] * self._nodes

    def _no_longer_awaited(self, state: TopicState, parent: NodeId, ident: Ident) -> bool:
        """5.3:31: the process that wanted these ACKs is gone.  A root wants its own."""
        if parent == BOTTOM:
            return False
        if self._faulty >> ident[0] & 1:
            return True
        return not self._takes_acks(state, parent, ident)

    def _send_round(
        self, state: TopicState, parent: NodeId, ident: Ident, node: NodeId, heir: NodeId | None
    ) -> None:
        """5.3:34-39."""
        message = state.message(ident)
        if heir is not None and message is not None:
            self._pass_on(state, parent, (heir,), message)
        state.acks[ident][parent] &= ~(1 << node)
        self.check_acks(state, parent, ident)

    def _inherit(self, state: TopicState, node: NodeId) -> None:
        """5.3:40-42: broadcast the last message of a publisher that has crashed."""
        message = self._last_of(state, node)
        if message is not None:
            self.co_broadcast(state, message)

    def _last_of(self, state: TopicState, node: NodeId) -> TreeMessage | None:
        """5.3:40-41."""
        return state.msgs.get(node)

    def _state(self, topic: Topic) -> TopicState:
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(topic, self._node, self._nodes)
        return state
