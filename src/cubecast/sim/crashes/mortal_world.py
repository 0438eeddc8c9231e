"""A world in which processes end and begin again.

Theory of operation.  A node has one *life* after the other.  A crash ends one at once, between two
copies of a broadcast if so planned: no message, timer or consumption reaches it any more, its
further output reaches no node, and publications not yet handed to the protocol are dropped; what it
sent before is on its way.  A restart makes a new process, which knows nothing, with a new port; the
application subscribes again to its topics.  No node is told of a crash: processes have a detector
of their own, or live in a `cubecast.sim.crashes.crash_stop.CrashStopWorld`.

Nodes are *places* with an address of their own, and the trace speaks of these.  The slot that a
process has in its view is the protocol's affair: messages are addressed to slots, and the sender's
view says whose address that is.  So a slot can change hands, as it does among live nodes.

Invariants:

1. A message reaches the life it was sent to or no node: it is bound to that life's receiver when it
   is sent.  A message to a node that is down reaches no node.  So it is with TCP.
2. The receiver of a message is told which incarnation of its sender sent it.
3. The *ledger* says which message is number so-and-so of a stream.  It is kept from the order in
   which publications were handed to the protocol and taken; every delivery is held against it.  So
   what a process reports as lost is named in the trace without asking the process.
4. Whenever a life ends or a view is installed, the trace first gets the messages that are
   ``stable`` by then: a message that all had consumed before cannot be lost by that event.

A process may have, besides the methods of `Process`: ``on_packet(message, sender, life, now)``,
called instead of ``on_message`` with the sender's incarnation, or with what its ``seal()`` said
when it sent; ``incarnation``, under which it
publishes now (without it, the number of its life, from 0); ``crashed(node, now)`` or
``suspect(node, now)``, for what it is told of others; and ``marks``, a `Counter` of the branches of
recovery it took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, cast

from cubecast.net.node.value_keeper import Retained
from cubecast.protocol.cluster.views import TO_ANYONE
from cubecast.protocol.port import (
    Accusation,
    Denial,
    Load,
    Message,
    NodeId,
    Port,
    Process,
    Publication,
    Seq,
    Stream,
    Time,
    Topic,
)
from cubecast.protocol.subscriptions.membership import Standing
from cubecast.sim.values import Handing, Value, ValueKept, ValueLog, ident_of
from cubecast.sim.world import Handler, NetworkModel, SimPort, Spans, World, message_record
from cubecast.topology import members_of
from cubecast.trace import Kind, Record

P = ParamSpec("P")
MakeLife = Callable[[NodeId, Port, int], Process]
"""Makes the process of a node: its port, and which life of the node it is, from 0."""

PageKey = tuple[NodeId, int, Topic]
"""A stream of a topic: its source and incarnation."""

LOOK_EVERY: Time = 50
"""How often a node that is about to leave checks whether it may."""
MAX_NAMED = 1_000_000
"""An honest node never reports more messages as lost at a time."""


class MessageInFlight(NamedTuple):
    """A message on its way, and its sender: an incarnation, or what the process calls itself."""

    message: Message
    seal: object
    slot: NodeId
    """The slot of the sender in its own view."""
    kind: str
    stream: Any
    """The stream of a publication, as `Hold` looks for it."""


class Gone:
    """The placeholder for the process of a node that is down."""

    label: ClassVar[str] = "gone"

    def load(self) -> Load:
        return Load(0, 0)


class LedgerError(AssertionError):
    """A message was delivered under a number that belongs to another message."""


class MortalWorld(World):
    """A `World` with `crash` and `restart`."""

    keeps_ledger: ClassVar[bool] = True
    """Whether processes number what they publish on a topic from 0, one by one."""

    def __init__(
        self,
        nodes: int,
        make: MakeLife,
        network: NetworkModel,
        *,
        later: Collection[NodeId] = (),
        **options: Any,
    ) -> None:
        """`later` are nodes that are not there at the beginning: `restart` begins them."""
        self._make_life = make
        self.lives = [0] * nodes
        self.down: set[NodeId] = set(later)
        self.leaving: set[NodeId] = set()
        """Nodes that are about to leave the cluster."""
        self.following: set[tuple[NodeId, str]] = set()
        """(node, pattern) of subscriptions to patterns that have not begun."""
        self._slots: dict[NodeId, NodeId] = {
            node: node for node in range(nodes) if node not in later
        }
        """Slot -> the node that had it in the view that was installed last, anywhere."""
        self.handed_over = 0
        """How often a slot was found to have changed hands."""
        self.called_mute: list[tuple[Time, NodeId]] = []
        """When a leader was called mute, and which node it was."""
        self._owners: dict[tuple[NodeId, int], NodeId] = {}
        """Slot and incarnation of a stream -> the node that publishes it."""
        self._ledger: dict[PageKey, list[int]] = {}
        self._open_pages: dict[NodeId, dict[PageKey, int]] = {node: {} for node in range(nodes)}
        """Pages of a node's streams of this life that are not stable to their end -> how far they
        are stable."""
        self._marks: Counter[str] = Counter()
        self.values = ValueLog()
        """What happened to retained values in this run."""
        self.views: dict[NodeId, tuple[int, int]] = {}
        """Node -> the view it installed last in this life: number and members."""

        def begin(node: NodeId, port: Port) -> Process:
            return make(node, port, 0) if node not in self.down else cast(Process, Gone())

        super().__init__(nodes, begin, network, **options)

    # -- lives -----------------------------------------------------------------------------------

    def is_up(self, node: NodeId) -> bool:
        """Whether `node` has a process."""
        return node not in self.down

    def running(self) -> Sequence[NodeId]:
        return [node for node in range(len(self.processes)) if node not in self.down]

    def crash(self, node: NodeId) -> None:
        """End the process of `node` at once."""
        if node in self.down:
            raise ValueError(f"node {node} is down already")
        self._note_stable()
        self._record("crash", node, "")
        self._end(node)

    def _end(self, node: NodeId) -> None:
        """Leave no process at `node`."""
        self._open_pages[node].clear()
        self.leaving.discard(node)
        self._marks += getattr(self.processes[node], "marks", Counter())
        self._life_port(node).up = False
        self.down.add(node)
        self.processes[node] = cast(Process, Gone())
        self.receivers[node] = _nobody
        for key in [key for key in self._backlog if key[0] == node]:
            del self._backlog[key]
        self._let_go[node].clear()
        for flags in self._subscribed.values():
            flags[node] = 0
        self.following = {one for one in self.following if one[0] != node}
        self.views.pop(node, None)

    def leave(self, node: NodeId) -> None:
        """`node` leaves the cluster gracefully, as a live node does (`cubecast.net.node.closing`).

        Its application ends every subscription.  When all its publications are stable and its
        messages acknowledged, it asks to be let go; then no process is there.
        """
        for pattern in list(self._patterns[node]):
            self.unfollow(node, pattern)
        for topic in list(self._wanted[node]):
            self.unsubscribe(node, topic)
        self.leaving.add(node)
        self.post(self.now + LOOK_EVERY, self._try_to_go, node, self._life_port(node))

    def _try_to_go(self, node: NodeId, port: LifePort, now: Time) -> None:
        if not port.up:
            return
        process: Any = self.processes[node]
        core = process.core
        waiting = any(self._backlog.get(key) for key in self._backlog if key[0] == node)
        if core is None or waiting or core.unstable() or not self._has_left_all(core):
            self.post(now + LOOK_EVERY, self._try_to_go, node, port)
            return
        core.tell_stable(now)
        if core.unacked_parcels():
            self.post(now + LOOK_EVERY, self._try_to_go, node, port)
        else:
            process.depart(now)

    def _has_left_all(self, core: Any) -> bool:
        return all(one.standing is Standing.OUT for one in core.memberships.values())

    def departed(self, node: NodeId) -> None:
        """End the life of `node`, which was let go and reports a view without members."""
        self._note_stable()
        epoch = self.views.get(node, (0, 0))[0]
        if self.trace is not None:
            self.trace.append(Record("view", self.now, node, seq=epoch, members=0))
        self._end(node)

    def crash_after(self, node: NodeId, copies: int) -> None:
        """End this life of `node` when it has sent so many more copies of publications."""
        self._life_port(node).copies_left = copies

    def suspect(self, node: NodeId, peer: NodeId) -> None:
        """Tell `node` that `peer` has crashed, true or not, if it listens to such news.

        Some protocols take it as certain (``crashed``), others as an opinion (``suspect``).
        """
        process = self.processes[node]
        listener = getattr(process, "crashed", None) or getattr(process, "suspect", None)
        if listener is not None:
            listener(peer, self.now)

    def restart(self, node: NodeId) -> None:
        """Begin a new life at `node`; its application subscribes again to its topics."""
        if node not in self.down:
            raise ValueError(f"node {node} is up already")
        self.down.discard(node)
        self.lives[node] += 1
        self._record("restart", node, "")
        self.ports[node] = self._port(node)
        self.processes[node] = self._make_life(node, self.ports[node], self.lives[node])
        receiver = self._receiver(node)
        service = getattr(self._network, "service", None)
        self.receivers[node] = receiver if service is None else service(node, receiver)
        for pattern in list(self._patterns[node]):
            self.follow(node, pattern)
        wanted = [topic for topic, found in self._wanted[node].items() if not found]
        self._wanted[node].clear()  # patterns find their topics again
        for topic in wanted:
            self.subscribe(node, topic, topic in self._lossy[node])

    def follow(self, node: NodeId, pattern: str) -> None:
        self.following.add((node, pattern))
        super().follow(node, pattern)

    def unfollow(self, node: NodeId, pattern: str) -> None:
        self.following.discard((node, pattern))
        super().unfollow(node, pattern)

    def followed(self, node: NodeId, pattern: Hashable, complete: bool) -> None:
        self.following.discard((node, str(pattern)))
        super().followed(node, pattern, complete)

    @property
    def has_crashed(self) -> bool:
        """Whether any life has ended."""
        return bool(self.down or self.leaving) or any(self.lives)

    def has_joined_all(self, node: NodeId) -> bool:
        """Whether every subscription that `node` wants has begun."""
        return all(self.is_subscribed(node, topic) for topic in self._wanted[node])

    def incarnation(self, node: NodeId) -> int:
        """The incarnation under which `node` sends and publishes now."""
        number: int = getattr(self.processes[node], "incarnation", self.lives[node])
        return number

    @property
    def marks(self) -> Counter[str]:
        """The branches of recovery that processes took, over all lives."""
        total = Counter(self._marks)
        for process in self.processes:
            total.update(getattr(process, "marks", Counter()))
        return total

    # -- retained values -------------------------------------------------------------------------

    def publish_value(self, node: NodeId, topic: Topic, removes: bool = False) -> int:
        """Publish, at `node`, a message that is kept for newcomers.

        With `removes` it says that there is no such message any more.
        """
        ident = self._new_message(node, topic, ())
        self._hand_over(node, topic, Value.of(ident, removes), 1)
        return ident

    def keeper(self, node: NodeId) -> Retained:
        """The retained values that `node` keeps."""
        return self._life_port(node).keeper

    def _keep(self, node: NodeId, topic: Topic, stream: Stream, first: Seq, value: Value) -> None:
        self.keeper(node).published(topic, stream, first, value.body)
        stamp = (value.body.time, *stream, first)
        self.values.kept.append(ValueKept(self._position(), node, topic, value[0], stamp))

    def _hand_out(self, node: NodeId, topic: Topic, first: bool) -> None:
        keeper = self.keeper(node)
        kept = keeper.kept(topic)
        handed = ident_of(kept) if kept is not None and keeper.frame(topic) is not None else None
        stamp = () if kept is None else kept.stamp
        self.values.handed.append(Handing(self._position(), node, topic, handed, stamp, first))

    def _position(self) -> int:
        return 0 if self.trace is None else len(self.trace)

    def joined(self, node: NodeId, topic: Topic) -> None:
        """Hand a value to a subscription that begins; to one that goes on only a newer value."""
        news = self.keeper(node).take_news(topic)
        first = not self.is_subscribed(node, topic) and not self._let_go[node].get(topic)
        super().joined(node, topic)
        if first or news:
            self._hand_out(node, topic, first)

    # -- messages --------------------------------------------------------------------------------

    def _port(self, node: NodeId) -> LifePort:
        return LifePort(self, node, self._network)

    def _life_port(self, node: NodeId) -> LifePort:
        return cast(LifePort, self.ports[node])

    def _receiver(self, node: NodeId) -> Handler:
        if node in self.down:
            return _nobody
        port = self._life_port(node)
        process: Any = self.processes[node]
        hand_over = getattr(process, "on_packet", None) or _without_life(process)
        hear = getattr(process, "hear", None)
        received = self.meter.received
        subscribed = self._subscribed
        trace = self.trace if self._trace_messages else None

        def receive(packet: MessageInFlight, sender: NodeId, now: Time) -> None:
            if not port.up:
                return
            message: Any = packet.message
            if packet.kind == "pub":
                flags = subscribed.get(message.topic)
                received(message.body, bool(flags and flags[node]), now)
            if trace is not None:
                trace.append(message_record("receive", now, node, sender, message))
            if hear is not None and isinstance(message, TO_ANYONE):
                uid = packet.seal.uid  # type: ignore[attr-defined]
                answer = hear(message, uid, now, str(sender))  # a node is where its number says
                if answer is not None:
                    port.send(sender, answer)  # back the way it came, whatever the slots are
            else:
                hand_over(message, packet.slot, packet.seal, now)

        return receive

    # -- the ledger ------------------------------------------------------------------------------

    def _page_of(self, node: NodeId, topic: Topic) -> PageKey:
        """The page of the next publication of a node to a topic."""
        process: Any = self.processes[node]
        if hasattr(process, "stream_of"):
            stream = process.stream_of(topic)
            return stream.source, stream.incarnation, topic
        return getattr(process, "node", node), self.incarnation(node), topic

    def _offer(self, node: NodeId, topic: Topic, batch: tuple[int, ...], size: int) -> bool:
        """Hand a publication to the protocol, and enter it in the ledger first.

        A process may deliver its own message before `publish` returns.  A node that is down takes
        everything, so that nothing is left to offer to it.
        """
        if node in self.down:
            return True
        key = self._page_of(node, topic)
        self._owners[key[:2]] = node
        page = self._ledger.setdefault(key, [])
        page.extend(batch)
        if isinstance(batch, Value):
            batch.set_time(node, self.now)
            self.keeper(node).stamp(batch.body)
        self._open_pages[node].setdefault(key, len(page) - len(batch))
        taken = super()._offer(node, topic, batch, size) or node in self.down
        if isinstance(batch, Value) and taken and node not in self.down:
            self._keep(node, topic, Stream(*key[:2]), len(page) - 1, batch)
        if not taken:
            del page[-len(batch) :]
        elif self.trace is not None and self._backlog.get((node, topic)):
            for ident in batch:  # it had to wait
                self.trace.append(Record("taken", self.now, node, topic, ident))
        return taken

    def _note_stable(self) -> None:
        """Record what has become stable since the last call."""
        if self.trace is None:
            return
        for node, pages in self._open_pages.items():
            core = getattr(self.processes[node], "core", None)
            if not pages or core is None:
                continue
            for key, noted in list(pages.items()):
                topic = key[2]
                if self._page_of(node, topic) == key:
                    self._write_stable(node, key, noted, core.stable_seq(topic) + 1)

    def _write_stable(self, node: NodeId, key: PageKey, noted: int, stable: int) -> None:
        assert self.trace is not None
        topic, page = key[2], self._ledger[key]
        for ident in page[noted:stable]:
            self.trace.append(Record("stable", self.now, node, topic, ident))
        if stable >= len(page):
            del self._open_pages[node][key]
        else:
            self._open_pages[node][key] = max(noted, stable)

    def delivered(self, node: NodeId, publication: Publication) -> None:
        stream, first = publication.stream, publication.first
        page = self._ledger.get((stream.source, stream.incarnation, publication.topic), [])
        body = list(publication.body)
        if self.keeps_ledger and page[first : first + len(body)] != body:
            raise LedgerError(
                f"node {node} delivered {body} as numbers {first} … of {stream}, "
                f"but these are {page[first : first + len(body)]}"
            )
        super().delivered(node, publication)
        if isinstance(publication.body, Value):
            self._keep(node, publication.topic, stream, first, publication.body)

    def _owner(self, stream: Stream) -> NodeId:
        return self._owners.get((stream.source, stream.incarnation), stream.source)

    def lost(self, kind: Kind, node: NodeId, topic: Topic, spans: Spans) -> None:
        """Record each lost message by its id; one never published gets an id of its own."""
        if self.trace is None:
            return
        for stream, (first, last) in spans.items():
            assert last - first < MAX_NAMED, f"{kind} of {last - first + 1} messages of {stream}"
            source, incarnation = stream
            page = self._ledger.get((source, incarnation, topic), [])
            for seq in range(first, last + 1):
                known = 0 <= seq < len(page)
                ident = page[seq] if known else f"{source}.{incarnation:x}.{seq}"
                owner = self._owner(stream)
                self.trace.append(Record(kind, self.now, node, topic, ident, source=owner, seq=seq))

    def viewed(self, node: NodeId, epoch: int, members: int) -> None:
        """Record that `node` installed a view; the world's first view has life 0 of all nodes."""
        view = getattr(self.processes[node], "view", None) if hasattr(self, "processes") else None
        if view is None:
            lives = {slot: f"{slot}-0" for slot in members_of(members)}
        else:
            self._note_stable()
            lives = {int(who.address): who.uid for who in view.members.values()}
            for slot, who in view.members.items():
                place = int(who.address)
                self.handed_over += self._slots.setdefault(slot, place) != place
                self._slots[slot] = place
        places = sum(1 << place for place in lives)
        self.views[node] = (epoch, places)
        if self.trace is not None:
            names = tuple(lives[place] for place in sorted(lives))
            self.trace.append(
                Record("view", self.now, node, seq=epoch, members=places, lives=names)
            )

    # -- the application -------------------------------------------------------------------------

    def _tell_delivery(self, node: NodeId, what: tuple[Topic, int], now: Time) -> None:
        if node not in self.down:
            super()._tell_delivery(node, what, now)

    def _tell_joined(self, node: NodeId, topic: Topic, now: Time) -> None:
        if node not in self.down:
            super()._tell_joined(node, topic, now)


