"""The built-in scenarios: who subscribes, and who publishes what and when.

A scenario plans events in a fresh `World`; everything random in it comes from the generator it is
handed, which depends on the seed alone, so that protocols are compared on the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import MAX_MESSAGES, ParamError, Params
from cubecast.sim.workloads.drawn_publishers import plan_speakers, plan_topics
from cubecast.sim.workloads.pattern_storm import plan_pattern_storm
from cubecast.sim.workloads.sessions import plan_sessions
from cubecast.sim.workloads.single_stream import plan_stream
from cubecast.sim.workloads.storm import draw_laggards, draw_storm, plan_laggards, plan_storm
from cubecast.sim.workloads.subscriber_turnover import plan_turnover
from cubecast.sim.workloads.subscription_exchange import plan_exchange
from cubecast.sim.world import World

TOPIC: Topic = "t"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, a sentence, defaults, and how to plan a run."""

    name: str
    about: str
    plan: Callable[[World, Params, Random], None]
    defaults: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Params, Random], Params] | None = None
    """Chooses parameters by the seed, where the scenario varies them from run to run."""
    takes: tuple[str, ...] = ()
    """The parameters in `WORKLOAD` that this scenario uses."""
    mortal: bool = False
    """Whether processes may crash: its world is a `MortalWorld` (`cubecast.sim.crashes`)."""

    def ignores(self) -> set[str]:
        """Parameters that change nothing in this scenario."""
        return set(WORKLOAD if self.draw is None else WORKLOAD + DRAWN) - set(self.takes)


WORKLOAD = (
    "subscribers", "publishers", "messages", "span", "wait", "changes", "scale",
    "topics", "skew", "every", "spread", "session", "at_once", "batch",
)  # fmt: skip
"""Parameters that say which node does what and when."""
DRAWN = ("loss", "duplicate", "reorder", "spike", "window")
"""Other parameters that a storm draws from its seed."""


def publish_at(world: World, at: Time, node: NodeId, topic: Topic = TOPIC) -> None:
    """Plan one publication."""
    world.post(at, _publish_event(world), node, topic)


def _publish_event(world: World) -> Callable[[NodeId, Topic, Time], None]:
    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        world.publish(node, topic)

    return publish


def single_publisher(world: World, params: Params, rng: Random) -> None:
    """[J] 4.1: one subscriber publishes; its messages are `span` apart."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    publisher = rng.choice(members)
    for index in range(params.messages):
        publish_at(world, index * params.span, publisher)


def multi_publisher(world: World, params: Params, rng: Random) -> None:
    """[J] 4.2: each publisher sends at a time drawn from U[0, span]."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    publishers = params.draw_publishers(rng, members)
    if len(publishers) * params.messages > MAX_MESSAGES:
        raise ParamError(
            f"{len(publishers)} publishers of {params.messages} messages each are too many: "
            f"a run has at most {MAX_MESSAGES} publications"
        )
    for publisher in publishers:
        for _ in range(params.messages):
            publish_at(world, rng.randint(0, params.span), publisher)


class Discussion:
    """[J] 4.3: everyone answers once, some time after seeing `wait` messages.

    Each thinking time is drawn beforehand: it must not depend on the order of deliveries.
    """

    def __init__(self, params: Params, rng: Random, answered: list[bool]) -> None:
        self.wait = params.wait
        self.think = [rng.randint(0, params.span) for _ in answered]
        self.answered = answered
        self._seen: list[list[int]] = [[] for _ in answered]

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        seen = self._seen[node]
        seen.append(ident)
        if self.answered[node] or len(seen) < self.wait:
            return
        self.answered[node] = True
        world.post(world.now + self.think[node], self._answer(world, tuple(seen)), node, topic)

    def _answer(self, world: World, seen: tuple[int, ...]) -> Callable[[Any, Any, Time], None]:
        def answer(node: NodeId, topic: Topic, now: Time) -> None:
            world.publish(node, topic, reply_to=seen)

        return answer

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Do nothing: membership is static here."""


def discussion(world: World, params: Params, rng: Random) -> None:
    """`wait` subscribers open with one message each; all others answer what they have seen."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    openers = rng.sample(members, min(params.wait, len(members)))
    answered = [node in openers for node in range(params.nodes)]
    world.application = Discussion(params, rng, answered)
    for opener in openers:
        publish_at(world, 0, opener)


class QuestionAnswer:
    """An application whose node answers a question as soon as it is delivered there."""

    def __init__(self, answerer: dict[int, NodeId]) -> None:
        self.answerer = answerer

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        if self.answerer.get(ident) == node:
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Do nothing: membership is static here."""


def question_answer(world: World, params: Params, rng: Random) -> None:
    """`messages` questions over `span`; another subscriber answers each at once."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    answerer: dict[int, NodeId] = {}
    world.application = QuestionAnswer(answerer)

    def ask(node: NodeId, other: NodeId, now: Time) -> None:
        answerer[world.publish(node, TOPIC)] = other

    for _ in range(params.messages):
        asker = rng.choice(members)
        other = rng.choice([node for node in members if node != asker] or members)
        world.post(rng.randint(0, params.span), ask, asker, other)


