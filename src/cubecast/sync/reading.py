"""Reading from other threads: a task of the loop takes messages or events ahead for them.

1. At most `AHEAD_BYTES` or `AHEAD` items are taken ahead, whichever comes first, but at least one;
   the rest waits in the source, and the policy applies there.
2. Items are handed out in their order, each to one thread.
3. A reader that is closed or garbage collected ends its source: an unread subscription would stall
   publishers.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from cubecast.errors import Closed, CubecastError
from cubecast.sync.session import SessionThread

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound="Reader[Any]")

AHEAD = 1024
AHEAD_BYTES = 256 * 1024


class ReadSource(Protocol[T_co]):
    """The source of items; its `close`, if it has one, ends it."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...


class Ahead(Generic[T]):
    """Items taken ahead: filled in the loop, emptied by other threads."""

    def __init__(self, source: ReadSource[T], size_of: Callable[[T], int]) -> None:
        self.source = source
        self._size_of = size_of
        self._news = threading.Condition()
        self._items: deque[T] = deque()
        self._bytes = 0
        self._room = asyncio.Event()
        self._full = False
        self._over = False
        self._error: BaseException | None = None

    async def fill(self) -> None:
        """Take items until the source ends."""
        error: BaseException | None = None
        try:
            async for item in self.source:
                if self._put(item):
                    await self._room.wait()
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):  # the session ends
                error = Closed("it is closed")
                raise
        finally:
            self.end(error)

    def _put(self, item: T) -> bool:
        with self._news:
            if self._over:
                return False
            self._items.append(item)
            self._bytes += self._size_of(item)
            self._full = self._bytes >= AHEAD_BYTES or len(self._items) >= AHEAD
            if self._full:
                self._room.clear()
            self._news.notify()
            return self._full

    def end(self, error: BaseException | None) -> None:
        """Wake the waiting threads: no more items come."""
        with self._news:
            if not self._over:
                self._over, self._error = True, error
            self._news.notify_all()

    def clear(self) -> None:
        """Drop the items, and end: they will not be read."""
        with self._news:
            self._items.clear()
            self._over, self._error, self._full = True, None, False
            self._news.notify_all()

    def make_room(self) -> None:
        """Let `fill` go on; called in the loop."""
        self._room.set()

    def take(self, timeout: float | None) -> tuple[T, bool]:
        """The next item, and whether the loop waits for room; `TimeoutError` if there is none."""
        with self._news:
            if not self._news.wait_for(self._ready, timeout):
                raise TimeoutError
            if not self._items:
                raise self._error or StopIteration
            item = self._items.popleft()
            self._bytes -= self._size_of(item)
            wakes = self._full and self._bytes * 2 < AHEAD_BYTES and len(self._items) * 2 < AHEAD
            if wakes:
                self._full = False
            return item, wakes

    def _ready(self) -> bool:
        return bool(self._items) or self._over


class Reader(Generic[T]):
    """An iterator over the items of a source in the loop; a context manager that closes it."""

    def __init__(
        self,
        session: SessionThread[Any],
        source: ReadSource[T],
        what: str,
        timeout: float | None = None,
        size_of: Callable[[T], int] = lambda _: 1,
    ) -> None:
        self._session = session
        self._what = what
        self._timeout = timeout
        self._ahead = session.call(_begin(session, source, size_of))
        self._letting_go = weakref.finalize(self, _let_go, session, self._ahead)
        self._letting_go.atexit = False  # the session is left then

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hand out nothing more; in a thread that waits for the next item, the iteration ends."""
        if self._letting_go.detach() is not None:
            self._ahead.clear()
            with suppress(Closed):
                self._session.call(_close(self._ahead))

    def get(self, timeout: float | None = None) -> T:
        """The next item; `TimeoutError` if none comes in `timeout` seconds, `Closed` at the end."""
        try:
            return self._next(timeout)
        except StopIteration:
            raise Closed(f"the {self._what} is closed") from None

    def take(self, count: int, timeout: float | None = None) -> list[T]:
        """The next `count` items; fewer if `timeout` seconds pass, or at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        taken: list[T] = []
        while len(taken) < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                taken.append(self._next(left))
            except (TimeoutError, StopIteration):
                break
        return taken

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> T:
        return self._next(self._timeout)

    def _next(self, timeout: float | None) -> T:
        try:
            item, wakes = self._ahead.take(timeout)
        except TimeoutError:
            raise TimeoutError(f"{self._what}: nothing came in {timeout:g} s") from None
        if wakes:
            self._session.post(self._ahead.make_room)
        return item


async def _begin(
    session: SessionThread[Any], source: ReadSource[T], size_of: Callable[[T], int]
) -> Ahead[T]:
    ahead = Ahead(source, size_of)
    session.run_beside(ahead.fill())
    return ahead


async def _close(ahead: Ahead[Any]) -> None:
    """End the source, in the loop."""
    ahead.make_room()
    closing = getattr(ahead.source, "close", None)
    ended = None if closing is None else closing()
    if isawaitable(ended):
        with suppress(CubecastError):  # its node or client has ended before
            await ended


def _let_go(session: SessionThread[Any], ahead: Ahead[Any]) -> None:
    """End the source of a reader that was garbage collected; the calling thread must not wait."""
    ahead.clear()
    session.post(lambda: session.run_beside(_close(ahead)))
