"""Does anything go wrong while a cluster grows and shrinks under load?

Every node is a process of its own, subscribes to one topic and publishes to it all the time.  The
cluster begins with two nodes, grows to `--most` one by one, and shrinks to `--least`; then the rest
stop publishing and leave, too.  The traces are merged and judged by the checkers: any violation,
gap or missing message is a failure.

    python bench/bench_growth.py --most 32 --least 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench_cluster import FLUSH_EVERY_S, TraceFile

from cubecast.bench.errors import BenchError
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.processes.child import ChildError
from cubecast.processes.function import FunctionChild, be_child, closing_children, gather
from cubecast.processes.signals import unwinding
from cubecast.trace import check, merge, read_jsonl

TOPIC = "all"
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part."""

    trace: Path
    pause_s: float
    """Between two publications."""


def run_node(part: Part, pipe: Connection) -> None:
    """One process."""
    be_child(_live(part, pipe), pipe)


async def _live(part: Part, pipe: Connection) -> None:
    pipe.send(("up", None))
    seed = await asyncio.to_thread(pipe.recv)
    trace = TraceFile(part.trace)
    config = NodeConfig(
        join_timeout_s=TIMEOUT_S, leave_timeout_s=TIMEOUT_S, publish_timeout_s=TIMEOUT_S
    )
    shell = Shell(config, trace=trace.records)
    await shell.start(seed)
    node = shell.node
    async with node.subscribe(TOPIC) as messages:
        pipe.send(("subscribed", node.address))
        reading = asyncio.create_task(_read(messages))
        publishing = asyncio.create_task(_publish(node, part.pause_s))
        writing = asyncio.create_task(_write(trace))
        await asyncio.to_thread(pipe.recv)
        publishing.cancel()
        pipe.send(("quiet", None))
        await asyncio.to_thread(pipe.recv)
    reading.cancel()
    await node.close()
    writing.cancel()
    trace.close()
    pipe.send(("left", None))
    await asyncio.to_thread(pipe.recv)  # until the parent ends us


async def _read(messages: Any) -> None:
    async for _ in messages:
        pass


async def _publish(node: Node, pause_s: float) -> None:
    while True:
        await node.publish(TOPIC, b"x" * 100)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


async def _write(trace: TraceFile) -> None:
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        trace.flush()


# -- the parent -----------------------------------------------------------------------------------


def _conduct(running: list[FunctionChild], least: int, hold_s: float) -> dict[str, float]:
    begun = time.monotonic()
    gather(running, "up", TIMEOUT_S)
    seed = None
    for number, one in enumerate(running):
        one.tell(seed)
        (address,) = gather([one], "subscribed", TIMEOUT_S)
        seed = seed or address
        if number + 1 == 2:
            time.sleep(hold_s)
    grown = time.monotonic()
    _say(f"{len(running)} nodes after {grown - begun:.1f} s")
    time.sleep(hold_s)
    order = list(running)
    random.Random(0).shuffle(order)  # the node that gives out slots leaves like any other
    while len(order) > least:
        _leave([order.pop()])
    shrunk = time.monotonic()
    _say(f"{least} nodes left {shrunk - grown:.1f} s later")
    time.sleep(hold_s)
    _leave(order)
    return {"grow_s": grown - begun, "shrink_s": shrunk - grown - hold_s}


def _leave(leavers: list[FunctionChild]) -> None:
    """First all of them publish nothing more, then they go."""
    for word, answer in (("stop", "quiet"), ("leave", "left")):
        for one in leavers:
            one.tell(word)
        gather(leavers, answer, TIMEOUT_S)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=32)
    parser.add_argument("--least", type=int, default=4)
    parser.add_argument("--pause-ms", type=float, default=10, help="between two publications")
    parser.add_argument("--hold", type=float, default=2.0, help="seconds at each size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not 2 <= options.least <= options.most or options.pause_ms <= 0 or options.hold < 0:
        parser.error("2 <= --least <= --most, and times are positive")
    try:
        with tempfile.TemporaryDirectory() as temporary, unwinding():
            paths = [Path(temporary) / f"node-{index}.jsonl" for index in range(options.most)]
            starts = [
                partial(FunctionChild, index, run_node, Part(path, options.pause_ms / 1e3))
                for index, path in enumerate(paths)
            ]
            with closing_children(starts) as running:
                times = _conduct(running, options.least, options.hold)
            report = check(merge([read_jsonl(path)[1] for path in paths]))
    except (BenchError, ChildError) as error:
        sys.exit(f"bench_growth: {error}")
    figures = {
        **times,
        "publications": report.publications,
        "deliveries": report.deliveries,
        "violations": sum(report.counts.values()),
        "gaps": report.gaps,
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"2 to {options.most} nodes in {times['grow_s']:.1f} s, to {options.least} in "
              f"{times['shrink_s']:.1f} s: {report.publications:,} publications, "
              f"{report.deliveries:,} deliveries, {figures['violations']} violations, "
              f"{report.gaps} gaps")  # fmt: skip
    if not report.ok or report.gaps:
        sys.exit(str(report))


if __name__ == "__main__":
    main()
