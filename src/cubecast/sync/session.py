"""A thread with an event loop of its own that keeps one node or client open for other threads.

Theory of operation.  One task enters the async context manager of a node or client, waits until it
is told to leave, and leaves: entering and leaving happen in one task.  Other threads hand
coroutines to the loop and wait for their results on a lock, which Ctrl-C interrupts.  Invariants:

1. A call ends: with the result, with the error, with `Closed` once the thread has ended, or with
   the KeyboardInterrupt of the thread that waits, which cancels the coroutine.
2. A KeyboardInterrupt is never raised inside the loop.
3. The session does not refer to the object that the application holds, so that object can be
   collected; then the session leaves by itself.
4. Sessions that are open when the interpreter exits leave gracefully, all in at most `AT_EXIT_S`.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

from cubecast.errors import Closed
from cubecast.net.loop import new_loop

T = TypeVar("T")
A = TypeVar("A")

GRACE_S = 5.0
"""How long an interrupted session may take to end before its thread is left to itself."""
AT_EXIT_S = 10.0

INSIDE = "a blocking call from the thread of the event loop would wait for itself for ever"


class Abandoned(Exception):
    """Raised inside the context manager when the application's block ended by an exception."""


class SessionThread(Generic[A]):
    """The thread, its loop, and the node or client `value` that is open there."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[A]]) -> None:
        self._loop = new_loop()
        self._leaving: asyncio.Future[None] = self._loop.create_future()
        self._opened: Future[A] = Future()
        self._ended: Future[None] = Future()
        self._lock = threading.RLock()  # a finalizer that runs while it is held may `post`
        self._over = False
        self._waiting: set[Future[Any]] = set()
        self._helpers: set[asyncio.Task[None]] = set()
        self._task = self._loop.create_task(self._hold(make))
        self._thread = threading.Thread(target=self._run, name="cubecast-sync", daemon=True)
        self._thread.start()
        _open.add(self)
        self.value = self._open()

    def _open(self) -> A:
        """Wait until the context manager is entered; raises what entering it raises."""
        try:
            value = self._opened.result()
        except BaseException:  # refused, or Ctrl-C
            self._interrupt()
            raise
        return value

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with (
                suppress(asyncio.CancelledError),
                asyncio.Runner(loop_factory=lambda: self._loop) as runner,
            ):
                runner.get_loop().run_until_complete(self._task)
        finally:
            self._end()

    async def _hold(self, make: Callable[[], AbstractAsyncContextManager[A]]) -> None:
        """Enter, wait, leave; `close` raises what leaving raises."""
        try:
            async with make() as value:
                self._opened.set_result(value)
                await self._leaving
        except Abandoned:
            pass
        except BaseException as error:
            told = self._ended if self._opened.done() else self._opened
            told.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise

    def _end(self) -> None:
        """Fail all waiting calls with `Closed`: the loop has ended."""
        with self._lock:
            self._over = True
            waiting, self._waiting = self._waiting, set()
        for one in (*waiting, self._opened):
            if not one.done():
                one.set_exception(Closed("it is closed"))
        if not self._ended.done():
            self._ended.set_result(None)

    # -- from other threads ------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing can be called any more."""
        return self._over or not self._thread.is_alive()  # threads do not live on in a fork

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run `work` on the loop and wait for its result; `TimeoutError` after `timeout` s."""
        result = self._hand_over(work, timeout)
        try:
            return result.result()
        except CancelledError:
            raise Closed("it was closed meanwhile") from None
        finally:
            result.cancel()  # if we were interrupted; else it has ended
            with self._lock:
                self._waiting.discard(result)

    def _hand_over(self, work: Coroutine[Any, Any, T], timeout: float | None) -> Future[T]:
        """Begin `work` in the loop; if that fails, close the coroutine, so that it is not left."""
        bounded = _within(work, timeout)
        try:
            if threading.current_thread() is self._thread:
                raise RuntimeError(INSIDE)
            with self._lock:
                if self.over or self._loop.is_closed():
                    raise Closed("it is closed")
                result = asyncio.run_coroutine_threadsafe(bounded, self._loop)
                self._waiting.add(result)
        except BaseException:
            bounded.close()
            work.close()
            raise
        return result

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Have `call` called in the loop without waiting; do nothing if the session is over."""
        with self._lock:
            if not self.over:
                with suppress(RuntimeError):  # the loop was closed this moment
                    self._loop.call_soon_threadsafe(call, *arguments)

    def run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as a task and keep a reference to it; called in the loop."""
        task = self._loop.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)

    def leave(self, *, abandon: bool = False) -> None:
        """Begin to leave without waiting; `abandon`: as after an exception in the block."""
        self.post(self._leave, abandon)

    def _leave(self, abandon: bool) -> None:
        if self._leaving.done():
            return
        if abandon:
            self._leaving.set_exception(Abandoned())
            self._leaving.exception()  # retrieve it: the task may have ended by itself
        else:
            self._leaving.set_result(None)

    def close(self, *, abandon: bool = False) -> None:
        """Leave, and wait for the end; raises what leaving raises, once."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(INSIDE)
        if self._over and not self._ended.exception():
            return
        self.leave(abandon=abandon)
        try:
            self._ended.result()
        except CancelledError:
            return  # interrupted by another thread
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            if self._ended.done():
                told: Future[None] = Future()
                told.set_result(None)
                self._ended = told
                self._thread.join(GRACE_S)

    def _interrupt(self) -> None:
        """End the session at once."""
        self.post(self._task.cancel)
        self._thread.join(GRACE_S)

    def join(self, timeout: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout)


async def _within(work: Coroutine[Any, Any, T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await work


_open: weakref.WeakSet[SessionThread[Any]] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """Leave all open sessions when the interpreter exits."""
    sessions = [one for one in _open if not one.over]
    for session in sessions:
        session.leave()
    deadline = time.monotonic() + AT_EXIT_S
    for session in sessions:
        session.join(max(0.0, deadline - time.monotonic()))
