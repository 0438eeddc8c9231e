"""A chaos story names nodes, though nodes and traces speak of slots, which change hands."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.chaos.live.driver import DriverMark, ProcessLife, Run
from cubecast.chaos.live.merged_trace import tenancies, trace_of
from cubecast.chaos.live.messages import NodeTold, Up
from cubecast.chaos.live.recovery import DeliveryCurve
from cubecast.chaos.live.story import happenings, judgement
from cubecast.chaos.live.tracelog import TraceLog
from cubecast.chaos.live.verdict import verdict_of
from cubecast.chaos.live.worker import Neighbours, said_of
from cubecast.chaos.schedule import Schedule
from cubecast.net.events import ConnectionLost, Event, Excluded, MemberJoined, MemberLeft, Returned
from cubecast.trace import Header, Record, check
from cubecast.trace.checkers import Inversions

BEGAN = 1000.0


def home(number: int) -> str:
    return f"127.0.0.1:{7000 + number}"


def life(
    number: int, slot: int, began: float, up: float, ended: float | None = None, *, which: int = 0
) -> ProcessLife:
    """A process of a node; times in seconds of the run."""
    said = Up(BEGAN + up, slot, f"uid{number}.{which}", home(number))
    end = None if ended is None else BEGAN + ended
    ending = "" if ended is None else "crash"
    return ProcessLife(number, which, Path("nowhere"), BEGAN + began, said, end, ending)


def told(at: float, what: str, slot: int, number: int | None = None) -> NodeTold:
    """Something about a slot, which `number` has as far as the teller knows."""
    return NodeTold(BEGAN + at, what, slot, address="" if number is None else home(number))


def story(lives: list[ProcessLife], *said: tuple[int, NodeTold]) -> list[str]:
    run = Run(Schedule(6, "by hand", "s", 60), began=BEGAN, silent=BEGAN + 60)
    run.lives = lives
    run.told = list(said)
    run.marks = [DriverMark(BEGAN, None, note="begin")]
    return [line.strip() for line in happenings(run)][1:]


FIRST = [life(number, number, -2.0, -1.0) for number in range(6)]


def test_a_run_too_short_for_a_fault_has_a_story_without_one() -> None:
    assert list(happenings(Run(Schedule(6, "by hand", "s", 60), began=BEGAN))) == []


def test_a_node_that_returns_to_another_slot_keeps_its_name() -> None:
    """Node 3 was excluded, slot 3 became node 5's, and node 3 returned to slot 5."""
    lives = [*FIRST[:5], life(5, 5, -2.0, -1.0, 4.0), life(5, 3, 5.0, 9.0, which=1)]
    assert story(
        lives,
        (3, told(6.0, "Excluded", 3)),
        (0, told(8.0, "joined", 3, 5)),
        (3, told(10.0, "Returned", 5)),
        (0, told(11.0, "joined", 5, 3)),
        (0, told(20.0, "left", 5, 3)),
        (0, told(21.0, "left", 3, 5)),
    ) == [
        "node 3 was told: the others went on without it (6.00 s)",
        "node 0 was told: node 5 joined (8.00 s)",
        "node 3 was told: it is back, in slot 5 (10.00 s)",
        "node 0 was told: node 3 joined (11.00 s)",
        "node 0 was told: node 3 left the cluster (20.00 s)",
        "node 0 was told: node 5 left the cluster (21.00 s)",
    ]


def test_a_node_that_left_a_slot_is_not_the_one_about_to_get_it() -> None:
    """Node 5 is started again before the others notice that node 2 is gone, and gets its slot."""
    lives = [
        *FIRST[:2],
        life(2, 2, -2.0, -1.0, 4.0),
        life(5, 5, -2.0, -1.0, 1.0),
        life(5, 2, 4.5, 9.0, which=1),
    ]
    left, joined = (0, told(6.0, "left", 2, 2)), (0, told(8.0, "joined", 2, 5))
    assert story(lives, left, joined) == [
        "node 0 was told: node 2 left the cluster (6.00 s)",
        "node 0 was told: node 5 joined (8.00 s)",
    ]
    nameless = (0, told(6.0, "left", 2))
    assert story(lives, nameless) == ["node 0 was told: node 2 left the cluster (6.00 s)"]


def test_a_slot_without_an_address_is_that_of_who_last_told_of_getting_it() -> None:
    returned = (3, told(10.0, "Returned", 5))
    lives = [*FIRST[:5], life(5, 5, -2.0, -1.0, 4.0)]
    assert story(lives, returned, (0, told(9.0, "left", 5)), (0, told(11.0, "joined", 5))) == [
        "node 3 was told: it is back, in slot 5 (10.00 s)",
        "node 0 was told: node 5 left the cluster (9.00 s)",
        "node 0 was told: node 3 joined (11.00 s)",
    ]


def test_a_slot_without_a_node_is_called_a_slot() -> None:
    assert story(FIRST, (0, told(9.0, "joined", 17))) == [
        "node 0 was told: slot 17 joined (9.00 s)"
    ]


@pytest.mark.parametrize(
    ("events", "addresses"),
    [
        ([MemberLeft(1)], ["b:1"]),
        (
            [MemberLeft(1, crashed=True), MemberJoined(1, "c:1"), MemberLeft(1)],
            ["b:1", "c:1", "c:1"],
        ),
        ([MemberJoined(2, "c:1"), ConnectionLost(2, "gone")], ["c:1", "c:1"]),
        ([Excluded(0), Returned(4, 9), ConnectionLost(7, "gone")], ["", "", ""]),
    ],
)
def test_a_worker_names_the_address_an_event_is_about(
    events: list[Event], addresses: list[str]
) -> None:
    neighbours = Neighbours({0: "a:1", 1: "b:1"})
    said = [neighbours.named(event, said_of(event, 1.0)) for event in events]
    assert [one.address for one in said] == addresses


def test_a_violation_names_the_slot_and_the_node_that_had_it(tmp_path: Path) -> None:
    """Node 5 had slot 1 when it delivered twice; before, node 1 had it."""
    lives = []
    spans = [(0, 0, 0, 30), (1, 1, 0, 5), (5, 1, 10, 30)]
    for number, slot, begin, end in spans:
        path = tmp_path / f"{number}.jsonl"
        log = TraceLog(path, Header(time_unit="us"))
        log.append(Record("join", us(begin), slot, "t"))
        if number == 0:
            log.append(Record("publish", us(12), 0, "t", "m"))
            log.append(Record("deliver", us(12), 0, "t", "m", source=0))
        if number == 5:
            log += [Record("deliver", us(13), 1, "t", "m", source=2) for _ in range(2)]
        log.close()
        up = Up(float(begin), slot, f"uid{number}", home(number))
        dead = None if end == 30 else float(end)
        lives.append(ProcessLife(number, 0, path, float(begin), up, dead, "crash" if dead else ""))
    run = Run(Schedule(6, "by hand", "s", 60), lives=lives)
    report = check(trace_of(tenancies(lives)), ["no-creation"])
    verdict = verdict_of(run, report, Inversions(0, 0, 0), DeliveryCurve(1.0, [], []))
    said = [line.strip() for line in judgement(verdict) if "time 13000000" in line]
    assert said
    assert all("time 13000000, slot 1 (node 5), topic 't', message 'm'" in line for line in said)
    assert any("delivered as slot 2's, but published by slot 0" in line for line in said)


def us(seconds: float) -> int:
    return round(seconds * 1e6)
