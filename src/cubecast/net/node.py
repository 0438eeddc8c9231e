"""A live node: the production core, its connections, and what the application calls.

The runtime decides nothing: it feeds the core with packets and time, and carries out what the
core asks of its port.  One event loop, no threads.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Hashable, Mapping, Sequence
from random import Random
from typing import Any

from cubecast.errors import Closed, CubecastError, JoinError, NotSent
from cubecast.net.address import advertised, parse_address
from cubecast.net.callbacks import Callback, Listener
from cubecast.net.checks import check_subscription
from cubecast.net.closing import Closing
from cubecast.net.cluster import Cluster
from cubecast.net.config import NodeConfig
from cubecast.net.connection import Connection
from cubecast.net.events import (
    CallbackFailed,
    ConnectionLost,
    Event,
    Events,
    Gap,
    MemberJoined,
    MemberLeft,
    PublisherBlocked,
    SlowSubscriber,
    spans_by_source,
)
from cubecast.net.faults import LinkFaults
from cubecast.net.guests import Guests
from cubecast.net.hello import (
    NOBODY,
    Greeting,
    Member,
    UpdateAck,
    Welcome,
    decode_greeting,
    encode_greeting,
)
from cubecast.net.joining import Joining
from cubecast.net.listings import Listings
from cubecast.net.mesh import Mesh
from cubecast.net.outbox import Outbox
from cubecast.net.readers import Readers
from cubecast.net.receipt import Receipt, ReceiptBook
from cubecast.net.reception import Reception
from cubecast.net.recorder import Recorder
from cubecast.net.subscription import Policy, Subscription
from cubecast.net.topics import check_topic, encode_payload
from cubecast.net.transport import Network, Server, TcpNetwork
from cubecast.net.wire import (
    ACK,
    CLIENT,
    CONTROL,
    FRAME,
    HELLO,
    MAX_PAYLOAD,
    MESSAGE_OVERHEAD,
    FrameDecoder,
    Outgoing,
    WireError,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    frame_overhead,
    topic_id,
)
from cubecast.net.writes import Writes
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic
from cubecast.trace import Record

log = logging.getLogger("cubecast")


class Node:
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
        self.network: Network = network or TcpNetwork()
        self.faults = faults or LinkFaults()
        self.secret = config.secret
        self.unread_bytes = config.unread_bytes
        chance = secrets.SystemRandom() if random is None else random
        self.uid = f"{chance.getrandbits(128):032x}"
        self.slot: NodeId = NOBODY
        self.address = ""
        self.closed = False
        self.trace = trace
        self._loop = asyncio.get_running_loop()
        self._incarnation = chance.getrandbits(63)
        self._core: CubecastNode | None = None
        self._cluster = Cluster(self, config.join_timeout_s)
        self._server: Server | None = None
        self.writes = Writes()
        self._mesh = Mesh(
            self, self.network, self._address_of, self.unreachable, config.max_strangers
        )
        self._decoder = FrameDecoder()
        self._topics: dict[int, Topic] = {}
        self._outboxes: dict[Topic, Outbox] = {}
        self._readers = Readers(self)
        self._listings = Listings(self, config.join_timeout_s)
        self._receipts = ReceiptBook()
        self._listeners: list[Events] = []
        self._recorder = Recorder(self, trace, config.trace_arrivals)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Time = 0
        self._joining = Joining(self)
        self._guests = Guests(self)
        self._reception = Reception(self, self._cluster, self._mesh, self._guests)
        self._closing = Closing(self, self._guests, self._readers, self._reception, self._outboxes)

    # -- starting and stopping -------------------------------------------------------------------

    async def start(self, seed: str | None) -> None:
        """Listen, and join the cluster of `seed`; without one, begin a cluster."""
        host, port = parse_address(self.config.listen)
        self._server = await self.network.listen(
            lambda: Connection(self, dialled=False), host, port
        )
        self.address = advertised(self.config.advertise, *self._server.bound)
        if seed is None:
            self._begin(Welcome(0, 0, {0: Member(self.uid, self.address)}))
            return
        try:
            await asyncio.wait_for(self._join(seed), self.config.join_timeout_s)
        except TimeoutError:
            await self.shut_down()
            reason = f"no answer in {self.config.join_timeout_s:g} s"
            raise JoinError(seed, reason) from None
        except BaseException:
            await self.shut_down()
            raise

    async def _join(self, seed: str) -> None:
        welcome, connection = await self._joining.ask(seed)
        self._begin(welcome)
        self._mesh.adopt(connection.slot, connection)
        self._joining.catch_up()
        self.greet(connection.slot, UpdateAck(welcome.epoch))

    def _begin(self, welcome: Welcome) -> None:
        self.slot = welcome.slot
        self._cluster.begin(welcome.members, welcome.epoch)
        self._core = CubecastNode(
            self.slot,
            self,
            cluster=self._cluster.mask,
            config=self.config.protocol,
            incarnation=self._incarnation,
        )

    async def close(self) -> None:
        """Leave gracefully: nothing published is lost, and the others hear of it.

        Cancelling it does not stop the leaving; calling it again waits for the same end.
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

    async def shut_down(self) -> None:
        """End everything at once, whether or not we have left."""
        self._closing.stop_accepting()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        self._reception.close()
        self._guests.close("the node left the cluster")
        await self._mesh.close("the node stopped")
        self._readers.wake_all()
        self._listings.close()
        if self._core is not None:
            self._receipts.close(self._core)
            for box in self._outboxes.values():
                box.close(self._core)
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.members)} members"
        return f"<Node {self.slot} at {self.address}, {state}>"

    @property
    def core(self) -> CubecastNode:
        """The protocol of this node."""
        if self._core is None or self.closed:
            raise Closed("the node is closed")
        return self._core

    @property
    def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return {slot: member.address for slot, member in sorted(self._cluster.members.items())}

    # -- what the application calls ---------------------------------------------------------------

    def subscribe(
        self, topic: Topic, *, policy: Policy = "block", queue_bytes: int | None = None
    ) -> Subscription:
        """Subscribe with ``async with node.subscribe(topic) as messages``.

        `topic` may be a pattern with the wildcards ``+`` and ``#`` of MQTT.
        """
        limit = self.config.queue_bytes if queue_bytes is None else queue_bytes
        pattern = check_subscription(topic, policy, limit)
        return Subscription(self, topic, policy, limit, pattern)

    async def topics(self) -> dict[Topic, list[NodeId]]:
        """Ask the cluster for its topics, those that any node has published or subscribed to
        since it started, with the slots of their subscribers."""
        return await self._listings.ask()

    def on(
        self,
        topic: Topic,
        callback: Callback,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
    ) -> Listener:
        """Have `callback` called for each message, with ``async with node.on(topic, callback)``.

        It gets the `Message` (topic, payload, source, seq, published_at) and may be a coroutine
        function.  `topic` may be a pattern; `policy` and `queue_bytes` are those of `subscribe`.
        """
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes)
        return Listener(self, subscription, callback, self.config.leave_timeout_s)

    async def publish(
        self,
        topic: Topic,
        payload: bytes | str,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Publish one message; it waits for credit if subscribers are slow.

        A publish that raises or is cancelled was not sent and will not be; `NotSent` after
        `timeout` seconds without credit (`NodeConfig.publish_timeout_s` if None).  One that
        returns is sent unless the node closes first; a receipt tells, and tells when everyone
        has taken the message in.
        """
        if type(payload) is not bytes:
            payload = encode_payload(payload)
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, f"{len(payload)} bytes are more than {MAX_PAYLOAD}")
        try:
            box = self._outboxes.get(topic)
        except TypeError:  # not hashable, so surely no text: let the check say so
            box = None
        if box is None:
            box = self._new_outbox(topic)
        if box.shut or box.bytes >= box.frame_bytes or len(box.payloads) >= box.frame_messages:
            await box.make_room(timeout)
        # Nothing below waits: from here on the message is accepted.
        box.payloads.append(payload)
        box.bytes += len(payload) + MESSAGE_OVERHEAD
        if not box.planned:
            box.plan()
        if not receipt:
            return None
        return self._receipts.add(topic, self.core.next_seq(topic) + len(box.payloads) - 1)

    def events(self) -> Events:
        """Members joining and leaving, lost connections, slow subscribers: an async iterator."""
        events = Events()
        if self.closed:
            events.close()
        self._listeners.append(events)
        return events

    def explain(self, topic: Topic) -> dict[str, object]:
        """What this node knows of a topic, and what waits for what."""
        check_topic(topic)
        box = self._outboxes.get(topic)
        return {
            **self.core.explain(topic, self.now()),
            "blocked": box is not None and box.blocked,
            "accepted": 0 if box is None else len(box.payloads),
        }

    def at_rest(self) -> bool:
        """Whether nothing of ours is on its way: no message, no operation, no delayed packet."""
        core = self.core
        return not (
            core.unstable()
            or core.unacked_parcels()
            or core.pending_waves()
            or self.faults.busy
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

    def _tell(self, event: Event) -> None:
        self._listeners = [listener for listener in self._listeners if not listener.closed]
        for listener in self._listeners:
            listener.put(event)

    def _new_outbox(self, topic: Topic) -> Outbox:
        check_topic(topic)
        if not self._closing.accepts:
            raise Closed("the node is closed")
        self._learn(topic)
        box = self._outboxes[topic] = Outbox(topic, self)
        return box

    def publish_frame(self, topic: Topic, body: Outgoing, size: int) -> bool:
        """Hand a frame to the core; False if there is no credit for it."""
        core = self.core
        first = core.next_seq(topic)
        size += frame_overhead(core.dependencies(topic))
        position = self._recorder.position()
        self.writes.begin()
        try:
            if not core.publish(topic, body, size, self.now()):
                return False
            # Before the burst ends: what others may have seen is in the trace already.
            stream = Stream(self.slot, self._incarnation)
            self._recorder.published(topic, stream, first, len(body), position)
        finally:
            self.writes.end()
        return True

    def credit_ran_out(self, topic: Topic) -> None:
        """We wait to publish: whoever waits for us to read may go on, or nobody would."""
        self._readers.release(topic)

    async def attach(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed."""
        self.check_open()
        if subscription.pattern is None:
            self._learn(subscription.topic)
        await self._readers.attach(subscription)

    async def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription."""
        self._readers.detach(subscription)

    def consumed(self, subscription: Subscription, topic: Topic, stream: Stream, seq: Seq) -> None:
        """A subscription has read what it owed."""
        self._readers.consumed(subscription, topic, stream, seq)

    def membership_called(self, topic: Topic, joins: bool) -> None:
        """The application subscribes for the first time, or no longer."""
        self._recorder.membership("subscribe" if joins else "leave", topic)

    def slow_subscriber(self, subscription: Subscription) -> None:
        """A subscription's policy had to act."""
        self._tell(SlowSubscriber(subscription.topic, subscription.policy, subscription.dropped))

    def publisher_blocked(self, topic: Topic, seconds: float) -> None:
        """A publisher waits for credit, and not just for a moment."""
        self._tell(PublisherBlocked(topic, seconds, self.core.behind(topic)))

    def callback_failed(self, topic: Topic, error: BaseException) -> None:
        """A callback of the application raised."""
        self._tell(CallbackFailed(topic, repr(error)))

    def _learn(self, topic: Topic) -> None:
        ident = topic_id(topic)
        known = self._topics.setdefault(ident, topic)
        if known != topic:
            raise CubecastError(f"topics {known!r} and {topic!r} have the same id; rename one")

    # -- the port ---------------------------------------------------------------------------------

    def now(self) -> Time:
        """Microseconds of the loop's clock."""
        return int(self._loop.time() * 1e6)

    def relay(self, peers: Sequence[NodeId], message: Any) -> None:
        packet = encode_frame(message)
        send = self._mesh.send
        for peer in peers:
            send(peer, packet)

    def control(self, peer: NodeId, message: Any) -> None:
        packet = encode_ack(message) if type(message) is Ack else encode_control(message)
        self._mesh.send(peer, packet)

    def deliver(self, publication: Any) -> bool:
        topic = publication.topic
        if self.trace is not None:
            self._recorder.delivered(publication)
        consumed = self._readers.deliver(publication)
        if not consumed and self._waits_behind(topic):
            self._loop.call_soon(self._readers.release, topic)
        return consumed

    def _waits_behind(self, topic: Topic) -> bool:
        """Whether we wait to publish to a topic, or to one that is read together with it."""
        box = self._outboxes.get(topic)
        if box is not None and box.blocked:
            return True
        return self._readers.follow and any(
            other.blocked and self._readers.share(topic, other.topic)
            for other in self._outboxes.values()
        )

    def joined(self, topic: Topic) -> None:
        self._recorder.membership("join", topic)
        self._readers.joined(topic)

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        count = sum(last - first + 1 for first, last in skipped.values())
        self._recorder.gap(topic, count, self._readers.take_gaps(topic))
        self._readers.missed(topic, count)
        self._tell(Gap(topic, spans_by_source(skipped)))

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self._recorder.discard(topic, dropped)

    def view(self, epoch: int, members: int) -> None:
        self._recorder.view(epoch, members)

    def left(self, topic: Topic) -> None:
        self._readers.left(topic)

    def discovered(self, topic: Topic) -> None:
        try:
            self._learn(topic)
        except CubecastError as error:
            log.error("a pattern cannot read %r: %s", topic, error)
        self._readers.discovered(topic)

    def followed(self, key: Hashable, complete: bool) -> None:
        if complete:
            self._recorder.membership("join", str(key))
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
        if self._core is not None and not self.closed:
            self._core.on_wake(self.now())
            self._cluster.settle()
            if self._receipts:
                self._receipts.check(self._core)

    # -- connections ------------------------------------------------------------------------------

    def _address_of(self, slot: NodeId) -> str | None:
        cluster = self._cluster
        member = cluster.members.get(slot) or cluster.departing.get(slot)
        return None if member is None or self.closed else member.address

    def opened(self, connection: Connection) -> None:
        """A connection exists; it proves nothing yet."""
        self._mesh.track(connection)

    def connected(self, connection: Connection) -> None:
        """A handshake is complete, with a member or with a newcomer."""
        if self._core is None:  # we are the newcomer, and members may know us before we do
            self._joining.connected(connection)
            return
        # By its uid, which the handshake has proved: a newcomer may not know its slot yet.
        peer = self._cluster.slot_of(connection.uid)
        if peer is not None:
            self._mesh.adopt(peer, connection)
        elif connection.slot != NOBODY:
            self._reception.farewell(connection)

    def disconnected(self, connection: Connection, reason: str) -> None:
        self._joining.disconnected(connection, reason)
        self._guests.drop(connection)
        peer = connection.slot
        if not self._mesh.drop(connection) or self.closed or self._core is None:
            return
        if peer in self._cluster.members:
            log.info("lost the connection to node %d: %s", peer, reason)
            self._tell(ConnectionLost(peer, reason))
            self._cluster.remind(peer)
        else:
            self.unreachable(peer)

    def unreachable(self, peer: NodeId) -> None:
        """Nothing more is to be expected of a node that left and does not answer."""
        self._reception.give_up(peer)
        if self._core is not None and peer not in self._cluster.members:
            self._core.forget_peer(peer, self.now())
            self._cluster.forget(peer)
            self._cluster.settle()

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to the core; garbage closes the connection it came by."""
        if self._core is None:
            self._joining.received(connection, packets)
            return
        core = self._core
        now = self.now()
        sender = connection.slot
        for kind, raw in packets:
            if kind == HELLO:
                self._reception.on_greeting(decode_greeting(raw), connection)
                continue
            if kind == CLIENT:
                self._guests.received(connection, raw)
                continue
            if sender == NOBODY:
                raise WireError("a message from a node that is not a member")
            if kind == FRAME:
                frame: Frame | None = self._decoder.decode(raw, self._topics)
                if frame is not None:
                    if self._recorder.arrivals:
                        self._recorder.received(frame, sender)
                    core.on_message(frame, sender, now)
            elif kind == ACK:
                ack = decode_ack(raw, self._topics)
                if ack is not None:
                    core.on_message(ack, sender, now)
            elif kind == CONTROL:
                core.on_message(decode_control(raw), sender, now)
                self._cluster.settle()
            else:
                raise WireError(f"a packet of unknown kind {kind}")

    # -- the cluster ------------------------------------------------------------------------------

    def greet(self, slot: NodeId, message: Greeting) -> None:
        """Send a greeting to a member."""
        self._mesh.send(slot, encode_greeting(message))

    def unfinished(self, departing: Collection[NodeId]) -> bool:
        """Whether something of ours still needs those who leave."""
        core = self._core
        if core is None:
            return False
        return core.own_waves() > 0 or any(core.unacked_parcels(slot) for slot in departing)

    def cluster_changed(self, before: dict[NodeId, Member], after: dict[NodeId, Member]) -> None:
        """The members are different now."""
        if self._core is not None:
            mask = sum(1 << slot for slot in after) | 1 << self.slot
            self._core.set_cluster(mask)
        if before and after and min(before) != min(after):
            self._reception.let_go(False)
        for slot in before.keys() - after.keys():
            log.info("node %d left", slot)
            self._tell(MemberLeft(slot))
        for slot in after.keys() - before.keys():
            log.info("node %d joined from %s", slot, after[slot].address)
            self._tell(MemberJoined(slot, after[slot].address))
