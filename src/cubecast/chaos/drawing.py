"""Schedules drawn from seeds: nodes that crash, stop and part while applications talk."""

from __future__ import annotations

from random import Random

from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule, checked
from cubecast.protocol.port import NodeId, Topic

WEIGHTS = {"crash": 5, "pause": 3, "partition": 2, "one-way": 2, "slow": 1}
SHORT = (30, 400)
MIDDLE = (400, 1500)
LONG = (1500, 6000)
"""Lengths of faults: too short to be noticed, noticed by some nodes, noticed by all."""
SPANS = (SHORT, MIDDLE, LONG)


def draw_schedule(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed; `nodes` sets their number, which is drawn otherwise."""
    rng = Random(f"chaos/{seed}")
    drawn = _draw_nodes(rng)
    size = drawn if nodes is None else nodes
    faults = _draw_faults(rng, size)
    ends = [fault.at + fault.lasts for fault in faults]
    length = max([*ends, 2000.0]) + rng.randint(1, 500)
    topics = _draw_topics(rng, size)
    steps = _draw_steps(rng, size, topics, int(length))
    steps += _draw_words(rng, topics, faults)
    chances = {
        "loss": rng.choice([0.0, 0.0, 0.02, 0.1]),
        "duplicate": rng.choice([0.0, 0.1]),
        "reorder": rng.choice([0.0, 0.2]),
        "spike": rng.choice([0.0, 0.0, 0.01]),
    }
    params = {
        "window": rng.choice([1, 2, 4, 64]),
        "ack_delay": rng.choice([0, 5, 20]),
        "stable_delay": rng.choice([0, 50, 300]),
        "resend_after": rng.choice([100, 300]),
        "consume_after": rng.choice([0, 0, 0, 150]),
    }
    return checked(
        Schedule(
            nodes=size,
            about=f"chaos of seed {seed}",
            length=length,
            seed=seed,
            answers=round(rng.choice([0.0, 0.3, 0.6, 0.9]) / max(len(topics["t"]), 1), 3),
            links={name: chance for name, chance in chances.items() if chance},
            params=params,
            topics=topics,
            faults=tuple(faults),
            steps=tuple(sorted(steps, key=lambda step: step.at)),
        )
    )


def _draw_nodes(rng: Random) -> int:
    """80 % up to 8, 18 % up to 32, 2 % above."""
    share = rng.random()
    if share < 0.8:
        return rng.choice((2, 3, 3, 4, 4, 5, 6, 7, 8, 8))
    return rng.randint(9, 32) if share < 0.98 else rng.randint(33, 64)


def _draw_faults(rng: Random, nodes: int) -> list[Fault]:
    """Draw up to a handful; in one schedule of ten no fault lasts long enough to be noticed.

    One node, the anchor, never crashes, so that there is a cluster to return to.
    """
    calm = rng.random() < 0.1
    number = rng.choice((0, 1, 1, 2, 3, 4, 5, 6)) if nodes <= 8 else rng.randint(1, 10)
    anchor = rng.randrange(nodes)
    faults: list[Fault] = []
    for _ in range(number):
        at = rng.randint(100, 5000)
        kind = rng.choice(("pause", "slow")) if calm else _weighted(rng)
        faults += _draw_fault(rng, kind, at, nodes, anchor, SHORT if calm else None)
    return sorted(faults, key=lambda fault: fault.at)


def _weighted(rng: Random) -> str:
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def _draw_fault(
    rng: Random, kind: str, at: int, nodes: int, anchor: NodeId, span: tuple[int, int] | None
) -> list[Fault]:
    lasts = rng.randint(*(span or rng.choice(SPANS)))
    node = rng.randrange(nodes)
    match kind:
        case "crash":
            mortal = [other for other in range(nodes) if other != anchor]
            many = 1 if rng.random() < 0.75 else rng.randint(1, len(mortal))
            return [_draw_crash(rng, at, other) for other in rng.sample(mortal, many)]
        case "pause":
            return [Fault(at, "pause", node, lasts=lasts)]
        case "slow":
            return [Fault(at, "slow", node, factor=rng.choice((2, 5, 20)), lasts=lasts)]
        case "one-way" if nodes > 1:
            source, to = rng.sample(range(nodes), 2)
            return [Fault(at, "one-way", source=source, to=to, lasts=lasts)]
        case "partition" if nodes > 1:
            side = sorted(rng.sample(range(nodes), rng.randint(1, nodes - 1)))
            return [Fault(at, "partition", sides=(tuple(side),), lasts=lasts)]
    return []


def _draw_crash(rng: Random, at: int, node: NodeId) -> Fault:
    """Draw a crash.  Most nodes come back, some at once, some long after they were excluded."""
    together = at + rng.choice((0, 0, rng.randint(0, 200)))
    if rng.random() < 0.25:
        return Fault(together, "crash", node)
    return Fault(together, "crash", node, lasts=rng.randint(*rng.choice(SPANS)))


def _draw_topics(rng: Random, nodes: int) -> dict[Topic, tuple[NodeId, ...]]:
    topics: dict[Topic, tuple[NodeId, ...]] = {}
    for topic in ("t",) if rng.random() < 0.8 else ("t", "u"):
        share = rng.choice((0.4, 0.7, 1.0)) if nodes <= 8 else rng.choice((0.2, 0.5))
        topics[topic] = tuple(node for node in range(nodes) if rng.random() < share)
    return topics


def _draw_steps(
    rng: Random, nodes: int, topics: dict[Topic, tuple[NodeId, ...]], length: int
) -> list[ApplicationStep]:
    steps = []
    names = list(topics)
    for _ in range(rng.randint(5, 60 if nodes <= 8 else 40)):
        at, node, topic = rng.randrange(length), rng.randrange(nodes), rng.choice(names)
        if rng.random() < 0.05:
            steps.append(ApplicationStep(at, "burst", node, topic, rng.randint(5, 20)))
        else:
            steps.append(ApplicationStep(at, "publish", node, topic))
    inside = {(node, topic) for topic, members in topics.items() for node in members}
    for at in sorted(rng.randrange(length) for _ in range(rng.choice((0, 0, 2, 4, 8)))):
        who = (rng.randrange(nodes), rng.choice(names))
        steps.append(ApplicationStep(at, "unsubscribe" if who in inside else "subscribe", *who))
        inside ^= {who}
    return steps


def _draw_words(
    rng: Random, topics: dict[Topic, tuple[NodeId, ...]], faults: list[Fault]
) -> list[ApplicationStep]:
    """Let a node publish at half of the faults.

    A node that crashes has just published, so that only some nodes have the messages.  A paused
    node publishes as it wakes up, when it may have been taken for dead.  During a cut, the first
    node of a side publishes to the end.
    """
    steps = []
    for fault in faults:
        topic = rng.choice(list(topics))
        if rng.random() < 0.5:
            continue
        match fault.act:
            case "crash":
                at = max(0.0, fault.at - rng.randint(0, 60))
                steps.append(ApplicationStep(at, "burst", fault.node, topic, rng.randint(1, 6)))
            case "pause":
                steps.append(
                    ApplicationStep(fault.at + 1, "burst", fault.node, topic, rng.randint(1, 6))
                )
            case "partition" | "one-way":
                node = fault.sides[0][0] if fault.sides else fault.source
                every = rng.choice((15, 40, 100))
                times = range(int(fault.at), int(fault.at + min(fault.lasts, 15 * every)), every)
                steps += [ApplicationStep(at, "publish", node, topic) for at in times]
    return steps
