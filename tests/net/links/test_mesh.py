"""Which peers a node dials, how often, and what becomes of the packets that wait meanwhile."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from cubecast.net.links.connection import HANDSHAKE_S, Connection
from cubecast.net.links.faults import LinkFaults
from cubecast.net.links.mesh import FIRST_PAUSE_S, LONGEST_PAUSE_S, Mesh
from cubecast.net.links.transport import Factory, Server
from cubecast.net.links.writes import Writes
from cubecast.net.security.keys import Keys, Purpose
from cubecast.protocol.cluster.views import Ballot, View, ViewId, Who
from cubecast.protocol.port import NodeId
from cubecast.testing import on_virtual_time


class Owner:
    """A node as far as its connections need one."""

    keys = Keys()
    purpose: Purpose = "member"
    name = ""
    salt = "ab" * 16
    unread_bytes = 1 << 20
    uid = "n0"
    slot: NodeId = 0

    def __init__(self) -> None:
        self.faults = LinkFaults()
        self.writes = Writes()
        self.not_reached: list[NodeId] = []

    def learn_salt(self, salt: str) -> None:
        pass

    def turned_away(self, connection: Connection, reason: str) -> None:
        pass

    def opened(self, connection: Connection) -> None: ...
    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None: ...
    def disconnected(self, connection: Connection, reason: str) -> None: ...
    def no_answer(self, address: str, reason: str) -> None: ...

    def unreachable(self, peer: NodeId) -> None:
        self.not_reached.append(peer)


class Nowhere:
    """A network without listeners; notes each dial and its time."""

    def __init__(self) -> None:
        self.dialled: list[tuple[float, int]] = []

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        self.dialled.append((asyncio.get_running_loop().time(), port))
        raise ConnectionRefusedError("no listener")

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        raise NotImplementedError


class Silence(Nowhere):
    """A network that drops packets: a dial is neither answered nor refused."""

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        self.dialled.append((asyncio.get_running_loop().time(), port))
        await asyncio.Event().wait()


def view(*slots: NodeId) -> View:
    members = {slot: Who(f"n{slot}", f"127.0.0.1:{7400 + slot}", 0) for slot in slots}
    return View(ViewId(1, Ballot(1, 0)), members)


@on_virtual_time
async def test_a_member_that_is_not_there_is_dialled_ever_more_seldom_up_to_a_bound() -> None:
    owner, network = Owner(), Nowhere()
    mesh = Mesh(owner, network, max_strangers=8)
    mesh.set_view(view(0, 1))
    mesh.send(1, b"packet")
    await asyncio.sleep(12)
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(network.dialled)]
    assert [round(pause, 3) for pause in pauses[:8]] == [
        *(FIRST_PAUSE_S * 2**number for number in range(6)),
        LONGEST_PAUSE_S,
        LONGEST_PAUSE_S,
    ]
    assert owner.not_reached == [1] * len(network.dialled)
    mesh.abort()
    await asyncio.sleep(0)


@on_virtual_time
async def test_a_dial_without_an_answer_is_given_up_and_tried_again() -> None:
    owner, network = Owner(), Silence()
    mesh = Mesh(owner, network, max_strangers=8)
    mesh.set_view(view(0, 1))
    mesh.send(1, b"packet")
    await asyncio.sleep(3 * (HANDSHAKE_S + LONGEST_PAUSE_S))
    assert len(network.dialled) >= 3
    assert owner.not_reached == [1] * (len(network.dialled) - 1)
    mesh.abort()
    await asyncio.sleep(0)


@on_virtual_time
async def test_a_node_that_is_no_member_is_not_dialled() -> None:
    network = Nowhere()
    mesh = Mesh(Owner(), network, max_strangers=8)
    mesh.set_view(view(0, 1))
    mesh.send(2, b"packet")
    await asyncio.sleep(1)
    assert network.dialled == []
