"""Patterns in random runs and in every interleaving of small cases, and ways to get them wrong.

The checkers read patterns from the trace by themselves: whatever is published to a matching topic
after the pattern's `join` is owed to the node (property `completeness`).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.messages import Op, Wave
from cubecast.protocol.port import NodeId, Port, Process, Time, Topic
from cubecast.protocol.subscriptions.discovery import Discovery
from cubecast.protocol.subscriptions.membership import Membership, Standing
from cubecast.sim.codec import WireCodec
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.testing.explorer import (
    EXACT,
    PRODUCTION,
    Case,
    Exploration,
    Likeness,
    Rules,
    Step,
    explore,
)
from cubecast.trace import Record, check

STORM = SCENARIOS["pattern-storm"]
PARAMS = Params().with_({**STORM.defaults, "horizon": 200_000})


def weather(seed: int, kind: type[CubecastNode] = CubecastNode, nodes: int = 8) -> Outcome:
    drawn: list[Params] = []

    def draw(params: Params, rng: Random) -> Params:
        assert STORM.draw is not None
        drawn.append(STORM.draw(params, rng))
        return drawn[0]

    def make(node: NodeId, port: Port) -> Process:
        cluster = (1 << drawn[0].nodes) - 1
        return kind(node, port, cluster=cluster, config=drawn[0].config())

    storm = Scenario(STORM.name, STORM.about, STORM.plan, draw=draw)
    params = PARAMS.with_({"nodes": nodes})
    return run(storm, "cubecast", params, seed, make=make, keep_trace=True, codec=WireCodec())


def assert_calm(outcome: Outcome) -> None:
    replay = f"cubecast sim pattern-storm --seeds 1 --first-seed {outcome.seed}"
    assert outcome.report is not None
    assert outcome.metrics["violations"] == 0, (replay, outcome.report.violations[:3])
    assert outcome.metrics["gaps"] == outcome.metrics["discards"] == 0, replay
    assert outcome.metrics["kept"] == 0, replay


@pytest.mark.parametrize("block", range(4))
def test_fifty_pattern_storms_of_up_to_8_nodes(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        assert_calm(weather(seed))


@pytest.mark.parametrize("seed", [34, 307, 4425, 10748])
def test_storms_that_were_not_survived_once(seed: int) -> None:
    assert_calm(weather(seed))


def test_pattern_storms_of_32_nodes() -> None:
    for seed in range(4):
        assert_calm(weather(seed, nodes=32))


def test_pattern_storms_contain_what_they_are_meant_to() -> None:
    """Topics begun under an open pattern, topics older than one, patterns that close and reopen."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        outcome = weather(seed)
        assert outcome.trace is not None
        joined: set[tuple[NodeId, str]] = set()
        published: set[Topic] = set()
        for record in outcome.trace:
            wild = "#" in record.topic or "+" in record.topic
            if record.kind == "join" and wild:
                seen["reopened" if (record.node, record.topic) in joined else "opened"] += 1
                seen["opened late"] += bool(published)
                joined.add((record.node, record.topic))
            elif record.kind == "leave" and wild:
                seen["closed"] += 1
            elif record.kind == "publish" and record.topic not in published:
                published.add(record.topic)
                seen["first message under a pattern"] += bool(joined)
    assert all(count >= 10 for count in seen.values()), seen
    assert len(seen) == 5, seen


# -- ways to get it wrong -------------------------------------------------------------------------


class Impatient(Discovery):
    def follow(self, key: Any, wanted: Any, now: Time) -> None:
        self.active[key] = wanted
        super().follow(key, wanted, now)


class AdoptsWhileItAsks(CubecastNode):
    """Takes the empty cut for every wanted topic it has not met, before all have answered."""

    discovery_class = Impatient


class Forgetful(Discovery):
    def saw(self, topic: str) -> None:
        pass


class ForgetsWhatItSawWhileAsking(CubecastNode):
    """Joins what the answers name and nothing that began after them."""

    discovery_class = Forgetful


class JoinsAfterAnswering(CubecastNode):
    """Answers the first wave of a new topic as an outsider and joins by a wave of its own."""

    def _on_wave(self, wave: Wave, sender: NodeId, now: Time) -> None:
        new = wave.op is not Op.TOPICS and self._discovery.is_new(wave.topic)
        active, self._discovery.active = self._discovery.active, {}
        super()._on_wave(wave, sender, now)
        if new:
            self._port.discovered(wave.topic)
            self._membership(wave.topic).subscribe(now)
        self._discovery.active = active


class Mute(Discovery):
    def known(self) -> dict[Topic, int]:
        return {}


class NamesNoTopics(CubecastNode):
    """Answers a TOPICS wave with nothing."""

    discovery_class = Mute


class Confused(Discovery):
    def unfollow(self, key: Any) -> None:
        super().unfollow(key)
        self._running = bool(self._asked)


class MistakesOneWaveForAnother(CubecastNode):
    """Takes a late answer to an abandoned wave for the answer to the next one."""

    discovery_class = Confused


class OwnTopics(CubecastNode):
    def register(self, topic: Topic, now: Time) -> None:
        self._membership(topic).register(now)


class DoesNotFollowItself(OwnTopics):
    """Publishes the first message of a followed topic without being a member of it."""


class OwesOnlyTheNewest(Discovery):
    def _join_existing(self, question: Any, wanted: Any, listed: Any, now: Time) -> None:
        active, self.active = self.active, {}
        super()._join_existing(question, wanted, listed, now)
        self.active = {**active, **self.active}


class JoinsWhatIsNewToAnother(CubecastNode):
    """Joins what a second pattern finds by a wave, although it is new to the first."""

    discovery_class = OwesOnlyTheNewest


