"""A topic with a codec: what is published to it and read from it are values, not bytes."""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from cubecast.codecs import Codec, check_codec
from cubecast.net.checks import check_subscription
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.subscription import Policy, Subscription
from cubecast.net.wire.headers import Headers
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.client.client import Client
    from cubecast.net.client.publishing import ClientReceipt
    from cubecast.net.node.node import Node
    from cubecast.net.publishing.receipt import Receipt

T = TypeVar("T")


class TypedTopic(Generic[T]):
    """A topic, or a pattern, and the codec of its payloads; it belongs to no node.

    readings = cubecast.TypedTopic("sensors/hall", cubecast.codecs.json(Reading))
    await readings.publish(node, Reading(21.5))
    async with readings.subscribe(node) as messages: ...
    """

    def __init__(self, name: Topic, codec: Codec[T]) -> None:
        check_subscription(name, "block", 1)
        check_codec(codec)
        self.name = name
        self.codec = codec

    def __repr__(self) -> str:
        return f"TypedTopic({self.name!r}, {self.codec!r})"

    @overload
    async def publish(
        self,
        through: Node | Client,
        value: T,
        *,
        headers: Headers | None = None,
        receipt: Literal[False] = False,
        timeout: float | None = None,
        retain: bool = False,
    ) -> None: ...

    @overload
    async def publish(
        self,
        through: Node,
        value: T,
        *,
        headers: Headers | None = None,
        receipt: Literal[True],
        timeout: float | None = None,
        retain: bool = False,
    ) -> Receipt: ...

    @overload
    async def publish(
        self,
        through: Client,
        value: T,
        *,
        headers: Headers | None = None,
        receipt: Literal[True],
        timeout: float | None = None,
        retain: bool = False,
    ) -> ClientReceipt: ...

    def publish(
        self,
        through: Node | Client,
        value: T,
        *,
        headers: Headers | None = None,
        receipt: bool = False,
        timeout: float | None = None,
        retain: bool = False,
    ) -> Coroutine[Any, Any, Receipt | ClientReceipt | None]:
        """Publish a value through a node or a light client, as their `publish` does.

        Raises what that raises, and TypeError or ValueError if the codec does not take the value:
        then nothing was sent.
        """
        _refuse_facade(through)
        payload = self.codec.encode(value)
        return through.publish(
            self.name, payload, headers=headers, receipt=receipt, timeout=timeout, retain=retain
        )

    def clear(
        self, through: Node | Client, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, None]:
        """Remove the retained value of the topic; subscribers get a message that is `removed`."""
        _refuse_facade(through)
        return through.publish(self.name, b"", retain=True, timeout=timeout)

    @overload
    def subscribe(
        self, at: Node, *, policy: Policy = "block", queue_bytes: int | None = None
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self, at: Client, *, policy: Policy = "block", queue_bytes: int | None = None
    ) -> RemoteSubscription[T]: ...

    def subscribe(
        self, at: Node | Client, *, policy: Policy = "block", queue_bytes: int | None = None
    ) -> Subscription[T] | RemoteSubscription[T]:
        """Read values at a node or a light client: ``async with topic.subscribe(node)``."""
        _refuse_facade(at)
        return at.subscribe(self.name, policy=policy, queue_bytes=queue_bytes, codec=self.codec)

    def on(
        self,
        at: Node | Client,
        callback: Callback[T],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
    ) -> Listener:
        """Have `callback` called for each message: ``async with topic.on(node, callback)``."""
        _refuse_facade(at)
        return at.on(self.name, callback, policy=policy, queue_bytes=queue_bytes, codec=self.codec)


def _refuse_facade(through: Node | Client) -> None:
    """TypeError for objects of `cubecast.sync`: a coroutine that is never awaited sends nothing."""
    if not iscoroutinefunction(through.publish):
        raise TypeError(
            f"a TypedTopic needs an asynchronous node or client, not {type(through).__name__} of "
            f"{type(through).__module__}: with cubecast.sync, publish(topic.name, "
            "topic.codec.encode(value)) and subscribe(topic.name, codec=topic.codec)"
        )
