"""A connection of an attacker; it raises instead of writing to a node known to be gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cubecast.net.wire.hello import Greeting, Refused
from cubecast.testing.dialler import Dialler

DIAL_S = 5.0


class Raw(Dialler):
    """A connection by hand; `ConnectionError` when the node hung up, or sent a refusal."""

    def write_clear(self, data: bytes) -> None:
        """Send bytes as they are; `ConnectionResetError` if the node has hung up."""
        if self.is_closing():
            raise ConnectionResetError("the node hung up")
        super().write_clear(data)

    async def greeting(self) -> Greeting:
        """The next packet, which is to be a greeting, and no refusal."""
        message = await super().greeting()
        if isinstance(message, Refused):
            raise ConnectionRefusedError(message.reason)
        return message


@asynccontextmanager
async def dialled(address: str) -> AsyncIterator[Raw]:
    """A connection to a node, reset at the end."""
    async with asyncio.timeout(DIAL_S):
        raw = await Raw.dial(address)
    try:
        yield raw
    finally:
        raw.hang_up()
