"""How many messages per second does the simulator carry, with the real protocol objects?

All nodes subscribe to one topic and all publish, at N=256 and N=1024, in the papers' network.  A
message event is one message sent, carried and handled: publications, ACKs and control messages
alike.  Each point runs in a process of its own, so that its peak memory is its own; nothing is
checked or recorded.  Medians of `--repeat` runs.

    python bench/bench_simulator.py [--nodes 256 1024] [--repeat 3] [--protocols cubecast vcube-ps]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys

from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS

SCENARIO = SCENARIOS["multi-publisher"]


def measure(protocol: str, nodes: int, seed: int) -> dict[str, float]:
    params = Params().with_({**SCENARIO.defaults, "nodes": nodes})
    metrics = run(SCENARIO, protocol, params, seed, checked=False).metrics
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "events": metrics["events"],
        "publications": metrics["pub_messages"],
        "events_per_second": metrics["events_per_second"],
        "peak_mib": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--protocols", nargs="+", default=["cubecast", "vcube-ps", "srpt", "best-effort"]
    )
    parser.add_argument("--one", nargs=3, metavar=("PROTOCOL", "NODES", "SEED"))
    options = parser.parse_args()
    if options.one:
        protocol, nodes, seed = options.one
        print(json.dumps(measure(protocol, int(nodes), int(seed))))
        return
    print(f"{'protocol':>12} {'nodes':>6} {'events':>10} {'events/s':>10} {'peak MiB':>9}")
    for nodes in options.nodes:
        for protocol in options.protocols:
            runs = [
                json.loads(
                    subprocess.run(
                        [sys.executable, __file__, "--one", protocol, str(nodes), str(seed)],
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
                for seed in range(options.repeat)
            ]
            median = {name: statistics.median(r[name] for r in runs) for name in runs[0]}
            print(
                f"{protocol:>12} {nodes:>6} {median['events']:>10,.0f} "
                f"{median['events_per_second']:>10,.0f} {median['peak_mib']:>9,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
