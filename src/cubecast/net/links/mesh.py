"""The connections of one node: by the slot at the other end, or by an address outside the view.

Connections are opened when there is something to send, and shared by all topics.  Packets for a
member that cannot be reached wait, up to a bound, until dialling succeeds; the protocol repairs
what a connection loses.  Invariants:

1. A connection is used for a member if its handshake proved the uid that the view names for that
   slot (`Connection.slot`); every new view repeats this check.
2. A connection belongs to one life of this node: the next life opens its own.
3. A peer that is no member keeps its connection for a limited time, and such connections are
   limited in number.
4. When the process has no descriptor left, strangers go first (`make_room`), the oldest before the
   others; for a member that is dialled, light clients go after them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Protocol

from cubecast.net.links.address import parse_address
from cubecast.net.links.connection import (
    HANDSHAKE_S,
    HUNG_UP,
    NOBODY,
    REFUSED,
    Connection,
    ConnectionHost,
)
from cubecast.net.links.descriptors import Shortage, is_exhausted
from cubecast.net.links.faults import LinkCut
from cubecast.net.links.transport import Network
from cubecast.net.security.handshake import NO_CLUSTER_YET
from cubecast.net.security.tls import TlsError
from cubecast.net.wire.parts import MAX_WHOLE, Parts
from cubecast.protocol.cluster.views import View, Who
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
MAKE_ROOM_SHARE = 4
"""When descriptors run out, one in so many strangers goes at a time."""
MAX_OUTSIDE = 256
"""Addresses outside the view that are dialled, or connected with, at a time."""
MAX_CALLS_WAITING = 4
"""Packets that wait for an address outside the view: the latest, as all are sent again."""
MAX_REFUSALS = 64
"""Refusals remembered, so that each is logged as a warning once."""
MAX_REMEMBERED = 2 * 4096
"""Addresses whose last member is remembered, so that faults on a link outlast a view."""


MAY_CHANGE = (HUNG_UP, REFUSED + NO_CLUSTER_YET)


def _is_passing(error: Exception) -> bool:
    """Whether an address may answer later: its node is not up yet, or is being restarted."""
    if isinstance(error, ssl.SSLError | LinkCut | TlsError | ValueError):
        return False
    known = isinstance(error, TimeoutError) or getattr(error, "errno", None) is not None
    return known or str(error) in MAY_CHANGE


class MeshHost(ConnectionHost, Protocol):
    """What the connections need of their node."""

    def unreachable(self, peer: NodeId) -> None:
        """A member cannot be dialled."""

    def no_answer(self, address: str, reason: str, passing: bool) -> None:
        """An address outside the view cannot be reached, or refuses us; `passing`: for now."""


class Mesh:
    """Connections with members, with addresses outside the view, and with strangers."""

    def __init__(self, owner: MeshHost, network: Network, max_strangers: int) -> None:
        self._owner = owner
        self._network = network
        self._members: Mapping[NodeId, Who] = {}
        self._slots: dict[str, NodeId] = {}  # by uid
        self._places: dict[str, NodeId] = {}  # by address
        self._seen: dict[str, tuple[NodeId, str]] = {}  # by address, former members too
        self._connections: dict[NodeId, Connection] = {}
        self._waiting: dict[NodeId, list[bytes]] = {}
        self._waiting_bytes: dict[NodeId, int] = {}
        self._dialling: dict[NodeId, asyncio.Task[None]] = {}
        self._outside: dict[str, Connection] = {}
        self._calls: dict[str, list[bytes]] = {}
        self._calling: dict[str, asyncio.Task[None]] = {}
        self._open: dict[Connection, None] = {}  # in order, so that a run can be repeated
        self._refusals: dict[tuple[str, str], None] = {}  # (address, reason), oldest first
        self.parts = Parts()
        """Large packets of members that have come in part."""
        self.strange_parts = Parts(MAX_WHOLE)
        """Large packets of strangers that have come in part; a stranger may be rejoining."""
        self.max_strangers = max_strangers
        """Connections that are neither a member's nor a light client's, at a time."""
        self._shortage = Shortage(asyncio.get_running_loop().time)
        self._strangers: dict[Connection, None] = {}  # oldest first

    # -- members ---------------------------------------------------------------------------------

    def send(self, peer: NodeId, packet: bytes) -> None:
        """Send to a member, dialling it if need be; drop the packet if `peer` is no member."""
        connection = self._connections.get(peer)
        if connection is not None:
            connection.send(packet)
            return
        if peer not in self._dialling:
            if peer not in self._members:
                return
            self._waiting[peer] = []
            self._waiting_bytes[peer] = 0
            task = asyncio.get_running_loop().create_task(self._dial(peer))
            self._dialling[peer] = task
        if self._waiting_bytes[peer] + len(packet) <= MAX_WAITING_BYTES:
            self._waiting[peer].append(packet)
            self._waiting_bytes[peer] += len(packet)

    def connection_with(self, peer: NodeId) -> Connection | None:
        """The connection to a member, if there is one."""
        return self._connections.get(peer)

    async def _dial(self, peer: NodeId) -> None:
        """Dial; however that ends, the next packet for the peer can start another dial."""
        task = asyncio.current_task()
        try:
            await self._keep_dialling(peer, task)
        finally:
            if self._dialling.get(peer) is task:
                self._stop_dialling(peer)

    async def _keep_dialling(self, peer: NodeId, task: asyncio.Task[None] | None) -> None:
        """Dial until connected or until the member is gone, pausing longer each time."""
        pause = FIRST_PAUSE_S
        while self._dialling.get(peer) is task and (who := self._members.get(peer)) is not None:
            try:
                await self._connect(peer, who)
            except LinkCut as error:
                log.info("cannot reach node %d at %s: %s", peer, who.address, error.strerror)
            except (OSError, ValueError) as error:  # not there, or no address at all
                if isinstance(error, OSError) and is_exhausted(error):
                    self._make_room_for(peer, error)
                else:
                    if not self._say_refused(who.address, str(error)):
                        log.info("cannot reach node %d at %s: %s", peer, who.address, error)
                    self._owner.unreachable(peer)
            if self._dialling.get(peer) is task:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _connect(self, peer: NodeId, who: Who) -> None:
        """Dial and shake hands; the handshake fails if the peer is not `who`."""
        self._owner.faults.check_reachable(peer, who.uid)
        connection = Connection(self._owner, dialled=True, link=peer, peer=who.uid)
        host, port = parse_address(who.address)
        try:
            async with asyncio.timeout(HANDSHAKE_S):  # a system may try for minutes
                await self._network.dial(lambda: connection, host, port)
        except TimeoutError:
            raise TimeoutError(f"no connection in {HANDSHAKE_S:g} s") from None
        await connection.settled
        if not connection.ready:
            raise ConnectionError(connection.reason)

    def _say_refused(self, address: str, reason: str) -> bool:
        """Log a refusal, as a warning once for each address and reason; False if it is none."""
        if not reason.startswith(REFUSED):
            return False
        level = logging.INFO if (address, reason) in self._refusals else logging.WARNING
        self._refusals[address, reason] = None
        while len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        log.log(level, "%s refused us: %s", address, reason.removeprefix(REFUSED))
        return True

    def _stop_dialling(self, peer: NodeId) -> list[bytes]:
        self._dialling.pop(peer, None)
        self._waiting_bytes.pop(peer, None)
        return self._waiting.pop(peer, [])

    def set_view(self, view: View) -> None:
        """Adopt a new view: assign each connection to its member again."""
        before, self._members = self._members, view.members
        known, self._slots = self._slots, view.slots
        self._places = view.places
        for uid in sorted(view.slots.keys() - known.keys()):
            slot = view.slots[uid]
            address = view.members[slot].address
            self._seen.pop(address, None)
            self._seen[address] = slot, uid
        if len(self._seen) > MAX_REMEMBERED:
            gone = [address for address in self._seen if address not in self._places]
            for address in gone[: len(self._seen) - MAX_REMEMBERED]:
                del self._seen[address]
        for slot in sorted(known[uid] for uid in known.keys() - view.slots.keys()):
            address = before[slot].address
            connection = self._connections.pop(slot, None)
            if connection is not None and address not in self._places:
                self._keep_outside(address, connection)
            self._give_up(slot)
        for connection in list(self._open):
            if connection.ready and connection.purpose == "member" and not connection.closing:
                self._assign(connection)

    def _give_up(self, slot: NodeId) -> None:
        task = self._dialling.get(slot)
        self._stop_dialling(slot)
        if task is not None:
            task.cancel()

    def _assign(self, connection: Connection) -> None:
        """Assign a connection to the member with its uid, or else to the strangers."""
        slot = self._slots.get(connection.uid, NOBODY)
        if slot == connection.slot:
            return
        if connection.outlived:  # its peer knows our previous life
            connection.close("the node has begun a new life")
        elif slot != NOBODY:
            self._adopt(slot, connection)
        else:
            connection.slot = NOBODY
            connection.expect_request()
            self._receive(connection)

    def connected(self, connection: Connection) -> None:
        """A handshake is complete: with a client, a member, or a node that may become one."""
        if connection.purpose == "member":
            self._assign(connection)

    def _adopt(self, peer: NodeId, connection: Connection) -> None:
        """Use a connection for a member; of two, both ends keep the one the lower slot dialled."""
        connection.slot = connection.link = peer
        self._strangers.pop(connection, None)
        if peer not in self._connections or connection.dialled == (self._owner.slot < peer):
            self._connections[peer] = connection
        for packet in self._stop_dialling(peer):
            self._connections[peer].send(packet)
        self._close_spare(peer)

    def _close_spare(self, peer: NodeId) -> None:
        """Close the oldest unused connections of a member beyond `MAX_SPARE`."""
        used = self._connections[peer]
        spare = [one for one in self._open if one.ready and one.slot == peer and one is not used]
        for one in spare[: max(0, len(spare) - MAX_SPARE)]:
            one.turn_away(f"it has {len(spare)} others")

    # -- addresses outside the view ----------------------------------------------------------------

    def reach(self, address: str, packet: bytes) -> None:
        """Send once to the node at an address; calls `MeshHost.no_answer` if that fails."""
        connection = self._connections.get(self._places.get(address, NOBODY))
        if connection is None:
            connection = self._outside.get(address)
        if connection is not None and not connection.closing:
            connection.send(packet)
            return
        if address not in self._calls:
            if len(self._calls) >= MAX_OUTSIDE:
                return
            self._calls[address] = []
            task = asyncio.get_running_loop().create_task(self._call(address))
            self._calling[address] = task
        waiting = self._calls[address]
        waiting.append(packet)
        del waiting[:-MAX_CALLS_WAITING]

    def place_of(self, connection: Connection) -> str:
        """The address outside the view that a connection is used for; empty if there is none.

        We dialled the peer there, or it was the member at that address.
        """
        return next((place for place, one in self._outside.items() if one is connection), "")

    def place_of_uid(self, uid: str) -> str:
        """`place_of` for the life `uid`, which may have other connections with us as well."""
        return next((place for place, one in self._outside.items() if one.uid == uid), "")

    async def _call(self, address: str) -> None:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self._dial_outside(address)
        except (OSError, ValueError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            if isinstance(error, OSError) and is_exhausted(error):
                self.make_room()
            if not self._say_refused(address, reason):
                log.info("cannot reach %s: %s", address, reason)
            self._owner.no_answer(address, reason, _is_passing(error))
        finally:
            if self._calling.get(address) is task:
                del self._calling[address]
                self._calls.pop(address, None)

    async def _dial_outside(self, address: str) -> None:
        link, uid = self._seen.get(address, (NOBODY, ""))
        self._owner.faults.check_reachable(link, uid)
        connection = Connection(self._owner, dialled=True, link=link)
        host, port = parse_address(address)
        await self._network.dial(lambda: connection, host, port)
        try:
            await connection.settled
        except BaseException:
            connection.abort()
            raise
        if not connection.ready or connection.closing:
            raise ConnectionError(connection.reason)
        self._keep_outside(address, connection)
        for packet in self._calls.get(address, ()):
            connection.send(packet)

    def _keep_outside(self, address: str, connection: Connection) -> None:
        """Use a connection for an address outside the view, as long as there are not too many."""
        self._outside.pop(address, None)
        self._outside[address] = connection
        if len(self._outside) > MAX_OUTSIDE:
            oldest = self._outside.pop(next(iter(self._outside)))
            if oldest.slot == NOBODY:
                oldest.close("too many others")

    # -- all connections ---------------------------------------------------------------------------

    def awaits_a_word(self) -> bool:
        """Whether a peer that we dialled accepted the connection and has sent nothing."""
        return any(connection.silent for connection in self._open)

    def track(self, connection: Connection) -> None:
        """A connection is open; its peer is not known yet."""
        self._open[connection] = None
        if not connection.dialled:
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        """Count a connection as a stranger's; beyond `max_strangers`, close one."""
        self._strangers[connection] = None
        if len(self._strangers) > self.max_strangers:
            self._turn_away_oldest(f"more than {self.max_strangers} strangers at a time")

    def _turn_away_oldest(self, reason: str) -> None:
        """Close the oldest stranger that has not begun to shake hands, the newest excepted.

        If there is none, close the oldest.  So a flood of connections that say nothing does not
        push out a node that is joining.
        """
        *others, _newest = self._strangers
        silent = (one for one in others if not one.introduced)
        gone = next(silent, next(iter(self._strangers)))
        del self._strangers[gone]
        gone.turn_away(reason)

    def make_room(self) -> None:
        """Close some strangers, because the process has no descriptor left."""
        for _ in range(-(-len(self._strangers) // MAKE_ROOM_SHARE)):
            self._turn_away_oldest("the process has no file descriptor left")

    def _make_room_for(self, peer: NodeId, error: OSError) -> None:
        """Close strangers, or else a client, to free a descriptor for dialling a member."""
        self._shortage.notice(f"dial node {peer}", error)
        if not self._strangers:
            guests = [one for one in self._open if one.guest and not one.closing]
            for newest in guests[-1:]:
                newest.turn_away("its descriptor is needed to dial a member")
        self.make_room()

    def host(self, connection: Connection) -> None:
        """Count a connection as a light client's; `NodeConfig.max_clients` bounds those."""
        connection.asked = connection.guest = True
        self._strangers.pop(connection, None)

    def drop(self, connection: Connection) -> bool:
        """A connection ended; True if it was the one in use with its member."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)
        self.parts.drop(connection)
        self.strange_parts.drop(connection)
        for address in [one for one, used in self._outside.items() if used is connection]:
            del self._outside[address]
        peer = connection.slot
        if self._connections.get(peer) is not connection:
            return False
        del self._connections[peer]
        return True

    def begin_anew(self, reason: str) -> None:
        """Begin another life: nothing of the last one is sent or heard any more.

        Light clients stay, and so does a stranger that dialled us and may be one: a client does
        not distinguish its node's lives.  If it turns out to be a node, `_assign` hangs up.
        """
        self._stop()
        self._members, self._slots, self._places = {}, {}, {}
        self._connections.clear()
        self._outside.clear()
        for connection in list(self._open):
            if connection.guest:
                continue
            connection.slot = NOBODY
            if connection.dialled or connection.asked or connection.link != NOBODY:
                connection.close(reason)
            else:
                connection.outlived = connection.introduced

    def _stop(self) -> None:
        """Stop all dialling."""
        for task in (*self._dialling.values(), *self._calling.values()):
            task.cancel()
        for waiting in (self._dialling, self._waiting, self._waiting_bytes):
            waiting.clear()
        self._calling.clear()
        self._calls.clear()

    def abort(self) -> None:
        """Close all connections at once, without telling the peers."""
        self._stop()
        for connection in list(self._open):
            connection.abort()

    async def close(self, reason: str) -> None:
        """Close all connections once they have written what was sent."""
        self._stop()
        for connection in list(self._open):
            connection.close(reason)
        limit_s = CLOSING_S + self._owner.faults.longest_s()
        for _ in range(CLOSING_POLLS):
            if not self._open:
                return
            await asyncio.sleep(limit_s / CLOSING_POLLS)
        for connection in list(self._open):
            connection.abort()
