"""Self-contained universes ([N] 3.1): the jobs against a twin in plain Python."""

from __future__ import annotations

import gzip
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from cubecast.overlay import chance
from cubecast.overlay.universes.bipartite import bipartite
from cubecast.overlay.universes.presets import BipartiteParameters
from cubecast.spark.universe.draw import Draw, draw, draw_each, lower_median, pruned
from cubecast.spark.universe.generate import generate
from cubecast.spark.universe.groups import by_key, groups
from cubecast.spark.universe.masks import Masks, bits, packed, seed_masks
from cubecast.spark.universe.schemas import SUBSCRIPTIONS
from support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pairs = set[tuple[int, int]]

YOUTUBE = ROOT.parent / "shared" / "data" / "youtube_groups.tsv.gz"
FIVE: Pairs = {(1, 10), (1, 20), (2, 10), (3, 20), (4, 30)}
SHAPE = BipartiteParameters(topics=40, nodes=150, pairs=700, smallest=5, busiest=20)


def frame(spark: SparkSession, pairs: Pairs) -> DataFrame:
    return spark.createDataFrame(sorted(pairs), SUBSCRIPTIONS)


def rows(found: DataFrame) -> Pairs:
    collected = [(row.user, row.topic) for row in found.collect()]
    assert len(collected) == len(set(collected)), "a pair twice"
    return set(collected)


def generated() -> Pairs:
    topics, offsets, members = bipartite(0, SHAPE)
    of = np.repeat(topics, np.diff(offsets))
    return set(zip(members.tolist(), of.tolist(), strict=True))


def dumb_draw(
    pairs: Pairs, number: int, seeds: int, smallest: int, run: int, journals: dict[int, int] | None
) -> Pairs:
    """One draw, with sets, as [N] 3.1 tells it."""
    topics_of, users_of = defaultdict(list), defaultdict(set)
    for user, topic in sorted(pairs):
        topics_of[user].append(topic)
        users_of[topic].add(user)
    order = sorted(
        users_of, key=lambda topic: chance.draw(chance.stream(run, 21, topic, 0), number)
    )
    chosen = set(order[:seeds])
    users = {user for topic in chosen for user in users_of[topic]}
    for user in users:
        if journals is not None and user in journals:
            chosen = chosen | {journals[user]}
        else:
            bits = chance.draw(chance.stream(run, 22, user, 0), number)
            chosen = chosen | {topics_of[user][chance.below(bits, len(topics_of[user]))]}
    kept = {topic for topic in chosen if len(users_of[topic] & users) >= smallest}
    return {(user, topic) for user, topic in pairs if user in users and topic in kept}


def size(number: int, pairs: Pairs) -> Draw:
    return Draw(number, len({t for _, t in pairs}), len({u for u, _ in pairs}), len(pairs))


def test_every_draw_has_the_size_of_the_twins_and_the_median_its_pairs(spark: SparkSession) -> None:
    """70 draws: more than a word has bits.  Two numbers of seeds, one after the other."""
    pairs = generated()
    for drawn in draw_each(generate(spark, SHAPE), [1, 3], draws=70, smallest=6, run=9):
        twins = [dumb_draw(pairs, number, drawn.seeds, 6, 9, None) for number in range(70)]
        assert drawn.sizes == tuple(size(number, twin) for number, twin in enumerate(twins))
        assert drawn.chosen == lower_median(drawn.sizes)
        assert rows(drawn.subscriptions) == twins[drawn.chosen.number] != set()
        assert drawn.subscriptions.schema == SUBSCRIPTIONS
        assert len({one.pairs for one in drawn.sizes}) > 10  # draws differ


