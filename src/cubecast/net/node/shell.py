"""The shell of a live node: it feeds the protocol with packets and time, and carries out effects.

The shell decides nothing.  It owns the connections, the clock and the parts of the node; each part
knows the shell by a small interface of its own.  One event loop, no threads.

- In: `received` takes the packets of a connection, `_on_timer` the time.
- Out: the methods under "the port" do what the core asks for.
- `node` is what the application sees; `publishing`, `subscribing`, `listings`, `guests` and
  `closing` are the parts that serve it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from cubecast.errors import Closed, CubecastError
from cubecast.net.events import (
    Audience,
    CallbackFailed,
    ConnectionLost,
    CutDenied,
    Discarded,
    Event,
    Gap,
    MemberMute,
    spans_by_source,
)
from cubecast.net.gateway.attached import Guests
from cubecast.net.links.address import advertised, is_loopback, parse_address
from cubecast.net.links.connection import NOBODY, Connection
from cubecast.net.links.descriptors import find_places
from cubecast.net.links.faults import LinkFaults
from cubecast.net.links.mesh import Mesh
from cubecast.net.links.reach import choose_listen, parse_seeds, without_self
from cubecast.net.links.transport import Network, Server, TcpNetwork
from cubecast.net.links.writes import Writes
from cubecast.net.node.closing import Closing
from cubecast.net.node.listings import Listings
from cubecast.net.node.node import Node
from cubecast.net.node.presence import Presence
from cubecast.net.node.recorder import Recorder
from cubecast.net.node.stats import Numbers, Stats
from cubecast.net.node.value_keeper import Retained
from cubecast.net.publishing.outbox import Leftover
from cubecast.net.publishing.publishing import Publishing
from cubecast.net.reading.readers import Readers
from cubecast.net.reading.subscribing import Subscribing
from cubecast.net.security.access import Access, name_of
from cubecast.net.security.audit import Audit
from cubecast.net.security.envelopes import ENVELOPE_BYTES
from cubecast.net.security.keys import Keys, Purpose, salt_of
from cubecast.net.security.tls_network import TlsNetwork
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import (
    ACK,
    CONTROL,
    FRAME,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
)
from cubecast.net.wire.topic_ids import Vocabulary
from cubecast.net.wire.views import encode_detector
from cubecast.protocol.cluster.detector import DetectorMessage
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Clusterwide
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.port import LIFE_BITS, Accusation, Denial, NodeId, Seq, Stream, Time, Topic
from cubecast.trace import Record

if TYPE_CHECKING:
    from cubecast.net.node.metrics import MetricsServer

log = logging.getLogger("cubecast")


def _network(config: NodeConfig) -> Network:
    """The network of a configuration; `ConfigError` if the files of TLS cannot be used."""
    tls = config.tls
    return TcpNetwork() if tls is None else TlsNetwork(tls, "node", config.max_strangers)


class Shell:
    """One live node behind its `Node`: the owner of its connections and the port of its core."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        trace: list[Record] | None = None,
        network: Network | None = None,
        faults: LinkFaults | None = None,
        writes: Writes | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self.network: Network = network or _network(config)
        self.faults = faults or LinkFaults()
        self.keys = Keys(config.secret, config.client_secret)
        self.purpose: Purpose = "member"
        self.name = ""
        self._learned_salt = ""
        self.unread_bytes = config.unread_bytes
        chance = secrets.SystemRandom() if random is None else random
        self._uid = f"{chance.getrandbits(128):032x}"
        self.address = ""
        """The address that others dial, "host:port"; empty before the node listens."""
        self.closed = False
        self._traced = trace is not None
        self._loop = asyncio.get_running_loop()
        self._server: Server | None = None
        self.writes = writes or Writes()
        own = self.network.certificate if isinstance(self.network, TlsNetwork) else None
        self.identity = "" if own is None else own.name
        """The name that this node proves to others; empty: it proves the cluster's secret only."""
        self.audit = Audit(config.audit_log, lambda: f"{self.slot} at {self.address}")
        self.access = Access(self) if config.permissions else None
        """The permissions; None: every node and client may do everything."""
        self.mesh = Mesh(self, self.network, config.max_strangers)
        self.send: Callable[[NodeId, bytes], None] = self.mesh.send
        """Sends a packet to a member; around a broken link if there is one."""
        self.vocabulary = Vocabulary()
        self.keeper = Retained()
        """The retained values that this node keeps."""
        self.numbers = Numbers(self, self._loop.time())
        """The counters behind `stats`."""
        self.recorder = Recorder(self, trace, config.trace_arrivals)
        self.metrics: MetricsServer | None = None
        """Serves the numbers over HTTP, if the configuration says so."""
        self.leftovers: list[Leftover] = []
        """Once the node is closed: the value of `Node.leftovers`."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Time = 0
        self.audience = Audience()
        self.presence: Presence = Presence(self, chance.getrandbits(LIFE_BITS - 1))
        self.readers = Readers(self)
        self.publishing: Publishing = Publishing(self)
        self.subscribing = Subscribing(self, self.readers, self.publishing)
        self.listings = Listings(self, config.join_timeout_s)
        self.guests = Guests(self)
        self.closing = Closing(self)
        self.node = Node(self)
        """What the application sees."""

    # -- starting and stopping -------------------------------------------------------------------

    async def start(self, seed: str | None) -> None:
        """Listen, and join the cluster of `seed`; without one, begin a cluster.

        `seed` may be several addresses with commas between them.  They are asked in turn, until one
        gives this node a place or `join_timeout_s` has passed; after that they are not used.
        """
        seeds = () if seed is None else parse_seeds(seed)
        began = self._loop.time()
        host, port = parse_address(self.config.listen)
        if isinstance(self.network, TcpNetwork | TlsNetwork):  # others have names of their own
            host, port = await choose_listen(self.config, seeds)
            self._mind_descriptors(self.network)
        self._server = await self.network.listen(
            lambda: Connection(self, dialled=False), host, port
        )
        try:
            await self._serve_metrics()
        except BaseException:
            self._server.close()
            raise
        self.address = advertised(self.config.advertise, *self._server.bound)
        self._warn_if_open_to_all(self._server.bound[0])
        try:
            if isinstance(self.network, TcpNetwork | TlsNetwork):
                seeds = await without_self(seeds, self._server.bound, self.address)
        except BaseException:
            self._server.close()
            raise
        self.presence.begin(self._uid, seeds)
        if self.access is not None:
            self.access.watch()
        if not seeds:
            return
        left_s = self.config.join_timeout_s - (self._loop.time() - began)
        try:
            await self.presence.enter(seeds, left_s)
        except BaseException:
            await self.shut_down()
            raise

    async def _serve_metrics(self) -> None:
        if self.config.metrics:
            from cubecast.net.node.metrics import MetricsServer  # few nodes have one

            self.metrics = MetricsServer(self)
            await self.metrics.start(self.config.metrics)

    def _mind_descriptors(self, network: TcpNetwork | TlsNetwork) -> None:
        """Take no more connections than the process has room for, members excepted."""
        found = find_places(self.config.max_strangers, self.config.max_clients)
        self.mesh.max_strangers, self.guests.max_clients = found
        network.exhausted = self.mesh.make_room
        if isinstance(network, TlsNetwork):
            network.max_arrivals = found.strangers

    def _warn_if_open_to_all(self, host: str) -> None:
        """Log a warning if every host that reaches this machine can join."""
        open_to_all = not self.config.secret and isinstance(self.network, TcpNetwork)
        if open_to_all and not is_loopback(host):
            log.warning(
                "%s listens on %s without a secret or TLS: any host that reaches it can join, read "
                "and publish; set a secret, or tls_ca, tls_cert and tls_key", self.address, host,
            )  # fmt: skip

    async def shut_down(self) -> None:
        """End connections, timers and waits at once, whether or not the node has left."""
        self._stop()
        self.guests.close("the node left the cluster")
        await self.mesh.close("the node stopped")
        self._tell_the_end()
        self.recorder.gone()
        await asyncio.sleep(0)

    def kill(self) -> None:
        """End at once without a word to other nodes, like a killed process; for tests."""
        self._stop()
        self.mesh.abort()
        self._tell_the_end()
        self.recorder.crashed()

    def _stop(self) -> None:
        self.closing.stop_accepting()
        self.closed = self.publishing.closed = True
        self.subscribing.close()
        if self.metrics is not None:
            self.metrics.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        if self.access is not None:
            self.access.close()
        self.audit.close()

    def _tell_the_end(self) -> None:
        """End all waits of the application."""
        self.presence.close()
        self.readers.wake_all()
        self.listings.close()
        self.leftovers = self.publishing.close(self.presence.last_core)
        self.audience.close()

    def check_open(self) -> None:
        """`Closed` if the node leaves or has left."""
        if self.closing.begun:
            raise Closed("the node is closed")

    def check_alive(self) -> None:
        """`Closed` if the node has left."""
        if self.closed:
            self.check_open()

    def at_rest(self) -> bool:
        """Whether this node has nothing pending: no message, no operation, no delayed packet."""
        core = self.presence.core
        return core is not None and not (
            core.unstable()
            or core.unacked_parcels()
            or core.pending_waves()
            or self.faults.delays_data
            or self.publishing.unsent()
        )

    # -- the node among others -------------------------------------------------------------------

    @property
    def uid(self) -> str:
        """The name of this life of the node; it is new after an exclusion and return."""
        who = self.presence.who
        return self._uid if who is None else who.uid

    @property
    def slot(self) -> NodeId:
        """The node's place in the cube; -1 before it has joined."""
        return self.presence.slot

    @property
    def salt(self) -> str:
        """The salt of our cluster, for keys; while we join, the one that a peer has proved."""
        cluster = self.presence.cluster
        return salt_of(cluster) if cluster else self._learned_salt

    def learn_salt(self, salt: str) -> None:
        """Keep the salt of a cluster in which a node has proved that it knows our secret."""
        self._learned_salt = salt

    @property
    def core(self) -> CubecastNode:
        """The protocol of this node's present life."""
        self.check_alive()
        if self.presence.core is None:
            raise CubecastError("the node is in no cluster at present")
        return self.presence.core

    @property
    def member(self) -> Member:
        """The protocol of this node in all its lives."""
        self.check_alive()
        return self.presence.member

    @property
    def is_inside(self) -> bool:
        """Whether the node is in a cluster at present."""
        return self.presence.core is not None and not self.closed

    async def inside(self, limit_s: float) -> CubecastNode:
        """The core, once the node is in a cluster; waits for that at most `limit_s`."""
        return await self.presence.inside(limit_s)

    def stats(self) -> Stats:
        """The node's numbers now."""
        self.check_alive()
        return self.numbers.read(self._loop.time())

    def recent_stats(self) -> Stats:
        """The numbers, perhaps a moment old: for clients and scrapers."""
        self.check_alive()
        return self.numbers.recent(self._loop.time())

    # -- what the parts of the node call ---------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Tell an event to the application, and to light clients that listen."""
        self.audience.tell(event)

    def callback_failed(self, topic: Topic, error: BaseException) -> None:
        """Tell that a callback of the application raised."""
        self.tell(CallbackFailed(topic, repr(error)))

    def settle_debts(self) -> None:
        """Let subscriptions of this node put off their debts, because a publish waits."""
        self.readers.settle()

    def membership_called(self, topic: Topic, joins: bool) -> None:
        """Record that the first subscription to a topic is made, or the last one ends."""
        self.recorder.membership("subscribe" if joins else "leave", topic)

    def check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the permissions do not allow this node to do `what`."""
        if self.access is not None:
            self.access.check(self.access.own, what, topic, self.address)

    def permissions_changed(self, withdrawn: set[str]) -> None:
        """Apply new rules: end what they do not allow, and clients whose names are `withdrawn`."""
        access = self.access
        assert access is not None
        own = access.own
        self.publishing.permissions_changed(lambda topic: not access.refusal(own, "publish", topic))
        for subscription in self.readers.subscriptions:
            refusal = access.refusal(own, "subscribe", subscription.topic)
            if refusal is not None:
                subscription.fail(refusal)
        self.guests.check_again(withdrawn)

    def life_ended(self, core: CubecastNode) -> None:
        """Fail or carry over the operations that are pending at an exclusion."""
        self.publishing.life_ended(core)
        self.readers.life_ended()
        self.listings.life_ended()

    # -- time ------------------------------------------------------------------------------------

    def now(self) -> Time:
        """Microseconds of the loop's clock."""
        return int(self._loop.time() * 1e6)

    def wake(self, at: Time) -> None:
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at / 1e6, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        presence = self.presence
        if self.closed or not presence.begun:
            return
        presence.member.on_wake(self.now())
        presence.look_at_links()
        self.publishing.confirm()

    # -- the port --------------------------------------------------------------------------------

    def relay(self, peers: Sequence[NodeId], message: Any) -> None:
        packet = encode_frame(message)
        if len(packet) >= ENVELOPE_BYTES and len(peers) > 1:
            self.writes.share(packet)
        send = self.send
        for peer in peers:
            send(peer, packet)

    def control(self, peer: NodeId, message: Any) -> None:
        if type(message) is Ack:
            self.send(peer, encode_ack(message))
        elif isinstance(message, DetectorMessage):
            self.mesh.send(peer, encode_detector(message))  # it tests the link itself
        elif isinstance(message, Clusterwide):
            self.presence.say(peer, message)
        else:
            if self.access is not None:
                message = self.access.outgoing(message, peer)
            self.send(peer, encode_control(message))

    def reach(self, address: str, message: Any) -> None:
        self.presence.reach(address, message)

    def deliver(self, publication: Any) -> bool:
        if self._traced:
            self.recorder.delivered(publication)
        self.numbers.delivered += len(publication.body)
        if publication.body.headed:
            self.keeper.delivered(publication)
        return self.readers.deliver(publication)

    def joined(self, topic: Topic) -> None:
        self.recorder.membership("join", topic)
        self.readers.joined(topic, self.keeper.take_news(topic))

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        count = sum(last - first + 1 for first, last in skipped.values())
        self.recorder.gap(topic, skipped, self.readers.take_gaps(topic))
        self.readers.skipped(topic, skipped)
        self.readers.pass_over(topic, count)
        self.tell(Gap(topic, spans_by_source(skipped)))

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self.recorder.discard(topic, dropped)
        self.readers.skipped(topic, dropped)
        self.tell(Discarded(topic, spans_by_source(dropped)))

    def view(self, epoch: int, members: int) -> None:
        self.presence.view_changed()
        self.guests.view_changed()

    def excluded(self) -> None:
        self.presence.excluded()

    def mute(self, accusation: Accusation) -> None:
        slot, by, topic, waited, disputed, reason = accusation
        seconds = waited / 1e6
        if reason:
            log.warning("node %d leads, and %s: waited %.1f s", slot, reason, seconds)
            self.tell(MemberMute(slot, topic, seconds, by, disputed, reason))
            return
        if disputed:
            text = "node %d answers us, node %d says it waited %.1f s (topic %r): both are excluded"
        else:
            text = "node %d answers tests but no waves: node %d waited %.1f s (topic %r)"
        log.warning(text, slot, by, seconds, topic)
        self.tell(MemberMute(slot, topic, seconds, by, disputed))

    def denied(self, denial: Denial) -> None:
        topic, source, claimed, published, by = denial
        log.warning(
            "node %d, or one below it, claimed message %d of node %d in %r, which has published "
            "up to %d: ignored",
            by, claimed, source, topic, published,
        )  # fmt: skip
        self.tell(CutDenied(topic, source, claimed, published, by))

    def departed(self) -> None:
        self.presence.departed()

    def left(self, topic: Topic) -> None:
        self.readers.left(topic)

    def forgotten(self, topic: Topic) -> None:
        if self.publishing.forgotten(topic):
            self.readers.forgotten(topic)
            self.guests.topics.forget(topic)
            self.vocabulary.forget(topic)

    def discovered(self, topic: Topic) -> None:
        try:
            self.vocabulary.learn(topic)
        except CubecastError as error:
            log.error("a pattern cannot read %r: %s", topic, error)
        self.readers.discovered(topic)

    def followed(self, key: Hashable, complete: bool) -> None:
        if complete:
            self.recorder.membership("join", str(key))
        self.readers.followed(str(key), complete)

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        self.listings.listed(ticket, topics, complete)

    def writable(self, topic: Topic) -> None:
        self.publishing.writable(topic)

    # -- connections -----------------------------------------------------------------------------

    def turned_away(self, connection: Connection, reason: str) -> None:
        """Write the refusal of a stranger to the audit log as well."""
        self.audit.refused(connection, reason)

    def opened(self, connection: Connection) -> None:
        """Track a new connection; its peer has proved nothing yet."""
        self.mesh.track(connection)

    def connected(self, connection: Connection) -> None:
        """Take a connection whose handshake is complete; its peer need not be a member."""
        self.mesh.connected(connection)

    def disconnected(self, connection: Connection, reason: str) -> None:
        self.guests.drop(connection)
        peer = connection.slot
        place = self.mesh.place_of(connection) if peer == NOBODY else ""
        if self.mesh.drop(connection) and not self.closed:
            log.info("lost the connection to node %d: %s", peer, reason)
            self.tell(ConnectionLost(peer, reason))
            self.presence.probe(peer)
        elif connection.dialled and connection.ready:
            self.presence.hung_up(place, reason)

    def unreachable(self, peer: NodeId) -> None:
        """Test a member that cannot be dialled."""
        self.presence.probe(peer)

    def no_answer(self, address: str, reason: str, passing: bool) -> None:
        """Note that an address outside the view cannot be reached; `passing`: it may be later."""
        self.presence.no_answer(address, reason, passing)

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to the core; an invalid one closes its connection."""
        presence, sender, now = self.presence, connection.slot, self.now()
        core = presence.core
        if sender == NOBODY or core is None:
            presence.from_outside(connection, packets, now)
            return
        if presence.detector is not None:
            presence.detector.heard(sender, now)
        rest, words, access = iter(packets), self.vocabulary, self.access
        name = "" if access is None else name_of(connection)
        for kind, raw in rest:
            if kind == FRAME:
                frame: Frame | None = words.frames.decode(raw, words.topics)
                if frame is not None:
                    if (
                        access is not None
                        and frame.stream.source == sender
                        and access.drops(frame, connection, name)
                    ):
                        continue
                    if self.recorder.arrivals:
                        self.recorder.received(frame, sender)
                    core.on_message(frame, sender, now)
                    if self.readers.hasty and core.holds(frame):
                        self.readers.arrived(frame)
            elif kind == ACK:
                ack = decode_ack(raw, words.topics)
                if ack is not None:
                    core.on_message(ack, sender, now)
            elif kind == CONTROL:
                message = decode_control(raw)
                if access is not None:
                    message = access.control(message, sender, connection, name)
                core.on_message(message, sender, now)
            else:
                presence.from_member(kind, raw, connection, now)
                if connection.slot != sender or presence.core is not core:  # the view changed
                    if not connection.closing:
                        self.received(connection, list(rest))
                    return

    def take(self, kind: int, raw: bytes, sender: NodeId, now: Time) -> None:
        """Hand one message of a member to the core: one that came in parts or was forwarded."""
        message = self.vocabulary.decode(kind, raw)
        if message is not None and self.access is not None:
            message = self.access.indirect(message, sender)
        if message is not None:
            self.core.on_message(message, sender, now)


def shell_of(node: Node) -> Shell:
    """The shell behind a node: for tests, benchmarks and faults, not for applications."""
    return node._shell
