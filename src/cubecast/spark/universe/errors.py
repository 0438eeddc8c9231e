"""Errors of a universe or of its trace."""

from __future__ import annotations

from cubecast.spark.errors import LabError


class UniverseError(LabError):
    """A directory is not a universe that can be read, or cannot be written to."""


class UniverseTraceError(UniverseError):
    """A trace cannot be read at all: the message names the file and says what to do."""
