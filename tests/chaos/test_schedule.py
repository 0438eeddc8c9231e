"""Schedules of faults: what a file may say, how it is refused, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.chaos.plan import SchedulePlan, plan_of
from cubecast.chaos.schedule import (
    ApplicationStep,
    Fault,
    Schedule,
    ScheduleError,
    checked,
    read_schedule,
    schedule_text,
)
from cubecast.chaos.simulated.driver import draw_schedule
from cubecast.sim.faults import Cut, Pause, Slow

EVERYONE = 0b1111


def plan(*faults: Fault, length: float = 1000) -> SchedulePlan:
    return plan_of(checked(Schedule(nodes=4, length=length, faults=faults)))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(ScheduleError) as caught:
        read_schedule(written(tmp_path, text))
    line = str(caught.value)
    assert "\n" not in line
    return line


# what it comes to


def test_a_crash_lasts_until_its_end_or_a_restart() -> None:
    found = plan(Fault(10, "crash", 1, lasts=100), Fault(20, "crash", 2), Fault(50, "restart", 2))
    assert found.deaths == [(10, 1, False), (20, 2, False), (50, 2, True), (110, 1, True)]
    assert (found.counts["crash"], found.counts["restart"], found.last_fault) == (2, 2, 110)


def test_an_impossible_fault_is_left_out() -> None:
    found = plan(
        Fault(10, "crash", 1, lasts=500),
        Fault(20, "crash", 1, lasts=10),
        Fault(30, "restart", 0),
        Fault(40, "pause", 1, lasts=10),
        Fault(50, "resume", 0),
    )
    assert found.deaths == [(10, 1, False), (510, 1, True)]
    assert found.pauses == []


def test_a_crash_ends_a_pause_and_the_new_life_is_awake() -> None:
    found = plan(Fault(10, "pause", 1, lasts=500), Fault(100, "crash", 1, lasts=50))
    assert found.pauses == [Pause(1, 10, 100)]
    assert found.deaths == [(100, 1, False), (150, 1, True)]


def test_a_pause_ends_by_itself_or_with_resume() -> None:
    assert plan(Fault(10, "pause", 1, lasts=5)).pauses == [Pause(1, 10, 15)]
    assert plan(Fault(10, "pause", 1), Fault(90, "resume", 1)).pauses == [Pause(1, 10, 90)]
    early = plan(Fault(10, "pause", 1, lasts=500), Fault(90, "resume", 1))
    assert early.pauses == [Pause(1, 10, 90)]


def test_a_partition_cuts_both_ways_and_a_one_way_cut_one() -> None:
    found = plan(Fault(10, "partition", sides=((0, 1),), lasts=20))
    assert set(found.cuts) == {Cut(10, 30, 0b0011, 0b1100), Cut(10, 30, 0b1100, 0b0011)}
    assert plan(Fault(10, "one-way", source=2, to=0, lasts=20)).cuts == [Cut(10, 30, 4, 1)]


def test_a_slow_node_is_slow_both_ways() -> None:
    found = plan(Fault(10, "slow", 1, factor=5, lasts=20))
    assert found.slows == [
        Slow(10, 30, 0b0010, EVERYONE, 5, 0),
        Slow(10, 30, 0b1101, 0b0010, 5, 0),
    ]


def test_heal_ends_every_fault_of_links_and_of_nothing_else() -> None:
    found = plan(
        Fault(10, "partition", sides=((0,),)),
        Fault(20, "one-way", source=2, to=0, lasts=800),
        Fault(30, "pause", 3),
        Fault(100, "heal"),
    )
    assert {cut.end for cut in found.cuts} == {100}
    assert found.pauses == [Pause(3, 30, 1000)]


def test_everything_but_death_ends_with_the_length() -> None:
    found = plan(
        Fault(10, "crash", 0, lasts=5000),
        Fault(10, "pause", 1, lasts=5000),
        Fault(10, "partition", sides=((0,),), lasts=5000),
        Fault(2000, "crash", 2),
    )
    assert found.deaths == [(10, 0, False)]
    assert found.pauses == [Pause(1, 10, 1000)]
    assert {cut.end for cut in found.cuts} == {1000}


def test_times_may_be_seconds() -> None:
    schedule = checked(Schedule(nodes=2, unit="s", faults=(Fault(0.5, "crash", 1, lasts=2),)))
    assert plan_of(schedule).deaths == [(500, 1, False), (2500, 1, True)]


# files


def test_a_schedule_survives_its_file(tmp_path: Path) -> None:
    for seed in range(50):
        schedule = draw_schedule(seed)
        again = read_schedule(written(tmp_path, schedule_text(schedule)))
        assert again == schedule


def test_odd_names_survive(tmp_path: Path) -> None:
    schedule = checked(Schedule(nodes=2, about='a "b"\nc', topics={"x/y z": (0,), "ü": (1,)}))
    assert read_schedule(written(tmp_path, schedule_text(schedule))) == schedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes = 0", "nodes must be 1"),
        ("about = 'x'", "Object missing required field `nodes`"),
        ("nodes = 2\nbogus = 1", "unknown field `bogus`"),
        ("nodes = ", "Invalid value"),
        ("nodes = 2\nanswers = 1.5", "answers"),
        ("nodes = 2\n[links]\nrain = 0.1", "no rain"),
        ("nodes = 2\n[links]\nloss = 2.0", "loss is a probability"),
        ("nodes = 2\n[params]\nwindow = 0", "window must be"),
        ("nodes = 2\n[topics]\nt = [7]", "there is no node 7"),
        ("nodes = 2\n[topics]\nt = [1, 1]", "named twice"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'melt'", "Invalid enum value 'melt'"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'crash'", "there is no node -1"),
        ("nodes = 2\n[[fault]]\nat = -1\nact = 'crash'\nnode = 0", "a time is 0 to"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'heal'\nfor = 2", "`for` does not fit"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'heal'\nnode = 1", "`node` does not fit"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'partition'", "`sides` does not fit"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'partition'\nsides = [[0], [0]]", "named twice"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'one-way'\nfrom = 1\nto = 1", "named twice"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'slow'\nnode = 1", "say the delay"),
        ("nodes = 2\n[[do]]\nat = 1\nact = 'publish'\nnode = 2", "there is no node 2"),
        ("nodes = 2\n[[do]]\nat = 1\nact = 'publish'\nnode = 1\nlossy = true", "`lossy` does not"),
        ("nodes = 2\n[[do]]\nat = 1\nact = 'follow'\nnode = 1", "say the pattern"),
        ("nodes = 2\n[[fault]]\nat = 1\nact = 'pause'\nnode = 1\ncopies = 2", "`copies` does not"),
        ("nodes = 2\nlater = [0, 1]", "at least one node must be there"),
        ("nodes = 2\nlater = [2]", "there is no node 2"),
        ("nodes = 2\nlater = [1]\n[topics]\nt = [1]", "not there yet"),
        ("nodes = 2\n[[do]]\nat = 1\nact = 'publish'\nnode = 1\ncount = 2", "`count` does not"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_in_one_line(
    tmp_path: Path, text: str, why: str
) -> None:
    assert why in refused(tmp_path, text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"cannot read .*No such file"):
        read_schedule(tmp_path / "no.toml")


# the generator


def test_a_seed_draws_one_schedule() -> None:
    assert draw_schedule(7) == draw_schedule(7)
    assert draw_schedule(7) != draw_schedule(8)
    assert draw_schedule(7, nodes=5).nodes == 5


def test_schedules_are_of_the_sizes_that_are_promised() -> None:
    sizes = [draw_schedule(seed).nodes for seed in range(1500)]
    small = sum(size <= 8 for size in sizes) / len(sizes)
    large = sum(size > 32 for size in sizes) / len(sizes)
    assert 0.77 < small < 0.83
    assert 0.01 < large < 0.035


def test_schedules_contain_what_they_are_meant_to() -> None:
    schedules = [draw_schedule(seed) for seed in range(300)]
    acts = {fault.act for schedule in schedules for fault in schedule.faults}
    assert acts == {"crash", "pause", "partition", "one-way", "slow"}
    deeds = {step.act for schedule in schedules for step in schedule.steps}
    assert deeds == {"publish", "burst", "subscribe", "unsubscribe"}
    chances = {name for schedule in schedules for name in schedule.links}
    assert chances == {"loss", "duplicate", "reorder", "spike"}
    assert any(not schedule.faults for schedule in schedules)
    lasting = [fault for schedule in schedules for fault in schedule.faults if fault.lasts == 0]
    assert lasting, "some stay down"


def test_at_least_one_node_never_crashes() -> None:
    for seed in range(300):
        schedule = draw_schedule(seed)
        crashed = {fault.node for fault in schedule.faults if fault.act == "crash"}
        assert len(crashed) < schedule.nodes


def test_an_entry_tells_what_it_is() -> None:
    told = [
        str(Fault(1, "partition", sides=((0, 1, 2, 5),))),
        str(Fault(1, "one-way", source=1, to=2)),
        str(Fault(1, "slow", 1, delay=20)),
        str(Fault(1, "crash", 3)),
        str(ApplicationStep(1, "burst", 3, count=7)),
    ]
    assert told == [
        "partition 0-2,5 | the others",
        "one-way cut from node 1 to node 2",
        "slow links of node 1, 20 more",
        "crash of node 3",
        "burst of 7 at node 3",
    ]
