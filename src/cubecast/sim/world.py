"""Virtual time: processes, the ports they act through, and the events between them.

Theory of operation.  Time is a whole number.  Events of one instant share a *bucket*, a list that
is worked off in the order it was filled (also by events the instant itself adds); a heap orders
the few distinct instants, not the many events.  An event is ``(handler, a, b)`` and is run as
``handler(a, b, now)``, so that a message costs one append and one call.

Invariants:

1. A run is a function of its inputs: buckets keep insertion order, nothing iterates over a set,
   and all chance comes from the generators the caller seeds.
2. Records are appended in the order things happen, so a trace is a total order in which every
   node's own records stand in its order.
3. Ports never re-enter a process: what a process asks for becomes an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from cubecast.protocol.port import (
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
from cubecast.protocol.subscriptions.patterns import Pattern
from cubecast.sim.metrics import Meter
from cubecast.trace import Kind, Record

if TYPE_CHECKING:
    from cubecast.sim.codec import MessageFormat
    from cubecast.sim.faults import Pause

Handler = Callable[[Any, Any, Time], None]
Event = tuple[Handler, Any, Any]
MakeProcess = Callable[[NodeId, Port], Process]
Spans = Mapping[Stream, tuple[Seq, Seq]]
"""Messages: of each stream, from … to."""
Turns = Sequence[tuple[Time, Topic]]
"""(delay, topic): what a node publishes in turn, and how long after its previous one has left."""


class NetworkModel(Protocol):
    """Decides when a message arrives (see `cubecast.sim.networks`)."""

    def attach(self, world: World) -> None: ...
    def relay(self, source: NodeId, peers: Sequence[NodeId], message: Message) -> None: ...
    def control(self, source: NodeId, peer: NodeId, message: Message) -> None: ...


class Application(Protocol):
    """The application on top: it is told of events and drives the world in return."""

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None: ...
    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None: ...


class Silent:
    """An application that ignores deliveries; its subclasses do so, too."""

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        """Do nothing on a delivery."""

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Do nothing on a completed subscription."""


class HorizonReached(Exception):
    """A run was not at rest at the end of its time."""

    def __init__(self, at: Time, pending: int) -> None:
        super().__init__(f"not at rest at time {at}: {pending} events pending")
        self.at = at
        self.pending = pending


