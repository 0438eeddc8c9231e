"""The parent of a benchmark: starts the processes, paces them, and adds up what they report."""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from cubecast.bench.peers import Servers, load
from cubecast.bench.worker import main as worker
from cubecast.bench.workloads import HEADER, Mode, Scenario, Task, resident_bytes

Metrics: TypeAlias = dict[str, float]

READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 300.0
CLOSE_TIMEOUT_S = 15.0
WARM_UP_S = 1.0
"""Memory is first looked at when buffers have filled."""
MIN_SIZE = HEADER.size


class BenchError(Exception):
    """A process of a benchmark failed or fell silent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    scenario: Scenario
    processes: int = 8
    seconds: float = 5.0
    size: int = 100
    rate: int = 1000
    """latency: messages per second; causal: questions per second"""
    questions: int = 1000
    mode: Mode = "quiet"

    def __post_init__(self) -> None:
        least = 3 if self.scenario == "causal" else 2
        if self.processes < least:
            raise ValueError(f"{self.scenario} needs {least} processes, not {self.processes}")
        if self.size < MIN_SIZE:
            raise ValueError(f"messages have at least {MIN_SIZE} bytes, not {self.size}")
        if self.seconds <= 0 or self.rate < 1 or self.questions < 1:
            raise ValueError("seconds, rate and questions must be positive")

    @property
    def duration(self) -> float:
        """How long publishers are at it."""
        return self.questions / self.rate if self.scenario == "causal" else self.seconds


def measure(system: str, plan: Plan) -> Metrics:
    """Run `plan` once with `system`."""
    ports = _free_ports(max(plan.processes, 6))
    task = Task(
        system=system,
        scenario=plan.scenario,
        mode=plan.mode,
        index=0,
        processes=plan.processes,
        ports=ports,
        seconds=plan.seconds,
        size=plan.size,
        rate=plan.rate,
        questions=plan.questions,
    )
    with load(system).servers(plan.scenario, ports) as servers, _workers(task) as workers:
        results, started, memory = _conduct(workers, servers, plan)
    return _metrics(plan, results, started, memory, servers.cpu_s)


def _free_ports(count: int) -> tuple[int, ...]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = tuple(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


# -- processes ------------------------------------------------------------------------------------


class Worker:
    """A process and our end of its pipe."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.index = task.index
        self.process: BaseProcess = context.Process(target=worker, args=(task, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def receive(self, kind: str) -> Any:
        """The next report, which is to be of `kind`."""
        try:
            found, value = self.pipe.recv()
        except EOFError:
            raise BenchError(f"process {self.index} ended early") from None
        if found != kind:
            raise BenchError(f"process {self.index}: {value}")
        return value


@contextmanager
def _workers(task: Task) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        workers.extend(Worker(replace(task, index=index)) for index in range(task.processes))
        yield workers
        for one in reversed(workers):  # one after the other: clusters shrink one by one
            one.pipe.send("close")
            one.process.join(CLOSE_TIMEOUT_S)
    finally:
        for one in workers:
            if one.process.is_alive():
                one.process.kill()
            one.process.join()
            one.pipe.close()


def _gather(workers: list[Worker], kind: str, timeout: float) -> list[Any]:
    """One report of `kind` from each, whoever comes first."""
    values: dict[int, Any] = {}
    by_pipe: dict[Connection, Worker] = {one.pipe: one for one in workers}
    deadline = time.monotonic() + timeout
    while by_pipe:
        ready = wait(list(by_pipe), max(0.0, deadline - time.monotonic()))
        if not ready:
            silent = sorted(one.index for one in by_pipe.values())
            raise BenchError(f"no {kind!r} from processes {silent} in {timeout:g} s")
        for pipe in ready:
            one = by_pipe.pop(pipe)  # type: ignore[call-overload]
            values[one.index] = one.receive(kind)
    return [values[one.index] for one in workers]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of all processes, servers included; None where nobody can tell."""

    start: int | None
    end: int | None


def _conduct(
    workers: list[Worker], servers: Servers, plan: Plan
) -> tuple[list[dict[str, Any]], float, Memory]:
    """Run the phases described in `cubecast.bench.worker`."""
    _gather(workers, "ready", READY_TIMEOUT_S)
    started = time.monotonic()
    _tell(workers, "go")
    pids = [one.process.pid or 0 for one in workers] + servers.pids
    first_look = min(WARM_UP_S, plan.duration / 5)
    time.sleep(first_look)
    before = _resident(pids)
    time.sleep(max(0.0, started + 0.98 * plan.duration - time.monotonic()))
    after = _resident(pids)
    totals = _gather(workers, "sent", DRAIN_TIMEOUT_S)
    _tell(workers, totals)
    results = _gather(workers, "result", DRAIN_TIMEOUT_S)
    return results, started, Memory(before, after)


def _tell(workers: list[Worker], message: object) -> None:
    for one in workers:
        one.pipe.send(message)


def _resident(pids: list[int]) -> int | None:
    sizes = [resident_bytes(pid) for pid in pids]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


# -- results --------------------------------------------------------------------------------------


def _metrics(
    plan: Plan, results: list[dict[str, Any]], started: float, memory: Memory, server_cpu: float
) -> Metrics:
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
    if memory.start is not None and memory.end is not None:
        metrics["rss_start_mb"] = memory.start / 1e6
        metrics["rss_end_mb"] = memory.end / 1e6
    return metrics
