"""Order across topics on cubecast itself: causal order within a topic stays, and nothing is lost.

A member's inbox is the topic `$cubecast.ordering.<name>`, which that member alone subscribes to: no
pattern that begins with a wildcard matches it.  An unread inbox drops messages rather than hold up
their senders, because modules repeat messages without an answer.  Events do hold up their
publishers: each topic is read by a task of its own, at the pace of the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from cubecast.errors import Closed
from cubecast.net.topics import check_topic
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.ordering.messages import Member
from cubecast.ordering.service import OnEvent, OnFailure, OnMessage, Promises
from cubecast.ordering.services.names import INBOX, check_name
from cubecast.ordering.timestamps import Topic

if TYPE_CHECKING:
    from cubecast.net.node.node import Node
    from cubecast.net.reading.subscription import Subscription

HIDDEN = "$" + INBOX
FOR_EVER_S = 1e9
"""An event that has its stamp waits for credit: without it, others would wait in vain."""
_members: WeakKeyDictionary[Node, set[Member]] = WeakKeyDictionary()
"""The open members at each node."""
Take: TypeAlias = "Callable[[Subscription], Awaitable[None]]"


def members_at(node: Node) -> set[Member]:
    """The names of the open members at a node."""
    return _members.setdefault(node, set())


class SubscriptionReader:
    """A subscription and the task that reads it."""

    def __init__(self, subscription: Subscription, task: asyncio.Task[None]) -> None:
        self._subscription = subscription
        self._task = task

    @classmethod
    async def begin(
        cls, subscription: Subscription, take: Take, on_failure: OnFailure
    ) -> SubscriptionReader:
        """Enter a subscription, and read it until it ends; report a failure."""

        async def read() -> None:
            try:
                await take(subscription)
                on_failure(Closed("the node is closed"))
            except Exception as error:
                on_failure(error)

        await subscription.__aenter__()
        return cls(subscription, asyncio.create_task(read()))

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._subscription.close()


class CubecastService:
    """One member at a live node; several members of one node need different names."""

    promises = Promises(loses_nothing=True, in_order=True)
    largest = MAX_PAYLOAD

    def __init__(self, name: Member, node: Node) -> None:
        check_name(name)
        self.name = name
        self._node = node
        members_at(node).add(name)
        self._reading: dict[Topic, SubscriptionReader] = {}
        self._inbox: SubscriptionReader | None = None
        self._on_event: OnEvent | None = None
        self._on_failure: OnFailure | None = None

    def check_topic(self, topic: Topic) -> None:
        check_topic(topic)
        if topic.startswith(HIDDEN):
            raise ValueError(f"{topic!r} is an inbox: only ordering modules use it")

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        self._on_event, self._on_failure = on_event, on_failure

        async def take(subscription: Subscription) -> None:
            while messages := await subscription.batch():
                for message in messages:
                    on_message(message.payload)

        inbox = self._node.subscribe(HIDDEN + self.name, policy="drop-oldest")
        self._inbox = await SubscriptionReader.begin(inbox, take, on_failure)

    async def close(self) -> None:
        """End all subscriptions; the node is the caller's."""
        readings = [*self._reading.values(), *([self._inbox] if self._inbox else [])]
        self._reading.clear()
        members_at(self._node).discard(self.name)
        for reading in readings:
            await reading.end()

    async def publish(self, topic: Topic, data: bytes) -> None:
        await self._node.publish(topic, data, timeout=FOR_EVER_S)

    async def flush(self) -> None:
        """Do nothing: a node sends accepted messages before it leaves."""

    async def send(self, member: Member, data: bytes) -> None:
        await self._node.publish(HIDDEN + member, data, timeout=FOR_EVER_S)

    async def subscribe(self, topic: Topic) -> None:
        if topic in self._reading:
            return
        on_event, on_failure = self._on_event, self._on_failure
        assert on_event is not None
        assert on_failure is not None

        async def take(subscription: Subscription) -> None:
            while messages := await subscription.batch():
                for message in messages:
                    full = on_event(topic, message.payload)
                    if full is not None:
                        await full

        self._reading[topic] = await SubscriptionReader.begin(
            self._node.subscribe(topic), take, on_failure
        )

    async def unsubscribe(self, topic: Topic) -> None:
        reading = self._reading.pop(topic, None)
        if reading is not None:
            await reading.end()
