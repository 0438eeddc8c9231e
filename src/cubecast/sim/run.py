"""One simulated run, from names and numbers to metrics, verdict and trace."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from cubecast.protocol.port import NodeId, Port, Process
from cubecast.sim.crash_stop import Mortals, detection_range
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import Params
from cubecast.sim.protocols import maker, refuse_impossible, roots
from cubecast.sim.scenarios import Scenario
from cubecast.sim.world import Horizon, World
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
) -> Outcome:
    """Run `scenario` once; `make` replaces the protocol by one of the caller's."""
    rng = Random(f"{scenario.name}/{seed}")
    if scenario.draw is not None:
        params = scenario.draw(params, rng)
    if make is None:
        refuse_impossible(protocol, params)
    trace: list[Record] | None = [] if checked or keep_trace else None
    processes = make if make is not None else maker(protocol, params, f"{scenario.name}/{seed}")
    mortals = _mortals(processes, params, f"{scenario.name}/{seed}") if scenario.mortal else None
    world = World(
        params.nodes,
        processes if mortals is None else mortals.make,
        network := params.network_for(f"{scenario.name}/{seed}"),
        trace=trace,
        trace_messages=trace_messages,
        state_every=200 if checked and params.nodes <= 64 else 0,
        consume_after=params.consume_after,
        pauses=params.pauses,
        root_of=roots(protocol, params, f"{scenario.name}/{seed}") if make is None else None,
    )
    if mortals is not None:
        mortals.attach(world)
    scenario.plan(world, params, rng)
    header = Header(scenario=scenario.name, protocol=protocol, seed=seed, params=params.as_json())
    started = time.perf_counter()
    at_rest = True
    with _few_collections():
        try:
            world.run(until=max(world.instants, default=0) + params.span + params.horizon)
        except Horizon:
            at_rest = False
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


def _mortals(make: Make, params: Params, seed: str) -> Mortals:
    """Processes that may crash, and a detector whose time-outs are long enough for the network."""
    detect = detection_range(params.round_trip(), dimension_for(params.nodes))
    return Mortals(make, Random(f"{seed}/detector"), detect)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Runs make many objects and no cycles worth finding: keep the collector out of the way."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
