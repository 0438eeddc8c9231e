"""An attacker between two ends that trust each other: passes on packets, changed or not.

It remembers every byte, so that a test can look for plain text in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from cubecast.net.links.address import parse_address
from cubecast.net.wire.packet_buffer import PacketBuffer

Change: TypeAlias = Callable[[int, bytes], list[bytes]]
"""Maps a packet, and its number on the way, to the packets that the relay passes on."""


def unchanged(number: int, packet: bytes) -> list[bytes]:
    """Pass it on as it is."""
    return [packet]


class Relay:
    """Passes connections on to the address `to`, and remembers every byte."""

    def __init__(self, to: str, change: Change = unchanged) -> None:
        self.to = to
        self.change = change
        self.heard = bytearray()
        self.packets = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: it goes on until either end hangs up."""
        try:
            there = await asyncio.open_connection(*parse_address(self.to))
        except OSError:
            writer.close()
            return
        self._writers += [writer, there[1]]
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all connections."""
        for task in list(self._tasks):
            task.cancel()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        buffer = PacketBuffer()
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.heard += data
                for _, packet in buffer.feed(data):
                    self.packets += 1
                    for changed in self.change(self.packets, packet):
                        sink.write(changed)
        sink.close()


@asynccontextmanager
async def relay(
    to: str, port: int = 0, change: Change = unchanged
) -> AsyncIterator[tuple[str, Relay]]:
    """A relay that listens on a port of this machine: its address, and itself."""
    one = Relay(to, change)
    server = await asyncio.start_server(one.serve, "127.0.0.1", port)
    host, bound = server.sockets[0].getsockname()
    try:
        yield f"{host}:{bound}", one
    finally:
        server.close()
        await one.close()
