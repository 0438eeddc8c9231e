"""Schedules as real processes go through them: read, refused, drawn, and what they come to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cubecast.chaos.places import sides_of
from cubecast.chaos.schedule import (
    DRAWN,
    Action,
    Condition,
    Fault,
    Schedule,
    ScheduleError,
    actions_of,
    checked,
    draw,
    read_schedule,
    split,
    write_schedule,
)

EXAMPLE = Path(__file__).parents[1] / "examples" / "chaos.toml"


def done(schedule: Schedule, until: float) -> Condition:
    """How things are after what is done until then."""
    condition = Condition(schedule.nodes)
    for action in actions_of(schedule):
        if action.at <= until:
            condition.apply(action)
    return condition


def test_the_example_is_read_and_written_back_as_it_is(tmp_path: Path) -> None:
    example = read_schedule(EXAMPLE)
    assert [fault.act for fault in example.faults] == ["pause", "leave", "slow", "partition"]
    copy = tmp_path / "copy.toml"
    write_schedule(copy, example)
    assert read_schedule(copy) == example


def test_everything_a_schedule_can_say_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / "full.toml"
    path.write_text(
        """
        about = 'half of "them"'
        unit = "ms"
        nodes = 4
        seed = 3
        answers = 0.1
        [links]
        loss = 0.01
        [params]
        window = 4
        [topics]
        t = [0, 1]
        "u/v" = [2, 3]
        [[fault]]
        at = 1500
        act = "one-way"
        from = 0
        to = 1
        [[fault]]
        at = 1000
        act = "heal"
        [[do]]
        at = 10
        act = "burst"
        node = 1
        count = 5
        topic = "u/v"
        """
    )
    found = read_schedule(path)
    assert [action.at for action in actions_of(found)] == [1.0, 1.5]
    assert found.seconds(found.length) == 11.5
    copy = tmp_path / "copy.toml"
    write_schedule(copy, found)
    assert read_schedule(copy) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nodes = ", "Invalid value"),
        ("about = 'x'", "missing required field `nodes`"),
        ("nodes = 0", "nodes must be 1 to 64"),
        ("nodes = 3\nnodse = 3", "unknown field `nodse`"),
        ("nodes = 3\nanswers = 1.0", "answers is a share"),
        ("nodes = 3\n[links]\nlos = 0.1", "links.los: there are loss"),
        ("nodes = 3\n[topics]\nt = [0, 3]", "topics.t: there is no node 3 among 0 to 2"),
        ("nodes = 3\n[[fault]]\nat = 1\nact = 'explode'", "Invalid enum value 'explode'"),
        ("nodes = 3\n[[fault]]\nat = 1\nact = 'crash'", "fault 1 (crash at 1): there is no node"),
        ("nodes = 3\n[[fault]]\nat = -1\nact = 'crash'\nnode = 1", "`at` must be 0 to a day"),
        ("nodes = 3\n[[fault]]\nat = 1\nact = 'heal'\nfor = 2", "`for` does not fit"),
        ("nodes = 3\n[[fault]]\nat = 1\nact = 'partition'", "`sides` does not fit"),
        (
            "nodes = 3\n[[fault]]\nat = 1\nact = 'partition'\nsides = [[0, 1], [1]]",
            "a node is named twice",
        ),
        ("nodes = 3\n[[fault]]\nat = 1\nact = 'slow'\nnode = 1", "say the delay"),
        ("nodes = 3\n[[do]]\nat = 1\nact = 'publish'\nnode = 1\ncount = 2", "`count` does not fit"),
        ("nodes = 3\n[[do]]\nat = 1\nact = 'publish'\nnode = 1\ntopic = 'u'", "not in [topics]"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ScheduleError) as caught:
        read_schedule(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"cannot read .*none\.toml: No such file"):
        read_schedule(tmp_path / "none.toml")


def test_what_cannot_be_done_at_its_time_is_left_out() -> None:
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
    for action in actions_of(schedule):
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
    for action in actions_of(one):
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
        (lambda: split((4, 4), 0), "lasts up to"),
    ],
)
def test_what_cannot_be_drawn(make: object, reason: str) -> None:
    assert callable(make)
    with pytest.raises(ScheduleError, match=reason):
        make()
