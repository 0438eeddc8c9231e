"""Workloads of [T] 6: latencies and sizes of timestamps, computed from routes (Figures 9 to 20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.lab.workload import Workload, WorkloadError, number, whole

if TYPE_CHECKING:
    import numpy as np

    from cubecast.ordering.sim.dynamic import Course
    from cubecast.ordering.sim.links import Ints
    from cubecast.ordering.sim.static import EventSample, Routes

PUBLISHED = ("worst case", "uniform", "power law")
ORDERS = ("best order", "worst order", "random order")
ROUTES = ("multi-hop", "direct")
ENTRIES = ("random entries", "near entries")
DELAYS = ("fixed delays", "fresh delays")
NETWORKS = ("one per run", "one for all runs")
TAILS = ("redrawn", "clipped")
DRAWS = ("distinct", "repeated")
NETWORK: dict[str, Value] = {
    "nodes": 100, "topics": 50, "events": 300, "routes": "multi-hop", "entries": "random entries",
    "delays": "fixed delays", "networks": "one per run", "shape": 0.901, "tail": "redrawn",
    "draws": "distinct",
}  # fmt: skip
NETWORK_CHOICES = {
    "routes": ROUTES, "entries": ENTRIES, "delays": DELAYS, "networks": NETWORKS, "tail": TAILS,
    "draws": DRAWS,
}  # fmt: skip
ORDERINGS = ("dynamic", "static, best", "static, random")
SWAPPERS = ("topmost", "nearest", "every")
X_COUNTS = ("events", "events and subscriptions")
TIMINGS = ("in turn", "travelling")
TEN = 10
"""[T] Figure 18: a point is the mean of ten events."""
SWAP_METRICS = (
    "latency_start", "latency_before", "latency_after", "latency_end", "bytes_start",
    "bytes_before", "bytes_after", "bytes_end", "swaps", "discarded", "unfinished",
)  # fmt: skip
MOST_NODES, MOST_TOPICS = 100_000, 10_000
SECOND = 1000.0
ROUTE_METRICS = (
    "latency_mean", "ordering_mean", "diffusion_mean", "notified_share", "entries_mean",
    "bytes_mean", "foreign_share", "foreign_total",
)  # fmt: skip


def measure_routes(settings: Settings, seed: int) -> Measurement:
    """Figures 9 to 14: events of one model of publications, with a fixed order of topics."""
    import numpy as np

    from cubecast.ordering.sim.popularity import shared, shares, subscriptions
    from cubecast.ordering.sim.static import sample

    rng = np.random.default_rng([seed, 1])
    nodes, topics = whole(settings, "nodes"), whole(settings, "topics")
    published = str(settings["published"])
    shape = number(settings, "shape") if published == "power law" else 0.0
    chances = shares(topics, shape, str(settings["tail"]))
    each = whole(settings, "subscriptions") or topics
    draws = "distinct" if each == topics else str(settings["draws"])
    subscribed = subscriptions(rng, nodes, each, chances, draws)
    events = whole(settings, "events")
    chosen = rng.choice(topics, size=events, p=chances)
    ranks = ranks_of(str(settings["order"]), topics, rng)
    if published == "worst case":
        chosen[:] = int(np.argmax(ranks))
    publishers = rng.integers(0, nodes, size=events)
    routes = routes_of(settings, seed, subscribed)
    return Measurement(route_metrics(sample(routes, ranks, shared(subscribed), chosen, publishers)))


def routes_of(settings: Settings, seed: int, subscribed: np.typing.NDArray[np.bool_]) -> Routes:
    """The network that the settings describe: of a run's own, or the same for all runs."""
    from cubecast.ordering.sim.links import LinkDelays
    from cubecast.ordering.sim.pastry import Pastry
    from cubecast.ordering.sim.static import Routes

    if settings["networks"] == "one for all runs":
        seed = 0
    links = LinkDelays(seed, fresh=settings["delays"] == "fresh delays")
    near = settings["entries"] == "near entries"
    pastry = Pastry(whole(settings, "nodes"), whole(settings, "topics"), links, seed, near=near)
    return Routes(pastry, links, subscribed, direct=settings["routes"] == "direct")


