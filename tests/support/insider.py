"""A key holder that opens connections of its own, under any name.

For tests of what a packet of a member, or of a node that is no member, does to live nodes.  The
handshake proves the secret; the uid is what the dialler says it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.packets import (
    VIEW,
    OutgoingFrame,
    encode_ack,
    encode_control,
    encode_frame,
)
from cubecast.net.wire.views import decode_view, encode_detector, encode_view
from cubecast.protocol.cluster.detector import DetectorMessage
from cubecast.protocol.cluster.views import (
    Ballot,
    Clusterwide,
    Install,
    Installed,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.messages import (
    Ack,
    Frame,
)
from cubecast.testing.dialler import Dialler
from support.live import PATIENCE_S

SECRET = "open sesame, please"


def packet_of(message: Any) -> bytes:
    """The bytes of an earnest message or of a lie."""
    if isinstance(message, Ack):
        return encode_ack(message)
    if not isinstance(message, Frame):
        return encode_control(message)
    if isinstance(message.body, tuple):
        message.body = OutgoingFrame([b"lie"] * len(message.body), 0)
    return encode_frame(message)


def packet(message: Any) -> bytes:
    """The bytes of any message that nodes exchange."""
    if isinstance(message, Clusterwide):
        return encode_view(message)
    if isinstance(message, DetectorMessage):
        return encode_detector(message)
    return packet_of(message)


class Insider:
    """One connection to one victim."""

    def __init__(self, client: Dialler, victim: Node) -> None:
        self.client = client
        self.victim = victim
        self.heard: list[Any] = []
        """What the victim said about views while it was waited for."""

    def say(self, *messages: Any) -> None:
        for message in messages:
            self.client.write(packet(message))

    async def heeded(self) -> bool:
        """Wait until all that was said was looked at; False if the victim hung up for it.

        A node answers a message that tells of the view it is in, the way it came.
        """
        view = view_of(self.victim)
        self.say(Install(view.id.ballot, view.id, view, {}, {}))
        async with asyncio.timeout(PATIENCE_S):
            while (one := await self.client.packet()) is not None:
                kind, raw = one
                if kind == VIEW:
                    self.heard.append(message := decode_view(raw))
                    if message == Installed(view.id):
                        return True
        return False


@asynccontextmanager
async def insider(
    victim: Node, uid: str = "insider", slot: int = -1, secret: str = SECRET
) -> AsyncIterator[Insider]:
    """A connection to a victim as the life `uid`; as that of a member, if it is one's."""
    client = await Dialler.dial(victim.address)
    try:
        await client.authenticate(secret, uid, slot)
        yield Insider(client, victim)
    finally:
        await client.close()


def as_member(victim: Node, mole: Node) -> Any:
    """A connection to a victim in the name of a member."""
    return insider(victim, mole.uid, mole.slot)


def view_of(node: Node) -> View:
    view = shell_of(node).member.view
    assert view is not None
    return view


def invented(view: View, teller: Who, size: int = 300, epoch: int | None = None) -> View:
    """A view of the same cluster with the teller and names that no node has."""
    members = {slot: Who(f"nobody{slot}", f"127.0.0.1:{slot + 1}", 1) for slot in range(1, size)}
    number = ViewId(view.epoch + 1 if epoch is None else epoch, Ballot(view.id.ballot.round + 1, 0))
    return View(number, {0: teller, **members}, view.cluster)


async def all_talk(nodes: Sequence[Node], topic: str = "still/here") -> None:
    """All nodes publish, and each reads the messages of all."""
    readers = [await node.subscribe(topic).__aenter__() for node in nodes]
    for node in nodes:
        await node.publish(topic, node.uid)
    for reader in readers:
        heard = {(await anext(reader)).payload.decode() for _ in nodes}
        assert heard == {node.uid for node in nodes}
    for reader in readers:
        await reader.__aexit__(None, None, None)


class Lives:
    """The lives and views of some nodes, to see later whether they are the same."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._uids = [node.uid for node in nodes]
        self._views = [view_of(node) for node in nodes]

    def assert_same(self) -> None:
        assert [node.uid for node in self._nodes] == self._uids, "a life was ended"
        assert [view_of(node) for node in self._nodes] == self._views, "a view was changed"


def said_of(records: Sequence[logging.LogRecord], uid: str) -> list[str]:
    """The warnings that name a life."""
    return [
        record.getMessage()
        for record in records
        if record.levelno == logging.WARNING and uid in record.getMessage()
    ]
