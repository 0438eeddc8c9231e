"""The built-in scenarios: which node publishes what and when, and which parameters they take."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import pytest

from cubecast.sim.params import MAX_MESSAGES, MAX_NODES, MAX_TIME, ParamError, Params
from cubecast.sim.protocols import PROTOCOLS, ProtocolChoiceError
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS, WORKLOAD
from cubecast.trace import Record

STORMS = ("storm", "pattern-storm", "laggards")


def simulate(name: str, protocol: str = "cubecast", seed: int = 0, **params: Any) -> Outcome:
    scenario = SCENARIOS[name]
    wanted = Params().with_(scenario.defaults).with_(params)
    return run(scenario, protocol, wanted, seed, keep_trace=True)


def records(outcome: Outcome, kind: str) -> list[Record]:
    assert outcome.trace is not None
    return [record for record in outcome.trace if record.kind == kind]


# What happens


def test_single_publisher_publishes_span_apart() -> None:
    published = records(simulate("single-publisher", messages=4, span=250), "publish")
    assert [record.time for record in published] == [0, 250, 500, 750]
    assert len({record.node for record in published}) == 1


def test_a_share_of_the_nodes_subscribes() -> None:
    joined = records(simulate("single-publisher", nodes=40, subscribers=0.25), "join")
    assert len({record.node for record in joined}) == 10


def test_a_share_of_the_subscribers_publishes() -> None:
    outcome = simulate("multi-publisher", nodes=40, subscribers=0.5, publishers=0.25, messages=3)
    published = records(outcome, "publish")
    members = {record.node for record in records(outcome, "join")}
    publishers = [record.node for record in published]
    assert (len(members), len(set(publishers)), len(publishers)) == (20, 5, 15)
    assert set(publishers) <= members
    assert all(0 <= record.time <= 1000 for record in published)


def test_everyone_answers_once_in_a_discussion() -> None:
    published = records(simulate("discussion", nodes=12, wait=3), "publish")
    opening = [record for record in published if not record.reply_to]
    answers = [record for record in published if record.reply_to]
    assert sorted(record.node for record in published) == list(range(12))
    assert ([record.time for record in opening], len(answers)) == ([0, 0, 0], 9)
    assert all(len(record.reply_to) == 3 for record in answers)


def test_thinking_times_do_not_depend_on_the_protocol() -> None:
    """Answers come as long after the question's delivery under one protocol as under another."""

    def thought(protocol: str) -> dict[int, int]:
        outcome = simulate("discussion", protocol, nodes=16, network="uniform", high=90)
        seen = {r.node: r.time for r in reversed(records(outcome, "deliver"))}
        return {r.node: r.time - seen[r.node] for r in records(outcome, "publish") if r.reply_to}

    assert thought("cubecast") == thought("vcube-ps")


def test_each_question_is_answered_at_once_by_another() -> None:
    outcome = simulate("question-answer", messages=30)
    published = {record.id: record for record in records(outcome, "publish")}
    seen = {(r.node, r.id): r.time for r in records(outcome, "deliver")}
    answers = [record for record in published.values() if record.reply_to]
    assert len(answers) == 30
    for answer in answers:
        question = published[answer.reply_to[0]]
        assert answer.node != question.node
        assert answer.time == seen[answer.node, question.id]


def test_churn_replaces_members_and_never_subscribes_one_twice() -> None:
    outcome = simulate("churn", nodes=6, changes=60, messages=20, span=3000)
    state = dict.fromkeys(range(6), "out")
    changes = [r for r in outcome.trace or () if r.kind in ("subscribe", "join", "leave")]
    follows = {"subscribe": "out", "join": "subscribe", "leave": "join"}
    for record in changes:
        assert state[record.node] == follows[record.kind], record
        state[record.node] = "out" if record.kind == "leave" else record.kind
    assert sum(record.kind == "leave" for record in changes) > 10
    assert outcome.ok


def test_a_run_may_last_longer_than_the_horizon() -> None:
    """The horizon counts from the last planned event, not from 0."""
    outcome = simulate("single-publisher", nodes=4, messages=20, span=6_000, horizon=100_000)
    assert records(outcome, "publish")[-1].time == 114_000
    assert outcome.ok


def test_a_run_that_does_not_come_to_rest_has_failed() -> None:
    assert not simulate("single-publisher", nodes=4, span=0, horizon=50).ok


