"""What came of one schedule, in whichever world it was carried out."""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.chaos.schedule import Schedule
from cubecast.trace import Report


@dataclass(slots=True)
class ChaosVerdict:
    """A run, measured and judged; each world adds what only it can tell."""

    schedule: Schedule
    report: Report
    """What the checkers say of the trace."""
    failures: dict[str, list[str]]
    """Property -> what was found; besides those of the checkers, those of the world."""
    metrics: dict[str, float]
    """The figures of the run; both worlds use the same names."""

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not self.failures
