"""Every branch of recovery is taken by a test, and nothing is kept of the dead but two numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cubecast.chaos.eventful import draw_eventful
from cubecast.chaos.simulated.driver import _Run, draw_schedule, population, run_schedule
from cubecast.protocol.cluster.member import Member
from support.branch_recorder import recorded
from support.member_scenarios import SCENARIOS
from support.paths import ROOT, SOURCE, TESTS, python_path

PROTOCOL = SOURCE / "cubecast" / "protocol"
NAMED = re.compile(r'marks\["([^"]+)"\]')


def names() -> set[str]:
    """The branches that have a name."""
    return {
        name
        for path in PROTOCOL.rglob("*.py")
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
    }


def test_two_numbers_are_kept_of_a_stream_whose_publisher_is_gone() -> None:
    """However many lives nodes have had: what is delivered, and what everyone has."""
    lives = 0
    for seed in range(40):
        run = _Run(draw_schedule(seed), population("cubecast"))
        run.perform()
        assert not run.failures
        for node in run.world.running():
            core = run.world.processes[node].core  # type: ignore[attr-defined]
            for membership in core.memberships.values():
                topic = membership.core
                lives += sum(not core.is_live(stream) for stream in topic.front.delivered)
                dead = topic.dead
                kept = {**dead.finals, **dead.ends, **dead.losses, **topic.streams.lost_routes}
                kept.update({**dead.heirs, **dead.inherited})
                assert not {stream for stream in kept if not core.is_live(stream)}, (seed, node)
    assert lives > 100


SEEDS = (9, 50, 53, 77, 85, 93, 115, 126, 142, 252, 259, 494, 497, 1011, 30637)
"""Schedules that take together what no test by hand does, or did when this was written."""


OF_ALL_SIZES = (6, 1701)
"""The same, of schedules with as many nodes as they draw."""

BY_HAND = (
    "cluster/test_removal.py",
    "cluster/test_agreement.py",
    "cluster/test_leader_lies.py",
    "cluster/test_members.py",
    "cluster/test_mute_leaders.py",
    "cluster/test_returning_nodes.py",
    "cluster/test_view_broadcast.py",
    "cluster/test_view_lies.py",
    "subscriptions/test_mute_members.py",
    "test_forgetting.py",
    "topic/test_relays_that_lie.py",
)
"""Tests that move messages by hand."""


def by_hand(folder: Path) -> Counter[str]:
    """The branches that tests take which move messages by hand, run by a pytest of their own."""
    counts = folder / "branches.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"),
            *("-p", "support.branch_recorder", "--branches", counts),
            *(TESTS / "protocol" / name for name in BY_HAND),
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": python_path()}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with recorded() as found:
        for scenario in SCENARIOS:
            scenario(Member)
    return found + Counter(json.loads(counts.read_text(encoding="utf-8")))


def test_every_branch_of_recovery_is_taken(tmp_path: Path) -> None:
    taken = by_hand(tmp_path)
    for seed in OF_ALL_SIZES:
        taken.update(run_schedule(draw_eventful(seed), population("cubecast")).marks)
    for seed in (13, *SEEDS, *range(300)):
        if names() <= taken.keys():
            break
        taken.update(run_schedule(draw_schedule(seed), population("cubecast")).marks)
        taken.update(run_schedule(draw_eventful(seed, 4), population("cubecast")).marks)
    assert sorted(names() - taken.keys()) == []
    assert len(names()) > 110
