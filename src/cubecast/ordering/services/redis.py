"""Order on a Redis server that you already run, through its Pub/Sub and redis-py.

A member's inbox is the channel `cubecast.ordering.<name>`; topics are channels as they are.

Publications and messages of a member go in one order: all that have gathered are written at once,
and the next lot when the server has answered.  So a publisher does not wait a round trip for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from cubecast.ordering.messages import Member
from cubecast.ordering.service import OnEvent, OnFailure, OnMessage, Promises
from cubecast.ordering.services.names import INBOX, check_name
from cubecast.ordering.timestamps import Topic

POLL_S = 1.0
"""How long a read waits for the next message; nothing is lost between two reads."""
MAX_GATHERED = 4096
"""Messages that wait to be written; `publish` waits above that."""
LARGEST = 64 * 1024 * 1024
"""A subscriber's part of the server's memory is bounded; Redis itself takes 512 MB."""


class RedisService:
    """One member, with a client of its own (`redis.asyncio.Redis`)."""

    promises = Promises(loses_nothing=False, in_order=True)
    largest = LARGEST

    def __init__(self, name: Member, client: Any) -> None:
        check_name(name)
        if client.connection_pool.connection_kwargs.get("decode_responses"):
            raise ValueError("events are bytes: make the client without decode_responses=True")
        self.name = name
        self._client = client
        self._channels: Any = None
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._confirmed: dict[str, asyncio.Event] = {}
        self._gathered: list[tuple[str, bytes]] = []
        self._writing = False
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._failure: Exception | None = None
        self._on_event: OnEvent | None = None
        self._on_message: OnMessage | None = None
        self._on_failure: OnFailure | None = None

    def check_topic(self, topic: Topic) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"a channel must be a str, not {type(topic).__name__}")
        if not topic:
            raise ValueError("a channel must not be empty")
        try:
            topic.encode()
        except UnicodeEncodeError:
            raise ValueError(f"a channel must be valid Unicode, not {topic!r}") from None
        if topic.startswith(INBOX):
            raise ValueError(f"{topic!r} is an inbox: only ordering modules use it")

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        self._on_event, self._on_message, self._on_failure = on_event, on_message, on_failure
        self._channels = self._client.pubsub()
        await self._channels.subscribe(INBOX + self.name)
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._write())]
        await self._confirm(INBOX + self.name)

    async def close(self) -> None:
        """End all subscriptions; the client is the caller's."""
        self._closing = True  # the client's timeout may swallow a cancellation
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._channels is not None:
            await self._channels.aclose()

    async def publish(self, topic: Topic, data: bytes) -> None:
        await self._gather(topic, data)

    async def flush(self) -> None:
        while (self._gathered or self._writing) and self._failure is None:
            self._room.clear()
            await self._room.wait()
        self._check()

    async def send(self, member: Member, data: bytes) -> None:
        await self._gather(INBOX + member, data)

    async def subscribe(self, topic: Topic) -> None:
        await self._channels.subscribe(topic)
        await self._confirm(topic)

    async def unsubscribe(self, topic: Topic) -> None:
        self._confirmed.pop(topic, None)
        await self._channels.unsubscribe(topic)

    async def _confirm(self, channel: str) -> None:
        """Wait until the server confirms a subscription."""
        await self._confirmed.setdefault(channel, asyncio.Event()).wait()
        self._check()

    # -- out ---------------------------------------------------------------------------------------

    async def _gather(self, channel: str, data: bytes) -> None:
        while len(self._gathered) >= MAX_GATHERED and self._failure is None:
            self._room.clear()
            await self._room.wait()
        self._check()
        self._gathered.append((channel, data))
        self._something.set()

    async def _write(self) -> None:
        try:
            while not self._closing:
                await self._something.wait()
                self._something.clear()
                gathered, self._gathered = self._gathered, []
                self._writing = True
                pipeline = self._client.pipeline(transaction=False)
                for channel, data in gathered:
                    pipeline.publish(channel, data)
                await pipeline.execute()
                self._writing = False
                self._room.set()
        except Exception as error:
            self._fail(error)

    # -- in ----------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while not self._closing:
                message = await self._channels.get_message(timeout=POLL_S)
                full = None if message is None else self._take(message)
                if full is not None:
                    await full
        except Exception as error:
            self._fail(error)

    def _take(self, message: dict[str, Any]) -> Awaitable[None] | None:
        kind = message["type"]
        if kind not in ("message", "subscribe"):
            return None
        channel = message["channel"].decode()
        if kind == "subscribe":
            self._confirmed.setdefault(channel, asyncio.Event()).set()
        elif channel == INBOX + self.name:
            assert self._on_message is not None
            self._on_message(message["data"])
        else:
            assert self._on_event is not None
            return self._on_event(channel, message["data"])
        return None

    # -- failures ----------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Report to all that wait that the server is gone and did not come back."""
        self._failure = error
        for event in (self._room, *self._confirmed.values()):
            event.set()
        assert self._on_failure is not None
        self._on_failure(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
