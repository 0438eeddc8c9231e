"""What an application sees of a live node: `Node`, made by `cubecast.join` and `cubecast.start`.

The work is done elsewhere: `shell.py` feeds the protocol with packets and time, `publishing/` and
`reading/` have what is published and read, `presence.py` the node's place in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from cubecast.codecs import Codec, check_codec
from cubecast.errors import NotSent
from cubecast.net.api import Endpoint
from cubecast.net.checks import check_order, check_subscription, check_timeout, check_total
from cubecast.net.events import Events
from cubecast.net.links.faults import LinkFaults
from cubecast.net.message import Value
from cubecast.net.node.stats import Stats
from cubecast.net.node.value_keeper import mark
from cubecast.net.publishing.outbox import Leftover
from cubecast.net.publishing.receipt import Receipt
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.subscription import Order, Policy, Subscription
from cubecast.net.requests.requests import Requests
from cubecast.net.topics import Payload, check_topic, reply_topic, too_large
from cubecast.net.wire.headers import Headed, Headers
from cubecast.net.wire.packets import MAX_PAYLOAD, MESSAGE_OVERHEAD
from cubecast.protocol.explain import Explanation
from cubecast.protocol.port import NodeId, Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell
    from cubecast.ordering.live import Ordered


class Node(Endpoint):
    """A member of a cluster; make one with `cubecast.join` or `cubecast.start`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._presence = shell.presence
        self._publishing = shell.publishing
        self._requests = Requests(self, reply_topic(shell.identity, shell.uid), NodePost)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.members)} members"
        return f"<Node {self.slot} at {self.address}, {state}>"

    # -- the node among others -------------------------------------------------------------------

    @property
    def address(self) -> str:
        """What others dial, as "host:port"."""
        return self._shell.address

    @property
    def slot(self) -> NodeId:
        """The node's place in the cube.

        It may be another one after the node was excluded and came back.
        """
        return self._presence.slot

    @property
    def uid(self) -> str:
        """The name of this life of the node; another one after it was excluded and came back."""
        return self._shell.uid

    @property
    def cluster(self) -> str:
        """The name of the cluster, made at random when it began."""
        return self._presence.cluster

    @property
    def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return self._presence.addresses

    @property
    def epoch(self) -> int:
        """The number of the view of the cluster that this node is in; -1: none."""
        return self._presence.epoch

    @property
    def suspects(self) -> list[NodeId]:
        """The members that this node takes for dead, until all have agreed on it."""
        return self._presence.suspected

    @property
    def faults(self) -> LinkFaults:
        """Faults on the links of this node, on purpose: for tests."""
        return self._shell.faults

    # -- publishing ------------------------------------------------------------------------------

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

        `payload` is bytes, a bytearray or a memoryview, or text, which is sent as UTF-8.
        `headers` are a few short texts by name that travel with it (`Message.headers`).
        With `retain`, a later subscriber is handed the newest such message of the topic first
        (`Message.retained`); one with an empty payload removes it.

        A publish that raises or is cancelled was not sent and will not be; `NotSent` after
        `timeout` seconds in which no credit came back at all (`NodeConfig.publish_timeout_s` if
        None).  One that returns is sent unless the node closes first: `close` and a receipt report
        that.  A receipt also tells when every subscriber has taken the message in.
        """
        if retain:
            payload, headers = mark(topic, payload, headers), None
        publishing = self._publishing  # the common case calls nothing below: it runs per message
        if headers is not None or publishing.careful or type(payload) is not bytes:
            payload = publishing.prepared(topic, payload, headers)
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, too_large(len(payload)))
        try:
            box = publishing.boxes.get(topic)
        except TypeError:  # not hashable, so surely no text: let the check say so
            box = None
        if box is None:
            check_timeout("timeout", timeout)
            box = publishing.open(topic)
        if box.shut or box.bytes >= box.room or len(box.payloads) >= box.frame_messages:
            await box.make_room(timeout)
        # Nothing below waits: from here on the message is accepted.
        box.payloads.append(payload)
        box.bytes += len(payload) + MESSAGE_OVERHEAD
        if not box.planned:
            box.plan()
        return publishing.receipt(box) if receipt else None

    # -- reading ---------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        order: Order = "causal",
        codec: Codec[Value] | None = None,
    ) -> Subscription[Value]: ...

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
        * ``"drop-newest"``: new messages are dropped and counted in `dropped`.
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
        limit = self._shell.config.queue_bytes if queue_bytes is None else queue_bytes
        pattern = check_subscription(topic, policy, limit)
        check_order(order, policy, managers)
        if codec is not None:
            check_codec(codec)
        self._shell.check_may("subscribe", topic)
        host, replies = self._shell.subscribing, self._requests.ref
        return Subscription(host, topic, policy, limit, pattern, order, codec, replies)

    def _listener(
        self,
        topic: Topic,
        callback: Callback[Any],
        policy: Policy,
        queue_bytes: int | None,
        codec: Codec[Any] | None,
    ) -> Listener:
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes, codec=codec)
        return Listener(self._shell, subscription, callback, self._shell.config.leave_timeout_s)

    # -- asking ----------------------------------------------------------------------------------

    def events(self) -> Events:
        """Members joining and leaving, lost connections, slow subscribers: an async iterator."""
        return self._shell.audience.listen()

    async def topics(self) -> dict[Topic, list[NodeId]]:
        """Ask the cluster for its topics, those that any node has published or subscribed to
        since it started, with the slots of their subscribers."""
        return await self._shell.listings.ask()

    async def subscribers(self, topic: Topic) -> list[NodeId]:
        """The slots subscribed to a topic; asking leaves no trace of it anywhere."""
        check_topic(topic)
        return await self._shell.listings.subscribers(topic)

    def explain(self, topic: Topic) -> Explanation:
        """What this node knows of a topic: which node waits for which, what is unread here."""
        check_topic(topic)
        self._shell.check_alive()
        core = self._presence.core
        accepted, blocked = self._publishing.load(topic)
        known: Explanation = {"standing": "apart", "informed": False}
        if core is not None:
            known = core.explain(topic, self._shell.now())
        late = self._shell.member.late_leader(self._shell.now())
        if late is not None:
            known["leader"] = late
        return {
            **known,
            "blocked": blocked,
            "accepted": accepted,
            "readers": self._shell.readers.loads(topic),
        }

    def stats(self) -> Stats:
        """This node's numbers now: rates, queues, what waits, which members lag, the view."""
        return self._shell.stats()

    # -- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave gracefully: nothing published is lost, and the others hear of it.

        Cancelling it does not stop the leaving; calling it again waits for the same end.  If
        publications are left after `leave_timeout_s` the node is closed all the same, and it
        raises `NotSent` (some were accepted and never sent) or `Unknown` (all were sent, but not
        every subscriber is known to have them); `leftovers` has the counts of each topic.
        """
        await self._shell.closing.close()

    @property
    def closed(self) -> bool:
        """Whether the node has left the cluster, or was stopped."""
        return self._shell.closed

    @property
    def leftovers(self) -> list[Leftover]:
        """Once the node is closed: accepted publications that are not known to be stable."""
        return self._shell.leftovers


class NodePost:
    """Sends one request of a node; a publish that is cancelled was not sent."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sent: Headed | None = None

    async def send(self, topic: Topic, blob: Headed) -> None:
        """Publish the request."""
        await self._node.publish(topic, blob)
        self._sent = blob

    def withdraw(self) -> bool:
        """Whether the request was not sent, and will not be."""
        return self._sent is None

    def why_waits(self) -> str:
        """What an unsent request waits for."""
        return self._node._publishing.why_blocked()

    def was_unheard(self) -> bool:
        """Whether this node knew that the topic had no subscribers when it sent the request."""
        return self._sent is not None and self._sent.unheard
