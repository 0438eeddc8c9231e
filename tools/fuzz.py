"""Random and mutated packets against the decoders and live nodes, a million if need be.

    tools/fuzz.py --packets 1000000 --seed 1 --state fuzz.json

Modes: `decoders` feeds every decoder of the wire; `stranger` dials live nodes without a key;
`member` joins their cluster honestly and then lies, in its own name and as a process that only
holds the key; `client` attaches with the clients' key.  The nodes run in three processes of their
own and talk with each other on a quiet topic meanwhile.  After every block of packets the fuzzer
checks that they live, printed nothing on stderr, hear each other, and are as small as before.

With a state file an interrupted run goes on where it stopped; findings, and the packets before
them, are in that file.  Exits with 1 if there are findings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from cubecast.testing.fuzz import MODES, Campaign, FuzzState, load, wanted


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packets", type=int, default=100_000, metavar="N",
        help="of all modes together, those of the state file counted (default: 100000)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of everything drawn (default: 1)")
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="JSON to go on from; it must be of this seed"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="end after the block in which this is over"
    )
    parser.add_argument(
        "--modes", default=",".join(MODES), metavar="A,B",
        help=f"which of {', '.join(MODES)} (default: all; packets are shared 60:5:25:10)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args()
    options.modes = [mode.strip() for mode in options.modes.split(",")]
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown:
        parser.error(f"there is no mode {unknown[0]!r}: choose of {', '.join(MODES)}")
    if options.packets < 1:
        parser.error(f"--packets must be at least 1, not {options.packets}")
    return options


def summary(state: FuzzState) -> dict[str, object]:
    """The figures for a note."""
    medians = {}
    for mode in state.packets:
        samples = [one for one in state.samples if one.mode == mode]
        if samples:
            medians[mode] = {
                "resident_mib": [
                    round(statistics.median(values) / (1 << 20), 1)
                    for values in zip(*(one.resident for one in samples), strict=True)
                ],
                "round_trip_s": statistics.median(one.round_trip_s for one in samples),
                "longest_round_trip_s": max(one.round_trip_s for one in samples),
                "slowest_read_cpu_s": round(max(one.slowest_s for one in samples), 3),
            }
    return {
        "seed": state.seed,
        "packets": state.packets,
        "sent": state.sent,
        "refused": state.refused,
        "connections": state.connections,
        "seconds": {mode: round(value) for mode, value in state.seconds.items()},
        "lives of the victims": state.lives,
        "medians": medians,
        "findings": [f"{one.what} ({one.mode}, block {one.block}, {one.seen} times)"
                     for one in state.findings],
    }  # fmt: skip


def tell(state: FuzzState) -> None:
    """Print the summary, for people."""
    for name, value in summary(state).items():
        if name != "findings":
            print(f"{name:>22}: {json.dumps(value)}")
    print(f"{'findings':>22}: {len(state.findings)}")
    for one in state.findings:
        print(f"  {one.mode}, block {one.block}, seen {one.seen} times: {one.what}")


def main() -> int:
    options = parse_arguments()
    try:
        state = load(options.state, options.seed)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    campaign = Campaign(state, path=options.state, seconds=options.seconds, say=say)
    try:
        campaign.run(wanted(options.packets, options.modes))
    except KeyboardInterrupt:
        print("interrupted; the state file has all blocks that were complete", file=sys.stderr)
    if options.json:
        print(json.dumps(summary(state), indent=2))
    else:
        tell(state)
    return 1 if state.findings else 0


if __name__ == "__main__":
    sys.exit(main())
