"""StaN's overlays of a table of subscriptions, on Spark: views, metrics and the optimum.

Overlays never interact.  So a task has some topics with all their subscribers (`bins`), plays all
rounds of them in one compiled call, and gives Arrow batches that are cut from its flat arrays.
There is one shuffle, of the subscriptions, and none between rounds.  Every draw is named by run,
topic, node and round: the results depend on neither the bins nor the master.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from cubecast.kernel.rounds import (
    Played,
    Subscribers,
    in_degrees,
    optimal_views,
    overlay_metrics,
    play_overlays,
)
from cubecast.kernel.rounds.arithmetic import Longs
from cubecast.kernel.rounds.metrics import COLUMNS, EXACT_UP_TO, SOURCES, WHOLE
from cubecast.kernel.rounds.optimum import default_share
from cubecast.overlay.rounds import RoundConfig
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.universe.bins import in_bins
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.schemas import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIMUM = -1
"""The round of optimal views, which are no result of a round."""
ROWS_PER_BATCH = 1 << 16

OVERLAYS = StructType(
    [
        StructField("topic", LongType(), False),
        StructField("round", IntegerType(), False),
        StructField("nodes", LongType(), False),
        StructField("view_size", LongType(), False),
        *(
            StructField(name, LongType() if name in WHOLE else DoubleType(), False)
            for name in COLUMNS
        ),
    ]
)
"""The metrics of a topic's overlay after a round (`cubecast.kernel.rounds.OverlayMetrics`)."""

IN_DEGREES = StructType(
    [
        StructField("topic", LongType(), False),
        StructField("round", IntegerType(), False),
        StructField("in_degree", LongType(), False),
        StructField("nodes", LongType(), False),
    ]
)
"""How many nodes of a topic's overlay are in so many views of it."""


def overlays(
    subscriptions: DataFrame,
    config: RoundConfig,
    rounds: Sequence[int] = (0, 8),
    *,
    run: int = 0,
    bins: int | None = None,
) -> DataFrame:
    """The view of every subscription after each of these rounds, as `schemas.VIEWS`.

    A pair that comes twice counts once.  The number of bins follows from the subscriptions and the
    cores unless it is given.
    """
    task = PlayTask(config, _checked(rounds), run)
    return map_in_arrow(in_bins(subscriptions, config, bins), task, VIEWS)


def overlay_table(
    subscriptions: DataFrame,
    config: RoundConfig,
    rounds: Sequence[int] = (0, 8),
    *,
    run: int = 0,
    exact_up_to: int = EXACT_UP_TO,
    sources: int = SOURCES,
    bins: int | None = None,
) -> DataFrame:
    """The metrics of every topic's overlay after each of these rounds, as `OVERLAYS`.

    The overlays are played again where their metrics are computed: that is cheaper than moving
    their views.  Topics with one subscriber have no overlay and no row.
    """
    task = MetricsTask(config, _checked(rounds), run, exact_up_to, sources)
    return map_in_arrow(in_bins(subscriptions, config, bins), task, OVERLAYS)


def in_degree_table(
    subscriptions: DataFrame,
    config: RoundConfig,
    rounds: Sequence[int] = (0, 8),
    *,
    run: int = 0,
    bins: int | None = None,
) -> DataFrame:
    """The distribution of in-degrees in every topic's overlay, as `IN_DEGREES`."""
    task = InDegreeTask(config, _checked(rounds), run)
    return map_in_arrow(in_bins(subscriptions, config, bins), task, IN_DEGREES)


def optimum(
    subscriptions: DataFrame,
    config: RoundConfig,
    share: float | None = None,
    *,
    run: int = 0,
    bins: int | None = None,
) -> DataFrame:
    """Optimal views, as `schemas.VIEWS` with round `OPTIMUM`: the k lightest co-subscribers.

    For all users, or for a share of them with all of their topics.  Without `share` it is all if
    no topic has more than 20,000 subscribers, else as many as keep the work in proportion.
    """
    if share is None:
        largest = subscriptions.groupBy("topic").count().agg({"count": "max"}).first()
        share = default_share(int(largest[0] or 0) if largest is not None else 0)
    return map_in_arrow(
        in_bins(subscriptions, config, bins), OptimumTask(config, share, run), VIEWS
    )