def ranks_of(order: str, topics: int, rng: np.random.Generator) -> Ints:
    """The place of each topic in the order; topics are numbered by their popularity."""
    import numpy as np

    ranks: Ints = np.arange(topics)
    if order == "worst order":
        ranks = ranks[::-1].copy()
    elif order == "random order":
        ranks = rng.permutation(topics)
    return ranks


def route_metrics(sample: EventSample) -> dict[str, float]:
    """Latencies in seconds, as [T] has them; shares in percent."""
    from cubecast.ordering.sim.static import ENTRY_BYTES

    entries = float(sample.entries.mean())
    foreign = float(sample.foreign.sum())
    return {
        "latency_mean": float(sample.latency.mean()) / SECOND,
        "ordering_mean": float(sample.ordering.mean()) / SECOND,
        "diffusion_mean": float(sample.diffusion.mean()) / SECOND,
        "notified_share": 100 * float((sample.latency <= SECOND).mean()),
        "entries_mean": entries,
        "bytes_mean": ENTRY_BYTES * entries,
        "foreign_share": 100 * sample.foreign_share(),
        "foreign_total": 100 * foreign / (foreign + float(sample.own.sum())),
    }


def check_network(settings: Settings) -> None:
    """Refuse settings that cannot be run."""
    for name, most in (("nodes", MOST_NODES), ("topics", MOST_TOPICS)):
        if not 1 <= whole(settings, name) <= most:
            raise WorkloadError(name, f"must be from 1 to {most}, not {settings[name]}")
    if whole(settings, "events") < 1:
        raise WorkloadError("events", f"must be at least 1, not {settings['events']}")
    if not 0 <= whole(settings, "subscriptions") <= whole(settings, "topics"):
        raise WorkloadError(
            "subscriptions", f"must be from 0 (all) to topics, not {settings['subscriptions']}"
        )
    if not number(settings, "shape") > 0:
        raise WorkloadError("shape", f"must be above 0, not {settings['shape']}")


def routes_cost(settings: Settings) -> float:
    """Routes of every event, and one from every node to every topic, or (fresh) for every event."""
    hops = 5.0 if settings["entries"] == "near entries" else 1.0
    trees = number(settings, "events" if settings["delays"] == "fresh delays" else "topics")
    routes = 2 * number(settings, "events") + trees * number(settings, "nodes")
    return 0.1 + 3e-6 * hops * routes


# -- topics that change places --------------------------------------------------------------------


