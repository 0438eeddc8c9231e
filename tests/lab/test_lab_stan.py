"""The lab's workload of [N] 3: what it measures, and what cannot be measured."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from statistics import mean

import pytest

from cubecast.lab.cells import Measurement, Value
from cubecast.lab.experiment import ExperimentError
from cubecast.lab.request import choose
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS

WORK = WORKLOADS["stan"]
SEEDS = range(10)
WORLDS = ("rounds", "events")


def measured(seed: int = 0, **settings: Value) -> Measurement:
    return WORK.measure(WORK.complete({"workload": "stan", **settings}), seed)


def average(metric: str, **settings: Value) -> float:
    return mean(measured(seed, **settings).metrics[metric] for seed in SEEDS)


def test_figure_6_physical_links_fall_and_logical_links_stay() -> None:
    """[N] Figure 6(a): from 25 to about 15; the level of logical links is not printed."""
    start, end = (average("physical_mean", rounds=rounds) for rounds in (0, 8))
    assert 22 < start < 28
    assert 14 < end < 16.5
    logical = [measured(3, rounds=rounds).metrics["logical_mean"] for rounds in (0, 1, 8)]
    assert len(set(logical)) == 1


def test_figure_6_rounds_and_events_agree() -> None:
    """[N] Figure 6: the simulator is slightly below the deployment."""
    rounds, events = (average("physical_mean", rounds=8, world=world) for world in WORLDS)
    assert rounds <= events < 1.02 * rounds


@pytest.mark.parametrize("world", WORLDS)
def test_both_worlds_start_from_the_same_overlays(world: str) -> None:
    assert (
        measured(1, rounds=8, world=world).metrics["physical_start"]
        == measured(1, rounds=0).metrics["physical_mean"]
    )


def test_a_longer_walk_is_faster_and_ends_at_the_same_place() -> None:
    """TTL sets the speed, the universe the end."""
    one, five = (average("physical_mean", ttl=ttl, rounds=1) for ttl in (1, 5))
    assert five < one
    one, five = (average("physical_mean", ttl=ttl, rounds=32) for ttl in (1, 5))
    assert one == pytest.approx(five, rel=0.01)


def test_correlated_universes_gain_more() -> None:
    """[N] Figure 7: more nodes of W8 than of L8 improve by more than 40 %."""
    wikipedia, journal = (measured(0, universe=name).metrics for name in ("W8", "L8"))
    assert (wikipedia["nodes"], journal["nodes"]) == (1381, 4689)
    assert wikipedia["much_improved_share"] > 5 * journal["much_improved_share"]
    assert wikipedia["improvement_mean"] > journal["improvement_mean"]


def test_histograms_hold_every_node() -> None:
    one = measured(2)
    for name in ("initial_sizes", "final_sizes"):
        assert sum(one.histograms[name].values()) == one.metrics["nodes"]
    by_initial = one.histograms["final_by_initial"]
    assert set(by_initial) == set(one.histograms["improvement_by_initial"])
    assert all(final <= 1.5 * initial for initial, final in by_initial.items())


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("nodes", {"nodes": 1}),
        ("rounds", {"rounds": -1}),
        ("world", {"world": "events", "universe": "L8"}),
        ("order", {"world": "events", "order": "in turn"}),
        ("least_radius", {"least_radius": 0.0}),
        ("ttl or loss", {"loss": 1.5}),
    ],
)
def test_settings_that_cannot_be_run_are_refused(key: str, settings: dict[str, Value]) -> None:
    with pytest.raises(WorkloadError) as refused:
        WORK.complete({"workload": "stan", **settings})
    assert refused.value.key == key


def test_a_workload_stands_for_all_of_its_experiments() -> None:
    chosen = choose(["stan"])
    assert {one.workload for one in chosen} == {"stan", "stan-optimum", "stan-shapes"}
    assert {one.id[0] for one in chosen} == {"N"}
    with pytest.raises(ExperimentError, match="unknown experiment 'stun'"):
        choose(["stun"])


# -- universes -------------------------------------------------------------------------------------


def described(universe: str, **settings: Value) -> dict[str, float]:
    work = WORKLOADS["universe"]
    point = work.complete({"workload": "universe", "universe": universe, **settings})
    return dict(work.measure(point, 0).metrics)


@pytest.mark.parametrize(("name", "topics", "nodes"), [("L8", 253, 4689), ("W8", 576, 1381)])
def test_generated_universes_have_the_sizes_of_table_1(name: str, topics: int, nodes: int) -> None:
    found = described(name)
    assert (found["topics"], found["nodes"]) == (topics, nodes)
    assert found["smallest_topic"] >= 30
    assert found["topic_distance"] < 0.02, "topics follow a power law by construction"
    assert found["pairs"] == pytest.approx(found["nodes"] * found["topics_per_node"])


def test_the_parameter_of_correlation_correlates_topics_with_their_nearest() -> None:
    none, some, much = (
        described("W8", correlation=value)["correlation_nearest"] for value in (0.0, 0.7, 1.0)
    )
    assert none + 0.03 < some < much - 0.1


CORRELATIONS = """
from cubecast.lab.workloads import WORKLOADS
work = WORKLOADS["universe"]
found = work.measure(work.complete({"workload": "universe", "universe": "W8"}), 0).metrics
print(repr(found["correlation_nearest"]), repr(found["correlation_mean"]))
"""


def test_correlations_depend_on_no_thread_and_no_kind_of_processor() -> None:
    """A cell is a pure function.  BLAS rounds as it likes, but sums of ones are exact."""
    told = set()
    for threads, processor in (("1", "Haswell"), ("2", "Haswell"), ("2", "Prescott")):
        chosen = {"OMP_NUM_THREADS": threads, "OPENBLAS_CORETYPE": processor}
        done = subprocess.run(
            [sys.executable, "-c", CORRELATIONS],
            capture_output=True, text=True, check=True, env={**os.environ, **chosen},
        )  # fmt: skip
        told.add(done.stdout)
    found = described("W8")
    told.add(f"{found['correlation_nearest']!r} {found['correlation_mean']!r}\n")
    assert len(told) == 1


def test_a_correlation_that_cannot_be_is_refused() -> None:
    with pytest.raises(WorkloadError, match="from 0 to 1"):
        described("W8", correlation=1.5)


def test_a_universe_of_equal_sizes_has_finite_metrics() -> None:
    """All nodes follow all topics: no exponent is likelier than another, and 0 is told."""
    found = described("grid", nodes=16, topics=2, least_radius=0.8)
    assert (found["pairs"], found["topic_exponent"], found["node_exponent"]) == (32, 0, 0)
    assert all(map(math.isfinite, found.values()))
