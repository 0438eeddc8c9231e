"""Does a cluster of many nodes start, deliver everything, and keep the order?

Every node is a process of its own on this machine.  All subscribe to one topic and publish to it as
fast as they may.  Each writes its trace; the traces are merged and judged by the checkers, which
know nothing of the protocol.  Printed are the time from the first process to the last subscription,
the time to deliver everything, memory per node, and violations; any is a failure.

    python bench/bench_cluster.py --nodes 64 --messages 1000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from cubecast.bench.errors import BenchError
from cubecast.bench.usage import cpu_seconds, resident_bytes
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.processes.child import ChildError
from cubecast.processes.function import FunctionChild, be_child, closing_children, gather
from cubecast.processes.signals import unwinding
from cubecast.trace import Header, Record, Report, check, merge, read_jsonl
from cubecast.trace.files import encode_header

TOPIC = "all"
TIMEOUT_S = 600.0
FLUSH_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part."""

    nodes: int
    messages: int
    size: int
    trace: Path


# -- a node ---------------------------------------------------------------------------------------


class TraceFile:
    """A node's records on their way to its file, so that they do not count as its memory."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("wb")
        header = Header(scenario="bench-cluster", protocol="cubecast", time_unit="us")
        self._file.write(encode_header(header) + b"\n")

    def flush(self) -> None:
        """Write the records so far; between two ticks of the loop, when no code holds an index."""
        self._file.write(self._encoder.encode_lines(self.records))
        self.records.clear()

    def close(self) -> None:
        """Write the rest, and close the file."""
        self.flush()
        self._file.close()


def run_node(part: Part, pipe: Connection) -> None:
    """One process."""
    be_child(_live(part, pipe), pipe)


async def _live(part: Part, pipe: Connection) -> None:
    up_at = time.monotonic()
    pipe.send(("up", up_at))
    seed = await asyncio.to_thread(pipe.recv)
    asked_at = time.monotonic()
    trace = TraceFile(part.trace)
    config = NodeConfig(join_timeout_s=TIMEOUT_S, publish_timeout_s=TIMEOUT_S)
    shell = Shell(config, trace=trace.records)
    await shell.start(seed)
    node = shell.node
    joined_at = time.monotonic()
    messages = await node.subscribe(TOPIC).__aenter__()
    pipe.send(
        (
            "subscribed",
            {
                "address": node.address,
                "join_s": joined_at - asked_at,
                "subscribe_s": time.monotonic() - joined_at,
                "at": time.monotonic(),
                "rss": resident_bytes(),
            },
        )
    )
    await asyncio.to_thread(pipe.recv)
    cpu = cpu_seconds()
    publishing = asyncio.create_task(_publish(node, part))
    writing = asyncio.create_task(_write(trace))
    left = part.nodes * part.messages
    async for _ in messages:
        left -= 1
        if not left:
            break
    done_at = time.monotonic()
    await publishing
    result = {"at": done_at, "cpu_s": cpu_seconds() - cpu, "rss": resident_bytes()}
    pipe.send(("done", result))
    await asyncio.to_thread(pipe.recv)  # other nodes still need our forwarding
    writing.cancel()
    trace.close()
    pipe.send(("written", None))
    await asyncio.to_thread(pipe.recv)  # and we end without leaving: all has been said


async def _publish(node: Node, part: Part) -> None:
    payload = b"x" * part.size
    for _ in range(part.messages):
        await node.publish(TOPIC, payload)


async def _write(trace: TraceFile) -> None:
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        trace.flush()


# -- the parent -----------------------------------------------------------------------------------


def measure(nodes: int, messages: int, size: int, folder: Path) -> tuple[dict[str, Any], Report]:
    """Run once; the figures, and the checkers' report."""
    paths = [folder / f"node-{index}.jsonl" for index in range(nodes)]
    started = time.monotonic()
    starts = [
        partial(FunctionChild, index, run_node, Part(nodes, messages, size, path))
        for index, path in enumerate(paths)
    ]
    with closing_children(starts) as running:
        figures = _conduct(running, started)
    begun = time.monotonic()
    report = check(merge([read_jsonl(path)[1] for path in paths]))
    figures["check_s"] = time.monotonic() - begun
    expected = nodes * nodes * messages
    figures |= {
        "nodes": nodes,
        "messages": messages,
        "deliveries": report.deliveries,
        "missing": expected - report.deliveries,
        "violations": sum(report.counts.values()),
        "gaps": report.gaps,
        "deliveries_per_second": report.deliveries / figures["deliver_s"],
    }
    return figures, report


