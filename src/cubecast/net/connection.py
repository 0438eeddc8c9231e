"""One TCP connection between two nodes: handshake, packets in, writes gathered per tick."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from cubecast.net.hello import (
    MAX_HELLO,
    Accepted,
    Challenge,
    Greeting,
    Hello,
    Proof,
    Refused,
    decode_greeting,
    encode_greeting,
    new_nonce,
    prove,
    proved,
)
from cubecast.net.wire import HELLO, MAX_PACKET, VERSION, PacketBuffer, WireError
from cubecast.protocol.port import NodeId

log = logging.getLogger("cubecast")

NOBODY: NodeId = -1


class Owner(Protocol):
    """What a connection needs of its node."""

    uid: str
    slot: NodeId
    secret: str

    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None: ...
    def disconnected(self, connection: Connection, reason: str) -> None: ...


class Connection(asyncio.Protocol):
    """A connection, dialled or accepted; `slot` and `uid` are the peer's once it is `ready`."""

    def __init__(self, owner: Owner, dialled: bool) -> None:
        self._owner = owner
        self.dialled = dialled
        self._nonce = new_nonce()
        self._theirs = ""
        self._buffer = PacketBuffer(MAX_HELLO)
        self._outgoing: list[bytes] = []
        self._flush_planned = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.ready = False
        self.slot = NOBODY
        self.uid = ""
        self.reason = "closed by peer"

    # -- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.dialled:
            self._greet(Hello(VERSION, self._owner.uid, self._owner.slot, self._nonce))

    def data_received(self, data: bytes) -> None:
        try:
            packets = self._buffer.feed(data)
            while packets and not self.ready:
                kind, raw = packets.pop(0)
                if kind != HELLO:
                    raise WireError("a message before the handshake")
                self._shake_hands(decode_greeting(raw))
            if packets:
                self._owner.received(self, packets)
        except WireError as error:
            log.warning("closing connection to %s: %s", self, error)
            self.close(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if error is not None:
            self.reason = str(error)
        self._owner.disconnected(self, self.reason)

    # -- handshake -------------------------------------------------------------------------------

    def _greet(self, message: Greeting) -> None:
        self.send(encode_greeting(message))

    def _shake_hands(self, message: Greeting) -> None:
        secret = self._owner.secret
        match message:
            case Hello() if not self.dialled and not self._theirs:
                if message.version != VERSION:
                    self.refuse(f"version {message.version} is not spoken here, only {VERSION}")
                    return
                self._theirs, self.slot, self.uid = message.nonce, message.slot, message.uid
                proof = prove(secret, "dialled", self._theirs, self._nonce)
                self._greet(Challenge(self._owner.uid, self._owner.slot, self._nonce, proof))
            case Challenge() if self.dialled and not self._theirs:
                self._theirs, self.slot, self.uid = message.nonce, message.slot, message.uid
                if not proved(message.proof, secret, "dialled", self._nonce, self._theirs):
                    self.refuse("the cluster secret is not the same")
                    return
                self._greet(Proof(prove(secret, "dialler", self._nonce, self._theirs)))
            case Proof() if not self.dialled and self._theirs:
                if not proved(message.proof, secret, "dialler", self._theirs, self._nonce):
                    self.refuse("the cluster secret is not the same")
                    return
                self._greet(Accepted())
                self._open()
            case Accepted() if self.dialled and self._theirs:
                self._open()
            case Refused():
                self.close(f"refused: {message.reason}")
            case _:
                raise WireError(f"{type(message).__name__} out of turn")

    def _open(self) -> None:
        self.ready = True
        self._buffer.limit = MAX_PACKET
        self._owner.connected(self)

    def refuse(self, reason: str) -> None:
        """Tell the peer why, and close."""
        log.warning("refusing %s: %s", self, reason)
        self._greet(Refused(reason))
        self.close(reason)

    # -- sending ---------------------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """Send with everything else of this tick."""
        self._outgoing.append(packet)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and outgoing:
            self._transport.writelines(outgoing)

    def close(self, reason: str) -> None:
        """Send what is gathered, then close."""
        self.reason = reason
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def __str__(self) -> str:
        if self.slot != NOBODY:
            return f"node {self.slot}"
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer or "a stranger")
