"""The connections of one node, by the slot at the other end.

Connections are opened when there is something to send, and shared by all topics.  What is sent
to a peer that cannot be reached waits for the dialling to succeed, up to a bound; what is lost
with a connection the protocol repairs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cubecast.net.address import parse_address
from cubecast.net.connection import Connection, Owner
from cubecast.net.faults import LinkCut
from cubecast.net.transport import Network
from cubecast.protocol.port import NodeId

log = logging.getLogger("cubecast")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
CLOSING_S = 1.0
CLOSING_POLLS = 200
MAX_SPARE = 3
"""Connections of one member besides the one in use; the oldest of more are closed."""
MAX_WAITING_BYTES = 16 * 1024 * 1024
"""What may wait for one peer while it is dialled; the rest is dropped and repaired later."""


class Mesh:
    """Connections with members, and with strangers that want to become members."""

    def __init__(
        self,
        owner: Owner,
        network: Network,
        address_of: Callable[[NodeId], str | None],
        unreachable: Callable[[NodeId], None],
        max_strangers: int,
    ) -> None:
        self._owner = owner
        self._network = network
        self._address_of = address_of
        self._unreachable = unreachable
        self._connections: dict[NodeId, Connection] = {}
        self._waiting: dict[NodeId, list[bytes]] = {}
        self._waiting_bytes: dict[NodeId, int] = {}
        self._dialling: dict[NodeId, asyncio.Task[None]] = {}
        self._open: dict[Connection, None] = {}  # in order, so that a run can be repeated
        self._max_strangers = max_strangers
        self._strangers: dict[Connection, None] = {}  # accepted, and nobody's: oldest first

    def send(self, peer: NodeId, packet: bytes) -> None:
        """Send to a member, dialling it if need be."""
        connection = self._connections.get(peer)
        if connection is not None:
            connection.send(packet)
            return
        if peer not in self._dialling:
            self._waiting[peer] = []
            self._waiting_bytes[peer] = 0
            task = asyncio.get_running_loop().create_task(self._dial(peer))
            self._dialling[peer] = task
        if self._waiting_bytes[peer] + len(packet) <= MAX_WAITING_BYTES:
            self._waiting[peer].append(packet)
            self._waiting_bytes[peer] += len(packet)

    async def _dial(self, peer: NodeId) -> None:
        """Dial; however that ends, the next packet for the peer may have it dialled again."""
        task = asyncio.current_task()
        try:
            await self._keep_dialling(peer, task)
        finally:
            if self._dialling.get(peer) is task:
                self._stop_dialling(peer)

    async def _keep_dialling(self, peer: NodeId, task: asyncio.Task[None] | None) -> None:
        """Try until there is a connection or no such member any more, pausing longer each time."""
        pause = FIRST_PAUSE_S
        while self._dialling.get(peer) is task and (address := self._address_of(peer)) is not None:
            try:
                await self._connect(peer, address)
            except LinkCut as error:
                log.info("cannot reach node %d at %s: %s", peer, address, error.strerror)
            except (OSError, ValueError) as error:  # not there, or no address at all
                log.info("cannot reach node %d at %s: %s", peer, address, error)
                self._unreachable(peer)
            if self._dialling.get(peer) is task:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
        if self._dialling.get(peer) is task:
            self._stop_dialling(peer)
            self._unreachable(peer)

    async def _connect(self, peer: NodeId, address: str) -> None:
        """Dial and shake hands; if that leads to somebody else, hang up."""
        self._owner.faults.check_reachable(peer)
        connection = Connection(self._owner, dialled=True)
        host, port = parse_address(address)
        await self._network.dial(lambda: connection, host, port)
        await connection.settled
        if connection.ready and connection.slot != peer:
            reason = f"node {connection.slot} answers where node {peer} was"
            connection.close(reason)
            raise ConnectionError(reason)

    def _stop_dialling(self, peer: NodeId) -> list[bytes]:
        self._dialling.pop(peer, None)
        self._waiting_bytes.pop(peer, None)
        return self._waiting.pop(peer, [])

    def track(self, connection: Connection) -> None:
        """A connection is open, whatever becomes of it."""
        self._open[connection] = None
        if connection.dialled:
            return
        self._strangers[connection] = None
        if len(self._strangers) > self._max_strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.turn_away(f"more than {self._max_strangers} strangers at a time")

    def host(self, connection: Connection) -> None:
        """A light client's: no stranger any more, `NodeConfig.max_clients` bounds those."""
        connection.asked = True
        self._strangers.pop(connection, None)

    def adopt(self, peer: NodeId, connection: Connection) -> None:
        """Use a connection for a member; of two, both ends keep the one the lower slot dialled."""
        connection.slot = peer
        self._strangers.pop(connection, None)
        if peer not in self._connections or connection.dialled == (self._owner.slot < peer):
            self._connections[peer] = connection
        for packet in self._stop_dialling(peer):
            self._connections[peer].send(packet)
        self._close_spare(peer)

    def _close_spare(self, peer: NodeId) -> None:
        """A member may have a few connections open, old ones that nobody uses among them."""
        used = self._connections[peer]
        spare = [one for one in self._open if one.ready and one.slot == peer and one is not used]
        for one in spare[: max(0, len(spare) - MAX_SPARE)]:
            one.turn_away(f"it has {len(spare)} others")

    def drop(self, connection: Connection) -> bool:
        """A connection ended; True if it was the one in use with its member."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)
        peer = connection.slot
        if self._connections.get(peer) is not connection:
            return False
        del self._connections[peer]
        return True

    async def close(self, reason: str) -> None:
        """End everything; what was sent is sent."""
        for task in self._dialling.values():
            task.cancel()
        for connection in list(self._open):
            connection.close(reason)
        limit_s = CLOSING_S + self._owner.faults.longest_s()
        for _ in range(CLOSING_POLLS):
            if not self._open:
                return
            await asyncio.sleep(limit_s / CLOSING_POLLS)
        for connection in list(self._open):
            connection.abort()
