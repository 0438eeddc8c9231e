"""What the experiments need of the simulator: topics, streams, networks, and a closer look."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from statistics import median

import pytest

from cubecast.lab.static import barrier_metrics, delay_metrics, measure_static, queue_metrics
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.engines import has_kernel
from cubecast.sim.measured_worlds import EXACT_BITS, rounded
from cubecast.sim.networks import LogNormal, Regions
from cubecast.sim.params import ParamError, Params
from cubecast.sim.protocols import PROTOCOLS
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS
from cubecast.sim.workloads.drawn_publishers import Chooser, zipf_weights

# -- scenarios -------------------------------------------------------------------------------------


def test_zipf_gives_rank_k_its_share() -> None:
    """[J] 4.4: with exponent 0.825 the first of 128 topics has 12 % of the messages."""
    weights = zipf_weights(128, 0.825)
    assert weights[0] / sum(weights) == pytest.approx(0.12, abs=0.005)
    chooser, rng = Chooser(weights), Random(1)
    drawn = Counter(chooser.draw(rng) for _ in range(20_000))
    assert drawn[0] / 20_000 == pytest.approx(weights[0] / sum(weights), rel=0.1)
    assert drawn[9] / drawn[0] == pytest.approx(10**-0.825, rel=0.2)
    assert zipf_weights(3, 0.0) == [1, 1, 1]


def test_topics_spread_over_nodes_and_time() -> None:
    setting = Params(nodes=16, topics=4, messages=330, every=500)
    outcome = run(SCENARIOS["topics"], "best-effort", setting, 1, keep_trace=True)
    assert outcome.trace is not None
    published = [record for record in outcome.trace if record.kind == "publish"]
    assert {record.topic for record in published} == {"t0", "t1", "t2", "t3"}
    per_node = Counter(record.node for record in published)
    assert Counter(per_node.values()) == {20: 6, 21: 10}
    assert published[-1].time == pytest.approx(330 / 16 * 500, rel=0.15)
    assert outcome.metrics["deliveries"] == 330 * 15


def publications(protocol: str, setting: Params) -> dict[NodeId, list[Time]]:
    outcome = run(SCENARIOS["topics"], protocol, setting, 1, keep_trace=True)
    assert outcome.trace is not None
    times: dict[NodeId, list[Time]] = {}
    for record in outcome.trace:
        if record.kind == "publish":
            times.setdefault(record.node, []).append(record.time)
    return times


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_time_between_turns(spread: float) -> None:
    """What leaves at once is followed by the next after `every`, give or take `spread`."""
    setting = Params(nodes=8, topics=4, messages=400, every=1000, spread=spread)
    times = publications("srpt", setting)
    gaps = [b - a for line in times.values() for a, b in pairwise(line)]
    assert len(gaps) == 400 - 8
    assert 1000 * (1 - spread) <= min(gaps) <= 1000 * (1 - 0.95 * spread)
    assert 1000 * (1 + 0.95 * spread) <= max(gaps) <= 1000 * (1 + spread)
    assert all(0 <= line[0] <= 1000 for line in times.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_turn_is_taken(protocol: str) -> None:
    setting = Params(nodes=8, topics=3, messages=50, every=30, window=1)
    outcome = run(SCENARIOS["topics"], protocol, setting, 1)
    assert outcome.metrics["publications"] == 50
    assert outcome.metrics["deliveries"] == 50 * 7


def test_a_turn_comes_after_what_waited() -> None:
    """VCube-PS holds a second message of a topic until the ACKs of the first are back.

    Two nodes, one topic: the ACK takes two hops.  A node wants to publish every 50 u.t.; its second
    message waits until 200, and so its third comes at 250, waits until 400, and so on.
    """
    setting = Params(nodes=2, topics=1, messages=10, every=50, spread=0.0)
    for first, *rest in publications("vcube-ps", setting).values():
        assert [time - first for time in rest] == [50, 250, 450, 650]


def test_brokers_do_not_subscribe() -> None:
    params = Params(nodes=32, brokers=4, messages=5, every=10_000)
    outcome = run(SCENARIOS["speakers"], "srpt-b", params, 1)
    assert outcome.metrics["deliveries"] == 5 * 28
    everybody = run(SCENARIOS["speakers"], "vcube-ps", params.with_({"brokers": 0}), 1)
    assert everybody.metrics["deliveries"] == 5 * 31


@pytest.mark.parametrize("protocol", ["cubecast", "vcube-ps", "best-effort"])
def test_a_stream_in_batches_arrives_whole(protocol: str) -> None:
    setting = Params(nodes=8, messages=50, batch=8, window=16)
    outcome = run(SCENARIOS["stream"], protocol, setting, 1)
    assert outcome.metrics["deliveries"] == 50 * 7
    assert outcome.metrics["pub_messages"] == 7 * 7  # seven publications to seven nodes
    if protocol == "cubecast":
        assert outcome.ok, outcome.report


def test_a_wider_window_carries_more() -> None:
    rates = [
        measure_static(
            WORKLOADS["stream"].complete(
                {"protocol": "cubecast", "nodes": 8, "messages": 64, "window": window}
            ),
            1,
        ).metrics["rate"]
        for window in (1, 8, 64)
    ]
    assert rates[0] < rates[1] < rates[2]


# -- networks --------------------------------------------------------------------------------------


def test_log_normal_hops_have_their_median_and_a_tail() -> None:
    network = LogNormal(Random(1), 100, 0.5)
    delays = [network._delay(0, 1) for _ in range(4001)]
    assert median(delays) == pytest.approx(100, rel=0.05)
    assert max(delays) > 400
    still = LogNormal(Random(1), 100, 0.0)
    assert {still._delay(0, 1) for _ in range(10)} == {100}


def test_regions_have_a_latency_for_every_pair() -> None:
    table = [[1, 40], [45, 2]]
    blocks = Regions(table, 8)
    assert [blocks._delay(0, node) for node in range(8)] == [1] * 4 + [40] * 4
    assert blocks._delay(7, 0) == 45


def test_a_run_across_regions_takes_as_long_as_its_links() -> None:
    params = Params(nodes=2, network="regions", latencies="1 40; 40 1")
    outcome = run(SCENARIOS["single-publisher"], "cubecast", params, 1)
    assert outcome.ok
    assert outcome.metrics["latency_mean"] == 40


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network": "regions"}, "latencies must"),
        ({"network": "regions", "latencies": "1 2; 3"}, "as many columns as rows"),
        ({"network": "regions", "latencies": "1 x; 3 4"}, "whole numbers"),
        ({"network": "regions", "latencies": "0"}, "must be 1 to"),
        ({"network": "lognormal", "sigma": -1.0}, "sigma must be"),
        ({"skew": 11.0}, "skew is an exponent"),
        ({"spread": 1.5}, "spread is a share from 0 to 1"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ParamError, match=said):
        Params().with_(changes)


# -- what is derived -------------------------------------------------------------------------------


def test_queues_are_counted_as_table_1_counts_them() -> None:
    found = queue_metrics([0, 0.5, 2, 2.1, 8, 8.01, 33, 5000])
    counts = [found[f"queue_to_{bound}"] for bound in (0, 2, 4, 8, 16, 32, 4096, 8192)]
    assert counts == [1, 2, 1, 1, 1, 0, 1, 1]
    assert found["queue_worst"] == 5000


def test_barriers_and_delays_are_shares() -> None:
    barriers = barrier_metrics("b", {0: 1, 1: 2, 10: 1, 20: 4})
    assert barriers == {
        "b_one": 25.0, "b_ten": 12.5, "b_below_5": 37.5, "b_below_15": 50.0, "b_mean": 11.5,
    }  # fmt: skip
    delays = delay_metrics({0: 6, 9: 1, 50: 1, 51: 2})
    assert delays == {
        "delay_none": 60.0, "delay_below_10": 70.0, "delay_above_50": 2.0, "delay_max": 51.0,
    }  # fmt: skip


def test_large_values_are_rounded_down_by_little() -> None:
    top = (1 << EXACT_BITS) - 1
    assert rounded({5: 1, top: 2}) == {5: 1, top: 2}
    assert rounded({100_001: 1, 100_002: 1}) == {100_000: 2}


# -- two engines -----------------------------------------------------------------------------------

SAMPLES: list[tuple[str, dict[str, object]]] = [
    ("single-publisher", {"nodes": 64, "subscribers": 0.25}),
    ("multi-publisher", {"nodes": 32, "queue_acks": True}),
    ("multi-publisher", {"nodes": 32, "network": "uniform"}),
    ("discussion", {"nodes": 32, "wait": 3}),
    ("speakers", {"nodes": 32, "brokers": 4, "messages": 20, "every": 30}),
    ("topics", {"nodes": 16, "topics": 4, "messages": 100, "skew": 0.8}),
    ("topics", {"nodes": 16, "topics": 2, "messages": 100, "every": 100, "spread": 0.0}),
]


@pytest.mark.skipif(not has_kernel(), reason="needs the compiled kernel")
@pytest.mark.parametrize("protocol", ["vcube-ps", "srpt", "srpt-b"])
@pytest.mark.parametrize(("workload", "settings"), SAMPLES)
def test_both_engines_measure_the_same(
    workload: str, settings: dict[str, object], protocol: str
) -> None:
    work = WORKLOADS[workload]
    point = {"workload": workload, "protocol": protocol, **settings}
    fast = work.complete({**point, "engine": "kernel"})  # type: ignore[dict-item]
    slow = work.complete({**point, "engine": "reference"})  # type: ignore[dict-item]
    compiled, objects = measure_static(fast, 5), measure_static(slow, 5)
    assert compiled.metrics == objects.metrics
    assert compiled.histograms == objects.histograms


@pytest.mark.skipif(not has_kernel(), reason="needs the compiled kernel")
def test_a_run_that_is_cut_short_measures_nothing() -> None:
    point = {"nodes": 4, "hop": 10**9, "engine": "kernel"}
    with pytest.raises(WorkloadError, match=r"not at rest 100000000 u\.t\. after"):
        measure_static(WORKLOADS["single-publisher"].complete(point), 1)
