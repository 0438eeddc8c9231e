"""One simulated run, from names and numbers to metrics, verdict and trace.

`run` is the only place that runs a simulation: `cubecast sim`, the lab, tests and benchmarks call
it, and `cubecast.sim.engines` says whether protocol objects or compiled code do the work.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from cubecast.protocol.port import NodeId, Port, Process, Time
from cubecast.sim.codec import MessageFormat
from cubecast.sim.crashes.convergence import liveness_bound, run_until, settle
from cubecast.sim.crashes.crash_stop import CrashStopWorld, detection_range
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.engines import CHURN, Compiled, EngineError, Look, engine_for
from cubecast.sim.measured_worlds import ChangingWorld, LateMeter, WatchedWorld
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import Params
from cubecast.sim.protocols import MORTAL, maker, mortality, refuse_impossible, roots
from cubecast.sim.scenarios import Scenario
from cubecast.sim.world import HorizonReached, NetworkModel, World
from cubecast.topology import dimension_for
from cubecast.trace import Header, Record, Report, answers_before_questions, check

Make: TypeAlias = Callable[[NodeId, Port], Process]


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    params: Params
    seed: int
    metrics: dict[str, float]
    report: Report | None
    trace: list[Record] | None
    header: Header
    histograms: dict[str, dict[int, int]] = field(default_factory=dict)
    """{value: count}, if the run was measured closely."""
    mean_queues: Sequence[float] = ()
    """Mean size of each node's sending queue; none if the network has no queues."""
    at_rest: bool = True
    """Whether the run came to rest in the time that it was given."""

    @property
    def ok(self) -> bool:
        """Whether the checkers found nothing (True as well if they were not asked)."""
        return self.metrics.get("violations", 0.0) == 0.0


def run(
    scenario: Scenario,
    protocol: str,
    params: Params,
    seed: int,
    *,
    engine: str = "reference",
    look: Look = "plain",
    warmup: Time = 0,
    checked: bool = True,
    keep_trace: bool = False,
    trace_messages: bool = False,
    make: Make | None = None,
    codec: MessageFormat | None = None,
) -> Outcome:
    """Run `scenario` once; `make` replaces the protocol by one of the caller's.

    `engine` is one of `cubecast.sim.engines.ENGINES`, and `look` says what is measured.  While
    members change, what is published or queued before `warmup` is left out.
    Messages of the production protocol can cross a `codec` (`cubecast.sim.codec`).
    """
    rng = Random(f"{scenario.name}/{seed}")
    if scenario.draw is not None:
        params = scenario.draw(params, rng)
    if make is None:
        refuse_impossible(protocol, params)
    header = Header(scenario=scenario.name, protocol=protocol, seed=seed, params=params.as_json())
    trace: list[Record] | None = [] if checked or keep_trace else None
    outcome = Outcome(params, seed, {}, None, trace, header)
    compiled = None
    if make is None and codec is None:
        compiled = engine_for(scenario, protocol, params, look, engine)
    elif engine == "kernel":
        raise EngineError("the kernel has no codec, and no protocol of the caller's")
    if compiled is not None:
        _run_compiled(outcome, compiled, scenario, protocol, warmup, trace_messages)
        unsent = 0
    else:
        unsent = _run_objects(
            outcome, scenario, protocol, rng, look, warmup,
            make=make, codec=codec, trace_messages=trace_messages,
            state_every=200 if checked and params.nodes <= 64 else 0,
        )  # fmt: skip
    if checked:
        _judge(outcome, unsent)
    if not keep_trace:
        outcome.trace = None
    return outcome


def _judge(outcome: Outcome, unsent: int) -> None:
    """Run the checkers on the trace."""
    assert outcome.trace is not None
    report = outcome.report = check(outcome.trace)
    metrics = outcome.metrics
    metrics["gaps"] = float(report.gaps)
    metrics["discards"] = float(report.discards)
    metrics["violations"] = float(
        sum(report.counts.values()) + unsent + (0 if outcome.at_rest else 1)
    )
    inversions = answers_before_questions(outcome.trace)
    if inversions.pairs:
        metrics["answers_seen"] = float(inversions.pairs)
        metrics["answers_before_questions"] = float(inversions.inverted)


# -- compiled code ---------------------------------------------------------------------------------


