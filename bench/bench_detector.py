"""How soon do the first and all nodes know of a crash, and what does detection cost?

On simulated time, so the figures are those of the protocol and the same on every machine.  Each
sample is a cluster of its own: round trips are drawn around the preset's, nodes begin at random
times, and after ten rounds some crash at a random time.

`first` is when the first node suspects a crashed one, `all` when every correct node knows of all
crashes.  The cost is that of a round without crashes, in which every node begins one round of
tests; bytes are those of the encoded messages, without headers.

    python bench/bench_detector.py --samples 200
"""

from __future__ import annotations

import argparse
import statistics
from random import Random
from typing import NamedTuple

from cubecast.net.settings.presets import PRESETS, detector_for
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.crashes.detector_world import Detection, Rounds
from cubecast.topology import dimension_for, mask_of, members_of

WARM_UP_ROUNDS = 10
CASES = ((8, 1, 0.0), (8, 4, 0.0), (64, 1, 0.0), (64, 16, 0.0), (64, 1, 0.01))
"""Nodes, how many of them crash at once, and the share of messages lost."""
S = 1_000_000


class Sample(NamedTuple):
    """Times from the crash on, in microseconds."""

    first: Time
    everyone: Time


def cluster(
    config: DetectorConfig, round_trip: Time, n: int, loss: float, rng: Random
) -> Detection:
    def delay(source: NodeId, destination: NodeId) -> Time | None:
        if loss and rng.random() < loss:
            return None
        return rng.randint(round_trip // 4, round_trip * 3 // 4)

    return Detection(
        config, (1 << n) - 1, delay, start=lambda node: rng.randrange(config.test_every)
    )


def crash(preset: str, n: int, crashes: int, loss: float, rng: Random) -> Sample:
    config, round_trip = detector_for(preset), PRESETS[preset].round_trip
    world = cluster(config, round_trip, n, loss, rng)
    world.run(WARM_UP_ROUNDS * config.test_every + rng.randrange(config.test_every))
    crashed = mask_of(rng.sample(range(n), crashes))
    at, world.changes = world.now, []
    world.crash(members_of(crashed))
    while world.ignorant(crashed):
        world.run(world.now + config.test_every)
        assert world.now < at + 100 * config.suspect_max, "not all nodes know of the crash"
    last = {node: when for when, node, _ in world.changes}
    return Sample(world.changes[0][0] - at, max(last.values()) - at)


def detection_table(samples: int) -> None:
    print("| preset | nodes | crashed | loss | first: median, worst | all: median, worst |")
    print("|---|---|---|---|---|---|")
    for preset in PRESETS:
        for n, crashes, loss in CASES:
            rng = Random(f"{preset} {n} {crashes} {loss}")
            count = max(1, samples * 8 // n)
            drawn = [crash(preset, n, crashes, loss, rng) for _ in range(count)]
            cells = [
                f"{statistics.median(times) / S:.2f} s, {max(times) / S:.2f} s"
                for times in zip(*drawn, strict=True)
            ]
            print(f"| {preset} | {n} | {crashes} | {loss:.0%} | {cells[0]} | {cells[1]} |")


def cost_table() -> None:
    print("| nodes | tests per round | n log2 n | messages | bytes | bytes per node and s, lan |")
    print("|---|---|---|---|---|---|")
    config = detector_for("lan")
    for n in (2, 8, 16, 64, 100, 256, 1024):
        world = Detection(config, (1 << n) - 1, lambda source, destination: 1_000, weigh=True)
        world.run(10 * config.test_every)
        world.sent.clear()
        world.bytes = 0
        world.run(11 * config.test_every)
        per_second = world.bytes / n * S / config.test_every
        print(
            f"| {n:,} | {world.sent['test']:,} | {n * dimension_for(n):,} "
            f"| {sum(world.sent.values()):,} | {world.bytes:,} | {per_second:,.0f} |"
        )


def rounds_until_known(world: Rounds, crashed: int) -> tuple[int, int]:
    """How many rounds it took, and the most tests in one of them."""
    tests = [0]
    while world.ignorant(crashed):
        tests.append(world.round())
        assert len(tests) <= 1_000, "not all nodes know of the crash"
    return len(tests) - 1, max(tests)


def patterns(n: int, samples: int) -> list[int]:
    """Sets that crash: all of them, or some."""
    if n <= 8:
        return list(range(1, (1 << n) - 1))
    rng = Random(n)
    count = max(4, samples * 8 // n)
    return [mask_of(rng.sample(range(n), rng.randint(1, n - 1))) for _ in range(count)]


def round_table(samples: int) -> None:
    """Synchronous rounds, as [B] counts them: a set of nodes crashes, then all of it returns."""
    print(
        "| nodes | patterns | log2² n | crashes, rounds: mean, worst "
        "| returns, rounds: mean, worst | n log2 n | most tests in a round: crashes, returns |"
    )
    print("|---|---|---|---|---|---|---|")
    for n in (4, 8, 16, 64, 100, 256, 1024):
        crashes, returns = [], []
        for crashed in patterns(n, samples):
            world = Rounds((1 << n) - 1)
            world.crash(members_of(crashed))
            crashes.append(rounds_until_known(world, crashed))
            world.start(members_of(crashed), (1 << n) - 1)
            returns.append(rounds_until_known(world, 0))
        d = dimension_for(n)
        rounds = [
            f"{statistics.mean(taken for taken, _ in phase):.1f}, {max(phase)[0]}"
            for phase in (crashes, returns)
        ]
        tests = [f"{max(most for _, most in phase):,}" for phase in (crashes, returns)]
        print(
            f"| {n:,} | {len(crashes)} | {d * d} | {rounds[0]} | {rounds[1]} "
            f"| {n * d:,} | {tests[0]}, {tests[1]} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=200, help="crashes per row of eight nodes")
    arguments = parser.parse_args()
    for table in (lambda: round_table(arguments.samples), cost_table):
        table()
        print()
    detection_table(arguments.samples)


if __name__ == "__main__":
    main()
