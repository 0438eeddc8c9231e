"""Schedules of faults: what is done to which node, and when.

about = "the node that runs the epochs dies, then half of the cluster is cut off"
nodes = 8
seconds = 60                # of load; left out: 10 s more than the last fault

[[fault]]
at = 5                      # seconds after everyone is up and talks
act = "crash"               # SIGKILL
node = 0
for = 4                     # then a new process begins in its place; left out: act = "restart"

[[fault]]
at = 15
act = "partition"
sides = [[0, 1, 2, 3], [4, 5, 6, 7]]   # who is in none of them is in one more
for = 20                    # then it heals; left out: act = "heal"

| act | of | undone by |
|---|---|---|
| crash | node | restart |
| leave (gracefully) | node | restart |
| pause (SIGSTOP) | node | resume |
| partition | sides | heal, which ends every fault of links |
| one-way (nothing gets from one to the other) | from, to | heal |
| slow (all links of a node, both ways) | node, delay (seconds), jitter | heal |

Nodes are numbered as they were started; a process that was started again keeps its number, whatever
its slot is.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import msgspec

Act = Literal[
    "crash", "leave", "restart", "pause", "resume", "partition", "one-way", "slow", "heal"
]
UNDONE_BY: dict[str, Act] = {
    "crash": "restart",
    "leave": "restart",
    "pause": "resume",
    "partition": "heal",
    "one-way": "heal",
    "slow": "heal",
}
OF_LINKS = frozenset(("partition", "one-way", "slow"))
OF_ONE_NODE = frozenset(("crash", "leave", "restart", "pause", "resume", "slow"))
MAX_NODES = 64
MAX_SECONDS = 24 * 3600.0
CALM_S = 10.0
"""After the last fault, unless a schedule says how long it is."""


class ScheduleError(ValueError):
    """A schedule cannot be read or does not make sense."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a schedule."""

    at: float
    act: Act
    node: int = -1
    sides: tuple[tuple[int, ...], ...] = ()
    source: int = msgspec.field(name="from", default=-1)
    to: int = -1
    delay: float = 0.0
    jitter: float = 0.0
    lasts: float = msgspec.field(name="for", default=0.0)
    """Undone after so many seconds; 0: by another entry, or when the run calms down."""

    def __str__(self) -> str:
        match self.act:
            case "partition":
                return "partition " + " | ".join(_listed(side) for side in self.sides)
            case "one-way":
                return f"one-way cut from node {self.source} to node {self.to}"
            case "slow":
                return f"slow links of node {self.node}, {self.delay * 1000:g} ms"
            case "heal":
                return "heal"
        return f"{self.act} of node {self.node}"


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A whole schedule, checked by `checked`."""

    nodes: int
    about: str = ""
    seconds: float = 0.0
    faults: tuple[Fault, ...] = msgspec.field(name="fault", default=())


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: a fault begins (`act` is its own), or ends (`act` undoes it)."""

    at: float
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
            return f"end of {self.fault}" if self.number >= 0 else "heal"
        return f"{self.act} of node {self.node}"


class Link(NamedTuple):
    """What is wrong with the way from one node to another."""

    cut: bool
    delay: float = 0.0
    jitter: float = 0.0


CLEAR = Link(False)


