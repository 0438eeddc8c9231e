"""One TCP connection between two nodes: handshake, packets in, writes gathered."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from cubecast.net.address import format_address
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
from cubecast.net.parts import cut, fits
from cubecast.net.wire import HELLO, MAX_PACKET, VERSION, PacketBuffer, WireError
from cubecast.net.writes import Writes
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

    secret: str
    faults: LinkFaults
    writes: Writes
    unread_bytes: int
    """What a peer may leave unread before its connection is closed."""

    @property
    def uid(self) -> str: ...
    @property
    def slot(self) -> NodeId: ...

    def opened(self, connection: Connection) -> None: ...
    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None: ...
    def disconnected(self, connection: Connection, reason: str) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """A connection, dialled or accepted, between one life of a node and one life of another.

    `uid` is whom the peer has proved to be, once it is `ready`; `slot` the one that the view of
    the owner names for that uid, and the owner sets it.  `link` is where the peer is or was as far
    as anybody said: good for a log and for faults, not for trust.
    """

    def __init__(self, owner: Owner, dialled: bool, link: NodeId = NOBODY) -> None:
        self._owner = owner
        self.dialled = dialled
        self.link = link
        self.guest = False  # a light client's
        self.asked = False  # a stranger asked for a place, or to be a guest
        self.outlived = False  # the peer was told of a life of the owner that is over
        self._nonce = new_nonce()
        self._hello = Hello(VERSION, owner.uid, owner.slot, self._nonce)
        self._said = ""
        self._buffer = PacketBuffer(MAX_HELLO)
        self._outgoing: list[bytes] = []
        self._large = 0  # bytes sent in parts that may be unread
        self._wholes = 0  # packets sent in parts
        self._writes = owner.writes
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

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Shake hands, then hand packets to the node."""
        if self._closing:
            return
        self._buffer.filled(nbytes)
        self._writes.begin()
        try:
            if not self.ready:
                if self.shaper is not None and not self.shaper.may_shake_hands():
                    return  # it stays in the buffer
                self._before_ready()
            if self.ready and not self._closing:
                packets = self._buffer.packets()
                if self.shaper is not None:
                    packets = self.shaper.packets_after_handshake(packets)
                if packets:
                    self._owner.received(self, packets)
        except Exception as error:
            self._blame_peer(error)
        finally:
            self._writes.end()

    def resume(self) -> None:
        """Take in what the shaper held back."""
        self.buffer_updated(0)

    def _blame_peer(self, error: Exception) -> None:
        """Whatever goes wrong with a peer's bytes ends this connection, and only this one."""
        if isinstance(error, WireError | ProtocolError):
            log.warning("closing connection to %s: %s", self, error)
            self.close(str(error))
        else:
            log.exception("closing connection to %s: it sent what it cannot mean", self)
            self.close(f"it sent what it cannot mean: {error!r}")

    def _before_ready(self) -> None:
        """One packet at a time: the peer is held to `MAX_HELLO` until it has proved itself."""
        while not self.ready and not self._closing:
            packet = self._buffer.first()
            if packet is None:
                return
            kind, raw = packet
            if kind != HELLO:
                raise WireError("a message before the handshake")
            self._shake_hands(decode_greeting(raw))

    def _too_late(self) -> None:
        log.warning("closing connection to %s: no handshake in %g s", self, HANDSHAKE_S)
        self.close(f"no handshake in {HANDSHAKE_S:g} s")

    @property
    def introduced(self) -> bool:
        """Whether the peer was told which life of its owner this is."""
        return self.dialled or bool(self._said)

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent by it any more."""
        return self._closing

    def _asks_nothing(self) -> None:
        if self.slot == NOBODY and not self.asked and not self._closing:
            level = logging.WARNING if self.link == NOBODY else logging.INFO  # it was a member
            log.log(level, "closing connection to %s: no request in %g s", self, HANDSHAKE_S)
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
                what = "refused us" if self.dialled else "dialled us and gave up"
                log.warning("%s %s: %s", self, what, message.reason)
                self.close(f"refused: {message.reason}")
            case _:
                raise WireError(f"{type(message).__name__} out of turn")

    def _introduced(self, message: Hello | Challenge) -> bool:
        """Note who the peer says it is; nobody but us is us (a reflected proof proves nothing)."""
        if message.uid == self._owner.uid:
            self.refuse("this is the node itself")
            return False
        self.uid = message.uid
        if message.slot != NOBODY:
            self.link = message.slot
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
            self.expect_request()

    def expect_request(self) -> None:
        """Who is no member is to ask for something, or the connection is closed."""
        self._stop_clock()
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._asks_nothing)

    def hold_to(self, limit: int) -> None:
        """Take no larger packets from this peer."""
        self._buffer.limit = limit

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def refuse(self, reason: str) -> None:
        """Tell the peer why, and close."""
        what = "giving up the connection to" if self.dialled else "refusing the connection from"
        log.warning("%s %s: %s", what, self, reason)
        self._greet(Refused(reason))
        self.close(reason)

    # -- sending ---------------------------------------------------------------------------------

    def send(self, packet: bytes) -> None:
        """Send with everything else of this burst; a connection that closes takes no more."""
        if self._closing:
            return
        if not self._outgoing:
            self._writes.add(self)
        if fits(packet):
            self._outgoing.append(packet)
        else:
            self._send_in_parts(packet)

    def _send_in_parts(self, packet: bytes) -> None:
        """Send what is larger than a packet may be; its peer may leave that much more unread."""
        try:
            self._outgoing += cut(packet, self._wholes & 0xFFFFFFFF)
        except WireError as error:
            log.error("nothing is sent to %s: %s", self, error)
            return
        self._wholes += 1
        self._large += len(packet)

    def flush(self) -> None:
        """Write what has gathered."""
        outgoing, self._outgoing = self._outgoing, []
        if self.shaper is not None:
            self.shaper.send(outgoing)
        elif outgoing:
            self.write(outgoing)

    def write(self, packets: list[bytes]) -> None:
        """Give packets to the transport; only `send` and the shaper decide that it is time.

        A transport closes by itself when the peer hangs up, a tick before `connection_lost`.  What
        it then does with packets depends on the loop: asyncio's raises from Python 3.12 on.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(packets)
            unread = self._transport.get_write_buffer_size()
            self._large = min(self._large, unread)
            if unread > self._owner.unread_bytes + self._large:
                self.turn_away(f"it leaves {unread} bytes unread")

    def failed(self, error: Exception) -> None:
        """Writing raised: that ends this connection, and only this one."""
        self.turn_away(f"cannot write: {error!r}")

    def backlog(self) -> int:
        """Bytes sent before this tick that the network has not taken, or a fault holds back."""
        if self._transport is None:
            return 0
        held = 0 if self.shaper is None else self.shaper.waiting_bytes
        return held + self._transport.get_write_buffer_size()

    def close(self, reason: str) -> None:
        """Send what is gathered, then close; the first reason is the one that counts."""
        if self._closing:
            return
        self._closing = True
        self._stop_clock()
        self.reason = reason
        self.flush()
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
        if self.link != NOBODY:
            return f"node {self.link}"
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return format_address(peer[0], peer[1]) if isinstance(peer, tuple) else "a stranger"
