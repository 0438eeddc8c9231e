"""A live node: the production core, its connections, and what the application calls.

The runtime decides nothing: it feeds the core with packets and time, and carries out what the
core asks of its port.  One event loop, no threads.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

from cubecast.errors import Closed, CubecastError, JoinError, NotSent
from cubecast.net.address import format_address, parse_address
from cubecast.net.cluster import Cluster
from cubecast.net.config import NodeConfig
from cubecast.net.connection import NOBODY, Connection
from cubecast.net.hello import (
    ClusterUpdate,
    Goodbye,
    Greeting,
    JoinRequest,
    LeaveRequest,
    Member,
    Redirect,
    UpdateAck,
    Welcome,
    decode_greeting,
    encode_greeting,
)
from cubecast.net.subscription import Policy, Subscription
from cubecast.net.wire import (
    ACK,
    CONTROL,
    FRAME,
    HELLO,
    FrameDecoder,
    Outgoing,
    WireError,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    topic_id,
)
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic
from cubecast.trace import Record

log = logging.getLogger("cubecast")


def _same(connection: Connection) -> Connection:
    return connection


class Outbox:
    """Publications of one topic that wait for the end of the tick, or for credit."""

    __slots__ = ("blocked", "bytes", "payloads", "planned", "topic", "waiters")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.payloads: list[bytes] = []
        self.bytes = 0
        self.planned = False
        self.blocked = False
        self.waiters: deque[asyncio.Future[None]] = deque()


class Node:
    """A member of a cluster; make one with `cubecast.join` or `cubecast.start`."""

    def __init__(self, config: NodeConfig, *, trace: list[Record] | None = None) -> None:
        self.config = config
        self.secret = config.secret
        self.uid = secrets.token_hex(16)
        self.slot: NodeId = NOBODY
        self.address = ""
        self.closed = False
        self.trace = trace
        self._loop = asyncio.get_running_loop()
        self._incarnation = secrets.randbits(63)
        self._core: CubecastNode | None = None
        self._cluster = Cluster(self, config.join_timeout_s)
        self._server: asyncio.Server | None = None
        self._connections: dict[NodeId, Connection] = {}
        self._dialling: dict[NodeId, list[bytes]] = {}
        self._strangers: set[Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._decoder = FrameDecoder()
        self._topics: dict[int, Topic] = {}
        self._outboxes: dict[Topic, Outbox] = {}
        self._subscriptions: dict[Topic, list[Subscription]] = {}
        self._joining: dict[Topic, asyncio.Future[None]] = {}
        self._leaving: dict[Topic, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Time = 0
        self._asked: Connection | None = None
        self._welcomed: asyncio.Future[Welcome | Redirect] | None = None
        self._released: asyncio.Future[None] | None = None

    # -- starting and stopping -------------------------------------------------------------------

    async def start(self, seed: str | None) -> None:
        """Listen, and join the cluster of `seed`; without one, begin a cluster."""
        host, port = parse_address(self.config.listen)
        self._server = await self._loop.create_server(
            lambda: Connection(self, dialled=False), host, port
        )
        bound = self._server.sockets[0].getsockname()
        self.address = self.config.advertise or format_address(bound[0], bound[1])
        if seed is None:
            self._begin(Welcome(0, 0, {0: Member(self.uid, self.address)}))
            return
        try:
            await asyncio.wait_for(self._join(seed), self.config.join_timeout_s)
        except TimeoutError:
            await self._shut_down()
            reason = f"no answer in {self.config.join_timeout_s:g} s"
            raise JoinError(seed, reason) from None
        except BaseException:
            await self._shut_down()
            raise

    async def _join(self, seed: str) -> None:
        address = seed
        while True:
            self._welcomed = self._loop.create_future()
            self._asked = connection = Connection(self, dialled=True)
            host, port = parse_address(address)
            try:
                await self._loop.create_connection(partial(_same, connection), host, port)
            except OSError as error:
                raise JoinError(address, error.strerror or str(error)) from error
            answer = await self._welcomed
            self._asked = None
            if isinstance(answer, Welcome):
                self._connections[connection.slot] = connection
                self._begin(answer)
                return
            connection.close("redirected")
            address = answer.address

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

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave gracefully: nothing published is lost, and the others hear of it."""
        if self.closed:
            return
        try:
            await asyncio.wait_for(self._leave(), self.config.leave_timeout_s)
        except TimeoutError:
            log.warning("node %d left without an answer from everyone", self.slot)
        await self._shut_down()

    async def _leave(self) -> None:
        for subscriptions in list(self._subscriptions.values()):
            for subscription in list(subscriptions):
                await subscription.close()
        await asyncio.gather(*self._leaving.values())
        core = self.core
        while core.unstable() or any(box.payloads for box in self._outboxes.values()):
            await asyncio.sleep(0.005)
        if len(self._cluster.members) == 1:
            return
        if self._cluster.coordinator == self.slot:
            await self._cluster.release(self.slot)
        else:
            self._released = self._loop.create_future()
            self.greet(self._cluster.coordinator, LeaveRequest())
            await self._released
        while core.pending_waves():
            await asyncio.sleep(0.005)

    async def _shut_down(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for connection in [*self._connections.values(), *self._strangers]:
            connection.close("the node stopped")
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.wake()
        for box in self._outboxes.values():
            for waiter in box.waiters:
                if not waiter.done():
                    waiter.set_exception(NotSent(box.topic, "the node is closed"))
        await asyncio.sleep(0)

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
        """Subscribe with ``async with node.subscribe(topic) as messages``."""
        limit = self.config.queue_bytes if queue_bytes is None else queue_bytes
        return Subscription(self, topic, policy, limit)

    async def publish(self, topic: Topic, payload: bytes | str) -> None:
        """Publish one message; it waits for credit if subscribers are slow.

        Raises `NotSent` if there is none for `NodeConfig.publish_timeout_s`.
        """
        if isinstance(payload, str):
            payload = payload.encode()
        box = self._outboxes.get(topic)
        if box is None:
            box = self._new_outbox(topic)
        while box.blocked:
            await self._wait_for_credit(box)
        box.payloads.append(payload)
        box.bytes += len(payload)
        if not box.planned:
            box.planned = True
            self._loop.call_soon(self._end_of_tick, box)
        elif (
            box.bytes >= self.config.frame_bytes or len(box.payloads) >= self.config.frame_messages
        ):
            self._send(box)
            await asyncio.sleep(0)

    def _new_outbox(self, topic: Topic) -> Outbox:
        self.core  # noqa: B018  # raises if the node is closed
        self._learn(topic)
        box = self._outboxes[topic] = Outbox(topic)
        return box

    async def _wait_for_credit(self, box: Outbox) -> None:
        waiter = self._loop.create_future()
        box.waiters.append(waiter)
        try:
            async with asyncio.timeout(self.config.publish_timeout_s):
                await waiter
        except TimeoutError:
            raise NotSent(box.topic, f"no credit for {self.config.publish_timeout_s:g} s") from None
        finally:
            if waiter in box.waiters:
                box.waiters.remove(waiter)

    def _end_of_tick(self, box: Outbox) -> None:
        box.planned = False
        if box.payloads and not box.blocked and not self.closed:
            self._send(box)

    def _send(self, box: Outbox) -> None:
        """Make a frame of what has gathered; without credit it waits, and so do publishers."""
        body = Outgoing(box.payloads, time.time_ns() // 1000)
        if not self.core.publish(box.topic, body, box.bytes, self.now()):
            box.blocked = True
            for subscription in self._subscriptions.get(box.topic, ()):
                subscription.release()
            return
        box.blocked = False
        box.payloads = []
        box.bytes = 0
        while box.waiters:
            waiter = box.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def attach(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed."""
        topic = subscription.topic
        core = self.core
        if topic in self._leaving:
            await self._leaving[topic]
        self._learn(topic)
        ready = self._joining.get(topic)
        if topic not in self._subscriptions:
            self._subscriptions[topic] = []
            ready = self._joining[topic] = self._loop.create_future()
            self._record("subscribe", topic)
            core.subscribe(topic, self.now())
        self._subscriptions[topic].append(subscription)
        if ready is not None:
            await asyncio.shield(ready)

    async def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription."""
        topic = subscription.topic
        subscriptions = self._subscriptions.get(topic, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if subscriptions or self.closed or topic not in self._subscriptions:
            return
        del self._subscriptions[topic]
        self._record("leave", topic)
        self._leaving[topic] = self._loop.create_future()
        self.core.unsubscribe(topic, self.now())

    def consumed(self, topic: Topic, stream: Stream, seq: Seq) -> None:
        """A subscription has read what it owed."""
        if not self.closed:
            self.core.consumed(topic, stream, seq, self.now())

    def slow_subscriber(self, subscription: Subscription) -> None:
        """A subscription's policy had to act."""
        log.info("slow subscriber of %r: %s", subscription.topic, subscription)

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
        for peer in peers:
            self._send_packet(peer, packet)

    def control(self, peer: NodeId, message: Any) -> None:
        packet = encode_ack(message) if type(message) is Ack else encode_control(message)
        self._send_packet(peer, packet)

    def deliver(self, publication: Any) -> bool:
        topic = publication.topic
        if self.trace is not None:
            self._record_messages("deliver", publication)
        consumed = True
        for subscription in self._subscriptions.get(topic, ()):
            consumed = subscription.deliver(publication) and consumed
        if not consumed:
            box = self._outboxes.get(topic)
            if box is not None and box.blocked:
                for subscription in self._subscriptions.get(topic, ()):
                    self._loop.call_soon(subscription.release)
        return consumed

    def joined(self, topic: Topic) -> None:
        self._record("join", topic)
        ready = self._joining.pop(topic, None)
        if ready is not None and not ready.done():
            ready.set_result(None)

    def left(self, topic: Topic) -> None:
        done = self._leaving.pop(topic, None)
        if done is not None and not done.done():
            done.set_result(None)

    def writable(self, topic: Topic) -> None:
        box = self._outboxes.get(topic)
        if box is not None and box.blocked:
            self._loop.call_soon(self._retry, box)

    def _retry(self, box: Outbox) -> None:
        if box.blocked and not self.closed:
            self._send(box)

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

    # -- connections ------------------------------------------------------------------------------

    def _send_packet(self, peer: NodeId, packet: bytes) -> None:
        connection = self._connections.get(peer)
        if connection is not None:
            connection.send(packet)
            return
        waiting = self._dialling.get(peer)
        if waiting is None:
            waiting = self._dialling[peer] = []
            self._spawn(self._dial(peer))
        waiting.append(packet)

    async def _dial(self, peer: NodeId) -> None:
        """Connect to a peer; what cannot be sent is repaired by the core later."""
        pause = 0.05
        while not self.closed and peer in self._dialling:
            member = self._cluster.members.get(peer)
            if member is None:
                break
            try:
                host, port = parse_address(member.address)
                await self._loop.create_connection(
                    lambda: Connection(self, dialled=True), host, port
                )
                return
            except OSError as error:
                log.info("cannot reach node %d at %s: %s", peer, member.address, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)
        self._dialling.pop(peer, None)

    def connected(self, connection: Connection) -> None:
        """A handshake is complete, with a member or with a newcomer."""
        peer = connection.slot
        if self.slot == NOBODY:  # we are the newcomer
            connection.send(encode_greeting(JoinRequest(self.uid, self.address)))
            return
        if peer == NOBODY:
            self._strangers.add(connection)
            return
        rival = self._connections.get(peer)
        if rival is None or self._prefers(connection, peer):
            self._connections[peer] = connection
        for packet in self._dialling.pop(peer, ()):
            self._connections[peer].send(packet)

    def _prefers(self, connection: Connection, peer: NodeId) -> bool:
        """Of two connections to one peer, both ends keep the one the lower slot dialled."""
        return connection.dialled == (self.slot < peer)

    def disconnected(self, connection: Connection, reason: str) -> None:
        self._strangers.discard(connection)
        if connection is self._asked and self._welcomed is not None:
            self._welcomed.set_exception(JoinError("that address", reason))
        peer = connection.slot
        if self._connections.get(peer) is connection:
            del self._connections[peer]
            if not self.closed and peer in self._cluster.members:
                log.info("lost the connection to node %d: %s", peer, reason)

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to the core; garbage closes the connection it came by."""
        core = self._core
        now = self.now()
        sender = connection.slot
        for kind, raw in packets:
            if kind == HELLO:
                self._on_greeting(decode_greeting(raw), connection)
                core = self._core
                continue
            if core is None or sender == NOBODY:
                raise WireError("a message from a node that is not a member")
            if kind == FRAME:
                frame: Frame | None = self._decoder.decode(raw, self._topics)
                if frame is not None:
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

    def _on_greeting(self, message: Greeting, connection: Connection) -> None:
        match message:
            case JoinRequest():
                self._on_join_request(message, connection)
            case Welcome() | Redirect():
                if self._welcomed is not None and not self._welcomed.done():
                    self._welcomed.set_result(message)
            case ClusterUpdate():
                self._cluster.on_update(message, connection.slot)
            case UpdateAck():
                self._cluster.on_update_ack(message, connection.slot)
            case LeaveRequest():
                self._spawn(self._cluster.release(connection.slot))
            case Goodbye():
                if self._released is not None and not self._released.done():
                    self._released.set_result(None)
            case _:
                raise WireError(f"{type(message).__name__} after the handshake")

    def _on_join_request(self, request: JoinRequest, connection: Connection) -> None:
        coordinator = self._cluster.coordinator
        if coordinator != self.slot:
            address = self._cluster.members[coordinator].address
            connection.send(encode_greeting(Redirect(address)))
            return

        async def welcome(message: Welcome) -> None:
            connection.slot = message.slot
            self._strangers.discard(connection)
            self._connections[message.slot] = connection
            connection.send(encode_greeting(message))

        self._spawn(self._cluster.admit(Member(request.uid, request.address), welcome))

    # -- the cluster ------------------------------------------------------------------------------

    def greet(self, slot: NodeId, message: Greeting) -> None:
        """Send a greeting to a member."""
        self._send_packet(slot, encode_greeting(message))

    def own_waves(self) -> int:
        """Operations of this node that are not complete."""
        return self._core.own_waves() if self._core is not None else 0

    def cluster_changed(self, before: dict[NodeId, Member], after: dict[NodeId, Member]) -> None:
        """The members are different now."""
        if self._core is not None:
            mask = sum(1 << slot for slot in after) | 1 << self.slot
            self._core.set_cluster(mask)
        for slot in before.keys() - after.keys():
            log.info("node %d left", slot)
        for slot in after.keys() - before.keys():
            log.info("node %d joined from %s", slot, after[slot].address)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- records ----------------------------------------------------------------------------------

    def _record(self, kind: Any, topic: Topic) -> None:
        if self.trace is not None:
            self.trace.append(Record(kind, self.now(), self.slot, topic))

    def _record_messages(self, kind: Any, frame: Frame) -> None:
        assert self.trace is not None
        source, incarnation = frame.stream
        now = self.now()
        for seq in range(frame.first, frame.last + 1):
            ident = f"{source}.{incarnation:x}.{seq}"
            self.trace.append(
                Record(kind, now, self.slot, frame.topic, ident, source=source, seq=seq)
            )
