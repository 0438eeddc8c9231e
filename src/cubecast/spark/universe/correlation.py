"""How strongly the subscriptions to topics go together ([N] 3.2, Figure 5).

[N] takes the matrix with a row for each subscriber and a column of zeros and ones for each topic,
and the Pearson correlation of its columns.  For two such columns that is phi, which follows from
counts: with n nodes, a and b subscribers, and c of both,
``(n c - a b) / sqrt(a (n - a) b (n - b))``.

Counts of all pairs of topics are many: they are made for chosen topics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cubecast.overlay.universes.streams import Doubles, Longs
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.universe.groups import by_key, groups, partitions_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS = 600
"""The number of compared topics unless told otherwise; L8 and W8 have fewer."""
MOST_TOPICS = 3_000
CELLS_AT_ONCE = 1 << 22
"""A task fills at most so many cells of the matrix of users and topics at a time."""
MILD, STRONG = 0.1, 0.3


@dataclass(frozen=True)
class Correlation:
    """The Pearson correlation of some topics."""

    topics: Longs
    matrix: Doubles
    """One row and column for each topic; a topic with all users or none has zeros."""

    @property
    def apart(self) -> Doubles:
        """The correlation of each two different topics, once."""
        found: Doubles = self.matrix[np.triu_indices(len(self.topics), 1)]
        return found

    @property
    def mean(self) -> float:
        return float(self.apart.mean()) if len(self.topics) > 1 else 0.0

    def share_above(self, bound: float) -> float:
        """The share of pairs of topics with a correlation above this."""
        return float((self.apart > bound).mean()) if len(self.topics) > 1 else 0.0


def largest_topics(subscriptions: DataFrame, count: int = TOPICS) -> Longs:
    """The topics with most subscribers, the lower id first among equals, in the order of ids."""
    from pyspark.sql import functions as F

    sizes = subscriptions.groupBy("topic").agg(F.count("*").alias("size"))
    rows = sizes.orderBy(F.desc("size"), "topic").limit(count).select("topic").collect()
    return np.array(sorted(row[0] for row in rows), dtype=np.int64)


def correlation(subscriptions: DataFrame, topics: Longs, nodes: int) -> Correlation:
    """The correlation of these topics in a universe of so many nodes."""
    topics = np.unique(topics)
    return Correlation(topics, pearson(co_counts(subscriptions, topics), nodes))


def co_counts(subscriptions: DataFrame, topics: Longs) -> Longs:
    """How many users subscribe to both of two topics, for all pairs of the chosen ones.

    The diagonal has the subscribers of each.
    """
    from pyspark.sql import functions as F

    if len(topics) > MOST_TOPICS:
        raise ValueError(f"at most {MOST_TOPICS:,} topics can be compared, not {len(topics):,}")
    import pyarrow as pa

    session = subscriptions.sparkSession
    chosen = F.broadcast(session.createDataFrame(pa.table({"topic": pa.array(topics)})))
    of_users = by_key(subscriptions.join(chosen, "topic"), "user", partitions_for(subscriptions))
    counted = map_in_arrow(
        of_users, partial(_counted, topics=topics), "row int, column int, users long"
    )
    sums: Any = counted.groupBy("row", "column").agg(F.sum("users").alias("users")).toArrow()
    matrix = np.zeros((len(topics), len(topics)), dtype=np.int64)
    row, column, users = (np.asarray(sums.column(name)) for name in ("row", "column", "users"))
    matrix[row, column] = users
    return matrix


def _counted(batches: Iterator[Any], topics: Longs) -> Iterator[Any]:
    """The counts of one partition, those above zero."""
    import pyarrow as pa

    total = np.zeros((len(topics), len(topics)), dtype=np.int64)
    users_at_once = max(1, CELLS_AT_ONCE // max(1, len(topics)))
    for found in groups(batches):
        place = np.searchsorted(topics, found.values)
        user = np.repeat(np.arange(len(found.keys)), found.sizes)
        for start in range(0, len(found.keys), users_at_once):
            stop = min(start + users_at_once, len(found.keys))
            part = slice(found.offsets[start], found.offsets[stop])
            cells = np.zeros((stop - start, len(topics)), dtype=np.float32)
            cells[user[part] - start, place[part]] = 1
            # Sums of ones stay exact: a chunk has far fewer than 2^24 users.
            total += (cells.T @ cells).astype(np.int64)
    row, column = np.nonzero(total)
    columns = {
        "row": pa.array(row.astype(np.int32)),
        "column": pa.array(column.astype(np.int32)),
        "users": pa.array(total[row, column]),
    }
    yield pa.RecordBatch.from_pydict(columns)


def pearson(both: Longs, nodes: int) -> Doubles:
    """Phi of each two topics, from the counts of users with both."""
    sizes = both.diagonal().astype(float)
    spread = np.sqrt(sizes * (nodes - sizes))
    scale = np.outer(spread, spread)
    distance = nodes * both.astype(float) - np.outer(sizes, sizes)
    phi: Doubles = np.divide(distance, scale, out=np.zeros_like(scale), where=scale > 0)
    return phi
