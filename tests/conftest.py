"""What every test run needs."""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

settings.register_profile(
    "cubecast",
    # How long an example takes says how busy the machine is, and nothing about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cubecast")


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight.

    Thousands of tests are a million objects that live until the end.  Each full collection would
    look at all of them, which doubles the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()
