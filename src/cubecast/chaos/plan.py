"""What a schedule comes to: who is down, asleep or cut off, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cubecast.chaos.schedule import UNDONE_BY, Act, Fault, Schedule
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.faults import Cut, Mute, Pause, Slow


@dataclass(slots=True)
class Plan:
    """A schedule as the simulator carries it out, times in its units."""

    length: Time
    """All faults are over."""
    last_fault: Time = 0
    """When the last one ended; of a node that stays down, when it crashed."""
    deaths: list[tuple[Time, NodeId, bool]] = field(default_factory=list)
    """(when, who, whether it begins again), in order of time; of the dead and of those who left."""
    fuses: dict[tuple[Time, NodeId], int] = field(default_factory=dict)
    """Crashes in the middle of a broadcast: after how many copies."""
    leaves: set[tuple[Time, NodeId]] = field(default_factory=set)
    """The deaths that are none: the node leaves the cluster."""
    pauses: list[Pause] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    slows: list[Slow] = field(default_factory=list)
    mutes: list[Mute] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How many faults of each kind came about."""


def plan_of(schedule: Schedule) -> Plan:
    """Work out who is down, asleep or cut off, and when."""
    return _Planner(schedule).plan


@dataclass(frozen=True, slots=True)
class _Open:
    fault: Fault
    number: int
    start: Time


class _Planner:
    """Goes through the beginnings and ends of faults in order of time."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = Plan(schedule.time(schedule.length))
        self.plan.counts = dict.fromkeys(
            ("crash", "leave", "restart", "pause", "partition", "one-way", "slow", "mute"), 0
        )
        self.down: dict[NodeId, int] = dict.fromkeys(schedule.later, -1)
        """Who is down, and by which entry."""
        self.asleep: dict[NodeId, _Open] = {}
        self.links: dict[int, _Open] = {}
        for at, act, number, fault in _beginnings_and_ends(schedule):
            if at >= self.plan.length:
                break
            self._take(at, act, number, fault)
        for node in list(self.asleep):
            self._wake(node, self.plan.length)
        for number in list(self.links):
            self._heal(number, self.plan.length)

    def _take(self, at: Time, act: Act, number: int, fault: Fault) -> None:
        node = fault.node
        match act:
            case "crash" if node not in self.down:
                self._wake(node, at)
                self.down[node] = number
                if fault.copies >= 0:
                    self.plan.fuses[at, node] = fault.copies
                self._die(at, node, "crash")
            case "leave" if node not in self.down and node not in self.asleep:
                self.down[node] = number
                self.plan.leaves.add((at, node))
                self._die(at, node, "leave")
            case "restart" if node in self.down and not self._died_now(at, node):
                if fault.act == "restart" or self.down[node] == number:
                    del self.down[node]
                    self._die(at, node, "restart")
            case "pause" if node not in self.down and node not in self.asleep:
                self.asleep[node] = _Open(fault, number, at)
            case "resume":
                sleeper = self.asleep.get(node)
                if sleeper is not None and (fault.act == "resume" or sleeper.number == number):
                    self._wake(node, at)
            case "heal" if fault.act == "heal":
                for other in list(self.links):
                    self._heal(other, at)
            case "heal":
                self._heal(number, at)
            case "partition" | "one-way" | "slow" | "mute":
                self.links[number] = _Open(fault, number, at)

    def _died_now(self, at: Time, node: NodeId) -> bool:
        return (at, node, False) in self.plan.deaths

    def _die(self, at: Time, node: NodeId, act: str) -> None:
        self.plan.deaths.append((at, node, act == "restart"))
        self.plan.counts[act] += 1
        self.plan.last_fault = max(self.plan.last_fault, at)

    def _wake(self, node: NodeId, at: Time) -> None:
        sleeper = self.asleep.pop(node, None)
        if sleeper is not None and sleeper.start < at:
            self.plan.pauses.append(Pause(node, sleeper.start, at))
            self._ended("pause", at)

    def _heal(self, number: int, at: Time) -> None:
        link = self.links.pop(number, None)
        if link is None or link.start == at:
            return
        fault, everyone = link.fault, (1 << self.schedule.nodes) - 1
        self._ended(fault.act, at)
        match fault.act:
            case "partition":
                for side in (sum(1 << node for node in side) for side in fault.sides):
                    self.plan.cuts.append(Cut(link.start, at, side, everyone & ~side))
                    self.plan.cuts.append(Cut(link.start, at, everyone & ~side, side))
            case "one-way":
                self.plan.cuts.append(Cut(link.start, at, 1 << fault.source, 1 << fault.to))
            case "mute":
                self.plan.mutes.append(Mute(fault.node, link.start, at, fault.to))
            case "slow":
                node, delay = 1 << fault.node, self.schedule.time(fault.delay)
                for ends in ((node, everyone), (everyone & ~node, node)):
                    self.plan.slows.append(Slow(link.start, at, *ends, fault.factor, delay))

    def _ended(self, act: str, at: Time) -> None:
        self.plan.counts[act] += 1
        self.plan.last_fault = max(self.plan.last_fault, at)


def _beginnings_and_ends(schedule: Schedule) -> Iterator[tuple[Time, Act, int, Fault]]:
    found: list[tuple[Time, Act, int, Fault]] = []
    for number, fault in enumerate(schedule.faults):
        at = schedule.time(fault.at)
        found.append((at, fault.act, number, fault))
        if fault.lasts:
            found.append((at + schedule.time(fault.lasts), UNDONE_BY[fault.act], number, fault))
    yield from sorted(found, key=lambda one: one[0])
