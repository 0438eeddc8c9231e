"""Sorted pairs as groups: all values of a key at once, however Arrow cuts the rows.

A table that is partitioned by a key, and sorted by it inside each partition, comes to Python in
record batches that may end in the middle of a key.  `groups` joins the parts of a key, so that
Spark never has to hold the list of a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cubecast.overlay.universes.streams import Longs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAIRS_PER_PARTITION = 2_000_000


@dataclass(frozen=True)
class Groups:
    """The values of keys[i] are values[offsets[i]:offsets[i + 1]], in rising order."""

    keys: Longs
    offsets: Longs
    values: Longs

    @property
    def sizes(self) -> Longs:
        return np.diff(self.offsets)


def by_key(subscriptions: DataFrame, key: str, partitions: int) -> DataFrame:
    """Pairs partitioned by one of their columns and sorted by it, then by the other."""
    other = "topic" if key == "user" else "user"
    return (
        subscriptions.select(key, other)
        .repartition(partitions, key)
        .sortWithinPartitions(key, other)
    )


def partitions_for(subscriptions: DataFrame) -> int:
    """So many that one fits in a task's memory, and no core is idle; counts the pairs."""
    cores = subscriptions.sparkSession.sparkContext.defaultParallelism
    return max(cores, -(-subscriptions.count() // PAIRS_PER_PARTITION))


def groups(batches: Iterator[Any]) -> Iterator[Groups]:
    """Whole groups out of record batches of (key, value), sorted by key."""
    keys, values = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for batch in batches:
        keys = np.concatenate([keys, np.asarray(batch.column(0), dtype=np.int64)])
        values = np.concatenate([values, np.asarray(batch.column(1), dtype=np.int64)])
        # The last key of a batch may go on in the next one.
        whole = int(np.searchsorted(keys, keys[-1])) if len(keys) else 0
        if whole:
            yield _grouped(keys[:whole], values[:whole])
            keys, values = keys[whole:], values[whole:]
    if len(keys):
        yield _grouped(keys, values)


def _grouped(keys: Longs, values: Longs) -> Groups:
    distinct, starts = np.unique(keys, return_index=True)
    return Groups(distinct, np.append(starts, len(keys)).astype(np.int64), values)
