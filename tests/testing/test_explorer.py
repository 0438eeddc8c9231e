"""All interleavings of small cases: the production protocol survives them, others do not.

The first part is about the protocols, the second about the explorer itself: it is compared with
a plain enumeration, and its short cuts with the long way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from cubecast.baselines.best_effort import BestEffort
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.paper.vcube_ps import VCubePS
from cubecast.protocol.port import Load, NodeId, Port, Process
from cubecast.testing.explorer import EXACT, Case, Exploration, Rules, Step, explore
from cubecast.testing.explorer.canonical_forms import CanonicalForm, Likeness
from cubecast.trace import answers_before_questions, check
from support import mutants

ANYTHING = Rules()
ORDERED = Rules(ordered=frozenset({"parcel"}), urgent=frozenset({"parcel-ack"}))
EAGER = replace(ORDERED, urgent=frozenset({"ack", "parcel-ack"}))
EAGER_STABLE = replace(ORDERED, urgent=frozenset({"ack", "parcel-ack", "stable"}))


def publish(node: NodeId, name: str, *after: str, joined: bool = False) -> Step:
    return Step(node, "publish", name, after, joined)


def subscribe(node: NodeId) -> Step:
    return Step(node, "subscribe")


def unsubscribe(node: NodeId) -> Step:
    return Step(node, "unsubscribe")


def idle(process: Process) -> str | None:
    """A production node at rest keeps no frame and no open stream."""
    load = process.load()
    return f"keeps {load}" if any(load) else None


def production(
    nodes: int,
    *steps: Step,
    members: int = 0,
    rules: Rules = EAGER,
    slow: int = 0,
    node_class: type[CubecastNode] = CubecastNode,
    **delays: int,
) -> Case:
    """A case of the production protocol; without other wishes every delay is nought."""
    none = {"ack_delay": 0, "stable_delay": 0, "patience": 0, "forget_after": 0}
    config = Config(**{**none, "resend_after": 2, **delays})

    def make(node: NodeId, port: Port) -> Process:
        return node_class(node, port, cluster=(1 << nodes) - 1, config=config)

    established = {"t": members} if members else {}
    return Case(nodes, make, steps, established, rules, idle, slow=slow)


def faithful(nodes: int, *steps: Step, members: int) -> Case:
    def make(node: NodeId, port: Port) -> Process:
        return VCubePS(node, port, nodes=nodes)

    return Case(nodes, make, steps, {"t": members}, likeness=EXACT)


def best_effort(nodes: int, *steps: Step, members: int) -> Case:
    def make(node: NodeId, port: Port) -> Process:
        return BestEffort(node, port, nodes=nodes)

    return Case(nodes, make, steps, {"t": members}, likeness=EXACT)


# -- the production protocol ---------------------------------------------------------------------

HOLE_8 = (publish(2, "a"), publish(0, "b", "a"), publish(1, "c", "b"), subscribe(3))
"""3 joins; its wave visits 1 and 2, and 0 only through 1.  2 can know it, publish a and reach 3
last; 0 can answer a with b, not knowing 3; and 1 can answer b with c, knowing 3 again."""

CASES: dict[str, Case] = {
    "two publications": production(3, publish(0, "a"), publish(1, "b"), members=7, rules=ANYTHING),
    "an answer to an answer": production(
        3, publish(0, "a"), publish(1, "b", "a"), publish(2, "c", "b"), members=7, rules=ANYTHING
    ),
    "four publications": production(
        3,
        publish(0, "a"),
        publish(1, "b", "a"),
        publish(2, "c"),
        publish(0, "d"),
        members=7,
        rules=EAGER_STABLE,
    ),
    "four in a chain": production(
        3,
        publish(0, "a"),
        publish(1, "b", "a"),
        publish(2, "c", "b"),
        publish(0, "d", "c"),
        members=7,
    ),
    "a publisher that does not subscribe": production(
        3, publish(2, "a"), publish(0, "b", "a"), publish(2, "c"), members=3
    ),
    "a publisher registers while another node joins": production(
        3, subscribe(0), Step(2, "register"), publish(2, "a"), rules=ORDERED
    ),
    "two join and a third publishes": production(
        3,
        subscribe(0),
        subscribe(1),
        Step(2, "register"),
        publish(2, "a"),
        publish(0, "b", joined=True),
    ),
    "a node joins: hole 8": production(4, *HOLE_8, members=7),
    "a node joins: hole 8, stability told late": production(4, *HOLE_8, members=7, stable_delay=5),
    "a node joins, any acknowledgement late": production(
        3, publish(0, "a"), publish(1, "b", "a"), subscribe(2), members=3, rules=ORDERED
    ),
    "a node joins and publishes": production(
        3,
        publish(0, "a"),
        publish(1, "b", "a"),
        subscribe(2),
        publish(2, "c", joined=True),
        members=3,
    ),
    "a node leaves": production(
        3, publish(0, "a"), publish(1, "b", "a"), unsubscribe(2), members=7, rules=ORDERED
    ),
    "a relay leaves": production(4, publish(0, "a"), publish(0, "b"), unsubscribe(2), members=15),
    "a relay leaves, any acknowledgement late": production(
        4, publish(0, "a"), unsubscribe(2), members=15, rules=ORDERED
    ),
    "a node leaves and comes back": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        unsubscribe(2),
        subscribe(2),
        members=7,
    ),
    "a node joins, leaves and joins": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        subscribe(2),
        unsubscribe(2),
        subscribe(2),
        members=3,
    ),
    "a publisher leaves and goes on publishing": production(
        3, publish(0, "a"), unsubscribe(0), publish(0, "c"), publish(1, "b", "a"), members=7
    ),
    "credit for one message": production(
        3, publish(0, "a"), publish(0, "b"), publish(0, "c"), members=7, rules=ANYTHING, window=1
    ),
    "credit for one message, two publishers": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        publish(1, "c", "a"),
        members=7,
        rules=ORDERED,
        window=1,
    ),
    "one duplicate": production(
        3, publish(0, "a"), publish(1, "b", "a"), members=7, rules=Rules(duplicates=1)
    ),
    "one duplicate while a node joins": production(
        3, publish(0, "a"), subscribe(2), members=3, rules=Rules(duplicates=1)
    ),
    "one loss": production(
        3, publish(0, "a"), publish(1, "b", "a"), members=7, rules=Rules(drops=1)
    ),
    "one loss while a node joins": production(
        3, publish(0, "a"), subscribe(2), members=3, rules=Rules(drops=1)
    ),
    "one loss, credit for one message": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        publish(1, "c"),
        members=7,
        rules=replace(ORDERED, drops=1),
        window=1,
    ),
    "timers too early": production(
        3, publish(0, "a"), publish(1, "b", "a"), members=7, rules=Rules(early_wakes=1)
    ),
    "timers too early while a relay leaves": production(
        4, publish(0, "a"), unsubscribe(2), members=15, rules=replace(ORDERED, early_wakes=1)
    ),
    "slow applications, credit for one message": production(
        3, publish(0, "a"), publish(0, "b"), members=7, rules=ORDERED, slow=7, window=1
    ),
    "slow applications while a relay leaves": production(
        4, publish(0, "a"), publish(0, "b"), unsubscribe(2), members=15, slow=12
    ),
    "a slow application leaves and comes back": production(
        3, publish(0, "a"), publish(0, "b"), unsubscribe(2), subscribe(2), members=7, slow=4
    ),
    "slow applications, timers too early": production(
        3,
        publish(0, "a"),
        publish(1, "b", "a"),
        members=7,
        slow=4,
        rules=replace(EAGER, early_wakes=2),
    ),
}

LONG_CASES: dict[str, Case] = {
    "four publications, stability told at any time": production(
        3, publish(0, "a"), publish(1, "b", "a"), publish(2, "c"), publish(0, "d"), members=7
    ),
    "a node joins: hole 8, any acknowledgement late": production(
        4, *HOLE_8, members=7, rules=ORDERED
    ),
    "one joins and one leaves": production(
        4, publish(0, "a"), publish(1, "b", "a"), unsubscribe(2), subscribe(3), members=7
    ),
    "two join": production(
        4, publish(0, "a"), publish(1, "b", "a"), subscribe(2), subscribe(3), members=3
    ),
    "two leave": production(
        4, publish(0, "a"), unsubscribe(2), unsubscribe(3), members=15, rules=ORDERED
    ),
    "a node joins and leaves at once": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        subscribe(2),
        unsubscribe(2),
        publish(1, "d"),
        members=3,
    ),
    "a publisher leaves, publishes and comes back": production(
        3,
        publish(0, "a"),
        unsubscribe(0),
        publish(0, "c"),
        subscribe(0),
        publish(1, "b", "a"),
        members=7,
    ),
    "one loss while a relay leaves": production(
        4,
        publish(0, "a"),
        unsubscribe(2),
        members=15,
        rules=Rules(drops=1, ordered=frozenset({"parcel"})),
    ),
    "one loss and timers too early while a relay leaves": production(
        4,
        publish(0, "a"),
        unsubscribe(2),
        members=15,
        rules=replace(ORDERED, drops=1, early_wakes=1),
    ),
    "two losses while a node leaves": production(
        3,
        publish(0, "a"),
        publish(1, "b"),
        unsubscribe(2),
        members=7,
        rules=replace(ORDERED, drops=2),
    ),
    "one loss and one duplicate while a node comes back": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        unsubscribe(2),
        subscribe(2),
        members=7,
        rules=replace(EAGER, drops=1, duplicates=1),
    ),
    "acknowledgements gathered, timers too early": production(
        3,
        publish(0, "a"),
        publish(0, "b"),
        publish(1, "c", "a"),
        members=7,
        ack_delay=5,
        stable_delay=5,
        rules=replace(EAGER, early_wakes=2),
    ),
}


OUTCOMES = {
    "two publications": 4,  # 2 delivers them in either order unless one follows the other
    "an answer to an answer": 1,
    "four publications": 73,
    "four in a chain": 1,
}
"""How many histories are possible where no node comes or goes."""


@pytest.mark.parametrize("name", CASES)
def test_production_survives_every_interleaving(name: str) -> None:
    result = explore(CASES[name])
    assert result.ok, result
    assert len(result.outcomes) == OUTCOMES.get(name, len(result.outcomes))


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG_CASES)
def test_production_survives_every_interleaving_of_a_long_case(name: str) -> None:
    result = explore(LONG_CASES[name])
    assert result.ok, result


# -- protocols with flaws ------------------------------------------------------------------------


def test_hole_8_is_found_when_a_newcomer_skips_per_publisher() -> None:
    """i treats b as skipped and delivers c before a, its cause."""
    case = production(4, *HOLE_8, members=7, node_class=mutants.CutsPerPublisher)
    result = explore(case)
    assert result.complete
    assert set(result.counts) == {"causal-order"}
    finding = result.finding("causal-order")
    assert "node 3" in finding.message
    order = [r.id for r in finding.trace if r.kind == "deliver" and r.node == 3]
    assert order == ["c", "a"]
    assert not check(finding.trace, ["causal-order"]).ok
    assert finding.schedule[0] == "node 3: subscribe t"
    assert sum("publish" in line for line in finding.schedule) == 3


def test_hole_1_a_newcomer_of_vcube_ps_can_block_for_ever() -> None:
    result = explore(faithful(3, publish(0, "a"), publish(1, "b", "a"), subscribe(2), members=3))
    assert result.complete
    assert {"completeness", "quiescence"} <= result.counts.keys()
    assert "message 'b'" in result.finding("completeness").message
    assert "causal-order" not in result.counts


def test_hole_2_a_relay_of_vcube_ps_can_skip_a_branch() -> None:
    """2 is a subscriber for 0 and relays to 3, but has not heard of 3 since it subscribed."""
    result = explore(faithful(4, publish(0, "a"), subscribe(3), subscribe(2), members=3))
    assert result.complete
    finding = result.finding("completeness")
    assert "node 3" in finding.message
    assert not any("is lost" in line for line in finding.schedule)


def test_vcube_ps_keeps_causal_order_while_no_node_comes_or_goes() -> None:
    case = faithful(3, publish(0, "a"), publish(1, "b", "a"), publish(2, "c"), members=7)
    result = explore(case)
    assert result.ok, result
    assert len(result.outcomes) > 5


def test_best_effort_shows_an_answer_before_its_question() -> None:
    case = best_effort(3, publish(0, "question"), publish(1, "answer", "question"), members=7)
    result = explore(case)
    assert result.complete
    finding = result.finding("causal-order")
    assert answers_before_questions(finding.trace).inverted == 1
    assert len(finding.schedule) == 5  # ask, arrive at 1, answer, arrive at 2, arrive at 2
    assert set(result.counts) == {"causal-order"}


# -- the explorer against a plain enumeration ----------------------------------------------------


class Plain:
    """The dumb twin: no numbers, no tables; every schedule is run from a copy of everything."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.outcomes: set[tuple[Any, ...]] = set()
        self.schedules = 0

    def run(self) -> Plain:
        size = self.case.nodes
        ports = [PlainPort(node) for node in range(size)]
        world = {
            "ports": ports,
            "processes": [self.case.make(node, ports[node]) for node in range(size)],
            "flight": [],
            "taken": [0] * size,
        }
        for node in range(size):
            for topic, mask in self.case.members.items():
                world["processes"][node].establish(topic, mask)
                if mask >> node & 1:
                    ports[node].history += [("subscribe", ""), ("join", "")]
                    ports[node].joins += 1
        self._expand(world)
        return self

    def _expand(self, world: dict[str, Any]) -> None:
        final = True
        for happen in self._possible(world):
            final = False
            then = copy.deepcopy(world)
            happen(then)
            for port in then["ports"]:
                port.settle(then)
            self._expand(then)
        if final:
            self.schedules += 1
            self.outcomes.add(tuple(tuple(port.history) for port in world["ports"]))

    def _possible(self, world: dict[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
        for index in range(len(world["flight"])):
            yield lambda then, index=index: self._arrive(then, index)
        for node in range(self.case.nodes):
            steps = [step for step in self.case.steps if step.node == node]
            taken = world["taken"][node]
            done = {name for kind, name, *_ in world["ports"][node].history if kind == "deliver"}
            if taken < len(steps) and done.issuperset(steps[taken].after):
                yield lambda then, step=steps[taken]: self._take(then, step)
        if not world["flight"] and any(port.armed for port in world["ports"]):
            yield self._wake_all

    def _arrive(self, world: dict[str, Any], index: int) -> None:
        sender, receiver, message = world["flight"].pop(index)
        now = world["ports"][receiver].now
        world["processes"][receiver].on_message(message, sender, now)

    def _take(self, world: dict[str, Any], step: Step) -> None:
        world["taken"][step.node] += 1
        port, process = world["ports"][step.node], world["processes"][step.node]
        if step.action == "publish":
            stamp = tuple(port.joins for port in world["ports"])
            port.history.append(("publish", step.name, stamp))
            assert process.publish("t", (step.name,), 1, port.now)
        else:
            port.history.append((step.action, ""))
            getattr(process, step.action)("t", port.now)

    def _wake_all(self, world: dict[str, Any]) -> None:
        for port, process in zip(world["ports"], world["processes"], strict=True):
            if port.armed:
                port.armed = False
                port.now += 1_000_000
                process.on_wake(port.now)


class PlainPort:
    def __init__(self, node: NodeId) -> None:
        self.node, self.now, self.joins, self.armed = node, 0, 0, False
        self.history: list[Any] = []
        self.sent: list[Any] = []
        self.due: list[int] = []

    def settle(self, world: dict[str, Any]) -> None:
        while self.due:
            due, self.due = min(self.due), []
            if due > self.now:
                self.armed = True
            else:
                world["processes"][self.node].on_wake(self.now)
        world["flight"] += self.sent
        self.sent = []

    def relay(self, peers: Any, message: Any) -> None:
        self.sent += [(self.node, peer, message) for peer in peers]

    def control(self, peer: NodeId, message: Any) -> None:
        self.sent.append((self.node, peer, message))

    def deliver(self, publication: Any) -> bool:
        self.history += [("deliver", name) for name in publication.body]
        return True

    def joined(self, topic: str) -> None:
        self.joins += 1
        self.history.append(("join", ""))

    def left(self, topic: str) -> None:
        self.history.append(("left", ""))

    def discovered(self, topic: str) -> None:
        """No node follows a pattern in these cases."""

    def followed(self, key: object, complete: bool) -> None:
        """No node follows a pattern in these cases."""

    def listed(self, ticket: object, topics: object, complete: bool) -> None:
        """No node follows a pattern in these cases."""

    def writable(self, topic: str) -> None:
        """Nothing is refused in these cases."""

    def wake(self, at: int) -> None:
        self.due.append(at)


def plainly(result: Exploration) -> set[tuple[Any, ...]]:
    """The outcomes of an exploration in the words of the plain enumeration."""
    return {
        tuple(
            tuple(
                ("publish", e.note.name, e.stamp) if e.note.kind == "publish"
                else (e.note.kind, e.note.name)
                for e in history
            )
            for history in outcome
        )
        for outcome in result.outcomes
    }  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        production(2, publish(0, "a"), publish(1, "b"), members=3, rules=ANYTHING),
        production(2, publish(0, "a"), subscribe(1), members=1, rules=ANYTHING),
        best_effort(3, publish(0, "a"), publish(1, "b"), publish(2, "c", "a"), members=7),
        best_effort(3, publish(0, "a"), subscribe(2), members=3),
        faithful(2, publish(0, "a"), publish(1, "b"), publish(1, "c", "a"), members=3),
    ],
    ids=["production", "production-join", "best-effort", "best-effort-join", "vcube-ps"],
)
def test_same_outcomes_as_a_plain_enumeration(case: Case) -> None:
    plain = Plain(case).run()
    assert plain.schedules > 50
    result = explore(case)
    assert result.complete
    assert plainly(result) == plain.outcomes
    assert result.states < plain.schedules * 30


