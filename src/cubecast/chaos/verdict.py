"""The outcome of one schedule, in either world."""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.chaos.schedule import Schedule
from cubecast.trace import Report


@dataclass(slots=True)
class ChaosVerdict:
    """A run, measured and judged; each world adds its own findings."""

    schedule: Schedule
    report: Report
    """The report of the checkers on the trace."""
    failures: dict[str, list[str]]
    """Property -> findings, of the checkers and of the world."""
    metrics: dict[str, float]
    """The figures of the run; both worlds use the same names."""

    @property
    def ok(self) -> bool:
        """Whether all properties held."""
        return not self.failures