def _while_up(
    tell: Callable[Concatenate[LifePort, P], None],
) -> Callable[Concatenate[LifePort, P], None]:
    """Ignore what a life says after its end, which may come in the middle of a call."""

    def tell_if_up(port: LifePort, /, *args: P.args, **options: P.kwargs) -> None:
        if port.up:
            tell(port, *args, **options)

    return tell_if_up


class LifePort(SimPort):
    """The port of one life of a node; nothing passes it after the end of that life."""

    __slots__ = ("copies_left", "keeper", "up")

    def __init__(self, world: MortalWorld, node: NodeId, network: NetworkModel) -> None:
        super().__init__(world, node, network)
        self.up = True
        self.keeper = Retained()
        """The retained values of this life, which the core asks for."""
        self.copies_left: int | None = None
        """The life ends when it has sent so many more copies of publications; None: it does not."""

    joined = _while_up(SimPort.joined)
    gap = _while_up(SimPort.gap)
    discard = _while_up(SimPort.discard)
    view = _while_up(SimPort.view)
    discovered = _while_up(SimPort.discovered)
    followed = _while_up(SimPort.followed)
    forgotten = _while_up(SimPort.forgotten)
    writable = _while_up(SimPort.writable)

    def deliver(self, publication: Publication) -> bool:
        return not self.up or super().deliver(publication)

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        """Send one copy after the other; the life may end between two of them."""
        if not self.up:
            return
        left = self.copies_left
        if left is None:
            self._send(peers, message)
        elif left >= len(peers):
            self.copies_left = left - len(peers)
            self._send(peers, message)
        else:
            self._send(peers[:left], message)
            cast(MortalWorld, self._world).crash(self._node)

    def _send(self, peers: Sequence[NodeId], message: Message) -> None:
        peers = self._places(peers)
        self._counts[message.kind] += len(peers)
        if self._world._trace_messages:
            self._trace_send(peers, message)
        self._network.relay(self._node, peers, self._packet(message, len(peers)))

    def _places(self, slots: Sequence[NodeId]) -> Sequence[NodeId]:
        """The nodes that have these slots in our view; slots without a member are left out."""
        view = getattr(self._world.processes[self._node], "view", None)
        if view is None:
            return slots
        members = view.members
        return [int(members[slot].address) for slot in slots if slot in members]

    def control(self, peer: NodeId, message: Message) -> None:
        for place in self._places((peer,)):
            self.send(place, message)

    def send(self, place: NodeId, message: Message) -> None:
        """Send to a node, whatever its slot is."""
        if not self.up:
            return
        self._counts[message.kind] += 1
        if self._world._trace_messages:
            self._trace_send((place,), message)
        self._network.control(self._node, place, self._packet(message))

    def _packet(self, message: Message, copies: int = 1) -> MessageInFlight:
        world = cast(MortalWorld, self._world)
        if world.codec is not None:
            message = world.codec.cross(message, copies)
        process: Any = world.processes[self._node]
        seal = getattr(process, "seal", None)
        speaker = world.incarnation(self._node) if seal is None else seal()
        slot = getattr(process, "node", self._node)
        return MessageInFlight(
            message, speaker, slot, message.kind, getattr(message, "stream", (None,))
        )

    def reach(self, address: str, message: Message) -> None:
        """Send to an address, which is the number of a node."""
        self.send(int(address), message)

    def departed(self) -> None:
        """End this life: all others are in a view without us."""
        if self.up:
            cast(MortalWorld, self._world).departed(self._node)

    def mute(self, accusation: Accusation) -> None:
        """Note a leader that is called mute; the trace shows the result, a view without it."""
        if accusation.reason:
            world: Any = self._world
            accused = world.processes[self._node].view.members[accusation.slot]
            world.called_mute.append((world.now, int(accused.address)))

    def denied(self, denial: Denial) -> None:
        """Do nothing: no node lies in a simulation."""

    def excluded(self) -> None:
        """Do nothing: the seal of each message already names the life of its sender."""

    def _wake(self, planned: Time, _: None, now: Time) -> None:
        if self.up:
            super()._wake(planned, _, now)

    def _consumed(self, publication: Publication, _: None, now: Time) -> None:
        awake = self._world.awake(self._node, now)
        if awake > now:
            self._world.post(awake, self._consumed, publication)
        elif self.up:
            super()._consumed(publication, _, now)


def _nobody(packet: MessageInFlight, sender: NodeId, now: Time) -> None:
    """Drop a packet: there is no process."""


def _without_life(process: Process) -> Callable[[Message, NodeId, object, Time], None]:
    """Adapt a process that does not ask which life of a peer sent a message."""
    on_message = process.on_message

    def hand_over(message: Message, sender: NodeId, life: object, now: Time) -> None:
        on_message(message, sender, now)

    return hand_over
