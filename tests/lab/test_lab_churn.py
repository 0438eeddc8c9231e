"""Sessions and exchanges: the scenarios, the tree that is told, and compiled code = objects."""

from __future__ import annotations

from math import log
from random import Random
from typing import Any

import pytest

from cubecast.lab.cells import measure
from cubecast.lab.churn import COUNTED
from cubecast.lab.experiment import shipped
from cubecast.protocol.paper.whole_views import Entries
from cubecast.sim.params import ParamError, Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.sim.workloads.sessions import Chance, Crowd

SESSIONS, EXCHANGE = SCENARIOS["sessions"], SCENARIOS["exchange"]


def params(nodes: int, members: int, **changes: int | bool) -> Params:
    few = {"span": 20_000, "every": 500, "session": 4000}
    return Params(nodes=nodes, subscribers=members / nodes).with_({**few, **changes})


def changing(
    scenario: Scenario, protocol: str, setting: Params, seed: int, **options: Any
) -> dict[str, float]:
    found = run(scenario, protocol, setting, seed, look="changing", checked=False, **options)
    return found.metrics


# -- compiled code does what the protocol objects do -----------------------------------------------


@pytest.mark.parametrize("queue_acks", [False, True])
@pytest.mark.parametrize("protocol", ["vcube-ps", "srpt-told"])
def test_compiled_sessions_are_those_of_the_objects(protocol: str, queue_acks: bool) -> None:
    """Every metric is the same, to the last digit: who comes, goes, speaks and hears what when."""
    pytest.importorskip("numba")
    for nodes, members, session in (
        (8, 5, 0), (8, 5, 600), (16, 12, 3000), (16, 16, 3000), (64, 40, 2000),
    ):  # fmt: skip
        for seed in range(2):
            setting = params(
                nodes, members, session=session, queue_acks=queue_acks, at_once=bool(seed)
            )
            objects = changing(SESSIONS, protocol, setting, seed, warmup=3000)
            compiled = changing(SESSIONS, protocol, setting, seed, warmup=3000, engine="kernel")
            assert set(COUNTED) == set(compiled)
            assert compiled == {name: objects[name] for name in COUNTED}, (nodes, members, seed)
            assert session == 0 or nodes == 16 == members or compiled["joins"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["vcube-ps", "srpt-told"])
