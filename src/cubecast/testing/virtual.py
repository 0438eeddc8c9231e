"""An event loop on virtual time: it never waits, and a run can be repeated exactly.

Theory of operation.  When nothing is ready the clock jumps to the next timer, so a sleep takes no
real time; what the nodes of a cluster do meanwhile does.  A turn of the loop takes a microsecond,
so that code that polls without sleeping sees time pass as well.  Nothing depends on how fast the
machine is, unless the program uses threads or sockets:

1. While a job runs in a thread (`asyncio.to_thread`, `run_in_executor`) the clock stands still
   and the loop waits for it in real time.
2. Sockets, pipes and subprocesses work, but the clock does not wait for them while a timer is
   planned: a time-out may strike before an answer that takes no time in the real world.
3. If nothing is ready, no timer is planned and no thread or socket can wake the loop, it raises
   `Deadlock`, which says which tasks wait where.  So does a run of more than `limit_s` (nodes of a
   cluster test each other for ever, so theirs is the only limit), and a thread or socket that is
   silent for `patience_s` of real time.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import selectors
import sysconfig
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from pathlib import Path
from types import CodeType
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, overload

from cubecast.errors import CubecastError

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
Events = list[tuple[selectors.SelectorKey, int]]

TURN_S = 1e-6
"""What a turn of the loop takes."""
LIMIT_S = 14_400.0
"""A run of more virtual time, four hours, is taken to wait for something that never comes."""
TEST_LIMIT_S = 1800.0
"""The limit of a test, half an hour: one that hangs is to fail soon."""
PATIENCE_S = 30.0
LIBRARIES = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"))
"""Code in these places is not the application's."""
CLEANING_UP_S = 600.0
"""After a deadlock all waiting tasks are cancelled, and have so long to clean up."""


class Deadlock(CubecastError):
    """Nothing will ever happen any more; `waiting` says which tasks wait where."""

    def __init__(self, reason: str, waiting: list[str]) -> None:
        super().__init__("\n  ".join([reason, *waiting]))
        self.reason = reason
        self.waiting = waiting


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for `asyncio.Runner(loop_factory=VirtualLoop)`, or for `cubecast.testing.run`."""

    def __init__(self, *, limit_s: float = LIMIT_S, patience_s: float = PATIENCE_S) -> None:
        self._now = 0.0
        self._limit_s = limit_s
        self._patience_s = patience_s
        self._threads = 0
        super().__init__(_IdleSelector(self._idle))

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._now

    def _idle(
        self, timeout: float | None, wait: Callable[[float], Events], outside: bool
    ) -> Events:
        """Nothing is ready: wait for the real world, or go to the next timer."""
        if timeout == 0:
            self._now += TURN_S
            return []
        if self._threads or (outside and timeout is None):
            events = wait(self._patience_s)
            if not events:
                who = "a thread" if self._threads else "a socket or pipe"
                reason = f"{who} did nothing for {self._patience_s:g} s of real time"
                raise Deadlock(reason, self._waiting())
            return events
        if timeout is None:
            raise Deadlock("nothing is left that could happen", self._waiting())
        self._now += timeout + TURN_S
        if self._now > self._limit_s:
            reason = (
                f"not at an end after {self._limit_s:g} s of virtual time; "
                "if it needs more, give it more: limit_s=..."
            )
            self._limit_s = self._now + CLEANING_UP_S
            raise Deadlock(reason, self._waiting())
        return []

    def _waiting(self) -> list[str]:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return [f"{task.get_name()} {_where(task)}" for task in tasks]

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As any loop does; the clock stands still until the job is done."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: Any) -> None:
        self._threads -= 1

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._threads += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._threads -= 1


class _IdleSelector(selectors.DefaultSelector):
    """Looks at the files as ever, and asks the loop what to do instead of waiting."""

    def __init__(
        self, idle: Callable[[float | None, Callable[[float], Events], bool], Events]
    ) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Events:
        events = super().select(0)
        if events:
            return events
        outside = len(self.get_map()) > 1  # the loop's own pipe is always there
        return self._idle(timeout, super().select, outside)


def _where(task: asyncio.Task[Any]) -> str:
    """Where a task waits: in which line of the application or the test, and where inside."""
    places: list[str] = []
    asked = ""
    waiter: Any = task.get_coro()
    while waiter is not None:
        frame = getattr(waiter, "cr_frame", None) or getattr(waiter, "gi_frame", None)
        if frame is None:
            break
        places.append(_place(frame.f_code, frame.f_lineno))
        if not frame.f_code.co_filename.startswith(LIBRARIES):
            asked = places[-1]
        waiter = getattr(waiter, "cr_await", None) or getattr(waiter, "gi_yieldfrom", None)
    if not places:
        return "has not begun"
    first, last = asked or places[0], places[-1]
    return f"waits in {first}" if first == last else f"waits in {first}, inside {last}"


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_name} ({code.co_filename}:{line})"


def run(work: Coroutine[Any, Any, T], *, limit_s: float = LIMIT_S) -> T:
    """Run `work` to its end on virtual time; `Deadlock` after `limit_s` seconds of that."""
    with asyncio.Runner(loop_factory=functools.partial(VirtualLoop, limit_s=limit_s)) as runner:
        return runner.run(work)


class Given(abc.ABC):
    """What a fixture gives to a test that is a coroutine: opened on the loop of the test.

    A fixture is made before there is a loop; so the runner of the test opens it first and closes it
    last.
    """

    @abc.abstractmethod
    async def __aenter__(self) -> Any: ...

    @abc.abstractmethod
    async def __aexit__(self, *about: Any) -> None: ...


async def with_given(given: Iterable[object], test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Open what is `Given` among arguments, run the test, close it."""
    async with AsyncExitStack() as stack:
        for one in given:
            if isinstance(one, Given):
                await stack.enter_async_context(one)
        return await test()


@overload
def on_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]: ...


@overload
def on_virtual_time(*, limit_s: float) -> Wrap: ...


def on_virtual_time(
    test: Callable[P, Coroutine[Any, Any, T]] | None = None, *, limit_s: float = TEST_LIMIT_S
) -> Callable[P, T] | Wrap:
    """Make a plain function of a coroutine function: a test for pytest without plugins.

    ``@on_virtual_time(limit_s=7200)`` gives it two hours of virtual time.
    """
    if test is None:
        return Wrap(limit_s)
    return Wrap(limit_s)(test)


class Wrap:
    """Makes plain functions of coroutine functions, which may take `limit_s` of virtual time."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def __call__(self, test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        @functools.wraps(test)
        def on_loop(*args: P.args, **kwargs: P.kwargs) -> T:
            given = [*args, *kwargs.values()]
            return run(with_given(given, lambda: test(*args, **kwargs)), limit_s=self._limit_s)

        return on_loop
