"""Ranges of seeds: run on several cores, added up, and resumed where they stopped.

A range is worked off in blocks with fixed borders, so that ranges that are run one after the other,
or that overlap, share their blocks.  The counts of a block go to a file when it is done.
"""

from __future__ import annotations

import json
import math
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

from cubecast.chaos.drawing import draw_schedule
from cubecast.chaos.eventful import draw_eventful
from cubecast.chaos.schedule import Schedule
from cubecast.chaos.simulated.driver import Population, SimulatedVerdict, population, run_schedule
from cubecast.interrupts import held

BLOCK = 25
SCHEMA = "cubecast-chaos/2"
KEPT_FAILURES = 100


class CountsError(ValueError):
    """A file of counts cannot be used."""


@dataclass(slots=True)
class CampaignCounts:
    """The summed results of runs."""

    runs: int = 0
    failed: list[tuple[int, list[str]]] = field(default_factory=list)
    """(seed, properties) of the first runs that failed."""
    failures: int = 0
    metrics: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Sum, sum of squares and largest value."""
    marks: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, verdict: SimulatedVerdict) -> None:
        """Count one run."""
        self.runs += 1
        for name, value in verdict.metrics.items():
            total, squares, most = self.metrics.get(name, (0.0, 0.0, -math.inf))
            self.metrics[name] = (total + value, squares + value * value, max(most, value))
        self.marks += verdict.marks
        if not verdict.ok:
            self._fail(seed, sorted(verdict.failures))

    def _fail(self, seed: int, properties: list[str]) -> None:
        self.failures += 1
        if len(self.failed) < KEPT_FAILURES:
            self.failed.append((seed, properties))

    def merge(self, other: CampaignCounts) -> None:
        """Add the counts of other runs."""
        self.runs += other.runs
        for name, (total, squares, most) in other.metrics.items():
            mine = self.metrics.get(name, (0.0, 0.0, -math.inf))
            self.metrics[name] = (mine[0] + total, mine[1] + squares, max(mine[2], most))
        self.marks += other.marks
        self.failures += other.failures
        self.failed = [*self.failed, *other.failed][:KEPT_FAILURES]

    def summary(self) -> dict[str, dict[str, float]]:
        """{metric: {mean, sd, n, sum, max}}."""
        found = {}
        for name, (total, squares, most) in self.metrics.items():
            mean = total / self.runs
            spread = 0.0
            if self.runs > 1:
                spread = math.sqrt(max(0.0, squares - total * mean) / (self.runs - 1))
            found[name] = {"mean": mean, "sd": spread, "n": self.runs, "sum": total, "max": most}
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "failures": self.failures,
            "failed": self.failed,
            "metrics": self.metrics,
            "marks": dict(self.marks),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> CampaignCounts:
        return cls(
            int(found["runs"]),
            [(int(seed), list(names)) for seed, names in found["failed"]],
            int(found["failures"]),
            {name: (float(a), float(b), float(c)) for name, (a, b, c) in found["metrics"].items()},
            Counter({name: int(count) for name, count in found["marks"].items()}),
        )


class CampaignSettings(NamedTuple):
    """The settings that all runs of a campaign share."""

    protocol: str
    nodes: int | None = None
    """Nodes of each run; None: drawn."""
    wire: bool = True
    """Whether every message crosses the format of live nodes (`cubecast.sim.codec`)."""
    plain: bool = False
    """Only crashes, pauses and faults of links: none of `cubecast.chaos.eventful`."""


def schedule_of(seed: int, settings: CampaignSettings) -> Schedule:
    """The schedule that a seed draws."""
    draw = draw_schedule if settings.plain else draw_eventful
    return draw(seed, settings.nodes)


def run_block(block: range, settings: CampaignSettings) -> CampaignCounts:
    """Run seeds one after the other; in a process of its own where there are several."""
    counts = CampaignCounts()
    people: Population = population(settings.protocol)
    for seed in block:
        counts.add(seed, run_schedule(schedule_of(seed, settings), people, wire=settings.wire))
    return counts


def blocks_of(seeds: range, size: int = BLOCK) -> Iterator[range]:
    """The range cut at the multiples of `size`."""
    start = seeds.start
    while start < seeds.stop:
        stop = min(seeds.stop, (start // size + 1) * size)
        yield range(start, stop)
        start = stop


class CampaignFile:
    """The counts of blocks, in a file if there is one."""

    def __init__(self, path: Path | None, settings: CampaignSettings) -> None:
        self._path = path
        self._head = {"schema": SCHEMA, **settings._asdict()}
        self.blocks: dict[tuple[int, int], CampaignCounts] = {}
        if path is not None and path.exists():
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            blocks = found.pop("blocks")
            if found != self._head:
                raise CountsError(f"{path} has counts of other runs: {found}")
            for name, block in blocks.items():
                start, _, stop = name.partition("-")
                self.blocks[int(start), int(stop)] = CampaignCounts.from_json(block)
        except OSError as error:
            raise CountsError(f"cannot read {path}: {error.strerror}") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, CountsError):
                raise
            raise CountsError(f"{path} is no file of counts: {error}") from error

    def add(self, block: range, counts: CampaignCounts) -> None:
        """Enter a block, and write the file anew."""
        self.blocks[block.start, block.stop] = counts
        if self._path is None:
            return
        entries = {f"{a}-{b}": one.as_json() for (a, b), one in sorted(self.blocks.items())}
        scratch = self._path.with_name(self._path.name + ".tmp")
        scratch.write_text(json.dumps({**self._head, "blocks": entries}), encoding="utf-8")
        scratch.replace(self._path)

    def total(self) -> CampaignCounts:
        """All blocks together; one that lies within another, from a shorter range, counts once."""
        counts = CampaignCounts()
        for (start, stop), block in sorted(self.blocks.items()):
            covered = any(
                (a, b) != (start, stop) and a <= start and stop <= b for a, b in self.blocks
            )
            if not covered:
                counts.merge(block)
        return counts


def campaign(
    seeds: range,
    settings: CampaignSettings,
    *,
    jobs: int = 1,
    path: Path | None = None,
    progress: Callable[[CampaignCounts, int], None] | None = None,
) -> CampaignCounts:
    """Run a range of seeds, without the blocks that `path` has; return the sum of all its blocks.

    `progress` is called with the counts of each finished block, and how many runs are left.
    """
    tally = CampaignFile(path, settings)
    missing = [block for block in blocks_of(seeds) if (block.start, block.stop) not in tally.blocks]
    left = sum(map(len, missing))
    with ExitStack() as stack:
        for block, counts in _work(missing, settings, jobs, stack):
            tally.add(block, counts)
            left -= len(block)
            if progress is not None:
                progress(counts, left)
    return tally.total()


def _work(
    blocks: Sequence[range], settings: CampaignSettings, jobs: int, stack: ExitStack
) -> Iterator[tuple[range, CampaignCounts]]:
    if jobs == 1 or len(blocks) < 2:
        for block in blocks:
            yield block, run_block(block, settings)
        return
    pool = stack.enter_context(_workers(jobs))
    resource_tracker.ensure_running()  # its start would end the hold on signals
    with held():  # all processes start here, and ignore Ctrl-C
        done = pool.map(run_block, blocks, [settings] * len(blocks))
    yield from zip(blocks, done, strict=True)


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are killed at once if the caller stops waiting for results."""
    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=_IGNORE)
    try:
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()  # the pool would wait for running tasks, perhaps minutes
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


_IGNORE = (signal.SIGINT, signal.SIG_IGN)
