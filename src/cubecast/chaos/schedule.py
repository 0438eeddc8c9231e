"""Schedules: faults of nodes and links, and when they happen; in TOML.

about = "the lowest node dies, then half of the others are cut off"
unit = "ms"                 # of all times: "ms" (a unit of time in the simulator) or "s"
nodes = 8
length = 6000               # then all faults end; left out: when the last one does
seed = 17                   # of what is not written here: delays, losses, which node answers
answers = 0.1               # share of the deliveries that are answered at once

[links]                     # chances per message, until `length`
loss = 0.05                 # and duplicate, reorder, spike

[params]                    # any other field of `Params`, such as window
window = 4

[topics]
t = [0, 1, 2]               # subscribed from the start; left out: everyone, to "t"

[[fault]]
at = 500
act = "crash"
node = 0
for = 2000                  # then a new process begins there; left out: act = "restart"

[[fault]]
at = 3000
act = "partition"
sides = [[1, 2, 3]]         # nodes in none of them are one more side
for = 2000                  # then it heals; left out: act = "heal"

[[do]]
at = 100
node = 2
act = "burst"               # others: see below
count = 20
topic = "t"                 # left out: the first one; any other name is a topic, too

| fault | of | undone by |
|---|---|---|
| crash; with `copies`: it publishes, and dies when it has sent so many | node | restart |
| leave the cluster, gracefully | node | restart |
| pause | node | resume |
| partition | sides | heal, which ends every fault of links |
| one-way: nothing gets from one to the other | from, to | heal |
| slow: all links of a node take longer | node, delay or factor | heal |
| mute: a node answers no waves, all else it does; with `to`: those of one node | node | heal |
| idle: a node that leads lets none in or out; it excludes those it takes for dead | node | heal |

| what an application does | |
|---|---|
| publish, burst | a message, or `count` at once, each in a frame of its own |
| batch | `count` messages in one frame |
| retain, remove | a message that is kept for newcomers; one that says that there is none any more |
| subscribe, unsubscribe | with `lossy = true`: it drops messages instead of holding publishers up |
| follow, unfollow | to all topics that a pattern matches; `topic` is the pattern |

`later = [8, 9]` names nodes that are not there at the beginning: a restart begins them.

An entry that is impossible at its time (a crash of a node that is down) is left out, so that an
entry can be dropped from a schedule without touching the others.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import MAX_MESSAGES, MAX_TIME, ParamError, Params

Act = Literal[
    "crash",
    "leave",
    "restart",
    "pause",
    "resume",
    "partition",
    "one-way",
    "slow",
    "mute",
    "idle",
    "heal",
]
Deed = Literal[
    "publish",
    "burst",
    "batch",
    "retain",
    "remove",
    "subscribe",
    "unsubscribe",
    "follow",
    "unfollow",
]
SEVERAL = ("burst", "batch")
UNDONE_BY: dict[str, Act] = {
    "crash": "restart",
    "leave": "restart",
    "pause": "resume",
    "partition": "heal",
    "one-way": "heal",
    "slow": "heal",
    "mute": "heal",
    "idle": "heal",
}
OF_LINKS = frozenset(("partition", "one-way", "slow", "mute", "idle"))
OF_ONE_NODE = frozenset(("crash", "leave", "restart", "pause", "resume", "slow", "mute", "idle"))
CHANCES = ("loss", "duplicate", "reorder", "spike")
MAX_NODES = 4096


class ScheduleError(ValueError):
    """A schedule cannot be read or does not make sense."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fault of nodes or links."""

    at: float
    act: Act
    node: NodeId = -1
    sides: tuple[tuple[NodeId, ...], ...] = ()
    source: NodeId = msgspec.field(name="from", default=-1)
    to: NodeId = -1
    delay: float = 0
    factor: int = 1
    lasts: float = msgspec.field(name="for", default=0)
    """Undone after this long; 0: by another entry, or at the end of the faults."""
    copies: int = -1
    """Of a crash: in the middle of a broadcast, after so many copies; -1: between two events."""

    def __str__(self) -> str:
        match self.act:
            case "partition":
                return "partition " + " | ".join([*map(listed, self.sides), "the others"])
            case "one-way":
                return f"one-way cut from node {self.source} to node {self.to}"
            case "slow":
                much = f"{self.factor} times as slow" if self.factor > 1 else f"{self.delay:g} more"
                return f"slow links of node {self.node}, {much}"
            case "mute":
                asked = f" that come by node {self.to}" if self.to >= 0 else ""
                return f"node {self.node} answers no waves{asked}"
            case "idle":
                return f"node {self.node} changes no view"
            case "heal":
                return "heal"
        return f"{self.act} of node {self.node}"


class ApplicationStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An action of the application at a node."""

    at: float
    act: Deed
    node: NodeId
    topic: Topic = ""
    count: int = 1
    """Of a burst or batch: messages published at once."""
    lossy: bool = False
    """Of a subscription: it drops messages instead of holding publishers up."""

    def __str__(self) -> str:
        many = f" of {self.count}" if self.act in SEVERAL else ""
        return f"{self.act}{many} at node {self.node}"


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A whole schedule."""

    nodes: int
    about: str = ""
    unit: Literal["ms", "s"] = "ms"
    length: float = 0
    seed: int = 0
    answers: float = 0.0
    links: dict[str, float] = {}
    params: dict[str, Any] = {}
    topics: dict[Topic, tuple[NodeId, ...]] = {}
    later: tuple[NodeId, ...] = ()
    """Nodes that are not there at the beginning."""
    faults: tuple[Fault, ...] = msgspec.field(name="fault", default=())
    steps: tuple[ApplicationStep, ...] = msgspec.field(name="do", default=())

    @property
    def entries(self) -> tuple[Fault | ApplicationStep, ...]:
        """All entries, each of which can be dropped."""
        return (*self.faults, *self.steps)

    def with_entries(self, entries: tuple[Fault | ApplicationStep, ...]) -> Schedule:
        """The same schedule with these entries alone; it lasts as long."""
        return msgspec.structs.replace(
            self,
            faults=tuple(entry for entry in entries if isinstance(entry, Fault)),
            steps=tuple(entry for entry in entries if isinstance(entry, ApplicationStep)),
        )

    def members(self) -> dict[Topic, tuple[NodeId, ...]]:
        """Topic -> nodes that are subscribed from the start."""
        everyone = tuple(node for node in range(self.nodes) if node not in self.later)
        return self.topics or {"t": everyone}

    def time(self, value: float) -> Time:
        """A time of the schedule in units of the simulator."""
        return round(value * 1000 if self.unit == "s" else value)

    def seconds(self, value: float) -> float:
        """A time of the schedule in seconds, for real processes."""
        return value if self.unit == "s" else value / 1000

    def settings(self) -> Params:
        """The parameters of the network and the protocol."""
        chosen = {"network": "uniform", "low": 1, "high": 30, **self.params, "nodes": self.nodes}
        return Params().with_({**chosen, **self.links, "later": self.later})


# -- reading and writing ---------------------------------------------------------------------------


def read_schedule(path: Path) -> Schedule:
    """Read and check a schedule file; `ScheduleError` says in one line what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ScheduleError(f"cannot read {path}: {reason}") from error
    try:
        return checked(msgspec.convert(tomllib.loads(text), Schedule))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ScheduleError) as error:
        raise ScheduleError(f"{path}: {error}") from error


def schedule_text(schedule: Schedule) -> str:
    """A schedule as a file that `read_schedule` reads."""
    values = msgspec.to_builtins(schedule)
    nested = ("links", "params", "topics", "fault", "do")
    plain = {name: value for name, value in values.items() if name not in nested}
    lines = [f"{name} = {_toml(value)}" for name, value in plain.items()]
    for name in ("links", "params", "topics"):
        if values.get(name):
            lines += ["", f"[{name}]"]
            lines += [f"{_key(key)} = {_toml(value)}" for key, value in values[name].items()]
    for name in ("fault", "do"):
        for entry in sorted(values.get(name, ()), key=lambda entry: float(entry["at"])):
            lines += ["", f"[[{name}]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    bare = name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return name if bare else _toml(name)


def _toml(value: Any) -> str:
    """Numbers, plain text and lists of them are written alike in JSON and TOML."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()


