"""[J] 4.4 and 4.6: who publishes is drawn again and again, and maybe where to.

`topics` ([J] 4.4): everybody subscribes to every topic.  Nodes publish independently of each other,
each on average every `every` u.t., until there are `messages` messages in all.  A message chooses
its topic by Zipf's law with exponent `skew` (0: uniformly), so publishers share the load evenly and
topics may not.  The paper says no more of the time between two messages of a node; here it is
uniform on [0, 2 · every], as the times of [J] 4.2 are.

`speakers` ([J] 4.6): one topic, and one message every `every` u.t. on average, with the same law,
each by a subscriber drawn anew.  Everybody subscribes but the brokers, if the protocol has any.
"""

from __future__ import annotations

from bisect import bisect
from heapq import heapify, heapreplace
from itertools import accumulate
from random import Random

from cubecast.baselines.brokers import broker_ids
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.world import World

TOPIC: Topic = "t"


def zipf_weights(count: int, skew: float) -> list[float]:
    """The weights of ranks 1 … count: rank^-skew."""
    return [rank**-skew for rank in range(1, count + 1)]


class Chooser:
    """Draws an index by weight."""

    def __init__(self, weights: list[float]) -> None:
        self._sums = list(accumulate(weights))

    def draw(self, rng: Random) -> int:
        return bisect(self._sums, rng.random() * self._sums[-1], hi=len(self._sums) - 1)


def plan_topics(world: World, params: Params, rng: Random) -> None:
    """Plan all publications; membership is static."""
    members = params.draw_members(rng)
    topics: list[Topic] = [f"t{number}" for number in range(max(1, params.topics))]
    for topic in topics:
        world.establish(topic, members)
    chooser = Chooser(zipf_weights(len(topics), params.skew))

    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        world.publish(node, topic)

    due = [(rng.uniform(0, 2 * params.every), node) for node in members]
    heapify(due)
    for _ in range(params.messages):
        at, node = due[0]
        world.post(round(at), publish, node, topics[chooser.draw(rng)])
        heapreplace(due, (at + rng.uniform(0, 2 * params.every), node))


def plan_speakers(world: World, params: Params, rng: Random) -> None:
    """Plan all publications; membership is static."""
    brokers = broker_ids(params.nodes, params.brokers) if params.brokers else ()
    serving = set(brokers)
    members = [node for node in range(params.nodes) if node not in serving]
    world.establish(TOPIC, members)

    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        world.publish(node, topic)

    at = 0.0
    for _ in range(params.messages):
        at += rng.uniform(0, 2 * params.every)
        world.post(round(at), publish, rng.choice(members), TOPIC)
