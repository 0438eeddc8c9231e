"""Runs a command that talks to a cluster: errors in one line, signals that stop it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import cubecast
from cubecast import interrupts
from cubecast.cli.output import refuse
from cubecast.net.loop import run_loop

T = TypeVar("T")


def stop_signals(hangup: bool = True) -> list[signal.Signals]:
    """Ctrl-C, a request to end, and with `hangup` a terminal that is closed.

    With `nohup` the command outlives the terminal: an ignored signal stays ignored.  Without it
    Ctrl-C counts even where a shell ignores it for us, as for commands that a script starts with
    `&`: no nodes are left behind when their script is interrupted.
    """
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else [])]
    if _outlives_terminal:
        return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return numbers


_outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def stop_signal(stop: Any, hangup: bool = True) -> Any:
    """Call `stop` on any of `stop_signals`; the result undoes that."""
    loop = asyncio.get_running_loop()
    numbers = stop_signals(hangup)
    for number in numbers:
        loop.add_signal_handler(number, stop)

    def undo() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        if signal.SIGINT in numbers:
            interrupts.listen(loop)

    return undo


def run(command: str, work: Coroutine[Any, Any, None], log_format: str | None = None) -> None:
    """Run a command's work; an error takes one line, in the log's format."""
    try:
        run_loop(interrupts.interruptible(work))
    except cubecast.AttachError as error:
        hint = "; start one with: cubecast up" if _nobody_listens(error) else ""
        refuse(command, f"{error}{hint}", log_format)
    except (cubecast.CubecastError, ValueError) as error:
        refuse(command, error, log_format)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has gone: no error
            raise
        refuse(command, error.strerror or error, log_format)


def _nobody_listens(error: cubecast.AttachError) -> bool:
    """Whether every address refused; asyncio and uvloop word it differently."""
    words = (os.strerror(errno.ECONNREFUSED), "Connect call failed")
    return all(reason.startswith(words) for reason in error.reasons.values())


def ask(command: str, work: Coroutine[Any, Any, T]) -> T:
    """Return the cluster's answer; any error takes one line."""
    answers: list[T] = []

    async def keep() -> None:
        answers.append(await work)

    run(command, keep())
    return answers[0]
