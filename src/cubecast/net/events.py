"""What a node tells its application besides messages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

import msgspec

from cubecast.protocol.port import NodeId, Topic

KEPT = 1000
"""Events an iterator keeps if nobody reads it; older ones are dropped first."""


class MemberJoined(msgspec.Struct, frozen=True, tag=True):
    """A node joined the cluster."""

    slot: NodeId
    address: str


class MemberLeft(msgspec.Struct, frozen=True, tag=True):
    """A node left the cluster."""

    slot: NodeId


class ConnectionLost(msgspec.Struct, frozen=True, tag=True):
    """The connection to a member broke; it is dialled again when there is something to send."""

    slot: NodeId
    reason: str


class SlowSubscriber(msgspec.Struct, frozen=True, tag=True):
    """A subscription's queue is full and its policy acts; `dropped` counts since it began."""

    topic: Topic
    policy: str
    dropped: int


Event: TypeAlias = MemberJoined | MemberLeft | ConnectionLost | SlowSubscriber


class Events:
    """An async iterator over events from now on."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._news = asyncio.Event()
        self.closed = False
        self._error: Exception | None = None

    def put(self, event: Event) -> None:
        """Something happened."""
        self._kept.append(event)
        self._news.set()

    def close(self, error: Exception | None = None) -> None:
        """Nothing more will be told; with `error`, who reads on is told why."""
        self.closed = True
        self._error = error
        self._news.set()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        while not self._kept:
            if self.closed:
                raise self._error or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._kept.popleft()
