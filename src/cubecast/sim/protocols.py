"""The protocols a simulation can run, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, TypeAlias, cast

from cubecast.baselines import BestEffort, BrokerTree, FixedTree, Flood, SingleRoot, ToldTree
from cubecast.baselines.brokers import broker_ids
from cubecast.plugins import PluginError, Registry
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Who, genesis
from cubecast.protocol.paper.vcube_pb import VCubePB
from cubecast.protocol.paper.vcube_ps import VCubePS
from cubecast.protocol.paper.whole_views import WholeViews
from cubecast.protocol.port import MemberPort, NodeId, Port, Process, Time, Topic
from cubecast.sim.codec import MessageFormat, WireCodec
from cubecast.sim.crashes.vcube_top import VCubeTop
from cubecast.sim.params import Params

if TYPE_CHECKING:
    from cubecast.sim.crashes.mortal_world import MakeLife

MakeProcess: TypeAlias = Callable[[NodeId, Port], Process]
MakeProtocol: TypeAlias = Callable[[Params, str], MakeProcess]
"""From the parameters of a run and a seed to how the process of each node is made."""

PROTOCOLS: dict[str, str] = {
    "cubecast": "the production protocol: causal, repairs loss, survives joins and leaves",
    "vcube-ps": "VCube-PS as printed ([J] Algorithms 1 and 2), flaws included",
    "vcube-pb": "VCube-PB ([B] Algorithms 5.1-5.3): reliable under crashes that are all detected",
    "best-effort": "the same trees, delivered as it comes: no order, no repair",
    "srpt": "SRPT-S, one root per topic and forwarders, like Scribe ([J] 4)",
    "srpt-b": "a tree of brokers per topic, each with subscribers of its own ([J] 4.6)",
    "srpt-told": "SRPT-S, and the root tells all nodes of joins and leaves ([J] 4.5)",
    "fixed-tree": "one root per topic, subscribers only, causal barriers ([B] 6)",
}
SINGLE_ROOT = {
    "srpt": SingleRoot,
    "srpt-told": ToldTree,
    "srpt-b": BrokerTree,
    "fixed-tree": FixedTree,
}


class ProtocolChoiceError(ValueError):
    """No such protocol, or it cannot run with these parameters."""


def maker(name: str, params: Params, seed: str) -> MakeProcess:
    """How to make the process of each node; `seed` draws the protocol's random choices."""
    return protocol_named(name)(params, seed)


def protocol_named(name: str) -> MakeProtocol:
    """A protocol of ours, of an installed package or of a module ("module:object")."""
    try:
        return MAKERS[name]
    except KeyError:
        raise ProtocolChoiceError(
            f"unknown protocol {name!r}; there are: {', '.join(MAKERS)}, "
            "or one of your own as module:object"
        ) from None
    except PluginError as error:
        raise ProtocolChoiceError(f"protocol {error}") from None


def _cubecast(params: Params, seed: str) -> MakeProcess:
    cluster = (1 << params.nodes) - 1
    config = params.config()
    return lambda node, port: CubecastNode(node, port, cluster=cluster, config=config)


def _vcube_pb(params: Params, seed: str) -> MakeProcess:
    top = VCubeTop(params.round_trip())
    return lambda node, port: VCubePB(node, port, nodes=params.nodes, top=top)


def _vcube_ps(params: Params, seed: str) -> MakeProcess:
    kind = WholeViews if params.whole_views else VCubePS
    return lambda node, port: kind(node, port, nodes=params.nodes)


def _best_effort(params: Params, seed: str) -> MakeProcess:
    return lambda node, port: BestEffort(node, port, nodes=params.nodes)


def _rooted(name: str, kind: type[SingleRoot] | type[FixedTree]) -> MakeProtocol:
    def make(params: Params, seed: str) -> MakeProcess:
        root_of = _certain_roots(name, params, seed)
        return lambda node, port: kind(node, port, nodes=params.nodes, root_of=root_of)

    return make


def _srpt_b(params: Params, seed: str) -> MakeProcess:
    root_of = _certain_roots("srpt-b", params, seed)
    brokers = params.broker_count()
    return lambda node, port: BrokerTree(
        node, port, nodes=params.nodes, brokers=brokers, root_of=root_of
    )


MAKERS: Registry[MakeProtocol] = Registry(
    "cubecast.protocols",
    {
        "cubecast": _cubecast,
        "vcube-ps": _vcube_ps,
        "vcube-pb": _vcube_pb,
        "best-effort": _best_effort,
        "srpt": _rooted("srpt", SingleRoot),
        "srpt-b": _srpt_b,
        "srpt-told": _rooted("srpt-told", ToldTree),
        "fixed-tree": _rooted("fixed-tree", FixedTree),
    },
)
"""How each protocol makes its processes, by name; a user's own trees begin at publishers."""


