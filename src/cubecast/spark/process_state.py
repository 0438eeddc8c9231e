"""What Spark changes in the process it runs in, each for the time of a block only."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cubecast.spark.errors import ResultsError


@contextmanager
def opened_log(log: Path) -> Iterator[tuple[int, Path]]:
    """A descriptor of the log, emptied: what Spark's processes get as standard output and error."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    except OSError as error:
        raise ResultsError(f"cannot write {log}: {error.strerror}") from None
    try:
        yield descriptor, log
    finally:
        os.close(descriptor)


@contextmanager
def environment_with(changes: Mapping[str, str]) -> Iterator[None]:
    """Spark takes these from the environment and from nowhere else."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupts_as_before() -> Iterator[Callable[[], None]]:
    """Spark installs a handler of Ctrl-C and leaves it; gives a call that puts the old one back.

    Spark's asks Java to cancel jobs, by the connection on which the interrupted call waits for its
    answer, and fails.  Leaving the block of `spark_session` ends our jobs in any case.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = signal.getsignal(signal.SIGINT)

    def restore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

    try:
        yield restore
    finally:
        restore()


@contextmanager
def py4j_is_quiet() -> Iterator[None]:
    """Drop what py4j logs of a call that is interrupted: tracebacks, some by the root logger."""

    def is_ours(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(is_ours)
    own.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(is_ours)
        own.setLevel(level)


@contextmanager
def own_gateway() -> Iterator[None]:
    """Spark keeps the connection to Java for the life of the process; this one ends with the block.

    A Java process that an earlier session of the user's has left is there again afterwards.
    """
    from pyspark import SparkContext

    before = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    try:
        yield
    finally:
        with suppress(Exception):  # Java may be gone
            if SparkContext._gateway is not None:
                SparkContext._gateway.shutdown()
        SparkContext._gateway, SparkContext._jvm = before
        SparkContext._active_spark_context = None  # Spark does not forget it if Java has died
