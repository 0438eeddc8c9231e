"""Events that spread over overlays, on Spark: publications and views in, counts per event out.

Overlays are shared by all events, and events never meet.  So the views of a round become one
network (`cubecast.kernel.gossip.GossipNetwork`), written once to the job's folder; each process
maps it into memory, and the processes of a machine share one copy.  Events are spread over tasks by
Arrow batches.  The fate of a message depends on run, event, sender and receiver alone: the counts
depend on neither the partitions nor the master.

Memory: a network takes 4 bytes per link, 20 per subscription and 16 per user (Ask Ubuntu's topics
with 30 subscribers or more: 654,099 subscriptions, 8.1 million links, 48 MB).  A task adds 13 bytes
per user and one batch of events.  The driver lays the network out: for a while it holds some 32
bytes per link (by the sizes of its arrays).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from cubecast.kernel.errors import KernelError
from cubecast.kernel.gossip import (
    GossipConfig,
    GossipEvents,
    GossipNetwork,
    Spread,
    dead_users,
    make_events,
    network_of_views,
    spread,
)
from cubecast.kernel.gossip.engine import COLUMNS
from cubecast.kernel.gossip.events import NO_AUTHOR
from cubecast.spark.errors import LabError
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.schemas import SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EVENTS_PER_TASK = 2_000
"""Some seconds of work each with topics of ten thousand subscribers."""
LISTS = ("topics", "topic_due", "topic_reached")

SPREADS = StructType(
    [
        StructField("post", LongType(), False),
        *(StructField(name, LongType(), False) for name in COLUMNS),
        *(StructField(name, ArrayType(LongType(), False), False) for name in LISTS),
    ]
)
"""The outcome of an event (`cubecast.kernel.gossip.Spread`); `topics` are those of the network."""

Batches = Iterator[pa.RecordBatch]


# -- events ----------------------------------------------------------------------------------------


def with_authors(publications: DataFrame, participants: DataFrame) -> DataFrame:
    """Publications, with a random participant in place of an unknown author.

    The participant is the one with the least hash of post and user, the same in every run.
    """
    from pyspark.sql import functions as F

    chosen = participants.groupBy("post").agg(
        F.min_by("user", F.xxhash64("post", "user")).alias("participant")
    )
    joined = publications.join(chosen, "post", "left")
    return joined.withColumn("user", F.coalesce("user", "participant")).select(publications.columns)


def with_topic(publications: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Publications that have a topic with a subscriber."""
    from pyspark.sql import functions as F

    topics = subscriptions.select("topic").distinct()
    named = publications.select("post", F.explode("topics").alias("topic"))
    posts = named.join(topics, "topic", "left_semi").select("post").distinct()
    return publications.join(posts, "post", "left_semi")


def sample(publications: DataFrame, count: int) -> DataFrame:
    """So many publications, or all: those with the least hashes, the same in every run."""
    from pyspark.sql import functions as F

    return publications.orderBy(F.xxhash64("post"), "post").limit(count)


def survivors(subscriptions: DataFrame, dead: float, *, run: int = 0) -> DataFrame:
    """The subscriptions of users that are alive (`cubecast.kernel.gossip.dead_users`)."""
    if not dead:
        return subscriptions
    frame = subscriptions.select("user", "topic")
    return map_in_arrow(frame, AliveTask(dead, run), SUBSCRIPTIONS)


# -- networks --------------------------------------------------------------------------------------


def write_views(views: DataFrame, folder: Path) -> Path:
    """Keep the views of some rounds for `lay_out`, in a folder that driver and executors see."""
    place = folder / f"views-{uuid4().hex}"
    views.select("topic", "user", "round", "view").write.parquet(str(place))
    return place


def lay_out(views: Path, round_: int, back: int = 0) -> Path:
    """Make the network of a round of kept views, beside them; return its folder.

    No two networks have the same folder, so that a worker's mapped network is never out of date.
    """
    table = pq.read_table(
        views, columns=["topic", "user", "view"], filters=[("round", "=", round_)]
    )
    if not table.num_rows:
        raise UniverseError(f"there are no views of round {round_}")
    lists = table["view"].combine_chunks()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    try:
        network = network_of_views(
            table["topic"].to_numpy(),
            table["user"].to_numpy(),
            offsets - offsets[0],
            lists.flatten().to_numpy(),
            back,
        )
    except KernelError as error:
        raise UniverseError(str(error)) from None
    place = views.with_name(f"network-{uuid4().hex}")
    network.save(place)
    return place


