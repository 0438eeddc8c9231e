"""What the parts of a light client's session need of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from cubecast.errors import NotAllowed
from cubecast.net.gateway.budget import Share
from cubecast.net.wire.clients import FromNode, clipped
from cubecast.protocol.port import Topic

BACKLOG = 1024 * 1024
"""Sent to a client and not taken by the network: beyond that the node waits."""


class Line(Protocol):
    """The way to one client, and what it may do."""

    ended: bool
    share: Share

    def send(self, message: FromNode) -> None: ...
    async def room(self) -> None:
        """Wait until the network has taken most of what was sent."""

    def backlog(self) -> int:
        """Bytes that the network has not taken."""

    def hang_up(self, reason: str) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the session; if it fails, so does the session."""

    def watch(self, task: asyncio.Task[None]) -> None:
        """If a task fails, so does the session."""

    def use_topic(self, topic: Topic) -> Topic:
        """The node's one copy of a topic's name; `CubecastError` if there are too many."""

    def check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the client may not do that; the audit has it."""

    def may_see(self, topic: Topic) -> bool: ...


def why(error: Exception) -> tuple[str, bool]:
    """What a client is told of what was not done: why, and whether it was not allowed."""
    if isinstance(error, NotAllowed):
        return clipped(error.reason), True
    return clipped(error), False