# -- the explorer's short cuts -------------------------------------------------------------------

TALK = (publish(0, "a"), publish(1, "b", "a"), publish(2, "c"))
JOIN = (publish(0, "a"), publish(1, "b", "a"), subscribe(2))
LEAVE = (publish(0, "a"), publish(1, "b"), unsubscribe(2))


@pytest.mark.parametrize(
    ("steps", "members"), [(TALK, 7), (JOIN, 3), (LEAVE, 7)], ids=["talk", "join", "leave"]
)
class TestShortCutsLoseNoOutcome:
    def test_attributes_without_order(self, steps: tuple[Step, ...], members: int) -> None:
        case = production(3, *steps, members=members)
        short, long = explore(case), explore(replace(case, likeness=EXACT))
        assert short.outcomes == long.outcomes
        assert short.states < long.states

    def test_parcels_in_order(self, steps: tuple[Step, ...], members: int) -> None:
        rules = Rules(urgent=frozenset({"ack", "parcel-ack"}))
        case = production(3, *steps, members=members, rules=rules)
        ordered = replace(case, rules=replace(rules, ordered=frozenset({"parcel"})))
        assert explore(ordered).outcomes == explore(case).outcomes

    @pytest.mark.parametrize("rule", ["urgent", "patient"])
    def test_acknowledgements_at_once_or_last(
        self, steps: tuple[Step, ...], members: int, rule: str
    ) -> None:
        case = production(3, *steps, members=members, rules=ORDERED)
        kinds = frozenset({"ack", "parcel-ack"})
        short = replace(case, rules=replace(ORDERED, **{"urgent": frozenset(), rule: kinds}))
        assert explore(short).outcomes == explore(case).outcomes