def checked(schedule: Schedule) -> Schedule:
    """The schedule with its length filled in; `ScheduleError` if it makes no sense."""
    if not 1 <= schedule.nodes <= MAX_NODES:
        raise ScheduleError(f"nodes must be 1 to {MAX_NODES}, not {schedule.nodes}")
    if not 0 <= schedule.answers < 1:
        raise ScheduleError(f"answers is a share from 0 to below 1, not {schedule.answers}")
    if unknown := schedule.links.keys() - set(CHANCES):
        raise ScheduleError(f"links: no {', '.join(sorted(unknown))}; there are {CHANCES}")
    try:
        schedule.settings()
    except ParamError as error:
        raise ScheduleError(str(error)) from error
    for topic, nodes in schedule.topics.items():
        _check_nodes(schedule, f"topics.{topic}", nodes)
        if set(nodes) & set(schedule.later):
            raise ScheduleError(f"topics.{topic}: a node of `later` is not there yet")
    _check_nodes(schedule, "later", schedule.later)
    if len(schedule.later) == schedule.nodes:
        raise ScheduleError("later: at least one node must be there at the beginning")
    for number, fault in enumerate(schedule.faults, 1):
        _check_fault(schedule, f"fault {number} ({fault.act})", fault)
    for number, step in enumerate(schedule.steps, 1):
        _check_step(schedule, f"do {number} ({step.act})", step)
    ends = [entry.at + getattr(entry, "lasts", 0) for entry in schedule.entries]
    length = schedule.length or max(ends, default=0) + 1
    _check_times(schedule, "length", length)
    return msgspec.structs.replace(schedule, length=length)


def _check_times(schedule: Schedule, where: str, *times: float) -> None:
    for time in times:
        if not 0 <= schedule.time(time) <= MAX_TIME:
            raise ScheduleError(f"{where}: a time is 0 to {MAX_TIME} ms, not {time:g}")


def _check_nodes(schedule: Schedule, where: str, nodes: tuple[NodeId, ...]) -> None:
    for node in nodes:
        if not 0 <= node < schedule.nodes:
            raise ScheduleError(f"{where}: there is no node {node} among 0 to {schedule.nodes - 1}")
    if len(set(nodes)) < len(nodes):
        raise ScheduleError(f"{where}: a node is named twice")


def _check_fault(schedule: Schedule, where: str, fault: Fault) -> None:
    _check_times(schedule, where, fault.at, fault.lasts, fault.delay)
    named = tuple(node for side in fault.sides for node in side)
    named += (fault.node,) if fault.act in OF_ONE_NODE else ()
    named += (fault.source, fault.to) if fault.act == "one-way" else ()
    named += (fault.to,) if fault.act == "mute" and fault.to != -1 else ()
    _check_nodes(schedule, where, named)
    fits = {
        "for": fault.act in UNDONE_BY or not fault.lasts,
        "node": fault.act in OF_ONE_NODE or fault.node == -1,
        "sides": (fault.act == "partition") == any(fault.sides),
        "from": fault.act == "one-way" or fault.source == -1,
        "to": fault.act in ("one-way", "mute") or fault.to == -1,
        "delay": fault.act == "slow" or not fault.delay,
        "copies": fault.act == "crash" or fault.copies == -1,
        "factor": 1 <= fault.factor <= 1000 and (fault.act == "slow" or fault.factor == 1),
    }
    for name, fit in fits.items():
        if not fit:
            raise ScheduleError(f"{where}: `{name}` does not fit here")
    if fault.act == "slow" and fault.delay == 0 and fault.factor == 1:
        raise ScheduleError(f"{where}: say the delay or the factor")


def _check_step(schedule: Schedule, where: str, step: ApplicationStep) -> None:
    _check_times(schedule, where, step.at)
    _check_nodes(schedule, where, (step.node,))
    if not 1 <= step.count <= MAX_MESSAGES or (step.count > 1 and step.act not in SEVERAL):
        raise ScheduleError(f"{where}: `count` does not fit here")
    if step.lossy and step.act != "subscribe":
        raise ScheduleError(f"{where}: `lossy` does not fit here")
    if step.act in ("follow", "unfollow") and not step.topic:
        raise ScheduleError(f"{where}: say the pattern as `topic`")


def listed(nodes: Iterable[NodeId]) -> str:
    """ "0-3,7": runs of numbers joined."""
    parts: list[list[NodeId]] = []
    for node in sorted(nodes):
        if parts and parts[-1][-1] == node - 1:
            parts[-1].append(node)
        else:
            parts.append([node])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in parts)
