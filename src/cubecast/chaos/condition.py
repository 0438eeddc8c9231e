"""The state of nodes and links under a schedule: nodes down or paused, links cut or slow.

`actions_of` lists the beginnings and ends of faults in the order of time, and `Condition` goes
through them.  The simulator plans its runs with it (`cubecast.chaos.plan`), the driver of real
processes asks it what to do, and so both worlds mean the same by a schedule.

1. An action that is impossible at its time is left out: a node that is down does not crash.
2. The end of a fault ends that fault only.  The end of a crash restarts no node that is down for
   another reason, and the end of a pause wakes no node that another entry paused.
3. A `restart`, `resume` or `heal` of its own entry ends whatever it finds, but a node does not
   restart at the very time at which it went down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cubecast.chaos.schedule import UNDONE_BY, Act, Fault, Schedule


@dataclass(frozen=True, slots=True)
class Action:
    """One action: a fault begins (`act` is its own), or ends (`act` undoes it)."""

    at: float
    """Time, in the unit of the world."""
    act: Act
    fault: Fault
    number: int
    """Which entry of the schedule it comes from; -1: none of them."""

    @property
    def node(self) -> int:
        """The node that it affects; -1: links of several."""
        return self.fault.node

    def __str__(self) -> str:
        if self.act == self.fault.act:
            return str(self.fault)
        if self.act == "heal":
            return f"end of {self.fault}"
        return f"{self.act} of node {self.node}"


def actions_of(schedule: Schedule, clock: Callable[[float], float]) -> list[Action]:
    """Beginnings and ends of faults, in the order in which they are carried out.

    `clock` gives a time of the schedule in the unit of the world: `Schedule.time`, or
    `Schedule.seconds`.
    """
    found: list[Action] = []
    for number, fault in enumerate(schedule.faults):
        at = clock(fault.at)
        found.append(Action(at, fault.act, fault, number))
        if fault.lasts:
            end = at + clock(fault.lasts)
            found.append(Action(end, UNDONE_BY[fault.act], fault, number))
    return sorted(found, key=lambda action: action.at)


class LinkCondition(NamedTuple):
    """The faults of the way from one node to another."""

    cut: bool
    slow: tuple[Fault, ...] = ()
    """The faults that slow it."""


class Condition:
    """Which nodes run and which faults each link has, as actions change it."""

    def __init__(self, nodes: int, later: Iterable[int] = ()) -> None:
        """`later` names nodes that do not run at the beginning."""
        self.nodes = nodes
        self.down: dict[int, Action | None] = dict.fromkeys(later)
        """The action by which each node that does not run went down."""
        self.paused: dict[int, Action] = {}
        self.links: dict[int, Action] = {}
        """Faults of links in force, by the number of their entry."""

    @property
    def up(self) -> set[int]:
        """The nodes that run, paused or not."""
        return set(range(self.nodes)) - self.down.keys()

    def can(self, action: Action) -> bool:
        """Whether an action has any effect now."""
        node, of_itself = action.node, action.act == action.fault.act
        match action.act:
            case "crash":
                return node not in self.down
            case "leave" | "pause":
                return node not in self.down and node not in self.paused
            case "restart":
                death = self.down.get(node)
                if death is None:
                    return of_itself and node in self.down
                return death.at != action.at and (of_itself or death.number == action.number)
            case "resume":
                pause = self.paused.get(node)
                return pause is not None and (of_itself or pause.number == action.number)
            case "heal" if not of_itself:
                return action.number in self.links
        return True

    def apply(self, action: Action) -> list[Action]:
        """Carry out an action if it has any effect; return the pauses and link faults it ends."""
        if not self.can(action):
            return []
        node = action.node
        match action.act:
            case "crash" | "leave":
                self.down[node] = action
                return [self.paused.pop(node)] if node in self.paused else []
            case "restart":
                del self.down[node]
            case "pause":
                self.paused[node] = action
            case "resume":
                return [self.paused.pop(node)]
            case "heal" if action.fault.act != "heal":
                return [self.links.pop(action.number)]
            case "heal":
                ended = list(self.links.values())
                self.links.clear()
                return ended
            case _:
                self.links[action.number] = action
        return []

    def link(self, source: int, to: int) -> LinkCondition:
        """The faults of the way from `source` to `to`."""
        cut = False
        slow: list[Fault] = []
        for action in self.links.values():
            fault = action.fault
            match fault.act:
                case "partition":
                    cut = cut or _side(fault, source) != _side(fault, to)
                case "one-way":
                    cut = cut or (fault.source, fault.to) == (source, to)
                case "slow" if fault.node in (source, to):
                    slow.append(fault)
        return LinkCondition(cut, tuple(slow))

    def connected(self, one: int, other: int) -> bool:
        """Whether both run and nothing between them is cut."""
        for node in (one, other):
            if node in self.down or node in self.paused:
                return False
        return not (self.link(one, other).cut or self.link(other, one).cut)

    def calm(self, at: float) -> list[Action]:
        """The actions that end all faults but deaths."""
        found = [Action(at, "resume", Fault(at, "resume", node), -1) for node in self.paused]
        if self.links:
            found.append(Action(at, "heal", Fault(at, "heal"), -1))
        return found


def _side(fault: Fault, node: int) -> int:
    return next((index for index, side in enumerate(fault.sides) if node in side), -1)