def refuse_impossible(name: str, params: Params) -> None:
    """Raise an error for parameters that a protocol cannot run with.

    SRPT-S forwards through nodes that do not subscribe, so that every id of the cube exists.
    """
    whole = 1 << (params.nodes - 1).bit_length()
    if name in ("srpt", "srpt-told") and params.nodes != whole:
        raise ProtocolChoiceError(
            f"srpt forwards through any id, so nodes must be a power of two: "
            f"{whole}, not {params.nodes}"
        )
    if name == "srpt-b" and params.broker_count() > params.nodes:
        raise ProtocolChoiceError(
            f"brokers are nodes, so there are at most {params.nodes}, not {params.broker_count()}"
        )


MORTAL: dict[str, str] = {
    "cubecast": "the production protocol with agreed views",
    "flood": "to all nodes, delivered as it comes: no order, no repair, no views",
}
"""The protocols whose nodes may crash and restart, by name."""

ANY_SLOT = -1
NODES_APART = 1 << 10
LIVES_APART = 1 << 20
"""A node that was excluded takes the next incarnation; its next process begins so much higher, and
where slots may change hands, so does the next node."""


@dataclass(frozen=True, slots=True)
class Mortality:
    """How to make the lives of nodes, and how long the protocol needs to agree on the members."""

    make: MakeLife
    recovery: Time = 0
    """Time after the end of the faults within which a node that is gone is known to be gone, an
    excluded node that lives is found, and all nodes that reach each other have agreed on that."""
    codec: Callable[[], MessageFormat] | None = None
    """The format that its messages cross between live nodes, if there is one."""


def mortality(name: str, params: Params) -> Mortality:
    """How nodes of a protocol live and die; `ProtocolChoiceError` for one that cannot."""
    match name:
        case "cubecast":
            return members(params)
        case "flood":
            return Mortality(lambda node, port, life: Flood(node, port, life, params.nodes))
    known = ", ".join(MORTAL)
    raise ProtocolChoiceError(f"nodes of {name!r} cannot crash and restart; those of {known} can")


def answer_after(params: Params) -> Time:
    """How long a leader waits for reports; so long it may take until it is heard to lead."""
    return 12 * params.round_trip()


def members(params: Params, kind: type[Member] = Member) -> Mortality:
    """Nodes of the production protocol, with delays that fit the network.

    Nodes that are not there at the beginning take any slot that is free, and so does a leader that
    was mute.  Lives are numbered apart, so no two nodes publish one stream.
    """
    round_trip = params.round_trip()
    config = params.config()
    mute_after = max(140 * round_trip, 4 * config.resend_max)
    config = replace(config, mute_after=mute_after)  # beyond `deaf_after` and long cuts of links
    detector = DetectorConfig(
        test_every=4 * round_trip,
        suspect_min=8 * round_trip,
        suspect_max=20 * round_trip,
        deaf_after=40 * round_trip,
    )
    epochs = AgreementConfig(
        answer_after=answer_after(params),
        repeat_after=3 * round_trip,
        beacon_every=16 * round_trip,
        enter_every=4 * round_trip,
        alone_after=100 * round_trip,
        absent_for=max(2_000_000, 1_000 * round_trip),
    )
    nodes = range(params.nodes)
    later = frozenset(params.later)
    first = genesis(
        {
            node: Who(f"{node}-0", str(node), node * NODES_APART)
            for node in nodes
            if node not in later
        }
    )

    def make(node: NodeId, port: Port, life: int) -> Process:
        return kind(
            ANY_SLOT if node in later else node,
            cast(MemberPort, port),
            view=None if life else first,
            who=Who(f"{node}-{life}", str(node), life * LIVES_APART + node * NODES_APART),
            config=config,
            epochs=epochs,
            detector=detector,
            seeds=[str(other) for other in nodes if other != node] if life else (),
        )

    return Mortality(make, recovery_of(detector, epochs, params.nodes), WireCodec)


def recovery_of(detector: DetectorConfig, epochs: AgreementConfig, nodes: int) -> Time:
    """How long the production protocol needs to agree on the members.

    A death is noticed `deaf_after` after its last round of tests at the latest; a change of the
    view takes two ballots; an excluded node hears of the others with the next beacon and asks each
    in turn for a place; if all of these are gone it goes on alone and is found as such.
    """
    noticed = detector.deaf_after + 2 * detector.test_every
    agreed = 2 * (epochs.answer_after + 4 * epochs.repeat_after)
    found = epochs.beacon_every + nodes * epochs.enter_every + epochs.alone_after
    return noticed + agreed + found


def _certain_roots(name: str, params: Params, seed: str) -> Callable[[Topic], NodeId]:
    found = roots(name, params, seed)
    assert found is not None, "a tree has a root"
    return found


def roots(name: str, params: Params, seed: str) -> Callable[[Topic], NodeId] | None:
    """The root of each topic, drawn by the seed; None if publishers are roots.

    It is one of all nodes, of srpt-b one of the brokers.
    """
    if name not in SINGLE_ROOT:
        return None
    candidates: Sequence[NodeId] = range(params.nodes)
    if name == "srpt-b":
        candidates = broker_ids(params.nodes, params.broker_count())

    @cache
    def root_of(topic: Topic) -> NodeId:
        return candidates[Random(f"{seed}/{topic}/root").randrange(len(candidates))]

    return root_of
