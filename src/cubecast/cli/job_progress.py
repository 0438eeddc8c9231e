"""The progress of a job of several steps: the step, the finished tasks of Spark, the time.

On a terminal that is one line, which changes; elsewhere a line per step, and one now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console

from cubecast.spark.progress import LINE_EVERY_S, clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.5

Tasks = tuple[int, int]
"""Done, and all."""


class Steps:
    """Shows each step; `watch` adds the tasks of a session."""

    def __init__(
        self,
        say: Callable[[str], object],
        every_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._now = now
        self._step = "starting Spark"
        self._begun = self._said = now()
        self._count: Callable[[], Tasks | None] = lambda: None

    def __call__(self, step: str) -> None:
        """Begin another step of the job."""
        self._step = step
        self._begun = self._said = self._now()
        self._say(step)

    def watch(self, session: SparkSession) -> None:
        """Show also the tasks of this session."""
        self._count = lambda: running_tasks(session)

    def refresh(self) -> None:
        """Show the progress of the step, if it is time to."""
        now = self._now()
        if now - self._said < self._every_s:
            return
        self._said = now
        tasks = self._count()
        done = "" if tasks is None else f", {tasks[0]} of {tasks[1]} tasks"
        self._say(f"{self._step}{done}, {clock(now - self._begun)}")


def running_tasks(session: SparkSession) -> Tasks | None:
    """The tasks of the running stages; None if no stage runs."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    known = [one for one in stages if one is not None]
    if not known:
        return None
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)


@contextmanager
def steps_on(console: Console) -> Iterator[Steps]:
    """Steps told on a console for the time of the block."""
    if not console.is_terminal:
        with _refreshed(
            Steps(lambda text: console.print(text, markup=False, highlight=False), LINE_EVERY_S)
        ) as steps:
            yield steps
        return
    with (
        console.status("starting Spark", spinner="line") as status,
        _refreshed(Steps(lambda text: status.update(text), LOOK_EVERY_S)) as steps,
    ):
        yield steps


@contextmanager
def _refreshed(steps: Steps) -> Iterator[Steps]:
    over = threading.Event()

    def look() -> None:
        # A session that ends while it is asked raises; then there is nothing more to show.
        with suppress(Exception):
            while not over.wait(LOOK_EVERY_S):
                steps.refresh()

    thread = threading.Thread(target=look, name="steps", daemon=True)
    thread.start()
    try:
        yield steps
    finally:
        over.set()
        thread.join(timeout=2)
