"""The events and checks of a chaos run, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cubecast.chaos.plan import plan_of
from cubecast.chaos.schedule import OF_LINKS, listed
from cubecast.chaos.simulated.driver import SimulatedVerdict
from cubecast.protocol.port import NodeId, Time
from cubecast.topology import members_of
from cubecast.trace import ALL, Record

SHOWN_PER_PROPERTY = 3


def happenings(verdict: SimulatedVerdict) -> list[str]:
    """The run in order of time; it needs the trace."""
    assert verdict.trace is not None, "run it with keep_trace"
    told = [*_faults(verdict), *_views(verdict.trace), *_losses(verdict.trace)]
    told.append((verdict.last_fault, 9, "all faults are over"))
    told.append((int(verdict.schedule.time(verdict.schedule.length)), 9, "links are reliable now"))
    width = len(str(max(time for time, _, _ in told)))
    opening = (
        f"{verdict.schedule.nodes} nodes, "
        + ", ".join(
            f"{len(nodes)} subscribed to {topic!r}"
            for topic, nodes in verdict.schedule.members().items()
        )
        + f"; {_links(verdict)}"
    )
    return [opening, *(f"{time:>{width}}  {what}" for time, _, what in sorted(told))]


def judgement(verdict: SimulatedVerdict) -> list[str]:
    """The checks and their findings."""
    report = verdict.report
    lines = [
        f"{report.publications} publications, {report.deliveries} deliveries, "
        f"{report.gaps} gaps, {report.discards} discards"
    ]
    recovery = int(verdict.metrics["recovery_time"])
    lines.append(f"recovered {recovery} after the last fault; the bound is {verdict.bound}")
    checked = [*ALL, "liveness", "kept"]
    good = [name for name in checked if name not in verdict.failures]
    lines.append("held: " + ", ".join(good))
    for name, found in verdict.failures.items():
        lines.append(f"BROKEN: {name}, {len(found)} times")
        lines += [f"  {one}" for one in found[:SHOWN_PER_PROPERTY]]
    return lines


Told = tuple[Time, int, str]


def _links(verdict: SimulatedVerdict) -> str:
    chances = verdict.schedule.links
    return ", ".join(f"{name} {chance:g}" for name, chance in chances.items()) or "links are good"


def _faults(verdict: SimulatedVerdict) -> Iterator[Told]:
    plan = plan_of(verdict.schedule)
    for at, node, begins in plan.deaths:
        act = "restart" if begins else "leave" if (at, node) in plan.leaves else "crash"
        yield at, 0, f"{act} of node {node}"
    for pause in plan.pauses:
        yield pause.start, 0, f"pause of node {pause.node} until {pause.end}"
    for fault in verdict.schedule.faults:
        at = verdict.schedule.time(fault.at)
        if fault.act in OF_LINKS and at < plan.length:
            end = at + verdict.schedule.time(fault.lasts)
            until = f" until {min(end, plan.length)}" if fault.lasts else ""
            yield at, 0, f"{fault}{until}"
        elif fault.act == "heal":
            yield at, 0, "heal"


def _views(trace: list[Record]) -> Iterator[Told]:
    """Each view once, at its first installation, with its installers and the time of the last."""
    holders: dict[tuple[int, int], list[Record]] = {}
    for record in trace:
        if record.kind == "view":
            holders.setdefault((record.seq, record.members), []).append(record)
    for (epoch, members), records in holders.items():
        nodes = listed({record.node for record in records})
        until = f", the last at {records[-1].time}" if len(records) > 1 else ""
        who = listed(members_of(members)) or "no members"
        yield records[0].time, 1, f"view {epoch}: {who} (installed by {nodes}{until})"


def _losses(trace: list[Record]) -> Iterator[Told]:
    counts: Counter[tuple[Time, NodeId, str]] = Counter()
    for record in trace:
        if record.kind in ("gap", "discard"):
            counts[record.time, record.node, record.kind] += (
                1 if record.id is not None else max(1, record.seq)
            )
    for (time, node, kind), count in counts.items():
        verb = "skips" if kind == "gap" else "discards"
        yield time, 2, f"node {node} {verb} {count} message{'' if count == 1 else 's'}"
