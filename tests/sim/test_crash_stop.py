"""Processes that crash, a perfect detector, and VCube-PB where its assumptions end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from cubecast.protocol.paper.vcube_pb import VCubePB
from cubecast.protocol.port import NodeId, Port, Process, Time
from cubecast.sim.crashes.crash_stop import CrashStopWorld, detection_range
from cubecast.sim.crashes.vcube_top import VCubeTop
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.workloads.scenario_file import ScriptError, read_script
from cubecast.trace import Record
from support.paths import ROOT

T = "t"
FILES = sorted((ROOT / "scenarios").glob("pb-*.toml"))


class Stage:
    """Four VCube-PB processes that may crash; a hop takes 100 u.t."""

    def __init__(self, nodes: int = 4, detect: tuple[Time, Time] = (250, 400)) -> None:
        top = VCubeTop(200)
        self.told: list[tuple[NodeId, NodeId, Time]] = []
        self.trace: list[Record] = []

        class Listening(VCubePB):
            def crashed(process, node: NodeId, now: Time) -> None:
                self.told.append((process._node, node, now))
                super().crashed(node, now)

        def make(node: NodeId, port: Port) -> Process:
            return Listening(node, port, nodes=nodes, top=top)

        self.world = CrashStopWorld(
            nodes,
            make,
            SendingQueue(100),
            rng=Random(1),
            detect=detect,
            trace=self.trace,
            trace_messages=True,
        )
        self.world.establish(T, range(nodes))

    def crash_at(self, at: Time, node: NodeId) -> None:
        self.world.post(at, lambda a, b, now: self.world.crash(node))

    def publish_at(self, at: Time, node: NodeId) -> None:
        self.world.post(at, lambda a, b, now: self.world.publish(node, T))

    def seen(self, kind: str, node: NodeId) -> list[Time]:
        return [r.time for r in self.trace if r.kind == kind and r.node == node]


def test_the_dead_do_nothing_and_what_they_sent_arrives() -> None:
    stage = Stage()
    stage.publish_at(0, 0)
    stage.crash_at(50, 0)
    stage.publish_at(60, 1)
    stage.world.run()
    assert stage.seen("deliver", 0) == [0]
    assert stage.seen("deliver", 1)[0] == 60  # its own
    assert [len(stage.seen("deliver", node)) for node in (1, 2, 3)] == [2, 2, 2]
    assert all(time <= 50 for time in stage.seen("send", 0))
    assert not stage.world.is_up(0)
    assert stage.world.processes[0].load() == (0, 0, 0)


def test_everyone_who_lives_is_told_once_within_the_bounds() -> None:
    stage = Stage(nodes=8)
    stage.crash_at(50, 5)
    stage.crash_at(60, 2)
    stage.world.run()
    for dead, at in ((5, 50), (2, 60)):
        told = [(node, now) for node, crashed, now in stage.told if crashed == dead]
        assert sorted(node for node, _ in told) == [0, 1, 3, 4, 6, 7]
        assert all(at + 250 <= now <= at + 400 for _, now in told)
        assert len({now for _, now in told}) > 1


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_crash_between_two_copies(copies: int) -> None:
    stage = Stage(nodes=8)  # node 0 has three children
    stage.world.crash_after(0, copies)
    stage.publish_at(0, 0)
    stage.world.run()
    assert [r.peer for r in stage.trace if r.kind == "send" and r.node == 0] == [1, 2, 4][:copies]
    assert [r.time for r in stage.trace if r.kind == "crash"] == [0]
    assert [len(stage.seen("deliver", node)) for node in range(1, 8)] == [min(copies, 1)] * 7


def test_a_process_can_be_told_of_a_crash_that_was_none() -> None:
    stage = Stage()
    stage.world.post(10, lambda a, b, now: stage.world.suspect(1, 3))
    stage.world.run()
    assert stage.told == [(1, 3, 10)]
    assert stage.world.is_up(3)
    assert not stage.world.has_crashed


def test_crashes_are_for_good() -> None:
    stage = Stage()
    stage.world.crash(1)
    with pytest.raises(ValueError, match="node 1 cannot restart"):
        stage.world.restart(1)


def test_detection_waits_for_what_the_dead_sent() -> None:
    """[B] 5.1: a time-out of one round trip, and log2² n rounds until all know."""
    assert detection_range(20, 3) == (21, 21 + 9 * 40)
    assert detection_range(20, 0) == (21, 61)


# Scenario files


def perform(path: Path, protocol: str, **options: bool) -> Outcome:
    script = read_script(path)
    params = Params().with_(script.scenario.defaults)
    return run(script.scenario, protocol, params, 0, **options)


def broken(outcome: Outcome) -> list[str]:
    assert outcome.report is not None
    return sorted(name for name, count in outcome.report.counts.items() if count)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vcube_pb_fails_outside_its_assumptions(path: Path) -> None:
    expected = read_script(path).expect["vcube-pb"]
    assert "quiescence" in expected  # something waits for ever
    assert broken(perform(path, "vcube-pb")) == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_production_protocol_does_not(path: Path) -> None:
    outcome = perform(path, "cubecast")
    assert broken(outcome) == read_script(path).expect["cubecast"] == []
    assert outcome.ok  # and everything was taken, and it settled
    assert outcome.metrics["kept"] == 0


def test_there_are_three_such_schedules() -> None:
    assert [path.stem for path in FILES] == [
        "pb-lost-cause", "pb-lost-message", "pb-wrong-suspicion",
    ]  # fmt: skip


def told_by_production(name: str, *kinds: str) -> list[tuple[str, NodeId, object]]:
    """What its nodes did with messages, in the order of nodes."""
    path = next(path for path in FILES if path.stem == name)
    trace = perform(path, "cubecast", keep_trace=True).trace
    return sorted((r.kind, r.node, r.id) for r in trace or () if r.kind in kinds)


QUESTION, ANSWER, LATER = 0, 1, 2


def test_production_agrees_to_discard_an_answer_whose_question_died() -> None:
    assert told_by_production("pb-lost-cause", "crash", "deliver", "discard", "gap") == [
        ("crash", 0, None),
        ("crash", 1, None),
        ("deliver", 1, QUESTION),
        ("deliver", 1, ANSWER),
        ("deliver", 2, LATER),
        ("deliver", 3, LATER),
        ("discard", 2, ANSWER),
        ("discard", 3, ANSWER),
    ]


def test_production_repairs_a_lost_message() -> None:
    delivered = told_by_production("pb-lost-message", "deliver", "discard", "gap")
    assert delivered == [("deliver", node, ident) for node in range(4) for ident in (0, 1)]


def test_production_takes_a_node_back_that_was_suspected_and_both_sides_say_what_they_missed() -> (
    None
):
    """No node lost message 2: its publisher was out and waited."""
    assert told_by_production("pb-wrong-suspicion", "crash", "deliver", "discard", "gap") == [
        *[("deliver", node, ident) for node in (0, 1, 2) for ident in (0, 2)],
        *[("deliver", 3, ident) for ident in (1, 2)],
        *[("gap", node, 1) for node in (0, 1, 2)],
        ("gap", 3, 0),
    ]


BASE = 'about = "x"\n[params]\nnodes = 4\n[topics]\nt = [0, 1]\nu = [2]\n'


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('act = "suspect"', "has a peer"),
        ('act = "crash"\npeer = 2', "has a peer"),
        ('act = "suspect"\npeer = 4', "no node 4"),
        ('act = "suspect"\npeer = 0', "others, not itself"),
        ('act = "crash"\ncopies = -1', "0 or more"),
        ('act = "publish"\ntopic = "t"\ncopies = 1', "only a crash"),
        ('act = "crash"\nlabel = "x"', "only a publication"),
    ],
)
def test_impossible_steps_are_refused(tmp_path: Path, step: str, reason: str) -> None:
    path = tmp_path / "story.toml"
    path.write_text(f"{BASE}[[do]]\nat = 1\nnode = 0\n{step}\n", encoding="utf-8")
    with pytest.raises(ScriptError, match=reason):
        read_script(path)


@pytest.mark.parametrize("protocol", ["vcube-pb", "cubecast"])
def test_a_crashed_node_takes_no_steps(tmp_path: Path, protocol: str) -> None:
    path = tmp_path / "story.toml"
    steps = ['at = 1\nnode = 0\nact = "crash"', 'at = 2\nnode = 0\nact = "publish"\ntopic = "t"']
    path.write_text(BASE + "".join(f"[[do]]\n{step}\n" for step in steps), encoding="utf-8")
    assert perform(path, protocol).metrics["publications"] == 0


def test_production_that_does_not_settle_is_found_out(tmp_path: Path) -> None:
    """With links that carry one message in a thousand, nodes cannot agree on a view."""
    path = tmp_path / "story.toml"
    text = BASE.replace("nodes = 4", "nodes = 4\nloss = 0.999")
    path.write_text(f'{text}[[do]]\nat = 1\nnode = 0\nact = "crash"\n', encoding="utf-8")
    outcome = perform(path, "cubecast")
    assert not outcome.ok
    assert "convergence" in broken(outcome)
