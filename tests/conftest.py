"""What every test run needs."""

from __future__ import annotations

import gc
import signal
import sys
import threading

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "cubecast",
    # How long an example takes says how busy the machine is, and nothing about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cubecast")

if "support" not in sys.modules:  # a plugin of `support` came first
    pytest.register_assert_rewrite("support")  # so that a helper that fails shows the values


def pytest_configure() -> None:
    """Have child processes start as in front of a terminal, wherever the tests themselves run.

    `nohup` ignores SIGHUP, and a shell without job control SIGINT for what it starts with ``&``; a
    child inherits that.  It does not inherit a handler, and one that does nothing leaves this
    process as it was.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight.

    Thousands of tests are a million objects that live until the end.  Each full collection would
    look at all of them, which doubles the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()
