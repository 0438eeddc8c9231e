"""Schedules for real processes: drawn by a seed, made of sizes, or refused.

Here `length` is that of the load; of `links` only the loss is used, and `seed` and `params` are for
the simulator.  Each factor of a slow link counts as `FACTOR_S` more.  Nodes are numbered as they
were started; a process that was started again keeps its number, whatever its slot is.
"""

from __future__ import annotations

from itertools import count
from random import Random

from cubecast.chaos.schedule import Fault, Schedule, ScheduleError, checked

MAX_NODES = 64
"""The most processes that one machine is asked to run."""
FACTOR_S = 0.001
CALM_S = 10.0
"""Drawn faults end so long before the load does."""
DRAWN = ("crash", "pause", "blink", "leave", "slow", "one-way", "partition")
"""The faults that `draw` knows; a blink is a pause that is shorter than any suspicion."""
BEGIN_S = 3.0
REST_S = 1.0
"""A node that is back has no fault for this long."""


def runnable(schedule: Schedule) -> Schedule:
    """Return a checked schedule; raise if real processes cannot carry it out."""
    if schedule.nodes > MAX_NODES:
        raise ScheduleError(f"nodes must be 1 to {MAX_NODES} here, not {schedule.nodes}")
    if any(fault.act == "mute" for fault in schedule.faults):
        raise ScheduleError("act 'mute' is for simulated nodes: real ones answer waves")
    if any(fault.act == "idle" for fault in schedule.faults):
        raise ScheduleError("act 'idle' is for simulated nodes: real ones change views")
    return checked(schedule)


def delay_s(schedule: Schedule, fault: Fault) -> float:
    """The extra delay of packets on a slow link; there is no round trip to multiply here."""
    return schedule.seconds(fault.delay) + (fault.factor - 1) * FACTOR_S


def draw(
    nodes: int, seconds: float, every: float, seed: int, acts: tuple[str, ...] = ("crash", "pause")
) -> Schedule:
    """One fault every so many seconds; at least half of the nodes have none at any time."""
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
    """A partition into sides of these sizes for so many seconds, and the load after it."""
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
