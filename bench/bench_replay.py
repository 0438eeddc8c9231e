"""How often does a recorded conversation show an answer before its question?

Replays every conversation of a CSV file (docs/simulator.md, "Replay") over best effort and over
cubecast, on all cores, and adds up by channel.  Hops take a whole number of units of time drawn
from U[low, high]; a second of the trace takes `--scale` units.

    python bench/bench_replay.py FILE [--limit 3] [--scale 10] [--low 20] [--high 180]
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.workloads.replay import Conversation, read_conversations

COUNTED = (
    "publications", "deliveries", "answers_seen", "answers_before_questions", "violations", "gaps",
)  # fmt: skip


def replay(job: tuple[Conversation, str, dict[str, object]]) -> tuple[str, str, Counter[str]]:
    conversation, protocol, changes = job
    scenario = conversation.scenario()
    params = Params().with_(scenario.defaults).with_({**changes, "network": "uniform"})
    metrics = run(scenario, protocol, params, seed=0).metrics
    counts = Counter({name: int(metrics.get(name, 0)) for name in COUNTED})
    counts["conversations"] = 1
    return conversation.name.split("/")[0], protocol, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=Path("examples/talk.csv"))
    parser.add_argument("--limit", type=int, help="conversations per channel")
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--low", type=int, default=20)
    parser.add_argument("--high", type=int, default=180)
    parser.add_argument("--protocols", nargs="+", default=["best-effort", "cubecast"])
    options = parser.parse_args()
    changes = {name: getattr(options, name) for name in ("scale", "low", "high")}
    taken: Counter[str] = Counter()
    jobs = []
    for conversation in read_conversations(options.file):
        channel = conversation.name.split("/")[0]
        taken[channel] += 1
        if options.limit is None or taken[channel] <= options.limit:
            jobs += [(conversation, protocol, changes) for protocol in options.protocols]
    totals: dict[tuple[str, str], Counter[str]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for channel, protocol, counts in pool.map(replay, jobs):
            for key in ((channel, protocol), ("all", protocol)):
                totals.setdefault(key, Counter()).update(counts)
    heading = ("conversations", *COUNTED)
    print(f"{'channel':>16} {'protocol':>12} " + " ".join(f"{name:>13.13}" for name in heading))
    for (channel, protocol), counts in sorted(totals.items()):
        numbers = " ".join(f"{counts[name]:>13,}" for name in heading)
        print(f"{channel:>16} {protocol:>12} {numbers}")


if __name__ == "__main__":
    main()
