"""A connection of an attacker: an honest handshake, if it has a key, and then whatever it likes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress

from cubecast.net.address import parse_address
from cubecast.net.handshake import READY, Handshake
from cubecast.net.hello import Refused, decode_greeting
from cubecast.net.keys import Keys, Purpose
from cubecast.net.noise import CipherState
from cubecast.net.sealing import Opener
from cubecast.net.wire import HELLO, MAX_PACKET, PREFIX, SEALED, PacketBuffer, cut_packets

PATIENCE_S = 20.0
"""How long an attacker waits for a victim that says nothing: longer than a handshake may take."""
HARVEST = 300
"""Packets of a victim that are kept, to be sent back otherwise."""


class Imposture:
    """Who an attacker says it is; its key is real."""

    def __init__(
        self,
        keys: Keys,
        uid: str = "fuzz",
        slot: int = -1,
        purpose: Purpose = "member",
        salt: str = "",
    ) -> None:
        self.keys = keys
        self.uid, self.slot, self.purpose = uid, slot, purpose
        self.name = ""
        self.salt = salt

    def learn_salt(self, salt: str) -> None:
        """Of a cluster whose key we have."""
        self.salt = salt


class Session:
    """One connection to a victim, dialled from an address that marks it as hostile.

    Whatever the victim sends is read at once, so that it never waits for us, and kept in
    `harvest` if it can be read.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        harvest: deque[bytes] | None = None,
        peer: str = "",
    ) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        self._buffer = PacketBuffer()
        self._arrived: list[tuple[int, bytes]] = []
        self._ciphers: tuple[CipherState, CipherState] | None = None
        self._opener: Opener | None = None
        self._news = asyncio.Event()
        self.harvest = deque(maxlen=HARVEST) if harvest is None else harvest

    @classmethod
    async def dial(cls, address: str, source: str, harvest: deque[bytes] | None = None) -> Session:
        """Connect, from one of our own addresses."""
        host, port = parse_address(address)
        reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
        return cls(reader, writer, harvest, address)

    async def shake_hands(self, party: Imposture) -> None:
        """An honest handshake; `ConnectionError` if the victim does not want it."""
        handshake = Handshake(party, dialled=True)
        self.write(handshake.begin())
        while not handshake.complete:
            kind, raw = await self.packet()
            if kind != HELLO:
                raise ConnectionError(f"a packet of kind {kind} in the handshake")
            message = decode_greeting(raw)
            if isinstance(message, Refused):
                raise ConnectionRefusedError(message.reason)
            answer = handshake.take(message, raw)
            if answer is not None:
                self.write(answer)
        self._ciphers = handshake.ciphers()
        if self._ciphers is not None:
            self._opener = Opener(self._ciphers[1])
        self.write(READY)

    def seal(self, plain: bytes) -> bytes:
        """A record with anything in it."""
        if self._ciphers is None:
            return plain
        sealed = self._ciphers[0].seal(plain)
        return PREFIX.pack(1 + len(sealed), SEALED) + sealed

    def write(self, plain: bytes) -> None:
        """Send bytes; once there is a key, sealed."""
        self._writer.write(self.seal(plain))

    def write_clear(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    @property
    def over(self) -> bool:
        """Whether the victim is known to have hung up."""
        return self._writer.is_closing() or self._reader.at_eof()

    async def packet(self) -> tuple[int, bytes]:
        """The next packet; `ConnectionError` at the end."""
        while not self._arrived:
            async with asyncio.timeout(PATIENCE_S):
                data = await self._reader.read(65536)
            if not data:
                raise ConnectionResetError("the victim hung up")
            for kind, raw in self._buffer.feed(data):
                if self._opener is None:
                    self._arrived.append((kind, raw))
                else:
                    cut_packets(self._opener(raw[PREFIX.size :]), MAX_PACKET, self._arrived)
        self._news.set()
        kind, raw = self._arrived.pop(0)
        self.harvest.append(raw)
        return kind, raw

    async def finish(self) -> None:
        """Say that nothing more will come, and wait until the victim has looked at it all."""
        self.say_no_more()
        await self.ended()

    def say_no_more(self) -> None:
        """Nothing more will be written; the victim closes when it has looked at the rest."""
        with suppress(OSError):
            self._writer.write_eof()

    async def ended(self) -> None:
        """Wait until the victim closes the connection."""
        with suppress(ConnectionError):
            try:
                while True:
                    await self.packet()
            finally:
                self._news.set()

    async def answered(self, limit_s: float) -> None:
        """Wait until something more comes while somebody reads, or for so long."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._news.wait()

    def hang_up(self) -> None:
        """Reset the connection: one that is closed in order would keep its port for a minute."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
