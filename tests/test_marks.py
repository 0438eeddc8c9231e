"""Every branch of recovery is taken by a test, and nothing is kept of the dead but two numbers."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import epoch_toys
import member_scenarios
import member_toys
import pytest
import test_doubts
import test_epochs
import test_forgetting
import test_members
import test_mutes
import test_returning_nodes
import test_telling
import test_view_lies

from cubecast import protocol
from cubecast.protocol.cluster.member import Member
from cubecast.sim.chaos import _Run, draw_schedule, population, run_schedule
from cubecast.sim.ingredients import draw_eventful

PROTOCOL = Path(protocol.__file__).parent
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


SEEDS = (50, 53, 77, 85, 93, 115, 126, 142, 252, 259, 494, 1011, 30637)
"""Schedules that take together what no test by hand does, or did when this was written."""


OF_ALL_SIZES = (1701,)
"""The same, of schedules with as many nodes as they draw."""

BY_MEMBERS = (
    test_members,
    test_doubts,
    test_forgetting,
    test_mutes,
    test_returning_nodes,
    test_view_lies,
)
BY_TOYS = (test_epochs, test_telling, test_view_lies)


class RecordedMembers(member_toys.Members):
    """Members that are looked at when a test is over."""

    made: ClassVar[list[RecordedMembers]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


class RecordedToys(epoch_toys.Toys):
    """The same for the agreement alone."""

    made: ClassVar[list[RecordedToys]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


def by_hand(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The branches that tests take which move messages by hand."""
    monkeypatch.setattr(RecordedMembers, "made", [])
    monkeypatch.setattr(RecordedToys, "made", [])
    for module in (*BY_MEMBERS, member_scenarios):
        monkeypatch.setattr(module, "Members", RecordedMembers)
    for module in BY_TOYS:
        monkeypatch.setattr(module, "Toys", RecordedToys)
    for module in dict.fromkeys((*BY_MEMBERS, *BY_TOYS)):
        for name, test in vars(module).items():
            plain = name.startswith("test_") and not inspect.signature(test).parameters
            if plain and not hasattr(test, "pytestmark"):
                test()
    for scenario in member_scenarios.SCENARIOS:
        scenario(Member)
    found: Counter[str] = Counter()
    for world in RecordedMembers.made:
        for one in world.members:
            found.update(one.marks)
    for toys in RecordedToys.made:
        for toy in toys.toys:
            found.update(toy.marks)
    return found


def test_every_branch_of_recovery_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = by_hand(monkeypatch)
    for seed in OF_ALL_SIZES:
        taken.update(run_schedule(draw_eventful(seed), population("cubecast")).marks)
    for seed in (13, *SEEDS, *range(300)):
        if names() <= taken.keys():
            break
        taken.update(run_schedule(draw_schedule(seed), population("cubecast")).marks)
        taken.update(run_schedule(draw_eventful(seed, 4), population("cubecast")).marks)
    assert names() <= taken.keys()
    assert len(names()) > 110
