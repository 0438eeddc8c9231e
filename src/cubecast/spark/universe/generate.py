"""Generators as Spark jobs: each task generates a range of topics, with nothing shuffled.

The table is the same in whatever number of partitions it is generated, and the same as the arrays
that `cubecast.overlay.universes` gives without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cubecast.overlay.universes.bipartite import UniversePlan, chunks, plan
from cubecast.overlay.universes.grid import NODES, PARAMETERS, TOPICS, GridParameters, grid
from cubecast.overlay.universes.presets import BipartiteParameters, preset
from cubecast.overlay.universes.streams import Universe
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.universe.schemas import SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIRS_PER_TASK = 1_000_000
DISTANCES_PER_CHUNK = 1 << 24
"""A task of the grid checks this many distances before it hands its pairs on."""


@dataclass(frozen=True)
class Grid:
    """The two-dimensional grid, as a size to generate."""

    nodes: int = NODES
    topics: int = TOPICS
    parameters: GridParameters = PARAMETERS

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.topics < 1:
            raise ValueError(f"a grid needs nodes and topics, not {self.nodes} and {self.topics}")


Shape: TypeAlias = str | BipartiteParameters | Grid
"""The name of a universe of [N] Table 1, or the parameters of a generator."""


def generate(
    session: SparkSession, shape: Shape, run: int = 0, partitions: int | None = None
) -> DataFrame:
    """The subscriptions of a generated universe: a table like `SUBSCRIPTIONS`."""
    known = preset(shape) if isinstance(shape, str) else shape
    ranges = _ranges(known, run, partitions or _tasks(session, known))
    tasks = session.range(0, len(ranges), 1, len(ranges))  # one row in each partition
    make = partial(_generated, shape=known, run=run, ranges=ranges)
    return map_in_arrow(tasks, make, SUBSCRIPTIONS)


def _tasks(session: SparkSession, shape: BipartiteParameters | Grid) -> int:
    work = shape.topics * shape.nodes // 50 if isinstance(shape, Grid) else shape.pairs
    cores = session.sparkContext.defaultParallelism
    return min(shape.topics, max(cores, -(-work // PAIRS_PER_TASK)))


def _ranges(shape: BipartiteParameters | Grid, run: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of topics of about equal work; together they are all topics, and none is empty."""
    if isinstance(shape, Grid):
        bounds = np.linspace(0, shape.topics, parts + 1).astype(np.int64)
    else:
        sums = np.cumsum(_plan(run, shape).sizes)
        bounds = np.searchsorted(sums, np.linspace(0, shape.pairs, parts + 1)[1:-1])
        bounds = np.concatenate([[0], bounds, [shape.topics]])
    places = np.unique(bounds).tolist()
    return list(pairwise(places))


@lru_cache(maxsize=1)
def _plan(run: int, parameters: BipartiteParameters) -> UniversePlan:
    """Make a plan; the tasks that one Python worker runs, one after the other, share it."""
    return plan(run, parameters)


def _generated(
    batches: Iterator[Any],
    shape: BipartiteParameters | Grid,
    run: int,
    ranges: list[tuple[int, int]],
) -> Iterator[Any]:
    """The pairs of the ranges that a partition names, as record batches."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for part in _parts(shape, run, *ranges[number]):
                yield record_batch(part)


def _parts(
    shape: BipartiteParameters | Grid, run: int, first: int, last: int
) -> Iterator[Universe]:
    if isinstance(shape, BipartiteParameters):
        yield from chunks(_plan(run, shape), first, last)
        return
    step = max(1, DISTANCES_PER_CHUNK // shape.nodes)
    for start in range(first, last, step):
        stop = min(start + step, last)
        yield grid(run, shape.nodes, shape.topics, shape.parameters, first=start, last=stop)


def record_batch(universe: Universe) -> Any:
    """A universe's flat arrays as rows of `SUBSCRIPTIONS`."""
    import pyarrow as pa

    topics, offsets, members = universe
    columns = [pa.array(members), pa.array(np.repeat(topics, np.diff(offsets)))]
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("user", "topic")])
    return pa.RecordBatch.from_arrays(columns, schema=schema)