def test_journals_take_the_place_of_random_topics(spark: SparkSession) -> None:
    """Users of even number have a journal; some journals have no subscriber at all."""
    pairs = generated()
    journals = {user: (user * 7) % 50 for user in range(0, 150, 2)}
    owned = spark.createDataFrame(sorted(journals.items()), SUBSCRIPTIONS)
    drawn = draw(frame(spark, pairs), 2, draws=5, smallest=4, journals=owned)
    twins = [dumb_draw(pairs, number, 2, 4, 0, journals) for number in range(5)]
    assert drawn.sizes == tuple(size(number, twin) for number, twin in enumerate(twins))
    assert rows(drawn.subscriptions) == twins[drawn.chosen.number]


def test_a_user_without_a_journal_takes_a_random_topic(spark: SparkSession) -> None:
    """A seed has one user; without a journal only a random choice can add its other topic."""
    pairs = {(1, 10), (1, 11), (2, 20), (2, 21)}
    table = frame(spark, pairs)
    nothing = draw(table, 1, draws=64, smallest=1, journals=frame(spark, set()))
    assert nothing.sizes == draw(table, 1, draws=64, smallest=1).sizes
    assert {one.topics for one in nothing.sizes} == {1, 2}
    half = draw(table, 1, draws=64, smallest=1, journals=frame(spark, {(1, 10), (9, 10)}))
    twins = [dumb_draw(pairs, number, 1, 1, 0, {1: 10, 9: 10}) for number in range(64)]
    assert half.sizes == tuple(size(number, twin) for number, twin in enumerate(twins))
    # 11 as a seed is joined by the journal; 20 or 21 by the other in some draws.
    assert {(1, 11), (1, 10)} in twins
    assert {(2, 20), (2, 21)} in twins


def test_five_pairs_with_all_topics_as_seeds_come_back_whole(spark: SparkSession) -> None:
    drawn = draw(frame(spark, FIVE), seeds=3, draws=2, smallest=1)
    assert rows(drawn.subscriptions) == FIVE
    assert drawn.sizes == (Draw(0, 3, 4, 5), Draw(1, 3, 4, 5))
    table = [tuple(row) for row in drawn.table(spark).collect()]
    assert table == [(3, 0, 3, 4, 5, 0.75, True), (3, 1, 3, 4, 5, 0.75, False)]


def test_topics_below_the_bound_go_and_nodes_without_topic_with_them(spark: SparkSession) -> None:
    drawn = draw(frame(spark, FIVE), seeds=3, draws=1, smallest=2)
    assert rows(drawn.subscriptions) == FIVE - {(4, 30)}
    assert drawn.chosen == Draw(0, 2, 3, 4)


def test_pruning_first_leaves_the_topics_with_enough_subscribers(spark: SparkSession) -> None:
    assert rows(pruned(frame(spark, FIVE), 2)) == FIVE - {(4, 30)}
    assert rows(pruned(frame(spark, FIVE), 3)) == set()


@pytest.mark.skipif(not YOUTUBE.exists(), reason="the YouTube trace is not here")
def test_draws_of_youtube_have_the_sizes_of_an_independent_model(spark: SparkSession) -> None:
    """Of topics with 30 or more, the model has 66,596 x 1,638 whole and 1,929 x 151 of 20 seeds."""
    lines = gzip.decompress(YOUTUBE.read_bytes()).split()
    user, topic = np.array(lines, dtype=np.int64).reshape(-1, 2).T
    table = pa.table({"user": pa.array(user), "topic": pa.array(topic)})
    large = pruned(spark.createDataFrame(table))
    few, whole = draw_each(large, [20, 1_638], draws=20)
    assert whole.sizes == tuple(Draw(number, 1_638, 66_596, 176_625) for number in range(20))
    assert few.chosen.ratio == pytest.approx(151 / 1_929, abs=0.015)
    counts = [one.nodes for one in few.sizes]
    assert min(counts) < 1_929 < max(counts)
    large_pairs = rows(large)
    twin = dumb_draw(large_pairs, few.chosen.number, 20, 30, 0, None)
    assert few.chosen == size(few.chosen.number, twin)


