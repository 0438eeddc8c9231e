"""Does a cluster stay as it is while it is attacked, for an hour?

Long-lived nodes publish steadily and in bursts, ask and answer, and check numbers and order.
Beside them nodes join, leave, are killed and are stopped, light clients come and go, and attackers
do what they can: strangers, clients, holders of the members' key, and members that lie.  Every
process is real, and so is every socket.  A sample is taken every ten seconds.  At the end medians
of an early and a late quarter are compared: memory, descriptors, tasks and deliveries must be flat,
and nothing may be out of order, lost without a word, or breached.

    python bench/bench_siege.py --minutes 60 --state siege.jsonl --json siege.json
    python bench/bench_siege.py --minutes 5 --attacks strangers,clients
    python bench/bench_siege.py --judge siege.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from siege.conduct import Siege, Told
from siege.terms import GROUPS, Terms
from siege.verdict import Limits, Sample, Verdict, judge, table

from cubecast.bench.errors import BenchError
from cubecast.net.security.keys import check_secret, new_secret
from cubecast.processes.child import ChildError
from cubecast.processes.signals import unwinding


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=6, help="that live through all of it")
    parser.add_argument("--visitors", type=int, default=3, help="that come and go, at a time")
    parser.add_argument("--secret", default="", help="of the members; made at random if empty")
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance")
    parser.add_argument(
        "--attacks", default=",".join(GROUPS), help=f"some of {','.join(GROUPS)}; empty: none"
    )
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--state", type=Path, help="a file that gets every sample as it is taken")
    parser.add_argument("--json", type=Path, help="a file for figures, samples and the verdict")
    parser.add_argument("--judge", type=Path, metavar="STATE", help="judge a file, and run nothing")
    options = parser.parse_args()
    options.groups = tuple(filter(None, options.attacks.split(",")))
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"--attacks has {', '.join(sorted(unknown))}, not only {', '.join(GROUPS)}")
    if options.nodes < 2 or options.visitors < 0 or options.minutes <= 0 or options.every <= 0:
        parser.error("there are at least 2 nodes, and times are positive")
    try:
        check_secret("--secret", options.secret)
    except ValueError as error:
        parser.error(str(error))
    if options.state is not None and options.state.exists():
        parser.error(f"{options.state} exists: remove it, or judge it with --judge")
    return options


def _read_state(path: Path) -> tuple[list[Sample], dict[str, Any] | None]:
    """The samples of a file, and the figures if the run came to its end."""
    samples: list[Sample] = []
    figures = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            if "figures" in record:
                figures = record["figures"]
            elif "at_s" in record:
                samples.append(record)
        except (ValueError, TypeError):
            raise BenchError(f"{path}, line {number}: no sample of a siege") from None
    return samples, figures


def _besiege(options: argparse.Namespace) -> tuple[list[Sample], dict[str, Any]]:
    terms = Terms(options.secret or new_secret(), new_secret(), options.seed)
    told = Told(options.state)
    siege = Siege(terms, options.nodes, options.visitors, options.groups, options.every, told)
    with unwinding():
        figures = siege.run(options.minutes * 60)
    told.write({"figures": figures})
    return told.samples, figures


def _verdict(samples: list[Sample], figures: dict[str, Any] | None) -> Verdict:
    counts = {"runs cut short": 1} if figures is None else figures["must_be_0"]
    return judge(samples, counts, Limits())


def main() -> None:
    options = _arguments()
    try:
        if options.judge is not None:
            samples, figures = _read_state(options.judge)
        else:
            samples, figures = _besiege(options)
    except (BenchError, ChildError, OSError) as error:
        sys.exit(f"bench_siege: {error}")
    verdict = _verdict(samples, figures)
    if options.json is not None:
        whole = {"figures": figures, "verdict": verdict.as_dict(), "samples": samples}
        options.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    for line in _summary(figures or {}):
        print(line)
    print(table(verdict))
    if not verdict.ok:
        sys.exit(1)


def _summary(figures: dict[str, Any]) -> list[str]:
    lines = []
    for name in ("attacks", "moles", "visitors", "clients", "applications", "events", "log"):
        with suppress(KeyError):
            counts = figures[name]
            said = ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items()))
            lines.append(f"{name}: {said or 'none'}")
    lines.extend(
        f"node {exclusion['node']} excluded at {exclusion['at_s']:.0f} s; "
        f"beside it: {', '.join(exclusion['beside']) or 'nothing'}; "
        f"a loop was late by {exclusion['lag_ms']:,} ms"
        for exclusion in figures.get("exclusions", [])
    )
    return lines


if __name__ == "__main__":
    main()
