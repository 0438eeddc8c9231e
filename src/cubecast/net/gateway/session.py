"""A light client as its node sees it: one session per attached connection.

A session calls what an application at the node would call (`Node.subscribe`, `Node.publish`), so
the client's order is the node's: the node has delivered what it sends to the client, and what the
client publishes after that depends on it.

Bounds, whatever the client does or leaves undone:

1. Publications received and not taken by the node: one window and one packet (`WireError` beyond).
2. Sent and not read by the application: one window and one batch per subscription; what else comes
   waits in the node's subscription, where the client's policy applies.
3. What the network does not take from us: `BACKLOG` and one batch or answer, then we stop sending;
   `HARD_BACKLOG` and one answer, then we hang up.  A client that is silent for `client_silence_s`
   is gone.
4. While a client itself waits to publish, debts of its subscriptions are put off (`debts.py`), or
   two clients that publish while they read could wait for each other.
5. What its subscriptions hold, its publications that the node has not taken and an answer on its
   way are within its share (`budget.py`); so are those of all clients of the node.  Its topics are
   counted with those of all clients (`Guests.use_topic`).
6. When the session ends its queues are free at once, whatever still refers to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from cubecast.errors import CubecastError
from cubecast.net.events import Event, Returned, SlowSubscriber
from cubecast.net.gateway.budget import Share
from cubecast.net.gateway.line import BACKLOG
from cubecast.net.gateway.publications import Publications
from cubecast.net.gateway.questions import Questions
from cubecast.net.gateway.subscriptions import Subscriptions
from cubecast.net.links.connection import Connection
from cubecast.net.security.access import address_of, name_of
from cubecast.net.security.permissions import Identity
from cubecast.net.topics import check_topic, is_reply_topic
from cubecast.net.wire.clients import (
    LEAVING,
    Answered,
    Ask,
    CatchUp,
    Declined,
    Farewell,
    FromNode,
    Happened,
    Leaving,
    Listen,
    Moved,
    Ping,
    Pong,
    Publish,
    Read,
    Subscribe,
    Unsubscribe,
    decode_from_client,
    encode,
)
from cubecast.net.wire.packets import WireError
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

HARD_BACKLOG = 4 * BACKLOG
CONGESTED_POLL_S = 0.005
CATCH_UP_POLL_S = 0.1
CATCH_UP_S = 5.0
"""How long a client that comes from another node may wait for this one to catch up."""
MAX_TOPICS = 4096
"""Topics one client may publish or subscribe to by name while it is attached."""
MAX_REPLY_TOPICS = 1024
"""Of those, the reply topics that count, the newest: a service answers ever new clients."""


class Session:
    """One attached client."""

    def __init__(
        self, shell: Shell, connection: Connection, share: Share, movable: bool = False
    ) -> None:
        self._shell = shell
        self.share = share
        """What the client may make the node hold."""
        self._connection = connection
        self.who = Identity("client", name_of(connection))
        """The client, for permissions."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions = Subscriptions(self, shell)
        self._publications = Publications(self, shell, self._subscriptions)
        self._questions = Questions(self, shell)
        self._fresh = 0  # bytes sent in this tick, which are in no backlog yet
        self._listening = False
        self._movable = movable
        self.moving = False
        """Whether the client is on its way to another node, and is waited for."""
        self._catching_up = False
        self._topics: set[Topic] = set()
        self._reply_topics: deque[Topic] = deque()
        self._heard_at = self._loop.time()
        self._check_silence()
        self.ended = False

    # -- what the client says --------------------------------------------------------------------

    def received(self, raw: bytes, leaving: bool) -> None:
        """Carry out one packet; `WireError` ends the session.

        While the node is `leaving` nothing is begun, but what was begun goes on: the client reads
        and shows that it lives, or the node would wait for it in vain.
        """
        self._heard_at = self._loop.time()
        message = decode_from_client(raw)
        if leaving and not isinstance(message, Read | Unsubscribe | Ping | Moved):
            if isinstance(message, Publish):
                self.send(Declined(message.number, LEAVING, leaving=True))
            return
        match message:
            case Publish() as batch:
                self._publications.take(batch)
            case Read(number, size):
                self._subscriptions.read(number, size)
            case Subscribe() as request:
                self._subscriptions.begin(request)
            case Unsubscribe(number):
                self._subscriptions.end(number)
            case Ask() as question:
                self._questions.ask(question)
            case Listen() if not self._listening:
                self._listening = True
                self.spawn(self._tell_events())
            case Ping():
                self.send(Pong())
            case CatchUp() if not self._catching_up:
                self._catching_up = True
                self.spawn(self._catch_up(message))
            case Moved():
                self.moving = False
            case other:
                raise WireError(f"{type(other).__name__} out of turn")

    def announce_leave(self) -> None:
        """The node is to leave: a client that can go on elsewhere is told, and waited for."""
        if self._movable:
            self.moving = True
            self.send(Leaving())

    async def _catch_up(self, request: CatchUp) -> None:
        """Answer when this node has delivered what the client has read, but not too late.

        Streams whose publishers are gone, and topics that the node does not read, are not waited
        for: nothing more comes of those.
        """
        deadline = self._loop.time() + CATCH_UP_S
        left = [position for position in request.positions if self.may_see(position[0])]
        pause_s = CONGESTED_POLL_S
        while left := self._shell.subscribing.undelivered(left):
            if self._loop.time() >= deadline:
                log.info("%s has read what this node has not delivered", self._connection)
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, CATCH_UP_POLL_S)
        self._catching_up = False
        self.send(Answered(request.request, msgspec.Raw(msgspec.msgpack.encode(None))))

    def _check_silence(self) -> None:
        limit = self._shell.config.client_silence_s
        if self._loop.time() - self._heard_at > limit:
            self.hang_up(f"nothing heard for {limit:g} s")
        self._silence = self._loop.call_later(limit / 4, self._check_silence)

    # -- what the client hears -------------------------------------------------------------------

    def send(self, message: FromNode) -> None:
        """Send to the client, unless it does not read what it is sent: then hang up."""
        if self.ended:
            return
        if self._connection.backlog() > HARD_BACKLOG + self._questions.answer_bytes:
            self.hang_up("it does not read what it is sent")
            return
        packet = encode(message)
        self._connection.send(packet)
        if not self._fresh:
            self._loop.call_soon(self._tick)  # after what was sent is written
        self._fresh += len(packet)

    def _tick(self) -> None:
        self._fresh = 0

    def hang_up(self, reason: str) -> None:
        """End the connection at once."""
        log.warning("closing connection to a client, %s: %s", self._connection, reason)
        self._connection.close(reason)
        self._connection.abort()  # what it does not read would keep the connection open

    async def room(self) -> None:
        """Wait until the network has taken most of what was sent."""
        while self._connection.backlog() + self._fresh > BACKLOG:
            await asyncio.sleep(CONGESTED_POLL_S)

    def backlog(self) -> int:
        """Bytes that the network has not taken."""
        return self._connection.backlog()

    async def _tell_events(self) -> None:
        events = self._shell.node.events()
        try:
            async for event in events:
                if self._concerns(event):
                    await self.room()
                    self.send(Happened(event))
        finally:
            events.close()

    def moved(self, event: Returned) -> None:
        """The node is in the cluster again, perhaps in another slot: that concerns every client."""
        if not self._listening:
            self.send(Happened(event))

    def _concerns(self, event: Event) -> bool:
        """Whether to tell a client of an event: not of others' subscriptions and topics."""
        topic = getattr(event, "topic", None)
        return not isinstance(event, SlowSubscriber) and (topic is None or self.may_see(topic))

    # -- what the client may do ------------------------------------------------------------------

    def use_topic(self, topic: Topic) -> Topic:
        """A topic that the client names: its one copy; `CubecastError` if that is one too many."""
        if topic not in self._topics:
            check_topic(topic)  # what is no topic is not counted: nobody would forget it
            if is_reply_topic(topic):
                self._count_reply_topic(topic)
            if len(self._topics) >= MAX_TOPICS:
                raise CubecastError(f"a client may use {MAX_TOPICS} topics, not more")
        topic = self._shell.guests.use_topic(topic)
        self._topics.add(topic)
        return topic

    def _count_reply_topic(self, topic: Topic) -> None:
        """Forget the oldest reply topic if there is one too many."""
        self._reply_topics.append(topic)
        if len(self._reply_topics) > MAX_REPLY_TOPICS:
            oldest = self._reply_topics.popleft()
            self._topics.discard(oldest)
            self._publications.forget(oldest)
            self._shell.guests.drop_topics([oldest])

    def check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the client may not do that; the audit has it."""
        access = self._shell.access
        if access is not None:
            access.check(self.who, what, topic, address_of(self._connection))

    def may_see(self, topic: Topic) -> bool:
        """Whether the client may know of a topic."""
        access = self._shell.access
        return access is None or access.sees(self.who, topic)

    def check_again(self) -> None:
        """There are new permissions: end the subscriptions that they do not allow."""
        access = self._shell.access
        if access is not None:
            self._subscriptions.end_refused(
                lambda topic: access.refusal(self.who, "subscribe", topic)
            )

    # -- the end ---------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the session; if it fails, so does the session."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.watch(task)
        return task

    def watch(self, task: asyncio.Task[None]) -> None:
        """If a task fails, so does the session."""
        task.add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        """Whatever goes wrong with a client's wishes ends its session, and only that."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a client's session failed", exc_info=error)
            self.hang_up(f"its session failed: {error!r}")

    def farewell(self, reason: str) -> None:
        """The node ends the session."""
        self.send(Farewell(reason))
        self._connection.close(reason)

    def end(self) -> asyncio.Task[None] | None:
        """The connection is gone: stop everything but what was received whole."""
        self.ended = True
        self._silence.cancel()
        self._subscriptions.abandon()
        for task in self._tasks:
            task.cancel()
        if self.publishing is None:
            self.share.close()
        self._shell.guests.drop_topics(self._topics)
        return self.publishing

    @property
    def serving(self) -> list[asyncio.Task[None]]:
        """The tasks that send what is delivered, one a subscription."""
        return self._subscriptions.tasks

    @property
    def publishing(self) -> asyncio.Task[None] | None:
        """The task that hands publications to the node, while there are any."""
        return self._publications.task
