"""A year of 64 simulated nodes: does any table that they keep grow?

    python tools/long_life.py --nodes 64 --days 365 --out year.jsonl

Prints the tables of all nodes at the end of each day, and at the end those whose median grew from
the first quarter of the days after the warm-up to the last (`cubecast.sim.long_life`).  Exits with
1 if there are any, or if the checkers find a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from cubecast.sim.long_life import DayEnd, LifePlan, live

WARM_UP = 60
"""Days until each of 64 nodes has published to each topic; a sixth of a shorter life."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--allowed", type=float, default=2.0,
                        help="entries a node by which a table may vary by chance")  # fmt: skip
    parser.add_argument("--no-check", action="store_true", help="do not judge the trace")
    parser.add_argument("--out", type=Path, help="write every day's tables here, one JSON a line")
    options = parser.parse_args()
    if options.nodes < 8 or options.days < 12:
        parser.error("at least 8 nodes and 12 days")
    plan = LifePlan(
        nodes=options.nodes, days=options.days, seed=options.seed, check=not options.no_check
    )
    begun = time.process_time()
    file = options.out.open("w") if options.out else None

    def tell(end: DayEnd) -> None:
        spent = time.process_time() - begun
        print(f"day {end.day:>4}: {end.entries:>8,} entries, {end.most:>6,} at most at one node, "
              f"{spent:.0f} s of CPU so far", flush=True)  # fmt: skip
        if file is not None:
            file.write(json.dumps({"day": end.day, "most": end.most, **end.tables}) + "\n")
            file.flush()

    chronicle = live(plan, tell)
    if file is not None:
        file.close()
    warm_up = min(WARM_UP, options.days // 6)
    quarter = (options.days - warm_up) // 4
    grown = chronicle.grown(quarter, warm_up, options.allowed, options.nodes)
    print(", ".join(f"{count:,} {what}" for what, count in chronicle.happened.most_common()))
    for name, (before, after) in grown.items():
        print(f"GROWN: {name} from a median of {before:,} to {after:,}")
    if chronicle.report is not None:
        print(chronicle.report)
    return 1 if grown or (chronicle.report is not None and not chronicle.report.ok) else 0


if __name__ == "__main__":
    sys.exit(main())
