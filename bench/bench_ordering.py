"""What does order across topics cost, and what does it mend?

Four publishers, four subscribers of overlapping sets of topics, each in a process of its own, on

    nats       a NATS server                 redis      a Redis server (Pub/Sub)
    cluster    a NATS cluster of three       cubecast   nodes, one per member

first bare, then with `cubecast.ordered`, in one run.  The first table is about order: event pairs
that two subscribers saw in opposite orders, pairs of subscribers that did so, events that were
tagged or lost, events per second as fast as it goes (until the last subscriber has its last one),
and from the publish call to the application at a moderate rate, in milliseconds.

`--topics-per-subscriber` is about cost: cubecast nodes with causal order only, and with total
order, on topics drawn by a power law (Pareto, x_m = 1, rounded down).

    python bench/bench_ordering.py --on nats,cluster,redis,cubecast --events 20000 --rate 1000
    python bench/bench_ordering.py --topics-per-subscriber 1,5,10,20,50
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from cubecast.bench.event_servers import NoServer, nats_servers, redis_server
from cubecast.bench.ordering_members import Kind, MemberTask, OrderingWorkload, opposite
from cubecast.bench.ordering_members import main as member
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.judge import Notification, inversions, repeated
from cubecast.ordering.timestamps import Timestamp
from cubecast.processes.function import FunctionChild, closing_children, gather, tell_all
from cubecast.processes.signals import unwinding

TIMEOUT_S = 300.0
SETTLE_S = {"cluster": 2.0}
"""Servers of a cluster tell each other who subscribes in their own time."""
TOPICS = tuple(f"t{number}" for number in range(5))
SETS = (TOPICS[:3], TOPICS[1:], TOPICS, (*TOPICS[:2], *TOPICS[3:]))
EXPONENT = 0.901
MEDIANS = ("events_per_s", "cpu_s", "p50_ms", "p99_ms")
NO_STAMP = Timestamp(())


class Place(NamedTuple):
    """A service that runs."""

    kind: Kind
    addresses: tuple[str, ...]
    settle_s: float


@contextmanager
def place(name: str) -> Iterator[Place]:
    """Start the servers of a service."""
    settle_s = SETTLE_S.get(name, 0.0)
    if name == "cubecast":
        yield Place("cubecast", (), settle_s)
    elif name == "redis":
        with redis_server() as addresses:
            yield Place("redis", tuple(addresses), settle_s)
    else:
        with nats_servers(3 if name == "cluster" else 1) as addresses:
            yield Place("nats", tuple(addresses), settle_s)


# -- one run ---------------------------------------------------------------------------------------


def run(
    where: Place, workload: OrderingWorkload, ordered: bool, config: OrderedConfig
) -> dict[str, Any]:
    """All members' part; what subscribers saw, and how long it took."""
    tasks = [
        MemberTask(where.kind, where.addresses, name, ordered, workload, config)
        for name in workload.members
    ]
    starts = [partial(FunctionChild, number, member, task) for number, task in enumerate(tasks)]
    with closing_children(starts) as running:
        seed = None
        for one in running:
            one.tell(seed)
            address = one.receive("open")
            seed = seed or address
        tell_all(running, "subscribe")
        gather(running, "ready", TIMEOUT_S)
        time.sleep(where.settle_s)
        begin = time.monotonic()
        tell_all(running, begin)
        reports = gather(running, "result", TIMEOUT_S)
    subscribers = reports[: len(workload.subscriptions)]
    seen = {f"s{number}": report for number, report in enumerate(subscribers)}
    return {
        **judged(seen, workload),
        "events_per_s": workload.events / (max(report["end"] for report in reports) - begin),
        "cpu_s": sum(report["cpu_s"] for report in reports),
        **latencies([at for report in subscribers for at in report["latencies"]]),
    }


def judged(seen: Mapping[str, Mapping[str, Any]], workload: OrderingWorkload) -> dict[str, Any]:
    """What was wrong with the order; tagged events are not part of it."""
    sequences = {
        name: [Notification(event, "", NO_STAMP, True) for event in report["seen"]]
        for name, report in seen.items()
    }
    due = sum(workload.due(number) for number in range(len(workload.subscriptions)))
    got = sum(len(report["seen"]) + len(report["tagged"]) for report in seen.values())
    pairs = combinations(sorted(seen), 2)
    return {
        "opposite_pairs": sum(opposite(seen[a]["seen"], seen[b]["seen"]) for a, b in pairs),
        "subscriber_pairs": len(inversions(sequences)),
        "tagged": sum(len(report["tagged"]) for report in seen.values()),
        "lost": due - got,
        "missed": sum(report["missed"] for report in seen.values()),
        "repeated": len(repeated(sequences)),
        "notified": got,
    }


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {"p50_ms": 0.0, "p99_ms": 0.0}
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}


# -- what is asked ---------------------------------------------------------------------------------


def compare(
    name: str, events: int, rate: float, config: OrderedConfig, repeat: int
) -> list[dict[str, Any]]:
    """A service bare and ordered: as fast as it goes, and at a moderate rate."""
    fast = OrderingWorkload(4, SETS, TOPICS, (1.0,) * len(TOPICS), events, seed=1)
    calm = OrderingWorkload(
        4, SETS, TOPICS, (1.0,) * len(TOPICS), min(events, int(10 * rate)), 2, rate
    )
    with place(name) as where:
        at_full_speed = repeated_runs(where, fast, config, repeat)
        at_rate = repeated_runs(where, calm, config, 1)
    return [
        {"on": name, **full, "p50_ms": moderate["p50_ms"], "p99_ms": moderate["p99_ms"]}
        for full, moderate in zip(at_full_speed, at_rate, strict=True)
    ]


