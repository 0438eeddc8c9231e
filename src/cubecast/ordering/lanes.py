"""Lanes to an event service: the items of a lane are handed over in order, all at once.

A lane has a task only while it has items, so that there may be many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Lanes by key: a lane that waits holds up no other."""

    def __init__(
        self,
        hand_over: Callable[[list[T]], Awaitable[None]],
        failed: Callable[[Exception], None],
    ) -> None:
        """`hand_over` gets all items of a lane, and is not called again for it before it ends.

        If it raises, `failed` is called with the reason.
        """
        self._hand_over = hand_over
        self._failed = failed
        self._gathered: dict[Hashable, list[T]] = {}
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def put(self, lane: Hashable, item: T) -> None:
        """Hand an item over after those that are in the lane already."""
        gathered = self._gathered.get(lane)
        if gathered is None:
            gathered = self._gathered[lane] = []
        gathered.append(item)
        if lane not in self._tasks:
            self._tasks[lane] = asyncio.create_task(self._drain(lane))

    async def _drain(self, lane: Hashable) -> None:
        try:
            while items := self._gathered.pop(lane, None):
                await self._hand_over(items)
        except Exception as error:
            self._failed(error)
        finally:
            del self._tasks[lane]

    async def close(self) -> None:
        """Hand nothing more over."""
        self._gathered.clear()
        for task in list(self._tasks.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
