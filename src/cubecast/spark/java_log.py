"""Why Java did not start, or how it ended, in one line, from its log and its exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from cubecast.spark.errors import APPLICATION_ENDED, JavaGoneError, SparkFailedError, blame
from cubecast.spark.java_process import JavaEndedError, JavaProcess

LOG_TAIL_BYTES = 1 << 16
_COMPLAINTS = (
    r"(?m)^((?:Invalid|Unrecognized|Conflicting) .+)",  # Java's, of its own options
    r"(?:Exception|Error): (.+)",
    r"\bERROR (.+)",
)
"""Patterns of failures in a log; the first that is found is reported."""


@contextmanager
def told_why(master: str, log: Path) -> Iterator[None]:
    """Report a failed start of Spark with the first complaint of the log."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except ValueError as error:  # there is a context without a session
        raise SparkFailedError(f"Spark does not start on {master}: {error}") from None
    except (JavaEndedError, PySparkException, Py4JError) as error:
        why = _reason(log, error)
        raise SparkFailedError(f"Spark does not start on {master}: {why}") from None


def _reason(log: Path, error: Exception) -> str:
    """The first complaint in the log; the error that Python saw is seldom the cause."""
    with suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
        for pattern in _COMPLAINTS:
            told = re.search(pattern, text)
            if told is not None:
                return told.group(1).strip()
    return str(error).strip().splitlines()[0]


@contextmanager
def told_how_java_ended(java: JavaProcess, log: Path) -> Iterator[None]:
    """Report the end of Java with the way it ended."""
    try:
        yield
    except JavaGoneError as error:
        raise JavaGoneError(_end_of(java.process, log)) from error
    except SparkFailedError as error:
        # A driver without memory ends its own application; only its log has the reason.
        if str(error) == APPLICATION_ENDED and (line := _out_of_memory(log)):
            raise SparkFailedError(blame(line)) from error
        raise


def _out_of_memory(log: Path) -> str:
    """The line at the end of a log that says so; empty: there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        told = re.search(r"OutOfMemoryError[^\n]*", file.read().decode(errors="replace"))
        return told.group() if told else ""
    return ""


def _end_of(process: Popen[bytes], log: Path) -> str:
    if _out_of_memory(log):
        return "out of memory; --conf spark.driver.memory=2g gives it more"
    try:
        code = process.wait(1)
    except TimeoutExpired:
        return "it does not answer"
    if code == -signal.SIGKILL:
        return "killed, perhaps for want of memory"
    return f"killed by signal {-code}" if code < 0 else f"it ended with {code}"
