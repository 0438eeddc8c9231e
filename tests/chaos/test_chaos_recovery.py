"""What a chaos run is told and measured from: hand-made traces with known answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubecast.chaos.condition import Action
from cubecast.chaos.live.driver import DriverMark, ProcessLife, Run
from cubecast.chaos.live.live_schedules import split
from cubecast.chaos.live.merged_trace import tenancies, trace_of
from cubecast.chaos.live.messages import NodeTold, Up
from cubecast.chaos.live.plot import MOST_LINES, NoPlot, Span, draw_run, needs_matplotlib, spans_of
from cubecast.chaos.live.recovery import DeliveryCurve, audience_of, measure
from cubecast.chaos.live.story import happenings, judgement
from cubecast.chaos.live.tracelog import TraceLog, mend
from cubecast.chaos.live.verdict import judge
from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule, checked
from cubecast.trace import Header, Record, TraceError, read_jsonl

TOPIC = "t"
BEGAN = 100.0
END = 120.0


def us(seconds: float) -> int:
    return round(seconds * 1e6)


def fault(at: float, act: str, node: int = -1, lasts: float = 0.0, number: int = 0) -> DriverMark:
    what = Fault(at, act, node, lasts=lasts)  # type: ignore[arg-type]
    return DriverMark(BEGAN + at, Action(at, what.act, what, number))


def undo(at: float, act: str, of: DriverMark) -> DriverMark:
    assert of.action is not None
    return DriverMark(BEGAN + at, Action(at, act, of.action.fault, of.action.number))  # type: ignore[arg-type]


def talk(
    nodes: int, silent: dict[int, tuple[float, float]], hole: tuple[float, float] = (0, 0)
) -> list[tuple[int, list[Record]]]:
    """Everyone publishes 20 times a second, all deliver 5 ms later.

    A node is dead while it is `silent`; during a `hole` no node delivers messages of others.
    """
    traces: dict[int, list[Record]] = {node: [] for node in range(nodes)}
    for step in range(int((END - BEGAN) * 20)):
        at = step / 20 + 0.01
        for node in range(nodes):
            if not _within(at, silent.get(node)):
                ident = f"{node}.{step}"
                traces[node].append(Record("publish", us(BEGAN + at), node, TOPIC, ident))
                for other in range(nodes):
                    if other == node or not (
                        _within(at, silent.get(other)) or hole[0] <= at < hole[1]
                    ):
                        later = us(BEGAN + at + 0.005)
                        traces[other].append(Record("deliver", later, other, TOPIC, ident))
    return list(traces.items())


def _within(at: float, span: tuple[float, float] | None) -> bool:
    return span is not None and span[0] <= at < span[1]


def measured(traces: list[tuple[int, list[Record]]], marks: list[DriverMark]) -> DeliveryCurve:
    everyone = frozenset((one, other) for one, _ in traces for other, _ in traces)
    return measure(traces, everyone, marks, BEGAN, END)


# -- what a fault costs ---------------------------------------------------------------------------


def test_a_dead_node_alone_is_no_dip() -> None:
    crash = fault(8, "crash", 2)
    (cost,) = measured(talk(4, {2: (8, 99)}), [crash]).costs
    assert cost.dip == pytest.approx(1.0)
    assert (cost.recovered_s, cost.never_heard) == (0.0, ())
    assert cost.heard_by_all_s == pytest.approx(0.015)


def test_a_hole_after_a_crash_is_a_dip_with_its_length() -> None:
    crash = fault(8, "crash", 2)
    (cost,) = measured(talk(4, {2: (8, 99)}, hole=(8, 9.5)), [crash]).costs
    # Of three nodes each hears only itself: a third.
    assert cost.dip == pytest.approx(1 / 3)
    assert cost.recovered_s == pytest.approx(1.5, abs=0.11)
    assert cost.heard_by_all_s == pytest.approx(1.515)


def test_a_hole_until_the_end_has_no_recovery_and_names_who_was_not_heard() -> None:
    crash = fault(8, "crash", 2)
    (cost,) = measured(talk(3, {2: (8, 99)}, hole=(8, 99)), [crash]).costs
    assert (cost.recovered_s, cost.heard_by_all_s) == (None, None)
    assert cost.never_heard == ((0, 1), (1, 0))


def test_a_restart_is_over_when_the_newcomer_hears_and_is_heard() -> None:
    crash = fault(5, "crash", 2, lasts=3)
    marks = [crash, undo(8, "restart", crash), DriverMark(BEGAN + 10, None, 2, 1)]
    first, second = measured(talk(4, {2: (5, 10)}), marks).costs
    assert first.heard_by_all_s == pytest.approx(0.015)
    assert second.heard_by_all_s == pytest.approx(2.015)
    # Until it has joined no message is expected of it: no dip.
    assert (first.dip, second.dip) == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_pair_that_the_next_fault_takes_apart_is_not_waited_for() -> None:
    marks = [fault(8, "crash", 2), fault(9, "crash", 1, number=1)]
    first, second = measured(talk(4, {2: (8, 99), 1: (8, 99)}), marks).costs
    assert first.never_heard == second.never_heard == ()
    assert first.heard_by_all_s == pytest.approx(0.015)


def test_nothing_can_be_said_before_there_was_any_load() -> None:
    (cost,) = measured([(0, []), (1, [])], [fault(3, "pause", 1)]).costs
    assert (cost.dip, cost.recovered_s) == (None, None)


def test_only_those_who_share_a_topic_are_waited_for() -> None:
    topics = {"t": (0, 1), "u": (1, 2)}
    schedule = Schedule(3, topics=topics, steps=(ApplicationStep(1, "unsubscribe", 2, "u"),))
    assert audience_of(schedule) == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)}
    alone = Schedule(2, steps=(ApplicationStep(1, "unsubscribe", 0),))
    assert audience_of(alone) == {(0, 1), (1, 1)}


# -- one trace of many lives ----------------------------------------------------------------------


def write_life(
    directory: Path, number: int, life: int, records: list[Record], ending: str, span: tuple
) -> ProcessLife:
    path = directory / f"node-{number}-{life}.jsonl"
    log = TraceLog(path, Header(time_unit="us"))
    log += records
    log.close()
    slot = records[0].node if records else 0
    up = Up(span[0], slot, f"uid{number}.{life}", "127.0.0.1:1")
    return ProcessLife(number, life, path, span[0], up, span[1], ending)


def kinds(records: Iterator[Record], node: int) -> list[tuple[str, object]]:
    return [(record.kind, record.id) for record in records if record.node == node]


def test_lives_of_a_slot_follow_each_other_with_crash_and_restart(tmp_path: Path) -> None:
    first = [
        Record("join", us(1), 1, TOPIC),
        Record("publish", us(2), 1, TOPIC, "a"),
        Record("deliver", us(2), 1, TOPIC, "a"),
    ]
    # A clock that stands still: the delivery has an earlier time than the publication.
    reader = [Record("join", us(1), 0, TOPIC), Record("deliver", us(1.9), 0, TOPIC, "a")]
    second = [Record("join", us(5), 1, TOPIC), Record("publish", us(6), 1, TOPIC, "b")]
    lives = [
        write_life(tmp_path, 0, 0, reader, "", (0.0, None)),
        write_life(tmp_path, 1, 0, first, "crash", (0.0, 3.0)),
        write_life(tmp_path, 7, 0, second, "", (4.0, None)),  # another node gets the slot
        ProcessLife(9, 0, tmp_path / "never.jsonl", 0.0, None, 1.0, "crash"),
    ]
    assert kinds(trace_of(tenancies(lives)), 1) == [
        ("join", None), ("publish", "a"), ("deliver", "a"), ("crash", None),
        ("restart", None), ("join", None), ("publish", "b"),
    ]  # fmt: skip
    merged = [(record.kind, record.node) for record in trace_of(tenancies(lives))]
    assert merged.index(("publish", 1)) < merged.index(("deliver", 0))
    crash = next(record for record in trace_of(tenancies(lives)) if record.kind == "crash")
    assert crash.time == us(3)


def test_a_life_that_moves_to_another_slot_is_a_new_one_there(tmp_path: Path) -> None:
    moved = [
        Record("join", us(1), 1, TOPIC),
        Record("deliver", us(2), 1, TOPIC, "a"),
        Record("join", us(5), 4, TOPIC),
    ]
    lives = [write_life(tmp_path, 1, 0, moved, "", (0.0, None))]
    assert kinds(trace_of(tenancies(lives)), 1) == [
        ("join", None),
        ("deliver", "a"),
        ("crash", None),
    ]
    assert kinds(trace_of(tenancies(lives)), 4) == [("join", None)]


def test_a_life_that_comes_back_to_its_slot_follows_who_had_it_meanwhile(tmp_path: Path) -> None:
    """Its second stay delivers what the node in the slot published in between."""
    wanderer = [
        Record("join", us(1), 1, TOPIC),
        Record("join", us(3), 4, TOPIC),
        Record("join", us(8), 1, TOPIC),
        Record("deliver", us(9), 1, TOPIC, "a"),
    ]
    tenant = [Record("join", us(4), 1, TOPIC), Record("publish", us(5), 1, TOPIC, "a")]
    lives = [
        write_life(tmp_path, 1, 0, wanderer, "", (0.0, None)),
        write_life(tmp_path, 2, 0, tenant, "crash", (3.5, 6.0)),
    ]
    assert kinds(trace_of(tenancies(lives)), 1) == [
        ("join", None), ("crash", None),
        ("restart", None), ("join", None), ("publish", "a"), ("crash", None),
        ("restart", None), ("join", None), ("deliver", "a"),
    ]  # fmt: skip


def test_a_life_that_returns_to_its_slot_from_nowhere_was_there_twice(tmp_path: Path) -> None:
    """It was stopped; another node had its slot and died before it found a place again."""
    sleeper = [
        Record("view", us(1), 1, members=3, seq=1),
        Record("join", us(1), 1, TOPIC),
        Record("deliver", us(7), 1, TOPIC, "old"),  # awake again, and not told yet
        Record("view", us(8), 1, members=3, seq=4),
        Record("join", us(8), 1, TOPIC),
        Record("gap", us(8), 1, TOPIC, "a"),
    ]
    tenant = [
        Record("view", us(4), 1, members=3, seq=2),
        Record("join", us(4), 1, TOPIC),
        Record("publish", us(5), 1, TOPIC, "a"),
    ]
    reader = [Record("join", us(1), 0, TOPIC), Record("publish", us(2), 0, TOPIC, "old")]
    lives = [
        write_life(tmp_path, 0, 0, reader, "", (0.0, None)),
        write_life(tmp_path, 1, 0, sleeper, "", (0.0, None)),
        write_life(tmp_path, 2, 0, tenant, "crash", (3.5, 6.0)),
    ]
    assert kinds(trace_of(tenancies(lives)), 1) == [
        ("view", None), ("join", None), ("deliver", "old"), ("crash", None),
        ("restart", None), ("view", None), ("join", None), ("publish", "a"), ("crash", None),
        ("restart", None), ("view", None), ("join", None), ("gap", "a"),
    ]  # fmt: skip


def test_a_node_that_reads_on_in_a_slot_given_away_holds_up_no_other(tmp_path: Path) -> None:
    """Node 1 was stopped and excluded; awake again it reads what was sent before.  What its heir in
    the slot says in the meantime comes before a join that is later, not after it.
    """
    sleeper = [Record("join", us(1), 1, TOPIC), Record("deliver", us(9), 1, TOPIC, "old")]
    tenant = [Record("join", us(4), 1, TOPIC), Record("publish", us(5), 1, TOPIC, "a")]
    reader = [
        Record("join", us(1), 0, TOPIC),
        Record("publish", us(2), 0, TOPIC, "old"),
        Record("deliver", us(5.1), 0, TOPIC, "a"),
    ]
    newcomer = [Record("join", us(7), 2, TOPIC)]
    lives = [
        write_life(tmp_path, 0, 0, reader, "", (0.0, None)),
        write_life(tmp_path, 1, 0, sleeper, "crash", (0.0, 9.5)),
        write_life(tmp_path, 2, 0, tenant, "", (3.5, None)),
        write_life(tmp_path, 3, 0, newcomer, "", (6.0, None)),
    ]
    merged = [(one.kind, one.node, one.id) for one in trace_of(tenancies(lives))]
    assert merged.index(("publish", 1, "a")) < merged.index(("join", 2, None))
    assert kinds(trace_of(tenancies(lives)), 1) == [
        ("join", None), ("deliver", "old"), ("crash", None),
        ("restart", None), ("join", None), ("publish", "a"),
    ]  # fmt: skip


def test_half_a_line_at_the_end_of_a_trace_is_cut_off(tmp_path: Path) -> None:
    life = write_life(tmp_path, 0, 0, [Record("join", 1, 0, TOPIC)] * 3, "crash", (0.0, 1.0))
    whole = life.trace.read_bytes()
    for cut in (1, 10, len(whole.splitlines()[-1])):
        life.trace.write_bytes(whole[:-cut])
        mend(life.trace)
        assert life.trace.read_bytes() == b"".join(whole.splitlines(keepends=True)[:-1])
    life.trace.write_bytes(whole[:-10])
    with pytest.raises(TraceError, match="not JSON"):
        list(read_jsonl(life.trace)[1])
    mend(life.trace)
    assert len(list(read_jsonl(life.trace)[1])) == 2
    life.trace.write_bytes(b'{"half a header')
    mend(life.trace)
    assert life.trace.read_bytes() == b""
    assert list(trace_of(tenancies([life]))) == []


# -- story and picture ----------------------------------------------------------------------------


def a_run(directory: Path) -> Run:
    """Three nodes; node 2 is killed at 8 s and back at 10 s; the others hear of it."""
    crash = fault(8, "crash", 2, lasts=1)
    plan = checked(Schedule(3, "by hand", "s", 20, faults=(Fault(8, "crash", 2, lasts=1),)))
    run = Run(plan, began=BEGAN, silent=END, settled_s=0.4)
    run.marks = [crash, undo(9, "restart", crash), DriverMark(BEGAN + 10, None, 2, 1)]
    joined = [Record("join", us(BEGAN), node, TOPIC) for node in range(3)]
    for node, records in talk(3, {2: (8, 10)}):
        early = [record for record in records if record.time < us(BEGAN + 9)]
        late = [record for record in records if record.time >= us(BEGAN + 9)]
        if node < 2:
            life = [joined[node], *records]
            run.lives.append(write_life(directory, node, 0, life, "", (BEGAN - 1, None)))
            continue
        dead = (BEGAN - 1, BEGAN + 8)
        run.lives.append(write_life(directory, 2, 0, [joined[2], *early], "crash", dead))
        again = Record("join", us(BEGAN + 10), 2, TOPIC)
        run.lives.append(write_life(directory, 2, 1, [again, *late], "", (BEGAN + 9, None)))
    run.told = [
        (0, NodeTold(BEGAN + 8.5, "left", 2)),
        (1, NodeTold(BEGAN + 8.75, "left", 2)),
        (0, NodeTold(BEGAN + 8.1, "lost connection", 2)),
        (1, NodeTold(BEGAN + 8.8, "gap", count=7)),
        (0, NodeTold(BEGAN + 10, "joined", 2)),
    ]
    return run


def test_the_story_says_what_was_done_and_who_was_told_what(tmp_path: Path) -> None:
    assert [line.strip() for line in happenings(a_run(tmp_path))] == [
        "8.00 s  crash of node 2",
        "nodes 0, 1 were told: node 2 left the cluster (8.50 to 8.75 s)",
        "node 1 was told: a gap of 7 messages (8.80 s)",
        "9.00 s  restart of node 2",
        "10.00 s  node 2 is back (life 2)",
        "node 0 was told: node 2 joined (10.00 s)",
    ]


def test_a_run_is_judged_by_its_traces_and_by_its_problems(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    verdict = judge(run)
    assert verdict.report.counts["no-creation"] == verdict.report.counts["causal-order"] == 0
    figures = verdict.metrics
    assert (figures["crashes"], figures["restarts"], figures["partitions"]) == (1, 1, 0)
    assert figures["publications"] == 3 * 400 - 40
    assert figures["recovery_time"] == pytest.approx(1.015)
    assert [event["act"] for event in verdict.events()] == ["crash", "restart"]
    run.problems.append("node 1 ended by itself")
    assert not judge(run).ok
    assert "  PROBLEM: node 1 ended by itself" in list(judgement(judge(run)))


def test_a_delivery_of_an_unpublished_message_is_found(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    ghost = [Record("join", us(BEGAN), 5, TOPIC), Record("deliver", us(BEGAN + 1), 5, TOPIC, "?")]
    run.lives.append(write_life(tmp_path, 5, 0, ghost, "", (BEGAN, None)))
    verdict = judge(run)
    assert verdict.report.counts["no-creation"] == 1
    assert "SOMETHING IS WRONG" in list(judgement(verdict))


def test_lanes_of_the_picture() -> None:
    crash, pause = fault(2, "crash", 0, lasts=3), fault(4, "pause", 1, number=1)
    marks = [crash, pause, undo(5, "restart", crash), DriverMark(BEGAN + 6, None, 0, 1)]
    assert sorted(spans_of(marks, 2, BEGAN, END)) == [
        Span(0, "down", 2, 5),
        Span(0, "joining", 5, 6),
        Span(1, "stopped", 4, 20),
    ]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = a_run(tmp_path)
    picture = tmp_path / "run.png"
    draw_run(judge(run), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(NoPlot, match="cannot write"):
        draw_run(judge(run), tmp_path / "none" / "run.png")
    run.schedule = split((2, 1), 5)
    cut = Fault(5, "partition", sides=((0, 1),), lasts=5)
    run.marks = [DriverMark(BEGAN + 5, Action(5, "partition", cut, 0))]
    draw_run(judge(run), picture)
    few = picture.stat().st_size
    for number in range(MOST_LINES):
        pause = fault(6 + number / 10, "pause", 1, lasts=0.05, number=1 + number)
        run.marks += [pause, undo(6.05 + number / 10, "resume", pause)]
    draw_run(judge(run), picture)  # with the kinds of faults compared at the side
    assert picture.stat().st_size > few


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlot, match=r"cubecast\[lab\]"):
        needs_matplotlib()
