"""How long does publishing stop when the manager of a topic is killed, and what is tagged?

Four members that publish in five topics and subscribe to overlapping sets of them, and two managers
in processes of their own.  The manager that numbers events gets SIGKILL under load.  For each run:

    resumed    from the kill until the last subscriber sees an event of the next layout
    longest    the longest time from a call of `publish` to an application
    tagged     events that were notified out of order

A run fails if two subscribers saw untagged events in opposite orders, or an event was lost or
seen twice.

    python bench/bench_ordering_kills.py --on cubecast,nats,redis --runs 5
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from cubecast.bench.event_servers import NoServer
from cubecast.bench.ordering_kills import (
    KillsVerdict,
    Members,
    Part,
    desks,
    judged,
    manager_of,
    server,
)
from cubecast.bench.ordering_members import Kind
from cubecast.ordering.config import OrderedConfig
from cubecast.processes.signals import unwinding

TIMEOUT_S = 120.0
MANAGERS = ("m0", "m1")


def run(kind: Kind, load_s: float) -> tuple[float, KillsVerdict]:
    """Kill a manager; when publishing went on, and the verdict."""
    parts = [*(Part(name) for name in MANAGERS), *desks()]
    with (
        server(kind) as address,
        tempfile.TemporaryDirectory() as folder,
        Members(kind, address, MANAGERS, Path(folder), OrderedConfig(), TIMEOUT_S) as members,
    ):
        members.start(parts)
        time.sleep(load_s)
        since = time.monotonic()
        members.kill(manager_of("t0", MANAGERS, members.config))
        resumed = members.wait_until_resumed(since)
        time.sleep(load_s)
        members.come_to_rest()
        return resumed, judged(members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--on", default="cubecast,nats,redis", help="services")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--load", type=float, default=2.0, help="seconds before and after the kill")
    options = parser.parse_args()
    failed = 0
    with unwinding():
        for kind in options.on.split(","):
            for _ in range(options.runs):
                try:
                    resumed, verdict = run(cast(Kind, kind), options.load)
                except NoServer as reason:
                    print(f"{kind}: {reason}", file=sys.stderr)
                    break
                failed += bool(verdict.wrong)
                wrong = f"; WRONG: {verdict.wrong[:3]}" if verdict.wrong else ""
                print(f"{kind:>8}: resumed after {resumed:.2f} s, {verdict}{wrong}", flush=True)
    sys.exit(f"{failed} runs failed" if failed else 0)


if __name__ == "__main__":
    main()
