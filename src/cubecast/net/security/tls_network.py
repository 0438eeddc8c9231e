"""TLS over TCP: a node or client dials and accepts peers by their certificates.

Connections are those of `cubecast.net.security.tls_connection`, certificates those of
`cubecast.net.security.tls_files`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cubecast.net.links.transport import Factory, TcpNetwork, TcpServer
from cubecast.net.security.tls import NO_ROLE, Certificate, Role, Tls, TlsError, peer_certificate
from cubecast.net.security.tls_connection import TlsStream
from cubecast.net.security.tls_files import Material, TlsFiles
from cubecast.net.wire.hello import Refused, encode_greeting

log = logging.getLogger("cubecast")

LOOK_S = 2.5
"""A node looks this often whether the files of TLS have changed."""
PLAIN_REFUSAL = "this node speaks TLS; set tls_ca, tls_cert and tls_key to dial it"
MAKE_ROOM_SHARE = 4
"""When descriptors run out, one in so many connections in the handshake is closed."""


class TlsServer:
    """A listening socket whose peers prove their identity."""

    def __init__(self, server: TcpServer, network: TlsNetwork) -> None:
        self._server = server
        self._network = network
        self.bound = server.bound
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def _look(self) -> None:
        """Look at the files now and then, so that a revocation ends open connections."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        self._network.refresh()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.close()
        self._network.hang_up_on_arrivals()


class TlsNetwork:
    """TLS 1.3 over TCP; both sides show a certificate and verify the other's.

    A dialler demands a node's certificate.  At most `max_arrivals` accepted connections are in the
    handshake at a time: one more and the oldest is closed, silent ones first, and each is closed
    after 10 s.  New connections use the files as they are; an open one lasts until it ends, or
    until its certificate is on the list of revoked ones.
    """

    def __init__(self, tls: Tls, role: Role | None = None, max_arrivals: int = 256) -> None:
        self._tcp = TcpNetwork()
        self._tcp.exhausted = self._make_room
        self.exhausted: Callable[[], None] = lambda: None
        """Called when a connection cannot be accepted because no descriptor is left."""
        self._files = TlsFiles(tls, role)
        self.max_arrivals = max_arrivals
        self._material = self._files.current()
        self._arrivals: dict[TlsStream, None] = {}  # oldest first
        self._open: dict[TlsStream, None] = {}

    @property
    def certificate(self) -> Certificate:
        """Our own certificate."""
        return self._material.certificate

    async def listen(self, factory: Factory, host: str, port: int) -> TlsServer:
        words = encode_greeting(Refused(PLAIN_REFUSAL))

        def accept() -> TlsStream:
            context = self.refresh().accepting
            return TlsStream(context, self, factory, dialled=False, plain_words=words)

        return TlsServer(await self._tcp.listen(accept, host, port), self)

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        stream = TlsStream(self.refresh().dialling, self, factory, dialled=True)
        await self._tcp.dial(lambda: stream, host, port)
        try:
            await stream.settled
        except asyncio.CancelledError:
            stream.abort()
            raise

    def refresh(self) -> Material:
        """What to use now; if the files have changed, revoked peers lose their connections."""
        before, self._material = self._material, self._files.current()
        if self._material is not before:
            revoked = self._material.revoked
            for stream in [one for one in self._open if revoked(one.certificate_der())]:
                log.warning("closing connection to %s: its certificate is revoked", stream.address)
                stream.cut("its certificate is revoked")
        return self._material

    def hang_up_on_arrivals(self) -> None:
        """Close all connections that are in the handshake."""
        for stream in list(self._arrivals):
            stream.abort()

    # -- the keeper of connections -----------------------------------------------------------------

    def arrived(self, stream: TlsStream) -> None:
        if stream.dialled:
            return
        self._arrivals[stream] = None
        if len(self._arrivals) > self.max_arrivals:
            self._turn_away_oldest(f"more than {self.max_arrivals} in the TLS handshake at a time")

    def _turn_away_oldest(self, reason: str) -> None:
        """Close the oldest arrival that has sent nothing, the newest excepted.

        If there is none, close the oldest.  So a flood of connections that say nothing does not
        push out a node that is joining.
        """
        *others, _newest = self._arrivals
        silent = (one for one in others if not one.begun)
        gone = next(silent, next(iter(self._arrivals)))
        del self._arrivals[gone]
        log.warning("closing connection to %s: %s", gone.address, reason)
        gone.abort()

    def _make_room(self) -> None:
        """Close some connections in the handshake, then ask the owner to close others."""
        for _ in range(-(-len(self._arrivals) // MAKE_ROOM_SHARE)):
            self._turn_away_oldest("the process has no file descriptor left")
        self.exhausted()

    def verified(self, stream: TlsStream) -> None:
        if self._material.revoked(stream.certificate_der()):  # since the handshake began
            raise TlsError("its certificate is revoked")
        if stream.dialled:
            certificate = peer_certificate(stream)
            if certificate is None:
                raise TlsError(NO_ROLE)
            if certificate.role != "node":
                raise TlsError(f"it has the certificate of the client {certificate.name}")
        self._arrivals.pop(stream, None)
        self._open[stream] = None

    def refused(self, stream: TlsStream, by_peer: bool, reason: str) -> None:
        if by_peer:  # if we dialled, the owner logs it, and not each time
            level = logging.INFO if stream.dialled else logging.WARNING
            log.log(level, "%s refused us: %s", stream.address, reason)
        else:
            what = (
                "giving up the connection to" if stream.dialled else "refusing the connection from"
            )
            log.warning("%s %s: %s", what, stream.address, reason)

    def gone(self, stream: TlsStream) -> None:
        self._arrivals.pop(stream, None)
        self._open.pop(stream, None)
