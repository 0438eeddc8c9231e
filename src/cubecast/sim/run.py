"""One simulated run, from names and numbers to metrics, verdict and trace."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias

from cubecast.protocol.port import NodeId, Port, Process, Time
from cubecast.sim.codec import Codec
from cubecast.sim.crash_stop import CrashStopWorld, detection_range
from cubecast.sim.lives import MortalWorld
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import Params
from cubecast.sim.protocols import MORTAL, maker, mortality, refuse_impossible, roots
from cubecast.sim.scenarios import Scenario
from cubecast.sim.settling import liveness_bound, run_until, settle
from cubecast.sim.world import Horizon, Network, World
from cubecast.topology import dimension_for
from cubecast.trace import Header, Record, Report, answers_before_questions, check

Make: TypeAlias = Callable[[NodeId, Port], Process]


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    params: Params
    seed: int
    metrics: dict[str, float]
    report: Report | None
    trace: list[Record] | None
    header: Header

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
    checked: bool = True,
    keep_trace: bool = False,
    trace_messages: bool = False,
    make: Make | None = None,
    codec: Codec | None = None,
) -> Outcome:
    """Run `scenario` once; `make` replaces the protocol by one of the caller's.

    Messages of the production protocol can cross a `codec` (`cubecast.sim.codec`).
    """
    rng = Random(f"{scenario.name}/{seed}")
    if scenario.draw is not None:
        params = scenario.draw(params, rng)
    if make is None:
        refuse_impossible(protocol, params)
    name = f"{scenario.name}/{seed}"
    trace: list[Record] | None = [] if checked or keep_trace else None
    network = params.network_for(name)
    options: dict[str, Any] = {
        "trace": trace,
        "trace_messages": trace_messages,
        "state_every": 200 if checked and params.nodes <= 64 else 0,
        "consume_after": params.consume_after,
        "pauses": params.pauses,
        "codec": codec,
        "root_of": roots(protocol, params, name) if make is None else None,
    }
    world: World
    if scenario.mortal and make is None and protocol in MORTAL:
        lives = mortality(protocol, params)
        world = MortalWorld(params.nodes, lives.make, network, **options)
        rests = partial(_settles, world, params, lives.recovery)
    else:
        processes = make if make is not None else maker(protocol, params, name)
        kind = partial(_crash_stop, params, name) if scenario.mortal else World
        world = kind(params.nodes, processes, network, **options)
        rests = partial(_rests, world, params)
    scenario.plan(world, params, rng)
    header = Header(scenario=scenario.name, protocol=protocol, seed=seed, params=params.as_json())
    started = time.perf_counter()
    with few_collections():
        at_rest = rests()
    elapsed = time.perf_counter() - started
    world.record_state()
    metrics = world.meter.summary()
    if isinstance(network, SendingQueue):
        metrics["queue_max"] = float(network.longest_queue)
    metrics["events"] = float(sum(world.meter.messages.values()))
    metrics["events_per_second"] = metrics["events"] / max(elapsed, 1e-9)
    metrics["kept"] = float(sum(sum(process.load()[:2]) for process in world.processes))
    report = None
    if checked and trace is not None:
        report = check(trace)
        metrics["gaps"] = float(report.gaps)
        metrics["discards"] = float(report.discards)
        metrics["violations"] = float(
            sum(report.counts.values()) + world.unsent() + (0 if at_rest else 1)
        )
        inversions = answers_before_questions(trace)
        if inversions.pairs:
            metrics["answers_seen"] = float(inversions.pairs)
            metrics["answers_before_questions"] = float(inversions.inverted)
    return Outcome(params, seed, metrics, report, trace if keep_trace else None, header)


def _crash_stop(
    params: Params, name: str, nodes: int, make: Make, network: Network, **options: Any
) -> World:
    """For protocols without a detector: a perfect one, with time-outs that fit the network."""
    detect = detection_range(params.round_trip(), dimension_for(nodes))
    rng = Random(f"{name}/detector")
    return CrashStopWorld(nodes, make, network, rng=rng, detect=detect, **options)


def _rests(world: World, params: Params) -> bool:
    """Run as long as there is something to do; whether that ended."""
    try:
        planned = max(world.instants, default=0) + world.turns_take
        world.run(until=planned + params.span + params.horizon)
    except Horizon:
        return False
    return True


def _settles(world: MortalWorld, params: Params, recovery: Time) -> bool:
    """Run all that is planned, and then until all is done; whether that was within the bound.

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
