"""Chaos: random schedules of faults under load, and the judgement of what came of them.

A run has two phases.  *Safety*: the faults of a `Schedule` while applications publish, answer, come
and go, over links that lose, duplicate and reorder; the checkers of order hold all the time.
*Liveness*: all faults are over and links are reliable; within `liveness_bound` all nodes that are
up must agree on who is there, take every publication and have nothing left to do.  Then every node
that is up publishes once more, to see that the cluster still works and not only rests.

A seed draws a schedule, and a schedule determines a run, so both replay it.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.faults import Faults
from cubecast.sim.lives import MortalWorld
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import Mortality, mortality
from cubecast.sim.schedule import Fault, Plan, Schedule, Step, checked, plan_of
from cubecast.sim.settling import liveness_bound, run_until, settle, unsettled
from cubecast.topology import members_of
from cubecast.trace import Header, Property, Record, Report, check

Population: TypeAlias = Callable[[Params], Mortality]
"""Says for the parameters of a run how its nodes live and die."""

STATE_EVERY: Time = 500
AT_ANY_TIME: tuple[Property, ...] = (
    "no-creation",
    "no-duplication",
    "fifo",
    "causal-order",
    "membership",
    "bounded-state",
    "loss-reports",
)
"""What holds in the middle of a run, too."""
PASSED_OVER = "jump, as a publisher died that had passed us over"
"""No schedule has lossy subscribers, so nobody is passed over."""


def population(protocol: str) -> Population:
    """The nodes of a protocol by its name."""
    return lambda params: mortality(protocol, params)


# -- drawing ---------------------------------------------------------------------------------------

WEIGHTS = {"crash": 5, "pause": 3, "partition": 2, "one-way": 2, "slow": 1}
SHORT = (30, 400)
MIDDLE = (400, 1500)
LONG = (1500, 6000)
"""Faults that nobody need notice, that end while somebody does, and that everybody must."""
SPANS = (SHORT, MIDDLE, LONG)


def draw_schedule(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed; `nodes` sets their number, which is drawn otherwise."""
    rng = Random(f"chaos/{seed}")
    drawn = _draw_nodes(rng)
    size = drawn if nodes is None else nodes
    faults = _draw_faults(rng, size)
    ends = [fault.at + fault.lasts for fault in faults]
    length = max([*ends, 2000.0]) + rng.randint(1, 500)
    topics = _draw_topics(rng, size)
    steps = _draw_steps(rng, size, topics, int(length))
    steps += _draw_words(rng, topics, faults)
    chances = {
        "loss": rng.choice([0.0, 0.0, 0.02, 0.1]),
        "duplicate": rng.choice([0.0, 0.1]),
        "reorder": rng.choice([0.0, 0.2]),
        "spike": rng.choice([0.0, 0.0, 0.01]),
    }
    params = {
        "window": rng.choice([1, 2, 4, 64]),
        "ack_delay": rng.choice([0, 5, 20]),
        "stable_delay": rng.choice([0, 50, 300]),
        "resend_after": rng.choice([100, 300]),
        "consume_after": rng.choice([0, 0, 0, 150]),
    }
    return checked(
        Schedule(
            nodes=size,
            about=f"chaos of seed {seed}",
            length=length,
            seed=seed,
            answers=round(rng.choice([0.0, 0.3, 0.6, 0.9]) / max(len(topics["t"]), 1), 3),
            links={name: chance for name, chance in chances.items() if chance},
            params=params,
            topics=topics,
            faults=tuple(faults),
            steps=tuple(sorted(steps, key=lambda step: step.at)),
        )
    )


def _draw_nodes(rng: Random) -> int:
    """80 % up to 8, 18 % up to 32, 2 % above."""
    share = rng.random()
    if share < 0.8:
        return rng.choice((2, 3, 3, 4, 4, 5, 6, 7, 8, 8))
    return rng.randint(9, 32) if share < 0.98 else rng.randint(33, 64)


def _draw_faults(rng: Random, nodes: int) -> list[Fault]:
    """Up to a handful; in one schedule of ten nothing lasts long enough to be noticed.

    One node, the anchor, never crashes, so that there is something to return to.
    """
    calm = rng.random() < 0.1
    number = rng.choice((0, 1, 1, 2, 3, 4, 5, 6)) if nodes <= 8 else rng.randint(1, 10)
    anchor = rng.randrange(nodes)
    faults: list[Fault] = []
    for _ in range(number):
        at = rng.randint(100, 5000)
        kind = rng.choice(("pause", "slow")) if calm else _weighted(rng)
        faults += _draw_fault(rng, kind, at, nodes, anchor, SHORT if calm else None)
    return sorted(faults, key=lambda fault: fault.at)