def measure_swaps(settings: Settings, seed: int) -> Measurement:
    """Figures 16 to 20: latency, bytes and swaps over time, one event per second."""
    import numpy as np

    from cubecast.ordering.sim.dynamic import DrawnPublications, Swaps, in_turn
    from cubecast.ordering.sim.popularity import shared, shares, subscriptions
    from cubecast.ordering.sim.swapping import Traffic

    rng = np.random.default_rng([seed, 4])
    nodes, events = whole(settings, "nodes"), whole(settings, "events")
    chances = shares(whole(settings, "topics"), number(settings, "shape"), str(settings["tail"]))
    each = whole(settings, "subscriptions") or whole(settings, "topics")
    subscribed = subscriptions(rng, nodes, each, chances, str(settings["draws"]))
    pairs = shared(subscribed)
    shuffle_at = whole(settings, "shuffle_at") or None
    published = DrawnPublications.drawn(rng, chances, nodes, events, shuffle_at)
    order = "best order" if settings["ordering"] == "static, best" else "random order"
    ranks = ranks_of(order, len(chances), rng)
    numbers: Ints = np.zeros(len(chances), np.int64)
    if settings["x_counts"] == "events and subscriptions":
        numbers += subscribed.sum(axis=0)
    routes = routes_of(settings, seed, subscribed)
    alpha, beta = number(settings, "alpha"), number(settings, "beta")
    swaps = Swaps(alpha, beta, str(settings["swapper"]))
    if settings["timing"] == "travelling":
        traffic = Traffic(routes, pairs, published, swaps, numbers, [ranks])
        course = traffic.run(SECOND * events)
    else:
        dynamic = settings["ordering"] == "dynamic"
        course = in_turn(routes, ranks, pairs, published, swaps if dynamic else None, numbers)
    return Measurement(*_course(course, events, shuffle_at or events // 2))


def _course(
    course: Course, events: int, change: int
) -> tuple[dict[str, float], dict[str, dict[int, int]]]:
    """The beginning and the end are tenths of a run; `_before` and `_after` are about the change.

    In the histograms a bucket is a second, its count the mean of ten events, in ms or bytes.
    """
    tenth = max(1, events // 10)
    sizes, latency = course.bytes(), course.latency
    spans = {
        "start": (0, tenth), "before": (change - tenth, change),
        "after": (change, min(change + tenth, events)), "end": (events - tenth, events),
    }  # fmt: skip
    metrics = {
        f"latency_{name}": course.mean(latency, *span) / SECOND for name, span in spans.items()
    }
    metrics |= {f"bytes_{name}": course.mean(sizes, *span) for name, span in spans.items()}
    metrics["swaps"] = float(course.swaps)
    metrics["discarded"] = float(course.discarded)
    metrics["unfinished"] = float(events - len(latency))
    tens = range(0, events, TEN)
    histograms = {
        "latency_ms": {at: round(course.mean(latency, at, at + TEN)) for at in tens},
        "timestamp_bytes": {at: round(course.mean(sizes, at, at + TEN)) for at in tens},
    }
    return metrics, histograms


def check_swaps(settings: Settings) -> None:
    """Refuse settings that cannot be run."""
    check_network(settings)
    if not number(settings, "alpha") > 0:
        raise WorkloadError("alpha", f"must be above 0, not {settings['alpha']}")
    if not 0 <= whole(settings, "shuffle_at") < whole(settings, "events"):
        raise WorkloadError(
            "shuffle_at", f"must be 0 (never) or below events, not {settings['shuffle_at']}"
        )
    travelling = settings["timing"] == "travelling"
    if travelling and settings["ordering"] != "dynamic":
        raise WorkloadError("ordering", "must be dynamic where orders travel")
    if travelling and settings["delays"] == "fresh delays":
        raise WorkloadError("delays", "must be fixed where orders travel")


def swaps_cost(settings: Settings) -> float:
    """Shared topics are a product of matrices; travelling orders visit all topics."""
    nodes, topics = number(settings, "nodes"), number(settings, "topics")
    work = 0.2 + nodes * topics * 6e-8
    if settings["timing"] == "travelling":
        work += number(settings, "events") * topics * 3e-5
    return work


ORDERING = (
    Workload(
        "ordered-routes",
        "timestamps visit the managers of their topics, and events their subscribers ([T] 6)",
        {
            "workload": "ordered-routes", **NETWORK, "published": "power law", "subscriptions": 0,
            "order": "best order",
        },
        ROUTE_METRICS,
        measure_routes,
        routes_cost,
        choices={**NETWORK_CHOICES, "published": PUBLISHED, "order": ORDERS},
        check=check_network,
    ),
    Workload(
        "ordered-swaps",
        "topics change places by their popularity, one event per second ([T] 5 and 6)",
        {
            "workload": "ordered-swaps", **NETWORK, "topics": 1000, "subscriptions": 100,
            "events": 600, "draws": "repeated", "ordering": "dynamic", "alpha": 0.1, "beta": 0.2,
            "swapper": "topmost", "x_counts": "events", "timing": "in turn", "shuffle_at": 0,
        },
        SWAP_METRICS,
        measure_swaps,
        swaps_cost,
        ("latency_ms", "timestamp_bytes"),
        {
            **NETWORK_CHOICES, "ordering": ORDERINGS, "swapper": SWAPPERS, "x_counts": X_COUNTS,
            "timing": TIMINGS,
        },
        check_swaps,
    ),
)  # fmt: skip
