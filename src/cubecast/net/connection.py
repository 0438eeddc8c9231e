"""One TCP connection between two nodes: handshake, packets in, writes gathered per tick."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from cubecast.net.faults import LinkFaults, Shaper
from cubecast.net.hello import (
    MAX_HELLO,
    NOBODY,
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
    transcript,
)
from cubecast.net.wire import HELLO, MAX_PACKET, VERSION, PacketBuffer, WireError
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.port import NodeId

__all__ = ["HANDSHAKE_S", "NOBODY", "Connection", "Owner"]

log = logging.getLogger("cubecast")

HANDSHAKE_S = 10.0
"""A connection whose handshake takes longer is closed, and one that then asks for nothing."""

CLOSING_S = 5.0
"""A peer that does not read what is left to tell it is cut off after this long."""


class Owner(Protocol):
    """What a connection needs of its node."""

    uid: str
    slot: NodeId
    secret: str
    faults: LinkFaults
    unread_bytes: int
    """What a peer may leave unread before its connection is closed."""

    def opened(self, connection: Connection) -> None: ...
    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None: ...
    def disconnected(self, connection: Connection, reason: str) -> None: ...


class Connection(asyncio.Protocol):
    """A connection, dialled or accepted; `slot` and `uid` are the peer's once it is `ready`."""

    def __init__(self, owner: Owner, dialled: bool) -> None:
        self._owner = owner
        self.dialled = dialled
        self.asked = False  # a stranger asked to join, or to be a guest
        self._nonce = new_nonce()
        self._hello = Hello(VERSION, owner.uid, owner.slot, self._nonce)
        self._said = ""
        self._buffer = PacketBuffer(MAX_HELLO)
        self._outgoing: list[bytes] = []
        self._flush_planned = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False
        self.shaper: Shaper | None = None
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is complete or the connection is lost."""
        self.ready = False
        self.slot = NOBODY
        self.uid = ""
        self.reason = "closed by peer"

    # -- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.faults.opened(self)
        self._owner.opened(self)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_late)
        if self.dialled:
            self._greet(self._hello)

    def data_received(self, data: bytes) -> None:
        """Shake hands, then hand packets to the node."""
        with self._blaming_peer():
            if not self.ready:
                if self.shaper is not None:
                    data = self.shaper.data_before_handshake(data)
                self._before_ready(data)
                data = b""
            if self.ready and not self._closing:
                packets = self._buffer.feed(data)
                if self.shaper is not None:
                    packets = self.shaper.packets_after_handshake(packets)
                if packets:
                    self._owner.received(self, packets)

    def resume(self) -> None:
        """Take in what the shaper held back."""
        self.data_received(b"")

    def again(self, packets: list[tuple[int, bytes]]) -> None:
        """Hand packets to the node that it could not take when they came."""
        with self._blaming_peer():
            self._owner.received(self, packets)

    @contextmanager
    def _blaming_peer(self) -> Iterator[None]:
        """Whatever goes wrong with a peer's bytes ends this connection, and only this one."""
        try:
            yield
        except (WireError, ProtocolError) as error:
            log.warning("closing connection to %s: %s", self, error)
            self.close(str(error))
        except Exception as error:
            log.exception("closing connection to %s: it sent what it cannot mean", self)
            self.close(f"it sent what it cannot mean: {error!r}")

    def _before_ready(self, data: bytes) -> None:
        """One packet at a time: the peer is held to `MAX_HELLO` until it has proved itself."""
        while not self.ready and not self._closing:
            packet = self._buffer.first(data)
            if packet is None:
                return
            data = b""
            kind, raw = packet
            if kind != HELLO:
                raise WireError("a message before the handshake")
            self._shake_hands(decode_greeting(raw))

    def _too_late(self) -> None:
        log.warning("closing connection to %s: no handshake in %g s", self, HANDSHAKE_S)
        self.close(f"no handshake in {HANDSHAKE_S:g} s")

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent by it any more."""
        return self._closing

    def _asks_nothing(self) -> None:
        if self.slot == NOBODY and not self.asked:
            log.warning("closing connection to %s: no request in %g s", self, HANDSHAKE_S)
            self.close(f"no request in {HANDSHAKE_S:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._stop_clock()
        if error is not None:
            self.reason = str(error)
        self._owner.faults.closed(self)
        self._settle()
        self._owner.disconnected(self, self.reason)

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)

    # -- handshake -------------------------------------------------------------------------------

    def _greet(self, message: Greeting) -> None:
        self.send(encode_greeting(message))

    def _shake_hands(self, message: Greeting) -> None:
        secret, owner = self._owner.secret, self._owner
        match message:
            case Hello() if not self.dialled and not self._said:
                if message.version != VERSION:
                    self.refuse(f"version {message.version} is not spoken here, only {VERSION}")
                elif self._introduced(message):
                    self._said = transcript(message, owner.uid, owner.slot, self._nonce)
                    proof = prove(secret, "dialled", self._said)
                    self._greet(Challenge(owner.uid, owner.slot, self._nonce, proof))
            case Challenge() if self.dialled and not self._said:
                if self._introduced(message):
                    said = transcript(self._hello, message.uid, message.slot, message.nonce)
                    self._said = said
                    if self._proved(message.proof, "dialled"):
                        self._greet(Proof(prove(secret, "dialler", said)))
            case Proof() if not self.dialled and self._said:
                if self._proved(message.proof, "dialler"):
                    self._greet(Accepted())
                    self._open()
            case Accepted() if self.dialled and self._said:
                self._open()
            case Refused():
                log.warning("%s refused us: %s", self, message.reason)
                self.close(f"refused: {message.reason}")
            case _:
                raise WireError(f"{type(message).__name__} out of turn")

    def _introduced(self, message: Hello | Challenge) -> bool:
        """Note who the peer says it is; nobody but us is us (a reflected proof proves nothing)."""
        if message.uid == self._owner.uid:
            self.refuse("this is the node itself")
            return False
        self.slot, self.uid = message.slot, message.uid
        return True

    def _proved(self, proof: str, role: str) -> bool:
        if proved(proof, self._owner.secret, role, self._said):
            return True
        self.refuse("the cluster secret is not the same")
        return False

    def _open(self) -> None:
        self.ready = True
        self._stop_clock()
        self._buffer.limit = MAX_PACKET
        self._settle()
        self._owner.connected(self)
        if self.slot == NOBODY and not self.dialled and not self._closing:
            self._deadline = self._loop.call_later(HANDSHAKE_S, self._asks_nothing)

    def hold_to(self, limit: int) -> None:
        """Take no larger packets from this peer."""
        self._buffer.limit = limit

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def refuse(self, reason: str) -> None:
        """Tell the peer why, and close."""
        log.warning("refusing %s: %s", self, reason)
        self._greet(Refused(reason))
        self.close(reason)

    # -- sending ---------------------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """Send with everything else of this tick; a connection that closes takes no more."""
        if self._closing:
            return
        self._outgoing.append(packet)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        outgoing, self._outgoing = self._outgoing, []
        if self.shaper is not None:
            self.shaper.send(outgoing)
        elif outgoing:
            self.write(outgoing)

    def write(self, packets: list[bytes]) -> None:
        """Give packets to the transport; only `send` and the shaper decide that it is time."""
        if self._transport is not None:
            self._transport.writelines(packets)
            unread = self._transport.get_write_buffer_size()
            if unread > self._owner.unread_bytes:
                self.turn_away(f"it leaves {unread} bytes unread")

    def backlog(self) -> int:
        """Bytes sent before this tick that the network has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, reason: str) -> None:
        """Send what is gathered, then close; the first reason is the one that counts."""
        if self._closing:
            return
        self._closing = True
        self._stop_clock()
        self.reason = reason
        self._flush()
        if self._transport is not None:
            limit_s = CLOSING_S + self._owner.faults.longest_s()
            self._deadline = self._loop.call_later(limit_s, self.abort)
        if self.shaper is not None:
            self.shaper.end()
        else:
            self.drained()

    def drained(self) -> None:
        """Everything is with the transport: close it."""
        if self._transport is not None:
            self._transport.close()

    def turn_away(self, reason: str) -> None:
        """Close at once, with a word in the log and none to the peer."""
        if not self._closing or self.reason != reason:
            log.warning("closing connection to %s: %s", self, reason)
        if not self._closing:
            self._closing = True
            self.reason = reason
        self._stop_clock()
        self.abort()

    def abort(self) -> None:
        """Close without waiting for what was not sent."""
        if self._transport is not None:
            self._transport.abort()

    def __str__(self) -> str:
        if self.slot != NOBODY:
            return f"node {self.slot}"
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer or "a stranger")
