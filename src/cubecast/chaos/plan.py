"""A schedule as spans of time: when each node is down, paused or cut off."""

from __future__ import annotations

from dataclasses import dataclass, field

from cubecast.chaos.condition import Action, Condition, actions_of
from cubecast.chaos.schedule import Schedule
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.faults import Cut, IdleNode, MuteNode, Pause, Slow


@dataclass(slots=True)
class SchedulePlan:
    """A schedule as the simulator carries it out, times in its units."""

    length: Time
    """When all faults are over."""
    last_fault: Time = 0
    """When the last fault ended; of a node that stays down, when it crashed."""
    deaths: list[tuple[Time, NodeId, bool]] = field(default_factory=list)
    """(time, node, whether it begins again), in order of time; crashes and leaves."""
    fuses: dict[tuple[Time, NodeId], int] = field(default_factory=dict)
    """Crashes in the middle of a broadcast: after how many copies."""
    leaves: set[tuple[Time, NodeId]] = field(default_factory=set)
    """The entries of `deaths` that are leaves: the node leaves the cluster."""
    pauses: list[Pause] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    slows: list[Slow] = field(default_factory=list)
    mutes: list[MuteNode] = field(default_factory=list)
    idles: list[IdleNode] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many faults of each kind were carried out."""


def plan_of(schedule: Schedule) -> SchedulePlan:
    """Go through the beginnings and ends of faults, and note each fault's span."""
    plan = SchedulePlan(schedule.time(schedule.length))
    plan.counts = dict.fromkeys(
        ("crash", "leave", "restart", "pause", "partition", "one-way", "slow", "mute", "idle"), 0
    )
    condition = Condition(schedule.nodes, schedule.later)
    for action in actions_of(schedule, schedule.time):
        if action.at >= plan.length:
            break
        possible = condition.can(action)
        for ended in condition.apply(action):
            _note_span(plan, schedule, ended, int(action.at))
        if possible and action.act in ("crash", "leave", "restart"):
            _note_death(plan, action)
    for action in condition.calm(plan.length):
        for ended in condition.apply(action):
            _note_span(plan, schedule, ended, plan.length)
    return plan


def _note_death(plan: SchedulePlan, action: Action) -> None:
    at, node = int(action.at), action.node
    if action.act == "leave":
        plan.leaves.add((at, node))
    elif action.act == "crash" and action.fault.copies >= 0:
        plan.fuses[at, node] = action.fault.copies
    plan.deaths.append((at, node, action.act == "restart"))
    _count(plan, action.act, at)


def _note_span(plan: SchedulePlan, schedule: Schedule, begun: Action, end: Time) -> None:
    """A pause, or a fault of links, lasted from `begun` until `end`."""
    start, fault, everyone = int(begun.at), begun.fault, (1 << schedule.nodes) - 1
    if start == end:
        return
    _count(plan, fault.act, end)
    match fault.act:
        case "pause":
            plan.pauses.append(Pause(fault.node, start, end))
        case "partition":
            for side in (sum(1 << node for node in side) for side in fault.sides):
                plan.cuts.append(Cut(start, end, side, everyone & ~side))
                plan.cuts.append(Cut(start, end, everyone & ~side, side))
        case "one-way":
            plan.cuts.append(Cut(start, end, 1 << fault.source, 1 << fault.to))
        case "mute":
            plan.mutes.append(MuteNode(fault.node, start, end, fault.to))
        case "idle":
            plan.idles.append(IdleNode(fault.node, start, end))
        case "slow":
            node, delay = 1 << fault.node, schedule.time(fault.delay)
            for ends in ((node, everyone), (everyone & ~node, node)):
                plan.slows.append(Slow(start, end, *ends, fault.factor, delay))


def _count(plan: SchedulePlan, act: str, at: Time) -> None:
    plan.counts[act] += 1
    plan.last_fault = max(plan.last_fault, at)
