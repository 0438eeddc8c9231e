"""Reduces a failing schedule to the entries that the failure needs.

Delta debugging (Zeller and Hildebrandt, 2002, algorithm ddmin): drop ever smaller parts of the
entries while the run still fails.  The result is minimal in the sense that no single entry can be
left out.  "Fails" means in one of the ways in which the whole schedule failed, so that one fault is
not traded for another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule
from cubecast.chaos.simulated.driver import Population, SimulatedVerdict, run_schedule

Entries = tuple[Fault | ApplicationStep, ...]


@dataclass(slots=True)
class Shrunk:
    """The smallest failing schedule found, its verdict, and the number of runs."""

    schedule: Schedule
    verdict: SimulatedVerdict
    runs: int


def shrink(
    verdict: SimulatedVerdict,
    population: Population,
    *,
    wire: bool = True,
    max_runs: int = 2000,
    progress: Callable[[int, int], None] | None = None,
) -> Shrunk:
    """Reduce the schedule of a failed run; `progress` gets the runs made and the entries left."""
    return _Shrinker(verdict, population, wire, max_runs, progress).result()


class _Shrinker:
    def __init__(
        self,
        verdict: SimulatedVerdict,
        population: Population,
        wire: bool,
        max_runs: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        if verdict.ok:
            raise ValueError("this schedule does not fail")
        self.wanted = set(verdict.failures)
        self.population = population
        self.wire = wire
        self.left = max_runs
        self.runs = 0
        self.progress = progress
        self.best = verdict

    def result(self) -> Shrunk:
        self._calm_links()
        self._drop_entries()
        self._calm_links()
        return Shrunk(self.best.schedule, self.best, self.runs)

    def _fails(self, schedule: Schedule) -> bool:
        """Whether it still fails the same way; if so, keep it as the best so far."""
        if self.left == 0:
            return False
        self.left -= 1
        self.runs += 1
        verdict = run_schedule(schedule, self.population, wire=self.wire)
        fails = bool(self.wanted & set(verdict.failures))
        if fails:
            self.best = verdict
        if self.progress is not None:
            self.progress(self.runs, len(self.best.schedule.entries))
        return fails

    def _calm_links(self) -> None:
        """Leave out random faults of links, one kind at a time, and answers."""
        for name in list(self.best.schedule.links):
            links = dict(self.best.schedule.links)
            del links[name]
            self._fails(msgspec.structs.replace(self.best.schedule, links=links))
        if self.best.schedule.answers:
            self._fails(msgspec.structs.replace(self.best.schedule, answers=0.0))

    def _drop_entries(self) -> None:
        parts = 2
        while (entries := self.best.schedule.entries) and self.left:
            size = max(1, len(entries) // parts)
            if self._drop_one_part(entries, size):
                parts = max(2, parts - 1)
            elif size == 1:
                return
            else:
                parts = min(len(entries), parts * 2)

    def _drop_one_part(self, entries: Entries, size: int) -> bool:
        """Whether the run still fails without some `size` consecutive entries."""
        for start in range(0, len(entries), size):
            rest = entries[:start] + entries[start + size :]
            if self._fails(self.best.schedule.with_entries(rest)):
                return True
        return False
