"""Errors around a sweep that are not the fault of a cell, each told in one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from cubecast.errors import CubecastError


class LabError(CubecastError):
    """The lab cannot go on; the message is one line that says what to do."""


class NoJavaError(LabError):
    """There is no Java that Spark could run on."""


class ResultsError(LabError):
    """A directory of results cannot be read or written."""


class SparkFailedError(LabError):
    """Spark did not start, or gave up in the middle."""


class JavaGoneError(SparkFailedError):
    """Spark's Java process ended in the middle; `why` is the reason, if known."""

    def __init__(self, why: str = "killed, or out of memory?") -> None:
        super().__init__(
            f"Spark's Java process is gone ({why}): what is finished is kept, "
            "and the same command goes on from there"
        )


@contextmanager
def spark_failures() -> Iterator[None]:
    """Turn every error of Spark or its Java process in the block into a `SparkFailedError`.

    Java is asked for the text of its errors; so this belongs inside the block of a session.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JNetworkError as error:
        raise JavaGoneError from error
    except ConnectionError as error:
        if not _of_py4j(error):
            raise
        raise JavaGoneError from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(blame(_text(error))) from error


@contextmanager
def lab_errors() -> Iterator[None]:
    """Turn every error of Spark, its Java process or the disk in the block into a `LabError`."""
    try:
        with spark_failures():
            yield
    except OSError as error:
        raise ResultsError(f"cannot read or write the results: {error}") from error


def _of_py4j(error: BaseException) -> bool:
    """Whether a connection to Java broke; other connections, to a store say, are not Spark's."""
    frames = walk_tb(error.__traceback__)
    return any("py4j" in frame.f_code.co_filename for frame, _ in frames)


def _text(error: Exception) -> str:
    """The text of an error; one of Java's asks Java for it, which may have stopped since."""
    try:
        return str(error)
    except Exception:
        return str(getattr(error, "_desc", None) or type(error).__name__)


# -- blame -----------------------------------------------------------------------------------------

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_WHAT_TO_SET = (
    f"name a Python {PYTHON} with cubecast[lab] that is there (PYSPARK_PYTHON=/path/to/python), "
    "or send one along (--conf spark.archives=env.tar.gz#env and PYSPARK_PYTHON=./env/bin/python)"
)
APPLICATION_ENDED = "Spark gave up: the cluster ended the application; spark.log says why"
_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), line)
    for pattern, line in (
        (
            r"Python in worker has different version:? \(?'?([\d., ]+)'?\)?",
            f"the executors run another Python than the driver's {PYTHON}: {_WHAT_TO_SET}",
        ),
        (
            r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'",
            f"the executors' Python has no package {{0}}: {_WHAT_TO_SET}",
        ),
        (
            r'Cannot run program "([^"]+)"',
            f"the executors have no program {{0}}: {_WHAT_TO_SET}",
        ),
        (
            r"OutOfMemoryError: ([^\n]+)",
            "Spark is out of memory ({0}): give it more by --conf spark.driver.memory=4g, "
            "on a cluster by --conf spark.executor.memory=4g",
        ),
        (
            r"ExecutorLostFailure \(executor \S+ [^)]*\)(?: Reason: ([^\n]+))?",
            "Spark gave up: a task lost its executor each time it was tried, at last because: {0}",
        ),
        (
            r"(?:because SparkContext was shut down|stopped SparkContext)",
            APPLICATION_ENDED,
        ),
    )
)
"""Spark's texts for causes that a person can remove; the first match is reported."""


def blame(text: str) -> str:
    """The error of a failed job, in one line: our own words, a known cause, or the last error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "cubecast.spark.errors." in line]
    if told:
        return told[-1].rpartition("cubecast.spark.errors.")[2].partition(": ")[2]
    for pattern, line in _KNOWN:
        match = pattern.search(text)
        if match is not None:
            return line.format(*(one or "unknown" for one in match.groups()))
    spoken = [line for line in lines if not line.startswith("at ")]  # not frames of Java's stack
    causes = [line for line in spoken if "Error" in line or "Exception" in line]
    return f"Spark gave up: {(causes or spoken or ['no reason given'])[-1]}"