def test_compiled_sessions_in_many_settings(protocol: str) -> None:
    pytest.importorskip("numba")
    for seed in range(100):
        rng = Random(f"{protocol}/{seed}")
        nodes = rng.choice([2, 4, 8, 16, 32, 64, 128, 256])
        setting = params(
            nodes,
            rng.randint(max(1, nodes // 3), nodes),
            session=rng.choice([0, 200, 1000, 5000, 30_000]),
            every=rng.choice([50, 500]),
            hop=rng.choice([1, 10, 100, 5000]),
            queue_acks=rng.random() < 0.5,
            at_once=rng.random() < 0.5,
        )
        warmup = rng.choice([0, 1, 5000])
        objects = changing(SESSIONS, protocol, setting, seed, warmup=warmup)
        compiled = changing(SESSIONS, protocol, setting, seed, warmup=warmup, engine="kernel")
        assert compiled == {name: objects[name] for name in COUNTED}, setting


# -- the scenarios ---------------------------------------------------------------------------------


def test_sessions_have_the_median_that_is_asked_for() -> None:
    chance = Chance(params(8, 4, session=1000), Random(1))
    stays = sorted(chance.stay() for _ in range(4001))
    assert stays[2000] == pytest.approx(1000, rel=0.1)
    assert sum(stays) / len(stays) == pytest.approx(1000 / log(2), rel=0.1)


def test_a_crowd_is_a_set_to_choose_from() -> None:
    crowd = Crowd([3, 5, 7])
    crowd.remove(3)
    crowd.add(9)
    assert sorted(crowd.choose(k / 3) for k in range(3)) == [5, 7, 9]
    crowd.remove(9)
    assert len(crowd) == 2


def test_leaves_and_joins_keep_the_number_of_subscribers() -> None:
    """As many as the rate says, and only subscribers publish."""
    outcome = run(SESSIONS, "best-effort", params(32, 24), 1, keep_trace=True)
    assert outcome.trace is not None
    leaves = sum(record.kind == "leave" for record in outcome.trace)
    joins = sum(record.kind == "join" for record in outcome.trace) - 24
    assert leaves == joins
    expected = 24 * 20_000 * log(2) / 4000
    assert leaves == pytest.approx(expected, rel=0.3)
    assert outcome.metrics["publications"] == 40


def test_sessions_that_begin_with_the_call_have_publications_that_wait_for_a_sub() -> None:
    """Nothing waits where publishers have joined; the rate of changes is the same."""
    setting = params(32, 24, session=4000, span=60_000)
    late, at_once = (
        changing(SESSIONS, "vcube-ps", setting.with_({"at_once": choice}), 1, engine="reference")
        for choice in (False, True)
    )
    assert at_once["reception_mean"] > 1.3 * late["reception_mean"]
    assert at_once["joins"] == pytest.approx(late["joins"], rel=0.3)


def test_the_production_protocol_keeps_its_promises_through_sessions() -> None:
    outcome = run(SESSIONS, "cubecast", params(16, 12), 1)
    assert outcome.ok, outcome.report


def test_an_exchange_swaps_as_many_as_it_says() -> None:
    setting = Params(nodes=32, subscribers=0.75, messages=10, changes=4)
    outcome = run(EXCHANGE, "vcube-ps", setting, 1, keep_trace=True)
    assert outcome.trace is not None
    kinds = [record.kind for record in outcome.trace]
    assert (kinds.count("leave"), kinds.count("join")) == (4, 24 + 4)
    with pytest.raises(ParamError, match="changes must be at most 8"):
        run(EXCHANGE, "vcube-ps", setting.with_({"changes": 9}), 1)


def test_whole_views_in_acks_keep_leavers_in_the_views_of_newcomers() -> None:
    """[S] Table II: a newcomer that an old view told of a leaver serves it to the end."""
    setting = Params(nodes=64, subscribers=0.75, messages=40, changes=12)
    for seed in range(3):
        plain, whole = (
            changing(EXCHANGE, "vcube-ps", setting.with_({"whole_views": choice}), seed)
            for choice in (False, True)
        )
        assert plain["false_positives"] <= 12
        assert whole["false_positives"] > 1.5 * 40
        assert whole["joins"] == plain["joins"] == 12


def test_without_a_leaver_whole_views_change_nothing() -> None:
    """A view in an ACK tells what the ACKs of its subscribers tell one by one."""
    setting = Params(nodes=32, subscribers=0.75, messages=5, changes=0)
    for scenario in (EXCHANGE, SCENARIOS["multi-publisher"]):
        plain, whole = (
            run(scenario, "vcube-ps", setting.with_({"whole_views": choice}), 2, engine="reference")
            for choice in (False, True)
        )
        for name in ("deliveries", "latency_mean", "pub_messages", "control_messages"):
            assert plain.metrics[name] == whole.metrics[name]


def test_entries_are_a_set() -> None:
    few, more = Entries({0: 0b101}), Entries({0: 0b110, 3: 0b1})
    assert (few + more).masks == {0: 0b111, 3: 0b1}
    assert few.__add__(()).masks == few.__radd__(()).masks == few.masks
    assert sorted((few + more).beyond(few)) == [(0, "sub", 3), (1, "sub", 0)]


def test_a_told_tree_delivers_to_everyone_and_tells_everyone() -> None:
    """Static: as SRPT-S.  A change visits every node but the root, and one message asks for it."""
    for protocol in ("srpt", "srpt-told"):
        still = run(SCENARIOS["multi-publisher"], protocol, Params(nodes=16), 3)
        assert still.metrics["deliveries"] == 15 * 16
    told = changing(EXCHANGE, "srpt-told", Params(nodes=16, messages=1), 1)
    assert told["joins"] == 0
    setting = Params(nodes=16, subscribers=0.75, messages=1, changes=1)
    told = changing(EXCHANGE, "srpt-told", setting, 1)
    assert told["joins"] == 1
    assert 2 * (12 - 1) <= told["control_messages"] <= 2 * (15 + 1) + 1


def test_an_overloaded_root_takes_newcomers_in_late() -> None:
    """[J] 4.5: what the root cannot send in time queues there, and only there."""
    light = params(64, 50, session=60_000, span=60_000)
    heavy = params(64, 50, session=100, span=60_000)
    calm, rushed = (changing(SESSIONS, "srpt-told", p, 1) for p in (light, heavy))
    assert rushed["wait_worst"] > 10 * calm["wait_worst"]
    # Each join and each leave is six messages of the root, which sends one in a u.t.
    assert 0.8 * 1000 / 12 < rushed["joins"] / 60 <= 1.05 * 1000 / 12
    assert rushed["joins"] / 60 < 0.3 * 50 * log(2) * 1000 / 100


def test_rates_and_session_times_say_the_same() -> None:
    """A median session of 69.3 s is 1 % per second."""
    experiment = shipped()["4.5-rate"]
    few = {"members": 20, "minutes": 0.2, "warmup_s": 1.0}
    by_rate = experiment.cells(quick=True, seeds=1, changes={**few, "rate": 10.0})[0]
    by_time = experiment.cells(
        quick=True, seeds=1, changes={**few, "rate": 0.0, "session_s": 10 * log(2)}
    )[0]
    assert measure(by_rate) == measure(by_time)
