"""Physical views on Spark: how many different neighbours a node has over all of its topics.

The views of a node in a round are brought together by one partition by node.  Inside a partition
they are sorted and counted by compiled code; no link becomes a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from cubecast.kernel.rounds import physical_view_sizes
from cubecast.spark.frames import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW_SIZES = StructType(
    [
        StructField("user", LongType(), False),
        StructField("round", IntegerType(), False),
        StructField("logical", LongType(), False),
        StructField("physical", LongType(), False),
    ]
)
"""Links of a user over all topics after a round, and the different users they lead to."""


def physical_views(views: DataFrame, partitions: int | None = None) -> DataFrame:
    """Logical and physical view size of each user in each round, as `VIEW_SIZES`.

    A task holds its partition: some 100 bytes per view.  Without `partitions` their number is
    Spark's setting for shuffles, which a session for large data sets by itself (`spark.large`).
    """
    wanted = views.select("user", "round", "view")
    by_user = (
        wanted.repartition("user") if partitions is None else wanted.repartition(partitions, "user")
    )
    return map_in_arrow(by_user, _sizes, VIEW_SIZES)


def improvement(sizes: DataFrame, first: int = 0, last: int = 8) -> DataFrame:
    """(user, initial, final, improvement): 1 - final / initial of each user's physical view.

    Users without any link are left out: their topics have no other subscriber.
    """
    from pyspark.sql import functions as F

    before = sizes.where(F.col("round") == first).select("user", F.col("physical").alias("initial"))
    after = sizes.where(F.col("round") == last).select("user", F.col("physical").alias("final"))
    pairs = before.join(after, "user").where("initial > 0")
    return pairs.withColumn("improvement", 1 - F.col("final") / F.col("initial"))


def improvement_by_initial_size(improved: DataFrame, above: float = 0.4) -> DataFrame:
    """Users, mean final size and improvement for each initial size ([N] Figure 7), sorted by it.

    `large_share` is the share of users that improve by more than `above`, `worse_share` that of
    users whose physical view grew.
    """
    from pyspark.sql import functions as F

    return (
        improved.groupBy("initial")
        .agg(
            F.count("*").alias("users"),
            F.avg("final").alias("final_mean"),
            F.avg("improvement").alias("improvement_mean"),
            F.avg((F.col("improvement") > above).cast("double")).alias("large_share"),
            F.avg((F.col("improvement") < 0).cast("double")).alias("worse_share"),
        )
        .orderBy("initial")
    )


def mean_sizes(sizes: DataFrame) -> DataFrame:
    """(round, users, logical, physical): means over users that have links, sorted by round."""
    from pyspark.sql import functions as F

    return (
        sizes.where("logical > 0")
        .groupBy("round")
        .agg(
            F.count("*").alias("users"),
            F.avg("logical").alias("logical"),
            F.avg("physical").alias("physical"),
        )
        .orderBy("round")
    )


def _sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: all views of some users in, one row per user and round out."""
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    del held
    views = pa.concat_arrays(table["view"].chunks) if len(table) else None
    if views is None:
        return
    sizes = np.diff(views.offsets.to_numpy()).astype(np.int64)
    found = physical_view_sizes(
        table["user"].to_numpy(),
        table["round"].to_numpy().astype(np.int64),
        sizes,
        views.flatten().to_numpy(zero_copy_only=False),
    )
    columns = [found.users, found.rounds.astype(np.int32), found.logical, found.physical]
    yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=VIEW_SIZES.names)
