"""A node and a light client with calls that wait, for scripts, notebooks and threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from cubecast import Message, topology
from cubecast.codecs import Codec
from cubecast.net.client.client import Client as AsyncClient
from cubecast.net.client.publishing import ClientReceipt
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import Event
from cubecast.net.message import HandedOut, T_co, Value
from cubecast.net.node.node import Node as AsyncNode
from cubecast.net.node.stats import Stats
from cubecast.net.publishing.receipt import Receipt as AsyncReceipt
from cubecast.net.reading.subscription import READS
from cubecast.net.reading.subscription import Subscription as AsyncSubscription
from cubecast.net.requests.requests import TIMEOUT_S
from cubecast.net.topics import Payload
from cubecast.net.wire.headers import Headers
from cubecast.net.wire.packets import content_size
from cubecast.protocol.port import NodeId, Topic
from cubecast.sync.reading import Reader
from cubecast.sync.session import SessionThread

A = TypeVar("A", bound=AsyncNode | AsyncClient)
F = TypeVar("F", bound="Facade[Any]")
T = TypeVar("T")


class Receipt:
    """What is known of a publication; handed out by ``publish(..., receipt=True)``."""

    def __init__(self, session: SessionThread[Any], receipt: AsyncReceipt | ClientReceipt) -> None:
        self._session = session
        self._receipt = receipt
        self.topic = receipt.topic

    @property
    def is_stable(self) -> bool:
        """Whether every subscriber has taken the message in, without waiting."""
        return self._receipt.is_stable

    def stable(self, timeout: float | None = None) -> None:
        """Wait until every subscriber has taken the message in, at most `timeout` seconds.

        Raises what the receipt of a node or client does: `NotSent`, or `Unknown`.
        """
        self._session.call(self._receipt.stable(timeout))


class Subscription(Reader[Message[T_co]], Generic[T_co]):
    """The messages of a topic, or of a pattern: ``for message in client.subscribe(topic)``.

    It is subscribed when it is made.  Close it, or use it as a context manager, to end it; one that
    the application has let go of, as after ``break`` in a loop over ``client.subscribe(...)``, ends
    by itself.
    """

    def __init__(
        self,
        session: SessionThread[Any],
        source: AsyncSubscription[T_co] | RemoteSubscription[T_co],
        timeout: float | None,
        last: threading.local,
    ) -> None:
        session.call(_enter(source), timeout)
        super().__init__(session, source, f"subscription to {source.topic!r}", timeout, _size_of)
        self._source = source
        self._last = last
        self.topic = source.topic

    @property
    def dropped(self) -> int:
        """Messages that its policy has dropped, or that never came to the node."""
        return self._source.dropped

    @property
    def missed(self) -> int:
        """Messages that never came: the node was away, or the client had no node, or another."""
        return self._source.missed

    def _next(self, timeout: float | None) -> Message[T_co]:
        message = super()._next(timeout)
        self._last.read = weakref.ref(self._source)
        return message


class Facade(Generic[A]):
    """What nodes and clients have in common; a context manager that closes at its end."""

    def __init__(self, session: SessionThread[A]) -> None:
        self._session = session
        self._inner = session.value
        self._last = threading.local()
        """The subscription that each thread has read last: while the thread publishes it does
        not read, and publishers must not wait for that."""
        self._finalizer = weakref.finalize(self, session.leave)

    def __repr__(self) -> str:
        return f"<cubecast.sync {self._inner!r}>"

    def __enter__(self: F) -> F:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(abandon=error is not None)

    def close(self) -> None:
        """Close it as leaving the ``async with`` of its kind does, and raise what that raises."""
        self._close(abandon=False)

    def _close(self, *, abandon: bool) -> None:
        self._finalizer.detach()
        self._session.close(abandon=abandon)

    @property
    def closed(self) -> bool:
        """Whether nothing can be called any more."""
        return self._session.over

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine where the node or client lives: ``c.run(c.inner.members())``."""
        return self._session.call(work, timeout)

    @property
    def inner(self) -> A:
        """The asynchronous node or client; its methods belong to its own thread: see `run`."""
        return self._inner

    def subscribe(
        self,
        topic: Topic,
        *,
        timeout: float | None = None,
        codec: Codec[Value] | None = None,
        **options: Any,
    ) -> Subscription[Value]:
        """Subscribe, and return when everything published from then on will be delivered.

        With a `codec`, `Message.value` is what it makes of the payload.  `options` are the others
        of the asynchronous `subscribe` (`policy`, `queue_bytes`).  `timeout` is how many seconds
        subscribing may take, and then each message: `TimeoutError` if it is more.
        """
        source = self.run(_made(self._inner, topic, {"codec": codec, **options}))
        return Subscription(self._session, source, timeout, self._last)

    @overload
    def publish(
        self, topic: Topic, payload: Payload, *, receipt: Literal[True], **options: Any
    ) -> Receipt: ...

    @overload
    def publish(
        self, topic: Topic, payload: Payload, *, receipt: Literal[False] = ..., **options: Any
    ) -> None: ...

    def publish(
        self, topic: Topic, payload: Payload, *, receipt: bool = False, **options: Any
    ) -> Receipt | None:
        """Publish one message; it waits, and raises, as the asynchronous `publish` does.

        `options` are those of the asynchronous `publish`, such as `timeout`.
        """
        last = getattr(self._last, "read", None)
        reads = None if last is None else last()
        work = _publish(self._inner, reads, topic, payload, receipt, options)
        known = self._session.call(work)
        return None if known is None else Receipt(self._session, known)

    def request(
        self,
        topic: Topic,
        payload: Payload = b"",
        *,
        headers: Headers | None = None,
        timeout: float = TIMEOUT_S,
        codec: Codec[Value] | None = None,
    ) -> Message[Value]:
        """Publish a request and return the first answer, as the asynchronous `request` does."""
        work = self._inner.requests.request(topic, payload, headers, timeout, codec)
        return self.run(work)

    def reply(self, request: Message[Any], payload: Payload, **options: Any) -> None:
        """Answer a message that wants a reply (`Message.reply`)."""
        self.run(_reply(request, payload, options))

    def reply_error(self, request: Message[Any], text: str) -> None:
        """Refuse a message that wants a reply (`Message.reply_error`)."""
        self.run(_reply_error(request, text))

    def events(self, *, timeout: float | None = None) -> Reader[Event]:
        """Members joining and leaving, slow subscribers and the like, from now on.

        `TimeoutError` if none comes in `timeout` seconds.
        """
        return Reader(self._session, self.run(_events(self._inner)), "iterator of events", timeout)

    def members(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return self.run(_members(self._inner))

    def topics(self) -> dict[Topic, list[NodeId]]:
        """The topics of the cluster, and the slots subscribed to each."""
        return self.run(self._inner.topics())

    def subscribers(self, topic: Topic) -> list[NodeId]:
        """The slots subscribed to a topic."""
        return self.run(self._inner.subscribers(topic))

    def explain(self, topic: Topic) -> Mapping[str, object]:
        """What the node knows of a topic, and what waits for what."""
        return self.run(_explain(self._inner, topic))

    def stats(self) -> Stats:
        """A reading of the numbers of the node, or of the node that a client is attached to."""
        return self.run(_stats(self._inner))

    @property
    def slot(self) -> NodeId:
        """The slot of the node, or of the node that a client is attached to."""
        return self._inner.slot

    @property
    def address(self) -> str:
        """The address of the node, or of the node that a client is attached to."""
        return self._inner.address


class Node(Facade[AsyncNode]):
    """A member of a cluster; made by `cubecast.sync.start` and `cubecast.sync.join`."""


class Client(Facade[AsyncClient]):
    """A light client; made by `cubecast.sync.connect`."""

    def flush(self, timeout: float | None = None) -> None:
        """Return when the node has taken everything published so far.

        Raises what the asynchronous `flush` does, and `TimeoutError` after `timeout` seconds.
        """
        self._session.call(self._inner.flush(), timeout)

    def tree(self, topic: Topic, root: NodeId | None = None) -> topology.Tree:
        """The tree that a publication of node `root` (else: ours) to `topic` would take now."""
        return self._session.call(self._inner.tree(topic, root))


# -- in the loop -----------------------------------------------------------------------------------


async def _made(
    inner: AsyncNode | AsyncClient, topic: Topic, options: dict[str, Any]
) -> AsyncSubscription[Any] | RemoteSubscription[Any]:
    source: object = inner.subscribe(topic, **options)
    if not isinstance(source, AsyncSubscription | RemoteSubscription):
        raise ValueError("order='total' has no synchronous form: use cubecast.ordered, with async")
    source.replies = HandedOut(inner.requests)
    return source


async def _enter(source: AsyncSubscription[Any] | RemoteSubscription[Any]) -> None:
    await source.__aenter__()


async def _publish(
    inner: AsyncNode | AsyncClient,
    reads: AsyncSubscription | RemoteSubscription | None,
    topic: Topic,
    payload: Payload,
    receipt: bool,
    options: dict[str, Any],
) -> AsyncReceipt | ClientReceipt | None:
    if isinstance(reads, AsyncSubscription) and reads.policy == "block":
        READS.set(reads)
    return await inner.publish(topic, payload, receipt=receipt, **options)


async def _reply(request: Message[Any], payload: Payload, options: dict[str, Any]) -> None:
    await request.reply(payload, **options)


async def _reply_error(request: Message[Any], text: str) -> None:
    await request.reply_error(text)


async def _events(inner: AsyncNode | AsyncClient) -> Any:
    return inner.events()


async def _members(inner: AsyncNode | AsyncClient) -> dict[NodeId, str]:
    return inner.members if isinstance(inner, AsyncNode) else await inner.members()


async def _explain(inner: AsyncNode | AsyncClient, topic: Topic) -> Mapping[str, object]:
    return inner.explain(topic) if isinstance(inner, AsyncNode) else await inner.explain(topic)


async def _stats(inner: AsyncNode | AsyncClient) -> Stats:
    return inner.stats() if isinstance(inner, AsyncNode) else await inner.stats()


def _size_of(message: Message[Any]) -> int:
    """The size of a message: its part of the frame, also if the payload was decoded."""
    return content_size(message.frame) // len(message.frame.body)
