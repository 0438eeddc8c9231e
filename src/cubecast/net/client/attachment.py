"""One connection of a light client to one node, from the handshake to the end.

It sends pings, and ends if the node is silent for too long.  Messages of the node are handed to the
client, which may have two attachments for a moment: to the node that it leaves, and to the next.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cubecast.errors import Closed
from cubecast.net.links.address import parse_address
from cubecast.net.links.connection import REFUSED, Connection
from cubecast.net.links.faults import LinkFaults
from cubecast.net.links.transport import Network
from cubecast.net.links.writes import Writes
from cubecast.net.security.keys import Keys, Purpose
from cubecast.net.wire.clients import (
    Farewell,
    FromClient,
    FromNode,
    Ping,
    Pong,
    decode_from_node,
    encode,
)
from cubecast.net.wire.hello import (
    NOBODY,
    Attached,
    AttachRequest,
    Refused,
    decode_greeting,
    encode_greeting,
)
from cubecast.net.wire.packets import CLIENT, HELLO, WireError
from cubecast.protocol.port import NodeId

UNREAD_BYTES = 64 * 1024 * 1024
"""Bytes that the node may leave unread: far more than requests and publications need."""


class AttachmentHost(Protocol):
    """The client that an attachment belongs to."""

    keys: Keys
    name: str
    uid: str
    faults: LinkFaults
    movable: bool

    def heard(self, attachment: Attachment, message: FromNode) -> None:
        """Handle a message of the node."""

    def detached(self, attachment: Attachment, reason: str) -> None:
        """Handle the end of the connection."""


class Attachment:
    """A client's attachment to one node; the owner of the connection between them."""

    purpose: Purpose = "client"

    def __init__(self, host: AttachmentHost, address: str) -> None:
        self._host = host
        self.address = address
        self.keys, self.name, self.uid = host.keys, host.name, host.uid
        self.salt = ""
        self.slot: NodeId = NOBODY
        self.faults = host.faults
        self.writes = Writes()
        self.unread_bytes = UNREAD_BYTES
        self._loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[Attached] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""
        self.welcome: Attached | None = None
        self.over = False
        """Whether nothing can be sent any more."""
        self.connection: Connection | None = None
        self._dialling: Connection | None = None
        self.heard_at = 0.0
        """When the last packet of the node came."""
        self._pinging: asyncio.TimerHandle | None = None
        self._why = ""

    async def attach(self, network: Network) -> Attached:
        """Dial the node and attach to it; `OSError` or `Closed` if that fails."""
        host, port = parse_address(self.address)
        connection = self._dialling = Connection(self, dialled=True)
        await network.dial(lambda: connection, host, port)
        self.connection = connection
        try:
            welcome = await self._attached
        except BaseException:
            self.over = True
            connection.abort()
            raise
        self.heard_at = self._loop.time()
        self._ping()
        return welcome

    @property
    def uid_of_node(self) -> str:
        """The uid of the node's life; empty before it has accepted us."""
        return "" if self.welcome is None else self.welcome.uid

    @property
    def silent(self) -> bool:
        """Whether the peer accepted the connection and has sent nothing."""
        return self._dialling is not None and self._dialling.silent

    def say(self, message: FromClient) -> None:
        """Send to the node; `Closed` if it is gone."""
        self.send(encode(message))

    def send(self, packet: bytes) -> None:
        """Send a packet; `Closed` if the node is gone."""
        if self.over or self.connection is None:
            raise Closed(self._why or "the client is not attached")
        self.connection.send(packet)

    def _ping(self) -> None:
        """Send a ping, again and again; end the connection if the node is silent for too long."""
        assert self.welcome is not None
        silence_s = self.welcome.silence_s
        if self._loop.time() - self.heard_at > silence_s:
            self.lose(f"nothing heard from the node for {silence_s:g} s")
            return
        self.say(Ping())
        self._pinging = self._loop.call_later(silence_s / 3, self._ping)

    def lose(self, reason: str) -> None:
        """End the connection at once."""
        self._end(reason)
        if self.connection is not None:
            self.connection.abort()

    async def close(self, reason: str) -> None:
        """End the connection, after everything is sent."""
        self.stop()
        if self.connection is not None:
            self.connection.close(reason)
            await asyncio.wait([self.ended], timeout=1.0)
            self.connection.abort()

    def stop(self) -> None:
        """Send and receive nothing more."""
        self.over = True
        if self._pinging is not None:
            self._pinging.cancel()

    def _end(self, reason: str) -> None:
        if not self.over:
            self.stop()
            self._why = reason
            self._host.detached(self, reason)

    # -- the connection's owner ------------------------------------------------------------------

    def learn_salt(self, salt: str) -> None:
        """Do nothing: a client may attach to any cluster."""

    def turned_away(self, connection: Connection, reason: str) -> None:
        """Do nothing: a client is never dialled."""

    def opened(self, connection: Connection) -> None:
        """Do nothing: the handshake is still to come."""

    def connected(self, connection: Connection) -> None:
        """Ask to be attached: the handshake is complete."""
        connection.send(encode_greeting(AttachRequest(self._host.movable)))

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Handle packets of the node."""
        self.heard_at = self._loop.time()
        for kind, raw in packets:
            if kind == CLIENT and self.welcome is not None:
                self._on_message(decode_from_node(raw))
            elif kind == HELLO:
                self._on_greeting(connection, raw)
            else:
                raise WireError(f"a packet of kind {kind} to a client")

    def _on_greeting(self, connection: Connection, raw: bytes) -> None:
        message = decode_greeting(raw)
        match message:
            case Attached() if not self._attached.done():
                self.welcome, self.slot = message, message.slot
                self._attached.set_result(message)
            case Refused():
                connection.close(REFUSED + message.reason)
            case _:
                raise WireError(f"{type(message).__name__} to a client")

    def _on_message(self, message: FromNode) -> None:
        match message:
            case Pong():
                pass
            case Farewell(reason):
                self._why = reason
            case _ if not self.over:
                self._host.heard(self, message)

    def disconnected(self, connection: Connection, reason: str) -> None:
        """Tell the waiting calls why the connection ended."""
        if not self._attached.done():
            self._attached.set_exception(Closed(reason))
            self._attached.exception()
        if self.welcome is not None:
            why = f"the connection to the node at {self.address} ended: {self._why or reason}"
            self._end(why)
        if not self.ended.done():
            self.ended.set_result(None)
