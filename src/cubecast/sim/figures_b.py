"""Figures 3, 4 and 5 of [B] (VCube-PB), point by point.

`bench/bench_figures_b.py` prints them beside the paper's numbers; docs/deviations.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from cubecast.protocol.port import NodeId
from cubecast.sim.networks import ServiceRate, Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import maker, roots
from cubecast.sim.turnover import TOPIC, plan_turnover
from cubecast.sim.watching import WatchedWorld
from cubecast.sim.world import World

LAYOUTS = ("all", "neighbours", "levels", "25 %", "50 %")
"""Who subscribes, apart from the publisher, in Figure 3."""


def subscribers(layout: str, publisher: NodeId, nodes: int, rng: Random) -> list[NodeId]:
    """The subscribers of one layout; `nodes` is a power of two.

    "levels" is "the first node of each level of the tree".  If the children of a node are read
    from the largest cluster down, these are a chain: each is the child of the one before.  (From
    the smallest up they would all be children of the publisher, and take one hop.)
    """
    others = [node for node in range(nodes) if node != publisher]
    bits = [1 << s for s in range(nodes.bit_length() - 1)]
    match layout:
        case "all":
            return others
        case "neighbours":
            return [publisher ^ bit for bit in bits]
        case "levels":
            mask = 0
            chain = []
            for bit in reversed(bits):
                mask |= bit
                chain.append(publisher ^ mask)
            return chain
        case "25 %" | "50 %":
            share = int(layout.split()[0]) / 100
            return rng.sample(others, max(1, round(share * nodes)))
    raise ValueError(f"no such layout: {layout!r}; there are: {', '.join(LAYOUTS)}")


@dataclass(frozen=True, slots=True)
class Hops:
    """Hops from the publisher to its subscribers."""

    mean: float
    most: float


def figure_3(layout: str, nodes: int, seed: int) -> Hops:
    """One message of one publisher, where a hop takes one u.t. and nothing waits."""
    rng = Random(f"figure-3/{layout}/{nodes}/{seed}")
    publisher = rng.randrange(nodes)
    members = [publisher, *subscribers(layout, publisher, nodes, rng)]
    params = Params(nodes=nodes)
    world = World(nodes, maker("vcube-pb", params, ""), Uniform(rng, 1, 1))
    world.establish(TOPIC, sorted(members))
    world.publish(publisher, TOPIC)
    world.run()
    metrics = world.meter.summary()
    assert metrics["deliveries"] == len(members) - 1
    return Hops(metrics["latency_mean"], metrics["latency_max"])


@dataclass(frozen=True, slots=True)
class Point:
    """One run of one protocol in the setting of Figure 4."""

    latency: float
    """Mean time from the publish call to delivery, at the others."""
    deliveries: int
    blocked: int
    """Messages that newcomers hold back for ever (hole 1)."""
    reception: float
    """Mean time from the publish call to reception, at the others."""
    publications: int
    dependent: int
    """Publications by nodes that had delivered another before."""
    delayed: int
    """Deliveries that had to wait for a predecessor ([B] Figure 5)."""
    delayed_messages: int
    """Publications that had to wait for a predecessor somewhere."""


def figure_4(
    protocol: str,
    nodes: int,
    seed: int,
    *,
    publishers: float = 0.25,
    serve_acks: bool = False,
    serve_members: bool = False,
    root_publishes: bool = False,
) -> Point:
    """Everyone subscribes; some publish once within 1000 u.t.; up to 5 % change per 100 u.t.

    The root of the fixed tree is one node, drawn by the seed.  Unless `root_publishes` it is no
    publisher, under any protocol: "a publisher sends its message to that node".  Publications and
    their way to the root take a turn at a node.  News of members does not (VCube-PB has them from
    an oracle, the fixed tree by messages to its root), nor do ACKs, unless `serve_members` or
    `serve_acks` say so.
    """
    name = f"figure-4/{nodes}/{seed}"
    params = Params(nodes=nodes, publishers=publishers, network="service")
    root_of = roots("fixed-tree", params, name)
    assert root_of is not None
    free = [] if serve_acks else ["ack"]
    free += [] if serve_members else ["sub", "uns"]
    network = ServiceRate(Random(f"{name}/delays"), free=free)
    world = WatchedWorld(
        nodes,
        maker(protocol, params, name),
        network,
        root_of=root_of if protocol == "fixed-tree" else None,
    )
    plan_turnover(world, params, Random(name), None if root_publishes else root_of(TOPIC))
    world.run()
    metrics = world.meter.summary()
    blocked = sum(process.load().held for process in world.processes)
    delays = world.histograms["delay"]
    return Point(
        metrics["latency_mean"],
        int(metrics["deliveries"]),
        blocked,
        metrics["reception_mean"],
        int(metrics["publications"]),
        world.dependent,
        delays.total() - delays[0],
        len(world.delayed),
    )
