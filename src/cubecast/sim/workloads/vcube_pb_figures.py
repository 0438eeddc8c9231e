"""Figures 3, 4 and 5 of [B] (VCube-PB), point by point.

`bench/bench_figures_b.py` prints them beside the paper's numbers; docs/deviations.md has the table.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import NodeId
from cubecast.sim.params import Params
from cubecast.sim.protocols import roots
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import Scenario
from cubecast.sim.workloads.subscriber_turnover import TOPIC, plan_turnover
from cubecast.sim.world import World

LAYOUTS = ("all", "neighbours", "levels", "25 %", "50 %")
"""The subscribers, apart from the publisher, in Figure 3."""


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


def figure_3(layout: str, nodes: int, seed: int) -> Outcome:
    """One message of one publisher, where a hop takes one u.t. and nothing waits.

    So latencies are hops from the publisher to its subscribers.
    """

    def plan(world: World, params: Params, rng: Random) -> None:
        publisher = rng.randrange(nodes)
        world.establish(TOPIC, sorted([publisher, *subscribers(layout, publisher, nodes, rng)]))
        world.publish(publisher, TOPIC)

    hops = Params(nodes=nodes, network="uniform", low=1, high=1)
    scenario = Scenario(f"figure-3/{layout}/{nodes}", "one message ([B] Figure 3)", plan)
    return run(scenario, "vcube-pb", hops, seed, checked=False)


def figure_4(
    protocol: str,
    nodes: int,
    seed: int,
    *,
    publishers: float = 0.25,
    serve_acks: bool = False,
    serve_members: bool = False,
    root_publishes: bool = False,
) -> Outcome:
    """All nodes subscribe; some publish once within 1000 u.t.; up to 5 % change per 100 u.t.

    The root of the fixed tree is one node, drawn by the seed.  Unless `root_publishes` it is no
    publisher, under any protocol: "a publisher sends its message to that node".  Publications and
    their way to the root take a turn at a node.  News of subscribers does not (VCube-PB has it from
    an oracle, the fixed tree by messages to its root), nor do ACKs, unless `serve_members` or
    `serve_acks` say so.
    """
    free = (() if serve_acks else ("ack",)) + (() if serve_members else ("sub", "uns"))
    params = Params(nodes=nodes, publishers=publishers, network="service", free=free)
    name = f"figure-4/{nodes}"
    root_of = roots("fixed-tree", params, f"{name}/{seed}")
    assert root_of is not None
    silent = None if root_publishes else root_of(TOPIC)

    def plan(world: World, params: Params, rng: Random) -> None:
        plan_turnover(world, params, rng, silent)

    scenario = Scenario(name, "members change ([B] Figures 4 and 5)", plan)
    return run(scenario, protocol, params, seed, look="closely", checked=False)
