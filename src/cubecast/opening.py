"""Objects that are entered with ``async with``, and hints for code that uses them otherwise."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AsyncOnly:
    """Raises an error with a hint if code awaits, iterates or enters it without ``async``.

    `HINT` is how it is used.  Type checkers do not see these methods, so they still refuse such
    code.
    """

    HINT = "async with ... as it"

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise TypeError(f"this is entered, not awaited: {self.HINT}")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"`with` does not do, `async with` does: {self.HINT}")

        def __exit__(self, *_: object) -> None:
            pass

        def __iter__(self) -> NoReturn:
            raise TypeError(f"`for` does not do, `async for` does: {self.HINT}")


class ClosesAtEnd(AsyncOnly, abc.ABC):
    """A context manager that closes at the end of its block; exceptions pass through."""

    HINT = "async with node.subscribe(topic) as messages: async for message in messages: ..."

    @abc.abstractmethod
    async def close(self) -> None:
        """Close it; closing twice is harmless."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class OpeningContext(AsyncOnly, AbstractAsyncContextManager[T]):
    """A node or a client that begins when this is entered and ends when it is left."""

    def __init__(self, manager: AbstractAsyncContextManager[T], hint: str) -> None:
        self._manager = manager
        self.HINT = hint

    def __repr__(self) -> str:
        return f"<not entered yet: {self.HINT}>"

    async def __aenter__(self) -> T:
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"no {name!r} before it is entered: {self.HINT}")


def opening(
    hint: str,
) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, AbstractAsyncContextManager[T]]]:
    """As `asynccontextmanager`, with a hint for code that does not enter the result."""

    def decorate(
        function: Callable[P, AsyncIterator[T]],
    ) -> Callable[P, AbstractAsyncContextManager[T]]:
        managed = asynccontextmanager(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
            return OpeningContext(managed(*args, **kwargs), hint)

        return call

    return decorate
