"""What can go wrong around a sweep that is not the fault of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cubecast.errors import CubecastError


class LabError(CubecastError):
    """The lab cannot go on; the message is one line that says what to do."""


class NoJavaError(LabError):
    """There is no Java that Spark could run on."""


class ResultsError(LabError):
    """A directory of results cannot be read or written."""


class SparkFailedError(LabError):
    """Spark did not start, or gave up in the middle."""


@contextmanager
def lab_errors() -> Iterator[None]:
    """Whatever Spark, its Java process or the disk raises in the block, as a `LabError`."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkFailedError(
            "Spark's Java process is gone (killed, or out of memory?): what is finished is kept, "
            "and the same command goes on from there"
        ) from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(_blame(error)) from error
    except OSError as error:
        raise ResultsError(f"cannot read or write the results: {error}") from error


def _text(error: Exception) -> str:
    """What an error says; one that Java raised asks Java for it, which may have stopped since."""
    try:
        return str(error)
    except Exception:
        return str(getattr(error, "_desc", None) or type(error).__name__)


def _blame(error: Exception) -> str:
    """What a failed job says, in one line: the Python error if there is one."""
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    told = [line for line in lines if "cubecast.spark.errors." in line]
    if told:
        return told[-1].split(": ", 1)[-1]
    spoken = [line for line in lines if not line.startswith("at ")]  # not frames of Java's stack
    causes = [line for line in spoken if "Error" in line or "Exception" in line]
    return f"Spark gave up: {(causes or spoken or [type(error).__name__])[-1]}"
