"""Eventful schedules on live nodes in memory: the simulator's generator and the same checkers.

A hundred run here, a thousand in ``make soak``.  A failure is replayed by its seed.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cubecast.chaos.eventful import draw_eventful
from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule, checked
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, run
from cubecast.testing.schedules import play
from cubecast.trace import Record, Report

PATIENT = NodeConfig(leave_timeout_s=3600, join_timeout_s=3600, publish_timeout_s=3600)
"""Who is cut off waits until it is not, however long that is in virtual time."""
BLOCK = 10
SECRET = "what is sealed must go on, too"
"""Of every fifth seed: crashes, cuts and returns with handshakes and sealed packets."""


async def played(schedule: Schedule, seed: int = 0) -> tuple[Report, list[Record]]:
    there = schedule.nodes - len(schedule.later)
    secret = "" if seed % 5 else SECRET
    async with Cluster(there, seed=seed, config=PATIENT, secret=secret) as cluster:
        await play(cluster, schedule)
        assert cluster.trace is not None
        return cluster.check(), list(cluster.trace)


@pytest.mark.parametrize("block", range(10))
def test_ten_eventful_schedules_on_live_nodes(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        try:
            report, _ = run(played(draw_eventful(seed, 2 + seed % 3), seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert report.publications > 0
        assert report.needless == 0


@pytest.mark.soak
@pytest.mark.parametrize("block", range(10, 110))
def test_a_thousand_eventful_schedules_on_live_nodes(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        run(played(draw_eventful(seed, 2 + seed % 5), seed))


def test_a_counted_gap_excuses_what_survivors_know_of_the_dead() -> None:
    """Seed 423: a lossy node misses messages of two nodes that crash, one of them cut off."""
    report, _ = run(played(draw_eventful(423, 5), 423))
    assert report.needless == 0


def test_a_gap_that_leaves_out_the_dead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(shell: Shell, topic: str, skipped: Mapping[Stream, tuple[int, int]]) -> None:
        """Report only what nodes of the present view published."""
        known = {
            stream: span for stream, span in skipped.items() if stream[0] in shell.node.members
        }
        whole(shell, topic, known)

    whole = Shell.gap
    monkeypatch.setattr(Shell, "gap", forgetful)
    # Completeness blames it where the node also delivered something that the message precedes.
    blamed = r"(agreement|completeness): .* node 1, topic 't', message '0\."
    with pytest.raises(AssertionError, match=blamed):
        run(played(draw_eventful(423, 5), 423))


def test_the_same_schedule_and_seed_leave_the_same_trace() -> None:
    schedule = draw_eventful(3, 3)
    assert run(played(schedule, 3))[1] == run(played(schedule, 3))[1]


def test_records_are_about_nodes_even_if_two_had_the_same_slot() -> None:
    """Node 2 is alone, and meanwhile a stranger takes its slot; both publish under it."""
    schedule = checked(
        Schedule(
            nodes=4,
            later=(3,),
            length=20_000,
            faults=(
                Fault(1_000, "partition", sides=((2,),), lasts=14_000),
                Fault(6_000, "restart", 3),
            ),
            steps=(
                ApplicationStep(7_000, "subscribe", 3, "t"),
                *(ApplicationStep(9_000 + 100 * number, "publish", 2) for number in range(10)),
                *(ApplicationStep(9_050 + 100 * number, "publish", 3) for number in range(10)),
            ),
        )
    )
    _, trace = run(played(schedule))
    said = [record for record in trace if record.kind == "publish"]
    apart = [record for record in said if record.topic == "t"][:20]
    assert {record.node for record in apart} == {2, 3}
    slots = {(record.node, str(record.id).split(".")[0]) for record in apart}
    assert slots == {(2, "2"), (3, "2")}, "both had slot 2, each on its side"
    sources = {(record.source, record.node) for record in trace if record.kind == "deliver"}
    assert {source for source, _ in sources} >= {2, 3}
