"""Order on a NATS server or cluster that you already run, through nats-py.

A member's inbox is the subject `cubecast.ordering.<name>`; topics are subjects as they are.
"""

from __future__ import annotations

from typing import Any

from cubecast.ordering.messages import Member
from cubecast.ordering.service import OnEvent, OnFailure, OnMessage, Promises
from cubecast.ordering.services.names import INBOX, check_name
from cubecast.ordering.timestamps import Topic

WILDCARDS = ("*", ">")


class NatsService:
    """One member, with a connection of its own (`nats.aio.client.Client`)."""

    promises = Promises(loses_nothing=False, in_order=True)

    def __init__(self, name: Member, connection: Any) -> None:
        check_name(name)
        self.name = name
        self._connection = connection
        self._subscriptions: dict[Topic, Any] = {}
        self._inbox: Any = None
        self._on_event: OnEvent | None = None

    @property
    def largest(self) -> int:
        return int(self._connection.max_payload)

    def check_topic(self, topic: Topic) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"a subject must be a str, not {type(topic).__name__}")
        parts = topic.split(".")
        if not all(parts) or any(sign.isspace() or sign == "\0" for sign in topic):
            raise ValueError(f"a subject is words between dots, without spaces, not {topic!r}")
        if any(part in WILDCARDS for part in parts):
            raise ValueError(f"{topic!r} has a wildcard: order is kept between topics with names")
        if topic.startswith(INBOX):
            raise ValueError(f"{topic!r} is an inbox: only ordering modules use it")

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        self._on_event = on_event

        async def take(message: Any) -> None:
            on_message(message.data)

        self._inbox = await self._connection.subscribe(INBOX + self.name, cb=take)
        await self._connection.flush()

    async def close(self) -> None:
        """End all subscriptions; the connection is the caller's."""
        if not self._connection.is_closed:
            for subscription in (*self._subscriptions.values(), self._inbox):
                if subscription is not None:
                    await subscription.unsubscribe()
        self._subscriptions.clear()

    async def publish(self, topic: Topic, data: bytes) -> None:
        await self._connection.publish(topic, data)

    async def flush(self) -> None:
        await self._connection.flush()

    async def subscribe(self, topic: Topic) -> None:
        if topic in self._subscriptions:
            return
        on_event = self._on_event
        assert on_event is not None

        async def take(message: Any) -> None:
            full = on_event(topic, message.data)
            if full is not None:
                await full

        self._subscriptions[topic] = await self._connection.subscribe(topic, cb=take)
        await self._connection.flush()  # until the server has the subscription

    async def unsubscribe(self, topic: Topic) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            await subscription.unsubscribe()

    async def send(self, member: Member, data: bytes) -> None:
        await self._connection.publish(INBOX + member, data)
