"""A run as data: subscribers, publications and answers.

A `Plan` is made from a scenario of the simulator by letting the scenario's own function plan its
run in a `Planner`, which looks like a `World` and only records.  So all chance of the scenario is
drawn by the same code, and in the same order, as in the reference.  Scenarios in which
membership changes, or whose applications are not known here, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, cast

import numpy as np

from cubecast.kernel.errors import KernelError
from cubecast.kernel.shared.arrays import Bytes, Longs
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.scenarios import Discussion, QuestionAnswer, Scenario
from cubecast.sim.world import Handler, Turns, World

NOBODY = -1


@dataclass(slots=True)
class Plan:
    """Subscribers and publications of a run on static membership."""

    nodes: int
    topics: list[Topic] = field(default_factory=list)
    members: list[Bytes] = field(default_factory=list)
    """The subscribers of each topic, a byte per node."""
    publications: list[tuple[Time, NodeId, int, NodeId]] = field(default_factory=list)
    """Time, publisher, topic, answering node (or `NOBODY`), in the order of time."""
    turns: dict[NodeId, list[tuple[Time, int]]] = field(default_factory=dict)
    """Further publications of a node, in turn: how long after its previous one has left, and the
    topic."""
    turns_take: Time = 0
    """The longest time that a node's turns take if its publications leave at once."""
    answer_after: int = 0
    """0: no discussion.  Else all nodes not `silent` answer once, after so many deliveries."""
    think: Longs | None = None
    """How long each node waits before it answers."""
    silent: Bytes | None = None

    def most_messages(self) -> list[int]:
        """The most publications of each topic, answers included."""
        counts = [0] * len(self.topics)
        for _, _, topic, answerer in self.publications:
            counts[topic] += 1 if answerer == NOBODY else 2
        for turns in self.turns.values():
            for _, topic in turns:
                counts[topic] += 1
        if self.silent is not None:
            for topic, members in enumerate(self.members):
                counts[topic] += int(np.count_nonzero(members & (1 - self.silent)))
        return counts

    def outsiders(self) -> list[NodeId]:
        """Publishers that do not subscribe to a topic of theirs."""
        publishing = [(node, topic) for _, node, topic, _ in self.publications]
        publishing += [(node, topic) for node, turns in self.turns.items() for _, topic in turns]
        return [node for node, topic in publishing if not self.members[topic][node]]


class Planner:
    """Stands in for a `World` while a scenario plans."""

    def __init__(self, nodes: int) -> None:
        self.processes = range(nodes)
        self.application: object = None
        self.now: Time = 0
        self.plan = Plan(nodes)
        self._numbers: dict[Topic, int] = {}
        self._posted: list[tuple[Time, int, Handler, Any, Any]] = []
        self._count = 0

    def establish(self, topic: Topic, members: Sequence[NodeId]) -> None:
        if topic in self._numbers:
            raise KernelError(f"the kernel cannot establish {topic!r} twice")
        self._numbers[topic] = len(self.plan.topics)
        flags = np.zeros(self.plan.nodes, np.uint8)
        flags[np.asarray(members, np.int64)] = 1
        self.plan.topics.append(topic)
        self.plan.members.append(flags)

    def post(self, at: Time, handler: Handler, a: Any = None, b: Any = None) -> None:
        heappush(self._posted, (at, self._count, handler, a, b))
        self._count += 1

    def publish(
        self, node: NodeId, topic: Topic, reply_to: tuple[int, ...] = (), size: int = 1
    ) -> int:
        self.plan.publications.append((self.now, node, self._number(topic), NOBODY))
        return len(self.plan.publications) - 1

    def take_turns(self, node: NodeId, turns: Turns) -> None:
        """Plan the first turn; each further one is an event that the one before causes."""
        plan = self.plan
        plan.turns[node] = [(gap, self._number(topic)) for gap, topic in turns[1:]]
        plan.turns_take = max(plan.turns_take, sum(gap for gap, _ in turns))
        for gap, topic in turns[:1]:
            self.post(self.now + gap, self._take_turn, node, topic)

    def _take_turn(self, node: NodeId, topic: Topic, now: Time) -> None:
        self.publish(node, topic)

    def _number(self, topic: Topic) -> int:
        if topic not in self._numbers:
            raise KernelError(f"the kernel needs topic {topic!r} to be established")
        return self._numbers[topic]

    def register(self, node: NodeId, topic: Topic) -> None:
        """Do nothing for publishers that do not subscribe: any node may publish."""

    def subscribe(self, node: NodeId, topic: Topic, lossy: bool = False) -> None:
        raise KernelError("the kernel has static membership only: use the reference")

    def unsubscribe(self, node: NodeId, topic: Topic) -> None:
        raise KernelError("the kernel has static membership only: use the reference")

    def carry_out(self) -> None:
        """Run all posted events, in order of time."""
        while self._posted:
            at, _, handler, a, b = heappop(self._posted)
            self.now = at
            handler(a, b, at)

    def adopt_application(self) -> None:
        """Record which nodes answer which messages."""
        plan = self.plan
        match self.application:
            case None:
                pass
            case Discussion() as talk:
                plan.answer_after = talk.wait
                plan.think = np.array(talk.think, np.int64)
                plan.silent = np.array(talk.answered, np.uint8)
            case QuestionAnswer() as questions:
                for ident, node in questions.answerer.items():
                    time, asker, topic, _ = plan.publications[ident]
                    plan.publications[ident] = (time, asker, topic, node)
            case other:
                raise KernelError(
                    f"the kernel knows no application {type(other).__name__!r}: use the reference"
                )


def plan_of(scenario: Scenario, params: Params, seed: int) -> Plan:
    """The plan of a scenario, drawn as `cubecast.sim.run` draws it."""
    if scenario.draw is not None or scenario.mortal:
        raise KernelError(f"the kernel cannot run {scenario.name!r}: use the reference")
    rng = Random(f"{scenario.name}/{seed}")
    planner = Planner(params.nodes)
    scenario.plan(cast(World, planner), params, rng)
    planner.carry_out()
    planner.adopt_application()
    return planner.plan
