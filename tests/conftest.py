"""What every test run needs."""

from __future__ import annotations

import gc
import sys

import pytest

if "support" not in sys.modules:  # a plugin of `support` came first
    pytest.register_assert_rewrite("support")  # so that a helper that fails shows the values


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight.

    Thousands of tests are a million objects that live until the end.  Each full collection would
    look at all of them, which doubles the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()
