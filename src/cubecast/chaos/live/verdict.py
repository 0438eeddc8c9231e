"""A run of real processes, measured and judged."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from cubecast.chaos.live.driver import Run
from cubecast.chaos.live.merged_trace import records_of, tenancies, trace_of
from cubecast.chaos.live.recovery import DeliveryCurve, audience_of, measure
from cubecast.chaos.verdict import ChaosVerdict
from cubecast.trace import ALL, Report, answers_before_questions, check
from cubecast.trace.checkers import Inversions

PROBLEMS = "run"
"""The name of problems besides the properties of the checkers."""


@dataclass(slots=True)
class LiveVerdict(ChaosVerdict):
    """A run of real processes; it failed also if processes ended by themselves or did not rest."""

    run: Run
    answers: Inversions
    curve: DeliveryCurve

    def events(self) -> list[dict[str, Any]]:
        """The actions and their costs, for machines."""
        return [
            {
                "at": round(cost.at, 3),
                "act": cost.action.act,
                "what": str(cost.action),
                "dip": cost.dip,
                "recovered_s": cost.recovered_s,
                "heard_by_all_s": cost.heard_by_all_s,
                "never_heard": cost.never_heard,
            }
            for cost in self.curve.costs
        ]


def judge(run: Run) -> LiveVerdict:
    """Check the traces of a run, and measure the cost of its faults."""
    found = tenancies(run.lives)
    # Nodes that keep no views cannot agree on one; the driver has asked for their members.
    left_out = set() if any(one.has_views for one in found) else {"convergence"}
    report = check(trace_of(found), [name for name in ALL if name not in left_out])
    answers = answers_before_questions(trace_of(found))
    lives = [(life.number, records_of(life.trace)) for life in run.lives]
    audience = audience_of(run.schedule)
    curve = measure(lives, audience, run.marks, run.began, run.silent)
    return verdict_of(run, report, answers, curve)


def verdict_of(run: Run, report: Report, answers: Inversions, curve: DeliveryCurve) -> LiveVerdict:
    """The verdict from the report, the answers and the curve."""
    failures: dict[str, list[str]] = {
        name: [str(one) for one in report.violations if one.property == name]
        for name, count in report.counts.items()
        if count
    }
    if run.problems:
        failures[PROBLEMS] = list(run.problems)
    metrics = _metrics(run, report, curve)
    return LiveVerdict(run.schedule, report, failures, metrics, run, answers, curve)


def _metrics(run: Run, report: Report, curve: DeliveryCurve) -> dict[str, float]:
    begun = [mark.action for mark in run.marks if mark.action is not None]
    done = [action.act for action in begun]
    figures: dict[str, float] = {
        "violations": sum(report.counts.values()) + len(run.problems),
        "gaps": report.gaps,
        "discards": report.discards,
        "crashes": done.count("crash"),
        "restarts": done.count("restart"),
        "pauses": done.count("pause"),
        "partitions": sum(one.act == one.fault.act == "partition" for one in begun),
        "publications": report.publications,
        "deliveries": report.deliveries,
    }
    longest = [cost.heard_by_all_s for cost in curve.costs]
    known = [value for value in longest if value is not None]
    if known:
        figures["recovery_time"] = max(known)
        figures["recovery_time_median"] = statistics.median(known)
    dips = [cost.dip for cost in curve.costs if cost.dip is not None]
    if dips:
        figures["dip_median"] = statistics.median(dips)
    if run.settled_s is not None:
        figures["settled_s"] = run.settled_s
    return figures
