"""VCube-PB keeps its own promises ([B] 4) under its own assumptions ([B] 3), in 1,000 runs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cubecast.trace import Record
from support.crash_runs import LONGEST_WAY, CrashRun, crash_run


def assert_kept(run: CrashRun) -> None:
    assert not run.broken(), f"crash_run({run.seed}): {run.broken()[:3]}"


@pytest.mark.parametrize("block", range(4))
def test_250_crash_runs(block: int) -> None:
    for seed in range(250 * block, 250 * block + 250):
        assert_kept(crash_run(seed))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_500_more_crash_runs(block: int) -> None:
    for seed in range(1000 + 500 * block, 1500 + 500 * block):
        assert_kept(crash_run(seed))


def test_the_runs_contain_what_they_are_meant_to() -> None:
    runs = [crash_run(seed) for seed in range(200)]
    assert sum(len(run.crashed) for run in runs) > 400
    assert sum(run.in_mid_broadcast for run in runs) > 150
    assert any(len(run.crashed) == run.nodes - 1 for run in runs)
    assert any(not run.crashed for run in runs)
    assert {run.nodes for run in runs} >= {2, 3, 4, 5, 8, 13, 16}
    assert sum(publishes_from_outside(run) for run in runs) > 50
    assert sum(loses_a_message(run) for run in runs) > 20
    assert sum(crashes_close_together(run) for run in runs) > 50


def publishes_from_outside(run: CrashRun) -> bool:
    """A node publishes on a topic it never joined."""
    members = {(r.node, r.topic) for r in run.records if r.kind == "join"}
    return any((r.node, r.topic) not in members for r in run.records if r.kind == "publish")


def loses_a_message(run: CrashRun) -> bool:
    """A message dies with its publisher: no correct process delivers it."""
    published = {r.id for r in run.records if r.kind == "publish"}
    correct = [r for r in run.records if r.kind == "deliver" and r.node not in run.crashed]
    return bool(published - {r.id for r in correct}) and bool(correct)


def crashes_close_together(run: CrashRun) -> bool:
    """Two crashes come before any node can have heard of the first."""
    times = sorted(r.time for r in run.records if r.kind == "crash")
    return any(b - a <= LONGEST_WAY for a, b in pairwise(times))


def test_a_seed_is_a_run() -> None:
    assert crash_run(7).records == crash_run(7).records
    assert crash_run(7).records != crash_run(8).records


def record(kind: str, node: int, ident: int | None = None) -> Record:
    return Record(kind, 0, node, "t", ident, source=0)  # type: ignore[arg-type]


def judged(*records: Record, crashed: tuple[int, ...] = ()) -> list[str]:
    joins = [record("join", node) for node in (0, 1, 2)]
    run = CrashRun(0, 3, [*joins, *records], frozenset(crashed), 0, True, 0)
    return [line.split(":")[0] for line in run.broken()]


def test_the_judge() -> None:
    """What counts, and that a crashed process need not deliver but must not lie."""
    publish = record("publish", 0, 1)
    everywhere = [record("deliver", node, 1) for node in (0, 1, 2)]
    assert judged(publish, *everywhere) == []
    assert judged(publish, *everywhere[:2]) == ["agreement"]
    assert judged(publish, *everywhere[:2], crashed=(2,)) == []
    assert judged(publish) == ["validity"]
    assert judged(publish, crashed=(0,)) == []
    assert judged(publish, everywhere[0], crashed=(0,)) == []  # agreement is not uniform
    assert judged(publish, everywhere[1], crashed=(0,)) == ["agreement"]
    assert judged(publish, *everywhere, everywhere[2], crashed=(2,)) == ["no-duplication"]
    assert judged(*everywhere[:1], crashed=(0, 1, 2)) == ["no-creation"]