class World:
    """`nodes` processes, one network, one application, one trace.

    `root_of` names the node where a topic's trees start if that is not the publisher: its own
    delivery costs no hop and is left out of the latency.  With `consume_after`, applications take
    that long to consume a message, where the protocol lets them.  With a `codec`
    (`cubecast.sim.codec`) every message crosses a wire format on its way.
    """

    def __init__(
        self,
        nodes: int,
        make: MakeProcess,
        network: NetworkModel,
        *,
        application: Application | None = None,
        trace: list[Record] | None = None,
        trace_messages: bool = False,
        state_every: Time = 0,
        meter: Meter | None = None,
        root_of: Callable[[Topic], NodeId] | None = None,
        consume_after: Time = 0,
        pauses: Sequence[Pause] = (),
        codec: MessageFormat | None = None,
    ) -> None:
        self.now: Time = 0
        self.events = 0
        self.trace = trace
        self.meter = meter if meter is not None else Meter()
        self.application: Application = application if application is not None else Silent()
        self._root_of = root_of
        self.consume_after = consume_after
        self.pauses = pauses
        self.codec = codec
        self._trace_messages = trace is not None and trace_messages
        self._state_every = state_every
        self._next_state = state_every
        self.buckets: dict[Time, list[Event]] = {}
        self.instants: list[Time] = []
        self.publications = 0
        self._subscribed: dict[Topic, bytearray] = {}
        self._wanted: list[dict[Topic, bool]] = [{} for _ in range(nodes)]
        """The topics that each application wants to read; True: because of a pattern alone."""
        self._let_go: list[dict[Topic, bool]] = [{} for _ in range(nodes)]
        """Of these, topics that the node has forgotten; a pattern still matches them."""
        self._lossy: list[set[Topic]] = [set() for _ in range(nodes)]
        self._patterns: list[dict[str, Pattern]] = [{} for _ in range(nodes)]
        self._backlog: dict[tuple[NodeId, Topic], deque[tuple[tuple[int, ...], int]]] = {}
        self._turns: dict[NodeId, Iterator[tuple[Time, Topic]]] = {}
        self.turns_take: Time = 0
        """The longest time that a node's turns take if its publications leave at once."""
        self._network = network
        self.ports = [self._port(node) for node in range(nodes)]
        self.processes: list[Process] = [make(node, self.ports[node]) for node in range(nodes)]
        self.receivers: list[Handler] = [self._receiver(node) for node in range(nodes)]
        network.attach(self)

    # -- events ---------------------------------------------------------------------------------

    def post(self, at: Time, handler: Handler, a: Any = None, b: Any = None) -> None:
        """Run ``handler(a, b, at)`` at time `at`, after what is already planned for then."""
        bucket = self.buckets.get(at)
        if bucket is None:
            if at < self.now:
                raise ValueError(f"cannot plan for {at}: it is {self.now} already")
            bucket = self.buckets[at] = []
            heappush(self.instants, at)
        bucket.append((handler, a, b))

    def run(self, until: Time | None = None) -> None:
        """Work off every event; raise `HorizonReached` if some are left after `until`."""
        instants = self.instants
        buckets = self.buckets
        while instants:
            now = instants[0]
            if until is not None and now > until:
                raise HorizonReached(until, sum(map(len, buckets.values())))
            bucket = buckets[now]
            self.now = now
            for handler, a, b in bucket:
                handler(a, b, now)
            self.events += len(bucket)
            heappop(instants)
            del buckets[now]
            if self._state_every and now >= self._next_state:
                self.record_state()
                self._next_state = now + self._state_every

    def _port(self, node: NodeId) -> SimPort:
        return SimPort(self, node, self._network)

    def _receiver(self, node: NodeId) -> Handler:
        """The handler of messages that arrive at `node`: count, record, hand over."""
        on_message = self.processes[node].on_message
        received = self.meter.received
        subscribed = self._subscribed
        trace = self.trace if self._trace_messages else None

        def receive(message: Any, sender: NodeId, now: Time) -> None:
            if message.kind == "pub":
                flags = subscribed.get(message.topic)
                received(message.body, bool(flags and flags[node]), now)
            if trace is not None:
                trace.append(message_record("receive", now, node, sender, message))
            on_message(message, sender, now)

        return receive

    def awake(self, node: NodeId, at: Time) -> Time:
        """When `node` can do what is planned for `at`: then, or at the end of its pause."""
        for pause in self.pauses:
            if pause.node == node and pause.start <= at < pause.end:
                at = pause.end
        return at

    # -- what the application does ---------------------------------------------------------------

    def establish(self, topic: Topic, members: Sequence[NodeId]) -> None:
        """Begin with `members` subscribed, agreed by all beforehand."""
        mask = 0
        flags = self._flags(topic)
        for node in members:
            mask |= 1 << node
            flags[node] = 1
            self._wanted[node][topic] = False
            self._record("subscribe", node, topic)
            self._record("join", node, topic)
        for node in self.running():
            self.processes[node].establish(topic, mask)

    def subscribe(self, node: NodeId, topic: Topic, lossy: bool = False) -> None:
        """Call ``subscribe(topic)`` at `node`; `lossy`: the application takes gaps."""
        self._wanted[node][topic] = False
        self._let_go[node].pop(topic, None)
        self._record("subscribe", node, topic, "lossy" if lossy else "")
        self._lossy[node].discard(topic)
        if lossy:
            self._lossy[node].add(topic)
            process: Any = self.processes[node]
            process.subscribe(topic, self.now, lossy)
        else:
            self.processes[node].subscribe(topic, self.now)

    def unsubscribe(self, node: NodeId, topic: Topic) -> None:
        """Call ``unsubscribe(topic)`` at `node`: its application wants no more messages."""
        self._wanted[node].pop(topic, None)
        self._let_go[node].pop(topic, None)
        self._record("leave", node, topic)
        self._flags(topic)[node] = 0
        self.processes[node].unsubscribe(topic, self.now)

    def register(self, node: NodeId, topic: Topic) -> None:
        """Announce that the application at `node` will publish without subscribing."""
        self.processes[node].register(topic, self.now)

    def follow(self, node: NodeId, pattern: str) -> None:
        """Subscribe the application at `node` to a pattern; the trace has it as a topic."""
        self._record("subscribe", node, pattern)
        matches = self._patterns[node][pattern] = Pattern(pattern)
        process: Any = self.processes[node]
        process.follow(pattern, matches, self.now)

    def unfollow(self, node: NodeId, pattern: str) -> None:
        """Close a pattern of `node`, and the topics that no other pattern of it matches."""
        self._record("leave", node, pattern)
        process: Any = self.processes[node]
        process.unfollow(pattern)
        closed = self._patterns[node].pop(pattern)
        rest = self._patterns[node].values()
        for topic in list(self._wanted[node]):
            if closed(topic) and not any(other(topic) for other in rest):
                self.unsubscribe(node, topic)

    def wants(self, node: NodeId, topic: Topic) -> bool:
        """Whether `node` is subscribed or about to be, by itself or by a pattern."""
        return topic in self._wanted[node]

    def wanted(self, node: NodeId) -> list[Topic]:
        """The topics that `node` is subscribed to or about to be."""
        return list(self._wanted[node])

    def follows(self, node: NodeId, pattern: str) -> bool:
        """Whether the application at `node` is subscribed to a pattern."""
        return pattern in self._patterns[node]

    def matched(self, node: NodeId, topic: Topic) -> bool:
        """Whether a pattern of the application at `node` matches a topic."""
        return any(matches(topic) for matches in self._patterns[node].values())

    def publish(
        self, node: NodeId, topic: Topic, reply_to: tuple[int, ...] = (), size: int = 1
    ) -> int:
        """Publish a new message at `node`, and return its id.

        A publication that the protocol refuses for now waits here, in order, until `writable`.
        """
        ident = self._new_message(node, topic, reply_to)
        self._hand_over(node, topic, (ident,), size)
        return ident

    def publish_batch(self, node: NodeId, topic: Topic, count: int) -> None:
        """Publish `count` messages at `node` in one call."""
        batch = tuple(self._new_message(node, topic, ()) for _ in range(count))
        self._hand_over(node, topic, batch, count)

    def _new_message(self, node: NodeId, topic: Topic, reply_to: tuple[int, ...]) -> int:
        ident = self.publications
        self.publications += 1
        self.meter.published(ident, self.now)
        if self.trace is not None:
            self.trace.append(
                Record("publish", self.now, node, topic, ident, source=node, reply_to=reply_to)
            )
        return ident

    def _hand_over(self, node: NodeId, topic: Topic, batch: tuple[int, ...], size: int) -> None:
        waiting = self._backlog.get((node, topic))
        if waiting or not self._offer(node, topic, batch, size):
            if waiting is None:
                waiting = self._backlog[node, topic] = deque()
            waiting.append((batch, size))

    def retry(self, node: NodeId, topic: Topic, now: Time) -> None:
        """Offer the backlog of `node` again, as far as the protocol takes it."""
        waiting = self._backlog.get((node, topic))
        while waiting and self._offer(node, topic, *waiting[0]):
            waiting.popleft()

    def _offer(self, node: NodeId, topic: Topic, batch: tuple[int, ...], size: int) -> bool:
        """Hand one publication to the protocol; return whether it was taken.

        A publication for a root leaves at once: it is delegated.
        """
        taken = self.processes[node].publish(topic, batch, size, self.now)
        if taken and self._turns and self._root_of is not None:
            self._next_turn(node)
        return taken

    def take_turns(self, node: NodeId, turns: Turns) -> None:
        """Let the application at `node` publish one message after the other.

        The first turn comes so long from now, and each further one so long after the previous
        publication has left: when its publisher begins to send it, be it down its tree or to a
        root.  So a publication that waits, as in VCube-PS for the ACKs of the one before it, delays
        all later ones of its publisher.
        """
        self._turns[node] = iter(turns)
        self.turns_take = max(self.turns_take, sum(gap for gap, _ in turns))
        self._next_turn(node)

    def _next_turn(self, node: NodeId) -> None:
        turn = next(self._turns.get(node, iter(())), None)
        if turn is not None:
            self.post(self.now + turn[0], self._take_turn, node, turn[1])

    def _take_turn(self, node: NodeId, topic: Topic, now: Time) -> None:
        self.publish(node, topic)

    def is_subscribed(self, node: NodeId, topic: Topic) -> bool:
        """Whether ``subscribe()`` has returned at `node` and ``unsubscribe()`` was not called."""
        flags = self._subscribed.get(topic)
        return bool(flags and flags[node])

    # -- what the ports tell ---------------------------------------------------------------------

    def delivered(self, node: NodeId, publication: Publication) -> None:
        """Record a delivery and tell the application once the current event is over.

        A publisher whose trees start at itself delivers a message as it begins to send it.
        """
        topic, stream, seq = publication.topic, publication.stream, publication.first
        now = self.now
        owner = self._owner(stream)
        start = owner if self._root_of is None else self._root_of(topic)
        for payload in publication.body:
            ident: int = payload  # type: ignore[assignment]  # the simulator's own payloads
            self.meter.delivered(ident, node == start, now)
            if self.trace is not None:
                self.trace.append(Record("deliver", now, node, topic, ident, source=owner, seq=seq))
            seq += 1
            if not isinstance(self.application, Silent):
                self.post(now, self._tell_delivery, node, (topic, ident))
        if self._turns and self._root_of is None and node == owner:
            self._next_turn(node)

    def _owner(self, stream: Stream) -> NodeId:
        """The node that publishes a stream."""
        return stream.source

    def _tell_delivery(self, node: NodeId, what: tuple[Topic, int], now: Time) -> None:
        self.application.on_deliver(self, node, what[0], what[1])

    def joined(self, node: NodeId, topic: Topic) -> None:
        """Record that `subscribe` returned at `node`."""
        if self._let_go[node].pop(topic, False):
            return  # the application knows it already
        self._flags(topic)[node] = 1
        self._record("join", node, topic)
        self.post(self.now, self._tell_joined, node, topic)

    def _tell_joined(self, node: NodeId, topic: Topic, now: Time) -> None:
        self.application.on_joined(self, node, topic)

    def lost(self, kind: Kind, node: NodeId, topic: Topic, spans: Spans) -> None:
        """Record a loss that the protocol reports at `node`: a ``gap`` or a ``discard``."""
        if self.trace is not None:
            count = sum(last - first + 1 for first, last in spans.values())
            self.trace.append(Record(kind, self.now, node, topic, seq=count))

    def viewed(self, node: NodeId, epoch: int, members: int) -> None:
        """Record that `node` installed a view."""
        if self.trace is not None:
            self.trace.append(Record("view", self.now, node, seq=epoch, members=members))

    def forgotten(self, node: NodeId, topic: Topic) -> None:
        """Note that `node` forgot a topic; if a pattern matches it, its subscription goes on."""
        if self._wanted[node].get(topic):
            self._let_go[node][topic] = True

    def discovered(self, node: NodeId, topic: Topic) -> None:
        """Subscribe `node` to a topic that a pattern matches."""
        if topic not in self._wanted[node]:
            self._wanted[node][topic] = True
            self._record("subscribe", node, topic)

    def followed(self, node: NodeId, pattern: Hashable, complete: bool) -> None:
        """Note that a subscription to a pattern returned at `node`."""
        if complete:
            self._record("join", node, str(pattern))

    # -- records ---------------------------------------------------------------------------------

    def record_state(self) -> None:
        """Record what each process keeps."""
        if self.trace is None:
            return
        for node in self.running():
            load = self.processes[node].load()
            self.trace.append(
                Record(
                    "state",
                    self.now,
                    node,
                    held=load.held,
                    retained=load.retained,
                    limit=load.limit,
                )
            )

    def running(self) -> Sequence[NodeId]:
        """The nodes that have a process: here, all of them."""
        return range(len(self.processes))

    def unsent(self) -> int:
        """Publications that still wait for the protocol to take them."""
        return sum(len(batch) for waiting in self._backlog.values() for batch, _ in waiting)

    def _record(self, kind: Kind, node: NodeId, topic: Topic, message: str = "") -> None:
        if self.trace is not None:
            self.trace.append(Record(kind, self.now, node, topic, message=message))

    def _flags(self, topic: Topic) -> bytearray:
        flags = self._subscribed.get(topic)
        if flags is None:
            flags = self._subscribed[topic] = bytearray(len(self.processes))
        return flags


