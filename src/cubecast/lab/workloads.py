"""What an experiment can run: each workload's settings, metrics, cost, and how a cell is measured.

`measure` functions are pure: all chance comes from the settings and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.sim.params import NETWORKS, ParamError, Params
from cubecast.sim.protocols import PROTOCOLS, ProtocolError
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS

ENGINES = ("auto", "kernel", "reference")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

SENDS_PER_SECOND = 250_000
"""What the reference does, about; estimates of costs need no more."""
KERNEL_SENDS_PER_SECOND = 5_000_000


class WorkloadError(ValueError):
    """A setting has a value that cannot be measured."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of run, and everything that can be set about it."""

    name: str
    about: str
    defaults: Mapping[str, Value]
    metrics: tuple[str, ...]
    histograms: tuple[str, ...]
    measure: Callable[[Settings, int], Measurement]
    sends: Callable[[Settings], float]
    """About how many messages one run sends."""
    choices: Mapping[str, tuple[str, ...]]
    """Settings that are one of a few words."""
    check: Callable[[Settings], None]
    """Raises `WorkloadError` for what cannot be run."""

    def complete(self, point: Settings) -> Settings:
        """The settings with the defaults filled in, in a fixed order, and checked."""
        for name in point:
            if name not in self.defaults:
                raise WorkloadError(name, f"unknown setting; there are: {', '.join(self.defaults)}")
        settings = {name: self._value(name, point) for name in self.defaults}
        self.check(settings)
        return settings

    def _value(self, name: str, point: Settings) -> Value:
        default = self.defaults[name]
        value = point.get(name, default)
        if type(default) is float and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise WorkloadError(name, f"must be {_KINDS[type(default)]}, not {value!r}")
        allowed = self.choices.get(name)
        if allowed is not None and value not in allowed:
            raise WorkloadError(name, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def cost(self, settings: Settings) -> float:
        """Estimated seconds of one run."""
        fast = runs_on_kernel(settings)
        rate = KERNEL_SENDS_PER_SECOND if fast else SENDS_PER_SECOND
        nodes = settings.get("nodes", 1)
        assert isinstance(nodes, int)
        return 0.01 + nodes * 2e-5 + self.sends(settings) / rate


def runs_on_kernel(settings: Settings) -> bool:
    """Whether the compiled kernel will do this run."""
    return False


def run_settings(settings: Settings, seed: int) -> Measurement:
    """Measure one run of the workload that the settings name."""
    return WORKLOADS[str(settings["workload"])].measure(settings, seed)


# -- scenarios of the simulator -------------------------------------------------------------------

SCENARIO_METRICS = (
    "latency_mean", "latency_max", "reception_mean", "delay_mean", "pub_messages",
    "control_messages", "false_positives", "publications", "deliveries", "queue_max",
)  # fmt: skip
NETWORK_SETTINGS = ("network", "hop", "low", "high", "queue_acks", "loss", "window")
NOT_PARAMS = ("workload", "engine", "protocol")


def params_of(settings: Settings) -> Params:
    """The parameters of the simulator among the settings."""
    changes: dict[str, Any] = {
        name: value for name, value in settings.items() if name not in NOT_PARAMS
    }
    return Params().with_(changes)


def measure_scenario(settings: Settings, seed: int) -> Measurement:
    """A built-in scenario on the reference engine."""
    scenario = SCENARIOS[str(settings["workload"])]
    outcome = run(scenario, str(settings["protocol"]), params_of(settings), seed, checked=False)
    metrics = {name: outcome.metrics.get(name, 0.0) for name in SCENARIO_METRICS}
    return Measurement(metrics)


def check_params(settings: Settings) -> None:
    """What the simulator itself refuses."""
    try:
        params_of(settings)
    except (ParamError, ProtocolError) as error:
        raise WorkloadError("settings", str(error)) from None


def _scenario(name: str, sends: Callable[[Settings], float], **defaults: Value) -> Workload:
    scenario = SCENARIOS[name]
    plain = Params().with_(scenario.defaults)
    taken = ("nodes", *scenario.takes, *NETWORK_SETTINGS)
    return Workload(
        name,
        scenario.about,
        {
            "workload": name,
            "engine": "auto",
            "protocol": "vcube-ps",
            **{field: getattr(plain, field) for field in taken},
            **defaults,
        },
        SCENARIO_METRICS,
        (),
        measure_scenario,
        sends,
        {"engine": ENGINES, "protocol": tuple(PROTOCOLS), "network": NETWORKS},
        check_params,
    )


def _number(settings: Settings, name: str) -> float:
    value = settings[name]
    assert isinstance(value, int | float)
    return float(value)


def _single_sends(settings: Settings) -> float:
    share = max(_number(settings, "subscribers"), 0.5)
    return 2 * share * _number(settings, "nodes") * _number(settings, "messages")


def _multi_sends(settings: Settings) -> float:
    members = _number(settings, "nodes") * _number(settings, "subscribers")
    published = members * _number(settings, "publishers") * _number(settings, "messages")
    return 2 * members * published


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        _scenario("single-publisher", _single_sends),
        _scenario("multi-publisher", _multi_sends),
    )
}
