"""The judge of a siege: medians of an early and a late quarter, and counts that must be 0.

The samples of the warm-up are left out; the rest is cut into quarters, and the median of the last
is compared with that of the first.  A peak is chance, growth is not.  Memory, descriptors and tasks
are judged node by node, and the worst node is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

Sample = dict[str, Any]
"""What `bench_siege` writes every few seconds; lists have one entry per long-lived node."""

LEAST_SAMPLES = 8
"""Two in each quarter."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as flat."""

    warm_up: float = 0.2
    """The share of the run that is not judged, at most `warm_up_s`."""
    warm_up_s: float = 300.0
    memory_growth: float = 0.10
    memory_slack_mb: float = 4.0
    """An allocator's grain: growth below this is none."""
    descriptors_growth: float = 0.10
    descriptors_slack: float = 8.0
    """Connections that come and go are open in one median and not in the other."""
    throughput_kept: float = 0.85


@dataclass(frozen=True, slots=True)
class Line:
    """One thing judged."""

    name: str
    early: float
    late: float
    limit: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All things judged."""

    lines: tuple[Line, ...]
    judged_samples: int

    @property
    def ok(self) -> bool:
        """Whether the cluster held."""
        return all(line.ok for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "judged_samples": self.judged_samples,
            "lines": [asdict(line) for line in self.lines],
        }


def judge(samples: Sequence[Sample], counts: dict[str, int], limits: Limits) -> Verdict:
    """Judge samples in the order of time; each of `counts` must be 0."""
    zeros = tuple(Line(name, 0, count, "0", not count) for name, count in counts.items())
    judged = _warm(samples, limits)
    if len(judged) < LEAST_SAMPLES:
        few = Line("samples after the warm-up", 0, len(judged), f">= {LEAST_SAMPLES}", False)
        return Verdict((few, *zeros), len(judged))
    quarter = len(judged) // 4
    early, late = judged[:quarter], judged[-quarter:]
    flat = (
        _kept("deliveries per s", "deliveries_per_s", early, late, limits.throughput_kept),
        _flat(
            "memory, MB",
            "rss_mb",
            early,
            late,
            lambda was: was * (1 + limits.memory_growth) + limits.memory_slack_mb,
            f"<= +{limits.memory_growth:.0%} + {limits.memory_slack_mb:g} MB",
        ),
        *(
            _flat(
                name,
                name,
                early,
                late,
                lambda was: was * (1 + limits.descriptors_growth) + limits.descriptors_slack,
                f"<= +{limits.descriptors_growth:.0%} + {limits.descriptors_slack:g}",
            )
            for name in ("descriptors", "tasks")
        ),
    )
    return Verdict((*flat, *zeros), len(judged))


def _warm(samples: Sequence[Sample], limits: Limits) -> list[Sample]:
    if not samples:
        return []
    begun = min(limits.warm_up * samples[-1]["at_s"], limits.warm_up_s)
    return [sample for sample in samples if sample["at_s"] > begun]


def _kept(
    name: str, key: str, early: Sequence[Sample], late: Sequence[Sample], share: float
) -> Line:
    was, now = median(one[key] for one in early), median(one[key] for one in late)
    return Line(name, was, now, f">= {share:g} of early", now >= share * was and now > 0)


def _flat(
    name: str,
    key: str,
    early: Sequence[Sample],
    late: Sequence[Sample],
    allowed: Callable[[float], float],
    limit: str,
) -> Line:
    """The node that exceeds what is allowed most, or comes nearest to it."""
    nodes = range(len(early[0][key]))
    pairs = [
        (median(one[key][node] for one in early), median(one[key][node] for one in late))
        for node in nodes
    ]
    was, now = max(pairs, key=lambda pair: pair[1] - allowed(pair[0]))
    return Line(f"{name} (worst node)", was, now, limit, now <= allowed(was))


def table(verdict: Verdict) -> str:
    """The verdict in lines."""
    head = f"{'':32} {'early':>10} {'late':>10}  {'limit':22}"
    rows = [
        f"{line.name:32} {line.early:>10,.1f} {line.late:>10,.1f}  {line.limit:22} "
        f"{'ok' if line.ok else 'FAILED'}"
        for line in verdict.lines
    ]
    end = "the cluster held" if verdict.ok else "THE CLUSTER DID NOT HOLD"
    return "\n".join([head, *rows, end])