def repeated_runs(
    where: Place, workload: OrderingWorkload, config: OrderedConfig, repeat: int
) -> list[dict[str, Any]]:
    """Without order and with it, in turns: times are medians, faults are sums."""
    runs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for _ in range(repeat):
        for ordered, found in runs.items():
            found.append(run(where, workload, ordered, config))
    rows = []
    for ordered, found in runs.items():
        figures = {
            key: statistics.median(one[key] for one in found)
            if key in MEDIANS
            else sum(one[key] for one in found)
            for key in found[0]
        }
        figures["subscriber_pairs"] = max(one["subscriber_pairs"] for one in found)
        rows.append({"ordered": ordered, **figures})
    return rows


def power_law(count: int, rng: Random) -> int:
    """A number below `count`; 0 is the most frequent."""
    while (drawn := int(rng.paretovariate(EXPONENT))) > count:
        pass
    return drawn - 1


def scaled(each: int, topics: int, events: int, seed: int = 1) -> OrderingWorkload:
    """Subscribers of `each` topics, which are drawn by the same law as those of events."""
    rng = Random(seed)
    names = tuple(f"t{number:04}" for number in range(topics))
    sets = []
    for _ in range(4):
        chosen: set[int] = set()
        while len(chosen) < each:
            chosen.add(power_law(topics, rng))
        sets.append(tuple(names[number] for number in sorted(chosen)))
    # The chance of each number by the law's distribution: 1 - x ** -EXPONENT.
    weights = tuple((n + 1) ** -EXPONENT - (n + 2) ** -EXPONENT for n in range(topics))
    return OrderingWorkload(4, tuple(sets), names, weights, events, seed)


def cost(
    each: int, topics: int, events: int, config: OrderedConfig, repeat: int
) -> list[dict[str, Any]]:
    """Cubecast nodes with causal order only, and with total order."""
    where = Place("cubecast", (), 0.0)
    rows = repeated_runs(where, scaled(each, topics, events), config, repeat)
    return [{"topics": each, **row} for row in rows]


# -- tables ----------------------------------------------------------------------------------------


def print_comparison(rows: Sequence[Mapping[str, Any]]) -> None:
    for bare, ordered in zip(rows[::2], rows[1::2], strict=True):
        ratio = ordered["events_per_s"] / bare["events_per_s"]
        for row in (bare, ordered):
            print(
                f"{row['on']:>8} {'ordered' if row['ordered'] else 'bare':>8}: "
                f"{row['opposite_pairs']:>10,} opposite pairs of events "
                f"({row['subscriber_pairs']} of 6 pairs of subscribers), {row['tagged']:,} tagged, "
                f"{row['lost']:,} lost ({row['missed']:,} unread), "
                f"{row['events_per_s']:>9,.0f} events/s, "
                f"p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms",
                flush=True,
            )
        cpu = ordered["cpu_s"] / bare["cpu_s"]
        print(
            f"{'':>17}  {ratio:.2f} of the bare service's events/s, {cpu:.1f} times its CPU",
            flush=True,
        )


def print_cost(rows: Sequence[Mapping[str, Any]]) -> None:
    causal, total = rows
    print(
        f"{causal['topics']:>3} topics per subscriber: {causal['events_per_s']:>9,.0f} events/s "
        f"causal, {total['events_per_s']:>9,.0f} total "
        f"({total['events_per_s'] / causal['events_per_s']:.2f}), "
        f"{total['tagged']:,} tagged, {total['lost']:,} lost; "
        f"{total['cpu_s'] / causal['cpu_s']:.1f} times the CPU",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--on", default="nats,cluster,redis,cubecast", help="services")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1000.0, help="events/s for latency")
    parser.add_argument("--wait", type=float, help="wait_s [default: the library's]")
    parser.add_argument("--retry", type=float, default=OrderedConfig().retry_s, help="retry_s")
    parser.add_argument("--topics-per-subscriber", default="", metavar="N,N,...")
    parser.add_argument("--topics", type=int, default=1000, help="topics of the power law")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, in turns")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = OrderedConfig(wait_s=options.wait, retry_s=options.retry)
    found: list[dict[str, Any]] = []
    with unwinding():
        if options.topics_per_subscriber:
            for each in map(int, options.topics_per_subscriber.split(",")):
                rows = cost(each, options.topics, options.events, config, options.repeat)
                found += rows
                if not options.json:
                    print_cost(rows)
        else:
            for name in options.on.split(","):
                try:
                    rows = compare(name, options.events, options.rate, config, options.repeat)
                except NoServer as reason:
                    print(f"{name}: {reason}", file=sys.stderr)
                    continue
                found += rows
                if not options.json:
                    print_comparison(rows)
    if options.json:
        json.dump(found, sys.stdout)
    wrong = [row for row in found if row["ordered"] and row["opposite_pairs"]]
    sys.exit(f"{len(wrong)} ordered runs had opposite orders" if wrong else 0)


if __name__ == "__main__":
    main()