def _weighted(rng: Random) -> str:
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def _draw_fault(
    rng: Random, kind: str, at: int, nodes: int, anchor: NodeId, span: tuple[int, int] | None
) -> list[Fault]:
    lasts = rng.randint(*(span or rng.choice(SPANS)))
    node = rng.randrange(nodes)
    match kind:
        case "crash":
            mortal = [other for other in range(nodes) if other != anchor]
            many = 1 if rng.random() < 0.75 else rng.randint(1, len(mortal))
            return [_draw_crash(rng, at, other) for other in rng.sample(mortal, many)]
        case "pause":
            return [Fault(at, "pause", node, lasts=lasts)]
        case "slow":
            return [Fault(at, "slow", node, factor=rng.choice((2, 5, 20)), lasts=lasts)]
        case "one-way" if nodes > 1:
            source, to = rng.sample(range(nodes), 2)
            return [Fault(at, "one-way", source=source, to=to, lasts=lasts)]
        case "partition" if nodes > 1:
            side = sorted(rng.sample(range(nodes), rng.randint(1, nodes - 1)))
            return [Fault(at, "partition", sides=(tuple(side),), lasts=lasts)]
    return []


def _draw_crash(rng: Random, at: int, node: NodeId) -> Fault:
    """Most come back, some at once and some when everyone has got used to their absence."""
    together = at + rng.choice((0, 0, rng.randint(0, 200)))
    if rng.random() < 0.25:
        return Fault(together, "crash", node)
    return Fault(together, "crash", node, lasts=rng.randint(*rng.choice(SPANS)))


def _draw_topics(rng: Random, nodes: int) -> dict[Topic, tuple[NodeId, ...]]:
    topics: dict[Topic, tuple[NodeId, ...]] = {}
    for topic in ("t",) if rng.random() < 0.8 else ("t", "u"):
        share = rng.choice((0.4, 0.7, 1.0)) if nodes <= 8 else rng.choice((0.2, 0.5))
        topics[topic] = tuple(node for node in range(nodes) if rng.random() < share)
    return topics


def _draw_steps(
    rng: Random, nodes: int, topics: dict[Topic, tuple[NodeId, ...]], length: int
) -> list[Step]:
    steps = []
    names = list(topics)
    for _ in range(rng.randint(5, 60 if nodes <= 8 else 40)):
        at, node, topic = rng.randrange(length), rng.randrange(nodes), rng.choice(names)
        if rng.random() < 0.05:
            steps.append(Step(at, "burst", node, topic, rng.randint(5, 20)))
        else:
            steps.append(Step(at, "publish", node, topic))
    inside = {(node, topic) for topic, members in topics.items() for node in members}
    for at in sorted(rng.randrange(length) for _ in range(rng.choice((0, 0, 2, 4, 8)))):
        who = (rng.randrange(nodes), rng.choice(names))
        steps.append(Step(at, "unsubscribe" if who in inside else "subscribe", *who))
        inside ^= {who}
    return steps


def _draw_words(
    rng: Random, topics: dict[Topic, tuple[NodeId, ...]], faults: list[Fault]
) -> list[Step]:
    """Half of the faults meet somebody who publishes.

    Who crashes has just done so: some have it and others do not.  Who is paused does so as it wakes
    up, and may have been taken for dead.  Behind a cut, the first of a side does so to the end.
    """
    steps = []
    for fault in faults:
        topic = rng.choice(list(topics))
        if rng.random() < 0.5:
            continue
        match fault.act:
            case "crash":
                at = max(0.0, fault.at - rng.randint(0, 60))
                steps.append(Step(at, "burst", fault.node, topic, rng.randint(1, 6)))
            case "pause":
                steps.append(Step(fault.at + 1, "burst", fault.node, topic, rng.randint(1, 6)))
            case "partition" | "one-way":
                node = fault.sides[0][0] if fault.sides else fault.source
                every = rng.choice((15, 40, 100))
                times = range(int(fault.at), int(fault.at + min(fault.lasts, 15 * every)), every)
                steps += [Step(at, "publish", node, topic) for at in times]
    return steps


