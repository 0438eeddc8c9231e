"""One TLS connection: TCP below, the protocol of a node or client above.

asyncio and uvloop have TLS of their own.  Both drop the alert with which a handshake is refused
(seen with Python 3.11 and uvloop 0.23), so that a refused peer cannot be told why; and both choose
the certificates when listening begins, not when a peer connects.  Here:

1. The protocol above is made, and gets the connection, once both sides have verified the other's
   certificate; it sends nothing before.
2. A refused peer gets the alert: the connection is kept half open until the peer hangs up, at most
   `LINGER_S`, as closing it with unread data would destroy the alert on its way.
3. Nothing is buffered here: what is written is with the TCP transport at once, encrypted, so its
   `get_write_buffer_size` is all that the peer has not taken.
4. A handshake that takes longer than `HANDSHAKE_S` is cut off.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from cubecast.net.links.address import format_address
from cubecast.net.security.tls import SET_UP, TlsError, begins_tls, in_words

HANDSHAKE_S = 10.0
PIECE_BYTES = 256 * 1024
"""What is encrypted at a time: OpenSSL keeps the memory of the largest piece for the connection."""
LINGER_S = 1.0
RECORD_BYTES = 16 * 1024
"""What TLS encrypts at a time."""


class TlsStreamHost(Protocol):
    """What a connection needs of its network."""

    def arrived(self, stream: TlsStream) -> None:
        """The TCP connection is open; the handshake begins."""

    def verified(self, stream: TlsStream) -> None:
        """Both certificates are verified; `TlsError` to hang up all the same."""

    def refused(self, stream: TlsStream, by_peer: bool, reason: str) -> None:
        """One side does not accept the other."""

    def gone(self, stream: TlsStream) -> None:
        """The TCP connection has ended."""


class TlsStream(asyncio.Protocol, asyncio.Transport):
    """The protocol of a TCP connection, and the transport of what is above."""

    def __init__(
        self,
        context: ssl.SSLContext,
        keeper: TlsStreamHost,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        dialled: bool,
        plain_words: bytes = b"",
    ) -> None:
        asyncio.Transport.__init__(self)
        self.dialled = dialled
        self._keeper = keeper
        self._factory = factory
        self._plain_words = plain_words  # the answer to a peer without TLS
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not dialled)
        self._loop = asyncio.get_running_loop()
        self._raw: asyncio.Transport | None = None
        self._above: asyncio.BaseProtocol | None = None
        self._certificate: dict[str, Any] = {}
        self._certificate_der = b""
        self.begun = False
        self._closing = False
        self._deadline: asyncio.TimerHandle | None = None
        self._error: TlsError | None = None
        self.address = "a stranger"
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is; with a `TlsError` if it failed."""

    @property
    def secured(self) -> bool:
        """Whether both certificates were verified."""
        return self._above is not None

    # -- the TCP connection ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = format_address(peer[0], peer[1])
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_late)
        self._keeper.arrived(self)
        if self.dialled:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if not self.begun and not self.dialled and not begins_tls(data):
            self._turn_down_plain()
            return
        self.begun = True
        self._incoming.write(data)
        if not self.secured:
            self._shake_hands()
        if self.secured:
            self._read()

    def eof_received(self) -> bool:
        """TCP ended; all TLS data before it has been read already."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._raw = None
        self._closing = True
        self._stop_clock()
        self._keeper.gone(self)
        if self._above is not None:
            self._above.connection_lost(self._error or exc)
        else:
            self._settle(TlsError(f"it hung up in the TLS handshake; does it use TLS? {SET_UP}"))

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # -- the handshake -----------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._refuse(*in_words(error))
            return
        self._flush()
        self._certificate = self._tls.getpeercert() or {}
        self._certificate_der = self._tls.getpeercert(True) or b""
        try:
            self._keeper.verified(self)
        except TlsError as error:
            self._refuse(False, str(error))
            return
        self._stop_clock()
        self._settle(None)
        self._above = self._factory()
        self._above.connection_made(self)

    def _too_late(self) -> None:
        reason = f"no TLS handshake in {HANDSHAKE_S:g} s"
        self._keeper.refused(self, False, reason)
        self._settle(TlsError(reason))
        self.abort()

    def _turn_down_plain(self) -> None:
        """Refuse a peer that does not speak TLS in plain bytes; it cannot read an alert."""
        if self._raw is not None:
            self._raw.write(self._plain_words)
        self._refuse(False, f"it does not speak TLS; {SET_UP}")

    def _refuse(self, by_peer: bool, reason: str) -> None:
        """The handshake failed: let the alert out, and wait a little for the peer to hang up."""
        self._flush()
        self._keeper.refused(self, by_peer, reason)
        self._settle(TlsError(f"refused: {reason}" if by_peer else reason))
        self._closing = True
        self._stop_clock()
        if self._raw is not None and not self._raw.is_closing():
            self._raw.write_eof()
            self._deadline = self._loop.call_later(LINGER_S, self.abort)

    def _settle(self, error: TlsError | None) -> None:
        if self.settled.done():
            return
        if error is None:
            self.settled.set_result(None)
        else:
            self.settled.set_exception(error)
            self.settled.exception()  # retrieved here: only a dialler awaits it

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    # -- reading -----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Hand over what has come, as much at a time as there is room for."""
        more = True
        while more and not self._closing:
            if isinstance(self._above, asyncio.BufferedProtocol):
                room = memoryview(self._above.get_buffer(-1)).cast("B")
                filled, more = self._fill(room)
                if filled:
                    self._above.buffer_updated(filled)
            else:
                chunk = bytearray(RECORD_BYTES)
                filled, more = self._fill(memoryview(chunk))
                if filled:
                    cast(asyncio.Protocol, self._above).data_received(bytes(chunk[:filled]))
        self._flush()  # TLS may have something of its own to say

    def _fill(self, room: memoryview) -> tuple[int, bool]:
        """Decrypt into `room`: how many bytes, and whether there may be more."""
        filled = 0
        try:
            while filled < len(room):
                count = self._tls.read(len(room) - filled, cast(bytearray, room[filled:]))
                if not count:
                    break
                filled += cast(int, count)
                if not self._incoming.pending and not self._tls.pending():
                    return filled, False  # as reading on would say, by an exception
            else:
                return filled, True
        except ssl.SSLWantReadError:
            return filled, False
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLError as error:
            self._break(error)
            return filled, False
        self._loop.call_soon(self.close)  # the peer said goodbye; first hand over what came before
        return filled, False

    def _break(self, error: ssl.SSLError) -> None:
        """TLS ends the connection; with TLS 1.3 a dialler hears only now that it is refused."""
        if self._error is not None:
            return
        by_peer, reason = in_words(error)
        self._keeper.refused(self, by_peer, reason)
        self._error = TlsError(f"refused: {reason}" if by_peer else reason)
        self._flush()
        self._loop.call_soon(self.abort)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._error is not None or not data:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(cast(bytes, rest[:PIECE_BYTES])) :]
                self._flush()
        except ssl.SSLError as error:
            self._break(error)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    # -- the end -----------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or self._raw is None or self._raw.is_closing()

    def close(self) -> None:
        """End TLS after what was written, and close without waiting for the peer's end."""
        if self._closing:
            return
        self._closing = True
        self._stop_clock()
        if self.secured:
            with suppress(ssl.SSLError):  # it wants the peer's answer, or is broken
                self._tls.unwrap()
            self._flush()
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._stop_clock()
        if self._raw is not None:
            self._raw.abort()

    def cut(self, reason: str) -> None:
        """End an open connection for a reason that the protocol above is told."""
        self._error = TlsError(reason)
        self.abort()

    # -- about it ----------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "peercert":
            return self._certificate or default
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def certificate_der(self) -> bytes:
        """The peer's certificate as it came; empty before it was verified.

        Kept, as TLS that has failed since, or was refused by the peer, does not give it any more.
        """
        return self._certificate_der

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self if self._above is None else self._above
