"""A network in memory: what one end writes, the other end gets one turn of the loop later.

It loses, repeats and reorders nothing, as TCP; `LinkFaults` above it do.  Invariants:

1. What is written before `close` arrives before the end is seen; after `abort` nothing more does.
2. A protocol hears `connection_made`, then data, then `connection_lost` once.
3. No protocol is called from inside `write` or `close`, as with a socket.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from typing import Any

from cubecast.net.links.transport import Factory

FIRST_PORT = 40_000
LAST_PORT = 65_535

Address = tuple[str, int]


class MemoryNetwork:
    """Servers by address; networks are separate from each other."""

    def __init__(self) -> None:
        self._listeners: dict[Address, MemoryServer] = {}
        self._next_port = FIRST_PORT

    async def listen(self, factory: Factory, host: str, port: int) -> MemoryServer:
        if port == 0:
            port = self._free_port(host)
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = MemoryServer(self, factory, (host, port))
        self._listeners[host, port] = listener
        return listener

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        await asyncio.sleep(0)
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here = (host, self._free_port(host))
        dialler = MemoryTransport(factory(), here, listener.bound)
        dialled = MemoryTransport(listener.factory(), listener.bound, here)
        dialler.connect(dialled)

    def forget(self, bound: Address) -> None:
        """Remove the server at an address."""
        self._listeners.pop(bound, None)

    def _free_port(self, host: str) -> int:
        """The next port without a server: not used again soon, as with an operating system."""
        for _ in range(FIRST_PORT, LAST_PORT + 1):
            port = self._next_port
            self._next_port = port + 1 if port < LAST_PORT else FIRST_PORT
            if (host, port) not in self._listeners:
                return port
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


class MemoryServer:
    """A listening server of a memory network."""

    def __init__(self, network: MemoryNetwork, factory: Factory, bound: Address) -> None:
        self._network = network
        self.factory = factory
        self.bound = bound

    def close(self) -> None:
        self._network.forget(self.bound)


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    _peer: MemoryTransport

    def __init__(self, protocol: asyncio.BaseProtocol, here: Address, there: Address) -> None:
        super().__init__({"sockname": here, "peername": there})
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._closing = False
        self._lost = False
        self._said_eof = False
        self._paused = False
        self._unread: list[bytes | None] = []

    def connect(self, peer: MemoryTransport) -> None:
        """Open the connection; the end that was dialled hears of it first, as it must answer."""
        self._peer, peer._peer = peer, self
        self._loop.call_soon(peer._protocol.connection_made, peer)
        self._protocol.connection_made(self)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._said_eof and not self._closing:
            raise RuntimeError("nothing can be written after write_eof()")
        if data and not self._closing:
            self._loop.call_soon(self._peer._arrive, bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._said_eof and not self._closing:
            self._said_eof = True
            self._loop.call_soon(self._peer._arrive, None)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, 0)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything written is with the other end at once: there is no buffer to limit."""

    # -- reading ---------------------------------------------------------------------------------

    def _arrive(self, data: bytes | None) -> None:
        """Data, or None at the end of it, from the other end."""
        if self._closing:
            return
        if self._paused:
            self._unread.append(data)
        elif data is not None:
            self._hand_over(data)
        elif not self._reads().eof_received():
            self.close()

    def _reads(self) -> asyncio.Protocol | asyncio.BufferedProtocol:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        return self._protocol

    def _hand_over(self, data: bytes) -> None:
        """Give data to a protocol that takes bytes, or to one that has a buffer for them."""
        reads = self._reads()
        if isinstance(reads, asyncio.Protocol):
            reads.data_received(data)
            return
        rest = memoryview(data)
        while rest and not self._closing:
            room = memoryview(reads.get_buffer(len(rest))).cast("B")
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            reads.buffer_updated(count)
            rest = rest[count:]

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        unread, self._unread = self._unread, []
        for data in unread:
            self._loop.call_soon(self._arrive, data)

    # -- the end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._end(None)

    def abort(self) -> None:
        if not self._closing:
            self._end(None)
            reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._loop.call_soon(self._peer._end, reset)

    def _end(self, error: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
