"""A key holder that says that it is a member: it is taken for that member, on real sockets.

The handshake proves the key: one secret for all members, or a node's certificate, which names a
node and not its uid.  The uid is what the dialler says it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cubecast.net.links.address import parse_address
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.security.tls import tls_keys
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import FRAME, OutgoingFrame, encode_frame
from cubecast.net.wire.views import encode_forward
from cubecast.protocol.messages import ROUTE_BITS, Frame, Route
from cubecast.protocol.port import Stream
from cubecast.testing.dialler import Dialler
from support.insider import SECRET, as_member
from support.live import TOPIC, cluster, live, subscribed, until
from support.tls_toys import Pki, bare_context

KEYS = ["a secret", "a certificate"]


class Village:
    """Three nodes with one kind of key, and connections of a key holder in any name."""

    def __init__(self, key: str, folder: Path) -> None:
        self.pki = Pki(folder) if key == "a certificate" else None
        if self.pki is not None:
            self.pki.issue("node", "node0", "node1", "node2", "another")
        self.nodes: list[Node] = []

    def config(self, slot: int) -> NodeConfig:
        if self.pki is None:
            return NodeConfig(secret=SECRET)
        return NodeConfig(**tls_keys(self.pki.tls(f"node{slot}")))

    async def dial(self, victim: Node, uid: str, slot: int) -> Dialler:
        if self.pki is None:
            client = await Dialler.dial(victim.address)
            await client.authenticate(SECRET, uid, slot)
            return client
        host, port = parse_address(victim.address)
        context = bare_context(self.pki.tls("another"))
        client = Dialler(*await asyncio.open_connection(host, port, ssl=context))
        await client.authenticate("", uid, slot)
        return client


@asynccontextmanager
async def village(key: str, folder: Path) -> AsyncIterator[Village]:
    one = Village(key, folder)
    try:
        for slot in range(3):
            shell = Shell(one.config(slot))
            await shell.start(one.nodes[0].address if slot else None)
            one.nodes.append(shell.node)
        for node in one.nodes:
            await until(lambda node=node: len(node.members) == 3)
        yield one
    finally:
        for node in reversed(one.nodes):
            await node.close()


def stream_of(node: Node) -> Stream:
    return Stream(node.slot, shell_of(node).member.incarnation)


def forged(victim: Node, mole: Node, words: bytes) -> bytes:
    """The packet of a message that a member never published, for one subscriber."""
    route = Route(victim.epoch << ROUTE_BITS, 0, 1 << victim.slot)
    body = OutgoingFrame([words], 0)
    return encode_frame(Frame(TOPIC, stream_of(mole), 0, (), route, -1, body, 400))


@pytest.mark.parametrize("key", KEYS)
@live
async def test_a_key_holder_that_presents_a_members_uid_speaks_and_hears_as_that_member(
    key: str, tmp_path: Path
) -> None:
    """Its certificate is that of another node, its address is none of a member."""
    async with village(key, tmp_path / "pki") as one:
        mole, victim, _ = one.nodes
        async with subscribed(one.nodes) as (_, heard, _):
            speaker = await one.dial(victim, mole.uid, mole.slot)
            speaker.write(forged(victim, mole, b"never said"))
            message = await anext(heard)
            assert (message.payload, message.source) == (b"never said", mole.slot)
            place, used = f"127.0.0.1:{speaker.port}", shell_of(victim).mesh._connections
            assert used[mole.slot].address == place, "of two connections, that of the lower slot"
            await victim.publish(TOPIC, b"for the member")
            while (packet := await speaker.answer())[0] != FRAME:
                pass
            assert b"for the member" in packet[1]
            speaker.hang_up()  # with TLS, more may come while it is closed in order


@live
async def test_a_member_can_speak_as_another_by_a_packet_that_it_passes_on() -> None:
    """It says that the other cannot reach the receiver itself; the slot is what it says it is."""
    async with cluster(3, secret=SECRET) as nodes:
        victim, other, mole = nodes
        async with subscribed(nodes) as (heard, *_), as_member(victim, mole) as liar:
            packet = forged(victim, other, b"never said")
            liar.client.write(encode_forward(victim.slot, other.slot, victim.epoch, packet))
            message = await anext(heard)
            assert (message.payload, message.source) == (b"never said", other.slot)
