"""Schedules as real processes go through them; the language is that of `cubecast.chaos.schedule`.

Here `length` is that of the load; of `links` only the loss is taken, and `seed`, `params` are the
simulator's.  A factor of a slow link is taken for `FACTOR_S` more each.  Nodes are numbered as they
were started; a process that was started again keeps its number, whatever its slot is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from cubecast.chaos.schedule import UNDONE_BY, Act, Fault, Schedule, ScheduleError, checked

MAX_NODES = 64
"""Processes that one machine is asked to run."""
FACTOR_S = 0.001
CALM_S = 10.0
"""Drawn faults end so long before the load does."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: a fault begins (`act` is its own), or ends (`act` undoes it)."""

    at: float
    """In seconds."""
    act: Act
    fault: Fault
    number: int
    """Which entry of the schedule it comes from; -1: the calm at the end."""

    @property
    def node(self) -> int:
        """The one node it is about; -1: links of several."""
        return self.fault.node

    def __str__(self) -> str:
        if self.act == self.fault.act:
            return str(self.fault)
        if self.act == "heal":
            return f"end of {self.fault}"
        return f"{self.act} of node {self.node}"


class Link(NamedTuple):
    """What is wrong with the way from one node to another."""

    cut: bool
    delay_s: float = 0.0


class Condition:
    """Who runs and what is wrong with which link, as actions change it."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.up = set(range(nodes))
        self.paused: dict[int, int] = {}
        """The number of the entry that paused each."""
        self.links: dict[int, tuple[Fault, float]] = {}
        """Faults of links in force, by the number of their entry, with their delay in seconds."""

    def can(self, action: Action) -> bool:
        """Whether there is anything to do: a node that is down does not crash."""
        node = action.node
        match action.act:
            case "crash":
                return node in self.up
            case "leave" | "pause":
                return node in self.up and node not in self.paused
            case "restart":
                return node not in self.up
            case "resume":
                anyhow = action.fault.act == "resume"
                return node in self.paused and (anyhow or self.paused[node] == action.number)
            case "heal" if action.fault.act != "heal":
                return action.number in self.links
        return True

    def apply(self, action: Action, delay_s: float = 0.0) -> None:
        """Carry it out, if there is anything to do."""
        if not self.can(action):
            return
        node = action.node
        match action.act:
            case "crash" | "leave":
                self.up.discard(node)
                self.paused.pop(node, None)
            case "restart":
                self.up.add(node)
            case "pause":
                self.paused[node] = action.number
            case "resume":
                del self.paused[node]
            case "heal" if action.fault.act != "heal":
                del self.links[action.number]
            case "heal":
                self.links.clear()
            case _:
                self.links[action.number] = (action.fault, delay_s)

    def link(self, source: int, to: int) -> Link:
        """What is wrong with the way from `source` to `to`."""
        cut, delay_s = False, 0.0
        for fault, slower_s in self.links.values():
            match fault.act:
                case "partition":
                    cut = cut or _side(fault, source) != _side(fault, to)
                case "one-way":
                    cut = cut or (fault.source, fault.to) == (source, to)
                case "slow" if fault.node in (source, to):
                    delay_s += slower_s
        return Link(cut, delay_s)

    def connected(self, one: int, other: int) -> bool:
        """Whether both run and nothing between them is cut."""
        running = {one, other} <= self.up and not {one, other} & self.paused.keys()
        return running and not (self.link(one, other).cut or self.link(other, one).cut)

    def calm(self, at: float) -> list[Action]:
        """What ends all faults but deaths."""
        found = [Action(at, "resume", Fault(at, "resume", node), -1) for node in self.paused]
        if self.links:
            found.append(Action(at, "heal", Fault(at, "heal"), -1))
        return found


def _side(fault: Fault, node: int) -> int:
    return next((index for index, side in enumerate(fault.sides) if node in side), -1)


def runnable(schedule: Schedule) -> Schedule:
    """A checked schedule, if there can be so many processes."""
    if schedule.nodes > MAX_NODES:
        raise ScheduleError(f"nodes must be 1 to {MAX_NODES} here, not {schedule.nodes}")
    if any(fault.act == "mute" for fault in schedule.faults):
        raise ScheduleError("act 'mute' is for simulated nodes: real ones answer waves")
    return checked(schedule)


def actions_of(schedule: Schedule) -> list[Action]:
    """Beginnings and ends of faults, in the order in which they are carried out."""
    found: list[Action] = []
    for number, fault in enumerate(schedule.faults):
        at = schedule.seconds(fault.at)
        found.append(Action(at, fault.act, fault, number))
        if fault.lasts:
            end = at + schedule.seconds(fault.lasts)
            found.append(Action(end, UNDONE_BY[fault.act], fault, number))
    return sorted(found, key=lambda action: action.at)


def delay_s(schedule: Schedule, fault: Fault) -> float:
    """How much longer packets take on a slow link; there is no round trip to multiply here."""
    return schedule.seconds(fault.delay) + (fault.factor - 1) * FACTOR_S


# -- drawing ---------------------------------------------------------------------------------------

DRAWN = ("crash", "pause", "blink", "leave", "slow", "one-way", "partition")
"""What `draw` knows; a blink is a pause that is shorter than any suspicion."""
BEGIN_S = 3.0
REST_S = 1.0
"""A node that is back is left alone for so long."""


def draw(
    nodes: int, seconds: float, every: float, seed: int, acts: tuple[str, ...] = ("crash", "pause")
) -> Schedule:
    """One fault every so many seconds; at least half of the nodes are well at any time."""
    unknown = [act for act in acts if act not in DRAWN]
    if unknown or not acts:
        raise ScheduleError(f"no such fault: {', '.join(unknown)}; there are {', '.join(DRAWN)}")
    if every <= 0:
        raise ScheduleError(f"faults come every so many seconds, above 0, not {every:g}")
    if nodes < 2:
        raise ScheduleError("at least 2 nodes are needed, so that one of them is well")
    chance = Random(f"{seed}/{nodes}/{seconds:g}/{every:g}/{','.join(acts)}")
    faults: list[Fault] = []
    unwell: dict[int, float] = {}
    for step in count():
        at = round(BEGIN_S + step * every, 3)
        latest = seconds - CALM_S
        if at > latest:
            break
        well = [node for node in range(nodes) if unwell.get(node, 0.0) <= at]
        if len(well) <= max(1, nodes // 2):
            continue
        fault = _draw_one(chance, chance.choice(acts), at, latest, well)
        faults.append(fault)
        for node in (fault.node, fault.source):
            unwell[node] = fault.at + fault.lasts + REST_S
        if fault.act == "partition":
            unwell.update(dict.fromkeys(range(nodes), fault.at + fault.lasts + REST_S))
    about = f"{', '.join(acts)} every {every:g} s, seed {seed}"
    return runnable(Schedule(nodes, about, "s", seconds, seed, faults=tuple(faults)))


def _draw_one(chance: Random, act: str, at: float, latest: float, well: list[int]) -> Fault:
    def lasting(low: float, high: float) -> float:
        return round(min(chance.uniform(low, high), max(0.1, latest + CALM_S / 2 - at)), 3)

    node, other = chance.sample(well, 2)
    match act:
        case "crash":
            return Fault(at, "crash", node, lasts=lasting(0.5, 4.0))
        case "leave":
            return Fault(at, "leave", node, lasts=lasting(1.0, 4.0))
        case "pause":
            short = chance.random() < 0.5
            return Fault(at, "pause", node, lasts=lasting(0.1, 1.0) if short else lasting(2.0, 6.0))
        case "blink":
            return Fault(at, "pause", node, lasts=lasting(0.05, 0.25))
        case "slow":
            delay = round(chance.uniform(0.005, 0.05), 3)
            return Fault(at, "slow", node, delay=delay, lasts=lasting(1.0, 4.0))
        case "one-way":
            return Fault(at, "one-way", source=node, to=other, lasts=lasting(1.0, 6.0))
    side = tuple(sorted(chance.sample(well, chance.randint(1, len(well) - 1))))
    return Fault(at, "partition", sides=(side,), lasts=lasting(2.0, 8.0))


def split(sizes: tuple[int, ...], seconds: float, begin: float = 5.0) -> Schedule:
    """A partition into sides of these sizes for so many seconds, and what comes after."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ScheduleError("a partition has two sides or more, each with a node, as in 4,4")
    if not seconds > 0:
        raise ScheduleError(f"a partition lasts more than 0 s, not {seconds:g}")
    sides, first = [], 0
    for size in sizes:
        sides.append(tuple(range(first, first + size)))
        first += size
    fault = Fault(begin, "partition", sides=tuple(sides[:-1]), lasts=seconds)
    about = f"a partition {'|'.join(map(str, sizes))} for {seconds:g} s"
    return runnable(Schedule(first, about, "s", faults=(fault,)))
