"""Chaos: random schedules of faults under load, and the judgement of the runs.

A run has two phases.  *Safety*: the faults of a `Schedule` while applications publish, answer, come
and go, over links that lose, duplicate and reorder; the checkers of order hold all the time.
*Liveness*: all faults are over and links are reliable; within `liveness_bound` all nodes that are
up must agree on the members, take every publication and have nothing left to do.  Then every node
that is up publishes once more, to see that the cluster still works and not only rests.

A seed draws a schedule, and a schedule determines a run, so both replay it.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from cubecast.chaos.drawing import draw_schedule as draw_schedule
from cubecast.chaos.eventful import ingredients
from cubecast.chaos.plan import SchedulePlan, plan_of
from cubecast.chaos.schedule import ApplicationStep, Schedule
from cubecast.chaos.verdict import ChaosVerdict
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.crashes.convergence import liveness_bound, run_until, settle, unsettled
from cubecast.sim.crashes.mortal_world import LOOK_EVERY, MortalWorld
from cubecast.sim.faults import Faults
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import Mortality, answer_after, mortality
from cubecast.sim.values import judge, same_everywhere
from cubecast.topology import members_of
from cubecast.trace import Header, Property, Record, check

Population: TypeAlias = Callable[[Params], Mortality]
"""Makes, from the parameters of a run, the way its nodes live and die."""

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
"""Properties that hold in the middle of a run, too."""
PASSED_OVER = "jump, as a publisher died that had passed us over"
"""The mark of a jump that only runs with lossy subscriptions may have."""
LAST_TOPICS = 4
"""The most topics to which each node publishes at the end."""


def population(protocol: str) -> Population:
    """The nodes of a protocol by its name."""
    return lambda params: mortality(protocol, params)


# -- running ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class SimulatedVerdict(ChaosVerdict):
    """The outcome of one schedule in virtual time.

    Besides the properties of the checkers there are ``liveness`` (not converged within the bound),
    ``kept`` (something is left to do), ``raised`` (a process failed), ``values``
    (`cubecast.sim.values`) and ``mute-leader`` (a leader was called mute that was not idle then,
    nor just before).
    """

    marks: Counter[str]
    trace: list[Record] | None
    bound: Time
    last_fault: Time

    def header(self, protocol: str) -> Header:
        """The header of a file with the trace."""
        params = self.schedule.settings().as_json()
        return Header(scenario="chaos", protocol=protocol, seed=self.schedule.seed, params=params)


def run_schedule(
    schedule: Schedule, population: Population, *, keep_trace: bool = False, wire: bool = True
) -> SimulatedVerdict:
    """Carry out a schedule and judge it.

    With `wire` every message crosses the format of live nodes, where the protocol has one; without
    it a run takes two thirds of the time.
    """
    run = _Run(schedule, population, wire)
    try:
        run.perform()
    except Exception as error:  # any error of a process is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        run.fail("raised", f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return run.verdict(keep_trace)


class _Run:
    """One world, and the application that a schedule describes."""

    def __init__(self, schedule: Schedule, population: Population, wire: bool = False) -> None:
        self.schedule = schedule
        self.plan: SchedulePlan = plan_of(schedule)
        params = schedule.settings()
        mortals = population(params)
        planned = sum(step.count for step in schedule.steps)
        self.answers_left = planned
        self.bound = liveness_bound(params, mortals.recovery, 2 * planned + schedule.nodes)
        self.trace: list[Record] = []
        self.failures: dict[str, list[str]] = {}
        self.cut_short = 0
        self.world = MortalWorld(
            schedule.nodes,
            mortals.make,
            self._network(params),
            application=self,
            trace=self.trace,
            state_every=STATE_EVERY,
            consume_after=params.consume_after,
            pauses=tuple(self.plan.pauses),
            later=schedule.later,
            codec=mortals.codec() if wire and mortals.codec is not None else None,
        )

    def _was_idle(self, node: NodeId, at: Time) -> bool:
        """Whether a node was idle, or had so little time since that others may not have heard."""
        late = answer_after(self.schedule.settings())
        return any(one.node == node and one.start <= at < one.end + late for one in self.plan.idles)

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
            mutes=tuple(self.plan.mutes),
            idles=tuple(self.plan.idles),
            until=self.plan.length,
        )
        return Uniform(Random(f"chaos/{seed}/delays"), params.low, params.high, faults=faults)

    def fail(self, name: str, what: str) -> None:
        self.failures.setdefault(name, []).append(what)

    # -- phases ----------------------------------------------------------------------------------

    def perform(self) -> None:
        """Run both phases, and the last publications."""
        world = self.world
        for topic, members in self.schedule.members().items():
            world.establish(topic, members)
        for step in self.schedule.steps:
            world.post(self.schedule.time(step.at), self._step, step)
        for at, node, begins in self.plan.deaths:
            world.post(at, self._begin if begins else self._death, node)
        run_until(world, self.plan.length)
        if not settle(world, self.bound):
            why = unsettled(world)
            self.fail("liveness", f"not converged {self.bound} after the last fault: {why}")
            return
        for node in world.running():
            for topic in world.wanted(node)[:LAST_TOPICS]:
                world.publish(node, topic)
        if not settle(world, self.bound):
            why = unsettled(world)
            self.fail("liveness", f"the last publications did not get through: {why}")
            return
        for topic in sorted({one.topic for one in world.values.kept}):
            self._join_late(topic)

    def _join_late(self, topic: Topic) -> None:
        """Let a node join a topic that has a value, and check that it is handed the newest one."""
        world = self.world
        late = [node for node in world.running() if not world.matched(node, topic)][-2:]
        for node in late:
            if world.wants(node, topic):
                world.unsubscribe(node, topic)
        settled = settle(world, self.bound)
        kept = {node: world.keeper(node).kept(topic) for node in world.running()}
        begun = len(world.values.handed)
        for node in late:
            world.subscribe(node, topic)
        if not settled or not settle(world, self.bound):
            self.fail("liveness", f"a late subscription to {topic!r}: {unsettled(world)}")
            return
        handed = {one.node: one.stamp for one in world.values.handed[begun:] if one.topic == topic}
        for node in late:
            if node not in handed:
                self.fail("values", f"node {node} joined {topic!r} and was handed nothing")
        for what in same_everywhere(topic, kept, handed):
            self.fail("values", what)

    # -- what happens ----------------------------------------------------------------------------

    def _begin(self, node: NodeId, _: None, now: Time) -> None:
        """Begin a process; if the one before is still leaving, wait until it has left."""
        if node in self.world.leaving:
            self.world.post(now + LOOK_EVERY, self._begin, node)
        elif not self.world.is_up(node):
            self.world.restart(node)

    def _death(self, node: NodeId, _: None, now: Time) -> None:
        """End a process, or let it leave; perhaps in the middle of a broadcast of its own.

        A leave takes time, so a later action may find no process at the node, or another one.
        """
        world = self.world
        if not world.is_up(node):
            return
        if (now, node) in self.plan.leaves:
            if node in world.leaving:
                return
            if hasattr(world.processes[node], "depart"):
                world.leave(node)
            else:
                world.crash(node)  # the protocol has no leave
            return
        copies = self.plan.fuses.get((now, node))
        if copies is not None:
            world.crash_after(node, copies)
            world.publish(node, next(iter(self.schedule.members())))
            self.cut_short += not world.is_up(node)
        if world.is_up(node):
            world.crash(node)

    def _step(self, step: ApplicationStep, _: None, now: Time) -> None:
        world = self.world
        if not world.is_up(step.node) or step.node in world.leaving:
            return
        awake = world.awake(step.node, now)
        if awake > now:
            world.post(awake, self._step, step)
            return
        self._do(step, step.topic or next(iter(self.schedule.members())))

    def _do(self, step: ApplicationStep, topic: Topic) -> None:
        world, node = self.world, step.node
        match step.act:
            case "publish" | "burst":
                for _number in range(step.count):
                    world.publish(node, topic)
            case "batch":
                world.publish_batch(node, topic, step.count)
            case "retain" | "remove":
                world.publish_value(node, topic, step.act == "remove")
            case "subscribe" if not world.wants(node, topic):
                world.subscribe(node, topic, step.lossy)
            case "unsubscribe" if world.wants(node, topic) and not world.matched(node, topic):
                world.unsubscribe(node, topic)
            case "follow" if not world.follows(node, topic):
                world.follow(node, topic)
            case "unfollow" if world.follows(node, topic):
                world.unfollow(node, topic)

    def on_deliver(self, world: Any, node: NodeId, topic: Topic, ident: int) -> None:
        """Answer some messages, chosen by message and node, not by the order of deliveries."""
        share = self.schedule.answers
        if not share or not self.answers_left or world.now >= self.plan.length:
            return
        if node in world.leaving:
            return
        if crc32(f"{self.schedule.seed}/{node}/{ident}".encode()) < share * 2**32:
            self.answers_left -= 1
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: Any, node: NodeId, topic: Topic) -> None:
        """Do nothing: steps wait for times only."""

    # -- judgement -------------------------------------------------------------------------------

    def verdict(self, keep_trace: bool) -> SimulatedVerdict:
        """Run the checkers on the trace, and count."""
        if "raised" in self.failures:
            report = check(self.trace, AT_ANY_TIME)
        else:
            self.world.record_state()
            self._look_for_remains()
            report = check(self.trace)
        for violation in report.violations:
            self.fail(violation.property, str(violation))
        for what in judge(self.trace, self.world.values):
            self.fail("values", what)
        excluded = exclusions(self.trace, self.schedule.nodes)
        counts = self.plan.counts
        lossy = any(step.lossy for step in self.schedule.steps)
        if self.world.marks[PASSED_OVER] and not lossy:
            self.fail("loss-reasons", "a jump over messages as if suspended, but no node is lossy")
        for at, node in self.world.called_mute:
            if not self._was_idle(node, at):
                self.fail("mute-leader", f"node {node} was called mute at {at}, not idle")
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
            "mutes": float(counts["mute"]),
            "idles": float(counts["idle"]),
            "slow": float(counts["slow"]),
            "leaves": float(counts["leave"]),
            "cut_short": float(self.cut_short),
            "slots_handed_over": float(self.world.handed_over),
            **ingredients(self.schedule, self.trace),
            **{name: float(count) for name, count in self.world.values.counts().items()},
            "exclusions": float(len(excluded)),
            "late_exclusions": float(len(late_exclusions(self.trace, self.plan.length))),
            "recovery_time": float(recovery_time(self.trace, self.plan.last_fault)),
            "publications": float(report.publications),
            "deliveries": float(report.deliveries),
            "nodes": float(self.schedule.nodes),
        }
        return SimulatedVerdict(
            self.schedule,
            report,
            self.failures,
            metrics,
            self.world.marks,
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
    """(view, node): nodes that were in a view of some node and not in its next."""
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

    They break nothing.  A few are due to exclusions under way when the faults ended.
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
    """From the last fault to the last view, or to the last word on messages published until then.

    The word on a message is a delivery, gap or discard anywhere; that on a subscription that was
    asked for until then is its ``join``.
    """
    early: set[tuple[str, Topic, Any]] = set()
    last = last_fault
    for record in trace:
        about = "message", record.topic, record.id
        if record.kind in ("subscribe", "join"):
            about = "subscription", record.topic, record.node
        if record.kind in ("publish", "subscribe"):
            if record.time <= last_fault:
                early.add(about)
            else:
                early.discard(about)
        elif record.time > last and (
            record.kind == "view"
            or (record.kind in ("deliver", "gap", "discard", "join") and about in early)
        ):
            last = record.time
    return last - last_fault