def test_a_draw_may_leave_nothing(spark: SparkSession) -> None:
    drawn = draw(frame(spark, FIVE), seeds=1, draws=3, smallest=9)
    assert drawn.sizes == tuple(Draw(number, 0, 0, 0) for number in range(3))
    assert drawn.chosen.number == 1
    assert drawn.chosen.ratio == 0
    assert rows(drawn.subscriptions) == set()


def test_the_lower_median_of_an_even_number_is_kept() -> None:
    ratios = [4, 1, 3, 2]
    sizes = tuple(Draw(number, topics, 10, 30) for number, topics in enumerate(ratios))
    assert lower_median(sizes).topics == 2
    assert lower_median(sizes[:3]).topics == 3
    assert lower_median((Draw(0, 1, 2, 2), Draw(1, 2, 4, 4))).number == 0


@pytest.mark.parametrize(
    ("seeds", "draws", "smallest", "told"),
    [
        (4, 1, 30, "cannot draw 4 of 3 topics"),
        (0, 1, 30, "cannot draw 0 of 3"),
        (1, 0, 30, "draws are possible, not 0"),
        (1, 1_001, 30, "not 1,001"),
        (1, 1, 0, "at least 1 subscriber"),
    ],
)
def test_impossible_draws_are_refused(
    spark: SparkSession, seeds: int, draws: int, smallest: int, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        draw(frame(spark, FIVE), seeds, draws, smallest)


def test_pairs_sorted_by_a_key_come_back_as_groups(spark: SparkSession) -> None:
    found = [(row[0], row[1]) for row in by_key(frame(spark, FIVE), "topic", 1).collect()]
    assert found == [(10, 1), (10, 2), (20, 1), (20, 3), (30, 4)]


@pytest.mark.parametrize("rows_per_batch", [1, 2, 3, 5])
def test_groups_are_whole_however_batches_are_cut(rows_per_batch: int) -> None:
    keys, values = pa.array([10, 10, 20, 20, 20]), pa.array([1, 2, 1, 3, 5])
    table = pa.table({"key": keys, "value": values})
    batches = table.to_batches(max_chunksize=rows_per_batch)
    seen = {
        int(key): found.values[start:stop].tolist()
        for found in groups(iter(batches))
        for key, start, stop in zip(found.keys, found.offsets[:-1], found.offsets[1:], strict=True)
    }
    assert seen == {10: [1, 2], 20: [1, 3, 5]}


def test_masks_hold_one_bit_for_each_draw() -> None:
    flags = np.zeros((2, 100), dtype=np.bool_)
    flags[0, [0, 63]] = flags[1, [64, 99]] = True
    words = packed(flags)
    assert words.tolist() == [[1 | 1 << 63, 0], [0, 1 | 1 << 35]]
    assert bits(words, 100).astype(np.bool_).tolist() == flags.tolist()
    masks = Masks(np.array([5, 9], dtype=np.int64), words)
    assert masks.within(99).tolist() == [9]
    assert masks.of(np.array([9, 6, 10], dtype=np.int64)).tolist() == [
        [0, 1 | 1 << 35],
        [0, 0],
        [0, 0],
    ]
    assert masks.counts(100)[[0, 1, 63, 64]].tolist() == [1, 0, 1, 1]
    assert masks.without(np.array([1, 5], dtype=np.int64)).ids.tolist() == [9]
    both = masks.union(Masks(np.array([6], dtype=np.int64), packed(flags[:1])))
    assert both.ids.tolist() == [5, 6, 9]


def test_each_draw_has_its_number_of_seeds_and_all_topics_their_turn() -> None:
    masks = seed_masks(0, np.arange(0, 60, 2, dtype=np.int64), 6, 100)
    assert masks.counts(100).tolist() == [6] * 100
    turns = bits(masks.words, 100).sum(axis=1)
    assert len(turns) == 30
    assert 8 <= turns.min() <= turns.max() <= 35  # 20 are expected