# -- spreading -------------------------------------------------------------------------------------


def disseminate(
    publications: DataFrame,
    network: Path,
    config: GossipConfig,
    *,
    run: int = 0,
    partitions: int | None = None,
) -> DataFrame:
    """Send every publication over the network in a folder, as `SPREADS`.

    A publication without author, or with one that does not subscribe, is handed to a random
    subscriber of each topic.  One without topics of the network has a row of zeros.
    """
    if partitions is None:
        cores = publications.sparkSession.sparkContext.defaultParallelism
        partitions = max(cores, -(-publications.count() // EVENTS_PER_TASK))
    frame = publications.select("post", "user", "topics").repartition(partitions)
    return map_in_arrow(frame, SpreadTask(str(network), config, run), SPREADS)


def totals(spreads: DataFrame) -> DataFrame:
    """One row: sums over all events that have a topic, and how many had none.

    `complete` counts events that miss no subscriber.  `topic_due` and `topic_reached` count a
    subscriber once for each topic of the event that it subscribes to.
    """
    from pyspark.sql import functions as F

    def total(column: Column | str) -> Column:
        return F.coalesce(F.sum(column), F.lit(0))

    def of_list(name: str) -> Column:
        return F.aggregate(name, F.lit(0).cast("long"), lambda sum_, one: sum_ + one)

    has_topic = F.size("topics") > 0
    complete = has_topic & (F.col("due") == F.col("reached"))
    return spreads.agg(
        total(has_topic.cast("long")).alias("events"),
        total((~has_topic).cast("long")).alias("without_topic"),
        total(complete.cast("long")).alias("complete"),
        *(total(name).alias(name) for name in COLUMNS if name != "last_round"),
        *(total(of_list(name)).alias(name) for name in ("topic_due", "topic_reached")),
        total("last_round").alias("last_rounds"),
        F.coalesce(F.max("last_round"), F.lit(0)).alias("last_round"),
    )


# -- on executors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AliveTask:
    """Leaves out the rows of dead users."""

    dead: float
    run: int

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            users = batch.column("user").to_numpy(zero_copy_only=False)
            yield batch.filter(pa.array(~dead_users(users, self.dead, self.run)))


@dataclass(frozen=True, slots=True)
class SpreadTask:
    """Sends the events of a partition over a network."""

    network: str
    config: GossipConfig
    run: int

    def __call__(self, batches: Batches) -> Batches:
        network = None
        for batch in batches:
            network = network or _mapped(self.network)
            found = spread(network, events_of(batch), self.config, run=self.run)
            yield spread_batch(batch.column("post"), found)


@lru_cache(maxsize=1)
def _mapped(folder: str) -> GossipNetwork:
    """Map a network; the tasks that one Python worker runs, one after the other, share it."""
    try:
        return GossipNetwork.load(Path(folder))
    except KernelError as error:
        raise LabError(f"{error}; all executors must see the job's folder") from None


def events_of(batch: pa.RecordBatch) -> GossipEvents:
    """Rows of `post`, `user` and `topics` as events."""
    topics: Any = batch.column("topics")
    offsets = topics.offsets.to_numpy().astype(np.int64)
    return make_events(
        batch.column("post").to_numpy(zero_copy_only=False),
        batch.column("user").fill_null(NO_AUTHOR).to_numpy(zero_copy_only=False),
        offsets - offsets[0],
        topics.flatten().to_numpy(zero_copy_only=False),
    )


def spread_batch(posts: pa.Array, found: Spread) -> pa.RecordBatch:
    """Counts as rows of `SPREADS`."""
    offsets = pa.array(found.offsets.astype(np.int32))
    columns = [
        posts,
        *(pa.array(getattr(found, name)) for name in COLUMNS),
        *(pa.ListArray.from_arrays(offsets, pa.array(getattr(found, name))) for name in LISTS),
    ]
    return pa.RecordBatch.from_arrays(columns, names=SPREADS.names)
