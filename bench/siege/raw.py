"""A connection spoken by hand: as much of the handshake and the wire as an attack needs."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cubecast.net.address import parse_address
from cubecast.net.handshake import READY, Handshake
from cubecast.net.hello import Greeting, Refused, decode_greeting
from cubecast.net.keys import Keys, Purpose
from cubecast.net.noise import CipherState
from cubecast.net.sealing import Opener
from cubecast.net.wire import HELLO, MAX_PACKET, PREFIX, SEALED, PacketBuffer, cut_packets

DIAL_S = 5.0


class Turned(Exception):
    """The node hung up, or refused us in words."""


class Stranger:
    """Whoever shakes hands by hand."""

    def __init__(self, secret: str, uid: str, slot: int, purpose: Purpose) -> None:
        self.keys = Keys(secret)
        self.uid, self.slot, self.purpose = uid, slot, purpose
        self.name = ""
        self.salt = ""

    def learn_salt(self, salt: str) -> None:
        """We are in that cluster, as it were."""
        self.salt = salt


class Raw:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = PacketBuffer()
        self._packets: list[tuple[int, bytes]] = []
        self._ciphers: tuple[CipherState, CipherState] | None = None
        self._opener: Opener | None = None

    async def authenticate(
        self, secret: str, uid: str, slot: int = -1, purpose: Purpose = "member"
    ) -> None:
        """The dialler's side of the handshake; `Turned` if the node does not take us."""
        handshake = Handshake(Stranger(secret, uid, slot, purpose), dialled=True)
        self.write(handshake.begin())
        while not handshake.complete:
            raw = await self.packet()
            answer = handshake.take(self._greeting(raw), raw[1])
            if answer is not None:
                self.write(answer)
        self._ciphers = handshake.ciphers()
        if self._ciphers is not None:
            self._opener = Opener(self._ciphers[1])
        self.write(READY)

    def write(self, data: bytes) -> None:
        """Send bytes; once there is a key, sealed.  `Turned` if the node is known to be gone."""
        if self._ciphers is not None:
            sealed = self._ciphers[0].seal(data)
            data = PREFIX.pack(1 + len(sealed), SEALED) + sealed
        if self._writer.is_closing():
            raise Turned("the node hung up")
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until there is room to write."""
        await self._writer.drain()

    async def packet(self) -> tuple[int, bytes]:
        """The next packet; `Turned` at the end."""
        while not self._packets:
            try:
                data = await self._reader.read(65536)
            except OSError:
                data = b""
            if not data:
                raise Turned("the node hung up")
            for kind, raw in self._buffer.feed(data):
                if self._opener is None:
                    self._packets.append((kind, raw))
                else:
                    cut_packets(self._opener(raw[PREFIX.size :]), MAX_PACKET, self._packets)
        return self._packets.pop(0)

    async def greeting(self) -> Greeting:
        """The next packet, which is a greeting."""
        return self._greeting(await self.packet())

    async def ended(self) -> None:
        """Wait until the node hangs up."""
        with suppress(Turned):
            while True:
                await self.packet()

    def hang_up(self) -> None:
        """End the connection at once."""
        reset(self._writer)

    @staticmethod
    def _greeting(packet: tuple[int, bytes]) -> Greeting:
        kind, raw = packet
        if kind != HELLO:
            raise Turned(f"a packet of kind {kind} instead of a greeting")
        message = decode_greeting(raw)
        if isinstance(message, Refused):
            raise Turned(message.reason)
        return message


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: one that is closed in order would keep its port for a minute."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def dialled(address: str) -> AsyncIterator[Raw]:
    """A connection to a node, reset at the end."""
    host, port = parse_address(address)
    async with asyncio.timeout(DIAL_S):
        raw = Raw(*await asyncio.open_connection(host, port))
    try:
        yield raw
    finally:
        raw.hang_up()
