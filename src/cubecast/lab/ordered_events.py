"""Workload of [T] 6: ordering modules in virtual time (Figures 15 and 21 to 24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.lab.ordering import (
    DELAYS,
    DRAWS,
    ENTRIES,
    ORDERS,
    ROUTES,
    TAILS,
    check_network,
    ranks_of,
)
from cubecast.lab.workload import Workload, WorkloadError, number, whole

if TYPE_CHECKING:
    import numpy as np

    from cubecast.ordering.sim.links import Ints
    from cubecast.ordering.sim.services import Service
    from cubecast.ordering.sim.world import TimedWorld

PROTOCOLS = ("bare", "one sequencer", "per topic", "faithful", "production")
PUBLISHED = ("worst case", "uniform", "power law", "own topic")
SERVICES = ("scribe", "vcube")
LINKS = ("simulated", "emulated")
BEGINS = ("in place", "one by one")
PATTERNS = ("in a row", "one by one")
AFTER_S = 120
"""Seconds after the last event by which all has arrived; events that still wait never end."""
METRICS = (
    "latency_mean", "ordering_mean", "notified_share", "tagged_share", "stuck_share",
    "detected_share", "patterns", "inverted_pairs", "entries_mean", "sends",
)  # fmt: skip


def measure_events(settings: Settings, seed: int) -> Measurement:
    """Publish events at a rate, and measure the notifications of subscribers."""
    import numpy as np

    from cubecast.ordering.sim.protocols import subscribe_all

    rng = np.random.default_rng([seed, 2])
    wanted = _subscriptions(settings, rng)
    publishers = _publishers(settings, wanted, rng)
    world = _world(settings, seed, rng, sorted({*wanted, *publishers}))
    subscribe_all(world, wanted, in_place=settings["begin"] == "in place")
    topics = _publish(settings, world, publishers, rng)
    before = world.sends
    world.run(until=world.now + int((number(settings, "seconds") + AFTER_S) * 1e6))
    return Measurement(_metrics(settings, world, wanted, topics, before, rng))


def _subscriptions(settings: Settings, rng: np.random.Generator) -> dict[int, list[int]]:
    """The topics of each subscriber."""
    from cubecast.ordering.sim.popularity import shares, subscriptions

    nodes, topics = whole(settings, "nodes"), whole(settings, "topics")
    count = whole(settings, "subscribers") or nodes
    each = whole(settings, "subscriptions") or topics
    shape = number(settings, "shape") if settings["published"] == "power law" else 0.0
    chances = shares(topics, shape, str(settings["tail"]))
    draws = "distinct" if each == topics else str(settings["draws"])
    table = subscriptions(rng, count, each, chances, draws)
    chosen = rng.choice(nodes, size=count, replace=False)
    return {node: table[row].nonzero()[0].tolist() for row, node in enumerate(chosen.tolist())}


def _publishers(
    settings: Settings, wanted: dict[int, list[int]], rng: np.random.Generator
) -> list[int]:
    nodes, count = whole(settings, "nodes"), whole(settings, "publishers")
    if not count:
        return list(range(nodes))
    others = [node for node in range(nodes) if node not in wanted] or list(range(nodes))
    found: list[int] = rng.choice(others, size=count, replace=count > len(others)).tolist()
    return found


def _world(
    settings: Settings, seed: int, rng: np.random.Generator, members: list[int]
) -> TimedWorld:
    from cubecast.ordering.sim.links import EMULATED, SIMULATED, LinkDelays
    from cubecast.ordering.sim.protocols import Options, make_of
    from cubecast.ordering.sim.world import TimedWorld

    kinds = EMULATED if settings["links"] == "emulated" else SIMULATED
    links = LinkDelays(seed, kinds, fresh=settings["delays"] == "fresh delays")
    topics = whole(settings, "topics")
    ranks = ranks_of(str(settings["order"]), topics, rng)
    buffer, wait_s = whole(settings, "buffer"), number(settings, "wait_s")
    options = Options(None if buffer < 0 else buffer, round(wait_s * 1e6) if wait_s else None)
    return TimedWorld(
        make_of(str(settings["protocol"]), options, members),
        _service(settings, links, seed),
        links,
        sorted(range(topics), key=ranks.tolist().__getitem__),
        members,
        send_us=round(1000 * number(settings, "send_ms")),
    )


def _service(settings: Settings, links: object, seed: int) -> Service:
    from cubecast.ordering.sim.links import LinkDelays
    from cubecast.ordering.sim.pastry import Pastry
    from cubecast.ordering.sim.services import Cube, Scribe

    assert isinstance(links, LinkDelays)
    nodes, topics = whole(settings, "nodes"), whole(settings, "topics")
    if settings["service"] == "vcube":
        return Cube(nodes, topics, seed)
    pastry = Pastry(nodes, topics, links, seed, near=settings["entries"] == "near entries")
    return Scribe(pastry, direct=settings["routes"] == "direct")


def _publish(
    settings: Settings, world: TimedWorld, publishers: list[int], rng: np.random.Generator
) -> Ints:
    """Events in even steps, each moved by chance within its step; the topic of each."""
    from cubecast.ordering.sim.popularity import shares

    rate, count = number(settings, "rate"), len(publishers)
    events = max(1, round(rate * number(settings, "seconds")))
    topics, published = whole(settings, "topics"), str(settings["published"])
    shape = number(settings, "shape") if published == "power law" else 0.0
    chosen: Ints = rng.choice(topics, size=events, p=shares(topics, shape, str(settings["tail"])))
    sources: list[int] = rng.integers(0, count, size=events).tolist()
    if published == "worst case":
        chosen[:] = world.order[-1]
    elif published == "own topic":
        sources = [event % count for event in range(events)]
        chosen[:] = [source % topics for source in sources]
    begun = world.now
    for event, moved in enumerate(rng.random(events).tolist()):
        time = begun + round((event + moved) / rate * 1e6)
        world.publish_at(time, publishers[sources[event]], int(chosen[event]), event)
    return chosen


def _metrics(
    settings: Settings,
    world: TimedWorld,
    wanted: dict[int, list[int]],
    topics: Ints,
    before: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Latencies in seconds, to the last subscriber that was notified; shares in percent."""
    from cubecast.ordering.judge import inversions
    from cubecast.ordering.sim.patterns import KINDS, detected
    from cubecast.ordering.sim.patterns import PATTERNS as FINDERS

    notes = {node: [one.notification for one in seen] for node, seen in world.seen.items()}
    chosen = topics.tolist()
    due = sum(chosen.count(topic) for mine in wanted.values() for topic in mine)
    made = sum(map(len, notes.values()))
    tagged = sum(not one.in_order for seen in notes.values() for one in seen)
    last = world.last_seen()
    latencies = [(last[event] - world.published[event]) / 1e6 for event in last]
    ordering = [(at - world.published[event]) / 1e6 for event, at in world.stamped.items()]
    waited = {topic: sum(topic in mine for mine in wanted.values()) for topic in set(chosen)}
    in_time = _in_time(world, waited, chosen)
    kinds = dict(enumerate(rng.integers(0, KINDS, size=len(chosen)).tolist()))
    find = FINDERS[str(settings["pattern"])]
    order = {
        node: [int(str(one.event)) for one in notes.get(node, ()) if one.in_order]
        for node in wanted
    }
    found = [find(one, kinds) for one in order.values()]
    return {
        "latency_mean": _mean(latencies),
        "ordering_mean": _mean(ordering),
        "notified_share": 100 * in_time / max(1, len(chosen)),
        "tagged_share": 100 * tagged / max(1, due),
        "stuck_share": 100 * (due - made) / max(1, due),
        "detected_share": 100 * detected(found),
        "patterns": float(len(set().union(*found))),
        "inverted_pairs": float(len(inversions(world.notifications()))),
        "entries_mean": _mean([float(_entries(stamp)) for stamp in world.stamps.values()]),
        "sends": (world.sends - before) / max(1, len(chosen)),
    }


