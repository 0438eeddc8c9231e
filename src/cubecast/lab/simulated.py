"""Cells that are runs of the simulator: their settings name a run, and its outcome gives numbers.

A workload has two parts: the run of its settings (a scenario, `Params`, a look), and the numbers it
takes from the `Outcome`.  `simulate` is the part between, for all workloads.
"""

from __future__ import annotations

from cubecast.lab.cells import Settings
from cubecast.lab.workload import WorkloadError
from cubecast.protocol.port import Time
from cubecast.sim.engines import EngineError, Look, engine_for, has_kernel
from cubecast.sim.params import Params
from cubecast.sim.protocols import ProtocolChoiceError, refuse_impossible
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import Scenario

REFERENCE_RATE = 120_000.0
"""Messages that the protocol objects send in a second, about: costs need be right only in
proportion."""


def simulate(
    settings: Settings,
    scenario: Scenario,
    params: Params,
    seed: int,
    look: Look,
    *,
    warmup: Time = 0,
    traced: bool = False,
) -> Outcome:
    """Make the run of the settings; a run that did not end measures nothing."""
    protocol, engine = _choice(settings)
    try:
        outcome = run(
            scenario, protocol, params, seed, engine=engine, look=look, warmup=warmup,
            checked=False, keep_trace=traced, trace_messages=traced,
        )  # fmt: skip
    except EngineError as error:
        raise WorkloadError("engine", str(error)) from None
    if not outcome.at_rest:
        late = f"not at rest {params.horizon} u.t. after what was planned last: nothing is measured"
        raise WorkloadError("settings", late)
    return outcome


def check_run(settings: Settings, scenario: Scenario, params: Params, look: Look) -> None:
    """Refuse an impossible run, with an error that names the setting.

    Without numba, a run that needs compiled code is refused only when it is made: such a list of
    experiments can still be read.
    """
    protocol, engine = _choice(settings)
    try:
        refuse_impossible(protocol, params)
        if has_kernel():
            engine_for(scenario, protocol, params, look, engine)
    except ProtocolChoiceError as error:
        raise WorkloadError("settings", str(error)) from None
    except EngineError as error:
        raise WorkloadError("engine", str(error)) from None


def is_compiled(settings: Settings, scenario: Scenario, params: Params, look: Look) -> bool:
    """Whether compiled code does the run."""
    protocol, engine = _choice(settings)
    try:
        return engine_for(scenario, protocol, params, look, engine) is not None
    except EngineError:
        return False


def _choice(settings: Settings) -> tuple[str, str]:
    """The protocol and the engine."""
    return str(settings["protocol"]), str(settings.get("engine", "reference"))
