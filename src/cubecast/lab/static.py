"""Workloads on static membership: the scenarios of the simulator, on either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cubecast.lab.cell_details import KEEPABLE
from cubecast.lab.cells import Measurement, Settings, Trace, Value
from cubecast.lab.simulated import REFERENCE_RATE, check_run, is_compiled, simulate
from cubecast.lab.workload import Workload, WorkloadError, number
from cubecast.sim.engines import ENGINES
from cubecast.sim.params import NETWORKS, ParamError, Params, WideParams
from cubecast.sim.protocols import MAKERS
from cubecast.sim.run import Outcome
from cubecast.sim.scenarios import SCENARIOS, Scenario

KERNEL_RATE = 16_000_000.0
"""Messages that compiled code sends in a second, about."""
PLAIN = (
    "latency_mean", "latency_max", "reception_mean", "delay_mean", "pub_messages",
    "control_messages", "false_positives", "publications", "deliveries", "queue_max",
    "tree_mean", "last_hop_mean",
)  # fmt: skip
"""Metrics of the engines; 0 where a run has none."""
QUEUE_BOUNDS = (0, 2, 4, 8, 16, 32, 4096, 8192)
"""[J] Table 1 has the nodes with a mean queue of 0, in (0, 2], (2, 4], …, (4096, 8192]."""
QUEUES = tuple(f"queue_to_{bound}" for bound in QUEUE_BOUNDS)
BARRIERS = ("one", "ten", "below_5", "below_15", "mean")
DELAYS = ("delay_none", "delay_below_10", "delay_above_50", "delay_max")
METRICS = (
    *PLAIN,
    *QUEUES,
    "queue_worst",
    *(f"barrier_{name}" for name in BARRIERS),
    *(f"unreduced_{name}" for name in BARRIERS),
    *DELAYS,
    "rate",
)
HISTOGRAMS = ("latency", "delay", "barrier", "barrier_unreduced", "mean_queue")
NOT_PARAMS = ("workload", "engine", "protocol")
NETWORK_SETTINGS = (
    "network", "hop", "low", "high", "sigma", "latencies", "queue_acks",
)  # fmt: skip


def params_of(settings: Settings) -> Params:
    """The parameters of the simulator among the settings."""
    changes: dict[str, Any] = {
        name: value for name, value in settings.items() if name not in NOT_PARAMS
    }
    return WideParams().with_(changes)


def measure_static(settings: Settings, seed: int) -> Measurement:
    """Run the scenario, and derive the papers' numbers."""
    return _measured(simulate(settings, _scenario(settings), params_of(settings), seed, "closely"))


def trace_static(settings: Settings, seed: int) -> tuple[Measurement, Trace]:
    """The same, with all records."""
    outcome = simulate(
        settings, _scenario(settings), params_of(settings), seed, "closely", traced=True
    )
    return _measured(outcome), Trace(outcome.header, outcome.trace or ())


def _scenario(settings: Settings) -> Scenario:
    return SCENARIOS[str(settings["workload"])]


def check_static(settings: Settings) -> None:
    """Refuse an impossible run, with an error that names the setting."""
    try:
        params = params_of(settings)
    except ParamError as error:
        raise WorkloadError("settings", str(error)) from None
    check_run(settings, _scenario(settings), params, "closely")


def _measured(run: Outcome) -> Measurement:
    metrics = {name: run.metrics.get(name, 0.0) for name in PLAIN}
    metrics |= queue_metrics(run.mean_queues)
    metrics |= barrier_metrics("barrier", run.histograms.get("barrier", {}))
    metrics |= barrier_metrics("unreduced", run.histograms.get("barrier_unreduced", {}))
    metrics |= delay_metrics(run.histograms.get("delay", {}))
    last = metrics["latency_max"]
    metrics["rate"] = 1000 * metrics["publications"] / last if last else 0.0
    return Measurement(metrics, _histograms(run))


def _histograms(run: Outcome) -> dict[str, dict[int, int]]:
    found = {name: run.histograms.get(name, {}) for name in HISTOGRAMS}
    found["mean_queue"] = queue_histogram(run.mean_queues)
    return {name: histogram for name, histogram in found.items() if histogram}


