"""The protocols a simulation can run, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import TypeAlias

from cubecast.baselines import BestEffort, FixedTree, SingleRoot
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Port, Process, Topic
from cubecast.protocol.vcube_pb import VCubePB
from cubecast.protocol.vcube_ps import VCubePS
from cubecast.sim.params import Params
from cubecast.sim.vcube_top import VCubeTop

MakeProcess: TypeAlias = Callable[[NodeId, Port], Process]

PROTOCOLS: dict[str, str] = {
    "cubecast": "the production protocol: causal, repairs loss, survives joins and leaves",
    "vcube-ps": "VCube-PS as printed ([J] Algorithms 1 and 2), flaws included",
    "vcube-pb": "VCube-PB ([B] Algorithms 5.1-5.3): reliable under crashes that are all detected",
    "best-effort": "the same trees, delivered as it comes: no order, no repair",
    "srpt": "SRPT-S, one root per topic and forwarders, like Scribe ([J] 4)",
    "fixed-tree": "one root per topic, subscribers only, causal barriers ([B] 6)",
}
SINGLE_ROOT = {"srpt": SingleRoot, "fixed-tree": FixedTree}


class ProtocolError(ValueError):
    """No such protocol, or it cannot run with these parameters."""


def maker(name: str, params: Params, seed: str) -> MakeProcess:
    """How to make the process of each node; `seed` draws what the protocol leaves to chance."""
    match name:
        case "cubecast":
            cluster = (1 << params.nodes) - 1
            config = params.config()
            return lambda node, port: CubecastNode(node, port, cluster=cluster, config=config)
        case "vcube-ps":
            return lambda node, port: VCubePS(node, port, nodes=params.nodes)
        case "vcube-pb":
            top = VCubeTop(params.round_trip())
            return lambda node, port: VCubePB(node, port, nodes=params.nodes, top=top)
        case "best-effort":
            return lambda node, port: BestEffort(node, port, nodes=params.nodes)
        case "srpt" | "fixed-tree":
            kind = SINGLE_ROOT[name]
            root_of = roots(name, params, seed)
            assert root_of is not None
            return lambda node, port: kind(node, port, nodes=params.nodes, root_of=root_of)
    raise ProtocolError(f"unknown protocol {name!r}; there are: {', '.join(PROTOCOLS)}")


def roots(name: str, params: Params, seed: str) -> Callable[[Topic], NodeId] | None:
    """The root of each topic, drawn from all nodes by the seed; None if publishers are roots."""
    if name not in SINGLE_ROOT:
        return None

    @cache
    def root_of(topic: Topic) -> NodeId:
        return Random(f"{seed}/{topic}/root").randrange(params.nodes)

    return root_of
