"""Schedules as real processes go through them: read, refused, drawn, and what they come to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cubecast.chaos.condition import Action, Condition, actions_of
from cubecast.chaos.live.live_schedules import DRAWN, draw, runnable, split
from cubecast.chaos.live.placement import sides_of
from cubecast.chaos.schedule import Act, Fault, Schedule, ScheduleError, checked, read_schedule
from support.paths import ROOT

SCENARIOS = ROOT / "scenarios" / "chaos"
EXAMPLE = ROOT / "examples" / "chaos.toml"


def done(schedule: Schedule, until: float) -> Condition:
    """How things are after what is done until then."""
    condition = Condition(schedule.nodes)
    for action in actions_of(schedule, schedule.seconds):
        if action.at <= until:
            condition.apply(action)
    return condition


def test_the_example_is_one() -> None:
    example = read_schedule(EXAMPLE)
    assert [fault.act for fault in example.faults] == ["pause", "leave", "slow", "partition"]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_schedules_of_the_simulator_are_schedules_of_processes(path: Path) -> None:
    schedule = runnable(read_schedule(path))
    condition = Condition(schedule.nodes)
    for action in actions_of(schedule, schedule.seconds):
        condition.apply(action)
    assert len(actions_of(schedule, schedule.seconds)) >= len(schedule.faults)


@pytest.mark.parametrize("act", ["mute", "idle"])
def test_acts_of_simulated_nodes_are_refused(act: Act) -> None:
    with pytest.raises(ScheduleError, match=f"act '{act}' is for simulated nodes"):
        runnable(Schedule(3, faults=(Fault(1, act, 0, lasts=5),)))


def test_so_many_processes_are_refused() -> None:
    with pytest.raises(ScheduleError, match="nodes must be 1 to 64 here, not 65"):
        runnable(Schedule(65))


def test_an_action_that_is_impossible_at_its_time_is_left_out() -> None:
    faults = (
        Fault(1, "pause", 0, lasts=5),
        Fault(2, "crash", 0),
        Fault(3, "crash", 0),
        Fault(4, "restart", 0),
        Fault(5, "pause", 0),
        Fault(7, "restart", 1),
    )
    schedule = checked(Schedule(2, unit="s", faults=faults))
    condition = Condition(2)
    possible = []
    for action in actions_of(schedule, schedule.seconds):
        possible.append((action.at, condition.can(action)))
        condition.apply(action)
    # The pause of the first life ends with it, so its end at 6 is not that of the second pause.
    assert possible == [(1, True), (2, True), (3, False), (4, True), (5, True), (6, False),
                        (7, False)]  # fmt: skip
    assert set(condition.paused) == {0}


def test_faults_of_links_add_up_and_end_one_by_one() -> None:
    faults = (
        Fault(1, "partition", sides=((0, 1),), lasts=10),
        Fault(2, "one-way", source=0, to=1, lasts=2),
        Fault(3, "slow", 2, delay=0.1),
        Fault(12, "heal"),
    )
    schedule = checked(Schedule(4, unit="s", faults=faults))
    early, later, healed = (done(schedule, time) for time in (3, 5, 12))
    assert early.link(0, 1).cut
    assert not early.link(1, 0).cut
    assert not early.connected(1, 0)
    assert later.connected(0, 1)
    assert not later.connected(0, 2)
    assert later.connected(2, 3)
    assert healed.links == {}


def test_the_sides_of_several_cuts() -> None:
    condition = Condition(5)
    for number, side in enumerate(((0, 1), (1, 2))):
        fault = Fault(0, "partition", sides=(side,))
        condition.apply(Action(0, "partition", fault, number))
    condition.apply(Action(0, "one-way", Fault(0, "one-way", source=3, to=4), 2))
    assert sides_of(condition) == [0, 1, 2, 3, 3]


def test_calm_ends_everything_but_deaths() -> None:
    faults = (
        Fault(1, "pause", 0),
        Fault(1, "crash", 1),
        Fault(1, "partition", sides=((2,),)),
    )
    condition = done(checked(Schedule(4, unit="s", faults=faults)), 1)
    for action in condition.calm(2):
        condition.apply(action)
    assert (condition.up, condition.paused, condition.links) == ({0, 2, 3}, {}, {})


@pytest.mark.parametrize("acts", [("crash", "pause"), DRAWN])
def test_drawn_faults_repeat_with_their_seed_and_leave_half_of_the_nodes_well(
    acts: tuple[str, ...],
) -> None:
    one, again, other = (draw(16, 300, 2, seed, acts) for seed in (7, 7, 8))
    assert one == again
    assert one.faults != other.faults
    assert len(one.faults) > 100
    condition = Condition(16)
    for action in actions_of(one, one.seconds):
        condition.apply(action)
        assert len(condition.up - condition.paused.keys()) >= 8
    assert (len(condition.up), condition.paused, condition.links) == (16, {}, {})
    if "partition" not in acts:
        starts = [fault.at for fault in one.faults]
        assert all(later - earlier == 2 for earlier, later in pairwise(starts))
        assert {fault.act for fault in one.faults} == set(acts)


def test_a_partition_by_sizes() -> None:
    schedule = split((3, 2, 1), 20)
    assert schedule.nodes == 6
    during = done(schedule, 6)
    assert [during.connected(0, other) for other in range(6)] == [True] * 3 + [False] * 3
    assert during.connected(3, 4)
    assert not during.connected(4, 5)
    assert done(schedule, 25).connected(0, 5)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: draw(8, 60, 0, 1), "every so many seconds"),
        (lambda: draw(1, 60, 2, 1), "at least 2 nodes"),
        (lambda: draw(8, 60, 2, 1, ("crash", "flood")), "no such fault: flood"),
        (lambda: split((8,), 20), "two sides or more"),
        (lambda: split((4, 4), 0), "lasts more than 0 s"),
    ],
)
def test_an_impossible_draw_is_refused(make: object, reason: str) -> None:
    assert callable(make)
    with pytest.raises(ScheduleError, match=reason):
        make()
