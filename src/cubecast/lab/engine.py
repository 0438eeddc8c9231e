"""Which engine does a run: the compiled kernel where it can, the protocol objects elsewhere.

Both give the same metrics and histograms for the same scenario, parameters and seed, so the choice
changes nothing but the time; `engine = "reference"` or `"kernel"` makes it for an experiment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from random import Random
from typing import Any

from cubecast.lab.cells import Settings
from cubecast.lab.workload import WorkloadError
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import MAX_NODES, ParamError, Params, WideParams
from cubecast.sim.protocols import ProtocolError, maker, refuse_impossible, roots
from cubecast.sim.run import few_collections
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.sim.watching import WatchedWorld
from cubecast.trace import Record

ENGINES = ("auto", "kernel", "reference")
NOT_PARAMS = ("workload", "engine", "protocol")
KERNEL_HAS = {
    "protocol": ("vcube-ps", "srpt", "fixed-tree", "srpt-b"),
    "network": ("queue", "service", "uniform"),
    "workload": ("single-publisher", "multi-publisher", "discussion", "topics", "speakers"),
}
"""What `cubecast.kernel` can run, of what the lab has."""
EXACT_BITS = 13
"""Values of so many bits are tallied exactly, larger ones rounded down to so many."""

KERNEL_RATE = 8_000_000.0
REFERENCE_RATE = 120_000.0
"""Messages sent per second, about: costs need be right only in proportion."""


@dataclass(frozen=True, slots=True)
class Run:
    """What either engine gives."""

    metrics: dict[str, float]
    histograms: dict[str, dict[int, int]]
    mean_queues: Sequence[float]
    """Mean size of each node's sending queue; none if the network has no queues."""
    records: Sequence[Record] = ()
    """Everything that happened, if that was asked for."""


def params_of(settings: Settings) -> Params:
    """The parameters of the simulator among the settings."""
    changes: dict[str, Any] = {
        name: value for name, value in settings.items() if name not in NOT_PARAMS
    }
    return WideParams().with_(changes)


@cache
def has_kernel() -> bool:
    """Whether the compiled kernel can be used here: it needs numba."""
    return find_spec("cubecast.kernel") is not None and find_spec("numba") is not None


def refusal(settings: Settings) -> str:
    """Why the kernel cannot do this run, or nothing; told without loading the kernel."""
    if not has_kernel():
        return "the kernel needs numba: pip install 'cubecast[lab]'"
    for name, known in KERNEL_HAS.items():
        if settings[name] not in known:
            return f"the kernel has no {name} {settings[name]!r}; it has: {', '.join(known)}"
    return ""


def runs_on_kernel(settings: Settings) -> bool:
    """Whether the kernel does this run."""
    return settings["engine"] != "reference" and not refusal(settings)


def check_settings(settings: Settings) -> None:
    """What the engines refuse, as an error that names the setting."""
    try:
        params = params_of(settings)
        refuse_impossible(str(settings["protocol"]), params)
    except (ParamError, ProtocolError) as error:
        raise WorkloadError("settings", str(error)) from None
    if not has_kernel():
        return  # what needs the kernel is refused when it is run
    if settings["engine"] == "kernel" and (reason := refusal(settings)):
        raise WorkloadError("engine", reason)
    if params.nodes > MAX_NODES and not runs_on_kernel(settings):
        raise WorkloadError("nodes", f"the reference has at most {MAX_NODES}, not {params.nodes}")


def run_scenario(settings: Settings, seed: int, *, traced: bool = False) -> Run:
    """Run the scenario that the settings name."""
    scenario = SCENARIOS[str(settings["workload"])]
    protocol = str(settings["protocol"])
    params = params_of(settings)
    if runs_on_kernel(settings):
        return _on_kernel(scenario, protocol, params, seed, traced)
    if settings["engine"] == "kernel" or params.nodes > MAX_NODES:
        raise WorkloadError("engine", refusal(settings) or "the reference has not so many nodes")
    return _on_reference(scenario, protocol, params, seed, traced)


def _on_kernel(scenario: Scenario, protocol: str, params: Params, seed: int, traced: bool) -> Run:
    from cubecast.kernel import plan_of, simulate

    plan = plan_of(scenario, params, seed)
    result = simulate(
        protocol, params, plan, f"{scenario.name}/{seed}", trace=traced, trace_messages=traced
    )
    if not result.at_rest:
        late = f"not at rest {params.horizon} u.t. after what was planned last: nothing is measured"
        raise WorkloadError("settings", late)
    queues = result.mean_queues().tolist() if params.network == "queue" else []
    records = list(result.records()) if traced else ()
    return Run(result.metrics, result.histograms, queues, records)


def _on_reference(
    scenario: Scenario, protocol: str, params: Params, seed: int, traced: bool
) -> Run:
    name = f"{scenario.name}/{seed}"
    network = params.network_for(name)
    trace: list[Record] | None = [] if traced else None
    world = WatchedWorld(
        params.nodes,
        maker(protocol, params, name),
        network,
        trace=trace,
        trace_messages=traced,
        brokers=params.broker_count() if protocol == "srpt-b" else 0,
        root_of=roots(protocol, params, name),
    )
    scenario.plan(world, params, Random(name))
    with few_collections():
        world.run()
    world.record_state()
    metrics = world.meter.summary()
    queues: Sequence[float] = []
    if isinstance(network, SendingQueue):
        metrics["queue_max"] = float(network.longest_queue)
        queues = network.mean_queues()
    if protocol == "srpt-b":
        metrics["tree_mean"] = world.tree_sum / max(world.meter.receptions, 1)
        metrics["last_hop_mean"] = metrics["reception_mean"] - metrics["tree_mean"]
    histograms = {name: rounded(tally) for name, tally in world.histograms.items()}
    return Run(metrics, histograms, queues, trace or ())


def rounded(tally: Mapping[int, int]) -> dict[int, int]:
    """The histogram with large values rounded down, as the kernel keeps it."""
    found: Counter[int] = Counter()
    for value, count in tally.items():
        excess = max(0, value.bit_length() - EXACT_BITS)
        found[value >> excess << excess] += count
    return dict(sorted(found.items()))
