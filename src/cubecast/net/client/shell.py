"""The shell of a light client: attachments to nodes, and what they and subscriptions call.

When the connection ends, all waiting calls fail; with `patience_s` the client goes on at another
node instead, in the same order (`cubecast.net.client.moving`).
"""

from __future__ import annotations

import asyncio
import secrets
from itertools import chain, islice
from random import Random
from typing import Any

from cubecast.errors import Closed, ConfigError
from cubecast.net.client.attachment import Attachment
from cubecast.net.client.client import Client
from cubecast.net.client.moving import Moving
from cubecast.net.client.publishing import Pipeline
from cubecast.net.client.questions import PendingQuestions
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import CallbackFailed, Event, Events, Returned
from cubecast.net.links.address import parse_address
from cubecast.net.links.connection import Connection
from cubecast.net.links.faults import LinkFaults
from cubecast.net.links.transport import Network, TcpNetwork
from cubecast.net.reading.slow_news import SlowNews
from cubecast.net.security.keys import Keys, check_secret
from cubecast.net.security.tls import Tls
from cubecast.net.security.tls_network import TlsNetwork
from cubecast.net.wire.clients import (
    LEAVING,
    MAX_POSITIONS,
    Answered,
    Consumed,
    Declined,
    Deliver,
    Dropped,
    Ended,
    FromNode,
    Happened,
    Leaving,
    Listen,
    Over,
    Subscribed,
    Taken,
    Taking,
    Unanswered,
)
from cubecast.net.wire.hello import NOBODY, is_name
from cubecast.protocol.port import NodeId, Topic


