"""A light client as its node sees it: one session per attached connection.

A session calls what an application at the node would call (`Node.subscribe`, `Node.publish`), so
the client's order is the node's: the node has delivered each message that it sends to the client,
and later publications of the client depend on it.

Bounds, whatever the client does:

1. Publications received and not told to be published: one window and one packet (`WireError`
   beyond).  The node holds no others.
2. Messages sent and not read by the application: one window and one batch per subscription; further
   messages wait in the node's subscription, where the client's policy applies.
3. Bytes that the network does not take: `BACKLOG` and one batch or answer, then we stop sending;
   `HARD_BACKLOG` and one answer, then we hang up.  A client that is silent for `client_silence_s`
   is disconnected.
4. While a client itself waits to publish, debts of its subscriptions are put off (`debts.py`);
   else two clients that publish while they read could wait for each other.
5. What its subscriptions hold, its publications that the node has not taken and an answer on its
   way are within its share (`budget.py`); so are those of all clients of the node.  Its topics are
   counted with those of all clients (`TopicBudget`).
6. When the session ends its queues are free at once, even if objects still refer to it.
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
"""How long a client from another node waits, at most, for this node to catch up."""


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
        """Whether the node waits for the client to move to another node."""
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

        While the node is `leaving` nothing new is begun, but the client may still read, unsubscribe
        and send pings: the node waits for its last messages to be read.
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

    def tell_over(self) -> None:
        """Tell the client which streams it reads are over."""
        self._subscriptions.tell_over()

    def announce_leave(self) -> None:
        """Tell a client that can go on elsewhere that the node leaves, and wait for it."""
        self._subscriptions.tell_over()
        if self._movable:
            self.moving = True
            self._line.send(Leaving())

    async def _catch_up(self, request: CatchUp) -> None:
        """Answer when this node has delivered what the client has read, or after `CATCH_UP_S`.

        It does not wait for streams whose publishers are gone, or for topics that the node does
        not read: no more messages of these come.
        """
        deadline = self._loop.time() + CATCH_UP_S
        left = [position for position in request.positions if self._line.may_see(position[0])]
        pause_s = CONGESTED_POLL_S
        while left := self._shell.subscribing.undelivered(left):
            if self._loop.time() >= deadline:
                log.info("%s has read messages this node has not delivered", self._line.connection)
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, CATCH_UP_POLL_S)
        self._catching_up = False
        self._line.send(Answered(request.request, msgspec.Raw(msgspec.msgpack.encode(None))))

    def _check_silence(self) -> None:
        limit = self._shell.config.client_silence_s
        if self._loop.time() - self._heard_at > limit:
            self._line.hang_up(f"nothing heard for {limit:g} s")
        self._subscriptions.tell_over()
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
        """Tell the client that the node has returned, if it does not listen to events."""
        if not self._listening:
            self._line.send(Happened(event))

    def _concerns(self, event: Event) -> bool:
        """Whether to tell the client an event: none of slow subscribers or of hidden topics."""
        topic = getattr(event, "topic", None)
        return not isinstance(event, SlowSubscriber) and (
            topic is None or self._line.may_see(topic)
        )

    def check_again(self) -> None:
        """End the subscriptions that new permissions do not allow."""
        access = self._shell.access
        if access is not None:
            self._subscriptions.end_refused(
                lambda topic: access.refusal(self.who, "subscribe", topic)
            )

    # -- the end ---------------------------------------------------------------------------------

    def farewell(self, reason: str) -> None:
        """End the session, and tell the client why."""
        self._line.send(Farewell(reason))
        self._line.connection.close(reason)

    def end(self) -> list[asyncio.Task[None]]:
        """Stop all tasks, as the connection is gone; packets received are still published."""
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
        """The tasks that send messages to the client, one a subscription."""
        return self._subscriptions.tasks

    @property
    def publishing(self) -> list[asyncio.Task[None]]:
        """The tasks that hand publications to the node, while there are any."""
        return list(self._publications.tasks)
