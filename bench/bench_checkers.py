"""How long do the checkers take, and how much memory do they need?

Two made-up traces without a violation: a thousand nodes that publish one message each, and eight
nodes that publish 25,000 each.  All eight properties, one core.

    python bench/bench_checkers.py
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

from cubecast.trace import Record, check


def trace(nodes: int, messages: int) -> Iterator[Record]:
    """Every node publishes in turn, and all nodes deliver each message at once."""
    for node in range(nodes):
        yield Record("join", 0, node, "t")
    for ident in range(nodes * messages):
        yield Record("publish", ident, ident % nodes, "t", ident)
        for node in range(nodes):
            yield Record("deliver", ident, node, "t", ident, source=ident % nodes)


def main() -> None:
    for nodes, messages in ((1000, 1), (8, 25_000)):
        started = time.perf_counter()
        report = check(trace(nodes, messages))
        elapsed = time.perf_counter() - started
        assert report.ok
        tracemalloc.start()
        check(trace(nodes, messages // 10 or 1))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"{nodes} nodes, {nodes * messages:,} messages, {report.deliveries:,} deliveries: "
            f"{elapsed:.1f} s, making the trace included; "
            f"peak {peak / 1e6:.0f} MB for {nodes * (messages // 10 or 1):,} messages"
        )


if __name__ == "__main__":
    main()