def queue_histogram(means: Sequence[float]) -> dict[int, int]:
    """Nodes by mean queue size x, counted under the least power of two ≥ x, or under 0."""
    found: dict[int, int] = {}
    for size in means:
        bucket = 0 if size == 0 else max(2, 1 << (-int(-size // 1) - 1).bit_length())
        found[bucket] = found.get(bucket, 0) + 1
    return dict(sorted(found.items()))


def queue_metrics(means: Sequence[float]) -> dict[str, float]:
    """[J] Table 1: `queue_to_8` nodes have a mean queue in (4, 8]."""
    counts = queue_histogram(means)
    metrics = {}
    before = -1
    for bound in QUEUE_BOUNDS:
        within = [n for bucket, n in counts.items() if before < bucket <= bound]
        metrics[f"queue_to_{bound}"] = float(sum(within))
        before = bound
    metrics["queue_worst"] = max(means, default=0.0)
    return metrics


def barrier_metrics(name: str, sizes: Mapping[int, int]) -> dict[str, float]:
    """[J] Figure 6: shares of the messages, in percent, by the size of their barriers."""
    total = max(1, sum(sizes.values()))
    return {
        f"{name}_one": 100 * sizes.get(1, 0) / total,
        f"{name}_ten": 100 * sizes.get(10, 0) / total,
        f"{name}_below_5": 100 * sum(n for size, n in sizes.items() if size < 5) / total,
        f"{name}_below_15": 100 * sum(n for size, n in sizes.items() if size < 15) / total,
        f"{name}_mean": sum(size * n for size, n in sizes.items()) / total,
    }


def delay_metrics(delays: Mapping[int, int]) -> dict[str, float]:
    """[J] 4.3: shares of the deliveries in percent; how many waited long; the longest."""
    total = max(1, sum(delays.values()))
    return {
        "delay_none": 100 * delays.get(0, 0) / total,
        "delay_below_10": 100 * sum(n for delay, n in delays.items() if delay < 10) / total,
        "delay_above_50": float(sum(n for delay, n in delays.items() if delay > 50)),
        "delay_max": float(max(delays, default=0)),
    }


# -- the scenarios --------------------------------------------------------------------------------


def scenario_workload(name: str, copies: Callable[[Settings], float], *extra: str) -> Workload:
    """A scenario of the simulator; `copies` estimates how many publications are sent."""
    scenario = SCENARIOS[name]
    plain = Params().with_(scenario.defaults)
    taken = ("nodes", *scenario.takes, *extra, *NETWORK_SETTINGS)
    defaults: dict[str, Value] = {"workload": name, "engine": "auto", "protocol": "vcube-ps"}

    def cost(settings: Settings) -> float:
        compiled = is_compiled(settings, scenario, params_of(settings), "closely")
        rate = KERNEL_RATE if compiled else REFERENCE_RATE
        return 0.01 + number(settings, "nodes") * 1e-5 + 2 * copies(settings) / rate

    return Workload(
        name,
        scenario.about,
        defaults | {field: getattr(plain, field) for field in taken},
        METRICS,
        measure_static,
        cost,
        HISTOGRAMS,
        {"engine": ENGINES, "protocol": MAKERS, "network": NETWORKS},
        check_static,
        trace_static,
        ("traces",) if "batch" in taken else KEEPABLE,  # a trace does not part a batch
    )


def members(settings: Settings) -> float:
    return number(settings, "nodes") * number(settings, "subscribers")


def of_one(settings: Settings) -> float:
    """One publisher of so many messages."""
    return members(settings) * number(settings, "messages")


def of_many(settings: Settings) -> float:
    """A share of the subscribers publish."""
    return members(settings) * number(settings, "publishers") * of_one(settings)


def of_all(settings: Settings) -> float:
    """Every subscriber publishes once."""
    return members(settings) ** 2


def of_speakers(settings: Settings) -> float:
    """All nodes subscribe, and there are so many messages in all."""
    return number(settings, "nodes") * number(settings, "messages")


STATIC = (
    scenario_workload("single-publisher", of_one, "brokers", "window"),
    scenario_workload("multi-publisher", of_many, "brokers", "window"),
    scenario_workload("discussion", of_all, "window"),
    scenario_workload("topics", of_one, "brokers", "window"),
    scenario_workload("speakers", of_speakers, "brokers", "window"),
    scenario_workload("stream", of_one, "window", "ack_delay"),
)
