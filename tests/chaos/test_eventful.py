"""Eventful schedules: all that can happen in long lives, over the wire format, fully judged.

Five hundred of them run here, on small clusters; ``make soak`` runs 20,000 of all sizes.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import msgspec
import pytest

from cubecast.chaos.eventful import draw_eventful, draw_idle
from cubecast.chaos.plan import plan_of
from cubecast.chaos.schedule import (
    ApplicationStep,
    Fault,
    Schedule,
    checked,
    read_schedule,
    schedule_text,
)
from cubecast.chaos.simulated.driver import (
    SimulatedVerdict,
    _Run,
    draw_schedule,
    population,
    run_schedule,
)
from cubecast.protocol.cluster.leader_watch import Duty, LeaderWatch
from cubecast.sim.protocols import answer_after

BLOCK = 25
SEEDS = 500
REPLAY = "cubecast sim chaos --nodes {} --replay {}"


def nodes_of(seed: int) -> int:
    """Small clusters: in these the same few nodes meet everything."""
    return 3 + seed % 3


@cache
def eventful(seed: int) -> SimulatedVerdict:
    return run_schedule(draw_eventful(seed, nodes_of(seed)), population("cubecast"))


@pytest.mark.parametrize("block", range(SEEDS // BLOCK))
def test_twenty_five_eventful_schedules(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        verdict = eventful(seed)
        again = REPLAY.format(nodes_of(seed), seed)
        assert verdict.ok, (again, verdict.failures)
        assert verdict.metrics["needless"] == 0, again
        assert verdict.metrics["recovery_time"] <= verdict.bound, again


def test_schedules_with_an_idle_leader() -> None:
    """The others go on without it, and it comes back; most of these seeds have it lead."""
    mute, behind = 0, 0
    for seed in range(40):
        verdict = run_schedule(draw_idle(seed, nodes_of(seed)), population("cubecast"))
        assert verdict.ok, (seed, verdict.failures)
        assert verdict.metrics["idles"] == 1
        mute += verdict.marks["mute leader"] > 0
        behind += verdict.marks["mute leader placed behind us"]
    assert mute >= 15
    assert behind >= 5


def test_an_honest_leader_that_is_called_mute_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderWatch, "_judge", lambda *_: Duty.LEAVE)
    failures = Counter[str]()
    for seed in range(20):
        verdict = run_schedule(draw_schedule(seed, 4), population("cubecast"))
        failures.update(verdict.failures.keys())
    assert failures["mute-leader"] > 0


@pytest.mark.parametrize("node", [0, 3])
def test_one_idle_node_excuses_no_honest_leader(node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken program calls the leader mute: long before it is idle, or while another node is."""
    monkeypatch.setattr(LeaderWatch, "_judge", lambda *_: Duty.LEAVE)
    drawn = draw_idle(1, 4)
    if node:
        other = Fault(0, "idle", node, lasts=drawn.length)
        kept = [fault for fault in drawn.faults if fault.act not in ("idle", "heal")]
        drawn = msgspec.structs.replace(drawn, faults=(other, *kept))
    (idle,) = plan_of(drawn).idles
    assert idle.node == node
    assert (idle.start > 5_000) == (node == 0)
    verdict = run_schedule(drawn, population("cubecast"))
    assert any(what.startswith("node 0 was called") for what in verdict.failures["mute-leader"])


def test_a_node_that_was_idle_is_excused_for_the_time_until_it_is_heard_to_lead() -> None:
    schedule = draw_idle(38, nodes_of(38))
    run = _Run(schedule, population("cubecast"))
    run.perform()
    (idle,) = run.plan.idles
    end = idle.end + answer_after(schedule.settings())
    assert any(idle.end < at < end for at, _ in run.world.called_mute)
    assert run._was_idle(idle.node, end - 1)
    assert not run._was_idle(idle.node, end)
    assert not run._was_idle(idle.node, idle.start - 1)
    assert not run._was_idle(idle.node + 1, idle.end)


ONCE_BROKEN = (670, 974, 1469, 1504, 1545, 1576, 1743, 1841, 1879, 2180, 2415, 3769)
ONCE_BROKEN_WIDE = (
    *(8, 43, 249, 263, 310, 661, 719, 1781, 2055, 3153, 4883, 5575, 7485),
    *(10290, 13741, 15277, 15725, 18707, 18952, 20675, 21189),
)
"""Seeds that found faults, on small clusters and on those that they draw themselves."""


@pytest.mark.parametrize(
    ("seed", "nodes"),
    [
        *[(seed, nodes_of(seed)) for seed in ONCE_BROKEN],
        *[(seed, None) for seed in ONCE_BROKEN_WIDE],
    ],
)
def test_schedules_that_were_not_survived_once(seed: int, nodes: int | None) -> None:
    verdict = run_schedule(draw_eventful(seed, nodes), population("cubecast"))
    assert verdict.ok, verdict.failures
    assert verdict.metrics["needless"] == 0


ENOUGH = {
    "leaves": 200, "slots_handed_over": 100, "cut_short": 40, "follows": 400, "unfollows": 100,
    "names": 3000, "topics_born": 3000, "born_in_faults": 1000, "short_lived": 2000,
    "topic_leaves": 2000, "lossy": 200, "batches": 400, "quiet": 20, "values": 500,
    "values_handed": 800,
}  # fmt: skip


