"""Jobs that can be cancelled without harm to the other jobs of their session.

Spark cancels jobs by tag.  Tags belong to threads: the jobs that a thread starts carry its tags,
and jobs of other threads do not.  So a user's own jobs go on when ours are cancelled, even in a
session that the user shares with us.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_END_S = 5.0
"""How long cancelled jobs may take to end."""
LOOK_EVERY_S = 0.02

T = TypeVar("T")


class Jobs:
    """The jobs of one piece of work, in any thread: they carry `tag`, and `end` ends them.

    with tagged_jobs(spark) as jobs:
        frame.collect()                           # carries the tag
        pool.submit(jobs.run, other.collect)      # so does this, in a thread of its own
    """

    def __init__(self, spark: SparkSession) -> None:
        self.tag = f"cubecast-{uuid4().hex}"
        self._context = spark.sparkContext
        self._older = frozenset(self._active())

    @contextmanager
    def here(self) -> Iterator[None]:
        """Tag the jobs that this thread starts in the block."""
        self._context.addJobTag(self.tag)
        try:
            yield
        finally:
            with suppress(Exception):  # Java may be gone, and its threads with it
                self._context.removeJobTag(self.tag)

    def run(self, function: Callable[[], T]) -> T:
        """Call a function; the jobs that it starts in this thread are tagged."""
        with self.here():
            return function()

    def end(self) -> None:
        """Cancel the jobs, and wait until none runs, at most `JOBS_END_S`.

        The files of a job can be removed then.  Spark does not tell which running jobs carry a tag,
        so jobs that others started since this object was made are waited for, too; they are not
        cancelled.
        """
        # In a thread of its own, because an interrupted one may still hold a call to Java.
        ending = threading.Thread(target=self._end, name="ending jobs", daemon=True)
        ending.start()
        ending.join(2 * JOBS_END_S)

    def _end(self) -> None:
        deadline = time.monotonic() + JOBS_END_S
        with suppress(Exception):  # Java may be gone, and its jobs with it
            self._context.cancelJobsWithTag(self.tag)
            while self._active() - self._older and time.monotonic() < deadline:
                time.sleep(LOOK_EVERY_S)

    def _active(self) -> set[int]:
        return set(self._context.statusTracker().getActiveJobsIds())


@contextmanager
def tagged_jobs(spark: SparkSession) -> Iterator[Jobs]:
    """Tag the jobs that this thread starts in the block; leaving it by an exception ends them.

    Jobs of other threads are tagged where they are started (`Jobs.run`, `Jobs.here`).
    """
    jobs = Jobs(spark)
    with jobs.here():
        try:
            yield jobs
        except BaseException:  # above all Ctrl-C
            jobs.end()
            raise
