"""Generated universes on Spark: the tables are the arrays, in any number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cubecast.overlay.universes.bipartite import bipartite, universe
from cubecast.overlay.universes.grid import GridParameters, grid
from cubecast.overlay.universes.presets import BipartiteParameters, preset
from cubecast.overlay.universes.streams import Universe
from cubecast.spark.universe.generate import Grid, generate
from cubecast.spark.universe.schemas import SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pairs(found: Universe) -> list[tuple[int, int]]:
    topics, offsets, members = found
    of = np.repeat(topics, np.diff(offsets))
    return sorted(zip(members.tolist(), of.tolist(), strict=True))


def rows(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.user, row.topic) for row in frame.collect())


def test_five_nodes_and_three_topics_come_back_as_they_are(spark: SparkSession) -> None:
    shape = BipartiteParameters(topics=3, nodes=5, pairs=5, smallest=1, busiest=1)
    frame = generate(spark, shape)
    assert frame.schema == SUBSCRIPTIONS
    assert rows(frame) == pairs(bipartite(0, shape))
    assert len(rows(frame)) == 5


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_any_number_of_partitions_gives_the_same_table(
    spark: SparkSession, partitions: int
) -> None:
    shape = BipartiteParameters(topics=30, nodes=200, pairs=900, smallest=8, busiest=12)
    frame = generate(spark, shape, 3, partitions)
    assert frame.rdd.getNumPartitions() == partitions
    assert rows(frame) == pairs(bipartite(3, shape))
    parameters = GridParameters(most_radius=0.3)
    square = Grid(50, 20, parameters)
    assert rows(generate(spark, square, 3, partitions)) == pairs(grid(3, 50, 20, parameters))


def test_a_name_of_table_1_generates_that_universe(spark: SparkSession) -> None:
    """[N] Table 1: W8 has 576 topics and 1,381 nodes."""
    frame = generate(spark, "w8", run=1)
    found = rows(frame)
    assert found == pairs(universe("W8", 1))
    assert len({topic for _, topic in found}) == 576
    assert len({user for user, _ in found}) == 1_381
    assert len(found) == preset("W8").pairs


def test_more_partitions_than_topics_leave_none_empty(spark: SparkSession) -> None:
    assert generate(spark, Grid(10, 3), partitions=7).rdd.getNumPartitions() == 3


def test_an_unknown_universe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="no universe 'Q3'"):
        generate(spark, "Q3")
    with pytest.raises(ValueError, match="needs nodes"):
        Grid(nodes=0)