# -- running ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verdict:
    """What came of one schedule."""

    schedule: Schedule
    metrics: dict[str, float]
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Property -> what was found; besides those of the checkers: ``liveness`` (not converged within
    the bound), ``kept`` (something is left to do), ``raised`` (a process failed)."""
    marks: Counter[str] = field(default_factory=Counter)
    report: Report | None = None
    trace: list[Record] | None = None
    bound: Time = 0
    last_fault: Time = 0

    @property
    def ok(self) -> bool:
        return not self.failures

    def header(self, protocol: str) -> Header:
        """For a file with the trace."""
        params = self.schedule.settings().as_json()
        return Header(scenario="chaos", protocol=protocol, seed=self.schedule.seed, params=params)


def run_schedule(
    schedule: Schedule, population: Population, *, keep_trace: bool = False, wire: bool = True
) -> Verdict:
    """Carry out a schedule and judge it.

    With `wire` every message crosses the format of live nodes, where the protocol has one; without
    it a run takes two thirds of the time.
    """
    run = _Run(schedule, population, wire)
    try:
        run.perform()
    except Exception as error:  # whatever a process raises is a finding, not an accident
        where = traceback.extract_tb(error.__traceback__)[-1]
        run.fail("raised", f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return run.verdict(keep_trace)


class _Run:
    """One world, and the application that a schedule describes."""

    def __init__(self, schedule: Schedule, population: Population, wire: bool = False) -> None:
        self.schedule = schedule
        self.plan: Plan = plan_of(schedule)
        params = schedule.settings()
        mortals = population(params)
        planned = sum(step.count for step in schedule.steps)
        self.answers_left = planned
        self.bound = liveness_bound(params, mortals.recovery, 2 * planned + schedule.nodes)
        self.trace: list[Record] = []
        self.failures: dict[str, list[str]] = {}
        self.world = MortalWorld(
            schedule.nodes,
            mortals.make,
            self._network(params),
            application=self,
            trace=self.trace,
            state_every=STATE_EVERY,
            consume_after=params.consume_after,
            pauses=tuple(self.plan.pauses),
            codec=mortals.codec() if wire and mortals.codec is not None else None,
        )

    def _network(self, params: Params) -> Uniform:
        seed = self.schedule.seed
        faults = Faults(
            Random(f"chaos/{seed}/faults"),
            loss=params.loss,
            duplicate=params.duplicate,
            reorder=params.reorder,
            reorder_by=2 * params.round_trip(),
            spike=params.spike,
            spike_by=20 * params.round_trip(),
            partitions=tuple(self.plan.cuts),
            slows=tuple(self.plan.slows),
            until=self.plan.length,
        )
        return Uniform(Random(f"chaos/{seed}/delays"), params.low, params.high, faults=faults)

    def fail(self, name: str, what: str) -> None:
        self.failures.setdefault(name, []).append(what)

    # -- phases ----------------------------------------------------------------------------------

    def perform(self) -> None:
        """Both phases, and the last publications."""
        world = self.world
        for topic, members in self.schedule.members().items():
            world.establish(topic, members)
        for step in self.schedule.steps:
            world.post(self.schedule.time(step.at), self._step, step)
        for at, node, begins in self.plan.deaths:
            world.post(at, self._death, node, begins)
        run_until(world, self.plan.length)
        if not settle(world, self.bound):
            why = unsettled(world)
            self.fail("liveness", f"not converged {self.bound} after the last fault: {why}")
            return
        for node in world.running():
            for topic in self.schedule.members():
                if world.wants(node, topic):
                    world.publish(node, topic)
        if not settle(world, self.bound):
            why = unsettled(world)
            self.fail("liveness", f"the last publications did not get through: {why}")

    # -- what happens ----------------------------------------------------------------------------

    def _death(self, node: NodeId, begins: bool, now: Time) -> None:
        if begins:
            self.world.restart(node)
        else:
            self.world.crash(node)

    def _step(self, step: Step, _: None, now: Time) -> None:
        world = self.world
        if not world.is_up(step.node):
            return
        awake = world.awake(step.node, now)
        if awake > now:
            world.post(awake, self._step, step)
            return
        topic = step.topic or next(iter(self.schedule.members()))
        match step.act:
            case "publish" | "burst":
                for _number in range(step.count):
                    world.publish(step.node, topic)
            case "subscribe" if not world.wants(step.node, topic):
                world.subscribe(step.node, topic)
            case "unsubscribe" if world.wants(step.node, topic):
                world.unsubscribe(step.node, topic)

    def on_deliver(self, world: Any, node: NodeId, topic: Topic, ident: int) -> None:
        """Answer some, by what the message and the node are and not by who was served first."""
        share = self.schedule.answers
        if not share or not self.answers_left or world.now >= self.plan.length:
            return
        if crc32(f"{self.schedule.seed}/{node}/{ident}".encode()) < share * 2**32:
            self.answers_left -= 1
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: Any, node: NodeId, topic: Topic) -> None:
        """Steps wait for times only."""

    # -- judgement -------------------------------------------------------------------------------

    def verdict(self, keep_trace: bool) -> Verdict:
        """Let the checkers see the trace, and count."""
        if "raised" in self.failures:
            report = check(self.trace, AT_ANY_TIME)
        else:
            self.world.record_state()
            self._look_for_remains()
            report = check(self.trace)
        for violation in report.violations:
            self.fail(violation.property, str(violation))
        excluded = exclusions(self.trace, self.schedule.nodes)
        counts = self.plan.counts
        if self.world.marks[PASSED_OVER]:
            self.fail("loss-reasons", "a jump over what nobody had gone on without us for")
        metrics = {
            "violations": float(sum(map(len, self.failures.values()))),
            "gaps": float(report.gaps),
            "discards": float(report.discards),
            "needless": float(report.needless),
            "crashes": float(counts["crash"]),
            "restarts": float(counts["restart"]),
            "pauses": float(counts["pause"]),
            "partitions": float(counts["partition"]),
            "one_way": float(counts["one-way"]),
            "slow": float(counts["slow"]),
            "exclusions": float(len(excluded)),
            "late_exclusions": float(len(late_exclusions(self.trace, self.plan.length))),
            "recovery_time": float(recovery_time(self.trace, self.plan.last_fault)),
            "publications": float(report.publications),
            "deliveries": float(report.deliveries),
            "nodes": float(self.schedule.nodes),
        }
        return Verdict(
            self.schedule,
            metrics,
            self.failures,
            self.world.marks,
            report,
            self.trace if keep_trace else None,
            self.bound,
            self.plan.last_fault,
        )

    def _look_for_remains(self) -> None:
        world = self.world
        if world.unsent():
            self.fail("kept", f"{world.unsent()} publications were never taken")
        for node in world.running():
            held, retained = world.processes[node].load()[:2]
            if held or retained:
                self.fail("kept", f"node {node} holds {held} and retains {retained} in the end")


def exclusions(trace: list[Record], nodes: int) -> set[tuple[int, int]]:
    """(view, node): who was in a view of somebody and not in its next."""
    last: dict[NodeId, int] = dict.fromkeys(range(nodes), (1 << nodes) - 1)
    found: set[tuple[int, int]] = set()
    for record in trace:
        if record.kind == "restart":
            last[record.node] = 0
        elif record.kind == "view":
            gone = last.get(record.node, 0) & ~record.members
            found |= {(record.seq, node) for node in range(nodes) if gone >> node & 1}
            last[record.node] = record.members
    return found


def late_exclusions(trace: list[Record], calm: Time) -> set[tuple[int, int]]:
    """(view, node): exclusions of nodes that are up, after all faults are over.

    They break nothing.  A few are due to what was going on when the faults ended.
    """
    last: dict[NodeId, int] = {}
    up = 0
    found: set[tuple[int, int]] = set()
    for record in trace:
        bit = 1 << record.node
        if record.kind in ("crash", "restart"):
            up = up & ~bit if record.kind == "crash" else up | bit
            last[record.node] = 0
        elif record.kind == "view":
            up |= bit
            gone = last.get(record.node, 0) & up & ~record.members
            last[record.node] = record.members
            if record.time > calm:
                found |= {(record.seq, node) for node in members_of(gone)}
    return found


def recovery_time(trace: list[Record], last_fault: Time) -> Time:
    """From the last fault to the last view, or to the last word on what was published until then.

    The word on a message is a delivery, gap or discard anywhere.
    """
    early: set[tuple[Topic, Any]] = set()
    last = last_fault
    for record in trace:
        if record.kind == "publish" and record.time <= last_fault:
            early.add((record.topic, record.id))
        elif record.time > last and (
            record.kind == "view"
            or (
                record.kind in ("deliver", "gap", "discard", "join")
                and (record.kind == "join" or (record.topic, record.id) in early)
            )
        ):
            last = record.time
    return last - last_fault
