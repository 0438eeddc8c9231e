"""Async context managers that are closed when their block is left, however it is left."""

from __future__ import annotations

import abc
from types import TracebackType

from cubecast.opening import AsyncOnly


class ClosesAtEnd(AsyncOnly, abc.ABC):
    """Leaving the block closes it; an exception on its way is let through."""

    HINT = "async with node.subscribe(topic) as messages: async for message in messages: ..."

    @abc.abstractmethod
    async def close(self) -> None:
        """End it; closing twice is harmless."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
