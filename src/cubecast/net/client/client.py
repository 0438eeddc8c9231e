"""A light client: a process that uses a cluster through one of its nodes and is no member.

It has no slot, takes part in no tree, and costs the cluster nothing when it comes and goes.  What
it publishes has its node's slot as source.  When the connection ends, everything that waits is
told so; with `patience_s` the client goes on at another node instead, in the same order
(`cubecast.net.client.moving`).
"""

from __future__ import annotations

import asyncio
import secrets
from itertools import chain, islice
from random import Random
from typing import Any, Literal, TypeVar, cast, overload

import msgspec

from cubecast import topology, tracing
from cubecast.codecs import Codec, check_codec
from cubecast.errors import Closed, ConfigError, CubecastError, NotAllowed, NotSent
from cubecast.net.checks import check_subscription
from cubecast.net.client.attachment import Attachment
from cubecast.net.client.moving import Moving
from cubecast.net.client.publishing import ClientReceipt, Pipeline
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import CallbackFailed, Event, Events, Returned
from cubecast.net.links.address import parse_address
from cubecast.net.links.connection import Connection
from cubecast.net.links.faults import LinkFaults
from cubecast.net.links.transport import Network, TcpNetwork
from cubecast.net.node.retained import mark
from cubecast.net.node.stats import Stats
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.slow import SlowNews
from cubecast.net.reading.subscription import Policy
from cubecast.net.requests.requests import Asks, Requests
from cubecast.net.security.keys import Keys, check_secret
from cubecast.net.security.tls import Tls
from cubecast.net.security.tls_network import TlsNetwork
from cubecast.net.topics import Payload, check_topic, encode_payload, reply_topic, too_large
from cubecast.net.usage import check_timeout
from cubecast.net.wire.clients import (
    LEAVING,
    MAX_POSITIONS,
    MAX_QUEUE,
    MAX_REQUESTS,
    Answered,
    Ask,
    CatchUp,
    Consumed,
    Declined,
    Deliver,
    Dropped,
    Ended,
    FromNode,
    Happened,
    Leaving,
    Listen,
    Question,
    Subscribed,
    Taken,
    Taking,
    Unanswered,
)
from cubecast.net.wire.headers import Headed, Headers, check_headers, pack
from cubecast.net.wire.hello import NOBODY, is_name
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.protocol.explain import Explanation
from cubecast.protocol.port import NodeId, Topic

T = TypeVar("T")

CALLBACK_S = 10.0
"""How long a callback that runs may take to finish when its listener closes."""


