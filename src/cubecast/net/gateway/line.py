"""The connection to one light client of a node: what the parts of its session share.

It refers to no part of the session, so that all memory is free when the session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from cubecast.errors import CubecastError, NotAllowed
from cubecast.net.gateway.budget import Share, client_of
from cubecast.net.links.connection import Connection
from cubecast.net.security.access import address_of, name_of
from cubecast.net.security.permissions import Identity
from cubecast.net.topics import check_topic, is_reply_topic
from cubecast.net.wire.clients import FromNode, clipped, encode
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

BACKLOG = 1024 * 1024
"""Bytes sent to a client and not taken by the network: beyond that the node waits."""
HARD_BACKLOG = 4 * BACKLOG
CONGESTED_POLL_S = 0.005
MAX_TOPICS = 4096
"""Topics one client may publish or subscribe to by name while it is attached."""
MAX_REPLY_TOPICS = 1024
"""Reply topics that count in `MAX_TOPICS`, the newest: a service answers ever new clients."""


class Line:
    """One client's connection, share, tasks and topics."""

    def __init__(self, shell: Shell, connection: Connection, share: Share) -> None:
        self._shell = shell
        self.connection = connection
        self.share = share
        """What the node holds for the client."""
        self.who = Identity("client", name_of(connection))
        """The client, for permissions."""
        self._client = client_of(self.who.name, address_of(connection))
        self.answer_bytes = 0
        """Bytes of the answer that is on its way."""
        self.ended = False
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks that end with the session."""
        self.topics: set[Topic] = set()
        """Topics that the client has named."""
        self.taken: set[Topic] = set()
        """Topics of which the node has taken a publication."""
        self._reply_topics: deque[Topic] = deque()
        self._fresh = 0  # bytes sent in this tick, which are in no backlog yet
        self._loop = asyncio.get_running_loop()

    # -- what the client hears -------------------------------------------------------------------

    def send(self, message: FromNode) -> None:
        """Send to the client; if it does not read, hang up instead."""
        if self.ended:
            return
        if self.connection.backlog() > HARD_BACKLOG + self.answer_bytes:
            self.hang_up("it does not read what it is sent")
            return
        packet = encode(message)
        self.connection.send(packet)
        if not self._fresh:
            self._loop.call_soon(self._tick)  # after what was sent is written
        self._fresh += len(packet)

    def _tick(self) -> None:
        self._fresh = 0

    def hang_up(self, reason: str) -> None:
        """End the connection at once."""
        log.warning("closing connection to a client, %s: %s", self.connection, reason)
        self.connection.close(reason)
        self.connection.abort()  # what it does not read would keep the connection open

    async def room(self) -> None:
        """Wait until the network has taken most of what was sent."""
        while self.connection.backlog() + self._fresh > BACKLOG:
            await asyncio.sleep(CONGESTED_POLL_S)

    def backlog(self) -> int:
        """Bytes that the network has not taken."""
        return self.connection.backlog()

    # -- what the client may do ------------------------------------------------------------------

    def use_topic(self, topic: Topic) -> Topic:
        """Count a topic that the client names; return its one copy; `CubecastError` if too many."""
        if topic not in self.topics:
            check_topic(topic)  # an invalid name is not counted: the node would never forget it
            if is_reply_topic(topic):
                self._count_reply_topic(topic)
            if len(self.topics) >= MAX_TOPICS:
                raise CubecastError(f"a client may use {MAX_TOPICS} topics, not more")
        topic = self._shell.guests.topics.use(topic, self._client)
        self.topics.add(topic)
        return topic

    def _count_reply_topic(self, topic: Topic) -> None:
        """Forget the oldest reply topic if there is one too many."""
        self._reply_topics.append(topic)
        if len(self._reply_topics) > MAX_REPLY_TOPICS:
            oldest = self._reply_topics.popleft()
            self.topics.discard(oldest)
            self.taken.discard(oldest)
            self._shell.guests.drop_topics([oldest])

    def check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed`, and a line in the audit log, if the client may not do `what`."""
        access = self._shell.access
        if access is not None:
            access.check(self.who, what, topic, address_of(self.connection))

    def may_see(self, topic: Topic) -> bool:
        """Whether the client may know of a topic."""
        access = self._shell.access
        return access is None or access.sees(self.who, topic)

    # -- tasks -----------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with the session; if it fails, so does the session."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        self.watch(task)
        return task

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the session if a task fails."""
        task.add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        """End the session of the client, and only that, if a task failed."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a client's session failed", exc_info=error)
            self.hang_up(f"its session failed: {error!r}")


def why(error: Exception) -> tuple[str, bool]:
    """The reason that a client is told for an error, and whether it was not allowed."""
    if isinstance(error, NotAllowed):
        return clipped(error.reason), True
    return clipped(error), False
