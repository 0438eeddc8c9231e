"""One run on the kernel, from names and numbers to a `Result`."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from cubecast.kernel.errors import KernelError
from cubecast.kernel.shared.arrays import BUDGET
from cubecast.kernel.static.layout import DONE, FULL, UNFINISHED
from cubecast.kernel.static.plan import Plan, plan_of
from cubecast.kernel.static.result import Result, histograms_of, metrics_of
from cubecast.kernel.static.setup import grown, initial
from cubecast.protocol.port import NodeId, Topic
from cubecast.sim.engines import STATIC
from cubecast.sim.params import Params
from cubecast.sim.protocols import refuse_impossible, roots
from cubecast.sim.scenarios import SCENARIOS, Scenario


def refusal(protocol: str, params: Params, scenario: str | Scenario) -> str:
    """Why the kernel cannot run this and the reference has to, or nothing."""
    return STATIC.refusal(_scenario(scenario), protocol, params)


def run(
    protocol: str,
    params: Params,
    seed: int,
    *,
    scenario: str | Scenario = "multi-publisher",
    trace: bool = False,
    trace_messages: bool = False,
) -> Result:
    """Run a scenario of the simulator: the same run as `cubecast.sim.run.run` with that seed."""
    scenario = _scenario(scenario)
    reason = refusal(protocol, params, scenario)
    if reason:
        raise KernelError(reason)
    plan = plan_of(scenario, params, seed)
    return simulate(
        protocol,
        params,
        plan,
        f"{scenario.name}/{seed}",
        trace=trace,
        trace_messages=trace_messages,
    )


def simulate(
    protocol: str,
    params: Params,
    plan: Plan,
    seed: str,
    *,
    root_of: Callable[[Topic], NodeId] | None = None,
    trace: bool = False,
    trace_messages: bool = False,
) -> Result:
    """Run a plan; `seed` draws delays and roots as the simulator draws them."""
    from cubecast.kernel.static.engine import advance  # compiles, or loads compiled code

    refuse_impossible(protocol, params)
    if protocol == "vcube-ps" and (outsiders := plan.outsiders()):
        raise KernelError(f"node {outsiders[0]} cannot publish: it is not subscribed")
    if root_of is None:
        root_of = roots(protocol, params, seed)
    tracing = 2 if trace_messages else int(trace)
    state = grown(initial(plan, protocol, params, root_of, Random(f"{seed}/delays"), tracing))
    started = time.perf_counter()
    while True:
        ended = advance(*state, BUDGET)
        if ended in (DONE, UNFINISHED):
            break
        if ended == FULL:
            state = grown(state)
    seconds = time.perf_counter() - started
    return Result(
        protocol,
        plan,
        metrics_of(protocol, plan, params.network, state, seconds),
        histograms_of(protocol, params.network, state),
        ended == DONE,
        state,
    )


def _scenario(scenario: str | Scenario) -> Scenario:
    if isinstance(scenario, Scenario):
        return scenario
    if scenario not in SCENARIOS:
        raise KernelError(f"unknown scenario {scenario!r}; there are: {', '.join(SCENARIOS)}")
    return SCENARIOS[scenario]
