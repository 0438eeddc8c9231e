"""A chaos run, told: the actions, the events at nodes, the costs and the checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cubecast.chaos.live.driver import DriverMark, Run
from cubecast.chaos.live.merged_trace import Tenancy, tenancies
from cubecast.chaos.live.messages import NodeTold
from cubecast.chaos.live.recovery import Cost
from cubecast.chaos.live.verdict import LiveVerdict
from cubecast.trace import Violation

SILENT = ("lost connection",)
"""Events that every fault causes at all nodes."""
SHOWN_PROBLEMS = 20
_OF_NODE = re.compile(r"\bnode (\d+)")
"""A recording node in a checker's text: in traces of live nodes that is a slot."""


# -- what happened --------------------------------------------------------------------------------


def happenings(run: Run) -> Iterator[str]:
    """One line for each action, and for each event that nodes told their applications."""
    marks = sorted(run.marks, key=lambda mark: mark.at)
    names = Names(run)
    ends = [mark.at for mark in marks] + [float("inf")]
    yield from _told(run, names, float("-inf"), ends[0])
    for mark, end in zip(marks, ends[1:], strict=True):
        yield f"{mark.at - run.began:8.2f} s  {_mark(mark)}"
        yield from _told(run, names, mark.at, end)


def _mark(mark: DriverMark) -> str:
    if mark.action is not None:
        return str(mark.action)
    if mark.note:
        return mark.note
    return f"node {mark.joined} is back (life {mark.life + 1})"


class Names:
    """Names the node of an event: nodes report slots, which change hands; the story names nodes.

    An address belongs to one node from its first life to its last, so it decides where it is known.
    A slot belongs to the node that last reported to have it: when it came up, or when it returned.
    """

    def __init__(self, run: Run) -> None:
        self._lives = [(life, life.up) for life in run.lives if life.up is not None]
        self._got = [(up.at, up.slot, life.number) for life, up in self._lives]
        self._got += [(told.at, told.about, n) for n, told in run.told if told.what == "Returned"]

    def of(self, told: NodeTold) -> str:
        """The node that `told` is about, by what was known when it was told."""
        found = self._at(told.address, told.at) if told.address else None
        if found is None:
            found = self._in(told.about, told.at)
        return f"slot {told.about}" if found is None else f"node {found}"

    def _at(self, address: str, at: float) -> int | None:
        """The node that last listened there; others may report a life before it does itself."""
        lives = [life for life, up in self._lives if up.address == address and life.began <= at]
        return max(lives, key=lambda life: life.began).number if lives else None

    def _in(self, slot: int, at: float) -> int | None:
        """The node that got this slot last."""
        got = [(when, number) for when, its, number in self._got if its == slot and when <= at]
        return max(got)[1] if got else None


def _told(run: Run, names: Names, begin: float, end: float) -> Iterator[str]:
    """The events between two marks, nodes with the same event together."""
    groups: dict[str, list[tuple[int, NodeTold]]] = {}
    for number, told in run.told:
        if begin <= told.at < end and told.what not in SILENT and told.at >= run.began:
            groups.setdefault(_content(told, names), []).append((number, told))
    for content, said in groups.items():
        who = sorted({number for number, _ in said})
        first = min(told.at for _, told in said) - run.began
        last = max(told.at for _, told in said) - run.began
        when = f"{first:.2f} s" if last - first < 0.005 else f"{first:.2f} to {last:.2f} s"
        yield f"            {_who(who, run.schedule.nodes)} told: {content} ({when})"


def _content(told: NodeTold, names: Names) -> str:
    match told.what:
        case "left":
            return f"{names.of(told)} left the cluster"
        case "joined":
            return f"{names.of(told)} joined"
        case "Excluded":
            return "the others went on without it"
        case "Returned":
            return f"it is back, in slot {told.about}"
        case "gap":
            return f"a gap of {told.count} messages"
        case "blocked":
            return "publishing has to wait"
    about = f" {names.of(told)}" if told.about >= 0 else ""
    return f"{told.what}{about} {told.detail}".strip()


def _who(nodes: list[int], of: int) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0]} was"
    if len(nodes) <= 4:
        return f"nodes {', '.join(map(str, nodes))} were"
    return f"{len(nodes)} of {of} nodes were"


# -- what was checked -----------------------------------------------------------------------------


def judgement(verdict: LiveVerdict) -> Iterator[str]:
    """The checks, and their results."""
    run, report = verdict.run, verdict.report
    lives = [life for life in run.lives if life.up is not None]
    yield (
        f"{report.publications:,} publications, {report.deliveries:,} deliveries "
        f"in {len(lives)} lives of {run.schedule.nodes} nodes"
    )
    found_in = tenancies(run.lives) if report.violations else []
    for name, found in report.counts.items():
        yield f"  {name}: {'ok' if not found else f'{found} violations'}"
        for one in report.violations[:SHOWN_PROBLEMS]:
            if one.property == name:
                yield f"    {_violation(one, found_in)}"
    answers = verdict.answers
    before = answers.inverted - answers.without
    yield f"  answers before their question: {before} of {answers.pairs:,}"
    if answers.without:
        yield f"  answers to a question that was missed: {answers.without}"
    yield f"  reported as missed: {report.gaps} (gaps), dropped by agreement: {report.discards}"
    if run.settled_s is not None:
        yield f"  everyone at rest with the same members {run.settled_s:.1f} s after the load ended"
    yield from (f"  PROBLEM: {problem}" for problem in run.problems[:SHOWN_PROBLEMS])
    yield "nothing is wrong" if verdict.ok else "SOMETHING IS WRONG"


def _violation(one: Violation, found_in: Sequence[Tenancy]) -> str:
    """A violation as text; checkers name slots, so the node that had the slot then is added."""
    about = "" if one.id is None else f", message {one.id!r}"
    held = [stay for stay in found_in if stay.slot == one.node and stay.first <= one.time]
    last = max(held, key=lambda stay: stay.first, default=None)
    who = f"slot {one.node}" + ("" if last is None else f" (node {last.life.number})")
    why = _OF_NODE.sub(r"slot \1", one.message)
    return f"{one.property}: time {one.time}, {who}, topic {one.topic!r}{about}: {why}"


def shares(costs: Sequence[Cost]) -> list[tuple[str, int, list[float], list[float], list[float]]]:
    """By kind of action: how many, their dips, times to recover, times until heard by all."""
    kinds: dict[str, list[Cost]] = {}
    for cost in costs:
        kinds.setdefault(cost.action.act, []).append(cost)
    return [
        (
            kind,
            len(several),
            [one.dip for one in several if one.dip is not None],
            [one.recovered_s for one in several if one.recovered_s is not None],
            [one.heard_by_all_s for one in several if one.heard_by_all_s is not None],
        )
        for kind, several in kinds.items()
    ]
