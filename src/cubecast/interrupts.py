"""Ctrl-C in commands: it interrupts once; the command undoes what it began and prints one line.

Invariants, from `install` to the end of the process:

1. The first SIGINT raises `KeyboardInterrupt` in the main thread, or cancels the main task of an
   event loop (`interruptible`).  It is never raised where Python would print and forget it or make
   another error of it: in a finaliser, or while a module is imported.
2. Later ones do nothing while the command cleans up, so no clean-up is left half done; after
   `PATIENCE_S` one ends the process at once.
3. A child that is started inside `held` does not get the terminal's SIGINT until it has chosen what
   to do with it, and its parent knows it before the parent is interrupted.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a command may clean up before another Ctrl-C ends it."""
LATER_S = 0.002
"""The pause before checking again whether an interrupt can be raised."""
EXIT_CODE = 130

_came_at: float | None = None
"""When the first interrupt was raised."""


def install() -> None:
    """Have Ctrl-C interrupt this process as said above; if SIGINT is ignored, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        atexit.register(_ignore)  # the last thing before Python takes itself apart


def _ignore() -> None:
    """Ignore signals: at its end Python restores their defaults, which would kill it."""
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def finish() -> None:
    """Ignore interrupts from now on: the command is at its end.

    An interrupt that has passed through `exec` of a text is remembered by Python, which with `-m`
    kills itself by SIGINT at the end; the next `exec` makes it forget.
    """
    global _came_at
    exec("pass")
    if _came_at is None:
        _came_at = time.monotonic()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_first():
        return
    if _is_delicate(frame):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, LATER_S)
        return
    _note()
    raise KeyboardInterrupt


def _is_first() -> bool:
    """Whether this is the first interrupt; one long after the first ends the process."""
    if _came_at is None:
        return True
    if time.monotonic() > _came_at + PATIENCE_S:
        os._exit(EXIT_CODE)
    return False


def _note() -> None:
    global _came_at
    _came_at = time.monotonic()


def _is_delicate(frame: FrameType | None) -> bool:
    """Whether an exception raised here would be printed and forgotten, or become another error.

    Python turns an exception raised while it makes a class, as modules do when they are imported,
    into a `RuntimeError`.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename.startswith("<frozen importlib"):
            return True
        if code.co_filename.endswith(("weakref.py", "_weakrefset.py")):  # callbacks, mostly
            return True
        frame = frame.f_back
    return False


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work as the main task: SIGINT cancels it, once."""
    import asyncio  # not before a command needs it

    if signal.getsignal(signal.SIGINT) is not _interrupt:
        return await work  # nothing is installed: asyncio itself handles Ctrl-C
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    came: list[bool] = []

    def cancel() -> None:
        if _is_first():
            _note()
            came.append(True)
            task.cancel()

    _on_loop[loop] = cancel
    listen(loop)
    try:
        return await work
    except asyncio.CancelledError:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        del _on_loop[loop]
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, _interrupt)


_on_loop: dict[asyncio.AbstractEventLoop, Any] = {}
"""The function that cancels the main task of a loop that runs a command: at most one."""


def listen(loop: asyncio.AbstractEventLoop) -> None:
    """Have SIGINT cancel the main task of `loop` again, after other code has handled SIGINT."""
    if loop in _on_loop:
        loop.add_signal_handler(signal.SIGINT, _on_loop[loop])
    else:
        loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def held() -> Iterator[None]:
    """Block SIGINT inside the block; processes that are started there do not get it at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
