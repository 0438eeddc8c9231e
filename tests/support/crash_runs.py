"""Random runs of VCube-PB under its own assumptions ([B] 3), and its own properties ([B] 4).

The seed draws everything: the subscribers, publishers from outside, times, answers, the nodes that
crash, when or after how many copies of a broadcast, and how soon each of the others is told.
Links reorder but lose nothing, crashes are for good, and detection is perfect.  The subscribers
are there from the start.

[B] 4, with "correct" for a process that never crashes:

validity   a correct process delivers what it publishes;
integrity  no process, crashed or not, delivers a message twice, or one that was not published;
agreement  what one correct process delivers, all correct subscribers of the topic deliver;
order      no process, crashed or not, delivers a message after one that it precedes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from cubecast.protocol.paper.vcube_pb import Top, VCubePB
from cubecast.protocol.port import NodeId, Port, Process, Time, Topic
from cubecast.sim.crashes.crash_stop import CrashStopWorld, detection_range
from cubecast.sim.crashes.vcube_top import VCubeTop
from cubecast.sim.networks import Uniform
from cubecast.sim.world import HorizonReached, World
from cubecast.topology import dimension_for
from cubecast.trace import MessageId, Property, Record, check

LONGEST_WAY: Time = 30
ROUND: Time = 2 * LONGEST_WAY
BEGIN: Time = 2 * ROUND
"""Publishers outside a group know its members by then."""
BURST: Time = 100
"""About half of the messages come this soon after the beginning, and most crashes."""
ACTIVE: Time = 2000
HORIZON: Time = 100_000
SAFETY: tuple[Property, ...] = ("no-creation", "no-duplication", "fifo", "causal-order")

MakePB = Callable[[NodeId, Port, int, Top], Process]


def faithful(node: NodeId, port: Port, nodes: int, top: Top) -> Process:
    """VCube-PB as this package has it."""
    return VCubePB(node, port, nodes=nodes, top=top)


@dataclass(frozen=True, slots=True)
class CrashRun:
    """What came of one run."""

    seed: int
    nodes: int
    records: Sequence[Record]
    crashed: frozenset[NodeId]
    in_mid_broadcast: int
    """How many crashed while they sent a broadcast, when none or some of its copies were gone."""
    at_rest: bool
    held: int
    """Messages that correct processes hold back for ever."""

    def broken(self) -> list[str]:
        """What breaks the properties, one line each; none if all is well."""
        report = check(self.records, SAFETY)
        found = [str(violation) for violation in report.violations]
        found += _disagreements(self.records, self.crashed)
        if not self.at_rest:
            found.append("it did not come to rest")
        return found


def _disagreements(records: Sequence[Record], crashed: frozenset[NodeId]) -> list[str]:
    """Validity and agreement, from what was published, joined and delivered."""
    members: dict[Topic, set[NodeId]] = {}
    published: dict[tuple[Topic, MessageId], NodeId] = {}
    delivered: dict[tuple[Topic, MessageId], set[NodeId]] = {}
    for record in records:
        if record.kind == "join" and record.node not in crashed:
            members.setdefault(record.topic, set()).add(record.node)
        elif record.kind == "publish" and record.id is not None:
            published[record.topic, record.id] = record.node
        elif record.kind == "deliver" and record.id is not None and record.node not in crashed:
            delivered.setdefault((record.topic, record.id), set()).add(record.node)
    found = []
    for (topic, ident), publisher in published.items():
        where = delivered.get((topic, ident), set())
        if publisher not in crashed and publisher not in where:
            found.append(f"validity: node {publisher} never delivers its own message {ident!r}")
        missing = members.get(topic, set()) - where if where else set()
        if missing:
            found.append(
                f"agreement: message {ident!r} of node {publisher} on {topic!r} is delivered at "
                f"{sorted(where)} and never at {sorted(missing)}"
            )
    return found


class Chain:
    """Some of what is delivered is answered at once, which makes causal chains."""

    def __init__(self, rng: Random, answers: int) -> None:
        self._rng = rng
        self._answers = answers

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        if self._rng.random() < 0.15 and self._answers:
            self._answers -= 1
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """No node joins."""


def crash_run(seed: int, make: MakePB = faithful) -> CrashRun:
    """One run; the same seed gives the same run."""
    rng = Random(f"crash-run/{seed}")
    nodes = rng.choice([2, 3, 4, 4, 5, 6, 8, 8, 8, 13, 16, 16])
    top = VCubeTop(ROUND)
    shortest, longest = detection_range(LONGEST_WAY, dimension_for(nodes))
    detect = (shortest, rng.choice([shortest, 3 * shortest, longest]))
    trace: list[Record] = []
    world = CrashStopWorld(
        nodes,
        lambda node, port: make(node, port, nodes, top),
        Uniform(Random(f"crash-run/{seed}/delays"), 1, LONGEST_WAY),
        rng=rng,
        detect=detect,
        trace=trace,
    )
    _plan_messages(world, nodes, rng)
    crashed_by_plan = _plan_crashes(world, nodes, rng)
    at_rest = True
    try:
        world.run(until=HORIZON)
    except HorizonReached:
        at_rest = False
    crashed = frozenset(world.down)
    held = sum(process.load().held for process in world.processes)
    mid = len(crashed - crashed_by_plan)
    return CrashRun(seed, nodes, trace, crashed, mid, at_rest, held)


def _plan_messages(world: CrashStopWorld, nodes: int, rng: Random) -> None:
    topics: list[Topic] = ["t"] if rng.random() < 0.8 else ["t", "u"]
    for topic in topics:
        everybody = rng.random() < 0.3
        members = rng.sample(range(nodes), nodes if everybody else rng.randint(1, nodes))
        world.establish(topic, sorted(members))
        for node in range(nodes):
            if node not in members:
                world.register(node, topic)
    messages = rng.randint(3, 40)
    world.application = Chain(rng, answers=messages)

    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        if world.is_up(node):
            world.publish(node, topic)

    for _ in range(messages):
        at = BEGIN + rng.randrange(ACTIVE if rng.random() < 0.5 else BURST)
        world.post(at, publish, rng.randrange(nodes), rng.choice(topics))


def _plan_crashes(world: CrashStopWorld, nodes: int, rng: Random) -> frozenset[NodeId]:
    """Plan crashes at a time (of the nodes returned), and others while a broadcast is sent."""

    def crash(node: NodeId, _: None, now: Time) -> None:
        world.crash(node)

    def light_fuse(node: NodeId, copies: int, now: Time) -> None:
        world.crash_after(node, copies)

    victims = rng.sample(range(nodes), rng.choice([0, *range(1, nodes), 1, 1, 2 % nodes]))
    spread = rng.choice([50, 150, 300, ACTIVE])
    start = BEGIN + rng.randrange(BURST if rng.random() < 0.7 else ACTIVE - spread + 1)
    by_plan = set()
    for node in victims:
        at = start + rng.randrange(spread)
        if rng.random() < 0.5:
            by_plan.add(node)
            world.post(at, crash, node)
        else:
            world.post(at, light_fuse, node, rng.randrange(4))
    return frozenset(by_plan)
