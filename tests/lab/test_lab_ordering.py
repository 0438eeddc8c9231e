"""The lab's workloads of [T] 6: what each measures, and what cannot be measured."""

from __future__ import annotations

import pytest

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import find, parse
from cubecast.lab.report.curves import buckets_of
from cubecast.lab.report.data import HistogramRow
from cubecast.lab.report.figures import draw_all
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS


def measured(workload: str, seed: int = 0, **settings: Value) -> dict[str, float]:
    work = WORKLOADS[workload]
    return dict(work.measure(work.complete(settings), seed).metrics)


# -- routes ---------------------------------------------------------------------------------------


def test_the_worst_case_visits_all_managers_and_a_good_order_few() -> None:
    """[T] Figures 9 to 12."""
    worst = measured("ordered-routes", published="worst case")
    best = measured("ordered-routes")
    assert worst["entries_mean"] == 50
    assert worst["ordering_mean"] > 5 * best["ordering_mean"]
    assert best["notified_share"] > worst["notified_share"]
    for metrics in (worst, best):
        total = metrics["ordering_mean"] + metrics["diffusion_mean"]
        assert metrics["latency_mean"] == pytest.approx(total)
        assert metrics["bytes_mean"] == 24 * metrics["entries_mean"]


def test_readings_of_the_network_change_latencies_and_not_timestamps() -> None:
    plain = measured("ordered-routes", nodes=300)
    for name, value in (
        ("routes", "direct"), ("entries", "near entries"), ("delays", "fresh delays"),
    ):  # fmt: skip
        other = measured("ordered-routes", nodes=300, **{name: value})
        assert other["entries_mean"] == plain["entries_mean"]
        assert other["latency_mean"] != plain["latency_mean"]


def test_runs_in_one_network_are_nearer_to_each_other_than_runs_in_networks_of_their_own() -> None:
    def spread(networks: str) -> float:
        found = [
            measured("ordered-routes", seed, published="worst case", networks=networks)[
                "latency_mean"
            ]
            for seed in range(4)
        ]
        return (max(found) - min(found)) / max(found)

    assert spread("one for all runs") < 0.02 < spread("one per run")


def test_subscriptions_to_fewer_topics_make_shorter_timestamps() -> None:
    few, all_ = (
        measured("ordered-routes", subscriptions=count, order="worst order") for count in (5, 0)
    )
    assert few["bytes_mean"] < all_["bytes_mean"]


# -- swaps ----------------------------------------------------------------------------------------

SMALL: dict[str, Value] = {"nodes": 100, "topics": 40, "subscriptions": 8, "events": 200}


def test_a_dynamic_order_ends_between_a_random_and_the_best_one() -> None:
    """[T] Figures 18 and 19; that it ends below the best one we do not see."""
    dynamic, best, random = (
        measured("ordered-swaps", ordering=ordering, **SMALL)
        for ordering in ("dynamic", "static, best", "static, random")
    )
    assert dynamic["swaps"] > 0
    assert best["swaps"] == random["swaps"] == 0
    assert best["bytes_end"] < dynamic["bytes_end"] < random["bytes_end"]
    assert dynamic["latency_end"] < dynamic["latency_start"]


def test_a_larger_alpha_swaps_more_and_not_less() -> None:
    """Against [T] Figure 16: f(1) > f(0) + β at α = 0.5, so one event is enough for a swap."""
    slow, fast = (measured("ordered-swaps", alpha=alpha, **SMALL) for alpha in (0.1, 0.5))
    assert fast["swaps"] > slow["swaps"]


def test_a_change_of_popularity_costs_latency() -> None:
    """[T] Figure 20, where all nodes subscribe to all topics.

    Else the topics that become popular have few subscribers, and short timestamps.
    """
    everything = {**SMALL, "subscriptions": 0, "draws": "distinct"}
    metrics = measured("ordered-swaps", shuffle_at=100, **everything)
    assert metrics["latency_after"] > metrics["latency_before"]
    assert metrics["bytes_after"] > 1.25 * metrics["bytes_before"]


def test_a_timeline_has_the_means_of_ten_events() -> None:
    work = WORKLOADS["ordered-swaps"]
    found = work.measure(work.complete(SMALL), 0)
    assert list(found.histograms["latency_ms"]) == list(range(0, 200, 10))
    start = [found.histograms["timestamp_bytes"][at] for at in (0, 10)]
    assert sum(start) / 2 == pytest.approx(found.metrics["bytes_start"], abs=1)


# -- events ---------------------------------------------------------------------------------------

DETECTION: dict[str, Value] = {
    "published": "own topic", "publishers": 5, "subscribers": 2, "rate": 25.0, "seconds": 8.0,
    "pattern": "one by one",
}  # fmt: skip


