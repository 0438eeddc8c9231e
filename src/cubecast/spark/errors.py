"""What can go wrong around a sweep that is not the fault of a cell."""

from __future__ import annotations

from cubecast.errors import CubecastError


class LabError(CubecastError):
    """The lab cannot go on; the message is one line that says what to do."""


class NoJavaError(LabError):
    """There is no Java that Spark could run on."""


class ResultsError(LabError):
    """A directory of results cannot be read or written."""


class SparkFailedError(LabError):
    """Spark did not start, or gave up in the middle."""
