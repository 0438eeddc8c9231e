"""What an application sees of a light client: `Client`, made by `cubecast.connect`.

A light client is a process that uses a cluster through one of its nodes and is no member.  It has
no slot, takes part in no tree, and costs the cluster nothing when it comes and goes.  Its messages
have its node's slot as source.  `shell.py` does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from cubecast import topology, tracing
from cubecast.codecs import Codec, check_codec
from cubecast.errors import NotSent
from cubecast.net.api import Endpoint
from cubecast.net.checks import check_subscription, check_timeout
from cubecast.net.client.parcels import Letter
from cubecast.net.client.publishing import ClientReceipt
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import Events
from cubecast.net.links.faults import LinkFaults
from cubecast.net.message import Value
from cubecast.net.node.stats import Stats
from cubecast.net.node.value_keeper import mark
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.subscription import Policy
from cubecast.net.requests.requests import Requests
from cubecast.net.topics import Payload, check_topic, encode_payload, reply_topic, too_large
from cubecast.net.wire.clients import MAX_QUEUE
from cubecast.net.wire.headers import Headed, Headers, check_headers, pack
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.protocol.explain import Explanation
from cubecast.protocol.port import NodeId, Topic

if TYPE_CHECKING:
    from cubecast.net.client.shell import ClientShell

CALLBACK_S = 10.0
"""How long a callback that runs may take to finish when its listener closes."""


class Client(Endpoint):
    """A light client, attached to one node; make one with `cubecast.connect`."""

    def __init__(self, shell: ClientShell) -> None:
        self._shell = shell
        self._ask = shell.questions.ask
        self._traced = tracing.is_used()
        self._requests = Requests(self, reply_topic(shell.identity, shell.uid), ClientPost)

    def __repr__(self) -> str:
        return f"<Client{self._shell.state()}>"

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._shell.cluster

    @property
    def slot(self) -> NodeId:
        """The slot of the node we are attached to, and the source of what we publish."""
        return self._shell.slot

    @property
    def address(self) -> str:
        """The address of the node we are attached to."""
        return self._shell.address

    @property
    def faults(self) -> LinkFaults:
        """Faults on the link to the node, on purpose: for tests."""
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

        `payload` is bytes, a bytearray or a memoryview, or text, which is sent as UTF-8.
        `headers` are a few short texts by name that travel with it (`Message.headers`).
        With `retain` it is kept for later subscribers, as at a node.

        It returns when the message is on its way; `flush`, or leaving the client, tells when
        the node has taken it.  Raises `NotSent` after `timeout` seconds in which the node took
        nothing of the topic (its `publish_timeout_s` if None), or if the node refuses the topic,
        and `Unknown` if `timeout` passes or the connection breaks while it waits for the node to
        accept a topic that is new to it.
        """
        if retain:
            payload, headers = mark(topic, payload, headers), None
        if headers is not None or self._traced or type(payload) is not bytes:
            payload = self._prepared(payload, headers)
        return await self._hand_over(topic, payload, receipt, timeout)

    async def _hand_over(
        self,
        topic: Topic,
        payload: bytes,
        receipt: bool,
        timeout: float | None,
        letter: Letter | None = None,
    ) -> ClientReceipt | None:
        """Publish a prepared message; with a `letter` it may be taken back."""
        if len(payload) > MAX_PAYLOAD:
            raise NotSent(topic, too_large(len(payload)))
        pipeline = self._shell.published
        if not isinstance(topic, str) or not pipeline.knows(topic):
            check_timeout("timeout", timeout)
            check_topic(topic)
        return await pipeline.publish(topic, payload, receipt, timeout, letter)

    def _prepared(self, payload: Payload, headers: Headers | None) -> bytes:
        """The bytes to send for a publication that is not just bytes."""
        if self._traced and type(payload) is not Headed:
            headers = tracing.added(headers)
        if headers:
            check_headers(headers)
            payload = pack(headers, encode_payload(payload))
        if type(payload) is not Headed:
            return encode_payload(payload)
        self._shell.published.headed = True
        return payload

    async def flush(self) -> None:
        """Return when the node has taken everything published so far.

        If the connection broke with publications under way it raises `Unknown`, or `NotSent` if
        none of them was sent.
        """
        await self._shell.published.flush()

    # -- reading ---------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: Topic,
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[Value] | None = None,
    ) -> RemoteSubscription[Value]:
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
        shell, replies = self._shell, self._requests.ref
        number, queue = shell.next_number(), queue_bytes or 0
        return RemoteSubscription(shell, number, topic, policy, queue, codec, replies)

    def _listener(
        self,
        topic: Topic,
        callback: Callback[Any],
        policy: Policy,
        queue_bytes: int | None,
        codec: Codec[Any] | None,
    ) -> Listener:
        subscription = self.subscribe(topic, policy=policy, queue_bytes=queue_bytes, codec=codec)
        return Listener(self._shell, subscription, callback, CALLBACK_S)

    # -- asking ----------------------------------------------------------------------------------

    def events(self) -> Events:
        """Members joining and leaving, our own slow subscriptions: an async iterator."""
        return self._shell.listen()

    async def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return await self._ask("members", "", dict[NodeId, str])

    async def view(self) -> tuple[int, list[NodeId]]:
        """The number of the view of its node (-1: none at present), and the slots it suspects."""
        return await self._ask("view", "", tuple[int, list[NodeId]])

    async def stats(self) -> Stats:
        """The numbers of our node, as of `Node.stats`; topics only if we may see them."""
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

    # -- the end ---------------------------------------------------------------------------------

    async def close(self, *, flush: bool = True) -> None:
        """End the connection, after the node has taken what was published."""
        await self._shell.close(flush)

    @property
    def closed(self) -> bool:
        """Whether the connection is over, for good."""
        return self._shell.closed


class ClientPost:
    """Sends one request of a client; it may be taken back until a node has it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._letter = Letter()

    async def send(self, topic: Topic, blob: Headed) -> None:
        """Publish the request."""
        payload = self._client._prepared(blob, None)
        await self._client._hand_over(topic, payload, False, None, self._letter)

    def withdraw(self) -> bool:
        """Take the request back; False if a node has it, or may have it."""
        if self._letter.parcel is None:
            return not self._letter.gone
        return self._client._shell.published.withdraw(self._letter)

    def why_waits(self) -> str:
        """What an unsent request waits for."""
        return "no node" if self._client._shell.published.held else "no credit"

    def was_unheard(self) -> bool:
        """False: a client would have to ask its node."""
        return False
