"""The protocols a simulation can run, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from cubecast.baselines import BestEffort, FixedTree, SingleRoot
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Port, Process, Time, Topic
from cubecast.protocol.vcube_ps import VCubePS
from cubecast.sim.params import Params

if TYPE_CHECKING:
    from cubecast.sim.lives import MakeLife

MakeProcess: TypeAlias = Callable[[NodeId, Port], Process]

PROTOCOLS: dict[str, str] = {
    "cubecast": "the production protocol: causal, repairs loss, survives joins and leaves",
    "vcube-ps": "VCube-PS as printed ([J] Algorithms 1 and 2), flaws included",
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
        case "best-effort":
            return lambda node, port: BestEffort(node, port, nodes=params.nodes)
        case "srpt" | "fixed-tree":
            kind = SINGLE_ROOT[name]
            root_of = roots(name, params, seed)
            assert root_of is not None
            return lambda node, port: kind(node, port, nodes=params.nodes, root_of=root_of)
    raise ProtocolError(f"unknown protocol {name!r}; there are: {', '.join(PROTOCOLS)}")


MORTAL: dict[str, str] = {
    "cubecast": "the production protocol with agreed views",
}
"""The protocols whose nodes may crash and restart, by name."""


@dataclass(frozen=True, slots=True)
class Mortality:
    """How to make the lives of nodes, and how long the protocol needs to find out who is there."""

    make: MakeLife
    recovery: Time = 0
    """Faults have ended: within this long a node that is gone is known to be gone, or one that is
    out and lives is found, and all who can reach each other have agreed on that."""


def mortality(name: str, params: Params) -> Mortality:
    """How nodes of a protocol live and die; `ProtocolError` for one that cannot."""
    if name != "cubecast":
        known = ", ".join(MORTAL)
        raise ProtocolError(f"nodes of {name!r} cannot crash and restart; those of {known} can")
    try:
        member: Any = import_module("cubecast.protocol.member")
    except ImportError as error:
        raise ProtocolError("cubecast has no agreed views yet: its nodes cannot crash") from error
    everyone = (1 << params.nodes) - 1
    config = params.config()

    def make(node: NodeId, port: Port, life: int) -> Process:
        seeds = tuple(peer for peer in range(params.nodes) if peer != node) if life else ()
        cluster = 1 << node if life else everyone
        made: Process = member.Member(
            node, port, cluster=cluster, config=config, incarnation=life, seeds=seeds
        )
        return made

    return Mortality(make, RECOVERY_ROUND_TRIPS * params.round_trip())


RECOVERY_ROUND_TRIPS = 200
"""Until the production protocol states its own: suspicion, two ballots and a beacon."""


def roots(name: str, params: Params, seed: str) -> Callable[[Topic], NodeId] | None:
    """The root of each topic, drawn from all nodes by the seed; None if publishers are roots."""
    if name not in SINGLE_ROOT:
        return None

    @cache
    def root_of(topic: Topic) -> NodeId:
        return Random(f"{seed}/{topic}/root").randrange(params.nodes)

    return root_of
