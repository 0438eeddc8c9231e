"""The parent of a benchmark: starts the processes, paces them, and adds up what they report."""

from __future__ import annotations

import socket
import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any, TypeAlias

from cubecast.bench.errors import BenchError
from cubecast.bench.peers import Servers, load
from cubecast.bench.usage import MemoryWatch, cpu_seconds_of
from cubecast.bench.worker import main as worker
from cubecast.bench.workloads import HEADER, Mode, Scenario, Task
from cubecast.processes.function import CONTEXT, FunctionChild, closing_children, gather, tell_all

Metrics: TypeAlias = dict[str, float]

READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 300.0
WARM_UP_S = 1.0
"""Memory at the start is that when buffers have filled."""
LOOK_EVERY_S = 0.1
"""How often memory is looked at."""
MORE_PORTS = 8
"""For three servers, their routes and a relay, and one that stays unused."""
MIN_SIZE = HEADER.size


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to measure."""

    scenario: Scenario
    processes: int = 8
    seconds: float = 5.0
    size: int = 100
    rate: int = 1000
    """latency: messages per second; causal: questions per second"""
    questions: int = 1000
    mode: Mode = "quiet"
    delay_ms: float = 5.0
    """causal, mode `delayed`: how late the asker's messages are at the last process"""

    def __post_init__(self) -> None:
        least = 3 if self.scenario == "causal" else 2
        if self.processes < least:
            raise ValueError(f"{self.scenario} needs {least} processes, not {self.processes}")
        if self.size < MIN_SIZE:
            raise ValueError(f"messages have at least {MIN_SIZE} bytes, not {self.size}")
        if self.seconds <= 0 or self.rate < 1 or self.questions < 1 or self.delay_ms <= 0:
            raise ValueError("seconds, rate, questions and delay must be positive")

    @property
    def duration(self) -> float:
        """How long publishers publish, in seconds."""
        return self.questions / self.rate if self.scenario == "causal" else self.seconds


def measure(system: str, plan: BenchPlan) -> Metrics:
    """Run `plan` once with `system`."""
    ports = _free_ports(plan.processes + MORE_PORTS)
    task = Task(
        system=system,
        scenario=plan.scenario,
        mode=plan.mode,
        index=0,
        processes=plan.processes,
        ports=ports[: plan.processes],
        more_ports=ports[plan.processes :],
        seconds=plan.seconds,
        size=plan.size,
        rate=plan.rate,
        questions=plan.questions,
        delay_s=plan.delay_ms / 1e3,
    )
    stop = CONTEXT.Event()
    starts = [
        partial(FunctionChild, index, worker, replace(task, index=index), stop)
        for index in range(plan.processes)
    ]
    with load(system).servers(task) as servers, closing_children(starts) as workers:
        return _conduct(workers, servers, plan, stop)


def _free_ports(count: int) -> tuple[int, ...]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = tuple(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def _conduct(
    workers: list[FunctionChild], servers: Servers, plan: BenchPlan, stop: Event
) -> Metrics:
    """Run the phases described in `cubecast.bench.worker`."""
    for one in workers:
        one.tell("open")
        gather([one], "open", READY_TIMEOUT_S)
    gather(workers, "ready", READY_TIMEOUT_S)
    watch = MemoryWatch([one.pid for one in workers] + servers.pids, stop.set)
    server_cpu_before = cpu_seconds_of(servers.pids)
    late_before = servers.delayed_bytes
    started = time.monotonic()
    tell_all(workers, "go")
    limit = plan.duration + DRAIN_TIMEOUT_S
    totals = gather(workers, "sent", limit, every=LOOK_EVERY_S, meanwhile=watch.look)
    tell_all(workers, totals)
    results = gather(workers, "result", DRAIN_TIMEOUT_S)
    server_cpu = (cpu_seconds_of(servers.pids) or 0.0) - (server_cpu_before or 0.0)
    if plan.mode == "delayed":
        late = servers.delayed_bytes - late_before
        _check_delay(plan, late + sum(one["delayed_bytes"] for one in results))
    return {
        **_metrics(plan, results, started, server_cpu),
        **watch.metrics(started + min(WARM_UP_S, plan.duration / 5)),
        "ended_early": float(watch.exceeded),
    }


def _check_delay(plan: BenchPlan, delayed_bytes: int) -> None:
    """Every question must have passed the late link, or the figures say nothing."""
    if delayed_bytes < plan.questions * plan.size:
        raise BenchError(f"only {delayed_bytes} bytes went over the link that is to be late")


def _metrics(
    plan: BenchPlan, results: list[dict[str, Any]], started: float, server_cpu: float
) -> Metrics:
    """Deliveries count from "go" until the last process has its last message."""
    received = sum(result["received"] for result in results)
    elapsed = max(end for result in results for end in result["end"]) - started
    cpu = sum(result["cpu_s"] for result in results) + server_cpu
    metrics: Metrics = {
        "deliveries_per_second": received / elapsed,
        "cpu_seconds_per_million": cpu / max(received, 1) * 1e6,
        "lost": sum(result["lost"] for result in results),
        "inversions": sum(result["inversions"] for result in results),
        "elapsed_s": elapsed,
    }
    if plan.scenario == "causal":
        metrics["answers"] = sum(result["watched"] for result in results)
        metrics["inversions_percent"] = 100 * metrics["inversions"] / max(metrics["answers"], 1)
    delays = [delay for result in results for delay in result.get("delays_us", ())]
    if len(delays) > 1:
        percentiles = statistics.quantiles(delays, n=100, method="inclusive")
        metrics["latency_p50_us"] = percentiles[49]
        metrics["latency_p99_us"] = percentiles[98]
    publishing = [time_s for result in results for time_s in result.get("publishing_s", ())]
    if plan.scenario in ("fanout", "all-to-all"):
        metrics["publishing_s"] = min(publishing)
    return metrics
