"""Which engine does a run, why another does not, and that the choice changes no number."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.sim import engines
from cubecast.sim.engines import CHURN, STATIC, EngineError, Look, engine_for, has_kernel, refusal
from cubecast.sim.params import MAX_NODES, Params, WideParams
from cubecast.sim.protocols import maker
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.sim.world import World

needs_numba = pytest.mark.skipif(not has_kernel(), reason="needs numba")
TALK, SESSIONS = SCENARIOS["discussion"], SCENARIOS["sessions"]


def plan_join(world: World, params: Params, rng: Random) -> None:
    world.establish("t", [0])
    world.post(1, lambda a, b, now: world.subscribe(1, "t"))


@needs_numba
@pytest.mark.parametrize(
    ("scenario", "protocol", "look", "taken"),
    [
        ("discussion", "vcube-ps", "plain", STATIC),
        ("speakers", "srpt-b", "closely", STATIC),
        ("sessions", "vcube-ps", "changing", CHURN),
        ("sessions", "srpt-told", "changing", CHURN),
        ("sessions", "vcube-ps", "closely", None),
        ("discussion", "cubecast", "plain", None),
        ("sessions", "srpt", "changing", None),
        ("exchange", "vcube-ps", "changing", None),
        ("stream", "vcube-ps", "closely", None),
    ],
)
def test_auto_takes_compiled_code_where_it_can(
    scenario: str, protocol: str, look: Look, taken: object
) -> None:
    asked: Any = (SCENARIOS[scenario], protocol, Params(nodes=8), look)
    assert engine_for(*asked) is taken
    assert engine_for(*asked, "reference") is None
    assert (refusal(*asked) == "") == (taken is not None)
    if taken is None:
        with pytest.raises(EngineError, match=r"the kernel (has no|cannot run)"):
            engine_for(*asked, "kernel")


@needs_numba
def test_one_call_gives_the_same_run_on_either_engine() -> None:
    params = Params(nodes=16, network="uniform", low=1, high=90)
    objects, compiled = (
        run(TALK, "vcube-ps", params, 3, engine=engine, look="closely", checked=False,
            keep_trace=True, trace_messages=True)
        for engine in ("reference", "kernel")
    )  # fmt: skip
    assert compiled.trace == objects.trace
    assert compiled.histograms == {name: objects.histograms[name] for name in compiled.histograms}
    assert compiled.header == objects.header
    assert compiled.at_rest
    assert objects.at_rest
    shared = compiled.metrics.keys() & objects.metrics.keys() - {"events_per_second"}
    assert {"latency_mean", "pub_messages", "kept"} <= shared
    assert all(compiled.metrics[name] == objects.metrics[name] for name in shared)


@needs_numba
def test_the_checkers_judge_compiled_runs_too() -> None:
    outcome = run(TALK, "vcube-ps", Params(nodes=16), 3, engine="kernel")
    assert outcome.ok
    assert outcome.report is not None
    assert outcome.trace is None, "it was not to be kept"
    cut = run(TALK, "vcube-ps", Params(nodes=4, hop=10_000, horizon=1), 3, engine="kernel")
    assert not cut.at_rest
    assert cut.metrics["violations"] >= 1


@needs_numba
def test_a_scenario_of_the_users_own_is_left_to_the_reference() -> None:
    """It may change members, which is not known before it runs."""
    own = Scenario("own", "", plan_join)
    assert engine_for(own, "vcube-ps", Params()) is None
    assert run(own, "vcube-ps", Params(nodes=2), 0, engine="auto").ok
    with pytest.raises(ValueError, match="static membership only"):
        run(own, "vcube-ps", Params(nodes=2), 0, engine="kernel")


def test_an_unknown_engine() -> None:
    with pytest.raises(EngineError, match="unknown engine 'gpu'; there are: auto, kernel, refer"):
        run(TALK, "vcube-ps", Params(nodes=8), 0, engine="gpu")


def test_the_kernel_has_no_codec_and_no_protocol_of_the_callers() -> None:
    make = maker("vcube-ps", Params(nodes=8), "")
    with pytest.raises(EngineError, match="no protocol of the caller's"):
        run(TALK, "mine", Params(nodes=8), 0, engine="kernel", make=make)
    assert run(TALK, "mine", Params(nodes=8), 0, engine="auto", make=make).ok


def test_too_many_nodes_for_the_reference() -> None:
    many = WideParams(nodes=MAX_NODES + 1)
    with pytest.raises(EngineError, match=f"the reference has at most {MAX_NODES} nodes"):
        engine_for(TALK, "vcube-ps", many, engine="reference")
    point = {"nodes": MAX_NODES * 2, "engine": "reference"}
    with pytest.raises(WorkloadError, match="engine: the reference has at most"):
        WORKLOADS["single-publisher"].complete(point)


def test_without_numba_the_reference_runs_all_but_what_insists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "has_kernel", lambda: False)
    assert engine_for(TALK, "vcube-ps", Params()) is None
    with pytest.raises(EngineError, match="needs numba"):
        engine_for(TALK, "vcube-ps", Params(), engine="kernel")


def test_a_setting_that_no_engine_can_run_is_refused_by_name() -> None:
    sessions, static = WORKLOADS["sessions"], WORKLOADS["multi-publisher"]
    if has_kernel():
        with pytest.raises(WorkloadError, match="engine: the kernel has no protocol 'srpt'"):
            sessions.complete({"protocol": "srpt", "engine": "kernel"})
        with pytest.raises(WorkloadError, match="engine: the kernel has no network 'lognormal'"):
            static.complete({"network": "lognormal", "engine": "kernel"})
    with pytest.raises(WorkloadError, match="settings: srpt forwards through any id"):
        static.complete({"protocol": "srpt", "nodes": 12})
