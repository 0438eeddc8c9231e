"""What a node needs of a network: somewhere to listen, and a way to dial.

A node is given a `Network`; without one it uses TCP.  Whatever else carries bytes between two
asyncio protocols in order (memory, a tunnel) can take its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

Factory: TypeAlias = Callable[[], asyncio.BaseProtocol]
"""Makes the protocol object of one connection."""


class Server(Protocol):
    """An open door: where it is, and how to shut it."""

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
        """Connect to who listens there; `OSError` if nobody can be reached."""


class TcpServer:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        name = server.sockets[0].getsockname()
        self.bound: tuple[str, int] = (name[0], name[1])

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """TCP through the running loop."""

    async def listen(self, factory: Factory, host: str, port: int) -> TcpServer:
        loop = asyncio.get_running_loop()
        return TcpServer(await loop.create_server(factory, host, port))

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        await asyncio.get_running_loop().create_connection(factory, host, port)
