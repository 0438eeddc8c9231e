"""A world in which processes end and begin again.

Theory of operation.  A node has one *life* after the other.  A crash ends one at once, between two
copies of a broadcast if so planned: no message, timer or consumption reaches it any more, what it
still does reaches nobody, and what it had not handed to the protocol is dropped; what it sent is on
its way.  A restart makes a new process, which knows nothing, with a new port; the application
subscribes again to what it had.  Nobody is told of a crash: processes have a detector of their own,
or live in a `cubecast.sim.crashes.crash_stop.CrashStopWorld`.

Nodes are *places* with an address of their own, and the trace speaks of these.  The slot that a
process has in its view is the protocol's affair: messages are addressed to slots, and the sender's
view says whose address that is.  So a slot can change hands, as it does among live nodes.

Invariants:

1. A message reaches the life it was sent to or nobody: it is bound to that life's receiver when it
   is sent.  What is sent to a node that is down reaches nobody.  So it is with TCP.
2. Whoever receives a message is told by which incarnation of its sender it was sent.
3. The *ledger* says which message is number so-and-so of a stream.  It is kept from the order in
   which publications were handed to the protocol and taken; every delivery is held against it.  So
   what a process reports as lost is named in the trace without asking the process.
4. Whenever a life ends or a view is installed, the trace has first what is ``stable`` by then: what
   everyone had taken in before nobody can have lost by that.

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

from cubecast.net.node.retained import Retained
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
"""How often a node that is about to leave looks whether it may."""
MAX_NAMED = 1_000_000
"""Nobody honest reports more messages as lost at a time."""


class MessageInFlight(NamedTuple):
    """A message on its way, and who sent it: an incarnation, or what the process calls itself."""

    message: Message
    seal: object
    slot: NodeId
    """Under which number its sender goes in its view."""
    kind: str
    stream: Any
    """Of a publication, as `Hold` looks for it."""


class Gone:
    """What is at a node that is down."""

    label: ClassVar[str] = "gone"

    def load(self) -> Load:
        return Load(0, 0)


class LedgerError(AssertionError):
    """A message was delivered under a number that another one has."""


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
        """Those who are about to leave the cluster."""
        self.following: set[tuple[NodeId, str]] = set()
        """Patterns whose subscription has not begun."""
        self._slots: dict[NodeId, NodeId] = {
            node: node for node in range(nodes) if node not in later
        }
        """Slot -> the node that had it in the view that was installed last, anywhere."""
        self.handed_over = 0
        """How often a slot was found to have changed hands."""
        self._owners: dict[tuple[NodeId, int], NodeId] = {}
        """Slot and incarnation of a stream -> the node that publishes it."""
        self._ledger: dict[PageKey, list[int]] = {}
        self._open_pages: dict[NodeId, dict[PageKey, int]] = {node: {} for node in range(nodes)}
        """Pages of what a node publishes in its present life that are not stable to their end: how
        far they are."""
        self._marks: Counter[str] = Counter()
        self.values = ValueLog()
        """What became of retained values."""
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
        """Nobody is at `node` any more."""
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

        Its application ends every subscription.  When all that it published is stable, and what it
        said is acknowledged, it asks to be let go; then nobody is there.
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
        """`node` was let go: it says so by a view without members."""
        self._note_stable()
        epoch = self.views.get(node, (0, 0))[0]
        if self.trace is not None:
            self.trace.append(Record("view", self.now, node, seq=epoch, members=0))
        self._end(node)

    def crash_after(self, node: NodeId, copies: int) -> None:
        """Let this life of `node` end when it has sent so many more copies of publications."""
        self._life_port(node).copies_left = copies

    def suspect(self, node: NodeId, peer: NodeId) -> None:
        """`node` is told that `peer` has crashed, be that so or not, if it listens to such news.

        What is certain to some (``crashed``) is an opinion to others (``suspect``).
        """
        process = self.processes[node]
        listener = getattr(process, "crashed", None) or getattr(process, "suspect", None)
        if listener is not None:
            listener(peer, self.now)

    def restart(self, node: NodeId) -> None:
        """Begin a new life at `node`; its application subscribes again to what it had."""
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
        self._wanted[node].clear()  # what patterns match they find again
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
        """Under which number `node` sends and publishes now."""
        number: int = getattr(self.processes[node], "incarnation", self.lives[node])
        return number

    @property
    def marks(self) -> Counter[str]:
        """The branches that processes say they took, in all lives."""
        total = Counter(self._marks)
        for process in self.processes:
            total.update(getattr(process, "marks", Counter()))
        return total

    # -- retained values -------------------------------------------------------------------------

    def publish_value(self, node: NodeId, topic: Topic, removes: bool = False) -> int:
        """The application at `node` publishes a message that is kept for newcomers.

        One that `removes` says that there is no such message any more.
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
        """A subscription that begins is handed a value; one that goes on only a newer one."""
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
                    port.send(sender, answer)  # the way it came, whoever has which slot
            else:
                hand_over(message, packet.slot, packet.seal, now)

        return receive

    # -- the ledger ------------------------------------------------------------------------------

    def _page_of(self, node: NodeId, topic: Topic) -> PageKey:
        """The page of what a node publishes to a topic next."""
        process: Any = self.processes[node]
        if hasattr(process, "stream_of"):
            stream = process.stream_of(topic)
            return stream.source, stream.incarnation, topic
        return getattr(process, "node", node), self.incarnation(node), topic

    def _offer(self, node: NodeId, topic: Topic, batch: tuple[int, ...], size: int) -> bool:
        """Enter it first: a process may deliver its own message before `publish` returns.

        A node takes everything as it dies, so that nothing is left to offer to the dead.
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
        """Write down what has become stable since this was done last."""
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
        """One record per message, by its id; what nobody published gets a name nobody has."""
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
        """`node` installed a view; in the one that is made with the world, life 0 of all is."""
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
    """What a life says after its end is not heard: it may end in the middle of what it does."""

    def tell_if_up(port: LifePort, /, *args: P.args, **options: P.kwargs) -> None:
        if port.up:
            tell(port, *args, **options)

    return tell_if_up


class LifePort(SimPort):
    """The port of one life of a node; when that has ended, nothing comes through it."""

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
        """One copy after the other, and perhaps the end between two of them."""
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
        """The nodes that have these slots in the view of ours; nobody is known at another slot."""
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
        """Nodes are where their number says."""
        self.send(int(address), message)

    def departed(self) -> None:
        """Everyone else is in a view without us."""
        if self.up:
            cast(MortalWorld, self._world).departed(self._node)

    def mute(self, accusation: Accusation) -> None:
        """What follows from it is in the trace: a view without that node."""

    def denied(self, denial: Denial) -> None:
        """Nobody lies in a simulation."""

    def excluded(self) -> None:
        """The seal of what is sent tells one life of a process from the next."""

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
    """Nobody is there."""


def _without_life(process: Process) -> Callable[[Message, NodeId, object, Time], None]:
    """For processes that do not ask which life of a peer speaks."""
    on_message = process.on_message

    def hand_over(message: Message, sender: NodeId, life: object, now: Time) -> None:
        on_message(message, sender, now)

    return hand_over