# Every protocol, every size


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 13, 16])
def test_every_size_runs_or_is_refused(name: str, protocol: str, nodes: int) -> None:
    small = {"messages": 5} if "messages" in SCENARIOS[name].takes else {}
    if name == "exchange":
        small["changes"] = int(nodes > 2)
    if name in STORMS and nodes == 1:
        with pytest.raises(ParamError, match="at least 2 nodes"):
            simulate(name, protocol, nodes=nodes)
        return
    if name in ("pattern-storm", "laggards") and protocol != "cubecast":
        reason = r"no patterns to follow|no lossy nodes|power of two"
        with pytest.raises(ProtocolChoiceError, match=reason):
            simulate(name, protocol, nodes=nodes, **small)
        return
    if protocol in ("srpt", "srpt-told") and nodes in (3, 7, 13):
        with pytest.raises(ProtocolChoiceError, match="power of two"):
            simulate(name, protocol, nodes=nodes, **small)
        return
    outcome = simulate(name, protocol, nodes=nodes, **small)
    assert outcome.metrics["publications"] > 0 or name in STORMS
    causal = ("cubecast", "vcube-ps", "vcube-pb", "fixed-tree")
    if name in ("sessions", "exchange"):
        causal = ("cubecast",)  # joins and leaves are where the printed protocols have holes
    if name not in (*STORMS, "churn") and protocol in causal:
        assert outcome.ok, outcome.report and outcome.report.violations[:2]


def test_outsiders_keep_silent_in_storms_of_closed_groups() -> None:
    """The same storm, but only subscribers publish where the protocol wants it so."""
    for seed in range(10):
        everyone = records(simulate("storm", "fixed-tree", seed), "publish")
        for protocol in ("vcube-ps", "vcube-pb", "best-effort"):
            outcome = simulate("storm", protocol, seed)
            inside: set[tuple[int, str]] = set()
            for record in outcome.trace or ():
                place = (record.node, record.topic)
                if record.kind == "join":
                    inside.add(place)
                elif record.kind == "leave":
                    inside.discard(place)
                elif record.kind == "publish":
                    assert place in inside
            assert len(records(outcome, "publish")) <= 1.5 * len(everyone)


# Parameters


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"nodes": 0}, "nodes must be 1 to"),
        ({"nodes": -4}, "nodes must be 1 to"),
        ({"nodes": MAX_NODES + 1}, "nodes must be 1 to"),
        ({"nodes": "8"}, "whole number"),
        ({"nodes": 8.0}, "whole number"),
        ({"nodes": True}, "whole number"),
        ({"subscribers": 0.0}, "above 0"),
        ({"subscribers": float("nan")}, "above 0"),
        ({"publishers": 1.01}, "at most 1"),
        ({"loss": 1.0}, "probability"),
        ({"loss": float("nan")}, "probability"),
        ({"spike": -0.1}, "probability"),
        ({"duplicate": "often"}, "must be a number"),
        ({"messages": 0}, "messages must be 1 to"),
        ({"messages": MAX_MESSAGES + 1}, "messages must be 1 to"),
        ({"span": -1}, "span must be 0 to"),
        ({"span": MAX_TIME + 1}, "span must be 0 to"),
        ({"hop": 0}, "hop must be 1 to"),
        ({"window": 0}, "window must be 1 to"),
        ({"low": 30}, "must not be below low"),
        ({"network": "pigeons"}, "queue, shuffled, service, uniform"),
        ({"queue_acks": 1}, "true or false"),
        ({"nodez": 8}, "unknown parameter"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParamError, match=reason):
        Params().with_(params)


def test_a_whole_number_is_a_number() -> None:
    assert Params().with_({"subscribers": 1}).subscribers == 1


def test_too_many_publications_are_refused_before_they_are_planned() -> None:
    with pytest.raises(ParamError, match="too many"):
        simulate("multi-publisher", nodes=64, messages=MAX_MESSAGES // 10)


def test_scenarios_take_only_parameters_that_exist() -> None:
    known = {field.name for field in fields(Params)}
    assert set(WORKLOAD) <= known
    for scenario in SCENARIOS.values():
        assert set(scenario.takes) <= set(WORKLOAD)
        assert set(scenario.defaults) <= known
        assert not set(scenario.defaults) & scenario.ignores()


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in STORMS])
def test_parameters_a_scenario_takes_change_it_and_others_do_not(name: str) -> None:
    other = {
        "subscribers": 0.3, "publishers": 0.3, "messages": 7, "span": 333, "wait": 3,
        "changes": 4, "scale": 3, "topics": 3, "skew": 0.7, "every": 77, "spread": 0.2,
        "session": 4_000, "at_once": True, "batch": 3,
    }  # fmt: skip
    few = {"changes": 2} if name == "exchange" else {}
    base = simulate(name, nodes=16, **few).trace
    changed = {
        param
        for param in WORKLOAD
        if simulate(name, nodes=16, **{**few, param: other[param]}).trace != base
    }
    if name == "single-publisher":
        changed.add("span")  # one message has no span
    assert changed == set(SCENARIOS[name].takes)


def test_draws_depend_on_the_generator_alone() -> None:
    params = Params(nodes=20, subscribers=0.5, publishers=0.2)
    members = params.draw_members(Random(5))
    assert members == params.draw_members(Random(5)) == sorted(set(members))
    assert len(members) == 10
    assert len(params.draw_publishers(Random(5), members)) == 2
    assert Params(nodes=20, subscribers=0.001).draw_members(Random(0)) != []