class Client(Asks):
    """Attached to one node; make one with `cubecast.connect`."""

    def __init__(
        self,
        secret: str = "",
        network: Network | None = None,
        *,
        name: str = "",
        tls: Tls | None = None,
        patience_s: float = 0.0,
        retry_unknown: bool = False,
        random: Random | None = None,
    ) -> None:
        """With a `name`, `secret` is the token of the client of that name."""
        if not patience_s >= 0:
            raise ValueError(f"patience_s must be a number of seconds, 0 or more, not {patience_s}")
        if tls is not None and (secret or name):
            raise ConfigError("secret and tls exclude each other: give one of them alone")
        check_secret("token" if name else "secret", secret)
        if name and not is_name(name):
            raise ValueError(f"{name!r} is no name of a client: letters, digits, and - _ . @")
        self.keys = Keys(tokens={name: secret}) if name else Keys(secret)
        self.name = name
        self.patience_s = patience_s
        """How long it looks for a node before it gives up; 0: it does not look for another."""
        self.movable = False
        """Whether it knows of several nodes, and goes from one to another."""
        self._retry_unknown = retry_unknown
        self._chance = random or Random()
        self.cluster = ""
        """The name of the cluster, once we are attached."""
        self.faults = LinkFaults()
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
        self._node: Attachment | None = None  # the latest that we were attached to
        self._moving: Moving | None = None
        self._here = asyncio.Event()  # there is a node
        self._pipeline: Pipeline | None = None
        self._subscriptions: dict[int, RemoteSubscription] = {}
        self.requests = Requests(self, reply_topic(self._identity, self.uid), definite=False)
        self._numbers = 0
        self._answers: dict[int, tuple[Attachment, asyncio.Future[msgspec.Raw]]] = {}
        self._asking = asyncio.Semaphore(MAX_REQUESTS // 2)
        self._listeners: list[Events] = []
        self.slow = SlowNews(self.tell)
        """Tells what the policies of our subscriptions drop."""
        self.listens = False
        """Whether it wants to hear what happens in the cluster."""
        self._traced = tracing.is_used()
        self._why = ""

    @property
    def _connection(self) -> Connection | None:
        return None if self._node is None else self._node.connection

    def _lost(self, reason: str) -> None:
        if self._node is not None:
            self._node.lose(reason)

    def __repr__(self) -> str:
        if self.closed:
            return f"<Client, closed: {self._why}>"
        if self._pipeline is None:
            return "<Client, not attached>"
        return f"<Client of node {self.slot} at {self.address}>"

    # -- attaching and closing -------------------------------------------------------------------

    async def attach(self, addresses: str, timeout_s: float) -> None:
        """Attach to the first node of a comma-separated list that takes us."""
        found = tuple(dict.fromkeys(filter(None, map(str.strip, addresses.split(",")))))
        for address in found:
            parse_address(address)  # a ValueError is the caller's mistake, not the node's
        if not found:
            raise ValueError("no address to attach to")
        self.movable = self.patience_s > 0 and len(found) > 1
        self._moving = Moving(self, self._network, found, timeout_s, self._chance)
        node = await self._moving.start()
        assert node.welcome is not None
        window, timeout_s = node.welcome.window, node.welcome.publish_timeout_s
        self._pipeline = Pipeline(node.send, window, timeout_s, self._retry_unknown)
        self._settle_at(node)
        if node.over:  # since then
            self.detached(node, self._why or "the connection ended")

    def _settle_at(self, node: Attachment) -> None:
        assert node.welcome is not None
        self._node = node
        self.slot, self.address = node.slot, node.address
        self.version, self.cluster = node.welcome.version, node.welcome.cluster
        self._here.set()

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
            if self._node is not None:
                await self._node.close("the client is closed")

    def _end(self, reason: str) -> None:
        """The connection is of no use any more: tell everyone who waits."""
        if self.closed:
            return
        self.closed = True
        self._why = reason
        if self._moving is not None:
            self._moving.stop()
            if self._moving.target not in (None, self._node):
                self._moving.target.lose(reason)
        if self._pipeline is not None:
            self._pipeline.broken(reason)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(Closed(reason), told=self.closing)
            self.slow.ended(subscription)
        for _, answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Closed(reason))
                answer.exception()
        self.slow.close()
        for listener in self._listeners:
            listener.close(Closed(reason))
        self._here.set()

    # -- what the application calls --------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: None = None,
    ) -> RemoteSubscription: ...

    @overload
    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[T],
    ) -> RemoteSubscription[T]: ...

    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[Any] | None = None,
    ) -> RemoteSubscription[Any]:
        """Subscribe with ``async with client.subscribe(topic) as messages``.

        `topic` may be a pattern, as at a node.  `queue_bytes` is what the node keeps unread; if
        None, what it is configured for.  `policy` applies there, beyond that, as at a node:
        ``"block"`` (publishers wait, nothing is lost), ``"drop-oldest"``, ``"drop-newest"`` (what
        is dropped is counted in `dropped`), or ``"disconnect"`` (reading ends with `Overflow`).
        With a `codec` (`cubecast.codecs`), `Message.value` is what it makes of the payload.
        """
        check_subscription(topic, policy, MAX_QUEUE if queue_bytes is None else queue_bytes)
        if queue_bytes is not None and queue_bytes > MAX_QUEUE:
            raise ValueError(f"queue_bytes of a client must be at most {MAX_QUEUE}")
        if codec is not None:
            check_codec(codec)
        self._numbers += 1
        return RemoteSubscription(self, self._numbers, topic, policy, queue_bytes or 0, codec)

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
        """Have `callback` called for each message: ``async with client.on(topic, callback)``.

        What it returns answers a message that is a request, as at a node.
        """
        codec = cast(Codec[Any], codec)  # or None, which makes no difference here
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes, codec=codec)
        return Listener(self, subscription, callback, CALLBACK_S)

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
    ) -> ClientReceipt: ...

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
    ) -> ClientReceipt | None: ...

    async def publish(
        self,
        topic: Topic,
        payload: Payload,
        *,
        headers: Headers | None = None,
        receipt: bool = False,
        timeout: float | None = None,
        retain: bool = False,
    ) -> ClientReceipt | None:
        """Publish one message; it waits if the node has no room for it.

        `payload` is bytes, or what else holds bytes, or text, which is sent as UTF-8.
        `headers` are a few short texts by name that travel with it (`Message.headers`).
        `retain` has it kept for those who subscribe later, as at a node.

        It returns when the message is on its way; `flush`, or leaving the client, tells when
        the node has taken it.  Raises `NotSent` after `timeout` seconds in which the node took
        nothing (its `publish_timeout_s` if None), or if the node refuses the topic, and `Unknown`
        if `timeout` passes or the connection breaks while it waits for the node's word on a topic
        that is new to it.
        """
        if retain:
            payload, headers = mark(topic, payload, headers), None
        if headers is not None or self._traced or type(payload) is not bytes:
            payload = self._prepared(payload, headers)
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, too_large(len(payload)))
        pipeline = self._published
        if not isinstance(topic, str) or not pipeline.knows(topic):
            check_timeout("timeout", timeout)
            check_topic(topic)
        return await pipeline.publish(topic, payload, receipt, timeout)

    def _prepared(self, payload: Payload, headers: Headers | None) -> bytes:
        """What is to be sent, of a publication that is not just bytes."""
        if self._traced and type(payload) is not Headed:
            headers = tracing.added(headers)
        if headers:
            check_headers(headers)
            payload = pack(headers, encode_payload(payload))
        if type(payload) is not Headed:
            return encode_payload(payload)
        self._published.headed = True
        return payload

    def events(self) -> Events:
        """Members joining and leaving, our own slow subscriptions: an async iterator."""
        if self.closed:
            raise Closed(self._why)
        if not self.listens:
            node = self._target
            if node is not None:
                node.say(Listen())
            self.listens = True
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

    async def explain(self, topic: Topic) -> Explanation:
        """What our node knows of a topic, and what waits for what."""
        check_topic(topic)
        return await self._ask("explain", topic, Explanation)

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
            while True:
                try:
                    body = await self._answer(await self._some_node(), about, topic)
                    return msgspec.msgpack.decode(body, type=kind)
                except _Interrupted:  # the next node is asked
                    continue
                except NotAllowed as error:
                    raise NotAllowed(topic, "ask", error.reason) from None
                except msgspec.DecodeError as error:
                    raise CubecastError(f"the node gave no sense: {error}") from error

    async def _answer(self, node: Attachment, about: Question, topic: Topic) -> msgspec.Raw:
        self._numbers += 1
        request = self._numbers
        answer: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._answers[request] = node, answer
        try:
            node.say(Ask(request, about, topic))
            return await answer
        finally:
            del self._answers[request]

    async def _some_node(self) -> Attachment:
        """The node to ask, once there is one; `Closed` if there will be none."""
        while (node := self._target) is None:
            if self.closed or self._moving is None:
                raise Closed(self._why or "the client is not attached")
            self._here.clear()
            await self._here.wait()
        return node

    @property
    def _target(self) -> Attachment | None:
        """The node where subscriptions and questions go; None while there is none."""
        node = None if self._moving is None or self.closed else self._moving.target
        return None if node is None or node.over else node

    @property
    def _identity(self) -> str:
        """The name that this client proves to its node; empty: none."""
        own = self._network.certificate if isinstance(self._network, TlsNetwork) else None
        return self.name if own is None else own.name

    @property
    def _published(self) -> Pipeline:
        if self._pipeline is None:
            raise Closed("the client is not attached")
        return self._pipeline

    # -- for subscriptions -----------------------------------------------------------------------

    def open(self, number: int, subscription: RemoteSubscription[Any]) -> None:
        """Hand what comes under `number` to a subscription, and ask for it."""
        self._subscriptions[number] = subscription
        node = self._target
        if node is not None:
            subscription.ask(node)
        elif self.closed or self._moving is None:
            raise Closed(self._why or "the client is not attached")

    def shut(self, number: int) -> None:
        """Nobody reads it any more."""
        self._subscriptions.pop(number, None)
        self.switched()

    def switched(self) -> None:
        """A subscription goes on at another node, or has ended."""
        if self._moving is not None:
            self._moving.changed()

    def missed(self, count: int, exact: bool) -> None:
        """A subscription has missed so many messages on the way; not `exact`: at least."""
        if self._moving is not None:
            self._moving.missed(count, exact)

    def abandoned(self, node: Attachment, reason: str) -> None:
        """A node ends subscriptions because it leaves."""
        if self._moving is None or self.closed:
            return
        if node is not self._node:
            self._moving.reject(node)
        elif self.movable:
            self._begin_to_move(node, reason)

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

    # -- from node to node -----------------------------------------------------------------------

    def all_subscriptions(self) -> list[RemoteSubscription]:
        """Those that are open."""
        return list(self._subscriptions.values())

    def _begin_to_move(self, node: Attachment, reason: str) -> None:
        assert self._moving is not None
        assert self._pipeline is not None
        self._pipeline.hold()
        self._moving.begin(node, reason)

    def detached(self, attachment: Attachment, reason: str) -> None:
        """A connection has ended; with patience the client goes on elsewhere."""
        if self.closed:
            return
        for subscription in self.all_subscriptions():
            subscription.left_by(attachment)
        if self.patience_s and self._moving is not None:
            for node, answer in self._answers.values():
                if node is attachment and not answer.done():
                    answer.set_exception(_Interrupted())
            if attachment is self._node and self._pipeline is not None:
                self._pipeline.interrupted(reason)
                self._moving.begin(attachment, reason)
            self._moving.changed()
        elif attachment is self._node:
            self._end(reason)
        else:
            self._why = reason

    async def catch_up(self, node: Attachment) -> bool:
        """Have a node deliver what was read elsewhere; False if it is gone before."""
        floors = [one.floors.positions() for one in self.all_subscriptions() if one.floors]
        positions = list(islice(chain.from_iterable(floors), MAX_POSITIONS))
        if not positions:
            return True
        self._numbers += 1
        request = self._numbers
        answer: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._answers[request] = node, answer
        try:
            node.say(CatchUp(request, positions))
            await answer
        except (_Interrupted, Closed):
            return False
        finally:
            del self._answers[request]
        return True

    def arrive(self, node: Attachment) -> None:
        """Everything goes on at a node."""
        assert self._pipeline is not None
        assert node.welcome is not None
        self._settle_at(node)
        self._pipeline.resume(node.send, node.welcome.window)

    def give_up(self, reason: str) -> None:
        """No node was found in time."""
        self._end(reason)

    # -- what nodes say --------------------------------------------------------------------------

    def heard(self, attachment: Attachment, message: FromNode) -> None:
        """Hand a message to whom it concerns."""
        if self._pipeline is None or self.closed:
            return
        about_publishing = isinstance(message, Taken | Taking | Consumed | Declined | Leaving)
        if attachment is self._node or not about_publishing:
            self._on_message(attachment, message, self._pipeline)
        elif isinstance(message, Leaving) and self._moving is not None:
            self._moving.reject(attachment)

    def _on_message(self, node: Attachment, message: FromNode, pipeline: Pipeline) -> None:
        match message:
            case Deliver():
                subscription = self._subscriptions.get(message.subscription)
                if subscription is not None:  # else it was closed meanwhile
                    subscription.on_deliver(node, message)
            case Taken():
                pipeline.on_taken(message)
            case Taking():
                pipeline.on_taking(message)
            case Consumed():
                pipeline.on_consumed(message)
            case Declined():
                if message.leaving and self.patience_s:
                    pipeline.hold()
                pipeline.on_declined(message)
            case Subscribed() | Dropped() | Ended():
                self._on_subscription(node, message)
            case Answered(request, body):
                answer = self._answer_to(request)
                if answer is not None:
                    answer.set_result(body)
            case Unanswered(request, reason, denied):
                answer = self._answer_to(request)
                if answer is not None:
                    error = NotAllowed("", "ask", reason) if denied else CubecastError(reason)
                    answer.set_exception(error)
            case Happened(event):
                self._on_event(node, event)
            case Leaving() if self.movable:
                self._begin_to_move(node, LEAVING)

    def _answer_to(self, request: int) -> asyncio.Future[msgspec.Raw] | None:
        _, answer = self._answers.get(request, (None, None))
        return None if answer is None or answer.done() else answer

    def _on_event(self, node: Attachment, event: Event) -> None:
        if isinstance(event, Returned):
            node.slot = event.slot
            if node is self._node:
                self.slot = event.slot
        if node is self._target:
            self.tell(event)

    def _on_subscription(self, node: Attachment, message: Subscribed | Dropped | Ended) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is None:
            return
        match message:
            case Subscribed():
                subscription.on_subscribed(node, message)
            case Dropped():
                subscription.on_dropped(message.dropped)
            case Ended():
                subscription.on_ended(node, message)


class _Interrupted(Exception):
    """The node that was asked is gone."""
