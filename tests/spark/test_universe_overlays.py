"""Overlays, metrics and physical views of small tables on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from cubecast.kernel.rounds import Subscribers, overlay_metrics, play_overlays
from cubecast.kernel.rounds.metrics import COLUMNS
from cubecast.overlay.rounds import RoundConfig, play
from cubecast.overlay.weights import weight
from cubecast.spark.errors import LabError
from cubecast.spark.large import cores_of, default_memory_mib, large_session, large_settings
from cubecast.spark.universe.bins import bins_of, number_of_bins, work_of
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.overlays import (
    IN_DEGREES,
    OPTIMUM,
    OVERLAYS,
    in_degree_table,
    optimum,
    overlay_table,
    overlays,
)
from cubecast.spark.universe.physical import (
    VIEW_SIZES,
    improvement,
    improvement_by_initial_size,
    mean_sizes,
    physical_views,
)
from cubecast.spark.universe.schemas import SUBSCRIPTIONS, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = RoundConfig(rounds=2, ttl=1)
FIVE = [(1, 10), (2, 10), (3, 10), (3, 20), (1, 20)]
"""Users 1, 2, 3 in topic 10; users 1 and 3 in topic 20."""
MANY = [(user, topic) for topic in range(5) for user in range(topic, 40, topic + 1)]
"""Topics of 40 down to 8 subscribers."""


def frame(spark: SparkSession, pairs: list[tuple[int, int]]) -> DataFrame:
    return spark.createDataFrame(pairs, SUBSCRIPTIONS)


def views_of(table: DataFrame) -> dict[tuple[int, int, int], tuple[int, ...]]:
    assert [(field.name, field.dataType) for field in table.schema] == [
        (field.name, field.dataType) for field in VIEWS
    ]
    rows = table.collect()
    found = {(row.topic, row.user, row.round): tuple(row.view) for row in rows}
    assert len(found) == len(rows)
    return found


def plain(
    pairs: list[tuple[int, int]], run: int = 0
) -> dict[tuple[int, int, int], tuple[int, ...]]:
    topics = {topic: [u for u, t in pairs if t == topic] for _, topic in pairs}
    return {
        (topic, user, round_): view
        for topic, members in topics.items()
        for round_, views in enumerate(play(run, topic, members, CONFIG))
        for user, view in views.items()
    }


def test_five_rows_have_the_views_of_the_plain_model(spark: SparkSession) -> None:
    assert views_of(overlays(frame(spark, FIVE), CONFIG, (0, 1, 2))) == plain(FIVE)


def test_views_do_not_depend_on_the_number_of_bins(spark: SparkSession) -> None:
    expected = {key: view for key, view in plain(MANY, run=3).items() if key[2] == 2}
    for bins in (None, 1, 3, 9):
        assert views_of(overlays(frame(spark, MANY), CONFIG, (2,), run=3, bins=bins)) == expected


def test_a_subscription_that_comes_twice_counts_once(spark: SparkSession) -> None:
    twice = frame(spark, [*MANY, *MANY[:7]])
    assert views_of(overlays(twice, CONFIG, (0, 1, 2))) == plain(MANY)


def test_no_subscriptions_have_no_views(spark: SparkSession) -> None:
    none = frame(spark, [])
    assert overlays(none, CONFIG).count() == 0
    assert overlay_table(none, CONFIG).count() == 0
    assert optimum(none, CONFIG).count() == 0
    assert physical_views(overlays(none, CONFIG)).count() == 0


def test_a_lonely_subscriber_has_an_empty_view_and_no_overlay(spark: SparkSession) -> None:
    lonely = frame(spark, [(7, 1)])
    assert views_of(overlays(lonely, CONFIG, (2,))) == {(1, 7, 2): ()}
    assert overlay_table(lonely, CONFIG, (2,)).count() == 0
    assert in_degree_table(lonely, CONFIG, (2,)).count() == 0


def test_rounds_must_be_named(spark: SparkSession) -> None:
    for rounds in ((), (-1, 8)):
        with pytest.raises(UniverseError, match="rounds must be numbers from 0 on"):
            overlays(frame(spark, FIVE), CONFIG, rounds)


def test_physical_views_count_different_neighbours(spark: SparkSession) -> None:
    sizes = physical_views(overlays(frame(spark, MANY), CONFIG, (0, 2)), partitions=3)
    assert sizes.schema.names == VIEW_SIZES.names
    links: dict[tuple[int, int], list[int]] = {}
    for (_, user, round_), view in plain(MANY).items():
        if round_ != 1:
            links.setdefault((user, round_), []).extend(view)
    found = {(row.user, row.round): (row.logical, row.physical) for row in sizes.collect()}
    assert found == {key: (len(ids), len(set(ids))) for key, ids in links.items()}


def test_physical_views_of_five_hand_made_rows(spark: SparkSession) -> None:
    rows = [
        (1, 5, 0, [6, 7]),
        (2, 5, 0, [7, 8]),
        (1, 5, 8, [7, 8]),
        (2, 5, 8, [8, 7]),
        (3, 9, 8, []),
    ]
    sizes = physical_views(spark.createDataFrame(rows, VIEWS))
    assert sorted(map(tuple, sizes.collect())) == [(5, 0, 4, 3), (5, 8, 4, 2), (9, 8, 0, 0)]


def test_improvement_is_by_initial_size(spark: SparkSession) -> None:
    rows = [
        (1, 0, 10, 10), (1, 8, 10, 5), (2, 0, 10, 10), (2, 8, 10, 9), (3, 0, 9, 4), (3, 8, 9, 5),
        (4, 0, 0, 0), (4, 8, 0, 0),
    ]  # fmt: skip
    sizes = spark.createDataFrame(rows, VIEW_SIZES)
    improved = improvement(sizes)
    found = sorted(map(tuple, improved.collect()))
    assert found == [(1, 10, 5, 0.5), (2, 10, 9, pytest.approx(0.1)), (3, 4, 5, -0.25)]
    by_size = [tuple(row) for row in improvement_by_initial_size(improved).collect()]
    assert by_size == [(4, 1, 5.0, -0.25, 0.0, 1.0), (10, 2, 7.0, pytest.approx(0.3), 0.5, 0.0)]
    means = [tuple(row) for row in mean_sizes(sizes).collect()]
    assert means == [
        (0, 3, pytest.approx(29 / 3), 8.0),
        (8, 3, pytest.approx(29 / 3), pytest.approx(19 / 3)),
    ]


def test_metrics_of_overlays_are_the_kernels(spark: SparkSession) -> None:
    table = overlay_table(frame(spark, MANY), CONFIG, (0, 2), bins=3)
    assert table.schema.names == OVERLAYS.names
    rows = {(row.topic, row.round): row for row in table.collect()}
    users, topics = np.array(MANY).T
    played = play_overlays(Subscribers.of_pairs(users, topics), CONFIG, (0, 2))
    assert len(rows) == 10
    for round_ in (0, 2):
        expected = overlay_metrics(played, round_)
        for number, topic in enumerate(expected.topics.tolist()):
            row = rows[topic, round_]
            assert row.nodes == expected.nodes[number]
            assert row.view_size == expected.view_sizes[number]
            for name in COLUMNS:
                assert row[name] == pytest.approx(getattr(expected, name)[number]), name


def test_in_degrees_are_counted_by_topic_and_round(spark: SparkSession) -> None:
    table = in_degree_table(frame(spark, MANY), CONFIG, (2,), bins=2)
    assert table.schema.names == IN_DEGREES.names
    views = {key: view for key, view in plain(MANY).items() if key[2] == 2}
    named = Counter((topic, other) for (topic, _, _), view in views.items() for other in view)
    degrees = Counter((topic, 2, named[topic, user]) for topic, user, _ in views)
    found = {(row.topic, row.round, row.in_degree): row.nodes for row in table.collect()}
    assert found == dict(degrees)


def test_optimal_views_are_the_lightest_co_subscribers(spark: SparkSession) -> None:
    found = views_of(optimum(frame(spark, MANY), CONFIG, bins=2))
    assert len(found) == len(MANY)
    for (topic, user, round_), view in found.items():
        others = [u for u, t in MANY if t == topic and u != user]
        assert round_ == OPTIMUM
        assert list(view) == sorted(others, key=lambda q: (weight(user, q), q))[: len(view)]
    some = views_of(optimum(frame(spark, MANY), CONFIG, share=0.4))
    assert 0 < len(some) < len(found)
    assert some.items() <= found.items()


def test_bins_have_equal_work_and_the_heaviest_is_first() -> None:
    counts = np.array([1000, 30, 400, 30, 300, 300, 35])
    work = work_of(counts, CONFIG)
    assert work[1] == 30 * 2 * 10  # n (ttl + 1) (k + 1)
    dealt = bins_of(work, 3)
    loads = np.bincount(dealt, work, minlength=3)
    assert dealt[0] == 0
    assert sorted(loads, reverse=True) == loads.tolist()
    assert (dealt == 0).sum() == 1
    assert loads[1] - loads[2] <= 400 * 2 * 12


def test_there_are_bins_for_every_core_and_for_every_quarter_of_a_million() -> None:
    assert number_of_bins(np.array([10, 10, 10]), cores=2) == 2
    assert number_of_bins(np.array([10]), cores=8) == 1
    assert number_of_bins(np.full(1000, 2001), cores=2) == 9
    assert number_of_bins(np.zeros(0, np.int64), cores=2) == 1


def test_a_large_session_differs_in_memory_shuffles_and_java(tmp_path: Path) -> None:
    settings = large_settings("local[2]", 12_000, tmp_path / "log")
    assert settings["spark.driver.memory"] == "6000m"
    assert settings["spark.sql.shuffle.partitions"] == "64"
    assert "TieredStopAtLevel" not in settings["spark.driver.extraJavaOptions"]
    assert "spark.executor.memory" not in settings
    cluster = large_settings("local-cluster[2,4,2048]", 12_000, tmp_path / "log")
    assert cluster["spark.executor.memory"] == "2048m"
    assert cluster["spark.sql.shuffle.partitions"] == "256"
    assert (cores_of("local[3]"), cores_of("local-cluster[2,4,2048]")) == (3, 8)
    assert 1024 <= default_memory_mib() <= 16 * 1024


@pytest.mark.parametrize(
    ("memory_mib", "threshold"), [(1024, "1MB"), (5000, "4MB"), (12_000, "10MB"), (16_384, "10MB")]
)
def test_a_large_session_broadcasts_what_its_memory_can_hold(
    memory_mib: int, threshold: str, tmp_path: Path
) -> None:
    settings = large_settings("local[2]", memory_mib, tmp_path / "log")
    for name in ("autoBroadcastJoinThreshold", "adaptive.autoBroadcastJoinThreshold"):
        assert settings[f"spark.sql.{name}"] == threshold


def test_a_large_session_needs_memory() -> None:
    with (
        pytest.raises(LabError, match="at least 1024 MiB, not 100"),
        large_session("local[1]", memory_mib=100),
    ):
        pass


ON_A_CLUSTER = """
import json, sys
import pyarrow.parquet as pq
from cubecast.overlay.rounds import RoundConfig
from cubecast.spark.large import large_session
from cubecast.spark.universe.overlays import overlays
from cubecast.spark.universe.physical import physical_views

with large_session(sys.argv[1], memory_mib=1024) as spark:
    table = spark.createDataFrame(pq.read_table(sys.argv[2]))
    sizes = physical_views(overlays(table, RoundConfig(rounds=2, ttl=1), (0, 2)), partitions=2)
    print(json.dumps(sorted(map(tuple, sizes.collect()))))
"""


@pytest.mark.soak
def test_a_cluster_gives_the_same_as_local_cores(spark: SparkSession, tmp_path: Path) -> None:
    """Two executors in processes of their own, which get the package as an archive."""
    import pyarrow.parquet as pq

    users, topics = np.array(MANY).T
    pq.write_table(pa.table({"user": users, "topic": topics}), tmp_path / "many.parquet")
    here = physical_views(overlays(frame(spark, MANY), CONFIG, (0, 2)))
    done = subprocess.run(
        [sys.executable, "-c", ON_A_CLUSTER, "local-cluster[2,1,1024]", tmp_path / "many.parquet"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == sorted(map(list, here.collect()))