def _run_compiled(
    outcome: Outcome,
    compiled: Compiled,
    scenario: Scenario,
    protocol: str,
    warmup: Time,
    trace_messages: bool,
) -> None:
    params, seed = outcome.params, outcome.seed
    if compiled is CHURN:
        from cubecast.kernel.churn import run_sessions

        outcome.metrics = run_sessions(protocol, params, seed, warmup)
        return
    from cubecast.kernel.static import plan_of, simulate

    traced = outcome.trace is not None
    result = simulate(
        protocol,
        params,
        plan_of(scenario, params, seed),
        f"{scenario.name}/{seed}",
        trace=traced,
        trace_messages=traced and trace_messages,
    )
    outcome.metrics = result.metrics
    outcome.histograms = result.histograms
    outcome.at_rest = result.at_rest
    if params.network == "queue":
        outcome.mean_queues = result.mean_queues().tolist()
    if traced:
        outcome.trace = list(result.records())


# -- protocol objects ------------------------------------------------------------------------------


def _run_objects(
    outcome: Outcome,
    scenario: Scenario,
    protocol: str,
    rng: Random,
    look: Look,
    warmup: Time,
    *,
    make: Make | None,
    **options: Any,
) -> int:
    """Fill the outcome; return how many publications the protocol has not taken."""
    params = outcome.params
    name = f"{scenario.name}/{outcome.seed}"
    network = params.network_for(name)
    options |= {
        "trace": outcome.trace,
        "consume_after": params.consume_after,
        "pauses": params.pauses,
        "root_of": roots(protocol, params, name) if make is None else None,
    }
    world: World
    if scenario.mortal and make is None and protocol in MORTAL:
        lives = mortality(protocol, params)
        world = MortalWorld(params.nodes, lives.make, network, **options)
        rests = partial(_settles, world, params, lives.recovery)
    else:
        processes = make if make is not None else maker(protocol, params, name)
        kind = _crash_stop(params, name) if scenario.mortal else _kind(look, protocol, params)
        if look == "changing":
            options["meter"] = LateMeter(warmup)
        world = kind(params.nodes, processes, network, **options)
        rests = partial(_rests, world, params)
    scenario.plan(world, params, rng)
    if warmup and isinstance(network, SendingQueue):
        world.post(warmup, lambda a, b, now: network.forget_samples())
    started = time.perf_counter()
    with few_collections():
        outcome.at_rest = rests()
    elapsed = time.perf_counter() - started
    world.record_state()
    _measure(outcome, world, network, elapsed)
    return world.unsent()


def _kind(look: Look, protocol: str, params: Params) -> Callable[..., World]:
    """The world class that measures what is asked for."""
    if look == "closely":
        return partial(WatchedWorld, brokers=params.broker_count() if protocol == "srpt-b" else 0)
    return ChangingWorld if look == "changing" else World


def _crash_stop(params: Params, name: str) -> Callable[..., World]:
    """For protocols without a detector: a perfect one, with time-outs that fit the network."""
    detect = detection_range(params.round_trip(), dimension_for(params.nodes))
    return partial(CrashStopWorld, rng=Random(f"{name}/detector"), detect=detect)


def _measure(outcome: Outcome, world: World, network: NetworkModel, elapsed: float) -> None:
    metrics = outcome.metrics = world.meter.summary()
    if isinstance(network, SendingQueue):
        metrics["queue_max"] = float(network.longest_queue)
        outcome.mean_queues = network.mean_queues()
    metrics["events"] = float(sum(world.meter.messages.values()))
    metrics["events_per_second"] = metrics["events"] / max(elapsed, 1e-9)
    metrics["kept"] = float(sum(sum(process.load()[:2]) for process in world.processes))
    if isinstance(world, WatchedWorld | ChangingWorld):
        metrics |= world.figures()
    if isinstance(world, WatchedWorld):
        outcome.histograms = world.rounded_histograms()


def _rests(world: World, params: Params) -> bool:
    """Run as long as events are left; return whether that ended."""
    try:
        planned = max(world.instants, default=0) + world.turns_take
        world.run(until=planned + params.span + params.horizon)
    except HorizonReached:
        return False
    return True


def _settles(world: MortalWorld, params: Params, recovery: Time) -> bool:
    """Run all that is planned, then until it has settled; return whether it did within the bound.

    Processes with a detector of their own never rest.
    """
    cuts = [cut.end for cut in params.partitions]
    run_until(world, max([*world.instants, *cuts], default=0))
    return settle(world, liveness_bound(params, recovery, world.publications))


@contextmanager
def few_collections() -> Iterator[None]:
    """Runs make many objects and no cycles worth finding: keep the collector out of the way."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
