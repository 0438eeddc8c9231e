"""Chaos: the machinery on processes that are known to be wrong, then the production protocol.

The production protocol goes through 300 schedules here and 20,000 in ``make soak`` (`cubecast sim
chaos`, which goes on where it stopped).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from cubecast.baselines import Flood
from cubecast.chaos.schedule import ApplicationStep, Fault, Schedule, checked, read_schedule
from cubecast.chaos.simulated.campaign import (
    CampaignCounts,
    CampaignFile,
    CampaignSettings,
    CountsError,
    blocks_of,
    campaign,
)
from cubecast.chaos.simulated.driver import (
    Population,
    SimulatedVerdict,
    draw_schedule,
    exclusions,
    late_exclusions,
    population,
    recovery_time,
    run_schedule,
)
from cubecast.chaos.simulated.shrink import shrink
from cubecast.chaos.simulated.story import happenings, judgement
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.sim.crashes.convergence import liveness_bound
from cubecast.sim.params import Params
from cubecast.sim.protocols import Mortality, ProtocolChoiceError, mortality
from cubecast.trace import Record
from support.mortals import Failing, Listener, Silent, people
from support.paths import ROOT

PRODUCTION = population("cubecast")
FLOOD = CampaignSettings("flood", plain=True)
FILES = sorted((ROOT / "scenarios" / "chaos").glob("*.toml"))


def quiet(*entries: Fault | ApplicationStep, nodes: int = 3, **fields: object) -> Schedule:
    """A schedule over good links."""
    return checked(Schedule(nodes=nodes, **fields).with_entries(entries))  # type: ignore[arg-type]


TALK = tuple(ApplicationStep(100 * number, "publish", number % 3) for number in range(10))


# processes that are known to be wrong


def test_a_flood_over_good_links_without_faults_is_content() -> None:
    alone = tuple(ApplicationStep(100 * number, "publish", 0) for number in range(10))
    verdict = run_schedule(quiet(*alone), people(Flood))
    assert verdict.ok, verdict.failures
    assert verdict.metrics["publications"] == 10 + 3, "and everyone spoke once more at the end"
    assert verdict.metrics["deliveries"] == 3 * 13


def test_a_flood_is_caught_out_of_order() -> None:
    close = tuple(ApplicationStep(number, "publish", 0) for number in range(30))
    verdict = run_schedule(quiet(*close), people(Flood))
    assert {"fifo", "causal-order"} <= verdict.failures.keys()


def test_a_flood_is_caught_losing_and_duplicating() -> None:
    lossy = run_schedule(quiet(*TALK, links={"loss": 0.5}), people(Flood))
    assert "completeness" in lossy.failures
    twice = run_schedule(quiet(*TALK, links={"duplicate": 0.5}), people(Flood))
    assert "no-duplication" in twice.failures


def test_a_flood_does_not_agree_on_what_the_dead_said() -> None:
    """Node 0 speaks and dies; a cut keeps its words from node 2."""
    schedule = quiet(
        Fault(0, "one-way", source=0, to=2, lasts=500),
        ApplicationStep(100, "publish", 0),
        Fault(110, "crash", 0),
    )
    verdict = run_schedule(schedule, people(Flood))
    assert "agreement" in verdict.failures
    assert "node 2" in verdict.failures["agreement"][0]


def test_a_flood_never_knows_who_is_there() -> None:
    verdict = run_schedule(quiet(*TALK, Fault(150, "crash", 1, lasts=300)), people(Flood))
    assert {"convergence", "liveness"} <= verdict.failures.keys()


def test_silence_is_not_taken_for_peace() -> None:
    verdict = run_schedule(quiet(*TALK), people(Silent))
    assert "completeness" in verdict.failures
    joining = quiet(ApplicationStep(100, "subscribe", 1), topics={"t": (0,)})
    assert {"quiescence", "liveness"} <= run_schedule(joining, people(Silent)).failures.keys()


def test_a_process_that_raises_is_found_out_and_judged_by_what_it_did_until_then() -> None:
    verdict = run_schedule(
        quiet(*(ApplicationStep(100 * k, "publish", 0) for k in range(5))), people(Failing)
    )
    assert list(verdict.failures) == ["raised"]
    assert "AssertionError: two is enough" in verdict.failures["raised"][0]


def test_marks_are_added_up() -> None:
    verdict = run_schedule(quiet(ApplicationStep(100, "publish", 0)), people(Listener))
    assert verdict.marks == Counter(heard=2 + 3 * 2)


# the core without faults of nodes: everything but crashes must be survived without a loss


def test_the_core_survives_everything_but_crashes() -> None:
    def core(params: Params) -> Mortality:
        cluster = (1 << params.nodes) - 1
        return Mortality(
            lambda node, port, life: CubecastNode(
                node, port, cluster=cluster, config=params.config(), incarnation=life
            )
        )

    for seed in range(40):
        drawn = draw_schedule(seed)
        kept = tuple(entry for entry in drawn.entries if entry.act != "crash")
        verdict = run_schedule(drawn.with_entries(kept), core)
        assert verdict.ok, (seed, verdict.failures)
        assert (verdict.metrics["gaps"], verdict.metrics["discards"]) == (0, 0)


# runs


def test_a_schedule_determines_its_run() -> None:
    schedule = draw_schedule(3)
    one = run_schedule(schedule, people(Flood), keep_trace=True)
    other = run_schedule(schedule, people(Flood), keep_trace=True)
    assert one.trace
    assert one.trace == other.trace


def test_the_application_waits_for_who_sleeps_and_forgets_who_is_dead() -> None:
    schedule = quiet(
        Fault(50, "pause", 0, lasts=400),
        ApplicationStep(100, "publish", 0),
        Fault(50, "crash", 1, lasts=400),
        ApplicationStep(100, "publish", 1),
        length=1000,
    )
    verdict = run_schedule(schedule, people(Flood), keep_trace=True)
    assert verdict.trace is not None
    early = [(r.node, r.time) for r in verdict.trace if r.kind == "publish" and r.time < 1000]
    assert early == [(0, 450)]


def test_answers_name_their_questions_and_end() -> None:
    verdict = run_schedule(quiet(*TALK, answers=0.5), people(Flood), keep_trace=True)
    assert verdict.trace is not None
    answers = [record for record in verdict.trace if record.reply_to]
    assert 0 < len(answers) <= len(TALK)


def test_exclusions_are_counted_once_each() -> None:
    trace = [
        Record("view", 1, 0, seq=1, members=0b011),
        Record("view", 2, 1, seq=1, members=0b011),
        Record("view", 3, 0, seq=2, members=0b111),
        Record("restart", 4, 2),
        Record("view", 4, 2, seq=2, members=0b111),
        Record("view", 5, 2, seq=3, members=0b100),
    ]
    assert exclusions(trace, 3) == {(1, 2), (3, 0), (3, 1)}


def test_exclusions_of_the_living_in_the_calm_are_counted_apart() -> None:
    trace = [
        Record("view", 0, 0, seq=0, members=0b111),
        Record("view", 0, 1, seq=0, members=0b111),
        Record("view", 0, 2, seq=0, members=0b111),
        Record("crash", 1, 2),
        Record("view", 200, 0, seq=1, members=0b011),
        Record("view", 300, 0, seq=2, members=0b001),
    ]
    assert late_exclusions(trace, 100) == {(2, 1)}, "node 2 is dead"
    assert late_exclusions(trace, 300) == set()


def test_recovery_is_over_with_the_last_word_on_what_was_said_before() -> None:
    trace = [
        Record("publish", 10, 0, "t", 1),
        Record("publish", 110, 0, "t", 2),
        Record("view", 120, 0, seq=1),
        Record("deliver", 150, 1, "t", 1),
        Record("deliver", 190, 1, "t", 2),
    ]
    assert recovery_time(trace, 100) == 50
    assert recovery_time(trace, 160) == 30
    assert recovery_time([], 160) == 0


def test_the_bound_grows_with_what_it_is_made_of() -> None:
    params = Params().with_({"network": "uniform", "low": 1, "high": 30})
    bound = liveness_bound(params, 1000, 10)
    assert liveness_bound(params, 2000, 10) == bound + 3000
    assert liveness_bound(params.with_({"high": 60}), 1000, 10) > bound
    assert liveness_bound(params, 1000, 20) > bound


# shrinking


def test_a_failing_schedule_is_cut_down_to_what_it_needs() -> None:
    needed = (
        Fault(0, "one-way", source=0, to=2, lasts=500),
        ApplicationStep(100, "publish", 0),
        Fault(110, "crash", 0),
    )
    noise = tuple(ApplicationStep(1000 + 50 * k, "publish", 1) for k in range(20))
    schedule = quiet(*needed, *noise, Fault(900, "pause", 1, lasts=100), links={"reorder": 0.1})
    verdict = run_schedule(schedule, people(Flood))
    verdict.failures = {"agreement": verdict.failures["agreement"]}
    smaller = shrink(verdict, people(Flood))
    assert set(smaller.schedule.entries) == set(needed)
    assert smaller.schedule.links == {}
    assert "agreement" in smaller.verdict.failures
    assert run_schedule(smaller.schedule, people(Flood)).failures == smaller.verdict.failures


def test_shrinking_stops_when_it_has_run_often_enough() -> None:
    verdict = run_schedule(quiet(*TALK, links={"duplicate": 0.9}), people(Flood))
    assert shrink(verdict, people(Flood), max_runs=3).runs == 3


def test_a_schedule_that_does_not_fail_cannot_be_shrunk() -> None:
    verdict = run_schedule(quiet(), people(Flood))
    with pytest.raises(ValueError, match="does not fail"):
        shrink(verdict, people(Flood))


# ranges of seeds


def test_ranges_are_cut_at_fixed_borders() -> None:
    assert list(blocks_of(range(20, 61), 25)) == [range(20, 25), range(25, 50), range(50, 61)]


def test_parts_of_a_range_add_up_and_are_not_run_twice(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    seen: list[int] = []

    def told(counts: CampaignCounts, left: int) -> None:
        seen.append(counts.runs)

    whole = campaign(range(50), FLOOD, path=None)
    campaign(range(25), FLOOD, path=path, progress=told)
    parts = campaign(range(50), FLOOD, path=path, progress=told)
    assert seen == [25, 25], "the first block was not run again"
    assert parts.summary() == whole.summary()
    assert (parts.failures, parts.runs) == (whole.failures, 50)
    assert parts.failed[0][0] == whole.failed[0][0]


def test_several_processes_count_as_one(tmp_path: Path) -> None:
    alone = campaign(range(50), FLOOD, jobs=1)
    together = campaign(range(50), FLOOD, jobs=2)
    assert together.as_json() == alone.as_json()


def test_a_file_of_counts_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    campaign(range(2), FLOOD, path=path)
    with pytest.raises(CountsError, match="other runs"):
        CampaignFile(path, CampaignSettings("cubecast"))
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(CountsError, match="no file of counts"):
        CampaignFile(path, FLOOD)


def test_protocols_that_cannot_crash_are_refused() -> None:
    with pytest.raises(ProtocolChoiceError, match="cannot crash"):
        mortality("vcube-ps", Params())


# stories


def test_a_story_tells_what_was_done_and_what_was_found() -> None:
    schedule = quiet(
        *TALK,
        Fault(100, "crash", 1, lasts=200),
        Fault(400, "partition", sides=((0,),), lasts=100),
        Fault(600, "pause", 2, lasts=50),
    )
    verdict = run_schedule(schedule, people(Flood), keep_trace=True)
    told = "\n".join([*happenings(verdict), *judgement(verdict)])
    for line in (
        "crash of node 1",
        "restart of node 1",
        "partition 0 | the others until 500",
        "pause of node 2 until 650",
        "all faults are over",
        "BROKEN: convergence",
        "held: no-creation",
    ):
        assert line in told


# the production protocol

BLOCK = 25
REPLAY = "cubecast sim chaos --plain --replay {}"
MARKS = {"prepared", "excluded another", "ended streams", "excluded", "outranked", "returned"}
"""Branches of recovery that 300 schedules take."""


def production(seed: int, people: Population = PRODUCTION) -> SimulatedVerdict:
    return run_schedule(draw_schedule(seed), people)


@pytest.mark.parametrize("block", range(12))
def test_twenty_five_schedules_of_the_production_protocol(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        verdict = production(seed)
        assert verdict.ok, (REPLAY.format(seed), verdict.failures)
        assert verdict.metrics["recovery_time"] <= verdict.bound, REPLAY.format(seed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schedules_of_the_repository(path: Path) -> None:
    verdict = run_schedule(read_schedule(path), PRODUCTION)
    assert verdict.ok, verdict.failures
    assert verdict.metrics["publications"] > 0


def test_schedules_without_exclusion_lose_nothing() -> None:
    runs = 0
    for seed in range(60):
        schedule = draw_schedule(seed)
        short = tuple(
            msgspec.structs.replace(entry, lasts=min(entry.lasts, 200))
            if isinstance(entry, Fault)
            else entry
            for entry in schedule.entries
            if entry.act in ("pause", "slow", "publish", "burst", "subscribe", "unsubscribe")
        )
        verdict = run_schedule(schedule.with_entries(short), PRODUCTION)
        assert verdict.ok, (seed, verdict.failures)
        if not verdict.metrics["exclusions"]:
            runs += 1
            assert verdict.metrics["gaps"] == verdict.metrics["discards"] == 0, seed
    assert runs > 30


def test_schedules_take_every_branch_of_recovery() -> None:
    total = CampaignCounts()
    for seed in range(100):
        total.add(seed, production(seed))
    assert total.marks.keys() >= MARKS
    sums = {name: value["sum"] for name, value in total.summary().items()}
    for name in ("crashes", "restarts", "pauses", "partitions", "one_way", "exclusions", "gaps"):
        assert sums[name] > 20, name
    assert sums["discards"] > 0