def _checked(rounds: Sequence[int]) -> tuple[int, ...]:
    if not rounds or min(rounds) < 0:
        raise UniverseError(f"rounds must be numbers from 0 on, not {tuple(rounds)}")
    return tuple(sorted(set(rounds)))


# -- on executors ----------------------------------------------------------------------------------

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class PlayTask:
    """Plays the topics of a partition and gives the views of the wanted rounds."""

    config: RoundConfig
    rounds: tuple[int, ...]
    run: int

    def __call__(self, batches: Batches) -> Batches:
        played = self.played(batches)
        topics, sizes = played.subscription_topics(), played.subscription_sizes()
        for round_ in self.rounds if len(topics) else ():
            yield from view_batches(topics, played.members, round_, sizes, played.ids(round_))

    def played(self, batches: Batches) -> Played:
        """All topics of the partition through all rounds."""
        return play_overlays(subscribers_of(batches), self.config, self.rounds, run=self.run)


@dataclass(frozen=True, slots=True)
class MetricsTask(PlayTask):
    """Plays the topics of a partition and gives the metrics of their overlays."""

    exact_up_to: int
    sources: int

    def __call__(self, batches: Batches) -> Batches:
        played = self.played(batches)
        linked = played.sizes > 0
        for round_ in self.rounds:
            metrics = overlay_metrics(
                played, round_, run=self.run, exact_up_to=self.exact_up_to, sources=self.sources
            )
            columns = [
                metrics.topics,
                np.full(len(metrics.topics), round_, np.int32),
                metrics.nodes,
                metrics.view_sizes,
                *(getattr(metrics, name) for name in COLUMNS),
            ]
            yield _batch([column[linked] for column in columns], OVERLAYS)


class InDegreeTask(PlayTask):
    """Plays the topics of a partition and counts nodes by in-degree."""

    __slots__ = ()

    def __call__(self, batches: Batches) -> Batches:
        played = self.played(batches)
        topics = played.subscription_topics()
        linked = played.subscription_sizes() > 0
        for round_ in self.rounds:
            pairs = np.stack([topics[linked], in_degrees(played, round_)[linked]])
            (topic, degree), counts = np.unique(pairs, axis=1, return_counts=True)
            yield _batch([topic, np.full(len(topic), round_, np.int32), degree, counts], IN_DEGREES)


@dataclass(frozen=True, slots=True)
class OptimumTask:
    """Finds the optimal views of the topics of a partition."""

    config: RoundConfig
    share: float
    run: int

    def __call__(self, batches: Batches) -> Batches:
        best = optimal_views(subscribers_of(batches), self.config, self.share, run=self.run)
        yield from view_batches(best.topics, best.users, OPTIMUM, best.sizes, best.ids)


def subscribers_of(batches: Batches) -> Subscribers:
    """All subscriptions of a partition."""
    users, topics = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in batches:
        users.append(batch.column("user").to_numpy(zero_copy_only=False))
        topics.append(batch.column("topic").to_numpy(zero_copy_only=False))
    return Subscribers.of_pairs(np.concatenate(users), np.concatenate(topics))


def view_batches(topics: Longs, users: Longs, round_: int, sizes: Longs, ids: Longs) -> Batches:
    """Views as Arrow lists that are cut from flat arrays, some rows at a time."""
    ends = np.concatenate(([0], np.cumsum(sizes)))
    for begin in range(0, len(users), ROWS_PER_BATCH):
        end = min(begin + ROWS_PER_BATCH, len(users))
        offsets = (ends[begin : end + 1] - ends[begin]).astype(np.int32)
        views = pa.ListArray.from_arrays(
            pa.array(offsets), pa.array(ids[ends[begin] : ends[end]], pa.int64())
        )
        rounds = np.full(end - begin, round_, np.int32)
        yield _batch([topics[begin:end], users[begin:end], rounds, views], VIEWS)


def _batch(columns: Sequence[object], schema: StructType) -> pa.RecordBatch:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)
