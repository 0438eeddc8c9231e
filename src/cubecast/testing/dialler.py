"""A connection to a node, spoken by hand: an honest handshake, then any bytes.

For tests, sieges and the fuzzer.  The key is real; the uid and slot may be made up.

1. Once the handshake is complete, `write` seals and `packet` opens, if there is a secret.
2. `packet` returns None when the node hung up; `answer` and the handshake raise `ConnectionError`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self

from cubecast.net.links.address import parse_address
from cubecast.net.security.envelopes import Envelope, Envelopes, seal_envelope
from cubecast.net.security.handshake import READY, Handshake
from cubecast.net.security.keys import Keys, Purpose
from cubecast.net.security.noise import CipherState
from cubecast.net.security.sealing import Opener, lock
from cubecast.net.wire.hello import Greeting, Refused, decode_greeting, encode_greeting
from cubecast.net.wire.packet_buffer import PacketBuffer, cut_packets
from cubecast.net.wire.packets import ENVELOPE, FRAME, HELLO, MAX_PACKET, PREFIX, SEALED

UID = "raw"


class DiallerParty:
    """The identity of a dialler; a `Party` of `cubecast.net.security.handshake`."""

    def __init__(
        self,
        keys: Keys,
        uid: str = UID,
        slot: int = -1,
        purpose: Purpose = "member",
        salt: str = "",
    ) -> None:
        self.keys = keys
        self.uid, self.slot, self.purpose = uid, slot, purpose
        self.name = ""
        self.salt = salt

    def learn_salt(self, salt: str) -> None:
        """Keep the salt of a cluster whose key we have."""
        self.salt = salt


class Dialler:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = PacketBuffer()
        self._packets: list[tuple[int, bytes]] = []
        self._ciphers: tuple[CipherState, CipherState] | None = None
        self._opener: Opener | None = None
        self._envelopes = Envelopes()

    @classmethod
    async def dial(cls, address: str, source: str = "") -> Self:
        """Connect; from the address `source` of ours, if there is one."""
        host, port = parse_address(address)
        local = (source, 0) if source else None
        return cls(*await asyncio.open_connection(host, port, local_addr=local))

    # -- the handshake -----------------------------------------------------------------------------

    async def authenticate(
        self, secret: str, uid: str = UID, slot: int = -1, purpose: Purpose = "member"
    ) -> None:
        """The dialler's side of the handshake, up to `Ready`."""
        await self.shake_hands(DiallerParty(Keys(secret), uid, slot, purpose))

    async def shake_hands(self, identity: DiallerParty) -> None:
        """`authenticate` with any identity."""
        handshake = Handshake(identity, dialled=True)
        self.write(handshake.begin())
        await self.shake(handshake)
        self.write(READY)

    async def shake(self, handshake: Handshake) -> None:
        """Answer until both sides have introduced themselves; from then on packets are sealed."""
        while not handshake.complete:
            kind, raw = await self.answer()
            message = greeting_of(kind, raw)
            if isinstance(message, Refused):
                raise ConnectionRefusedError(message.reason)
            answer = handshake.take(message, raw)
            if answer is not None:
                self.write(answer)
        self._ciphers = handshake.ciphers()
        if self._ciphers is not None:
            self._opener = Opener(self._ciphers[1], self._envelopes)

    # -- what is said ------------------------------------------------------------------------------

    def seal(self, plain: bytes) -> bytes:
        """A record with anything in it; without a key the bytes as they are."""
        if self._ciphers is None:
            return plain
        sealed = self._ciphers[0].seal(plain)
        return PREFIX.pack(1 + len(sealed), SEALED) + sealed

    def envelop(self, packet: bytes) -> bytes:
        """A packet in an envelope of its own; without a key the packet as it is."""
        return packet if self._ciphers is None else self.locked(seal_envelope(packet))

    def locked(self, envelope: Envelope) -> bytes:
        """An envelope as this connection carries it."""
        assert self._ciphers is not None
        return lock(envelope, self._ciphers[0]) + envelope.sealed

    def write(self, plain: bytes) -> None:
        """Send bytes; once there is a key, sealed."""
        self.write_clear(self.seal(plain))

    def write_clear(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def greet(self, message: Greeting) -> None:
        """Send a greeting."""
        self.write(encode_greeting(message))

    async def drain(self) -> None:
        """Wait until there is room to write."""
        await self._writer.drain()

    def say_no_more(self) -> None:
        """Nothing more will be written; the node closes when it has looked at the rest."""
        with suppress(OSError):  # the node may have hung up already
            self._writer.write_eof()

    # -- what is heard -----------------------------------------------------------------------------

    async def packet(self) -> tuple[int, bytes] | None:
        """The next packet, its kind first; None at the end."""
        while not self._packets:
            try:
                data = await self._reader.read(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            for kind, raw in self._buffer.feed(data):
                if self._opener is None:
                    self._packets.append((kind, raw))
                elif kind == ENVELOPE:
                    body = memoryview(raw)[PREFIX.size :]
                    self._packets.append((FRAME, self._opener.unwrap(body, MAX_PACKET)))
                    self._envelopes.clear()
                else:
                    cut_packets(self._opener(raw[PREFIX.size :]), MAX_PACKET, self._packets)
        return self._packets.pop(0)

    async def answer(self) -> tuple[int, bytes]:
        """The next packet; `ConnectionResetError` at the end."""
        packet = await self.packet()
        if packet is None:
            raise ConnectionResetError("the node hung up")
        return packet

    async def greeting(self) -> Greeting:
        """The next packet, which is to be a greeting."""
        return greeting_of(*await self.answer())

    async def ended(self) -> None:
        """Wait until the node hangs up."""
        while await self.packet() is not None:
            pass

    # -- the end -----------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Our own."""
        name: tuple[str, int] = self._writer.get_extra_info("sockname")[:2]
        return name[1]

    def is_closing(self) -> bool:
        """Whether the connection is known to be broken, so that writing is in vain."""
        return self._writer.is_closing()

    def hang_up(self) -> None:
        """End the connection at once."""
        reset(self._writer)

    async def close(self) -> None:
        """End the connection in order."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def greeting_of(kind: int, raw: bytes) -> Greeting:
    """The greeting in a packet; `ConnectionError` if it is of another kind."""
    if kind != HELLO:
        raise ConnectionError(f"a packet of kind {kind} instead of a greeting")
    return decode_greeting(raw)


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: one that is closed in order would keep its port for a minute."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