@pytest.mark.parametrize("service", ["scribe", "vcube"])
def test_production_with_an_infinite_buffer_tags_nothing_and_detects_all(service: str) -> None:
    """[T] Figure 21, the bar on the right."""
    for seed in range(3):
        metrics = measured(
            "ordered-events", seed, protocol="production", buffer=-1, service=service, nodes=128,
            **DETECTION,
        )  # fmt: skip
        assert metrics["tagged_share"] == metrics["stuck_share"] == 0
        assert metrics["detected_share"] == 100
        assert metrics["inverted_pairs"] == 0


def test_the_printed_buffer_does_not_detect_all() -> None:
    """Hole T6: events wait in vain, at one subscriber and not at the other."""
    metrics = [
        measured("ordered-events", seed, protocol="faithful", buffer=-1, **DETECTION)
        for seed in range(3)
    ]
    assert all(one["inverted_pairs"] == 0 for one in metrics)
    assert any(one["stuck_share"] > 0 for one in metrics)
    assert any(one["detected_share"] < 100 for one in metrics)


def test_the_bare_service_detects_few() -> None:
    bare = measured("ordered-events", protocol="bare", **DETECTION)
    assert bare["detected_share"] < 60
    assert bare["inverted_pairs"] == 1
    assert bare["tagged_share"] == 0


def test_events_notified_within_a_second_are_those_of_all_their_subscribers() -> None:
    quick = measured("ordered-events", protocol="bare", links="emulated", nodes=8, seconds=10.0)
    slow = measured(
        "ordered-events", protocol="bare", links="emulated", nodes=8, seconds=10.0, send_ms=300.0
    )
    assert quick["notified_share"] == 100
    assert slow["notified_share"] < 20


def test_one_node_needs_no_link() -> None:
    """[T] Figure 22: with a single node the system is a central sequencer."""
    metrics = measured("ordered-events", nodes=1, publishers=1, links="emulated", seconds=5.0)
    assert metrics["latency_mean"] == 0
    assert metrics["sends"] == 0
    assert metrics["notified_share"] == 100


# -- what cannot be measured ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "settings", "said"),
    [
        ("ordered-routes", {"nodes": 0}, "nodes: must be from 1 to"),
        ("ordered-routes", {"subscriptions": 51}, "subscriptions: must be from 0"),
        ("ordered-routes", {"shape": 0.0}, "shape: must be above 0"),
        ("ordered-routes", {"events": 0}, "events: must be at least 1"),
        ("ordered-swaps", {"alpha": 0.0}, "alpha: must be above 0"),
        ("ordered-swaps", {"shuffle_at": 600}, "shuffle_at: must be 0"),
        ("ordered-swaps", {"timing": "travelling", "ordering": "static, best"}, "ordering: must"),
        ("ordered-swaps", {"timing": "travelling", "delays": "fresh delays"}, "delays: must"),
        ("ordered-events", {"rate": 0.0}, "rate: must be above 0"),
        ("ordered-events", {"publishers": 101}, "publishers: must be from 0"),
        ("ordered-events", {"send_ms": -1.0}, "send_ms: must not be negative"),
        ("ordered-events", {"service": "vcube", "nodes": 100}, "nodes: must be a power of two"),
        ("ordered-events", {"protocol": "jgroups"}, "protocol: must be one of"),
    ],
)
def test_impossible_settings_are_refused(workload: str, settings: Settings, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        WORKLOADS[workload].complete(settings)


# -- timelines ------------------------------------------------------------------------------------

TIMELINE = """
id = "x"
title = "A test"
source = "here"
workload = "ordered-swaps"
metrics = ["swaps"]
[seeds]
full = 2
[grid]
alpha = [0.1, 0.5]
[[plot]]
title = "Latency"
kind = "timeline"
x = "latency_ms"
series = ["alpha"]
y_label = "ms"
"""


def test_a_timeline_is_a_curve_of_its_buckets() -> None:
    experiment = parse(TIMELINE, "x.toml")
    rows = [
        HistogramRow("x", dict(settings), "latency_ms", at, 1000.0 + at * (1 + place), 0.0, 2)
        for place, settings in enumerate(experiment.points())
        for at in (0, 10, 20)
    ]
    (plot,) = experiment.plot
    curves = buckets_of(experiment, plot, rows).curves
    assert [curve.label for curve in curves] == ["alpha 0.1", "alpha 0.5"]
    assert [(point.x, point.y) for point in curves[1].points] == [(0, 1000), (10, 1020), (20, 1040)]
    (drawing,) = draw_all(experiment, [], rows, formats=("png",)).values()
    assert drawing is not None
    assert drawing.files["png"].startswith(b"\x89PNG")
    (other,) = draw_all(experiment, [], rows[:3], formats=("png",)).values()
    assert other != drawing


def test_readings_of_the_paper_stand_side_by_side() -> None:
    for ident, numbers, wanted in (
        ("T.16", (15.1, 7.4, 51.8, 7.8), 7), ("T.18", (100,), 4), ("T.21", (35, 100), 8),
    ):  # fmt: skip
        paper = find(ident).paper
        for number in numbers:
            readings = [one.accounting for one in paper if one.value == number and one.accounting]
            assert len(readings) == len(set(readings)) == wanted, (ident, number)