class Condition:
    """Who runs and what is wrong with which link, as actions change it; refuses what cannot be."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.up = set(range(nodes))
        self.paused: set[int] = set()
        self.links: dict[int, Fault] = {}
        """Faults of links in force, by the number of their entry."""

    def apply(self, action: Action) -> None:
        """Carry it out; `ScheduleError` if its node is not in a state for it."""
        node = action.node
        match action.act:
            case "crash":
                self._need(node in self.up, f"node {node} does not run")
                self.up.discard(node)
                self.paused.discard(node)
            case "leave":
                self._need(node in self.up, f"node {node} does not run")
                self._need(node not in self.paused, f"node {node} is paused and cannot leave")
                self.up.discard(node)
            case "restart":
                self._need(node not in self.up, f"node {node} runs already")
                self.up.add(node)
            case "pause":
                self._need(node in self.up, f"node {node} does not run")
                self._need(node not in self.paused, f"node {node} is paused already")
                self.paused.add(node)
            case "resume":
                if action.fault.act == "pause" and node not in self.paused:
                    return  # it crashed, or was resumed, in the meantime
                self._need(node in self.paused, f"node {node} is not paused")
                self.paused.discard(node)
            case "heal" if action.fault.act in OF_LINKS:
                self.links.pop(action.number, None)
            case "heal":
                self.links.clear()
            case _:
                self.links[action.number] = action.fault

    def _need(self, truth: bool, why: str) -> None:
        if not truth:
            raise ScheduleError(why)

    def link(self, source: int, to: int) -> Link:
        """What is wrong with the way from `source` to `to`."""
        cut, delay, jitter = False, 0.0, 0.0
        for fault in self.links.values():
            match fault.act:
                case "partition":
                    cut = cut or _side(fault, source) != _side(fault, to)
                case "one-way":
                    cut = cut or (fault.source, fault.to) == (source, to)
                case "slow" if fault.node in (source, to):
                    delay, jitter = delay + fault.delay, jitter + fault.jitter
        return Link(cut, delay, jitter)

    def connected(self, one: int, other: int) -> bool:
        """Whether both run and nothing between them is cut."""
        running = {one, other} <= self.up and not {one, other} & self.paused
        return running and not (self.link(one, other).cut or self.link(other, one).cut)

    def calm(self, at: float) -> list[Action]:
        """What ends all faults but deaths."""
        found = [Action(at, "resume", Fault(at, "resume", node), -1) for node in self.paused]
        if self.links:
            found.append(Action(at, "heal", Fault(at, "heal"), -1))
        return found


def _side(fault: Fault, node: int) -> int:
    return next((index for index, side in enumerate(fault.sides) if node in side), -1)


def _listed(nodes: tuple[int, ...]) -> str:
    """ "0-3,7": runs of numbers joined."""
    parts: list[list[int]] = []
    for node in sorted(nodes):
        if parts and parts[-1][-1] == node - 1:
            parts[-1].append(node)
        else:
            parts.append([node])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in parts)


# -- reading and checking --------------------------------------------------------------------------


def read_schedule(path: Path, nodes: int | None = None) -> Schedule:
    """Read and check a schedule file; `ScheduleError` says in one line what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScheduleError(f"cannot read {path}: {error}") from error
    try:
        found = tomllib.loads(text)
        if nodes is not None:
            found["nodes"] = nodes
        return checked(msgspec.convert(found, Schedule))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ScheduleError) as error:
        raise ScheduleError(f"{path}: {error}") from error


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Write a schedule as a file that `read_schedule` reads."""
    values = msgspec.to_builtins(schedule)
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if name != "fault"]
    for fault in values.get("fault", ()):
        lines += ["", "[[fault]]", *(f"{name} = {_toml(value)}" for name, value in fault.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: Any) -> str:
    """Numbers, plain text and lists of them are written alike in JSON and TOML."""
    return msgspec.json.encode(value).decode()


def checked(schedule: Schedule) -> Schedule:
    """The schedule with its length filled in; `ScheduleError` if it cannot be carried out."""
    if not 1 <= schedule.nodes <= MAX_NODES:
        raise ScheduleError(f"nodes must be 1 to {MAX_NODES}, not {schedule.nodes}")
    for number, fault in enumerate(schedule.faults, 1):
        problem = _problem(fault, schedule.nodes)
        if problem:
            raise ScheduleError(f"fault {number} ({fault.act} at {fault.at:g} s): {problem}")
    last = max((action.at for action in actions_of(schedule)), default=0.0)
    seconds = schedule.seconds or last + CALM_S
    if not last <= seconds <= MAX_SECONDS:
        raise ScheduleError(
            f"seconds must be at least {last:g}, when the last fault ends, "
            f"and at most {MAX_SECONDS:g}, not {seconds:g}"
        )
    _rehearse(schedule)
    return msgspec.structs.replace(schedule, seconds=seconds)


def _problem(fault: Fault, nodes: int) -> str:
    for name, value in (("at", fault.at), ("for", fault.lasts), ("delay", fault.delay)):
        if not 0 <= value <= MAX_SECONDS:
            return f"{name} must be 0 to {MAX_SECONDS:g} seconds, not {value:g}"
    if fault.lasts and fault.act not in UNDONE_BY:
        return "nothing undoes it: leave out `for`"
    named = [node for side in fault.sides for node in side]
    if fault.act in OF_ONE_NODE:
        named.append(fault.node)
    if fault.act == "one-way":
        named += [fault.source, fault.to]
    for node in named:
        if not 0 <= node < nodes:
            return f"there is no node {node} among 0 to {nodes - 1}"
    if len(set(named)) < len(named):
        return "a node is named twice"
    if fault.act == "partition" and not any(map(len, fault.sides)):
        return "a partition needs sides, as in [[0, 1], [2, 3]]"
    if fault.act == "slow" and not fault.delay + fault.jitter > 0:
        return "say the delay, in seconds"
    return _foreign(fault)


def _foreign(fault: Fault) -> str:
    """A field that says nothing about this act is a mistake."""
    fits = {
        "node": fault.act in OF_ONE_NODE or fault.node == -1,
        "sides": fault.act == "partition" or not fault.sides,
        "from": fault.act == "one-way" or fault.source == -1,
        "to": fault.act == "one-way" or fault.to == -1,
        "delay": fault.act == "slow" or not fault.delay,
        "jitter": fault.act == "slow" or not fault.jitter,
    }
    return next((f"`{name}` says nothing here" for name, fit in fits.items() if not fit), "")


def _rehearse(schedule: Schedule) -> None:
    condition = Condition(schedule.nodes)
    for action in actions_of(schedule):
        try:
            condition.apply(action)
        except ScheduleError as error:
            where = f"fault {action.number + 1}, {action.act} at {action.at:g} s"
            raise ScheduleError(f"{where}: {error}") from None


def actions_of(schedule: Schedule) -> list[Action]:
    """Beginnings and ends, in the order in which they are carried out."""
    found: list[Action] = []
    for number, fault in enumerate(schedule.faults):
        found.append(Action(fault.at, fault.act, fault, number))
        if fault.lasts:
            end = fault.at + fault.lasts
            found.append(Action(end, UNDONE_BY[fault.act], fault, number))
    return sorted(found, key=lambda action: action.at)


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
    return checked(Schedule(nodes, about, seconds, tuple(faults)))


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
            return Fault(at, "slow", node, delay=delay, jitter=delay, lasts=lasting(1.0, 4.0))
        case "one-way":
            return Fault(at, "one-way", source=node, to=other, lasts=lasting(1.0, 6.0))
    side = tuple(sorted(chance.sample(well, chance.randint(1, len(well) - 1))))
    return Fault(at, "partition", sides=(side,), lasts=lasting(2.0, 8.0))


def split(sizes: tuple[int, ...], seconds: float, begin: float = 5.0) -> Schedule:
    """A partition into sides of these sizes for so many seconds, and what comes after."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ScheduleError("a partition has two sides or more, each with a node, as in 4,4")
    if not 0 < seconds <= MAX_SECONDS:
        raise ScheduleError(f"a partition lasts up to {MAX_SECONDS:g} s, not {seconds:g}")
    sides, first = [], 0
    for size in sizes:
        sides.append(tuple(range(first, first + size)))
        first += size
    fault = Fault(begin, "partition", sides=tuple(sides), lasts=seconds)
    about = f"a partition {'|'.join(map(str, sizes))} for {seconds:g} s"
    return checked(Schedule(first, about, faults=(fault,)))
