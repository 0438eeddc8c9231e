"""Processes started as in front of a terminal, or behind one, wherever the tests themselves run.

A program inherits which signals are ignored: `nohup` ignores SIGHUP, and a shell without job
control ignores SIGINT for what it starts with `&`.  A test of what a signal does says in which of
these ways its program is started, so that it passes wherever the test run itself was started.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGHUP)


@contextmanager
def in_front() -> Iterator[None]:
    """What is started meanwhile is interrupted by Ctrl-C, and ended by a closed terminal."""
    with _inherited(signal.SIG_DFL, SIGNALS):
        yield


@contextmanager
def ignoring(*signals: signal.Signals) -> Iterator[None]:
    """What is started meanwhile was told to ignore these, and only these."""
    with in_front(), _inherited(signal.SIG_IGN, signals):
        yield


@contextmanager
def _inherited(how: signal.Handlers, signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """A handler is not inherited, so for children Python's own one of SIGINT is the default."""
    before = {
        number: signal.signal(number, how)
        for number in signals
        if how == signal.SIG_IGN or signal.getsignal(number) == signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