def _conduct(running: list[FunctionChild], started: float) -> dict[str, Any]:
    first, *others = running
    gather([first], "up", TIMEOUT_S)
    first.tell(None)
    (founder,) = gather([first], "subscribed", TIMEOUT_S)
    last_up = max([time.monotonic(), *_each_told(others, founder["address"])])
    members = [founder, *gather(others, "subscribed", TIMEOUT_S)]
    ready = max(member["at"] for member in members)
    _say(f"{len(running)} nodes after {ready - started:.1f} s")
    begun = time.monotonic()
    for one in running:
        one.tell("go")
    results = gather(running, "done", TIMEOUT_S)
    ended = max(result["at"] for result in results)
    _say(f"everything delivered after {ended - begun:.1f} s; checking")
    for one in running:
        one.tell("write")
    gather(running, "written", TIMEOUT_S)
    return {
        "start_s": ready - started,
        "processes_s": last_up - started,
        "join_s": _spread(member["join_s"] for member in members),
        "subscribe_s": _spread(member["subscribe_s"] for member in members),
        "deliver_s": ended - begun,
        "cpu_s": sum(result["cpu_s"] for result in results),
        "rss_idle_mb": _spread((member["rss"] or 0) / 1e6 for member in members),
        "rss_end_mb": _spread((result["rss"] or 0) / 1e6 for result in results),
    }


def _each_told(others: Sequence[FunctionChild], seed: str) -> list[float]:
    """Let every process join as soon as it is up; when each was."""
    waiting = {one.pipe: one for one in others}
    times = []
    while waiting:
        ready = wait(list(waiting), TIMEOUT_S)
        if not ready:
            raise BenchError(f"{len(waiting)} processes did not start in {TIMEOUT_S:g} s")
        for pipe in ready:
            one = waiting.pop(pipe)
            times.append(one.receive("up"))
            one.tell(seed)
    return times


def _spread(values: Any) -> dict[str, float]:
    known = list(values)
    return {"median": statistics.median(known), "max": max(known)}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(figures: dict[str, Any]) -> None:
    def both(name: str, unit: str) -> str:
        return f"{figures[name]['median']:.2f} {unit} (at most {figures[name]['max']:.2f})"

    print(f"{figures['nodes']} nodes, {figures['messages']:,} messages each")
    print(f"  start-up            {figures['start_s']:.1f} s to the last subscription")
    print(f"    processes up      {figures['processes_s']:.1f} s")
    print(f"    a node's join     {both('join_s', 's')}")
    print(f"    its subscribe     {both('subscribe_s', 's')}")
    print(f"  memory per node     {both('rss_idle_mb', 'MB')} once subscribed,")
    print(f"                      {both('rss_end_mb', 'MB')} at the end")
    print(
        f"  delivering          {figures['deliver_s']:.1f} s for {figures['deliveries']:,} "
        f"deliveries: {figures['deliveries_per_second']:,.0f} per s, {figures['cpu_s']:.1f} CPU-s"
    )
    print(
        f"  missing, gaps       {figures['missing']}, {figures['gaps']}; "
        f"violations {figures['violations']} (checked in {figures['check_s']:.1f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--messages", type=int, default=1000, help="published by each node")
    parser.add_argument("--size", type=int, default=100, help="bytes per message")
    parser.add_argument("--traces", type=Path, help="a folder to keep the nodes' traces in")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.nodes < 2 or options.messages < 1 or options.size < 0:
        parser.error("there are at least 2 nodes and 1 message, and sizes are not negative")
    try:
        with tempfile.TemporaryDirectory() as temporary, unwinding():
            folder = options.traces or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            figures, report = measure(options.nodes, options.messages, options.size, folder)
    except (BenchError, ChildError) as error:
        sys.exit(f"bench_cluster: {error}")
    if options.json:
        print(json.dumps(figures))
    else:
        _print(figures)
    if not report.ok or figures["missing"] or figures["gaps"]:
        sys.exit(str(report))


if __name__ == "__main__":
    main()
