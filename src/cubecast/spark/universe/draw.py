"""Self-contained universes ([N] 3.1), drawn many at a time.

A draw takes random seed topics S.  U are the subscribers of S.  S' is S and one topic of each user
in U: its own journal where `journals` has one, else a random one of its topics.  The draw keeps the
pairs of U and S', then drops topics with fewer than `smallest` subscribers inside, then nodes
without topic.  [N] makes 100 draws and keeps the one with the median ratio of topics to nodes;
of an even number we take the lower median.

All draws are made together: each topic and user has one bit per draw (`masks`), and the table of
pairs is read four times, whatever the number of draws.

====================  ==============================================================================
users                 a user is in a draw if one of its topics is a seed: bit_or by user
topics                a topic is in S' if it is a seed or a user's own: bit_or by topic
kept topics           a topic is kept if enough of its subscribers are in the draw: counts by topic
sizes                 nodes and pairs that the kept topics leave: counts by user
====================  ==============================================================================

The driver and each task hold the masks of all topics or users, 24 bytes each for 100 draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cubecast.overlay.universes.streams import Longs
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.universe.groups import Groups, by_key, groups, partitions_for
from cubecast.spark.universe.masks import Masks, bits, packed, picked, seed_masks, words_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALLEST = 30
DRAWS = 100
MOST_DRAWS = 1_000
PAIRS_AT_ONCE = 1 << 18
"""So many pairs are looked at together, with a byte for each draw."""


@dataclass(frozen=True)
class Draw:
    """The size of one drawn universe."""

    number: int
    topics: int
    nodes: int
    pairs: int

    @property
    def ratio(self) -> float:
        """Topics for each node; 0 where nothing is left."""
        return self.topics / self.nodes if self.nodes else 0.0


@dataclass(frozen=True)
class Draws:
    """All draws of a number of seeds, and the one that is kept."""

    seeds: int
    sizes: tuple[Draw, ...]
    chosen: Draw
    subscriptions: DataFrame
    """The pairs of the chosen draw."""

    def table(self, session: SparkSession) -> DataFrame:
        """One row for each draw."""
        rows = [
            (
                self.seeds,
                one.number,
                one.topics,
                one.nodes,
                one.pairs,
                one.ratio,
                one == self.chosen,
            )
            for one in self.sizes
        ]
        columns = "seeds int, draw int, topics long, nodes long, pairs long, ratio double"
        return session.createDataFrame(rows, f"{columns}, chosen boolean")


def draw(
    subscriptions: DataFrame,
    seeds: int,
    draws: int = DRAWS,
    smallest: int = SMALLEST,
    run: int = 0,
    journals: DataFrame | None = None,
    tell: Callable[[str], object] = lambda step: None,
) -> Draws:
    """Draw universes of this many seed topics and keep the one with the lower median ratio.

    `journals` has the columns user and topic: the journal of each user that has one.  A user
    without a journal takes a random one of its topics.
    """
    [found] = draw_each(subscriptions, [seeds], draws, smallest, run, journals, tell)
    return found


def draw_each(
    subscriptions: DataFrame,
    seeds: list[int],
    draws: int = DRAWS,
    smallest: int = SMALLEST,
    run: int = 0,
    journals: DataFrame | None = None,
    tell: Callable[[str], object] = lambda step: None,
) -> Iterator[Draws]:
    """`draw` for several numbers of seeds; the table of pairs is partitioned once."""
    from pyspark import StorageLevel

    if not 1 <= draws <= MOST_DRAWS:
        raise ValueError(f"between 1 and {MOST_DRAWS:,} draws are possible, not {draws:,}")
    if smallest < 1:
        raise ValueError(f"a topic has at least 1 subscriber, so {smallest} is no bound")
    tell("reading the pairs")
    topics = _distinct(subscriptions, "topic")
    for number in seeds:
        if not 1 <= number <= len(topics):
            raise ValueError(f"cannot draw {number:,} of {len(topics):,} topics")
    parts = partitions_for(subscriptions)
    of_users = by_key(subscriptions, "user", parts).persist(StorageLevel.DISK_ONLY)
    of_topics = by_key(subscriptions, "topic", parts).persist(StorageLevel.DISK_ONLY)
    job = _Job(subscriptions, of_users, of_topics, topics, draws, smallest, run, journals, tell)
    try:
        for number in seeds:
            yield job.drawn(number)
    finally:
        of_users.unpersist()
        of_topics.unpersist()


def pruned(subscriptions: DataFrame, smallest: int = SMALLEST) -> DataFrame:
    """The pairs of topics with at least so many subscribers.

    A trace with a long tail of tiny topics gives almost empty draws; pruned first, its seeds are
    topics that a draw can keep.
    """
    from pyspark.sql import functions as F

    sizes = subscriptions.groupBy("topic").agg(F.count("*").alias("size"))
    kept = sizes.where(F.col("size") >= smallest).select("topic")
    return subscriptions.join(kept, "topic").select("user", "topic")


def lower_median(sizes: tuple[Draw, ...]) -> Draw:
    """The draw with the median ratio; of an even number the lower one, of equals the first."""
    ordered = sorted(sizes, key=lambda one: (one.ratio, one.number))
    return ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True)
class _Job:
    subscriptions: DataFrame
    of_users: DataFrame
    of_topics: DataFrame
    topics: Longs
    draws: int
    smallest: int
    run: int
    journals: DataFrame | None
    tell: Callable[[str], object]

    def drawn(self, seeds: int) -> Draws:
        """The four steps, for one number of seeds."""

        def say(step: str) -> None:
            self.tell(f"{seeds:,} seeds, {self.draws:,} draws: {step}")

        say("their subscribers")
        seeded = seed_masks(self.run, self.topics, seeds, self.draws)
        users = self._masks(partial(_joined, masks=seeded), self.of_users)
        say("the users' own topics")
        added = seeded.union(self._own_topics(users))
        say("topics with enough subscribers")
        keep = partial(
            _kept_topics, users=users, added=added, smallest=self.smallest, draws=self.draws
        )
        kept = self._masks(keep, self.of_topics)
        say("sizes")
        sizes = self._sizes(users, kept)
        chosen = lower_median(sizes)
        return Draws(seeds, sizes, chosen, self._pairs(users, kept, chosen.number))

    def _own_topics(self, users: Masks) -> Masks:
        """The journals of users; random topics of those that have none."""
        if self.journals is None:
            return self._random_topics(users)
        own = by_key(self.journals.select("user", "topic"), "topic", 1)
        journals = self._masks(partial(_joined, masks=users), own)
        others = users.without(_distinct(self.journals, "user"))
        return journals.union(self._random_topics(others))

    def _random_topics(self, users: Masks) -> Masks:
        pick = partial(_picked_topics, users=users, run=self.run, draws=self.draws)
        return self._masks(pick, self.of_users)

    def _sizes(self, users: Masks, kept: Masks) -> tuple[Draw, ...]:
        from pyspark.sql import functions as F

        count = partial(_counted, users=users, kept=kept, draws=self.draws)
        counted = map_in_arrow(self.of_users, count, "draw int, nodes long, pairs long")
        sums = counted.groupBy("draw").agg(F.sum("nodes"), F.sum("pairs")).collect()
        found = {row[0]: (int(row[1]), int(row[2])) for row in sums}
        return tuple(
            Draw(number, int(topics), *found.get(number, (0, 0)))
            for number, topics in enumerate(kept.counts(self.draws))
        )

    def _pairs(self, users: Masks, kept: Masks, number: int) -> DataFrame:
        """The pairs of one draw; a node without kept topic has no pair."""
        session = self.subscriptions.sparkSession
        nodes = _ids(session, users.within(number), "user")
        topics = _ids(session, kept.within(number), "topic")
        return self.subscriptions.join(topics, "topic").join(nodes, "user").select("user", "topic")

    def _masks(self, step: Any, frame: DataFrame) -> Masks:
        """Run a step that yields ids with masks, join those of the same id, and gather them."""
        from pyspark.sql import functions as F

        words = [f"word{i}" for i in range(words_for(self.draws))]
        schema = ", ".join(["id long", *(f"{word} long" for word in words)])
        found = map_in_arrow(frame, step, schema)
        joined = found.groupBy("id").agg(*(F.bit_or(word).alias(word) for word in words))
        return _gathered(joined, words)


def _distinct(frame: DataFrame, column: str) -> Longs:
    """The ids in a column, in rising order."""
    table: Any = frame.select(column).distinct().toArrow()
    return np.sort(np.asarray(table.column(0), dtype=np.int64))


def _gathered(frame: DataFrame, words: list[str]) -> Masks:
    table: Any = frame.toArrow()
    ids = np.asarray(table.column("id"), dtype=np.int64)
    rows = [np.asarray(table.column(word), dtype=np.int64).view(np.uint64) for word in words]
    order = np.argsort(ids)
    return Masks(ids[order], np.stack(rows, axis=1)[order])


def _ids(session: SparkSession, ids: Longs, name: str) -> DataFrame:
    import pyarrow as pa

    return session.createDataFrame(pa.table({name: pa.array(ids)}))


# -- tasks -----------------------------------------------------------------------------------------


def _pieces(batches: Iterator[Any]) -> Iterator[Groups]:
    """Groups of at most `PAIRS_AT_ONCE` pairs together; a larger group comes alone."""
    for found in groups(batches):
        start = 0
        while start < len(found.keys):
            limit = found.offsets[start] + PAIRS_AT_ONCE
            stop = max(start + 1, int(np.searchsorted(found.offsets, limit, side="right")) - 1)
            first, last = found.offsets[start], found.offsets[stop]
            offsets = found.offsets[start : stop + 1] - first
            yield Groups(found.keys[start:stop], offsets, found.values[first:last])
            start = stop


def _batch(masks: Masks) -> Any:
    """Ids with masks, without those that are in no draw, as a record batch."""
    import pyarrow as pa

    some = masks.words.any(axis=1)
    columns = {"id": pa.array(masks.ids[some])}
    for i in range(masks.words.shape[1]):
        columns[f"word{i}"] = pa.array(np.ascontiguousarray(masks.words[some, i]).view(np.int64))
    return pa.RecordBatch.from_pydict(columns)


def _joined(batches: Iterator[Any], masks: Masks) -> Iterator[Any]:
    """Each key with the draws of all of its values."""
    for piece in _pieces(batches):
        words = np.bitwise_or.reduceat(masks.of(piece.values), piece.offsets[:-1], axis=0)
        yield _batch(Masks(piece.keys, words))


def _picked_topics(batches: Iterator[Any], users: Masks, run: int, draws: int) -> Iterator[Any]:
    """Topics with the draws in which a user of the draw picks them."""
    for piece in _pieces(batches):
        row, number = np.nonzero(bits(users.of(piece.keys), draws))
        place = picked(run, piece.keys[row], number, piece.sizes[row])
        topics, at = np.unique(piece.values[piece.offsets[row] + place], return_inverse=True)
        flags = np.zeros((len(topics), draws), dtype=np.bool_)
        flags[at, number] = True
        yield _batch(Masks(topics, packed(flags)))


def _kept_topics(
    batches: Iterator[Any], users: Masks, added: Masks, smallest: int, draws: int
) -> Iterator[Any]:
    """Topics with the draws in which they have enough subscribers."""
    for piece in _pieces(batches):
        inside = bits(users.of(piece.values), draws)
        counts = np.add.reduceat(inside, piece.offsets[:-1], axis=0, dtype=np.int64)
        yield _batch(Masks(piece.keys, packed(counts >= smallest) & added.of(piece.keys)))


def _counted(batches: Iterator[Any], users: Masks, kept: Masks, draws: int) -> Iterator[Any]:
    """How many users of a partition have a kept topic in each draw, and their pairs."""
    import pyarrow as pa

    nodes, pairs = np.zeros(draws, np.int64), np.zeros(draws, np.int64)
    for piece in _pieces(batches):
        inside = np.repeat(users.of(piece.keys), piece.sizes, axis=0) & kept.of(piece.values)
        own = np.bitwise_or.reduceat(inside, piece.offsets[:-1], axis=0)
        nodes += bits(own, draws).sum(axis=0, dtype=np.int64)
        pairs += bits(inside, draws).sum(axis=0, dtype=np.int64)
    numbers = pa.array(np.arange(draws, dtype=np.int32))
    columns = {"draw": numbers, "nodes": pa.array(nodes), "pairs": pa.array(pairs)}
    yield pa.RecordBatch.from_pydict(columns)
