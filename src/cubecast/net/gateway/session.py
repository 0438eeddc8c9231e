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
from typing import TYPE_CHECKING

import msgspec

from cubecast.net.events import Event, Returned, SlowSubscriber
from cubecast.net.gateway.budget import Share
from cubecast.net.gateway.line import CONGESTED_POLL_S, Line
from cubecast.net.gateway.publications import Publications
from cubecast.net.gateway.questions import SessionQuestions
from cubecast.net.gateway.subscriptions import Subscriptions
from cubecast.net.links.connection import Connection
from cubecast.net.security.permissions import Identity
from cubecast.net.wire.clients import (
    LEAVING,
    Answered,
    Ask,
    CatchUp,
    Declined,
    Farewell,
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
)
from cubecast.net.wire.packets import WireError

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

CATCH_UP_POLL_S = 0.1
CATCH_UP_S = 5.0
"""How long a client that comes from another node may wait for this one to catch up."""


class Session:
    """One attached client."""

    def __init__(
        self, shell: Shell, connection: Connection, share: Share, movable: bool = False
    ) -> None:
        self._shell = shell
        self._line = line = Line(shell, connection, share)
        self._loop = asyncio.get_running_loop()
        self._subscriptions = Subscriptions(line, shell)
        self._publications = Publications(line, shell, self._subscriptions)
        self._questions = SessionQuestions(line, shell)
        self._listening = False
        self._movable = movable
        self.moving = False
        """Whether the client is on its way to another node, and is waited for."""
        self._catching_up = False
        self._heard_at = self._loop.time()
        self._check_silence()

    @property
    def who(self) -> Identity:
        """The client, for permissions."""
        return self._line.who

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
                self._line.send(Declined(message.number, LEAVING, leaving=True))
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
                self._line.spawn(self._tell_events())
            case Ping():
                self._line.send(Pong())
            case CatchUp() if not self._catching_up:
                self._catching_up = True
                self._line.spawn(self._catch_up(message))
            case Moved():
                self.moving = False
            case other:
                raise WireError(f"{type(other).__name__} out of turn")

    def announce_leave(self) -> None:
        """The node is to leave: a client that can go on elsewhere is told, and waited for."""
        if self._movable:
            self.moving = True
            self._line.send(Leaving())

    async def _catch_up(self, request: CatchUp) -> None:
        """Answer when this node has delivered what the client has read, but not too late.

        Streams whose publishers are gone, and topics that the node does not read, are not waited
        for: nothing more comes of those.
        """
        deadline = self._loop.time() + CATCH_UP_S
        left = [position for position in request.positions if self._line.may_see(position[0])]
        pause_s = CONGESTED_POLL_S
        while left := self._shell.subscribing.undelivered(left):
            if self._loop.time() >= deadline:
                log.info("%s has read what this node has not delivered", self._line.connection)
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, CATCH_UP_POLL_S)
        self._catching_up = False
        self._line.send(Answered(request.request, msgspec.Raw(msgspec.msgpack.encode(None))))

    def _check_silence(self) -> None:
        limit = self._shell.config.client_silence_s
        if self._loop.time() - self._heard_at > limit:
            self._line.hang_up(f"nothing heard for {limit:g} s")
        self._silence = self._loop.call_later(limit / 4, self._check_silence)

    # -- what the client hears -------------------------------------------------------------------

    async def _tell_events(self) -> None:
        events = self._shell.node.events()
        try:
            async for event in events:
                if self._concerns(event):
                    await self._line.room()
                    self._line.send(Happened(event))
        finally:
            events.close()

    def moved(self, event: Returned) -> None:
        """The node is in the cluster again, perhaps in another slot: that concerns every client."""
        if not self._listening:
            self._line.send(Happened(event))

    def _concerns(self, event: Event) -> bool:
        """Whether to tell a client of an event: not of others' subscriptions and topics."""
        topic = getattr(event, "topic", None)
        return not isinstance(event, SlowSubscriber) and (
            topic is None or self._line.may_see(topic)
        )

    def check_again(self) -> None:
        """There are new permissions: end the subscriptions that they do not allow."""
        access = self._shell.access
        if access is not None:
            self._subscriptions.end_refused(
                lambda topic: access.refusal(self.who, "subscribe", topic)
            )

    # -- the end ---------------------------------------------------------------------------------

    def farewell(self, reason: str) -> None:
        """The node ends the session."""
        self._line.send(Farewell(reason))
        self._line.connection.close(reason)

    def end(self) -> list[asyncio.Task[None]]:
        """The connection is gone: stop everything but what was received whole."""
        self._line.ended = True
        self._silence.cancel()
        self._subscriptions.abandon()
        for task in self._line.tasks:
            task.cancel()
        if not self.publishing:
            self._line.share.close()
        self._shell.guests.drop_topics(self._line.topics)
        return self.publishing

    @property
    def serving(self) -> list[asyncio.Task[None]]:
        """The tasks that send what is delivered, one a subscription."""
        return self._subscriptions.tasks

    @property
    def publishing(self) -> list[asyncio.Task[None]]:
        """The tasks that hand publications to the node, while there are any."""
        return list(self._publications.tasks)
