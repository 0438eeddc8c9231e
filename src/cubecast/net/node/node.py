"""A live node: the production protocol, its connections, and what the application calls.

The runtime decides nothing: it feeds the protocol with packets and time, and carries out what that
asks of its port.  One event loop, no threads.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from cubecast import tracing
from cubecast.codecs import Codec, check_codec
from cubecast.errors import Closed, CubecastError, NotSent
from cubecast.net.checks import check_order, check_subscription, check_total
from cubecast.net.events import (
    Audience,
    CallbackFailed,
    ConnectionLost,
    CutDenied,
    Discarded,
    Event,
    Events,
    Gap,
    MemberMute,
    PublisherBlocked,
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
from cubecast.net.node.presence import Presence
from cubecast.net.node.recorder import Recorder
from cubecast.net.node.retained import Retained, mark
from cubecast.net.node.stats import Numbers, Stats
from cubecast.net.publishing.outbox import Leftover, Outbox
from cubecast.net.publishing.receipt import Receipt, ReceiptBook
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.readers import Readers
from cubecast.net.reading.slow import SlowNews
from cubecast.net.reading.subscription import Order, Policy, Subscription
from cubecast.net.requests.requests import Asks, Requests
from cubecast.net.security.access import Access, name_of
from cubecast.net.security.audit import Audit
from cubecast.net.security.keys import Keys, Purpose, salt_of
from cubecast.net.security.tls_network import TlsNetwork
from cubecast.net.settings.config import NodeConfig
from cubecast.net.topics import Payload, check_topic, encode_payload, reply_topic, too_large
from cubecast.net.usage import check_timeout
from cubecast.net.wire.clients import Position
from cubecast.net.wire.headers import Headed, Headers, check_headers, pack
from cubecast.net.wire.packets import (
    ACK,
    CONTROL,
    FRAME,
    MAX_PAYLOAD,
    MESSAGE_OVERHEAD,
    Outgoing,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    frame_cost,
    frame_overhead,
)
from cubecast.net.wire.topic_ids import Vocabulary
from cubecast.net.wire.views import encode_detector
from cubecast.protocol.cluster.detector import DetectorMessage
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Clusterwide
from cubecast.protocol.explain import Explanation
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.port import LIFE_BITS, Accusation, Denial, NodeId, Seq, Stream, Time, Topic
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.topology import members_of
from cubecast.trace import Record

if TYPE_CHECKING:
    from cubecast.net.node.metrics import MetricsServer
    from cubecast.ordering.live import Ordered

log = logging.getLogger("cubecast")
T = TypeVar("T")


def _network(config: NodeConfig) -> Network:
    """The network of a configuration; `ConfigError` if the files of TLS cannot be used."""
    tls = config.tls
    return TcpNetwork() if tls is None else TlsNetwork(tls, "node", config.max_strangers)


class Node(Asks):
    """A member of a cluster; make one with `cubecast.join` or `cubecast.start`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        trace: list[Record] | None = None,
        network: Network | None = None,
        faults: LinkFaults | None = None,
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
        """What others dial, as "host:port"; empty before the node listens."""
        self.closed = False
        self.trace = trace
        self._loop = asyncio.get_running_loop()
        self._server: Server | None = None
        self.writes = Writes()
        own = self.network.certificate if isinstance(self.network, TlsNetwork) else None
        self.identity = "" if own is None else own.name
        """The name that this node proves to others; empty: it has the cluster's secret only."""
        self.audit = Audit(config.audit_log, lambda: f"{self.slot} at {self.address}")
        self.access = Access(self) if config.permissions else None
        """Who may do what; None: everyone may do everything."""
        self.mesh = Mesh(self, self.network, config.max_strangers)
        self.send: Callable[[NodeId, bytes], None] = self.mesh.send
        """How a packet gets to a member; around a broken link if there is one."""
        self.vocabulary = Vocabulary()
        self._outboxes: dict[Topic, Outbox] = {}
        self._waiting: set[Topic] = set()
        self._revoked: set[Topic] = set()  # with an outbox, and no longer allowed
        self._traced = tracing.is_used()
        self._careful = self._traced  # every publication is looked at closely
        self.leftovers: list[Leftover] = []
        """Once the node is closed: accepted publications that not everyone is known to have."""
        self.keeper = Retained()
        """The retained values that this node keeps."""
        self._readers = Readers(self)
        self._listings = Listings(self, config.join_timeout_s)
        self._receipts = ReceiptBook()
        self._audience = Audience()
        self._slow = SlowNews(self.tell)
        self.numbers = Numbers(self, self._loop.time())
        """What is counted, for `stats`."""
        self.recorder = Recorder(self, trace, config.trace_arrivals)
        self.metrics: MetricsServer | None = None
        """Serves the numbers by HTTP, if the configuration says so."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Time = 0
        self.guests = Guests(self)
        self._presence = Presence(self, chance.getrandbits(LIFE_BITS - 1))
        self.requests = Requests(self, reply_topic(self.identity, self._uid), definite=True)
        self._closing = Closing(self, self.guests, self._readers, self._presence, self._outboxes)

    # -- starting and stopping -------------------------------------------------------------------

    async def start(self, seed: str | None) -> None:
        """Listen, and join the cluster of `seed`; without one, begin a cluster.

        `seed` may be several addresses with commas between them.  They are asked in turn, until one
        gives this node a place or `join_timeout_s` has passed, and are of no use after that.
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
        self._presence.begin(self._uid, seeds)
        if self.access is not None:
            self.access.watch()
        if not seeds:
            return
        left_s = self.config.join_timeout_s - (self._loop.time() - began)
        try:
            await self._presence.enter(seeds, left_s)
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
        """Say so if whoever reaches this machine can be a member."""
        open_to_all = not self.config.secret and isinstance(self.network, TcpNetwork)
        if open_to_all and not is_loopback(host):
            log.warning(
                "%s listens on %s without a secret or TLS: whoever reaches it can join, read and "
                "publish; set a secret, or tls_ca, tls_cert and tls_key", self.address, host,
            )  # fmt: skip

    async def close(self) -> None:
        """Leave gracefully: nothing published is lost, and the others hear of it.

        Cancelling it does not stop the leaving; calling it again waits for the same end.  If
        publications are left after `leave_timeout_s` the node is closed all the same, and it
        raises `NotSent` (some were accepted and never sent) or `Unknown` (all were sent, but some
        are not known to be with everyone); `leftovers` has the counts of each topic.
        """
        await self._closing.close()

    @property
    def closing(self) -> bool:
        """Whether the node leaves or has left; it begins nothing any more."""
        return self._closing.begun

    def check_open(self) -> None:
        """`Closed` if the node leaves or has left."""
        if self.closing:
            raise Closed("the node is closed")

    def check_alive(self) -> None:
        """`Closed` if the node has left."""
        if self.closed:
            self.check_open()

    async def shut_down(self) -> None:
        """End everything at once, whether or not we have left."""
        self._stop()
        self.guests.close("the node left the cluster")
        await self.mesh.close("the node stopped")
        self._tell_the_end()
        self.recorder.gone()
        await asyncio.sleep(0)

    def kill(self) -> None:
        """End at once and say nothing to anyone, as a process that is killed does; for tests."""
        self._stop()
        self.mesh.abort()
        self._tell_the_end()
        self.recorder.crashed()

    def _stop(self) -> None:
        self._closing.stop_accepting()
        self.closed = True
        self._slow.close()
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
        """Whoever waits for anything here waits in vain."""
        self._presence.close()
        self._readers.wake_all()
        self._listings.close()
        core = self._presence.last_core
        self._receipts.close(core)
        left = [box.close(core) for box in self._outboxes.values()]
        self.leftovers = [leftover for leftover in left if leftover is not None]
        self._audience.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.members)} members"
        return f"<Node {self.slot} at {self.address}, {state}>"

    @property
    def uid(self) -> str:
        """Who we are; another one after the node was excluded and came back."""
        who = self._presence.who
        return self._uid if who is None else who.uid

    @property
    def cluster(self) -> str:
        """The name of the cluster, made at random when it began; empty before we have joined."""
        return self._presence.cluster

    @property
    def salt(self) -> str:
        """That of our cluster, for keys; while we join, that of the one we were let into."""
        cluster = self.cluster
        return salt_of(cluster) if cluster else self._learned_salt

    def learn_salt(self, salt: str) -> None:
        """A node has proved that it knows our secret, in a cluster of this salt."""
        self._learned_salt = salt

    @property
    def slot(self) -> NodeId:
        """The node's place in the cube; -1 before it has joined.

        It may be another one after the node was excluded and came back.
        """
        return self._presence.slot

    @property
    def core(self) -> CubecastNode:
        """The protocol of this node's present life."""
        self.check_alive()
        if self._presence.core is None:
            raise CubecastError("the node is in no cluster at present")
        return self._presence.core

    @property
    def member(self) -> Member:
        """The protocol of this node in all its lives."""
        self.check_alive()
        return self._presence.member

    async def inside(self, limit_s: float) -> CubecastNode:
        """The core, once the node is in a cluster; waits for that at most `limit_s`."""
        return await self._presence.inside(limit_s)

    @property
    def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return {slot: who.address for slot, who in sorted(self._presence.members.items())}

    @property
    def epoch(self) -> int:
        """The number of the view of the cluster that this node is in; -1: none."""
        view = self._presence.view
        return -1 if view is None else view.epoch

    @property
    def suspects(self) -> list[NodeId]:
        """The members that this node takes for dead, until all have agreed on it."""
        return list(members_of(self._presence.suspects))

    # -- what the application calls ---------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        order: Order = "causal",
        codec: None = None,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        order: Order = "causal",
        codec: Codec[T],
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self,
        topic: Topic | Sequence[Topic],
        *,
        order: Literal["total"],
        managers: Sequence[str],
    ) -> Ordered: ...

    def subscribe(
        self,
        topic: Topic | Sequence[Topic],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        order: Order | Literal["total"] = "causal",
        managers: Sequence[str] | None = None,
        codec: Codec[Any] | None = None,
    ) -> Subscription[Any] | Ordered:
        """Subscribe with ``async with node.subscribe(topic) as messages``.

        `topic` may be a pattern with the wildcards ``+`` and ``#`` of MQTT.  `queue_bytes` is what
        may be unread (`NodeConfig.queue_bytes` if None), and `policy` says what happens beyond:

        * ``"block"``: nothing is lost; publishers wait, and go on at the pace of this reader.
        * ``"drop-oldest"``: the oldest unread messages are dropped and counted in `dropped`.
        * ``"drop-newest"``: what comes is dropped and counted in `dropped`.
        * ``"disconnect"``: the subscription ends; after what is queued, reading raises `Overflow`.

        The last three never hold up a publisher, and tell a `SlowSubscriber` event.

        With a `codec` (`cubecast.codecs`), `Message.value` is what it makes of the payload.

        `order="none"` delivers messages as they arrive, without waiting for their causes; it needs
        one of the last three policies.

        `order="total"` reads one topic or a list of them, in an order that is the same at every
        such subscription: see `cubecast.ordered`, which says what `managers` are.  Events are
        published through it, or another of its kind, because they need stamps.
        """
        if order == "total":
            from cubecast.ordering.library import total  # it is built on nodes

            check_total(policy, queue_bytes, managers, codec)
            return total(self, topic, managers or ())
        topic = cast(Topic, topic)  # it is checked
        limit = self.config.queue_bytes if queue_bytes is None else queue_bytes
        pattern = check_subscription(topic, policy, limit)
        check_order(order, policy, managers)
        if codec is not None:
            check_codec(codec)
        self._check_may("subscribe", topic)
        return Subscription(self, topic, policy, limit, pattern, order, codec)

    async def topics(self) -> dict[Topic, list[NodeId]]:
        """Ask the cluster for its topics, those that any node has published or subscribed to
        since it started, with the slots of their subscribers."""
        return await self._listings.ask()

    @overload
    def on(
        self,
        topic: Topic,
        callback: Callback[bytes],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: None = None,
    ) -> Listener: ...

    @overload
    def on(
        self,
        topic: Topic,
        callback: Callback[T],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[T],
    ) -> Listener: ...

    def on(
        self,
        topic: Topic,
        callback: Callback[Any],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[Any] | None = None,
    ) -> Listener:
        """Have `callback` called for each message, with ``async with node.on(topic, callback)``.

        It gets the `Message` (topic, payload, source, seq, published_at) and may be a coroutine
        function.  `topic` may be a pattern; the options are those of `subscribe`.  What it returns,
        bytes or text, answers a message that is a request (`request`); None does not.
        """
        codec = cast(Codec[Any], codec)  # or None, which makes no difference here
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes, codec=codec)
        return Listener(self, subscription, callback, self.config.leave_timeout_s)

    @overload
    async def publish(
        self,
        topic: Topic,
        payload: Payload,
        *,
        headers: Headers | None = None,
        receipt: Literal[False] = False,
        timeout: float | None = None,
        retain: bool = False,
    ) -> None: ...

    @overload
    async def publish(
        self,
        topic: Topic,
        payload: Payload,
        *,
        headers: Headers | None = None,
        receipt: Literal[True],
        timeout: float | None = None,
        retain: bool = False,
    ) -> Receipt: ...

    @overload
    async def publish(
        self,
        topic: Topic,
        payload: Payload,
        *,
        headers: Headers | None = None,
        receipt: bool,
        timeout: float | None = None,
        retain: bool = False,
    ) -> Receipt | None: ...

    async def publish(
        self,
        topic: Topic,
        payload: Payload,
        *,
        headers: Headers | None = None,
        receipt: bool = False,
        timeout: float | None = None,
        retain: bool = False,
    ) -> Receipt | None:
        """Publish one message; it waits for credit if subscribers are slow.

        `payload` is bytes, or what else holds bytes, or text, which is sent as UTF-8.
        `headers` are a few short texts by name that travel with it (`Message.headers`).
        With `retain`, whoever subscribes later is handed the newest such message of the topic first
        (`Message.retained`); one with an empty payload removes it.

        A publish that raises or is cancelled was not sent and will not be; `NotSent` after
        `timeout` seconds in which no credit came back at all (`NodeConfig.publish_timeout_s` if
        None).  One that returns is sent unless the node closes first; closing tells, and a
        receipt, which also tells when everyone has taken the message in.
        """
        if retain:
            payload, headers = mark(topic, payload, headers), None
        if headers is not None or self._careful or type(payload) is not bytes:
            payload = self._prepared(topic, payload, headers)
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, too_large(len(payload)))
        try:
            box = self._outboxes.get(topic)
        except TypeError:  # not hashable, so surely no text: let the check say so
            box = None
        if box is None:
            check_timeout("timeout", timeout)
            box = self._new_outbox(topic)
        if box.shut or box.bytes >= box.room or len(box.payloads) >= box.frame_messages:
            await box.make_room(timeout)
        # Nothing below waits: from here on the message is accepted.
        box.payloads.append(payload)
        box.bytes += len(payload) + MESSAGE_OVERHEAD
        if not box.planned:
            box.plan()
        if not receipt:
            return None
        core = self._presence.core  # None: the next life counts from 0
        sent = 0 if core is None else core.next_seq(topic)
        return self._receipts.add(topic, sent + len(box.payloads) - 1)

    def _prepared(self, topic: Topic, payload: Payload, headers: Headers | None) -> bytes:
        """What is to be sent, of a publication that is not just bytes to a topic.

        `NotAllowed` if the permissions do not let this node publish there any more.
        """
        if self._revoked and isinstance(topic, str) and topic in self._revoked:
            self._check_may("publish", topic)
        if self._traced and type(payload) is not Headed:
            headers = tracing.added(headers)
        if headers:
            check_headers(headers)
            payload = pack(headers, encode_payload(payload))
        if type(payload) is Headed:  # or a light client's, whose headers were checked on arrival
            if len(payload) <= MAX_PAYLOAD:
                self._headed_outbox(topic)
            return payload
        return encode_payload(payload)

    def _headed_outbox(self, topic: Topic) -> None:
        """Have each frame of a topic searched for headers from now on."""
        box = self._outboxes.get(topic) if isinstance(topic, str) else None
        (box or self._new_outbox(topic)).headed = True

    def events(self) -> Events:
        """Members joining and leaving, lost connections, slow subscribers: an async iterator."""
        return self._audience.listen()

    def explain(self, topic: Topic) -> Explanation:
        """What this node knows of a topic, and what waits for what."""
        check_topic(topic)
        box = self._outboxes.get(topic)
        self.check_alive()
        core = self._presence.core
        known: Explanation = {"standing": "apart", "informed": False}
        return {
            **(known if core is None else core.explain(topic, self.now())),
            "blocked": box is not None and box.blocked,
            "accepted": 0 if box is None else len(box.payloads),
        }

    def stats(self) -> Stats:
        """This node's numbers now: rates, queues, what waits, who lags, the view."""
        self.check_alive()
        return self.numbers.read(self._loop.time())

    def recent_stats(self) -> Stats:
        """The same, perhaps a moment old: what is handed out over the network."""
        self.check_alive()
        return self.numbers.recent(self._loop.time())

    @property
    def is_inside(self) -> bool:
        """Whether the node is in a cluster at present."""
        return self._presence.core is not None and not self.closed

    @property
    def memberships(self) -> Mapping[Topic, Membership]:
        """Where the node stands with each topic it has to do with; empty while it is in no view."""
        core = self._presence.core
        return {} if core is None else core.memberships

    @property
    def subscriptions(self) -> list[Subscription]:
        """Those of the application and of light clients."""
        return self._readers.subscriptions

    def outbox_load(self, topic: Topic) -> tuple[int, bool]:
        """Messages of a topic that are accepted and not sent, and whether `publish` has to wait."""
        box = self._outboxes.get(topic)
        return (0, False) if box is None else (len(box.payloads), box.blocked)

    def at_rest(self) -> bool:
        """Whether nothing of ours is on its way: no message, no operation, no delayed packet."""
        core = self._presence.core
        return core is not None and not (
            core.unstable()
            or core.unacked_parcels()
            or core.pending_waves()
            or self.faults.delays_data
            or any(box.payloads for box in self._outboxes.values())
        )

    async def subscribers(self, topic: Topic) -> list[NodeId]:
        """The slots subscribed to a topic; asking leaves no trace of it anywhere."""
        check_topic(topic)
        return await self._listings.subscribers(topic)

    def out_of_credit(self, topic: Topic) -> bool:
        """Whether a `publish` would have to wait."""
        box = self._outboxes.get(topic)
        return box is not None and box.blocked

    def tell(self, event: Event) -> None:
        """Something happened."""
        self._audience.tell(event)

    def _new_outbox(self, topic: Topic) -> Outbox:
        check_topic(topic)
        if not self._closing.accepts:
            raise Closed("the node is closed")
        self._check_may("publish", topic)
        self.vocabulary.learn(topic)
        box = self._outboxes[topic] = Outbox(topic, self)
        return box

    def _check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the permissions do not let this node do that."""
        if self.access is not None:
            self.access.check(self.access.own, what, topic, self.address)

    def permissions_changed(self, withdrawn: set[str]) -> None:
        """There are new rules: what they do not allow ends; so do clients with these names."""
        access = self.access
        assert access is not None
        own = access.own
        self._revoked = {box for box in self._outboxes if access.refusal(own, "publish", box)}
        self._careful = self._traced or bool(self._revoked)
        for subscription in self._readers.subscriptions:
            refusal = access.refusal(own, "subscribe", subscription.topic)
            if refusal is not None:
                subscription.fail(refusal)
        self.guests.check_again(withdrawn)

    def publish_frame(self, topic: Topic, body: Outgoing, size: int) -> bool:
        """Hand a frame to the core; False if there is no credit for it, or no core."""
        core, member = self._presence.core, self.member
        if core is None:
            return member.publish(topic, body, size, self.now())  # it says when there is one
        if body.headed:
            self.keeper.stamp(body)
        first = core.next_seq(topic)
        size = frame_cost(size, core.dependencies(topic))
        position = self.recorder.position()
        self.writes.begin()
        try:
            if not core.publish(topic, body, size, self.now()):
                return False
            # Before the burst ends: what others may have seen is in the trace already.
            stream = core.stream_of(topic)
            self.recorder.published(topic, stream, first, len(body), position)
            self.numbers.published += len(body)
            if body.headed:
                self.keeper.published(topic, stream, first, body)
        finally:
            self.writes.end()
        return True

    def why_blocked(self) -> str:
        """Why a publication is not taken."""
        return "no credit" if self._presence.core is not None else "in no cluster"

    def credit(self, topic: Topic, wanted: int) -> int:
        """The bytes of messages that may be published to a topic now.

        If these are fewer than `wanted` the outbox is told when there may be more.
        """
        core = self._presence.core
        if core is None:
            return self.config.protocol.window  # `publish` tells of a core
        least = frame_overhead(core.dependencies(topic))
        credit = core.credit(topic, max(wanted, least))
        return credit if credit >= least else 0

    def has_to_wait(self, topic: Topic, waits: bool) -> None:
        """A topic has no credit: who waits for us to read may go on, or nobody would."""
        if not waits:
            self._waiting.discard(topic)
        elif topic not in self._waiting:
            self._waiting.add(topic)
            self._loop.call_soon(self._readers.settle)  # not from inside the core

    def waits_to_publish(self) -> bool:
        """Whether a publication to some topic has to wait for credit."""
        return bool(self._waiting)

    def holds_readers(self) -> bool:
        """Whether a task that reads waits for credit, so that nobody reads meanwhile."""
        return any(self._outboxes[topic].holds_readers for topic in self._waiting)

    def holds_reader_of(self, subscription: Subscription[Any], topic: Topic) -> bool:
        """Whether a task that reads a subscription waits for credit to publish to a topic."""
        return topic in self._waiting and self._outboxes[topic].holds_reader_of(subscription)

    async def attach(self, subscription: Subscription[Any]) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed."""
        self.check_open()
        self._check_may("subscribe", subscription.topic)  # the rules may be others by now
        if subscription.pattern is None:
            self.vocabulary.learn(subscription.topic)
        await self._readers.attach(subscription)

    async def detach(self, subscription: Subscription[Any]) -> None:
        """Stop delivering to a subscription."""
        self._readers.detach(subscription)
        self._slow.ended(subscription)

    def consumed(
        self, subscription: Subscription[Any], topic: Topic, stream: Stream, seq: Seq
    ) -> None:
        """A subscription has read what it owed."""
        self._readers.consumed(subscription, topic, stream, seq)

    def membership_called(self, topic: Topic, joins: bool) -> None:
        """The application subscribes for the first time, or no longer."""
        self.recorder.membership("subscribe" if joins else "leave", topic)

    def slow_subscriber(self, subscription: Subscription[Any]) -> None:
        """A subscription's policy had to act."""
        self.numbers.dropped += subscription.dropped - subscription.dropped_before
        subscription.dropped_before = subscription.dropped
        self._slow.acted(subscription)

    def publisher_blocked(self, topic: Topic, seconds: float) -> None:
        """A publisher waits for credit, and not just for a moment."""
        core = self._presence.core
        self.tell(PublisherBlocked(topic, seconds, {} if core is None else core.behind(topic)))

    def callback_failed(self, topic: Topic, error: BaseException) -> None:
        """A callback of the application raised."""
        self.tell(CallbackFailed(topic, repr(error)))

    # -- the port ---------------------------------------------------------------------------------

    def now(self) -> Time:
        """Microseconds of the loop's clock."""
        return int(self._loop.time() * 1e6)

    def relay(self, peers: Sequence[NodeId], message: Any) -> None:
        packet = encode_frame(message)
        send = self.send
        for peer in peers:
            send(peer, packet)

    def control(self, peer: NodeId, message: Any) -> None:
        if type(message) is Ack:
            self.send(peer, encode_ack(message))
        elif isinstance(message, DetectorMessage):
            self.mesh.send(peer, encode_detector(message))  # what is tested is the link itself
        elif isinstance(message, Clusterwide):
            self._presence.say(peer, message)
        else:
            if self.access is not None:
                message = self.access.outgoing(message, peer)
            self.send(peer, encode_control(message))

    def reach(self, address: str, message: Any) -> None:
        self._presence.reach(address, message)

    def deliver(self, publication: Any) -> bool:
        if self.trace is not None:
            self.recorder.delivered(publication)
        self.numbers.delivered += len(publication.body)
        if publication.body.headed:
            self.keeper.delivered(publication)
        return self._readers.deliver(publication)

    def joined(self, topic: Topic) -> None:
        self.recorder.membership("join", topic)
        self._readers.joined(topic, self.keeper.take_news(topic))

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        count = sum(last - first + 1 for first, last in skipped.values())
        self.recorder.gap(topic, skipped, self._readers.take_gaps(topic))
        self._readers.skipped(topic, skipped)
        self._readers.missed(topic, count)
        self.tell(Gap(topic, spans_by_source(skipped)))

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self.recorder.discard(topic, dropped)
        self._readers.skipped(topic, dropped)
        self.tell(Discarded(topic, spans_by_source(dropped)))

    def view(self, epoch: int, members: int) -> None:
        self._presence.view_changed()

    def excluded(self) -> None:
        self._presence.excluded()

    def mute(self, accusation: Accusation) -> None:
        slot, by, topic, waited, disputed = accusation
        seconds = waited / 1e6
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
        self._presence.departed()

    def life_ended(self, core: CubecastNode) -> None:
        """What was under way in a life that is over is not known, or goes on in the next."""
        self._receipts.life_ended(core)
        self._readers.life_ended()
        self._listings.life_ended()

    def left(self, topic: Topic) -> None:
        self._readers.left(topic)

    def forgotten(self, topic: Topic) -> None:
        box = self._outboxes.get(topic)
        if box is not None and box.is_idle:
            del self._outboxes[topic]
        if topic not in self._outboxes:
            self._readers.forgotten(topic)
            self.guests.forgotten(topic)
            self.vocabulary.forget(topic)

    def discovered(self, topic: Topic) -> None:
        try:
            self.vocabulary.learn(topic)
        except CubecastError as error:
            log.error("a pattern cannot read %r: %s", topic, error)
        self._readers.discovered(topic)

    def followed(self, key: Hashable, complete: bool) -> None:
        if complete:
            self.recorder.membership("join", str(key))
        self._readers.followed(str(key), complete)

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        self._listings.listed(ticket, topics, complete)

    def writable(self, topic: Topic) -> None:
        box = self._outboxes.get(topic)
        if box is not None:
            box.retry()

    def wake(self, at: Time) -> None:
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at / 1e6, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        presence = self._presence
        if self.closed or not presence.begun:
            return
        presence.member.on_wake(self.now())
        presence.look_at_links()
        if self._receipts and presence.core is not None:
            self._receipts.check(presence.core)

    # -- connections ------------------------------------------------------------------------------

    def turned_away(self, connection: Connection, reason: str) -> None:
        """A stranger was refused: that is for the audit log as well."""
        self.audit.refused(connection, reason)

    def opened(self, connection: Connection) -> None:
        """A connection exists; it proves nothing yet."""
        self.mesh.track(connection)

    def connected(self, connection: Connection) -> None:
        """A handshake is complete, with a member or with somebody else."""
        self.mesh.connected(connection)

    def disconnected(self, connection: Connection, reason: str) -> None:
        self.guests.drop(connection)
        peer = connection.slot
        place = self.mesh.place_of(connection) if peer == NOBODY else ""
        if self.mesh.drop(connection) and not self.closed:
            log.info("lost the connection to node %d: %s", peer, reason)
            self.tell(ConnectionLost(peer, reason))
            self._presence.probe(peer)
        elif connection.dialled and connection.ready:
            self._presence.hung_up(place, reason)

    def positions(self, subscription: Subscription) -> list[Position]:
        """Where a subscription begins that nobody has read yet: the next message of each stream."""
        core, unread = self._presence.core, subscription.first_unread()
        found: list[Position] = []
        for topic in sorted(self._readers.topics_of(subscription)):
            if core is None or not core.knows(topic):
                continue
            vector = core.membership_of(topic).core.vector()
            for stream in sorted(vector):
                first = unread.get((topic, stream), vector[stream] + 1)
                found.append((topic, stream.source, stream.incarnation, first))
        return found

    def undelivered(self, positions: list[Position]) -> list[Position]:
        """Those of them before which something is still to be delivered here."""
        core = self._presence.core
        if core is None:
            return positions
        vectors: dict[Topic, Mapping[Stream, Seq]] = {}
        left: list[Position] = []
        for position in positions:
            topic, source, incarnation, first = position
            stream = Stream(source, incarnation)
            if not core.takes(topic) or not core.is_live(stream):
                continue
            if topic not in vectors:
                vectors[topic] = core.membership_of(topic).core.vector()
            if vectors[topic].get(stream, -1) < first - 1:
                left.append(position)
        return left

    def unreachable(self, peer: NodeId) -> None:
        """A member cannot be dialled."""
        self._presence.probe(peer)

    def no_answer(self, address: str, reason: str, passing: bool) -> None:
        """An address outside the view cannot be reached; `passing`: that may change."""
        self._presence.no_answer(address, reason, passing)

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to the core; garbage closes the connection it came by."""
        presence, sender, now = self._presence, connection.slot, self.now()
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
                    if self._readers.hasty and core.holds(frame):
                        self._readers.arrived(frame)
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
        """Hand one message of a member to the core, however it came."""
        message = self.vocabulary.decode(kind, raw)
        if message is not None and self.access is not None:
            message = self.access.indirect(message, sender)
        if message is not None:
            self.core.on_message(message, sender, now)