class SimPort:
    """The port of one simulated node."""

    __slots__ = ("_asleep_until", "_counts", "_network", "_node", "_world")

    def __init__(self, world: World, node: NodeId, network: NetworkModel) -> None:
        self._world = world
        self._node = node
        self._network = network
        self._asleep_until: Time | None = None
        self._counts = world.meter.messages

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        world = self._world
        self._counts[message.kind] += len(peers)
        if world._trace_messages:
            self._trace_send(peers, message)
        if world.codec is not None:
            message = world.codec.cross(message, len(peers))
        self._network.relay(self._node, peers, message)

    def control(self, peer: NodeId, message: Message) -> None:
        world = self._world
        self._counts[message.kind] += 1
        if world._trace_messages:
            self._trace_send((peer,), message)
        if world.codec is not None:
            message = world.codec.cross(message)
        self._network.control(self._node, peer, message)

    def deliver(self, publication: Publication) -> bool:
        world = self._world
        world.delivered(self._node, publication)
        if not world.consume_after or not hasattr(world.processes[self._node], "consumed"):
            return True
        world.post(world.now + world.consume_after, self._consumed, publication)
        return False

    def _consumed(self, publication: Publication, _: None, now: Time) -> None:
        process: Any = self._world.processes[self._node]
        last = publication.first + len(publication.body) - 1
        process.consumed(publication.topic, publication.stream, last, now)

    def joined(self, topic: Topic) -> None:
        self._world.joined(self._node, topic)

    def gap(self, topic: Topic, skipped: Spans) -> None:
        self._world.lost("gap", self._node, topic, skipped)

    def discard(self, topic: Topic, dropped: Spans) -> None:
        self._world.lost("discard", self._node, topic, dropped)

    def view(self, epoch: int, members: int) -> None:
        self._world.viewed(self._node, epoch, members)

    def left(self, topic: Topic) -> None:
        """Do nothing: no simulated application waits for the end of a leave."""

    def forgotten(self, topic: Topic) -> None:
        self._world.forgotten(self._node, topic)

    def discovered(self, topic: Topic) -> None:
        self._world.discovered(self._node, topic)

    def followed(self, key: Hashable, complete: bool) -> None:
        self._world.followed(self._node, key, complete)

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        """Do nothing: no simulated application asks for topics."""

    def writable(self, topic: Topic) -> None:
        world = self._world
        if world._backlog.get((self._node, topic)):
            world.post(world.now, world.retry, self._node, topic)

    def wake(self, at: Time) -> None:
        """Plan `on_wake`, unless an earlier one is planned that will ask again."""
        if self._asleep_until is None or at < self._asleep_until:
            self._asleep_until = at
            self._world.post(max(at, self._world.now), self._wake, at)

    def _wake(self, planned: Time, _: None, now: Time) -> None:
        awake = self._world.awake(self._node, now)
        if awake > now:
            self._world.post(awake, self._wake, planned)
        elif planned == self._asleep_until:
            self._asleep_until = None
            self._world.processes[self._node].on_wake(now)

    def _trace_send(self, peers: Sequence[NodeId], message: Message) -> None:
        trace = self._world.trace
        assert trace is not None
        for peer in peers:
            trace.append(message_record("send", self._world.now, self._node, peer, message))


def message_record(kind: Kind, now: Time, node: NodeId, peer: NodeId, message: Any) -> Record:
    """A `send` or `receive` record, with the message's identity where it has one."""
    if message.kind == "pub":
        return Record(
            kind,
            now,
            node,
            message.topic,
            message.body[0],
            source=message.stream.source,
            seq=message.first,
            peer=peer,
            message="pub",
        )
    return Record(kind, now, node, getattr(message, "topic", ""), peer=peer, message=message.kind)
