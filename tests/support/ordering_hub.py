"""An event service in memory, whose faults a test chooses; and the least that an adapter has."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from cubecast.ordering.service import OnEvent, OnFailure, OnMessage, Promises


class Hub:
    """What all members share: it brings events one by one, each topic in a task of its own."""

    def __init__(self, *, loses_nothing: bool = True) -> None:
        self.promises = Promises(loses_nothing, in_order=True)
        self.members: dict[str, HubService] = {}
        self.held: dict[str, list[bytes]] = {}
        """Topics that bring nothing for now, and what was published in them."""
        self.stopped: set[str] = set()
        """Topics that take nothing: who publishes waits."""
        self.deaf: set[str] = set()
        """Members that take no messages: who sends to them waits."""
        self.held_up: set[str] = set()
        """Members that have waited to send."""

    def publish(self, topic: str, data: bytes) -> None:
        if topic in self.held:
            self.held[topic].append(data)
            return
        for member in self.members.values():
            if topic in member.queues:
                member.queues[topic].append(data)
                member.something[topic].set()


class HubService:
    """One member."""

    largest = 1024 * 1024

    def __init__(self, name: str, hub: Hub) -> None:
        self.name = name
        self.promises = hub.promises
        self._hub = hub
        self.queues: dict[str, deque[bytes]] = {}
        self.something: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def check_topic(self, topic: str) -> None:
        if not topic:
            raise ValueError("a topic must not be empty")

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        self._on_event, self._on_message, self.fail = on_event, on_message, on_failure
        self._hub.members[self.name] = self

    async def close(self) -> None:
        if self._hub.members.get(self.name) is self:
            del self._hub.members[self.name]
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def publish(self, topic: str, data: bytes) -> None:
        while topic in self._hub.stopped:
            await asyncio.sleep(0)
        self._hub.publish(topic, data)

    async def flush(self) -> None: ...

    async def subscribe(self, topic: str) -> None:
        if topic not in self.queues:
            self.queues[topic], self.something[topic] = deque(), asyncio.Event()
            self._tasks.append(asyncio.create_task(self._read(topic)))

    async def unsubscribe(self, topic: str) -> None:
        self.queues.pop(topic, None)

    async def send(self, member: str, data: bytes) -> None:
        while member in self._hub.deaf:
            self._hub.held_up.add(self.name)
            await asyncio.sleep(0)
        to = self._hub.members.get(member)
        if to is not None:
            asyncio.get_running_loop().call_soon(to._on_message, data)

    async def _read(self, topic: str) -> None:
        while topic in self.queues:
            while self.queues[topic]:
                full = self._on_event(topic, self.queues[topic].popleft())
                if full is not None:
                    await full
            self.something[topic].clear()
            await self.something[topic].wait()
