"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop of the fastest kind there is, for `asyncio.Runner`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
