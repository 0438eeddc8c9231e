"""One TCP connection between two nodes: handshake, packets in, writes gathered."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from cubecast.net.links.address import format_address
from cubecast.net.links.faults import LinkFaults, Shaper
from cubecast.net.links.writes import Writes
from cubecast.net.security.handshake import READY, Handshake, Party, Refusal
from cubecast.net.security.keys import Purpose
from cubecast.net.security.sealing import Opener, Sealer
from cubecast.net.security.tls import UNEXPECTED_TLS, begins_tls, misused, peer_certificate
from cubecast.net.wire.hello import (
    MAX_HELLO,
    NOBODY,
    Hello,
    Ready,
    Refused,
    decode_greeting,
    encode_greeting,
)
from cubecast.net.wire.packet_buffer import PacketBuffer
from cubecast.net.wire.packets import HELLO, MAX_PACKET, PREFIX, SEALED, WireError
from cubecast.net.wire.parts import cut, fits
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.port import NodeId

__all__ = ["HANDSHAKE_S", "NOBODY", "REFUSED", "Connection", "ConnectionHost"]

log = logging.getLogger("cubecast")

HANDSHAKE_S = 10.0
"""A connection whose handshake takes longer is closed."""
REQUEST_S = 10.0
"""A connection that asks for nothing so long after its handshake is closed."""

HUNG_UP = "closed by peer"

REFUSED = "refused: "
"""How `Connection.reason` begins if the other side refused the connection."""

SILENT = ": it takes connections and says nothing, so it does not speak cubecast, or is stopped"
"""Added to the reason if we dialled the peer and it has sent nothing."""
NO_CUBECAST = "it does not speak cubecast, so it is no node, or not the port of one"

CLOSING_S = 5.0
"""A peer that does not read our last packets is cut off after this long."""


def _no_cubecast(head: bytes) -> str:
    """What is wrong with the first bytes of an answer that are no greeting."""
    if head.startswith(b"HTTP/"):
        return f"it answers HTTP; {NO_CUBECAST}"
    return f"it answers {head!r}; {NO_CUBECAST}"


class ConnectionHost(Party, Protocol):
    """What a connection needs of its node."""

    faults: LinkFaults
    writes: Writes
    unread_bytes: int
    """What a peer may leave unread before its connection is closed."""

    def opened(self, connection: Connection) -> None: ...
    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None: ...
    def disconnected(self, connection: Connection, reason: str) -> None: ...
    def turned_away(self, connection: Connection, reason: str) -> None:
        """A peer that dialled us was refused for a reason that no honest node gives."""


class Connection(asyncio.BufferedProtocol):
    """A connection, dialled or accepted, between one life of a node and one life of another.

    `uid` is the peer's; once the connection is `ready`, the peer has proved that it knows the
    secret.  `slot` is the one that the owner's view names for that uid; the owner sets it.
    `identity` is the name that the peer has proved, if it has one.  `link` is the slot that the
    peer has or had, unproved: for logs and faults, not for trust.
    """

    def __init__(
        self, owner: ConnectionHost, dialled: bool, link: NodeId = NOBODY, peer: str = ""
    ) -> None:
        """`peer` is the uid of the node to be dialled, if that is known."""
        self._owner = owner
        self.dialled = dialled
        self.link = link
        self.guest = False  # a light client's
        self.asked = False  # a stranger asked for a place, or to be a guest
        self.outlived = False  # the peer was told of a life of the owner that is over
        self._handshake = Handshake(owner, dialled, peer)
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._buffer = PacketBuffer(MAX_HELLO)
        self._outgoing: list[bytes] = []
        self._large = 0  # bytes sent in parts that may be unread
        self._wholes = 0  # packets sent in parts
        self._writes = owner.writes
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False
        self._heard = False  # the peer has sent something
        self._greeted = False  # that was a greeting of this protocol
        self.shaper: Shaper | None = None
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is complete or the connection is lost."""
        self.ready = False
        self.slot = NOBODY
        self.uid = ""
        self.identity = ""
        self.address = ""
        """Where the bytes come from, for logs; not where a node can be dialled."""
        self.reason = HUNG_UP

    # -- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = format_address(peer[0], peer[1])
        self._owner.faults.opened(self)
        self._owner.opened(self)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_late)
        if self.dialled:
            self.send(self._handshake.begin())

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
                self._heard = True
                if self.shaper is not None and not self.shaper.may_shake_hands():
                    return  # it stays in the buffer
                self._before_ready()
            if self.ready and not self._closing:
                packets = self._packets()
                if self.shaper is not None:
                    packets = self.shaper.packets_after_handshake(packets)
                if packets:
                    self._owner.received(self, packets)
        except Exception as error:
            self._blame_peer(error)
        finally:
            self._writes.end()

    def _packets(self) -> list[tuple[int, bytes]]:
        if self._opener is None:
            return self._buffer.packets()
        return self._buffer.records(self._opener)

    def resume(self) -> None:
        """Take in the bytes that the shaper held back."""
        self.buffer_updated(0)

    def _blame_peer(self, error: Exception) -> None:
        """Close this connection, and only this one, because its peer's bytes raised `error`."""
        if isinstance(error, WireError | ProtocolError):
            log.warning("closing connection to %s: %s", self, error)
            self.close(str(error))
        else:
            log.exception("closing connection to %s: invalid message", self)
            self.close(f"invalid message: {error!r}")

    def _before_ready(self) -> None:
        """Take packets one by one: until its proof, the peer may send at most `MAX_HELLO`."""
        while not self.ready and not self._closing:
            try:
                packet = self._buffer.first()
            except WireError:
                if begins_tls(self._buffer.head(3)):
                    raise WireError(UNEXPECTED_TLS) from None
                if self.dialled and not self._greeted:
                    raise WireError(_no_cubecast(self._buffer.head(40))) from None
                raise
            if packet is None:
                return
            kind, raw = packet
            if self._opener is not None:
                if kind != SEALED:
                    raise WireError(f"a packet of kind {kind} that is not sealed")
                raw = self._opener(raw[PREFIX.size :])
                kind = raw[4] if len(raw) >= PREFIX.size else 0
            if kind != HELLO:
                raise WireError("a message before the handshake")
            self._greeted = True
            self._shake_hands(raw)

    def _too_late(self) -> None:
        log.warning("closing connection to %s: no handshake in %g s", self, HANDSHAKE_S)
        self.close(f"no handshake in {HANDSHAKE_S:g} s" + (SILENT if self.silent else ""))

    @property
    def silent(self) -> bool:
        """Whether this was dialled, and the peer has sent nothing yet."""
        return self.dialled and self._transport is not None and not self._heard

    def ends(self) -> tuple[str, str]:
        """The hosts at the other end and at this one; empty where a network has no such thing."""
        if self._transport is None:
            return "", ""
        names = map(self._transport.get_extra_info, ("peername", "sockname"))
        peer, own = (str(name[0]) if isinstance(name, tuple) else "" for name in names)
        return peer, own

    @property
    def introduced(self) -> bool:
        """Whether the peer was told which life of its owner this is."""
        return self.dialled or self._handshake.introduced

    @property
    def purpose(self) -> Purpose:
        """What the dialler says the connection is for; proved once the connection is `ready`."""
        return self._handshake.purpose

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent by it any more."""
        return self._closing

    def _asks_nothing(self) -> None:
        if self.slot == NOBODY and not self.asked and not self._closing:
            level = logging.WARNING if self.link == NOBODY else logging.INFO  # it was a member
            log.log(level, "closing connection to %s: no request in %g s", self, REQUEST_S)
            self.close(f"no request in {REQUEST_S:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        hung_up = not self._closing and isinstance(error, ConnectionResetError | None)
        self._transport = None
        self._closing = True
        self._stop_clock()
        if error is not None:
            self.reason = str(error)
        if hung_up and self.dialled and not self._heard:
            self.reason += f" without an answer: perhaps {NO_CUBECAST}"
        self._owner.faults.closed(self)
        self._settle()
        self._owner.disconnected(self, self.reason)

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)

    # -- handshake -------------------------------------------------------------------------------

    def _shake_hands(self, raw: bytes) -> None:
        message, handshake = decode_greeting(raw), self._handshake
        if isinstance(message, Refused):
            if not self.dialled:  # else our owner says so, and not each time
                log.warning("%s dialled us and gave up: %s", self, message.reason)
            self.close(REFUSED + message.reason)
            return
        if isinstance(message, Ready) and handshake.complete and not self.dialled:
            self._open()
            return
        if isinstance(message, Hello) and self._transport is not None:
            unfit = misused(self._transport, message.purpose)
            if unfit:
                self.refuse(unfit)
                return
        try:
            answer = handshake.take(message, raw)
        except Refusal as refusal:
            self.refuse(refusal.reason, logging.INFO if refusal.ordinary else logging.WARNING)
            return
        if answer is not None:
            self.send(answer)
        if handshake.complete:
            self._introduced()

    def _introduced(self) -> None:
        """Both sides have introduced themselves; the dialler confirms with `READY`."""
        peer, ciphers = self._handshake.introduction, self._handshake.ciphers()
        assert peer is not None
        self.uid = peer.uid
        if not self.dialled:  # else it is our own name
            self.identity = self._handshake.name
        certificate = None if self._transport is None else peer_certificate(self._transport)
        if certificate is not None:
            self.identity = certificate.name
        if peer.slot != NOBODY:
            self.link = peer.slot
        if ciphers is not None:
            ours, theirs = ciphers
            envelopes = self._writes.envelopes
            self._sealer, self._opener = Sealer(ours, envelopes), Opener(theirs, envelopes)
        if self.dialled:
            self.send(READY)
            self._open()

    def _open(self) -> None:
        self.ready = True
        self._stop_clock()
        self._buffer.limit = MAX_PACKET
        self._settle()
        self._owner.connected(self)
        if self.slot == NOBODY and not self.dialled and not self._closing:
            self.expect_request()

    def expect_request(self) -> None:
        """Close the connection if its peer, no member, asks for nothing in `REQUEST_S`."""
        self._stop_clock()
        self._deadline = self._loop.call_later(REQUEST_S, self._asks_nothing)

    def hold_to(self, limit: int) -> None:
        """Take no larger packets from this peer."""
        self._buffer.limit = limit

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Tell the peer why, and close."""
        what = "giving up the connection to" if self.dialled else "refusing the connection from"
        # Logs are limited by template: reasons count apart, but for those with a peer's numbers.
        if "%" in reason or any(map(str.isdigit, reason)):
            log.log(level, "%s %s: %s", what, self, reason)
        else:
            log.log(level, f"%s %s: {reason}", what, self)
        if not self.dialled and level >= logging.WARNING:
            self._owner.turned_away(self, reason)
        self.send(encode_greeting(Refused(reason)))
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
        """Send a packet above the size limit in parts; the peer may leave that much more unread."""
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
            sealer = self._sealer if self.ready else None
            self._transport.writelines(packets if sealer is None else sealer.records(packets))
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
        """Close at once; the log says why, the peer is not told."""
        if not self._closing or self.reason != reason:
            log.warning("closing connection to %s: %s", self, reason)
        if not self._closing:
            self._closing = True
            self.reason = reason
        self._stop_clock()
        self.abort()

    def abort(self) -> None:
        """Close without waiting for unsent packets."""
        if self._transport is not None:
            self._transport.abort()

    def __str__(self) -> str:
        if self.link == NOBODY:
            return self.address or "a stranger"
        return f"node {self.link} ({self.address})" if self.address else f"node {self.link}"
