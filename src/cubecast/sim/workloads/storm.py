"""Storms: random runs in which all faults of links and all actions of nodes happen at once.

The seed draws the number of nodes, the faults, the protocol's own delays and the script; replaying
a seed replays the run.  A storm ends well if every checker is content and every process is at
rest with nothing kept.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.faults import Partition, Pause
from cubecast.sim.params import ParamError, Params
from cubecast.sim.protocols import ProtocolChoiceError
from cubecast.sim.world import World

ACTIVE: Time = 4000
"""Commands are given during this time; after it links only lose messages at random."""
CLOSED = frozenset({"vcube-ps", "vcube-pb", "best-effort"})
"""Labels of protocols that refuse publications of nodes that neither subscribe nor register."""


def draw_storm(params: Params, rng: Random) -> Params:
    """Choose faults and delays; the number of nodes is given, or below it where it is small."""
    nodes = params.nodes
    if nodes < 2:
        raise ParamError(f"a storm needs at least 2 nodes, not {nodes}")
    if nodes <= 8:
        nodes = rng.choice([size for size in (2, 3, 3, 4, 4, 5, 6, 7, 8, 8) if size <= nodes])
    drawn = params.with_(
        {
            "nodes": nodes,
            "loss": rng.choice([0.0, 0.05, 0.2]),
            "duplicate": rng.choice([0.0, 0.1]),
            "reorder": rng.choice([0.0, 0.3]),
            "spike": rng.choice([0.0, 0.02]),
            "partitions": tuple(
                _draw_partition(nodes, rng) for _ in range(rng.choice([0, 0, 1, 2]))
            ),
            "window": rng.choice([1, 2, 4, 64]),
            "ack_delay": rng.choice([0, 5, 20]),
            "stable_delay": rng.choice([0, 50, 300]),
            "resend_after": rng.choice([100, 300]),
            "patience": 2,
            "messages": rng.randint(5, 60),
            "changes": rng.randint(0, 12),
        }
    )
    # One storm in four has slow applications, chosen without a draw of its own.
    return drawn.with_({"consume_after": 150 if drawn.messages % 4 == 0 else 0})


def _draw_partition(nodes: int, rng: Random) -> Partition:
    start = rng.randrange(ACTIVE)
    return Partition(start, start + rng.randint(100, 6000), rng.randrange(1, 1 << nodes))


class Chatter:
    """Answers some of the delivered messages at once, which makes causal chains."""

    def __init__(self, rng: Random, answers: int) -> None:
        self._rng = rng
        self._answers = answers

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        if self._answers and self._rng.random() < 0.1 and may_publish(world, node, topic):
            self._answers -= 1
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Do nothing on a completed subscription."""


def may_publish(world: World, node: NodeId, topic: Topic) -> bool:
    """Whether the protocol takes a publication of this node now."""
    return world.processes[node].label not in CLOSED or world.is_subscribed(node, topic)


def plan_storm(world: World, params: Params, rng: Random) -> None:
    """Plan `messages` publications by anyone and `changes` joins and leaves, over two topics."""
    topics: list[Topic] = ["t"] if rng.random() < 0.8 else ["t", "u"]
    nodes = range(params.nodes)
    wanted: dict[tuple[NodeId, Topic], bool] = {}
    for topic in topics:
        members = [node for node in nodes if rng.random() < 0.6]
        world.establish(topic, members)
        wanted.update({(node, topic): node in members for node in nodes})

    def publish(node: NodeId, topic: Topic, now: Time) -> None:
        if may_publish(world, node, topic):
            world.publish(node, topic)

    def change(node: NodeId, topic: Topic, now: Time) -> None:
        if wanted[node, topic]:
            world.unsubscribe(node, topic)
        else:
            world.subscribe(node, topic)
        wanted[node, topic] = not wanted[node, topic]

    world.application = Chatter(rng, answers=params.messages // 2)
    for _ in range(params.messages):
        world.post(rng.randrange(ACTIVE), publish, rng.randrange(params.nodes), rng.choice(topics))
    for _ in range(params.changes):
        world.post(rng.randrange(ACTIVE), change, rng.randrange(params.nodes), rng.choice(topics))


def draw_laggards(params: Params, rng: Random) -> Params:
    """Choose pauses and delays for a run in which some subscribers stop for a while."""
    if params.nodes < 2:
        raise ParamError(f"laggards need at least 2 nodes, not {params.nodes}")
    nodes = rng.randint(min(3, params.nodes), params.nodes)
    pauses = []
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(500, ACTIVE)
        pauses.append(Pause(rng.randrange(nodes), start, start + rng.randint(300, 4000)))
    return params.with_(
        {
            "nodes": nodes,
            "loss": rng.choice([0.0, 0.0, 0.05, 0.2]),
            "duplicate": rng.choice([0.0, 0.1]),
            "reorder": rng.choice([0.0, 0.3]),
            "pauses": tuple(pauses),
            "window": rng.choice([1, 2, 4, 16]),
            "ack_delay": rng.choice([0, 5]),
            "stable_delay": rng.choice([0, 50, 300]),
            "resend_after": rng.choice([60, 150]),
            "patience": rng.choice([1, 1, 2]),
            "messages": rng.randint(50, 200),
            "changes": rng.choice([0, 0, 4]),
        }
    )


def is_lossy(node: NodeId) -> bool:
    """Whether a node of a laggard storm is lossy: every second one is."""
    return node % 2 == 1


def plan_laggards(world: World, params: Params, rng: Random) -> None:
    """All subscribe; two nodes publish most of `messages`; a few leave and come back."""
    topic: Topic = "t"
    nodes = range(params.nodes)
    if not hasattr(world.processes[0], "is_lossy"):
        raise ProtocolChoiceError(f"{world.processes[0].label} has no lossy nodes: use cubecast")
    world.establish(topic, [node for node in nodes if not is_lossy(node)])
    wanted = dict.fromkeys(nodes, True)

    def subscribe(node: NodeId, _: None, now: Time) -> None:
        world.subscribe(node, topic, lossy=True)

    def publish(node: NodeId, _: None, now: Time) -> None:
        if world.awake(node, now) > now:
            world.post(world.awake(node, now), publish, node)
        else:
            world.publish(node, topic)

    def change(node: NodeId, _: None, now: Time) -> None:
        if world.awake(node, now) > now:
            return
        if wanted[node]:
            world.unsubscribe(node, topic)
        else:
            world.subscribe(node, topic, is_lossy(node))
        wanted[node] = not wanted[node]

    world.application = Chatter(rng, answers=params.messages // 4)
    for node in nodes:
        if is_lossy(node):
            world.post(rng.randrange(300), subscribe, node)
    busy = rng.sample(nodes, 2)
    for _ in range(params.messages):
        world.post(rng.randrange(ACTIVE), publish, rng.choice([*busy, *busy, rng.choice(nodes)]))
    for _ in range(params.changes):
        world.post(rng.randrange(1000, ACTIVE), change, rng.randrange(params.nodes))