class ClientShell:
    """One light client behind its `Client`."""

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
        self.network = network or (TcpNetwork() if tls is None else TlsNetwork(tls))
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
        self._numbers = 0
        self.questions = PendingQuestions(self)
        self._listeners: list[Events] = []
        self.slow = SlowNews(self.tell)
        """Tells what the policies of our subscriptions drop."""
        self.listens = False
        """Whether it wants the events of the cluster."""
        self._why = ""
        self.client = Client(self)
        """What the application sees."""

    @property
    def connection(self) -> Connection | None:
        """The connection to the latest node."""
        return None if self._node is None else self._node.connection

    def lose_node(self, reason: str) -> None:
        """End the connection to the node at once; for tests."""
        if self._node is not None:
            self._node.lose(reason)

    def state(self) -> str:
        """The state of the client, for people."""
        if self.closed:
            return f", closed: {self._why}"
        if self._pipeline is None:
            return ", not attached"
        return f" of node {self.slot} at {self.address}"

    def next_number(self) -> int:
        """A number that no subscription and no question of this client has."""
        self._numbers += 1
        return self._numbers

    # -- attaching and closing -------------------------------------------------------------------

    async def attach(self, addresses: str, timeout_s: float) -> None:
        """Attach to the first node of a comma-separated list that accepts us."""
        found = tuple(dict.fromkeys(filter(None, map(str.strip, addresses.split(",")))))
        for address in found:
            parse_address(address)  # a ValueError is the caller's mistake, not the node's
        if not found:
            raise ValueError("no address to attach to")
        self.movable = self.patience_s > 0 and len(found) > 1
        self._moving = Moving(self, self.network, found, timeout_s, self._chance)
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

    async def close(self, flush: bool) -> None:
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
        """End the client: fail all waiting calls."""
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
        self.questions.close(reason)
        self.slow.close()
        for listener in self._listeners:
            listener.close(Closed(reason))
        self._here.set()

    # -- what the client and its questions call --------------------------------------------------

    def listen(self) -> Events:
        """An iterator over the events that are told from now on."""
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

    async def some_node(self) -> Attachment:
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
    def identity(self) -> str:
        """The name that this client proves to its node; empty: none."""
        own = self.network.certificate if isinstance(self.network, TlsNetwork) else None
        return self.name if own is None else own.name

    @property
    def published(self) -> Pipeline:
        """The publications on their way to the node; `Closed` before the client is attached."""
        if self._pipeline is None:
            raise Closed("the client is not attached")
        return self._pipeline

    # -- for subscriptions -----------------------------------------------------------------------

    def open(self, number: int, subscription: RemoteSubscription[Any]) -> None:
        """Hand messages under `number` to a subscription, and subscribe at the node."""
        self._subscriptions[number] = subscription
        node = self._target
        if node is not None:
            subscription.ask(node)
        elif self.closed or self._moving is None:
            raise Closed(self._why or "the client is not attached")

    def shut(self, number: int) -> None:
        """Forget a subscription that was closed."""
        self._subscriptions.pop(number, None)
        self.switched()

    def switched(self) -> None:
        """Note that a subscription goes on at another node, or has ended."""
        if self._moving is not None:
            self._moving.changed()

    def missed(self, count: int, exact: bool) -> None:
        """Count messages that a subscription missed while moving; not `exact`: at least these."""
        if self._moving is not None:
            self._moving.missed(count, exact)

    def abandoned(self, node: Attachment, reason: str) -> None:
        """Move on: a node ends subscriptions because it leaves."""
        if self._moving is None or self.closed:
            return
        if node is not self._node:
            self._moving.reject(node)
        elif self.movable:
            self._begin_to_move(node, reason)

    def callback_failed(self, topic: Topic, error: BaseException) -> None:
        """Tell that a callback of the application raised."""
        self.tell(CallbackFailed(topic, repr(error)))

    def tell(self, event: Event) -> None:
        """Tell an event to the application."""
        self._listeners = self._open_listeners()
        for listener in self._listeners:
            listener.put(event)

    def _open_listeners(self) -> list[Events]:
        return [listener for listener in self._listeners if not listener.closed]

    # -- from node to node -----------------------------------------------------------------------

    def all_subscriptions(self) -> list[RemoteSubscription]:
        """The open subscriptions."""
        return list(self._subscriptions.values())

    def _begin_to_move(self, node: Attachment, reason: str) -> None:
        assert self._moving is not None
        assert self._pipeline is not None
        self._pipeline.hold()
        self._moving.begin(node, reason)

    def detached(self, attachment: Attachment, reason: str) -> None:
        """Handle the end of a connection; with `patience_s` the client goes on elsewhere."""
        if self.closed:
            return
        for subscription in self.all_subscriptions():
            subscription.left_by(attachment)
        if self.patience_s and self._moving is not None:
            self.questions.interrupted(attachment)
            if attachment is self._node and self._pipeline is not None:
                self._pipeline.interrupted(reason)
                self._moving.begin(attachment, reason)
            self._moving.changed()
        elif attachment is self._node:
            self._end(reason)
        else:
            self._why = reason

    async def catch_up(self, node: Attachment) -> bool:
        """Wait until a node has delivered what was read elsewhere; False if it is gone before."""
        floors = [one.floors.positions() for one in self.all_subscriptions() if one.floors]
        positions = list(islice(chain.from_iterable(floors), MAX_POSITIONS))
        return not positions or await self.questions.catch_up(node, positions)

    def arrive(self, node: Attachment) -> None:
        """Go on at a node: send it the publications that were held back."""
        assert self._pipeline is not None
        assert node.welcome is not None
        self._settle_at(node)
        self._pipeline.resume(node.send, node.welcome.window)

    def give_up(self, reason: str) -> None:
        """End the client: no node was found in time."""
        self._end(reason)

    # -- what nodes say --------------------------------------------------------------------------

    def heard(self, attachment: Attachment, message: FromNode) -> None:
        """Handle a message of a node; those about publications only from the present node."""
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
            case Subscribed() | Dropped() | Over() | Ended():
                self._on_subscription(node, message)
            case Answered() | Unanswered():
                self.questions.on_answer(message)
            case Happened(event):
                self._on_event(node, event)
            case Leaving() if self.movable:
                self._begin_to_move(node, LEAVING)

    def _on_event(self, node: Attachment, event: Event) -> None:
        if isinstance(event, Returned):
            node.slot = event.slot
            if node is self._node:
                self.slot = event.slot
        if node is self._target:
            self.tell(event)

    def _on_subscription(
        self, node: Attachment, message: Subscribed | Dropped | Over | Ended
    ) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is None:
            return
        match message:
            case Subscribed():
                subscription.on_subscribed(node, message)
            case Dropped():
                subscription.on_dropped(message.dropped)
            case Over():
                subscription.on_over(node, message)
            case Ended():
                subscription.on_ended(node, message)


def client_shell_of(client: Client) -> ClientShell:
    """The shell of a client: for tests, not for applications."""
    return client._shell
