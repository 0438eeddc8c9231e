"""Topics in bins of equal work: one bin is one task, which plays all rounds of its topics.

The work of a topic is n (ttl + 1) (k + 1) ids a round.  Topics are dealt out largest first, each to
the bin with the least work so far, and bins are numbered by falling work: Spark starts partitions
in their order, so the heaviest begins first.  Results do not depend on the bins.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cubecast.kernel.rounds.arithmetic import Longs
from cubecast.kernel.rounds.play import view_sizes
from cubecast.overlay.rounds import RoundConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUBSCRIPTIONS_PER_BIN = 250_000
"""The most subscriptions of a task: some 50 MB with the views of two rounds."""


def work_of(counts: Longs, config: RoundConfig) -> Longs:
    """Ids that the walks of one round of a topic look at."""
    return counts * (config.ttl + 1) * (view_sizes(counts, config) + 1)


def number_of_bins(counts: Longs, cores: int) -> int:
    """Enough for every core, and for no bin to hold too much; no more than there are topics."""
    wanted = max(cores, -(-int(counts.sum()) // SUBSCRIPTIONS_PER_BIN))
    return max(1, min(wanted, len(counts)))


def bins_of(work: Longs, bins: int) -> Longs:
    """The bin of each topic, bin 0 having the most work."""
    lightest = [(0, number) for number in range(bins)]
    dealt = np.zeros(len(work), np.int64)
    for topic in np.argsort(-work, kind="stable").tolist():
        load, number = lightest[0]
        dealt[topic] = number
        heapq.heapreplace(lightest, (load + int(work[topic]), number))
    by_work = sorted(lightest, key=lambda bin_: (-bin_[0], bin_[1]))
    renumbered = np.zeros(bins, np.int64)
    renumbered[[number for _, number in by_work]] = np.arange(bins)
    result: Longs = renumbered[dealt]
    return result


def in_bins(subscriptions: DataFrame, config: RoundConfig, bins: int | None = None) -> DataFrame:
    """Users and topics, partitioned so that each bin is one partition.

    Counts the subscribers of each topic first, so the table is read twice: keep an expensive one in
    Parquet or in a cache.
    """
    from pyspark.sql import functions as F

    session = subscriptions.sparkSession
    counted = subscriptions.groupBy("topic").count().toArrow().sort_by("topic")
    counts = counted["count"].to_numpy().astype(np.int64)
    if bins is None:
        bins = number_of_bins(counts, session.sparkContext.defaultParallelism)
    dealt = bins_of(work_of(counts, config), bins)
    columns = {"topic": counted["topic"], "bin": pa.array(dealt.astype(np.int32))}
    places = session.createDataFrame(pa.table(columns))
    binned = subscriptions.select("user", "topic").join(F.broadcast(places), "topic")
    return binned.repartitionById(bins, F.col("bin")).select("user", "topic")
