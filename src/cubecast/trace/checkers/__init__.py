"""Checkers: they judge a trace by what the nodes did, knowing nothing of the protocol.

    report = check(records)
    assert report.ok and not report.gaps, report

One pass over the records, of any number of topics; every property is judged per topic. Memory grows
with publications times publishers and with publications times nodes (one byte each), not with the
length of the trace.
"""

from collections.abc import Callable, Iterable
from typing import Final

from cubecast.trace.checkers.crashes import Agreement, Convergence, LossReports
from cubecast.trace.checkers.inversions import Inversions, answers_before_questions
from cubecast.trace.checkers.order import (
    CausalOrder,
    Fifo,
    InsideSubscription,
    NoCreation,
    NoDuplication,
)
from cubecast.trace.checkers.outcome import BoundedState, Completeness, Losses, Quiescence
from cubecast.trace.checkers.reasons import LossReasons
from cubecast.trace.checkers.replay import Checker, ReplayedTopic, replay
from cubecast.trace.checkers.report import ALL, Property, Report, Tally, Violation
from cubecast.trace.records import Record

__all__ = [
    "ALL",
    "Inversions",
    "Property",
    "Report",
    "Violation",
    "answers_before_questions",
    "check",
]

_CHECKERS: Final[dict[Property, Callable[[Tally], Checker]]] = {
    "no-creation": NoCreation,
    "no-duplication": NoDuplication,
    "fifo": Fifo,
    "causal-order": CausalOrder,
    "membership": InsideSubscription,
    "completeness": Completeness,
    "quiescence": Quiescence,
    "bounded-state": BoundedState,
    "agreement": Agreement,
    "loss-reports": LossReports,
    "loss-reasons": LossReasons,
    "convergence": Convergence,
}


def check(
    records: Iterable[Record], properties: Iterable[Property] = ALL, *, limit: int = 100
) -> Report:
    """Check a whole trace; the report lists at most ``limit`` violations of each property."""
    tallies = {property: Tally(property, limit) for property in properties}
    unknown = tallies.keys() - _CHECKERS.keys()
    if unknown:
        raise ValueError(f"no such property: {', '.join(sorted(unknown))}")
    volume, losses = _Volume(), Losses()
    judges = [_CHECKERS[property](tally) for property, tally in tallies.items()]
    replay(records, [volume, losses, *judges])
    return Report(
        counts={property: tally.count for property, tally in tallies.items()},
        violations=[violation for tally in tallies.values() for violation in tally.kept],
        gaps=losses.gaps,
        discards=losses.discards,
        publications=volume.publications,
        deliveries=volume.deliveries,
        topics=volume.topics,
    )


class _Volume(Checker):
    """Counts what was checked: a trace without deliveries is correct, and proves nothing."""

    def __init__(self) -> None:
        self.publications = 0
        self.deliveries = 0
        self.topics = 0

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        for topic in topics:
            self.topics += 1
            self.publications += len(topic.ids)
            self.deliveries += sum(seat.delivered.count(1) for seat in topic.lives())
