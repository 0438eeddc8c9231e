"""What does a message cost at a node that is subscribed to many topics?

Two nodes in memory, on virtual time.  One subscribes to T topics; the other publishes to one of
them, a message every 10 ms of virtual time, so that every message is a frame, an ACK and the timers
of both nodes.  Printed is the processor time of both nodes per message, by T.  It should not depend
on T: the other topics have nothing to do.

    python bench/bench_topics.py --topics 1,10,100,1000,4000,10000 --messages 2000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

from cubecast.net.node.shell import shell_of
from cubecast.sim.census import census
from cubecast.testing import Cluster, run

LIMIT_S = 1e7
"""Of virtual time."""
PAUSE_S = 0.01
AT_A_TIME = 100
"""Subscriptions that are begun together."""


async def measure(topics: int, messages: int) -> dict[str, float]:
    """Processor seconds to subscribe, and to publish and read the messages."""
    async with Cluster(2, trace=False) as cluster, AsyncExitStack() as open_ones:
        publisher, subscriber = cluster.nodes
        begun = time.process_time()
        names = [f"topic/{number}" for number in range(topics)]
        subscriptions = []
        for start in range(0, topics, AT_A_TIME):
            some = [subscriber.subscribe(name) for name in names[start : start + AT_A_TIME]]
            subscriptions += await asyncio.gather(*map(open_ones.enter_async_context, some))
        await publisher.publish(names[0], b"first")  # the publisher registers
        await anext(aiter(subscriptions[0]))
        await cluster.settle()
        subscribed = time.process_time()
        for _ in range(messages):
            await publisher.publish(names[0], b"x" * 100)
            await anext(aiter(subscriptions[0]))
            await asyncio.sleep(PAUSE_S)
        ended = time.process_time()
        kept = sum(census(shell_of(subscriber).member).values())
    return {
        "topics": topics,
        "messages": messages,
        "subscribe_s": subscribed - begun,
        "messages_s": ended - subscribed,
        "us_per_message": 1e6 * (ended - subscribed) / messages,
        "entries_kept": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topics", default="1,10,100,1000,4000")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        counts = [int(count) for count in options.topics.split(",")]
    except ValueError:
        parser.error(f"topics are numbers with commas, not {options.topics!r}")
    if min(counts) < 1 or options.messages < 1:
        parser.error("topics and messages are at least 1")
    found = []
    for count in counts:
        figures = run(measure(count, options.messages), limit_s=LIMIT_S)
        found.append(figures)
        if not options.json:
            print(
                f"{count:>7,} topics: {figures['messages_s']:8.2f} s of CPU for "
                f"{options.messages:,} messages, {figures['us_per_message']:9.1f} µs each; "
                f"{figures['subscribe_s']:.1f} s to subscribe, "
                f"{figures['entries_kept']:,.0f} entries kept",
                flush=True,
            )
    if options.json:
        json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
