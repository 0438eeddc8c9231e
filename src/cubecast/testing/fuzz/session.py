"""A connection of the fuzzer: dialled by hand, read at once, and what is read is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from cubecast.testing.dialler import Dialler

PATIENCE_S = 20.0
"""How long an attacker waits for a victim that says nothing: longer than a handshake may take."""
HARVEST = 300
"""Packets of a victim that are kept, to be replayed or changed."""


class HostileSession(Dialler):
    """One connection to a victim, dialled from an address that marks it as hostile.

    Whatever the victim sends is read at once, so that it never waits for us, and kept in
    `harvest` if it can be read.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._news = asyncio.Event()
        self.peer = ""
        self.harvest: deque[bytes] = deque(maxlen=HARVEST)

    @classmethod
    async def dial_for(cls, address: str, source: str, harvest: deque[bytes]) -> HostileSession:
        """Connect, from one of our own addresses; what is heard goes to `harvest`."""
        session = await cls.dial(address, source)
        session.peer, session.harvest = address, harvest
        return session

    @property
    def over(self) -> bool:
        """Whether the victim is known to have hung up."""
        return self.is_closing() or self._reader.at_eof()

    async def packet(self) -> tuple[int, bytes] | None:
        """The next packet; None at the end."""
        async with asyncio.timeout(PATIENCE_S):
            packet = await super().packet()
        self._news.set()
        if packet is not None:
            self.harvest.append(packet[1])
        return packet

    async def finish(self) -> None:
        """Say that nothing more will come, and wait until the victim has looked at it all."""
        self.say_no_more()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the victim closes the connection."""
        try:
            await super().ended()
        finally:
            self._news.set()

    async def answered(self, limit_s: float) -> None:
        """Wait until a reader of this session gets something more, at most `limit_s`."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._news.wait()
