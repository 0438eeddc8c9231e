"""[J] 4.4 and 4.6: the publisher of each message is drawn, and in 4.4 also its topic.

`topics` ([J] 4.4): every node subscribes to every topic.  There are `messages` messages in all,
shared out evenly: a node has as many as the others or one more.  It publishes the first within
`every` u.t., and each further one `every` on average after its previous one has left it; that time
is uniform on `every` · [1 - `spread`, 1 + `spread`].  A message chooses its topic by Zipf's law
with exponent `skew` (0: uniformly), so publishers share the load evenly and topics may not.

The paper says "on average every 500 u.t." and no more.  That a node counts from when its message
*leaves* is our reading, and the one that gives the printed number.  VCube-PS lets a message wait
for the ACKs of its publisher's previous one of that topic, which popular topics make frequent; if
nodes went on publishing meanwhile, Zipf's law would cost VCube-PS twice what is printed.

`speakers` ([J] 4.6): one topic; after a time uniform on [0, 2 · every] comes the next message, by a
subscriber drawn anew.  All nodes subscribe except brokers, if the protocol has any.
"""

from __future__ import annotations

from bisect import bisect
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
    """Draw the turns of every node; membership is static."""
    members = params.draw_members(rng)
    topics: list[Topic] = [f"t{number}" for number in range(max(1, params.topics))]
    for topic in topics:
        world.establish(topic, members)
    chooser = Chooser(zipf_weights(len(topics), params.skew))
    each, rest = divmod(params.messages, len(members))
    lucky = set(rng.sample(members, rest))
    for node in members:
        turns: list[tuple[Time, Topic]] = []
        for number in range(each + (node in lucky)):
            share = rng.uniform(1 - params.spread, 1 + params.spread) if number else rng.random()
            turns.append((round(share * params.every), topics[chooser.draw(rng)]))
        world.take_turns(node, turns)


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