def _in_time(world: TimedWorld, waited: dict[int, int], topics: list[int]) -> int:
    """Events that all their subscribers were notified of within a second (reading)."""
    counts = dict.fromkeys(range(len(topics)), 0)
    for seen in world.seen.values():
        for one in seen:
            event = int(str(one.notification.event))
            counts[event] += one.time - world.published[event] <= 1_000_000
    return sum(counts[event] == waited[topic] for event, topic in enumerate(topics))


def _entries(stamp: object) -> int:
    from cubecast.ordering.timestamps import Stamp, Timestamp

    if isinstance(stamp, Stamp):
        return 1 + len(stamp.higher) + len(stamp.passed)
    assert isinstance(stamp, Timestamp)
    return len(stamp)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def check_events(settings: Settings) -> None:
    """Refuse settings that cannot be run."""
    check_network({**settings, "events": 1})
    for name in ("rate", "seconds"):
        if not number(settings, name) > 0:
            raise WorkloadError(name, f"must be above 0, not {settings[name]}")
    for name in ("subscribers", "publishers"):
        if not 0 <= whole(settings, name) <= whole(settings, "nodes"):
            raise WorkloadError(name, f"must be from 0 (all) to nodes, not {settings[name]}")
    for name in ("send_ms", "wait_s"):
        if number(settings, name) < 0:
            raise WorkloadError(name, f"must not be negative, but is {settings[name]}")
    nodes = whole(settings, "nodes")
    if settings["service"] == "vcube" and nodes & (nodes - 1):
        raise WorkloadError("nodes", f"must be a power of two for vcube, not {nodes}")


def events_cost(settings: Settings) -> float:
    """Links that events and timestamps take; a wide buffer of the faithful mode is slow."""
    events = number(settings, "rate") * number(settings, "seconds")
    subscribers = number(settings, "subscribers") or number(settings, "nodes")
    each = number(settings, "subscriptions") / number(settings, "topics") or 1.0
    slow = 4.0 if settings["protocol"] == "faithful" and settings["buffer"] else 1.0
    return 0.1 + 2e-5 * slow * events * (10 + 2 * each * subscribers)


DEFAULTS: dict[str, Value] = {
    "workload": "ordered-events", "protocol": "faithful", "buffer": 0, "wait_s": 0.0,
    "begin": "in place", "service": "scribe", "nodes": 100, "topics": 5, "subscribers": 0,
    "subscriptions": 0, "publishers": 0, "published": "power law", "order": "best order",
    "rate": 1.0, "seconds": 60.0, "links": "simulated", "send_ms": 0.0, "routes": "multi-hop",
    "entries": "random entries", "delays": "fixed delays", "shape": 0.901, "tail": "redrawn",
    "draws": "distinct", "pattern": "in a row",
}  # fmt: skip
ORDERED_EVENTS = (
    Workload(
        "ordered-events",
        "ordering modules on a service in virtual time: tags, patterns, latencies ([T] 6)",
        DEFAULTS,
        METRICS,
        measure_events,
        events_cost,
        choices={
            "protocol": PROTOCOLS, "begin": BEGINS, "service": SERVICES, "published": PUBLISHED,
            "order": ORDERS, "links": LINKS, "routes": ROUTES, "entries": ENTRIES,
            "delays": DELAYS, "tail": TAILS, "draws": DRAWS, "pattern": PATTERNS,
        },
        check=check_events,
    ),
)  # fmt: skip