# -- what the explorer notices -------------------------------------------------------------------


class Parrot:
    """Sends what it publishes to everyone else; subclasses misbehave."""

    label: ClassVar[str] = "parrot"

    def __init__(self, node: NodeId, port: Port) -> None:
        self.node, self.port = node, port

    def establish(self, topic: str, members: int) -> None: ...

    def subscribe(self, topic: str, now: int) -> None: ...

    def unsubscribe(self, topic: str, now: int) -> None: ...

    def register(self, topic: str, now: int) -> None: ...

    def publish(self, topic: str, body: Any, size: int, now: int) -> bool:
        self.port.relay([1 - self.node], Squawk(list(body)))
        return True

    def on_message(self, message: Any, sender: NodeId, now: int) -> None: ...

    def on_wake(self, now: int) -> None: ...

    def load(self) -> Load:
        return Load(0, 0)


class Squawk:
    kind: ClassVar[str] = "squawk"

    def __init__(self, words: list[object]) -> None:
        self.words = words


class Fragile(Parrot):
    def on_message(self, message: Any, sender: NodeId, now: int) -> None:
        raise KeyError("glass")


class Choosy(Parrot):
    def publish(self, topic: str, body: Any, size: int, now: int) -> bool:
        return False


class Sleepless(Parrot):
    def publish(self, topic: str, body: Any, size: int, now: int) -> bool:
        self.port.wake(now + 1)
        return True

    def on_wake(self, now: int) -> None:
        self.port.wake(now + 1)