class Hesitant(Membership):
    @property
    def receiving(self) -> bool:
        return self.standing is Standing.IN and self._want_in


class ComesBackWithoutLeaving(CubecastNode):
    """Unsubscribes and subscribes again while it registers, and never takes messages again."""

    membership_class = Hesitant


MUTANTS = [
    (AdoptsWhileItAsks, 40),
    (ForgetsWhatItSawWhileAsking, 120),
    (JoinsAfterAnswering, 40),
    (NamesNoTopics, 40),
    (MistakesOneWaveForAnother, 400),
    (DoesNotFollowItself, 40),
]


@pytest.mark.parametrize(
    ("kind", "within"), MUTANTS, ids=lambda value: getattr(value, "__name__", None)
)
def test_pattern_storms_catch(kind: type[CubecastNode], within: int) -> None:
    for seed in range(within):
        try:
            outcome = weather(seed, kind)
        except AssertionError:
            continue  # something broke; a storm has to see a message lost as well
        assert outcome.report is not None
        if outcome.report.counts["completeness"]:
            return
    pytest.fail(f"{kind.__doc__} Nothing lost in {within} storms.")


def test_a_storm_catches_who_comes_back_without_leaving() -> None:
    report = weather(4425, ComesBackWithoutLeaving).report
    assert report is not None
    assert report.counts["quiescence"]


# -- every interleaving of small cases ------------------------------------------------------------

CALM = Rules(ordered=frozenset({"parcel"}), urgent=frozenset({"ack", "parcel-ack"}))
LOSSY = Rules(ordered=CALM.ordered, urgent=CALM.urgent, drops=1)


def idle(process: Process) -> str | None:
    load = process.load()
    return f"keeps {load}" if any(load) else None


def every(
    nodes: int,
    *steps: Step,
    kind: type[CubecastNode] = CubecastNode,
    members: int = 0,
    rules: Rules = CALM,
    likeness: Likeness = PRODUCTION,
) -> Exploration:
    config = Config(window=64, ack_delay=0, stable_delay=0, resend_after=2, forget_after=0)

    def make(node: NodeId, port: Port) -> Process:
        return kind(node, port, cluster=(1 << nodes) - 1, config=config)

    agreed = {"t": members} if members else {}
    return explore(Case(nodes, make, steps, agreed, rules, idle, likeness))


def follow(node: NodeId, pattern: str = "+") -> Step:
    return Step(node, "follow", topic=pattern)


def publish(node: NodeId, name: str, *after: str) -> Step:
    return Step(node, "publish", name, after)


CASES = {
    "a REGISTER races with the activation": (2, (follow(0), publish(1, "a")), 0),
    "there is a third node": (3, (follow(0), publish(1, "a"), publish(1, "b")), 0),
    "two messages, one perhaps before": (2, (follow(0), publish(1, "a"), publish(1, "b")), 0),
    "two publishers begin a topic": (3, (follow(0), publish(1, "a"), publish(2, "b")), 0),
    "the topic is older": (3, (follow(0), publish(1, "a"), publish(2, "b")), 0b010),
    "a follower publishes": (2, (follow(0), publish(0, "a"), publish(1, "b")), 0),
    "two followers": (3, (follow(0), follow(1), publish(2, "a")), 0),
    "a subscriber comes": (3, (follow(0), Step(1, "subscribe"), publish(2, "a")), 0),
    "a subscriber begins to follow": (2, (Step(0, "subscribe"), follow(0), publish(1, "a")), 0),
    "a second pattern finds what is new": (4, (follow(0), follow(0, "#"), publish(3, "a")), 0),
    "a publisher begins to follow": (2, (publish(0, "a"), follow(0), publish(1, "b")), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_every_interleaving(name: str) -> None:
    nodes, steps, members = CASES[name]
    result = every(nodes, *steps, members=members)
    assert result.ok, result
    assert len(result.outcomes) > 2


def test_every_interleaving_with_a_lost_message() -> None:
    steps = (follow(0), publish(1, "a"), publish(1, "b"))
    assert every(2, *steps, rules=LOSSY).ok


def test_the_orders_that_are_said_to_decide_nothing_decide_nothing() -> None:
    nodes, steps, members = CASES["two followers"]
    exact = every(nodes, *steps, members=members, likeness=EXACT)
    assert exact.ok
    assert exact.outcomes == every(nodes, *steps, members=members).outcomes


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (AdoptsWhileItAsks, "the topic is older"),
        (ForgetsWhatItSawWhileAsking, "there is a third node"),
        (JoinsAfterAnswering, "a REGISTER races with the activation"),
        (NamesNoTopics, "two messages, one perhaps before"),
        (DoesNotFollowItself, "a follower publishes"),
        (JoinsWhatIsNewToAnother, "a second pattern finds what is new"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_explorer_catches(kind: type[CubecastNode], name: str) -> None:
    nodes, steps, members = CASES[name]
    assert "completeness" in every(nodes, *steps, members=members, kind=kind).counts


# -- the checkers' own reading of patterns --------------------------------------------------------


def test_a_pattern_is_owed_what_is_published_to_topics_never_joined() -> None:
    records = [
        Record("subscribe", 0, 0, "a/#"),
        Record("publish", 1, 1, "a/x", 1, source=1, seq=0),
        Record("join", 2, 0, "a/#"),
        Record("publish", 3, 1, "a/x", 2, source=1, seq=1),
        Record("publish", 4, 1, "b/x", 3, source=1, seq=0),
    ]
    report = check(records)
    assert [(v.node, v.topic, v.id) for v in report.violations] == [(0, "a/x", 2)]
    assert check([*records, Record("leave", 5, 0, "a/#")]).ok
    assert check([Record("join", 0, 0, "#a"), Record("publish", 1, 1, "#ab", 1)]).ok
