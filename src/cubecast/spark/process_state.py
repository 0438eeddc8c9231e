"""Changes of Spark's to the process it runs in, each undone at the end of a block."""

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
    """A descriptor of the emptied log: standard output and error of Spark's processes."""
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
    """Set environment variables for the block; Spark reads these settings only from there."""
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
    """Undo Spark's handler of Ctrl-C, which it leaves behind; yields a call that does so early.

    Spark's handler asks Java to cancel jobs, over the connection on which the interrupted call
    waits for its answer, and fails.  Leaving the block of `spark_session` ends our jobs anyway.
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
    """Drop py4j's log of an interrupted call: tracebacks, some by the root logger."""

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
    """End the connection to Java with the block; Spark keeps it for the life of the process.

    A Java process that an earlier session of the user's has left is set again afterwards.
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