class Scribbler(Parrot):
    def on_message(self, message: Any, sender: NodeId, now: int) -> None:
        message.words.append("!")


def parrots(kind: type[Parrot], *steps: Step) -> Case:
    return Case(2, kind, steps or (publish(0, "a"),), {"t": 1}, likeness=EXACT)


@pytest.mark.parametrize(
    ("case", "what", "message"),
    [
        (parrots(Fragile), "crash", "node 1: KeyError: 'glass'"),
        (parrots(Choosy), "unfinished", "node 0: never accepted: (('t', 'a'),)"),
        (parrots(Parrot, unsubscribe(0)), "unfinished", "node 0: unsubscribe() never came"),
        (parrots(Parrot, publish(0, "a", "b")), "stuck", "node 0: never became possible"),
        (parrots(Parrot, subscribe(1)), "quiescence", "subscribe() never returned"),
        (parrots(Sleepless), "restless", "node 0: timers still fire"),
        (parrots(Parrot), "completeness", "message 'a'"),
        (replace(parrots(Parrot), at_rest=lambda _: "dirty"), "unclean", "node 0: dirty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_kind_of_finding_is_named(case: Case, what: str, message: str) -> None:
    result = explore(case)
    assert result.complete
    assert not result.ok
    assert message in result.finding(what).message


def test_a_crash_comes_with_the_steps_that_lead_to_it() -> None:
    schedule = explore(parrots(Fragile)).finding("crash").schedule
    assert schedule[0] == "node 0: publish a"
    assert schedule[1].startswith("0 -> 1 arrives: ")
    assert len(schedule) == 2


def test_a_message_changed_after_it_was_sent_is_refused() -> None:
    with pytest.raises(AssertionError, match="changed after it was sent"):
        explore(parrots(Scribbler))


def test_a_limit_is_never_silent() -> None:
    case = CASES["two publications"]
    assert explore(case).complete
    cut_short = explore(case, max_states=100)
    assert not cut_short.complete
    assert not cut_short.ok
    assert "INCOMPLETE" in str(cut_short)
    assert not explore(parrots(Fragile), max_findings=1).complete


def test_an_eager_step_is_taken_at_once() -> None:
    answer = publish(1, "b", "a")
    free = production(3, publish(0, "a"), answer, publish(2, "c"), members=7)
    eager = replace(free, steps=(free.steps[0], replace(answer, eager=True), free.steps[2]))
    some, all_ = explore(eager), explore(free)
    assert some.ok
    assert all_.ok
    assert some.outcomes < all_.outcomes


# -- canonical forms -----------------------------------------------------------------------------


class Box:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__ |= attributes


class Bag(dict[Any, Any]):
    __slots__ = ()


def form(obj: object, likeness: Likeness = EXACT) -> bytes:
    return CanonicalForm(object(), likeness).of(obj)


def test_equal_objects_have_equal_forms() -> None:
    assert form(Box(a=1, b=[2, {"k": {3}}])) == form(Box(b=[2, {"k": {3}}], a=1))
    assert form(Bag(x=1)) == form(Bag(x=1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Box(a=1), Box(a=2)),
        (Box(a=1), Box(a=True)),
        (Box(a=[1, 2]), Box(a=[2, 1])),
        (Box(a=(1, 2)), Box(a=[1, 2])),
        (Bag(x=1), Bag(x=2)),
        (Bag(x=1), {"x": 1}),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
    ],
)
def test_different_objects_have_different_forms(one: object, other: object) -> None:
    assert form(one) != form(other)


def test_sharing_is_part_of_the_form() -> None:
    shared = [1]
    assert form(Box(a=shared, b=shared)) != form(Box(a=[1], b=[1]))


def test_cycles_have_a_form() -> None:
    one, other = Box(), Box()
    one.me, other.me = one, other
    assert form(one) == form(other)


def test_unordered_attributes_and_caches_make_no_difference() -> None:
    one, other = Box(a={1: 2, 3: 4}, c=5), Box(a={3: 4, 1: 2}, c=6)
    assert form(one) != form(other)
    loose = Likeness(unordered=frozenset({"Box.a"}), caches=frozenset({"Box.c"}))
    assert form(one, loose) == form(other, loose)


def test_an_opaque_object_has_no_canonical_form() -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        form(Box(a=iter([1])))