class Churn:
    """Subscribers come and go; a node that is joining is left alone until it has joined."""

    def __init__(self, world: World, members: list[NodeId]) -> None:
        self._inside = [node in members for node in range(len(world.processes))]
        self._joining = [False] * len(world.processes)

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        """Do nothing: there are no answers."""

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        self._inside[node] = True
        self._joining[node] = False

    def swap(self, world: World, rng: Random) -> None:
        """Replace one subscriber by one outsider ([J] 4.5 keeps the number constant)."""
        inside = [node for node, is_in in enumerate(self._inside) if is_in]
        outside = [
            node for node, is_in in enumerate(self._inside) if not (is_in or self._joining[node])
        ]
        if len(inside) > 1:
            leaver = rng.choice(inside)
            self._inside[leaver] = False
            world.unsubscribe(leaver, TOPIC)
        if outside:
            newcomer = rng.choice(outside)
            self._joining[newcomer] = True
            world.subscribe(newcomer, TOPIC)

    def publish(self, world: World, rng: Random) -> None:
        """Publish as a random subscriber."""
        inside = [node for node, is_in in enumerate(self._inside) if is_in]
        if inside:
            world.publish(rng.choice(inside), TOPIC)


def churn(world: World, params: Params, rng: Random) -> None:
    """`messages` publications by random subscribers while `changes` of them are replaced."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    crowd = Churn(world, members)
    world.application = crowd
    for _ in range(params.messages):
        world.post(rng.randint(0, params.span), lambda a, b, now: crowd.publish(world, rng))
    for _ in range(params.changes):
        world.post(rng.randint(0, params.span), lambda a, b, now: crowd.swap(world, rng))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "single-publisher",
            "one subscriber publishes to the others ([J] 4.1)",
            single_publisher,
            {"nodes": 64},
            takes=("subscribers", "messages", "span"),
        ),
        Scenario(
            "multi-publisher",
            "many publish at random moments ([J] 4.2)",
            multi_publisher,
            {"nodes": 64},
            takes=("subscribers", "publishers", "messages", "span"),
        ),
        Scenario(
            "discussion",
            "a first message, and everyone answers after reading it ([J] 4.3)",
            discussion,
            {"nodes": 64},
            takes=("subscribers", "span", "wait"),
        ),
        Scenario(
            "question-answer",
            "questions, each answered at once by another subscriber",
            question_answer,
            {"nodes": 8, "messages": 100, "span": 10_000},
            takes=("subscribers", "messages", "span"),
        ),
        Scenario(
            "churn",
            "publications while subscribers leave and others join ([J] 4.5)",
            churn,
            {
                "nodes": 64,
                "subscribers": 0.5,
                "messages": 200,
                "changes": 20,
                "span": 20_000,
            },
            takes=("subscribers", "messages", "span", "changes"),
        ),
        Scenario(
            "turnover",
            "some publish once while up to 5 % of the nodes change every 100 u.t. ([B] 6)",
            plan_turnover,
            {"nodes": 64, "publishers": 0.25, "network": "service"},
            takes=("subscribers", "publishers", "span"),
        ),
        Scenario(
            "topics",
            "everyone publishes to many topics, some more popular than others ([J] 4.4)",
            plan_topics,
            {"nodes": 64, "topics": 32, "messages": 512, "every": 500},
            takes=("subscribers", "messages", "topics", "skew", "every", "spread"),
        ),
        Scenario(
            "speakers",
            "subscribers drawn at random publish, one after the other ([J] 4.6)",
            plan_speakers,
            {"nodes": 64, "messages": 128, "every": 500},
            takes=("messages", "every"),
        ),
        Scenario(
            "sessions",
            "subscribers stay for a while and are replaced when they leave ([J] 4.5)",
            plan_sessions,
            {"nodes": 64, "subscribers": 0.75, "span": 60_000, "every": 500, "session": 30_000},
            takes=("subscribers", "span", "every", "session", "at_once"),
        ),
        Scenario(
            "exchange",
            "some subscribers leave and as many join as a publisher begins to speak ([S] Table II)",
            plan_exchange,
            {"nodes": 64, "subscribers": 0.75, "messages": 64, "changes": 6},
            takes=("subscribers", "messages", "changes"),
        ),
        Scenario(
            "stream",
            "one subscriber publishes much at once, in batches",
            plan_stream,
            {"nodes": 16, "messages": 512, "batch": 1},
            takes=("subscribers", "messages", "batch"),
        ),
        Scenario(
            "storm",
            "joins, leaves, loss, duplication, reordering, partitions: all drawn from the seed",
            plan_storm,
            {"nodes": 8, "network": "uniform", "low": 1, "high": 30},
            draw=draw_storm,
        ),
        Scenario(
            "laggards",
            "subscribers that stop for a while: leaves, suspension, gaps; all drawn from the seed",
            plan_laggards,
            {"nodes": 8, "network": "uniform", "low": 1, "high": 30},
            draw=draw_laggards,
        ),
        Scenario(
            "pattern-storm",
            "a storm over topics that come into being while nodes follow patterns",
            plan_pattern_storm,
            {"nodes": 8, "network": "uniform", "low": 1, "high": 30},
            draw=draw_storm,
        ),
    )
}
