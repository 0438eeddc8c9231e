"""A light client: a process that uses a cluster through one of its nodes and is no member.

It has no slot, takes part in no tree, and costs the cluster nothing when it comes and goes.  What
it publishes has its node's slot as source.  When the connection ends, everything that waits is
told so; a client never goes on at another node by itself, as there would be no order between the
two.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TypeVar

import msgspec

from cubecast import topology
from cubecast.errors import (
    AttachError,
    Closed,
    ConfigError,
    CubecastError,
    NotAllowed,
    NotSent,
)
from cubecast.net.address import parse_address
from cubecast.net.callbacks import Callback, Listener
from cubecast.net.checks import check_subscription
from cubecast.net.client_wire import (
    MAX_QUEUE,
    MAX_REQUESTS,
    Answered,
    Ask,
    Consumed,
    Declined,
    Deliver,
    Dropped,
    Ended,
    Farewell,
    FromClient,
    FromNode,
    Happened,
    Listen,
    Ping,
    Pong,
    Question,
    Subscribed,
    Taken,
    Taking,
    Unanswered,
    decode_from_node,
    encode,
)
from cubecast.net.connection import Connection
from cubecast.net.events import CallbackFailed, Event, Events, Returned
from cubecast.net.faults import LinkFaults
from cubecast.net.hello import (
    NOBODY,
    Attached,
    AttachRequest,
    Refused,
    decode_greeting,
    encode_greeting,
    is_name,
)
from cubecast.net.keys import Keys, Purpose, check_secret
from cubecast.net.pipeline import ClientReceipt, Pipeline
from cubecast.net.remote import RemoteSubscription
from cubecast.net.slow import SlowNews
from cubecast.net.stats import Stats
from cubecast.net.subscription import Policy
from cubecast.net.tls import Tls
from cubecast.net.tls_network import TlsNetwork
from cubecast.net.topics import check_topic, encode_payload
from cubecast.net.transport import Network, TcpNetwork
from cubecast.net.wire import CLIENT, HELLO, MAX_PAYLOAD, WireError
from cubecast.net.writes import Writes
from cubecast.protocol.port import NodeId, Topic

T = TypeVar("T")

UNREAD_BYTES = 64 * 1024 * 1024
"""What the node may leave unread: far more than requests and publications can be on their way."""
CALLBACK_S = 10.0
"""How long a callback that runs may take to finish when its listener closes."""


class Client:
    """Attached to one node; make one with `cubecast.connect`."""

    def __init__(
        self,
        secret: str = "",
        network: Network | None = None,
        *,
        name: str = "",
        tls: Tls | None = None,
    ) -> None:
        """With a `name`, `secret` is the token of the client of that name."""
        if tls is not None and (secret or name):
            raise ConfigError("secret and tls exclude each other: give one of them alone")
        check_secret("token" if name else "secret", secret)
        if name and not is_name(name):
            raise ValueError(f"{name!r} is no name of a client: letters, digits, and - _ . @")
        self.keys = Keys(tokens={name: secret}) if name else Keys(secret)
        self.purpose: Purpose = "client"
        self.name = name
        self.salt = ""
        self.cluster = ""
        """The name of the cluster, once we are attached."""
        self.faults = LinkFaults()
        self.writes = Writes()
        self.unread_bytes = UNREAD_BYTES
        self._network = network or (TcpNetwork() if tls is None else TlsNetwork(tls))
        self.uid = secrets.token_hex(16)
        self.slot: NodeId = NOBODY
        """The slot of the node we are attached to, and the source of what we publish."""
        self.address = ""
        self.version = ""
        self.closed = False
        self.closing = False
        """Whether the application ends the connection."""
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._attached: asyncio.Future[Attached] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._pipeline: Pipeline | None = None
        self._subscriptions: dict[int, RemoteSubscription] = {}
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._asking = asyncio.Semaphore(MAX_REQUESTS // 2)
        self._listeners: list[Events] = []
        self.slow = SlowNews(self.tell)
        """Tells what the policies of our subscriptions drop."""
        self._listens = False
        self._heard_at = 0.0
        self._silence_s = 0.0
        self._pinging: asyncio.TimerHandle | None = None
        self._why = ""

    def __repr__(self) -> str:
        if self.closed:
            return f"<Client, closed: {self._why}>"
        if self._pipeline is None:
            return "<Client, not attached>"
        return f"<Client of node {self.slot} at {self.address}>"

    # -- attaching and closing -------------------------------------------------------------------

    async def attach(self, addresses: str, timeout_s: float) -> None:
        """Attach to the first node of a comma-separated list that takes us."""
        reasons: dict[str, str] = {}
        for address in filter(None, map(str.strip, addresses.split(","))):
            parse_address(address)  # a ValueError is the caller's mistake, not the node's
            try:
                async with asyncio.timeout(timeout_s):
                    await self._attach_to(address)
                return
            except TimeoutError:
                reasons[address] = f"no answer in {timeout_s:g} s"
            except OSError as error:
                reasons[address] = error.strerror or str(error)
            except Closed as error:
                reasons[address] = str(error)
            if self._connection is not None:
                self._connection.abort()
        raise AttachError(reasons) if reasons else ValueError("no address to attach to")

    async def _attach_to(self, address: str) -> None:
        host, port = parse_address(address)
        self._attached = self._loop.create_future()
        connection = Connection(self, dialled=True)
        self._connection = None
        await self._network.dial(lambda: connection, host, port)
        self._connection = connection
        try:
            welcome = await self._attached
        except BaseException:
            connection.abort()
            raise
        self.slot, self.version, self.address = welcome.slot, welcome.version, address
        self.cluster = welcome.cluster
        self._silence_s = welcome.silence_s
        self._heard_at = self._loop.time()
        self._pipeline = Pipeline(self._send, welcome.window, welcome.publish_timeout_s)
        self._ping()

    async def flush(self) -> None:
        """Return when the node has taken everything published so far.

        If the connection broke with publications under way it raises `Unknown`, or `NotSent` if
        none of them was sent.
        """
        await self._published.flush()

    async def close(self, *, flush: bool = True) -> None:
        """End the connection, after the node has taken what was published."""
        self.closing = True
        try:
            if self._pipeline is not None:
                self._pipeline.send_gathered()
                if flush:
                    await self._pipeline.flush()
        finally:
            self._end("the client is closed")
            if self._connection is not None:
                self._connection.close("the client is closed")
                await asyncio.wait([self._ended], timeout=1.0)
                self._connection.abort()

    def _end(self, reason: str) -> None:
        """The connection is of no use any more: tell everyone who waits."""
        if self.closed:
            return
        self.closed = True
        self._why = reason
        if self._pinging is not None:
            self._pinging.cancel()
        if self._pipeline is not None:
            self._pipeline.broken(reason)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(Closed(reason))
            self.slow.ended(subscription)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Closed(reason))
                answer.exception()
        self.slow.close()
        for listener in self._listeners:
            listener.close(Closed(reason))

    # -- what the application calls --------------------------------------------------------------

    def subscribe(
        self, topic: Topic, *, policy: Policy = "block", queue_bytes: int | None = None
    ) -> RemoteSubscription:
        """Subscribe with ``async with client.subscribe(topic) as messages``.

        `topic` may be a pattern, as at a node.  `queue_bytes` is what the node keeps unread; if
        None, what it is configured for.  `policy` applies there, beyond that, as at a node:
        ``"block"`` (publishers wait, nothing is lost), ``"drop-oldest"``, ``"drop-newest"`` (what
        is dropped is counted in `dropped`), or ``"disconnect"`` (reading ends with `Overflow`).
        """
        check_subscription(topic, policy, MAX_QUEUE if queue_bytes is None else queue_bytes)
        if queue_bytes is not None and queue_bytes > MAX_QUEUE:
            raise ValueError(f"queue_bytes of a client must be at most {MAX_QUEUE}")
        self._numbers += 1
        return RemoteSubscription(self, self._numbers, topic, policy, queue_bytes or 0)

    def on(
        self,
        topic: Topic,
        callback: Callback,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
    ) -> Listener:
        """Have `callback` called for each message: ``async with client.on(topic, callback)``."""
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes)
        return Listener(self, subscription, callback, CALLBACK_S)

    async def publish(
        self,
        topic: Topic,
        payload: bytes | str,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> ClientReceipt | None:
        """Publish one message; it waits if the node has no room for it.

        It returns when the message is on its way; `flush`, or leaving the client, tells when
        the node has taken it.  Raises `NotSent` after `timeout` seconds in which the node took
        nothing (its `publish_timeout_s` if None), or if the node refuses the topic, and `Unknown`
        if `timeout` passes or the connection breaks while it waits for the node's word on a topic
        that is new to it.
        """
        if type(payload) is not bytes:
            payload = encode_payload(payload)
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, f"{len(payload)} bytes are more than {MAX_PAYLOAD}")
        pipeline = self._published
        if not isinstance(topic, str) or not pipeline.knows(topic):
            check_topic(topic)
        return await pipeline.publish(topic, payload, receipt, timeout)

    def events(self) -> Events:
        """Members joining and leaving, our own slow subscriptions: an async iterator."""
        if self.closed:
            raise Closed(self._why)
        if not self._listens:
            self.say(Listen())
            self._listens = True
        events = Events()
        self._listeners = [*self._open_listeners(), events]
        return events

    async def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return await self._ask("members", "", dict[NodeId, str])

    async def view(self) -> tuple[int, list[NodeId]]:
        """The number of the view its node is in (-1: none at present), and whom that suspects."""
        return await self._ask("view", "", tuple[int, list[NodeId]])

    async def stats(self) -> Stats:
        """The numbers of our node, as `Node.stats` has them; of topics, those that we may see."""
        return await self._ask("stats", "", Stats)

    async def topics(self) -> dict[Topic, list[NodeId]]:
        """The topics of the cluster, and the slots subscribed to each."""
        return await self._ask("topics", "", dict[Topic, list[NodeId]])

    async def explain(self, topic: Topic) -> dict[str, object]:
        """What our node knows of a topic, and what waits for what."""
        check_topic(topic)
        return await self._ask("explain", topic, dict[str, object])

    async def subscribers(self, topic: Topic) -> list[NodeId]:
        """The slots subscribed to a topic; asking leaves no trace of it anywhere."""
        check_topic(topic)
        return await self._ask("subscribers", topic, list[NodeId])

    async def tree(self, topic: Topic, root: NodeId | None = None) -> topology.Tree:
        """The tree that a publication of node `root` (else: ours) to `topic` would take now."""
        check_topic(topic)
        root = self.slot if root is None else root
        members = await self.members()
        if root not in members:
            raise ValueError(f"there is no node {root}")
        mask = topology.mask_of(await self.subscribers(topic))
        dimension = topology.dimension_for(max([*members, mask.bit_length() - 1]) + 1)
        return topology.tree(root, mask, dimension)

    async def _ask(self, about: Question, topic: Topic, kind: type[T]) -> T:
        async with self._asking:
            self._numbers += 1
            request = self._numbers
            answer = self._answers[request] = self._loop.create_future()
            try:
                self.say(Ask(request, about, topic))
                return msgspec.msgpack.decode(await answer, type=kind)
            except NotAllowed as error:
                raise NotAllowed(topic, "ask", error.reason) from None
            except msgspec.DecodeError as error:
                raise CubecastError(f"the node gave no sense: {error}") from error
            finally:
                del self._answers[request]

    @property
    def _published(self) -> Pipeline:
        if self._pipeline is None:
            raise Closed("the client is not attached")
        return self._pipeline

    # -- for subscriptions -----------------------------------------------------------------------

    def open(self, number: int, subscription: RemoteSubscription) -> None:
        """Hand what comes under `number` to a subscription."""
        self._subscriptions[number] = subscription

    def shut(self, number: int) -> None:
        """Nobody reads it any more."""
        self._subscriptions.pop(number, None)

    def say(self, message: FromClient) -> None:
        """Send to the node."""
        self._send(encode(message))

    def _send(self, packet: bytes) -> None:
        if self.closed or self._connection is None:
            raise Closed(self._why or "the client is not attached")
        self._connection.send(packet)

    def callback_failed(self, topic: Topic, error: BaseException) -> None:
        """A callback of the application raised."""
        self.tell(CallbackFailed(topic, repr(error)))

    def tell(self, event: Event) -> None:
        """Something happened."""
        self._listeners = self._open_listeners()
        for listener in self._listeners:
            listener.put(event)

    def _open_listeners(self) -> list[Events]:
        return [listener for listener in self._listeners if not listener.closed]

    def _ping(self) -> None:
        """Show that we are here, and notice if the node is not."""
        if self._loop.time() - self._heard_at > self._silence_s:
            self._lost(f"nothing heard from the node for {self._silence_s:g} s")
            return
        self.say(Ping())
        self._pinging = self._loop.call_later(self._silence_s / 3, self._ping)

    def _lost(self, reason: str) -> None:
        connection = self._connection
        self._end(reason)
        if connection is not None:
            connection.abort()

    # -- the connection's owner ------------------------------------------------------------------

    def learn_salt(self, salt: str) -> None:
        """It is of no use: a client does not mind which cluster it is attached to."""

    def turned_away(self, connection: Connection, reason: str) -> None:
        """Nobody dials a client."""

    def opened(self, connection: Connection) -> None:
        """It proves nothing yet."""

    def connected(self, connection: Connection) -> None:
        """The handshake is complete."""
        connection.send(encode_greeting(AttachRequest()))

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to whom they concern."""
        self._heard_at = self._loop.time()
        for kind, raw in packets:
            if kind == HELLO:
                self._on_greeting(connection, raw)
            elif kind == CLIENT and self._pipeline is not None:
                self._on_message(decode_from_node(raw), self._pipeline)
            else:
                raise WireError(f"a packet of kind {kind} to a client")

    def _on_greeting(self, connection: Connection, raw: bytes) -> None:
        message = decode_greeting(raw)
        match message:
            case Attached() if self._attached is not None and not self._attached.done():
                self._attached.set_result(message)
            case Refused():
                connection.close(f"refused: {message.reason}")
            case _:
                raise WireError(f"{type(message).__name__} to a client")

    def _on_message(self, message: FromNode, pipeline: Pipeline) -> None:
        match message:
            case Deliver():
                subscription = self._subscriptions.get(message.subscription)
                if subscription is not None:  # else it was closed meanwhile
                    subscription.on_deliver(message)
            case Taken():
                pipeline.on_taken(message)
            case Taking():
                pipeline.on_taking(message)
            case Consumed():
                pipeline.on_consumed(message)
            case Declined():
                pipeline.on_declined(message)
            case Subscribed() | Dropped() | Ended():
                self._on_subscription(message)
            case Answered(request, body):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    answer.set_result(body)
            case Unanswered(request, reason, denied):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    error = NotAllowed("", "ask", reason) if denied else CubecastError(reason)
                    answer.set_exception(error)
            case Happened(event):
                if isinstance(event, Returned):
                    self.slot = event.slot
                self.tell(event)
            case Farewell(reason):
                self._why = reason
            case Pong():
                pass

    def _on_subscription(self, message: Subscribed | Dropped | Ended) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is None:
            return
        match message:
            case Subscribed():
                subscription.on_subscribed(message)
            case Dropped():
                subscription.on_dropped(message.dropped)
            case Ended():
                subscription.on_ended(message)

    def disconnected(self, connection: Connection, reason: str) -> None:
        """Everything that waits is told why."""
        if self._attached is not None and not self._attached.done():
            self._attached.set_exception(Closed(reason))
            self._attached.exception()
        if connection is self._connection and self._pipeline is not None:
            self._end(f"the connection to the node at {self.address} ended: {self._why or reason}")
            if not self._ended.done():
                self._ended.set_result(None)
