"""The parent of a siege: starts all processes, samples, and computes the figures at the end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from cubecast.processes.function import FunctionChild, closing_children, gather, tell_all
from siege.attackers import run_attackers
from siege.churn import Churn
from siege.crowd import run_crowd
from siege.honest import run_honest
from siege.moles import Moles
from siege.terms import JUDGED, Terms, percentile
from siege.verdict import Sample
from siege.witness import untold

START_S = 60.0
ANSWER_S = 120.0
"""A process that answers nothing for so long has failed."""
CALM_S = 90.0
"""After the attacks, readers may take so long to get what is on its way."""
TICK_S = 0.1
BESIDE_S = 10.0
"""Deeds of attackers and visitors so long before an exclusion are reported with it."""
PER_NODE = (
    "lag_ms",
    "descriptors",
    "descriptors_most",
    "sockets",
    "tasks",
    "members",
    "epoch",
    "slot",
)
STOPPED_EVERY_S = (15.0, 30.0)
STOPPED_S = (2.0, 8.0)


class Told:
    """Samples as they are taken: kept, written to a file, and printed as a line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        """One more."""
        self.samples.append(sample)
        self.write(sample)
        _say(
            f"{sample['at_s']:6.0f} s  {sample['deliveries_per_s']:7,.0f} /s  "
            f"p50 {sample['latency_ms']['p50']:6.1f} p99 {sample['latency_ms']['p99']:7.0f} ms  "
            f"lag {max(sample['lag_ms']):5} ms  rss {max(sample['rss_mb']):5.1f} MB  "
            f"fds {max(sample['descriptors_most']):4}  "
            f"tasks {max(sample['tasks']):3}  members {min(sample['members'])}"
            f"-{max(sample['members'])}  excluded {sample['excluded']}  "
            f"inversions {sample['inversions']}  missing {sample['missing']}  "
            f"told {sample['told']}  {sample['mole']}"
        )

    def write(self, record: dict[str, Any]) -> None:
        """One line of the file, on the disk at once: a run that is cut short can be judged."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


class Siege:
    """One run."""

    def __init__(
        self,
        terms: Terms,
        nodes: int,
        visitors: int,
        groups: Sequence[str],
        every_s: float,
        told: Told,
    ) -> None:
        self._terms = terms
        self._count = nodes
        self._visitors = visitors
        self._groups = groups
        self._every_s = every_s
        self._told = told
        self._random = Random(f"{terms.seed}/conduct")
        self._deeds: deque[tuple[float, str]] = deque(maxlen=1000)
        self._before: list[dict[str, Any]] = []
        self._exclusions: list[dict[str, Any]] = []
        self._crowds: list[FunctionChild] = []
        self._attackers: list[FunctionChild] = []
        self._stop_at = 0.0
        self._stopped = False
        self._last: dict[str, Any] = {}
        self._clients: dict[int, dict[str, int]] = {}
        self._lag_ms = 0  # of the last sample

    def run(self, seconds: float) -> dict[str, Any]:
        """Besiege; the figures."""
        starts = [
            partial(FunctionChild, index, run_honest, index, self._count, self._terms)
            for index in range(self._count)
        ]
        with closing_children(starts) as nodes:
            addresses = self._begin(nodes)
            self._churn = Churn(self._visitors, self._terms, addresses, self._on_killed)
            self._moles = (
                Moles(self._terms, addresses, seconds) if "members" in self._groups else None
            )
            try:
                self._start_others(addresses)
                self._go_on(nodes, seconds)
            finally:
                self._end_others()
            return self._figures(nodes)

    def _begin(self, nodes: Sequence[FunctionChild]) -> list[str]:
        gather(nodes, "up", START_S)
        addresses: list[str] = []
        for node in nodes:
            node.tell(addresses[0] if addresses else None)
            addresses += gather([node], "ready", START_S)
        tell_all(nodes, "talk")
        self._begun = time.monotonic()
        self._stop_at = self._begun + self._random.uniform(*STOPPED_EVERY_S)
        return addresses

    def _start_others(self, addresses: list[str]) -> None:
        """Two crowds, of which the second is stopped now and then; and the attackers."""
        for number in range(2):
            crowd = FunctionChild(
                100 + number, run_crowd, number, addresses, self._terms, bool(number)
            )
            self._crowds.append(crowd)
        outside = [group for group in self._groups if group != "members"]
        if outside:
            one = FunctionChild(200, run_attackers, outside, addresses, self._terms)
            self._attackers.append(one)

    def _end_others(self) -> None:
        self._churn.end()
        if self._moles is not None:
            self._moles.end()
        for one in (*self._crowds, *self._attackers):
            one.end()

    def _go_on(self, nodes: Sequence[FunctionChild], seconds: float) -> None:
        end = self._begun + seconds
        due = self._begun + self._every_s
        self._sampled_at = self._begun
        while (now := time.monotonic()) < end:
            self._tick()
            if now >= due:
                self._sample(nodes)
                due += self._every_s
            time.sleep(TICK_S)

    # -- what happens beside -----------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self._churn.tick(now)
        if self._moles is not None:
            before = self._moles.kind
            self._moles.tick(now)
            if self._moles.kind != before:
                self._deeds.append((now, f"mole {self._moles.kind or before + ' killed'}"))
        if now >= self._stop_at:
            self._stop_or_continue(now)

    def _stop_or_continue(self, now: float) -> None:
        """The second crowd stands still for a while, with all its connections."""
        crowd = self._crowds[1]
        self._stopped = not self._stopped
        crowd.signal(signal.SIGSTOP if self._stopped else signal.SIGCONT)
        span = STOPPED_S if self._stopped else STOPPED_EVERY_S
        self._stop_at = now + self._random.uniform(*span)

    def _on_killed(self, address: str) -> None:
        self._deeds.append((time.monotonic(), "visitor killed"))
        for one in self._attackers:
            one.tell(("dead", address))

    # -- samples -----------------------------------------------------------------------------------

    def _ask(self, who: Sequence[FunctionChild], word: str, answer: str) -> list[Any]:
        tell_all(who, word)
        return gather(who, answer, ANSWER_S, every=TICK_S, meanwhile=self._tick)

    def _sample(self, nodes: Sequence[FunctionChild]) -> None:
        now = time.monotonic()
        took, self._sampled_at = now - self._sampled_at, now
        found = self._ask(nodes, "sample", "sample")
        clients = self._sample_clients()
        attacks = self._ask(self._attackers, "sample", "attacks")
        before = self._before or [{"deliveries": 0, "cpu_s": 0.0, "events": {}} for _ in found]
        self._before = found
        self._last = {"clients": clients, "attacks": attacks[0] if attacks else {}}
        self._deeds.extend(self._last["attacks"].get("deeds", ()))
        excluded = sum(len(one["excluded_at"]) for one in found)
        self._note_exclusions(found)
        deliveries = sum(
            one["deliveries"] - was["deliveries"] for one, was in zip(found, before, strict=True)
        )
        joins = self._churn.take_joins()
        self._told.sample(
            {
                "at_s": round(now - self._begun, 1),
                "deliveries_per_s": deliveries / took,
                "latency_ms": _spread([ms for one in found for ms in one["latencies"]]),
                "publish_ms": _spread([ms for one in found for ms in one["publishing"]]),
                "visit_ms": _spread([ms for one in found for ms in one["visits"]]),
                "join_ms": _spread(joins),
                "rss_mb": [round(one["rss"] / 1e6, 2) for one in found],
                "cpu_s": [
                    round(one["cpu_s"] - was["cpu_s"], 2)
                    for one, was in zip(found, before, strict=True)
                ],
                **{name: [one[name] for one in found] for name in PER_NODE},
                "load": os.getloadavg()[0],
                "excluded": excluded,
                "returned": sum(
                    one["events"].get("Returned", 0) - was["events"].get("Returned", 0)
                    for one, was in zip(found, before, strict=True)
                ),
                **{
                    name: sum(one[name] for one in found)
                    for name in ("inversions", "disorder", "missing", "told", "refused", "stuck")
                },
                "mole": self._moles.kind if self._moles is not None else "",
                "attacks": self._last["attacks"].get("counts", {}),
                "breaches": self._last["attacks"].get("breaches", {}),
                "visitors": dict(self._churn.counts),
                "clients": clients,
                "faults": [fault for one in found for fault in one["faults"]],
            }
        )

    def _sample_clients(self) -> dict[str, int]:
        """Counts of the clients of all crowds; those of a stopped crowd are its last."""
        awake = self._crowds[:1] if self._stopped else self._crowds
        counts = self._ask(awake, "sample", "crowd")
        self._clients.update(enumerate(counts))
        return dict(sum(map(Counter, self._clients.values()), Counter()))

    def _note_exclusions(self, found: Sequence[dict[str, Any]]) -> None:
        """What moles, holders of the members' key and visitors did before an exclusion.

        Strangers and clients attack all the time, so they are not named.
        """
        lag_ms, self._lag_ms = self._lag_ms, max(one["lag_ms"] for one in found)
        for node, one in enumerate(found):
            for at in one["excluded_at"]:
                beside = {deed for when, deed in self._deeds if at - BESIDE_S < when <= at}
                if self._moles is not None and self._moles.kind:
                    beside.add(f"mole {self._moles.kind}")
                self._exclusions.append(
                    {
                        "node": node,
                        "at_s": at - self._begun,
                        "beside": sorted(beside),
                        "lag_ms": max(lag_ms, self._lag_ms),
                    }
                )

    # -- the end -----------------------------------------------------------------------------------

    def _figures(self, nodes: Sequence[FunctionChild]) -> dict[str, Any]:
        tell_all(nodes, "hush")
        gather(nodes, "quiet", ANSWER_S)
        accounts, together = self._calm(nodes)
        tell_all(nodes, "sample")
        last = gather(nodes, "sample", ANSWER_S)
        self._note_exclusions(last)
        withdrawn: Counter[str] = Counter()
        for account in accounts:
            withdrawn.update(account["withdrawn"])
        lost = [
            untold(_missing(account, accounts), account["told"], withdrawn) for account in accounts
        ]
        clients, attacks = self._last.get("clients", {}), self._last.get("attacks", {})
        faults = [fault for one in last for fault in filter(None, one["faults"])]
        return {
            "nodes": self._count,
            "groups": list(self._groups),
            "seed": self._terms.seed,
            "minutes": (time.monotonic() - self._begun) / 60,
            "deliveries": sum(one["deliveries"] for one in last),
            "published": sum(one["published"] for one in last),
            "missing": sum(sum(_missing(one, accounts).values()) for one in accounts),
            "told": sum(sum(one["told"].values()) for one in accounts),
            "exclusions": self._exclusions,
            "attacks": attacks.get("counts", {}),
            "moles": dict(self._moles.counts) if self._moles is not None else {},
            "mole_reasons": self._moles.reasons if self._moles is not None else [],
            "visitors": dict(self._churn.counts),
            "visitor_refusals": self._churn.refusals,
            "clients": clients,
            "applications": {
                "publications refused": sum(one["refused"] for one in last),
                "visits given up": sum(one["stuck"] for one in last),
            },
            "faults": faults,
            "events": dict(sum((Counter(one["events"]) for one in last), Counter())),
            "log": dict(sum((Counter(one["log"]) for one in last), Counter())),
            "errors": [text for one in last for text in one["errors"]],
            "must_be_0": {
                "inversions": sum(one["inversions"] for one in last),
                "out of order or twice": sum(one["disorder"] for one in last)
                + self._churn.disorder
                + clients.get("disorder", 0),
                "losses that were not told": sum(lost),
                "breaches": sum(attacks.get("breaches", {}).values()),
                "faults of applications": len(faults) + clients.get("faults", 0),
                "nodes that are not together": 0 if together else 1,
            },
        }

    def _calm(self, nodes: Sequence[FunctionChild]) -> tuple[list[dict[str, Any]], bool]:
        """Wait until readers have every message or a report of its loss; whether that came."""
        deadline = time.monotonic() + CALM_S
        while True:
            tell_all(nodes, "account")
            accounts: list[dict[str, Any]] = gather(nodes, "account", ANSWER_S)
            together = len({len(one["members"]) for one in accounts} | {len(nodes)}) == 1
            if together and all(_tail(one, accounts) == 0 for one in accounts):
                return accounts, True
            if time.monotonic() >= deadline:
                return accounts, together
            time.sleep(0.5)


def _tail(account: dict[str, Any], accounts: Sequence[dict[str, Any]]) -> int:
    """Messages after the last one that a reader has, of all publishers and judged topics."""
    return sum(
        max(0, one["published"].get(topic, 0) - account["reached"].get(topic, {}).get(index, 0))
        for topic in JUDGED
        for index, one in enumerate(accounts)
    )


def _missing(account: dict[str, Any], accounts: Sequence[dict[str, Any]]) -> dict[str, int]:
    """What a reader lacks, by topic: skipped numbers, and those after its last one."""
    return {
        topic: account["missing"].get(topic, 0)
        + sum(
            max(0, one["published"].get(topic, 0) - account["reached"].get(topic, {}).get(index, 0))
            for index, one in enumerate(accounts)
        )
        for topic in JUDGED
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50": 1e3 * percentile(seconds, 0.5),
        "p99": 1e3 * percentile(seconds, 0.99),
        "max": 1e3 * max(seconds, default=0.0),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
