"""Storms over topics that come into being while some nodes follow patterns.

The faults are those of `cubecast.sim.workloads.storm`.  A topic exists from its first publication
or subscription on, by any node.  Followers open, close and reopen overlapping patterns meanwhile,
subscribe to single topics as well, and publish like all others.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.protocols import ProtocolChoiceError
from cubecast.sim.workloads.storm import ACTIVE, Chatter
from cubecast.sim.world import World

TOPICS: tuple[Topic, ...] = ("a", "a/x", "a/y", "a/x/deep", "b/x", "b/y", "/x", "$s/x")
PATTERNS = ("#", "a/+", "a/#", "+/x", "$s/#", "+/x/#")


def plan_pattern_storm(world: World, params: Params, rng: Random) -> None:
    """Plan publications to any topic, single subscriptions, and patterns that open and close."""
    if not hasattr(world.processes[0], "follow"):
        raise ProtocolChoiceError(
            f"{world.processes[0].label} has no patterns to follow: use cubecast"
        )
    nodes = range(params.nodes)
    for topic in rng.sample(TOPICS, rng.choice([0, 1, 2])):
        world.establish(topic, [node for node in nodes if rng.random() < 0.5])
    world.application = Chatter(rng, answers=params.messages // 2)
    followers = [node for node in nodes if rng.random() < 0.5] or [rng.choice(nodes)]

    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        world.publish(node, topic)

    for _ in range(params.messages):
        world.post(rng.randrange(ACTIVE), publish, rng.choice(nodes), rng.choice(TOPICS))
    for node in followers:
        _plan_patterns(world, node, rng)
    _plan_changes(world, params, rng, followers)


def _plan_patterns(world: World, node: NodeId, rng: Random) -> None:
    """Open one or two patterns; close some of them, and open some of these again."""

    def follow(node: NodeId, pattern: str, now: Time) -> None:
        world.follow(node, pattern)

    def unfollow(node: NodeId, pattern: str, now: Time) -> None:
        world.unfollow(node, pattern)

    for pattern in rng.sample(PATTERNS, rng.choice([1, 1, 2])):
        at = rng.randrange(ACTIVE // 2)
        world.post(at, follow, node, pattern)
        if rng.random() < 0.4:
            at += rng.randrange(1, 1000)
            world.post(at, unfollow, node, pattern)
            if rng.random() < 0.6:
                world.post(at + rng.randrange(1, 1000), follow, node, pattern)


def _plan_changes(world: World, params: Params, rng: Random, followers: list[NodeId]) -> None:
    """Plan single subscriptions; those of a follower stay until a pattern takes them with it."""

    def change(node: NodeId, topic: Topic, now: Time) -> None:
        if not world.wants(node, topic):
            world.subscribe(node, topic)
        elif node not in followers:
            world.unsubscribe(node, topic)

    for _ in range(params.changes):
        node, topic = rng.randrange(params.nodes), rng.choice(TOPICS)
        world.post(rng.randrange(ACTIVE), change, node, topic)
