"""Long life: a cluster that runs for a year, and the tables it keeps at the end of each day.

Theory of operation.  Time is slow motion: a unit is ten seconds, a hop takes 100 to 200 s, and all
delays of the protocol are in proportion to a hop, as always in the simulator.  So a day is 216
round trips and 54 rounds of failure detection, and a year of 64 nodes takes minutes: quiet time
costs little but is not left out.  What a node keeps depends on what happened to it, not on how long
a hop takes.

Events fill the first half of a day.  Nodes crash and begin again, some before any node noticed;
nodes leave and come back as newcomers; once a week the cluster parts for hours.  Long-lived topics
get messages from publishers that change daily, and subscribers for a few hours.  Requests with a
``reply/<id>`` topic of their own come all day; two nodes follow patterns.  Links lose messages.

At the end of a day every fault is over, every node is back, the subscriptions are those of the
first morning, and the world has settled.  The live topics and nodes are then the same every day, so
the tables must be, too.  `DayEnd.tables` counts them by `cubecast.sim.census`, table by table.

A process that ends drops what it kept too long, and a node that comes back begins another life.  So
node 0, the *eldest*, lives one life through all days, and some other *elders* are excluded and come
back, but never end.  They are counted by themselves as well: a table that grows with time alone
grows in the eldest, one that is carried from life to life in the others.  Single days vary by their
events; the median of many days hardly does, so medians of early and late days are compared
(`Chronicle.grown`).

A run is a function of its `LifePlan`.  The trace of all applications is judged at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median
from typing import Any, cast

from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Who, genesis
from cubecast.protocol.port import MemberPort, Message, NodeId, Port, Process, Time, Topic
from cubecast.sim.census import Tables, census
from cubecast.sim.crashes.convergence import liveness_bound, run_until, settle, unsettled
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import LIVES_APART, NODES_APART, Mortality, recovery_of
from cubecast.trace import Record, Report, check

SECONDS: Time = 10
"""In one unit of time."""
HOUR: Time = 3600 // SECONDS
DAY: Time = 24 * HOUR
EVENTS_UNTIL: Time = 12 * HOUR
WEEK = 7
REPLY = "reply/"


FORGET_AFTER: Time = 2 * HOUR
"""A topic that no node here uses is forgotten by the end of its day."""
ABSENT_FOR: Time = DAY
"""How long an excluded node is looked for, and history is kept for it."""


PASSING = (
    "Answer.", "Change.", "Final.", "Gathering.", "Install.", "Listing.", "Question.",
    "Waves._gatherings",
)  # fmt: skip
"""Tables of messages and waves: how many are under way at midnight is chance, and the last view's
message is as large as the state that the last node brought along.  They count for the bound."""
CACHES = ("Peer.sent", "StreamTable._trees")
"""Memories of a fixed size (`TESTS_REMEMBERED` a peer, `REMEMBERED_TREES` a topic): how full they
are is chance.  They count for the bound, too."""

PER_NODE = 64
PER_MEMBER = 16
PER_TOPIC = 16
PER_STREAM = 6
"""Entries of all tables that a node keeps: for itself, for each member of the view, for each topic,
and for each topic and each member."""


class LongLifeError(AssertionError):
    """A day did not come to an end: some node still waits."""


@dataclass(frozen=True, slots=True)
class LifePlan:
    """The parameters of a life; all chance comes from `seed`."""

    nodes: int = 64
    days: int = 365
    seed: int = 0
    topics: int = 6
    subscribers: int = 12
    """Of each long-lived topic, at the end of each day."""
    publishers: int = 3
    """Of each long-lived topic, others each day."""
    messages: int = 4
    """Of each of these publishers, a day."""
    visitors: int = 4
    """Nodes a day that subscribe to a topic for some hours."""
    replies: int = 12
    """Requests a day, each with a topic of its own."""
    patterns: tuple[str, ...] = ("reply/#", "#")
    """Each is followed by a node of its own."""
    crashes: int = 2
    leaves: int = 1
    elders: int = 3
    """Nodes that neither crash nor leave, besides node 0: the next ones."""
    loss: float = 0.005
    """Of each message."""
    check: bool = True
    """Whether the trace is kept and judged."""

    def bound(self) -> int:
        """Entries that one node may keep at the end of a day (docs/guarantees.md, "Bounds").

        Per member, per topic that lives here, and per topic and member: its stream, and what is
        known of it.  At most all topics live at one node: the one that follows ``#``.
        """
        members, topics = self.nodes, self.topics + self.replies
        return PER_NODE + PER_MEMBER * members + topics * (PER_TOPIC + PER_STREAM * members)


@dataclass(frozen=True, slots=True)
class DayEnd:
    """The tables of all nodes at the end of a day."""

    day: int
    tables: Tables
    """Of all nodes together."""
    eldest: Tables
    """Of node 0, which lives one life."""
    elders: Tables
    """Of the other elders together, which come back and never end."""
    most: int
    """Entries at the node that keeps the most."""
    topics: int
    """Topics that live: topics with a subscriber."""

    @property
    def entries(self) -> int:
        return self.tables.total()


@dataclass(slots=True)
class Chronicle:
    """The outcome of a life."""

    plan: LifePlan
    days: list[DayEnd] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    report: Report | None = None

    def grown(
        self, window: int, warm_up: int, per_node: float, per_elder: float
    ) -> dict[str, tuple[float, float]]:
        """Tables that grew from the first days after a warm-up to the last: the medians of both.

        Growth of a table by up to `per_node` entries per node, or `per_elder` per elder, is chance.
        """
        days, plan = self.days[warm_up:], self.plan
        groups = {
            "": ([day.tables for day in days], per_node * plan.nodes),
            " of the eldest": ([day.eldest for day in days], per_elder),
            " of elders": ([day.elders for day in days], per_elder * plan.elders),
        }
        return {
            f"{name}{whose}": medians
            for whose, (tables, allowed) in groups.items()
            for name, medians in _grown(tables[:window], tables[-window:], allowed).items()
        }


def _grown(
    first: Sequence[Tables], last: Sequence[Tables], allowed: float
) -> dict[str, tuple[float, float]]:
    before, after = _medians(first), _medians(last)
    return {
        name: (before.get(name, 0), count)
        for name, count in sorted(after.items())
        if count > before.get(name, 0) + allowed and not name.startswith((*PASSING, *CACHES))
    }


def _medians(days: Sequence[Tables]) -> dict[str, float]:
    """Of each table, over days; of an even number the mean of the middle two."""
    names = {name for tables in days for name in tables}
    return {name: median(tables[name] for tables in days) for name in names}


def people(params: Params) -> Mortality:
    """Nodes of the production protocol, with delays in proportion to a hop.

    Delays after which state is forgotten are hours, so that a day sees the end of what it begins.
    """
    trip = params.round_trip()
    config = replace(params.config(), forget_after=FORGET_AFTER)
    detector = DetectorConfig(4 * trip, 8 * trip, 20 * trip, 40 * trip)
    epochs = AgreementConfig(12 * trip, 3 * trip, 16 * trip, 4 * trip, 100 * trip)
    epochs = replace(epochs, absent_for=ABSENT_FOR)
    nodes = range(params.nodes)
    first = genesis({node: Who(f"{node}-0", str(node), node * NODES_APART) for node in nodes})

    def make(node: NodeId, port: Port, life: int) -> Process:
        return Member(
            node,
            cast(MemberPort, port),
            view=None if life else first,
            who=Who(f"{node}-{life}", str(node), life * LIVES_APART + node * NODES_APART),
            config=config,
            epochs=epochs,
            detector=detector,
            seeds=[str(other) for other in nodes if other != node] if life else (),
        )

    return Mortality(make, recovery_of(detector, epochs, params.nodes))


class PartedNetwork(Uniform):
    """Uniform delays, some loss, and at times two sides that do not hear each other."""

    def __init__(self, rng: Random, low: Time, high: Time, loss: float) -> None:
        super().__init__(rng, low, high)
        self._loss = loss
        self.side: frozenset[NodeId] = frozenset()

    def control(self, source: NodeId, peer: NodeId, message: Message) -> None:
        if (source in self.side) == (peer in self.side) and self._rng.random() >= self._loss:
            super().control(source, peer, message)


class LongLife:
    """One world, and the application that lives in it."""

    def __init__(self, plan: LifePlan) -> None:
        self.plan = plan
        self.chronicle = Chronicle(plan)
        params = Params(nodes=plan.nodes, network="uniform")
        mortals = people(params)
        self._rng = Random(f"long life/{plan.seed}")
        self._network = PartedNetwork(
            Random(f"long life/{plan.seed}/links"), params.low, params.high, plan.loss
        )
        self._bound = liveness_bound(params, mortals.recovery, 1000)
        self._trace: list[Record] | None = [] if plan.check else None
        self.world = MortalWorld(
            plan.nodes, mortals.make, self._network, application=self, trace=self._trace
        )
        self._homes: dict[Topic, list[NodeId]] = {}
        self._followers: dict[NodeId, str] = {}
        self._asked = 0
        self._requests: dict[Topic, tuple[NodeId, NodeId]] = {}
        """Reply topic -> asking node, answering node."""

    def run(self, tell: Callable[[DayEnd], None] | None = None) -> Chronicle:
        """Live through all days; `tell` is called at the end of each."""
        self._begin()
        for day in range(self.plan.days):
            self._plan_day(day)
            run_until(self.world, self.world.now + DAY)
            self._end_day(day)
            if tell is not None:
                tell(self.chronicle.days[-1])
        if self._trace is not None:
            self.chronicle.report = check(self._trace)
        return self.chronicle

    def _begin(self) -> None:
        plan, rng = self.plan, self._rng
        for number in range(plan.topics):
            topic = f"news/{number}"
            count = min(plan.subscribers, plan.nodes)
            self._homes[topic] = sorted(rng.sample(range(plan.nodes), count))
            self.world.establish(topic, self._homes[topic])
        chosen = rng.sample(range(plan.nodes), len(plan.patterns))
        self._followers = dict(zip(chosen, plan.patterns, strict=True))
        for node, pattern in self._followers.items():
            self.world.follow(node, pattern)

    # -- a day -----------------------------------------------------------------------------------

    def _plan_day(self, day: int) -> None:
        plan, rng = self.plan, self._rng
        for topic in self._homes:
            for node in rng.sample(range(plan.nodes), min(plan.publishers, plan.nodes)):
                for _ in range(plan.messages):
                    self._at(self._time(), self._publish, node, topic)
        for _ in range(plan.visitors):
            node, topic = rng.randrange(plan.nodes), rng.choice(list(self._homes))
            at = self._time(2 * HOUR)
            self._at(at, self._visit, node, topic)
            self._at(at + rng.randint(HOUR, 3 * HOUR), self._end_visit, node, topic)
        for _ in range(plan.replies):
            self._at(self._time(), self._ask)
        young = range(1 + plan.elders, plan.nodes)
        mortal = rng.sample(young, min(plan.crashes + plan.leaves, len(young) // 2))
        for number, node in enumerate(mortal):
            at = self._time(4 * HOUR)
            if number < plan.leaves:
                self._at(at, self._leave, node)
            else:
                self._at(at, self._crash, node)
                down = rng.choice((HOUR // 12, rng.randint(3 * HOUR, 5 * HOUR)))
                self._at(at + down, self._restart, node)
        if day % WEEK == WEEK - 1:
            others = range(1, plan.nodes)  # of equal sides, the one with the lowest slot stays
            side = frozenset(rng.sample(others, rng.randint(1, plan.nodes // 2)))
            self._at(self._time(6 * HOUR), self._part, side)
            self._at(EVENTS_UNTIL - HOUR, self._part, frozenset())

    def _time(self, spare: Time = 0) -> Time:
        return self._rng.randrange(EVENTS_UNTIL - spare)

    def _at(self, after: Time, act: Callable[[Any, Any, Time], None], *args: Any) -> None:
        self.world.post(self.world.now + after, act, *args)

    def _end_day(self, day: int) -> None:
        """Let the world settle at the end of a day, and count."""
        for node in sorted(self.world.down):
            self._restart(node, None, self.world.now)
        for topic, (asker, _) in list(self._requests.items()):
            self._end_request(topic, asker)
        if not settle(self.world, self._bound):
            raise LongLifeError(f"day {day}: {unsettled(self.world)}")
        run_until(self.world, self.world.now + HOUR)
        counts = [census(process) for process in self.world.processes]
        tables = sum(counts, start=Counter())
        elders = sum(counts[1 : 1 + self.plan.elders], start=Counter())
        most = max(one.total() for one in counts)
        topics = len(self._homes)
        self.chronicle.days.append(DayEnd(day, tables, counts[0], elders, most, topics))

    # -- events ----------------------------------------------------------------------------------

    def _count(self, what: str) -> None:
        self.chronicle.happened[what] += 1

    def _stays(self, node: NodeId) -> bool:
        """Whether the application at `node` goes on: the node is up and does not leave."""
        return self.world.is_up(node) and node not in self.world.leaving

    def _publish(self, node: NodeId, topic: Topic, now: Time) -> None:
        if self._stays(node):
            self._count("publications")
            self.world.publish(node, topic)

    def _visit(self, node: NodeId, topic: Topic, now: Time) -> None:
        if self._stays(node) and not self.world.wants(node, topic):
            self._count("visits")
            self.world.subscribe(node, topic)

    def _end_visit(self, node: NodeId, topic: Topic, now: Time) -> None:
        at_home = node in self._homes[topic] or self._followers.get(node) == "#"
        if self.world.is_up(node) and self.world.wants(node, topic) and not at_home:
            self.world.unsubscribe(node, topic)

    def _ask(self, a: None, b: None, now: Time) -> None:
        up = [one for one in self.world.running() if one not in self._followers]
        up = [node for node in up if self._stays(node)]
        if len(up) < 2:
            return
        asker, answerer = self._rng.sample(up, 2)
        topic = f"{REPLY}{self._asked}"
        self._asked += 1
        self._count("requests")
        self._requests[topic] = asker, answerer
        self.world.subscribe(asker, topic)

    def on_joined(self, world: Any, node: NodeId, topic: Topic) -> None:
        """Answer a request, as its reply topic is ready."""
        asker, answerer = self._requests.get(topic, (-1, -1))
        if node == asker and self._stays(answerer):
            self.world.publish(answerer, topic)

    def on_deliver(self, world: Any, node: NodeId, topic: Topic, ident: int) -> None:
        """End a request, as its reply has come."""
        if self._requests.get(topic, (-1, -1))[0] == node:
            self._count("replies")
            self._end_request(topic, node)

    def _end_request(self, topic: Topic, asker: NodeId) -> None:
        """Unsubscribe the asker from the reply topic, which then has no subscriber."""
        del self._requests[topic]
        if self.world.is_up(asker) and self.world.wants(asker, topic):
            self.world.unsubscribe(asker, topic)

    def _crash(self, node: NodeId, _: None, now: Time) -> None:
        if self.world.is_up(node):
            self._count("crashes")
            self.world.crash(node)

    def _restart(self, node: NodeId, _: None, now: Time) -> None:
        """Begin again with the lasting subscriptions; short visits and requests are gone."""
        if self.world.is_up(node):
            return
        self.world.restart(node)
        for topic in self._wishes(node):
            if not self.world.wants(node, topic):
                self.world.subscribe(node, topic)
        if node in self._followers:
            self.world.follow(node, self._followers[node])

    def _wishes(self, node: NodeId) -> list[Topic]:
        return [topic for topic, home in self._homes.items() if node in home]

    def _leave(self, node: NodeId, _: None, now: Time) -> None:
        """Leave every topic, then the cluster; come back some hours later."""
        if not self._stays(node):
            return
        self._count("leaves")
        self.world.leave(node)
        self._at(3 * HOUR, self._come_back, node, self.world.lives[node])

    def _come_back(self, node: NodeId, life: int, now: Time) -> None:
        """Begin again, once the other nodes have let this life go."""
        if self.world.lives[node] != life:
            return
        if self.world.is_up(node):
            self._at(HOUR, self._come_back, node, life)
        else:
            self._restart(node, None, now)

    def _part(self, side: frozenset[NodeId], _: None, now: Time) -> None:
        self._count("partitions" if side else "healings")
        self._network.side = side


def live(plan: LifePlan, tell: Callable[[DayEnd], None] | None = None) -> Chronicle:
    """Live a plan."""
    return LongLife(plan).run(tell)
