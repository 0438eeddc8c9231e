"""What a universe looks like: histograms, power laws, correlation, and their pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from cubecast.overlay.universes.bipartite import plan, universe
from cubecast.overlay.universes.powerlaw import bounded_exponent, fit, zeta
from cubecast.overlay.universes.presets import preset
from cubecast.overlay.universes.streams import Universe
from cubecast.spark.universe.correlation import (
    Correlation,
    co_counts,
    correlation,
    largest_topics,
    pearson,
)
from cubecast.spark.universe.describe import describe, distribution, histogram, log_binned
from cubecast.spark.universe.generate import generate
from cubecast.spark.universe.plots import draw_plots
from cubecast.spark.universe.schemas import SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIVE = [(1, 10), (1, 20), (2, 10), (3, 20), (4, 30)]


@pytest.fixture
def five(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(FIVE, SUBSCRIPTIONS)


def counted(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct, counts.astype(np.int64)


def law(exponent: float, least: int, count: int, seed: int) -> NDArray[np.int64]:
    """Values of a discrete power law, by the inverse of its cumulative distribution."""
    support = np.arange(least, 200_000, dtype=np.int64)
    sums = np.cumsum(support.astype(float) ** -exponent)
    chance = np.random.default_rng(seed).random(count)
    return support[np.searchsorted(sums / sums[-1], chance)]


# -- histograms ------------------------------------------------------------------------------------


def test_five_pairs_are_counted_by_topic_and_by_user(five: DataFrame) -> None:
    assert [tuple(row) for row in histogram(five, "topic").collect()] == [(1, 1), (2, 2)]
    assert [tuple(row) for row in histogram(five, "user").collect()] == [(1, 3), (2, 1)]


def test_bins_run_from_a_power_of_two_to_below_the_next(spark: SparkSession) -> None:
    sizes = spark.createDataFrame(
        [(1, 9), (2, 4), (3, 2), (4, 1), (7, 1), (8, 5), (2**40, 1)], "size long, count long"
    )
    found = [tuple(row) for row in log_binned(sizes).collect()]
    assert found == [
        (1, 1, 9, 9.0),
        (2, 3, 6, 3.0),
        (4, 7, 2, 0.5),
        (8, 15, 5, 0.625),
        (2**40, 2**41 - 1, 1, 2.0**-40),
    ]


def test_a_distribution_knows_its_mean_and_quantiles(five: DataFrame) -> None:
    found = distribution(five, "user", resamples=0)
    assert (found.total, found.mean) == (4, 1.25)
    assert (found.quantile(0.5), found.quantile(0.76), found.quantile(1.0)) == (1, 2, 2)
    assert found.law is None  # five pairs have no power law


# -- power laws ------------------------------------------------------------------------------------


def test_zeta_has_its_known_values() -> None:
    assert float(zeta(2.0, 1.0)) == pytest.approx(np.pi**2 / 6, rel=1e-10)
    assert float(zeta(1.5, 1.0)) == pytest.approx(2.612375348685488, rel=1e-10)
    dumb = sum(float(k) ** -3.5 for k in range(7, 20_000)) + 19_999.5**-2.5 / 2.5
    assert float(zeta(3.5, 7.0)) == pytest.approx(dumb, rel=1e-9)


@pytest.mark.parametrize(("exponent", "least"), [(1.8, 1), (2.5, 1), (2.2, 5)])
def test_a_power_law_is_found_again(exponent: float, least: int) -> None:
    found = fit(*counted(law(exponent, least, 5_000, seed=1)), resamples=20)
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=max(4 * found.error, 0.05))
    assert found.distance < 0.03
    assert found.goodness is not None
    assert found.goodness >= 0.1


def test_the_start_of_a_law_is_found_where_the_data_bend() -> None:
    """Even up to 19, a power law from 20 on."""
    even = np.random.default_rng(2).integers(1, 20, 3_000)
    found = fit(*counted(np.concatenate([even, law(2.5, 20, 3_000, seed=2)])), resamples=0)
    assert found is not None
    assert found.goodness is None
    assert 18 <= found.least <= 26
    assert found.exponent == pytest.approx(2.5, abs=0.15)


def test_data_that_follow_no_power_law_have_a_low_goodness() -> None:
    spread = np.random.default_rng(3).poisson(20, 3_000) + 1
    found = fit(*counted(spread), resamples=20)
    assert found is not None
    assert found.goodness is not None
    assert found.goodness <= 0.05


def test_a_law_that_ends_has_its_exponent_only_when_the_end_is_known() -> None:
    cut = law(1.3, 1, 40_000, seed=4)
    cut = cut[cut <= 200][:20_000]
    assert bounded_exponent(*counted(cut)) == pytest.approx(1.3, abs=0.03)
    open_ended = fit(*counted(cut), resamples=0)
    assert open_ended is not None
    assert open_ended.exponent > 1.4


def test_fewer_than_two_values_have_no_exponent() -> None:
    nothing = np.zeros(0, np.int64)
    assert math.isnan(bounded_exponent(np.array([4]), np.array([1_000])))
    assert math.isnan(bounded_exponent(np.array([4, 9]), np.array([1_000, 0])))
    assert math.isnan(bounded_exponent(nothing, nothing))
    assert math.isfinite(bounded_exponent(np.array([4, 9]), np.array([1_000, 1])))


def test_too_few_observations_have_no_law() -> None:
    assert fit(np.array([1, 2, 3]), np.array([5, 3, 1])) is None
    assert fit(np.array([4]), np.array([1_000])) is None
    with pytest.raises(ValueError, match="from 1 on"):
        fit(np.array([0, 1]), np.array([50, 50]))


# -- shapes of generated universes -----------------------------------------------------------------


def shapes(found: Universe) -> tuple[float, float]:
    """Exponents of subscribers per topic (beyond 30) and of topics per node (up to the most)."""
    _, offsets, members = found
    tail = fit(*counted(np.diff(offsets)), resamples=0)
    assert tail is not None
    return tail.exponent, bounded_exponent(*counted(np.bincount(members)))


@pytest.mark.parametrize(
    ("name", "per_topic", "per_node"), [("L8", 2.45, 1.76), ("W8", 2.91, 1.25)]
)
def test_generated_l8_and_w8_have_power_laws_of_the_planned_exponents(
    name: str, per_topic: float, per_node: float
) -> None:
    """Within 0.1 per topic; within 0.15 per node, where chance adds to the least active."""
    dealt = plan(0, preset(name))
    assert dealt.size_exponent == pytest.approx(per_topic, abs=0.01)
    assert dealt.degree_exponent == pytest.approx(per_node, abs=0.01)
    seen = shapes(universe(name))
    assert seen[0] == pytest.approx(per_topic, abs=0.1)
    assert seen[1] == pytest.approx(per_node, abs=0.15)


# -- correlation -----------------------------------------------------------------------------------


def test_five_pairs_have_these_counts_of_users_with_both(five: DataFrame) -> None:
    topics = np.array([10, 20, 30], dtype=np.int64)
    assert co_counts(five, topics).tolist() == [[2, 1, 0], [1, 2, 0], [0, 0, 1]]
    assert co_counts(five, topics[[0, 2]]).tolist() == [[2, 0], [0, 1]]


def test_correlation_is_pearsons_of_the_columns(spark: SparkSession) -> None:
    """Against numpy, on a generated universe of 576 topics; the batches are cut many times."""
    topics, offsets, members = universe("W8")
    columns = np.zeros((len(topics), 1_381))
    columns[np.repeat(topics, np.diff(offsets)), members] = 1
    chosen = np.arange(0, 576, 12, dtype=np.int64)
    found = correlation(generate(spark, "W8"), chosen, 1_381)
    assert np.allclose(found.matrix, np.corrcoef(columns[chosen]), atol=1e-12)
    above = np.corrcoef(columns[chosen])[np.triu_indices(48, 1)] > 0.1
    assert found.share_above(0.1) == pytest.approx(above.mean())


def test_a_topic_of_all_nodes_correlates_with_nothing() -> None:
    both = np.array([[4, 2], [2, 2]], dtype=np.int64)
    assert pearson(both, 4).tolist() == [[0, 0], [0, 1]]
    alone = Correlation(np.array([1]), np.ones((1, 1)))
    assert (alone.mean, alone.share_above(0.1)) == (0.0, 0.0)


def test_the_largest_topics_are_chosen_and_too_many_refused(five: DataFrame) -> None:
    assert largest_topics(five, 2).tolist() == [10, 20]
    assert largest_topics(five, 1).tolist() == [10]
    with pytest.raises(ValueError, match="at most 3,000 topics"):
        co_counts(five, np.arange(3_001, dtype=np.int64))


# -- all together ----------------------------------------------------------------------------------


def test_a_description_has_sizes_shapes_and_pictures(spark: SparkSession, tmp_path: Path) -> None:
    found = describe(generate(spark, "L8"), resamples=2, topics=50)
    assert (found.topics, found.nodes) == (253, 4_689)
    assert found.pairs == preset("L8").pairs
    facts = json.loads(json.dumps(found.facts()))
    assert facts["subscribers_per_topic"]["power_law"]["resamples"] == 2
    assert facts["topics_per_node"]["mean"] == pytest.approx(found.pairs / found.nodes)
    assert facts["correlation"]["topics"] == 50
    for path in draw_plots(found, tmp_path / "plots", "L8"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_five_pairs_have_pictures_without_a_law(five: DataFrame, tmp_path: Path) -> None:
    found = describe(five, resamples=0)
    assert found.facts()["topics_per_node"]["power_law"] is None
    assert [path.name for path in draw_plots(found, tmp_path, "five")] == [
        "per-topic.png",
        "per-node.png",
        "correlation.png",
    ]


def test_a_universe_of_equal_sizes_is_described_without_exponents(spark: SparkSession) -> None:
    pairs = [(user, topic) for user in range(3) for topic in (10, 20)]
    facts = describe(spark.createDataFrame(pairs, SUBSCRIPTIONS), resamples=0).facts()
    assert facts["subscribers_per_topic"]["bounded_exponent"] is None
    assert facts["topics_per_node"]["bounded_exponent"] is None
    json.dumps(facts, allow_nan=False)


def test_an_empty_universe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="no subscriptions"):
        describe(spark.createDataFrame([], SUBSCRIPTIONS))
