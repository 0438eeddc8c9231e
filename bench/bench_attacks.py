"""For how long does each attack affect others, and what are they told?

Four honest nodes, each a process of its own, publish to a quiet topic every 20 ms and read it.
Each attack has a new cluster.  While it goes on, one node subscribes to a fresh topic, another
publishes to another fresh topic and to the topic of the first.  A row has

    gap        the longest time that a node heard nothing of another one on the quiet topic
    subscribe  how long the first subscribe to a fresh topic took
    publish    how long it took until the first publication to a fresh topic was done
    hear       how long after it was published the subscriber got the first message
    join       how long a newcomer took to get a place, at the end of the attack
    out        how long an honest node was missing in the view of another one, or had no view
    lost       messages that an honest node misses and was not told of
    got        what the attack got that it must not get: forged messages, a place, a node that ended
    told       events, lines of the log and of the audit, of all honest nodes together

The rows `control` and `death` have no attack: they show what the machine does by itself, and what
the death of a fifth node costs, with which some attacks begin.  A mute member is waited for
`mute_after`, 10 s; a mute leader, which is to let a newcomer in, for some 50 s; its row takes 75.

    python bench/bench_attacks.py
    python bench/bench_attacks.py --only epoch,mute --json attacks.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from functools import partial
from pathlib import Path

from attacks.bystander import run_bystander
from attacks.table import ATTACKS, CONTROL, table
from attacks.trial import Row, Trials

from cubecast.bench.errors import BenchError
from cubecast.processes.child import ChildError
from cubecast.processes.function import FunctionChild, closing_children, gather
from cubecast.processes.signals import unwinding

NODES = 4
START_S = 120.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help=f"some of {', '.join(ATTACKS)}; by comma")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds that a fresh topic is waited for"
    )
    parser.add_argument(
        "--seconds", type=float, help="that each attack goes on at least; 4 to 10 if not given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance")
    parser.add_argument("--json", type=Path, help="a file for all that was found")
    options = parser.parse_args()
    options.names = tuple(filter(None, options.only.split(","))) or tuple(ATTACKS)
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"--only has {', '.join(sorted(unknown))}, not only {', '.join(ATTACKS)}")
    if options.patience <= 0 or (options.seconds is not None and options.seconds <= 0):
        parser.error("--patience and --seconds must be positive")
    return options


async def _attack(options: argparse.Namespace, nodes: list[FunctionChild], rows: list[Row]) -> None:
    """Run the attacks one after the other; `rows` has those done, also if a later one fails."""
    trials = Trials(nodes, options.patience, options.seed)
    for name in dict.fromkeys((CONTROL, *options.names)):
        staged = ATTACKS[name]
        if options.seconds is not None:
            staged = staged._replace(seconds=options.seconds)
        rows.append(await trials.run(name, staged))
        print(f"{name}: {rows[-1].seconds:.1f} s", file=sys.stderr, flush=True)


def main() -> None:
    options = _arguments()
    log = logging.getLogger("cubecast")  # of attackers: not shown
    log.addHandler(logging.NullHandler())
    log.propagate = False
    starts = [partial(FunctionChild, index, run_bystander, index, NODES) for index in range(NODES)]
    rows: list[Row] = []
    failure = ""
    try:
        with unwinding(), closing_children(starts) as nodes:
            gather(nodes, "up", START_S)
            asyncio.run(_attack(options, nodes, rows))
    except (BenchError, ChildError, OSError) as error:
        failure = f"bench_attacks: {error}"
    except SystemExit:  # by SIGTERM: what is done is told
        failure = f"bench_attacks: ended after {len(rows)} rows"
    if options.json is not None:
        found = [row.as_dict() for row in rows]
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(rows))
    if failure:
        sys.exit(failure)


if __name__ == "__main__":
    main()
