"""The report of the checkers: violations, counted in full and listed up to a limit."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from cubecast.trace.records import MessageId

__all__ = ["ALL", "Property", "Report", "Tally", "Violation"]

Property: TypeAlias = Literal[
    "no-creation",
    "no-duplication",
    "fifo",
    "causal-order",
    "membership",
    "completeness",
    "quiescence",
    "bounded-state",
    "agreement",
    "loss-reports",
    "loss-reasons",
    "convergence",
]
"""The properties that a trace can be checked for; the checker's docstring defines each."""

ALL: Final[tuple[Property, ...]] = get_args(Property)


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a run broke a property."""

    property: Property
    node: int
    topic: str
    id: MessageId | None
    """The message concerned; None where the property is not about a message."""
    time: int
    """When it was seen: at a record, or at the end of a subscription or of the trace."""
    message: str

    def __str__(self) -> str:
        about = "" if self.id is None else f", message {self.id!r}"
        return (
            f"{self.property}: time {self.time}, node {self.node}, topic {self.topic!r}{about}: "
            f"{self.message}"
        )


class Tally:
    """The violations of one property: all are counted, the first ``limit`` are kept."""

    __slots__ = ("count", "kept", "limit", "property")

    def __init__(self, property: Property, limit: int) -> None:
        self.property = property
        self.limit = limit
        self.count = 0
        self.kept: list[Violation] = []

    def add(self, node: int, topic: str, id: MessageId | None, time: int, message: str) -> None:
        self.count += 1
        if len(self.kept) < self.limit:
            self.kept.append(Violation(self.property, node, topic, id, time, message))


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of ``check``.

    Gaps and discards are losses that the run reported. They break no property by themselves, but a
    run that should have lost nothing has none of them: ask for ``ok`` and for ``gaps == 0``.
    """

    counts: dict[Property, int]
    """Violations of every property that was checked, 0 included."""
    violations: list[Violation]
    """The first violations of each property, as many as ``check`` was told to keep."""
    gaps: int = 0
    """Messages that nodes reported as skipped."""
    discards: int = 0
    """Messages that nodes reported as dropped by agreement."""
    publications: int = 0
    deliveries: int = 0
    topics: int = 0

    @property
    def needless(self) -> int:
        """Gaps and discards without a reason, or of messages not owed (``loss-reasons``)."""
        return self.counts.get("loss-reasons", 0)

    @property
    def ok(self) -> bool:
        """No property was violated."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        lines = [
            f"{self.publications} publications and {self.deliveries} deliveries"
            f" on {self.topics} topics; {self.gaps} gaps, {self.discards} discards"
        ]
        for property, count in self.counts.items():
            lines.append(f"{property}: {count} violations" if count else f"{property}: ok")
            lines += [f"  {v}" for v in self.violations if v.property == property]
        return "\n".join(lines)
