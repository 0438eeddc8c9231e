"""Asking to become a member: who is asked, what is answered, and what comes too early.

Members know a newcomer before it knows its own slot, so their first packets may overtake the
welcome; they are kept until the node has begun.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cubecast.errors import JoinError
from cubecast.net.address import parse_address
from cubecast.net.connection import Connection, Owner
from cubecast.net.hello import (
    NOBODY,
    JoinRequest,
    Redirect,
    Refused,
    Welcome,
    decode_greeting,
    encode_greeting,
)
from cubecast.net.transport import Network
from cubecast.net.wire import HELLO, MAX_PACKET, WireError

MAX_REDIRECTS = 16
"""A newcomer is sent on at most this often."""
MAX_EARLY_BYTES = 2 * MAX_PACKET
MAX_EARLY_ENTRIES = 10_000
"""What may come before a newcomer knows its slot; more closes the connection it came by."""


class Newcomer(Owner, Protocol):
    """What joining needs of its node."""

    address: str
    network: Network


class Joining:
    """One node's way into a cluster."""

    def __init__(self, node: Newcomer) -> None:
        self._node = node
        self._asked: Connection | None = None
        self._asked_at = ""
        self._answer: asyncio.Future[Welcome | Redirect] | None = None
        self._early_bytes = 0
        self._early: list[tuple[Connection, list[tuple[int, bytes]]]] = []

    async def ask(self, seed: str) -> tuple[Welcome, Connection]:
        """Ask at `seed`, and wherever that sends us, until we are welcome."""
        address = seed
        for _ in range(MAX_REDIRECTS):
            answer, connection = await self._ask_at(address)
            if isinstance(answer, Welcome):
                return answer, connection
            connection.close("redirected")
            address = answer.address
        raise JoinError(seed, f"sent on {MAX_REDIRECTS} times, last to {address}")

    async def _ask_at(self, address: str) -> tuple[Welcome | Redirect, Connection]:
        self._answer = asyncio.get_running_loop().create_future()
        self._asked_at = address
        self._asked = connection = Connection(self._node, dialled=True)
        try:
            host, port = parse_address(address)
            self._node.faults.check_reachable(NOBODY)
            await self._node.network.dial(lambda: connection, host, port)
        except OSError as error:
            raise JoinError(address, error.strerror or str(error)) from error
        except ValueError as error:
            raise JoinError(address, str(error)) from error
        answer = await self._answer
        self._asked = None
        return answer, connection

    def connected(self, connection: Connection) -> None:
        """A handshake is complete: with whom we ask, or with a member that knows us already."""
        if connection is self._asked:
            request = JoinRequest(self._node.uid, self._node.address)
            connection.send(encode_greeting(request))
        else:
            self._early.append((connection, []))

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Look for the answer to our request; what comes behind it waits until we have begun."""
        answer = self._answer
        if packets and connection is self._asked and answer is not None and not answer.done():
            kind, raw = packets.pop(0)
            said = decode_greeting(raw) if kind == HELLO else None
            if isinstance(said, Refused):
                connection.close(f"refused: {said.reason}")
                return
            if not isinstance(said, Welcome | Redirect):
                raise WireError("something else than an answer to a request to join")
            if isinstance(said, Welcome) and not self._is_meant(said):
                raise WireError("a welcome for somebody else")
            answer.set_result(said)
        if packets:
            self._early_bytes += sum(len(raw) for _, raw in packets)
            if self._early_bytes > MAX_EARLY_BYTES or len(self._early) >= MAX_EARLY_ENTRIES:
                raise WireError("more than can wait until we have joined")
            self._early.append((connection, packets))

    def _is_meant(self, welcome: Welcome) -> bool:
        """Whether a welcome names us in the slot it gives us."""
        member = welcome.members.get(welcome.slot)
        return member is not None and member.uid == self._node.uid

    def disconnected(self, connection: Connection, reason: str) -> None:
        """A connection ended; if it is the one we asked by, nobody will answer."""
        if connection is self._asked and self._answer is not None:
            self._asked = None
            if not self._answer.done():
                self._answer.set_exception(JoinError(self._asked_at, reason))

    def catch_up(self) -> None:
        """We have begun: read what members sent before we were told our slot."""
        early, self._early = self._early, []
        for connection, packets in early:
            if packets:
                connection.again(packets)
            else:
                self._node.connected(connection)


def check_request(request: JoinRequest, connection: Connection) -> None:
    """Whether a request to join is the first of its connection and speaks for who sent it."""
    if connection.asked:
        raise WireError("a second request to join")
    if request.uid != connection.uid:
        raise WireError("a request to join for somebody else")
    try:
        parse_address(request.address)
    except ValueError as error:
        raise WireError(f"a request to join from nowhere: {error}") from error
    connection.asked = True
