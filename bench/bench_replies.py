"""What does a request with a reply topic of its own cost after very many of them?

Two nodes in memory, on virtual time.  For each request the requester subscribes to a fresh topic
``reply/<id>``, the replier publishes one message there, and the requester leaves; 10 ms of virtual
time later comes the next.  Printed are the processor time per request, over the last 100 before
each count and over all since the count before (topics are forgotten many at a time, which may fall
among the 100), and what the nodes keep then: topics, and entries of all tables of the protocol.
All should be flat.

With ``--follower`` a third node follows ``#``, so that it takes part in every reply topic.

    python bench/bench_replies.py --counts 100,1000,10000,100000 --cap 600
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from cubecast import Node
from cubecast.net.node.shell import shell_of
from cubecast.sim.census import census
from cubecast.testing import Cluster, run

LIMIT_S = 1e9
"""Of virtual time."""
PAUSE_S = 0.01
SAMPLE = 100
"""Requests over which a figure is taken."""


async def request(requester: Node, replier: Node, number: int) -> None:
    """One request and its reply."""
    topic = f"reply/{number}"
    async with requester.subscribe(topic) as replies:
        await replier.publish(topic, b"here it is")
        await anext(aiter(replies))
    await asyncio.sleep(PAUSE_S)


async def measure(counts: list[int], follower: bool, cap_s: float) -> list[dict[str, Any]]:
    """One row per count; none for those that are not reached within `cap_s` of CPU time."""
    rows = []
    began = time.process_time()
    async with Cluster(3 if follower else 2, trace=False) as cluster, AsyncExitStack() as stack:
        requester, replier, *others = cluster.nodes
        for other in others:
            everything = await stack.enter_async_context(other.subscribe("#"))
            reading = asyncio.create_task(_read(everything))
            stack.callback(reading.cancel)
        done = 0
        for count in counts:
            since, already = time.process_time(), done
            while done < count - SAMPLE:
                await request(requester, replier, done)
                done += 1
                if time.process_time() - began > cap_s:
                    rows.append(await _row(cluster, follower, done, None))
                    return rows
            await cluster.settle()
            before = time.process_time()
            for _ in range(SAMPLE):
                await request(requester, replier, done)
                done += 1
            now = time.process_time()
            row = await _row(cluster, follower, done, (now - before) / SAMPLE)
            row["ms_since_last_count"] = 1e3 * (now - since) / (done - already)
            rows.append(row)
            _say(row)
    return rows


async def _row(cluster: Cluster, follower: bool, done: int, each_s: float | None) -> dict[str, Any]:
    await cluster.settle()
    return {
        "follower": follower,
        "requests": done,
        "ms_per_request": None if each_s is None else 1e3 * each_s,
        "topics_kept": [len(shell_of(node).core.topics()) for node in cluster.nodes],
        "entries_kept": [sum(census(shell_of(node).member).values()) for node in cluster.nodes],
    }


async def _read(messages: Any) -> None:
    async for _ in messages:
        pass


def _say(row: dict[str, Any]) -> None:
    each = row["ms_per_request"]
    cost = "not reached in time"
    if each is not None:
        cost = f"{each:7.2f} ms of CPU each ({row['ms_since_last_count']:.2f} since the last count)"
    who = "with a follower of #" if row["follower"] else "two nodes"
    print(f"{who}, {row['requests']:>7,} requests: {cost}; topics kept {row['topics_kept']}, "
          f"entries {row['entries_kept']}", file=sys.stderr, flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--counts", default="100,1000,10000")
    parser.add_argument("--follower", action="store_true", help="a third node follows #")
    parser.add_argument("--cap", type=float, default=60, help="seconds of CPU time, at most")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        counts = sorted(int(count) for count in options.counts.split(","))
    except ValueError:
        parser.error(f"counts are numbers with commas, not {options.counts!r}")
    if counts[0] < SAMPLE or options.cap <= 0:
        parser.error(f"counts are at least {SAMPLE}, and the cap is positive")
    rows = run(measure(counts, options.follower, options.cap), limit_s=LIMIT_S)
    if rows[-1]["ms_per_request"] is None:
        _say(rows[-1])
    if options.json:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
