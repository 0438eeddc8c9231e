"""What a node needs of a network: somewhere to listen, and a way to dial.

A node is given a `Network`; without one it uses TCP.  Whatever else carries bytes between two
asyncio protocols in order (memory, a tunnel) can take its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from cubecast.net.links.descriptors import Shortage, is_exhausted

log = logging.getLogger("cubecast")

Factory: TypeAlias = Callable[[], asyncio.BaseProtocol]
"""Makes the protocol object of one connection."""

BACKLOG = 128
"""Connections that wait to be accepted."""
AT_A_TIME = 4
"""Connections accepted in one tick: bytes of the first are read before many more come."""
PAUSE_S = 0.05
"""How long nothing is accepted after that failed, so that a failure is not tried in a loop."""


class Server(Protocol):
    """A listening server: its address, and how to close it."""

    @property
    def bound(self) -> tuple[str, int]:
        """The host and port it listens on, also where port 0 asked for any."""

    def close(self) -> None:
        """Take no more connections; those that are open stay so."""


class Network(Protocol):
    """Connections between nodes, as streams of bytes."""

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        """Take connections at `host` and `port`; `OSError` if that is not possible."""

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        """Connect to the server at `host` and `port`; `OSError` if it cannot be reached."""


def _nothing() -> None:
    """Default of `TcpNetwork.exhausted`: make no room."""


class TcpServer:
    """Listening sockets.

    Connections are accepted here and not by the loop, because loops differ when the process has no
    descriptor left: asyncio's stops accepting for a second at a time, uvloop's accepts and hangs
    up.  Here the server's owner is asked to make room, and the next attempt follows after
    `PAUSE_S`.
    """

    def __init__(
        self, sockets: list[socket.socket], factory: Factory, exhausted: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._factory = factory
        self._exhausted = exhausted
        self._shortage = Shortage(self._loop.time)
        self._beginning: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        name = sockets[0].getsockname()
        self.bound: tuple[str, int] = (name[0], name[1])
        for one in sockets:
            self._loop.add_reader(one, self._accept, one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_A_TIME):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            task = self._loop.create_task(self._begin(accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:  # its peer is gone already
            log.debug("a connection ended before it began: %s", error)
            accepted.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept nothing for a moment: what waits would fail again at once."""
        self._loop.remove_reader(listening)
        self._pauses[listening] = self._loop.call_later(PAUSE_S, self._resume, listening)
        if is_exhausted(error):
            self._shortage.notice("accept a connection", error)
            self._exhausted()
        else:
            log.error("cannot accept a connection: %s", error)

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        for pause in self._pauses.values():
            pause.cancel()
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        self._sockets, self._pauses = [], {}


class TcpNetwork:
    """TCP through the running loop."""

    exhausted: Callable[[], None] = staticmethod(_nothing)
    """Called when a connection cannot be accepted because no descriptor is left."""

    async def listen(self, factory: Factory, host: str, port: int) -> TcpServer:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sockets.append(_listening(family, kind, protocol, address))
        except BaseException:
            for one in sockets:
                one.close()
            raise
        return TcpServer(sockets, factory, lambda: self.exhausted())

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        await asyncio.get_running_loop().create_connection(factory, host, port)


def _listening(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix" and sys.platform != "cygwin":  # elsewhere it lets others take over
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        try:
            one.bind(address)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            where = f"{address[0]}:{address[1]}"
            raise OSError(error.errno, f"cannot listen on {where}: {reason}") from None
        one.listen(BACKLOG)
    except BaseException:
        one.close()
        raise
    return one