def test_five_hundred_schedules_have_enough_of_everything() -> None:
    """What is drawn; how much of it came about a run counts in its metrics."""
    drawn: Counter[str] = Counter()
    for seed in range(SEEDS):
        schedule = draw_eventful(seed, nodes_of(seed))
        drawn["leaves"] += plan_of(schedule).counts["leave"]
        drawn["strangers"] += len(schedule.later)
        drawn["fuses"] += len(plan_of(schedule).fuses)
        for step in schedule.steps:
            drawn[step.act] += 1
            drawn["lossy"] += step.lossy
        drawn["names"] += len({step.topic for step in schedule.steps})
    assert drawn["leaves"] > 200, drawn
    assert drawn["strangers"] > 200, drawn
    assert drawn["fuses"] > 100, drawn
    assert drawn["follow"] > 400, drawn
    assert drawn["unfollow"] > 100, drawn
    assert drawn["lossy"] > 200, drawn
    assert drawn["batch"] > 400, drawn
    assert drawn["retain"] > 500, drawn
    assert drawn["remove"] > 100, drawn
    assert drawn["names"] > 5000, drawn


def test_a_block_has_something_of_everything() -> None:
    total: Counter[str] = Counter()
    for seed in range(3 * BLOCK):
        for name in ENOUGH:
            total[name] += int(eventful(seed).metrics[name])
    for name, least in ENOUGH.items():
        assert total[name] >= least // 10, (name, total)


def test_a_stock_schedule_stays_what_it_is() -> None:
    """Eventful schedules are drawn by a chance of their own, on top."""
    for seed in range(20):
        stock, more = draw_schedule(seed), draw_eventful(seed)
        assert set(stock.faults) <= set(more.faults)
        assert set(stock.steps) <= set(more.steps)
        assert more.nodes == stock.nodes + len(more.later)


def test_eventful_schedules_can_be_written_and_read(tmp_path: object) -> None:
    for seed in range(10):
        schedule = draw_eventful(seed)
        path = tmp_path / f"{seed}.toml"  # type: ignore[operator]
        path.write_text(schedule_text(schedule), encoding="utf-8")
        assert read_schedule(path) == schedule


# -- each ingredient by itself --------------------------------------------------------------------


def run(*entries: Fault | ApplicationStep, **fields: object) -> SimulatedVerdict:
    fields = {"nodes": 4, "length": 12_000, **fields}
    schedule = checked(Schedule(**fields).with_entries(entries))  # type: ignore[arg-type]
    verdict = run_schedule(schedule, population("cubecast"), keep_trace=True)
    assert verdict.ok, verdict.failures
    return verdict


def test_a_node_leaves_and_comes_back_and_no_node_misses_anything() -> None:
    talk = [ApplicationStep(100 * number, "publish", number % 4) for number in range(60)]
    verdict = run(Fault(2_000, "leave", 1, lasts=3_000), *talk)
    assert verdict.metrics["leaves"] == verdict.metrics["restarts"] == 1
    assert verdict.metrics["crashes"] == verdict.metrics["gaps"] == 0
    assert verdict.trace is not None
    gone = [record for record in verdict.trace if record.kind == "view" and not record.members]
    assert [record.node for record in gone] == [1]


def test_a_stranger_takes_the_slot_of_one_that_left() -> None:
    verdict = run(
        Fault(1_000, "leave", 0),
        Fault(4_000, "restart", 4),
        ApplicationStep(4_001, "subscribe", 4, "t"),
        *[ApplicationStep(100 * number, "publish", number % 5) for number in range(100)],
        nodes=5,
        later=(4,),
    )
    assert verdict.metrics["slots_handed_over"] > 0
    assert verdict.trace is not None
    delivered = [one for one in verdict.trace if one.kind == "deliver"]
    assert {one.source for one in delivered if one.time > 6_000} == {1, 2, 3, 4}
    assert any(one.node == 4 for one in delivered)


def test_a_node_dies_between_two_copies() -> None:
    verdict = run(Fault(3_000, "crash", 0, copies=1), ApplicationStep(2_000, "publish", 0))
    assert verdict.metrics["cut_short"] == 1


def test_a_batch_is_one_frame() -> None:
    verdict = run(ApplicationStep(1_000, "batch", 0, "t", 6))
    assert verdict.metrics["batches"] == 1
    assert verdict.metrics["publications"] == 6 + 4
    assert verdict.metrics["deliveries"] == 10 * 4


def test_a_pattern_is_followed_again_after_a_crash() -> None:
    verdict = run(
        ApplicationStep(100, "follow", 1, "room/#"),
        Fault(1_000, "crash", 1, lasts=1_000),
        ApplicationStep(9_000, "publish", 0, "room/9"),
        ApplicationStep(10_000, "unfollow", 1, "room/#"),
    )
    assert verdict.metrics["follows"] == 2
    assert verdict.metrics["unfollows"] == verdict.metrics["topics_born"] == 1
    assert verdict.trace is not None
    read = [one for one in verdict.trace if one.kind == "deliver" and one.topic == "room/9"]
    assert [one.node for one in read] == [1]


def test_a_lossy_reader_that_sleeps_misses_messages_and_no_other_does() -> None:
    verdict = run(
        ApplicationStep(10, "unsubscribe", 1),
        ApplicationStep(20, "subscribe", 1, lossy=True),
        Fault(1_500, "pause", 1, lasts=450),
        *[ApplicationStep(1_500 + 10 * number, "publish", 0) for number in range(60)],
        params={"window": 4, "resend_after": 100},
    )
    assert verdict.metrics["lossy"] == 1
    assert verdict.trace is not None
    assert {one.node for one in verdict.trace if one.kind == "gap"} <= {1}
