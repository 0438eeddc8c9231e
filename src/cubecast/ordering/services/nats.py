"""Order on a NATS server or cluster that you already run, through nats-py.

A member's inbox is the subject `cubecast.ordering.<name>`; topics are subjects as they are.
"""

from __future__ import annotations

from typing import Any

from cubecast.ordering.messages import Member
from cubecast.ordering.service import OnEvent, OnMessage, Promises
from cubecast.ordering.timestamps import Topic

INBOX = "cubecast.ordering."


class NatsService:
    """One member, with a connection of its own (`nats.aio.client.Client`)."""

    promises = Promises(loses_nothing=False, in_order=True)

    def __init__(self, name: Member, connection: Any) -> None:
        self.name = name
        self._connection = connection
        self._subscriptions: dict[Topic, Any] = {}
        self._inbox: Any = None
        self._on_event: OnEvent | None = None

    async def open(self, on_event: OnEvent, on_message: OnMessage) -> None:
        self._on_event = on_event

        async def take(message: Any) -> None:
            on_message(message.data)

        self._inbox = await self._connection.subscribe(INBOX + self.name, cb=take)
        await self._connection.flush()

    async def close(self) -> None:
        for subscription in (*self._subscriptions.values(), self._inbox):
            if subscription is not None:
                await subscription.unsubscribe()
        self._subscriptions.clear()

    async def publish(self, topic: Topic, data: bytes) -> None:
        await self._connection.publish(topic, data)

    async def subscribe(self, topic: Topic) -> None:
        if topic in self._subscriptions:
            return
        on_event = self._on_event
        assert on_event is not None

        async def take(message: Any) -> None:
            on_event(topic, message.data)

        self._subscriptions[topic] = await self._connection.subscribe(topic, cb=take)
        await self._connection.flush()  # the server knows it

    async def unsubscribe(self, topic: Topic) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            await subscription.unsubscribe()

    async def send(self, member: Member, data: bytes) -> None:
        await self._connection.publish(INBOX + member, data)
