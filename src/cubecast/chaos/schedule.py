"""Schedules of faults as real processes go through them; the language is the simulator's.

about = "the lowest node dies, then half of the others are cut off"
unit = "s"                  # of all times: "ms" or "s"
nodes = 8
length = 60                 # of the load; left out: 10 s more than the last fault
answers = 0.1               # share of the deliveries that are answered at once

[links]
loss = 0.01                 # of all links; the other chances are the simulator's

[topics]
t = [0, 1, 2]               # subscribed from the start; left out: everyone, to "t"

[[fault]]
at = 5                      # after everyone is up and talks
act = "crash"               # SIGKILL
node = 0
for = 4                     # then a new process begins in its place; left out: act = "restart"

[[fault]]
at = 15
act = "partition"
sides = [[0, 1, 2, 3]]      # who is in none of them is in one more
for = 20                    # then it heals; left out: act = "heal"

[[do]]
at = 3
node = 2
act = "burst"               # publish, burst, subscribe, unsubscribe
count = 20
topic = "t"                 # left out: the first one

| fault | of | undone by |
|---|---|---|
| crash (SIGKILL) | node | restart |
| leave, gracefully | node | restart |
| pause (SIGSTOP) | node | resume |
| partition | sides | heal, which ends every fault of links |
| one-way: nothing gets from one to the other | from, to | heal |
| slow: all links of a node take longer | node, delay | heal |

What cannot be done at its time (a crash of a node that is down) is left out, so that an entry can
be dropped from a schedule without touching the others.  `seed`, `params` and `factor` are for the
simulator alone.  Nodes are numbered as they were started; a process that was started again keeps
its number, whatever its slot is.
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
Deed = Literal["publish", "burst", "subscribe", "unsubscribe"]
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
CHANCES = ("loss", "duplicate", "reorder", "spike")
FACTOR_S = 0.001
"""What a factor of a slow link is taken for: so many milliseconds more."""
MAX_NODES = 64
MAX_SECONDS = 24 * 3600.0
MAX_BURST = 100_000
CALM_S = 10.0
"""After the last fault, unless a schedule says how long it is."""


class ScheduleError(ValueError):
    """A schedule cannot be read or does not make sense."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something goes wrong."""

    at: float
    act: Act
    node: int = -1
    sides: tuple[tuple[int, ...], ...] = ()
    source: int = msgspec.field(name="from", default=-1)
    to: int = -1
    delay: float = 0.0
    factor: int = 1
    lasts: float = msgspec.field(name="for", default=0.0)
    """Undone after this long; 0: by another entry, or when the run calms down."""

    def __str__(self) -> str:
        match self.act:
            case "partition":
                return "partition " + " | ".join([*map(_listed, self.sides), "the others"])
            case "one-way":
                return f"one-way cut from node {self.source} to node {self.to}"
            case "slow":
                much = f"{self.factor} times as slow" if self.factor > 1 else f"{self.delay:g} more"
                return f"slow links of node {self.node}, {much}"
            case "heal":
                return "heal"
        return f"{self.act} of node {self.node}"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something the application at a node does."""

    at: float
    act: Deed
    node: int
    topic: str = ""
    count: int = 1
    """Of a burst: messages published at once."""

    def __str__(self) -> str:
        many = f" of {self.count}" if self.act == "burst" else ""
        return f"{self.act}{many} at node {self.node}"


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A whole schedule, checked by `checked`."""

    nodes: int
    about: str = ""
    unit: Literal["ms", "s"] = "ms"
    length: float = 0.0
    seed: int = 0
    answers: float = 0.0
    links: dict[str, float] = {}
    params: dict[str, Any] = {}
    topics: dict[str, tuple[int, ...]] = {}
    faults: tuple[Fault, ...] = msgspec.field(name="fault", default=())
    steps: tuple[Step, ...] = msgspec.field(name="do", default=())

    def seconds(self, value: float) -> float:
        """A time of the schedule in seconds."""
        return value if self.unit == "s" else value / 1000

    def members(self) -> dict[str, tuple[int, ...]]:
        """Who is subscribed from the start."""
        return self.topics or {"t": tuple(range(self.nodes))}


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
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ScheduleError(f"cannot read {path}: {reason}") from error
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
    tables = ("links", "params", "topics")
    lists = ("fault", "do")
    lines = [
        f"{name} = {_toml(value)}"
        for name, value in values.items()
        if name not in (*tables, *lists)
    ]
    for name in tables:
        if values.get(name):
            lines += ["", f"[{name}]"]
            lines += [f"{_toml(key)} = {_toml(value)}" for key, value in values[name].items()]
    for name in lists:
        for entry in values.get(name, ()):
            lines += ["", f"[[{name}]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in entry.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: Any) -> str:
    """Numbers, plain text and lists of them are written alike in JSON and TOML."""
    return msgspec.json.encode(value).decode()


def checked(schedule: Schedule) -> Schedule:
    """The schedule with its length filled in; `ScheduleError` if it makes no sense."""
    if not 1 <= schedule.nodes <= MAX_NODES:
        raise ScheduleError(f"nodes must be 1 to {MAX_NODES}, not {schedule.nodes}")
    if not 0 <= schedule.answers < 1:
        raise ScheduleError(f"answers is a share from 0 to below 1, not {schedule.answers:g}")
    for name, chance in schedule.links.items():
        if name not in CHANCES or not 0 <= chance < 1:
            raise ScheduleError(f"links.{name}: there are {', '.join(CHANCES)}, 0 to below 1")
    for topic, members in schedule.topics.items():
        _check(f"topics.{topic}", _unknown(members, schedule.nodes))
    for number, fault in enumerate(schedule.faults, 1):
        _check(f"fault {number} ({fault.act} at {fault.at:g})", _problem(fault, schedule))
    for number, step in enumerate(schedule.steps, 1):
        _check(f"do {number} ({step.act} at {step.at:g})", _problem_of_step(step, schedule))
    last = max((action.at for action in actions_of(schedule)), default=0.0)
    length = schedule.length or (last + CALM_S) / schedule.seconds(1)
    if not 0 < schedule.seconds(length) <= MAX_SECONDS:
        raise ScheduleError(f"length must be above 0 and at most a day, not {length:g}")
    return msgspec.structs.replace(schedule, length=length)


def _check(where: str, problem: str) -> None:
    if problem:
        raise ScheduleError(f"{where}: {problem}")


def _unknown(named: tuple[int, ...], nodes: int) -> str:
    for node in named:
        if not 0 <= node < nodes:
            return f"there is no node {node} among 0 to {nodes - 1}"
    return "a node is named twice" if len(set(named)) < len(named) else ""


def _problem(fault: Fault, schedule: Schedule) -> str:
    for name, value in (("at", fault.at), ("for", fault.lasts), ("delay", fault.delay)):
        if not 0 <= schedule.seconds(value) <= MAX_SECONDS:
            return f"`{name}` must be 0 to a day, not {value:g}"
    fits = {
        "for": fault.act in UNDONE_BY or not fault.lasts,
        "node": fault.act in OF_ONE_NODE or fault.node == -1,
        "sides": (fault.act == "partition") == any(map(len, fault.sides)),
        "from": fault.act == "one-way" or fault.source == -1,
        "to": fault.act == "one-way" or fault.to == -1,
        "delay": fault.act == "slow" or not fault.delay,
        "factor": 1 <= fault.factor <= 1000 and (fault.act == "slow" or fault.factor == 1),
    }
    for name, fit in fits.items():
        if not fit:
            return f"`{name}` does not fit here"
    if fault.act == "slow" and not fault.delay and fault.factor == 1:
        return "say the delay"
    named = tuple(node for side in fault.sides for node in side)
    named += (fault.node,) if fault.act in OF_ONE_NODE else ()
    named += (fault.source, fault.to) if fault.act == "one-way" else ()
    return _unknown(named, schedule.nodes)


def _problem_of_step(step: Step, schedule: Schedule) -> str:
    if not 0 <= schedule.seconds(step.at) <= MAX_SECONDS:
        return f"`at` must be 0 to a day, not {step.at:g}"
    if step.topic and step.topic not in schedule.members():
        return f"topic {step.topic!r} is not in [topics]"
    if not 1 <= step.count <= MAX_BURST or (step.count > 1 and step.act != "burst"):
        return "`count` does not fit here"
    return _unknown((step.node,), schedule.nodes)


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
    return checked(Schedule(nodes, about, "s", seconds, seed, faults=tuple(faults)))


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
    if not 0 < seconds <= MAX_SECONDS:
        raise ScheduleError(f"a partition lasts up to {MAX_SECONDS:g} s, not {seconds:g}")
    sides, first = [], 0
    for size in sizes:
        sides.append(tuple(range(first, first + size)))
        first += size
    fault = Fault(begin, "partition", sides=tuple(sides[:-1]), lasts=seconds)
    about = f"a partition {'|'.join(map(str, sizes))} for {seconds:g} s"
    return checked(Schedule(first, about, "s", faults=(fault,)))
