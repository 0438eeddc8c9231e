"""What members and strangers ask of a node after the handshake: to join, to attach, to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from cubecast.net.cluster import Cluster, Runtime
from cubecast.net.connection import Connection
from cubecast.net.guests import Guests
from cubecast.net.hello import (
    NOBODY,
    AttachRequest,
    ClusterUpdate,
    Goodbye,
    Greeting,
    JoinRequest,
    LeaveRequest,
    Member,
    Redirect,
    UpdateAck,
    encode_greeting,
)
from cubecast.net.joining import check_request
from cubecast.net.mesh import Mesh
from cubecast.net.wire import WireError
from cubecast.protocol.port import NodeId

log = logging.getLogger("cubecast")

ASK_AGAIN_S = 1.0
"""A request to leave, or its answer, may be lost with a connection: ask again after this long."""


class Reception:
    """Answers greetings, and asks for leave when its node wants to go."""

    def __init__(self, node: Runtime, cluster: Cluster, mesh: Mesh, guests: Guests) -> None:
        self._node = node
        self._cluster = cluster
        self._mesh = mesh
        self._guests = guests
        self._tasks: set[asyncio.Task[None]] = set()
        self._released: asyncio.Future[bool] | None = None

    def on_greeting(self, message: Greeting, connection: Connection) -> None:
        """Do what a greeting asks for, if its sender may."""
        stranger = connection.slot == NOBODY and self._node.slot != NOBODY
        allowed = JoinRequest | AttachRequest if connection not in self._guests else ()
        if stranger and not isinstance(message, allowed):
            raise WireError(f"{type(message).__name__} from a node that is not a member")
        match message:
            case AttachRequest() if stranger:
                self._attach(connection)
            case JoinRequest():
                check_request(message, connection)
                self._spawn(self._admit(message, connection))
            case ClusterUpdate():
                self._cluster.on_update(message, connection.slot)
            case UpdateAck():
                self._cluster.on_update_ack(message, connection.slot)
            case LeaveRequest():
                self._spawn(self._cluster.release(connection.slot, connection.uid))
            case Goodbye():
                self._cluster.on_goodbye(connection.slot)
                if connection.slot == self._cluster.coordinator:
                    self.let_go(True)
            case _:
                raise WireError(f"{type(message).__name__} after the handshake")

    def _attach(self, connection: Connection) -> None:
        if connection.asked:
            raise WireError("a request to attach after one to join")
        self._guests.attach(connection)
        if connection in self._guests:
            self._mesh.host(connection)

    async def _admit(self, request: JoinRequest, connection: Connection) -> None:
        """Welcome a newcomer, or send it to the node that gives out slots."""
        welcome = None
        if self._cluster.coordinator == self._node.slot:
            member = Member(request.uid, request.address)
            try:
                welcome = await self._cluster.admit(member, lambda: not connection.closing)
            except WireError as error:
                connection.refuse(str(error))
                return
        if welcome is None:
            address = self._cluster.members[self._cluster.coordinator].address
            connection.send(encode_greeting(Redirect(address)))
            return
        self._mesh.adopt(welcome.slot, connection)
        connection.send(encode_greeting(welcome))

    def farewell(self, connection: Connection) -> None:
        """Somebody who is no member dialled: it left and missed our goodbye, or is a liar."""
        if self._cluster.is_let_go(connection.uid):
            connection.send(encode_greeting(Goodbye()))
            connection.close("it has left")
        else:
            connection.refuse(f"slot {connection.slot} is not yours")

    def give_up(self, slot: NodeId) -> None:
        """A node cannot be reached; if it never answered its welcome, it is no member."""
        member = self._cluster.never_came(slot)
        if member is not None:
            log.info("node %d never came: %s does not answer", slot, member.address)
            self._spawn(self._cluster.release(slot, member.uid))

    async def give_slot_back(self) -> None:
        """Ask the coordinator to let us go; ask its successor if it leaves before us."""
        while len(self._cluster.members) > 1:
            if self._cluster.coordinator == self._node.slot:
                await self._cluster.release(self._node.slot, self._node.uid)
                return
            self._released = asyncio.get_running_loop().create_future()
            self._node.greet(self._cluster.coordinator, LeaveRequest())
            await asyncio.wait([self._released], timeout=ASK_AGAIN_S)
            if self._released.done() and self._released.result():
                return
        await self._cluster.finish()

    def let_go(self, released: bool) -> None:
        """We are free to go; or whom we asked left before us, and its successor is to be asked."""
        if self._released is not None and not self._released.done():
            self._released.set_result(released)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Go on with nothing."""
        self._cluster.close()
        for task in list(self._tasks):
            task.cancel()
