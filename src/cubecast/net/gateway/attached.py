"""The light clients of one node: how they attach, and how the node hands them over at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cubecast.net.events import Returned
from cubecast.net.gateway.budget import Budget, Share, TopicBudget
from cubecast.net.gateway.session import Session
from cubecast.net.links.connection import Connection
from cubecast.net.wire.clients import MAX_CLIENT_PACKET, PUBLISH_WINDOW, clipped
from cubecast.net.wire.hello import Attached, encode_greeting
from cubecast.net.wire.packets import WireError
from cubecast.protocol.port import Topic
from cubecast.version import __version__

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

POLL_S = 0.005
TELL_OVER_S = 0.1
"""How long after a view clients hear for the first time which streams are over."""
LAST_WORDS_S = 1.0
"""How long a client that does not read may delay the closing of a node that has left."""


class Guests:
    """The sessions of one node, by their connections.

    A client whose connection broke counts until the publications that it handed over are published,
    so `NodeConfig.max_clients` bounds those clients as well.

    Topics that any client has used count until the node forgets them, also when the client is gone:
    `topics` bounds them.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell, config = shell, shell.config
        self._budget = Budget(config.clients_bytes, config.max_clients)
        self.max_clients = config.max_clients
        """The most clients, which the process has file descriptors for."""
        self.topics = TopicBudget(config.clients_topics, config.max_clients)
        """The topics of all clients, those that are gone included."""
        self._sessions: dict[Connection, Session] = {}
        self._finishing: set[asyncio.Future[Any]] = set()  # one for each session that ended
        self._leaving = False
        self._warned = not config.secret or bool(config.client_secret)
        self._closed_door = False  # whether clients are handed over, and no new one is accepted
        self._telling: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._sessions

    @property
    def load(self) -> tuple[int, int]:
        """How many clients are attached, and the bytes that the node holds for them."""
        return len(self._sessions), self._budget.used

    def attach(self, connection: Connection, movable: bool = False) -> None:
        """Accept a client, or refuse it with a reason."""
        shell, config = self._shell, self._shell.config
        if self._leaving or self._closed_door:
            connection.refuse("the node leaves the cluster")
        elif len(self._sessions) + len(self._finishing) >= self.max_clients:
            why = "" if self.max_clients == config.max_clients else ", all it may open files for"
            connection.refuse(f"the node has {self.max_clients} clients already{why}")
        else:
            connection.hold_to(MAX_CLIENT_PACKET)
            share = Share(self._budget, config.client_bytes)
            self._sessions[connection] = Session(shell, connection, share, movable)
            timeout, silence = config.publish_timeout_s, config.client_silence_s
            allowed = PUBLISH_WINDOW, timeout, silence
            welcome = Attached(shell.slot, shell.uid, __version__, shell.presence.cluster, *allowed)
            connection.send(encode_greeting(welcome))
            self._warn_of_members_secret(connection)

    def _warn_of_members_secret(self, connection: Connection) -> None:
        """Log once that a client has the secret of members; one with a token proves no secret."""
        if not self._warned and not connection.identity:
            self._warned = True
            log.warning(
                "a light client at %s has the cluster's secret, so it can become a member, as all "
                "that have it: set client_secret, or give clients tokens", connection.address,
            )  # fmt: skip

    def received(self, connection: Connection, raw: bytes) -> None:
        """Handle a packet of a client; on a `WireError` the client is told why and disconnected."""
        session = self._sessions.get(connection)
        if session is None:
            raise WireError("a client's message on a connection that is not attached")
        try:
            session.received(raw, self._leaving)
        except WireError as error:
            session.farewell(clipped(error))
            raise

    def drop(self, connection: Connection) -> None:
        """End the session of a connection; what its client handed over is still published."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            publishing = session.end()
            if publishing:
                finishing = asyncio.gather(*publishing, return_exceptions=True)
                self._finishing.add(finishing)
                finishing.add_done_callback(self._finished)

    def _finished(self, finishing: asyncio.Future[Any]) -> None:
        self._finishing.discard(finishing)
        if not finishing.cancelled():
            finishing.exception()  # retrieve it: a `gather` whose tasks are cancelled has one

    def drop_topics(self, topics: Iterable[Topic]) -> None:
        """Stop counting topics of a client that is gone, if the node does not know them."""
        for topic in topics:
            if not self._shell.vocabulary.knows(topic):
                self.topics.forget(topic)

    def check_again(self, withdrawn: set[str]) -> None:
        """Apply new permissions; `withdrawn` are names whose tokens are no longer valid."""
        for session in list(self._sessions.values()):
            if session.who.name in withdrawn:
                session.farewell("its token was withdrawn")
            else:
                session.check_again()

    def moved(self, event: Returned) -> None:
        """Tell every client that the node is in the cluster again, perhaps in another slot."""
        for session in self._sessions.values():
            session.moved(event)

    def view_changed(self) -> None:
        """Tell clients soon which streams a view has ended; streams are settled one by one.

        Sessions tell the rest from time to time.
        """
        if self._sessions:
            self._plan_telling(TELL_OVER_S)

    def _plan_telling(self, pause_s: float) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling = self._loop.call_later(pause_s, self._tell_over, pause_s)

    def _tell_over(self, pause_s: float) -> None:
        self._telling = None
        for session in self._sessions.values():
            session.tell_over()
        if self._sessions and 2 * pause_s < self._shell.config.client_silence_s / 4:
            self._plan_telling(2 * pause_s)

    async def hand_over(self, limit_s: float) -> None:
        """Have clients that can go on at another node do so, for at most `limit_s`.

        Until they have, this node serves them as ever, so they miss nothing.
        """
        self._closed_door = True
        for session in self._sessions.values():
            session.announce_leave()
        began = self._loop.time()
        while self._loop.time() < began + limit_s:
            if not any(session.moving for session in self._sessions.values()):
                return
            await asyncio.sleep(POLL_S)

    async def finish(self) -> None:
        """Accept nothing more, and wait until all accepted publications are published."""
        self._leaving = True
        tasks = [task for session in self._sessions.values() for task in session.publishing]
        # If a client's publication fails, its client is told, not the node.
        await asyncio.gather(*tasks, *self._finishing, return_exceptions=True)

    async def end_subscriptions(self) -> None:
        """Let every subscription send its last messages, and that it has ended.

        The node has closed them all, so their tasks end by themselves, unless a client does not
        read.
        """
        tasks = [task for session in self._sessions.values() for task in session.serving]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)

    def close(self, reason: str) -> None:
        """End every session."""
        self._leaving = True
        for session in self._sessions.values():
            session.farewell(reason)
            for task in session.publishing:
                task.cancel()
        for finishing in list(self._finishing):
            finishing.cancel()
        if self._telling is not None:
            self._telling.cancel()
