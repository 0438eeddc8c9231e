"""Events over overlays on Spark: each step on five rows, the job, the command, a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.kernel.gossip import GossipConfig, GossipNetwork, dead_users, made_events
from cubecast.kernel.gossip.engine import COLUMNS
from cubecast.overlay.rounds import RoundConfig, play
from cubecast.spark.errors import SparkFailedError, lab_errors
from cubecast.spark.universe.dissemination import (
    LISTS,
    SPREADS,
    disseminate,
    lay_out,
    sample,
    survivors,
    totals,
    with_authors,
    with_topic,
    write_views,
)
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.gossip import GossipPlan, GossipTotals, Variant, gossip
from cubecast.spark.universe.schemas import PUBLICATIONS, SUBSCRIPTIONS, VIEWS
from cubecast.spark.universe.store import PARTICIPANTS, Universe, new_universe, open_universe
from support.gossip_oracle import Post, Views, play_post

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIVE: Views = {10: {1: (2,), 2: (3,), 3: (1,)}, 20: {1: (2,), 2: (1,)}}
"""Five views: topic, user, view."""
POSTS: list[tuple[int, int | None, list[int]]] = [
    (100, 1, [10, 20]), (101, 2, [20]), (102, None, [10]), (103, 9, [10, 20, 30]), (104, 3, []),
]  # fmt: skip
RUN = 5


def publications(spark: SparkSession, posts: list[tuple[int, int | None, list[int]]]) -> DataFrame:
    rows = [(post, None, user, topics, None) for post, user, topics in posts]
    return spark.createDataFrame(rows, PUBLICATIONS)


def views_frame(spark: SparkSession, views: Views, round_: int = 8) -> DataFrame:
    rows = [
        (topic, user, round_, list(view)) for topic in views for user, view in views[topic].items()
    ]
    return spark.createDataFrame(rows, VIEWS)


def expected(
    views: Views, posts: list[tuple[int, int | None, list[int]]], config: GossipConfig
) -> list[dict[str, Any]]:
    return [
        {"post": post}
        | play_post(views, Post(post, -1 if user is None else user, frozenset(topics)), config, RUN)
        for post, user, topics in posts
    ]


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["post"])


# -- steps -----------------------------------------------------------------------------------------


def test_a_post_without_author_gets_one_of_its_participants(spark: SparkSession) -> None:
    posts = publications(spark, POSTS)
    took_part = [(102, 1), (102, 2), (102, 3), (100, 3), (777, 4)]
    found = with_authors(posts, spark.createDataFrame(took_part, PARTICIPANTS))
    assert found.columns == posts.columns
    authors = {row["post"]: row["user"] for row in found.collect()}
    assert authors.pop(102) in {1, 2, 3}
    assert authors == {100: 1, 101: 2, 103: 9, 104: 3}


def test_posts_without_a_topic_of_the_universe_are_left_out(spark: SparkSession) -> None:
    subscriptions = spark.createDataFrame([(1, 20), (2, 20), (1, 30)], SUBSCRIPTIONS)
    found = with_topic(publications(spark, POSTS), subscriptions)
    assert [row["post"] for row in rows(found)] == [100, 101, 103]
    assert rows(found)[0]["topics"] == [10, 20]


def test_a_sample_is_the_same_however_posts_are_partitioned(spark: SparkSession) -> None:
    posts = publications(spark, POSTS)
    few = rows(sample(posts.repartition(3), 2))
    assert len(few) == 2
    assert few == rows(sample(posts.repartition(1), 2))
    assert len(rows(sample(posts, 99))) == 5


def test_survivors_are_the_users_that_are_not_dead(spark: SparkSession) -> None:
    pairs = [(user, topic) for user in range(20) for topic in (1, 2)]
    frame = spark.createDataFrame(pairs, SUBSCRIPTIONS).repartition(3)
    dead = set(np.flatnonzero(dead_users(np.arange(20), 0.4, RUN)).tolist())
    assert 0 < len(dead) < 20
    alive = sorted(map(tuple, survivors(frame, 0.4, run=RUN).collect()))
    assert alive == [pair for pair in pairs if pair[0] not in dead]
    assert survivors(frame, 0.0).count() == 40


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "config",
    [GossipConfig(), GossipConfig(loss=0.4, explain=True), GossipConfig(dead=0.5)],
    ids=["sound", "loss", "dead"],
)
def test_five_posts_spread_as_in_the_plain_model(
    spark: SparkSession, tmp_path: Path, config: GossipConfig, partitions: int
) -> None:
    network = lay_out(write_views(views_frame(spark, FIVE), tmp_path), 8)
    found = disseminate(publications(spark, POSTS), network, config, run=RUN, partitions=partitions)
    assert found.schema == SPREADS
    assert rows(found) == expected(FIVE, POSTS, config)


def test_totals_are_sums_over_events(spark: SparkSession, tmp_path: Path) -> None:
    network = lay_out(write_views(views_frame(spark, FIVE), tmp_path), 8)
    config = GossipConfig(loss=0.4)
    spreads = disseminate(publications(spark, POSTS), network, config, run=RUN)
    (found,) = (row.asDict() for row in totals(spreads).collect())
    each = expected(FIVE, POSTS, config)
    with_topics = [one for one in each if one["topics"]]
    assert found.pop("events") == 4
    assert found.pop("without_topic") == 1
    assert found.pop("complete") == sum(one["due"] == one["reached"] for one in with_topics)
    assert found.pop("last_rounds") == sum(one["last_round"] for one in each)
    assert found.pop("last_round") == max(one["last_round"] for one in each)
    for name in LISTS[1:]:
        assert found.pop(name) == sum(sum(one[name]) for one in each)
    assert found == {name: sum(one[name] for one in each) for name in COLUMNS[:-2] + COLUMNS[-1:]
                     if name != "last_round"}  # fmt: skip


def test_totals_of_no_events_are_zeros(spark: SparkSession) -> None:
    (found,) = totals(spark.createDataFrame([], SPREADS)).collect()
    assert set(found.asDict().values()) == {0}


def test_views_that_cannot_be_a_network_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    kept = write_views(views_frame(spark, FIVE), tmp_path)
    with pytest.raises(UniverseError, match="no views of round 3"):
        lay_out(kept, 3)
    stray = write_views(views_frame(spark, {10: {1: (2,)}}), tmp_path)
    with pytest.raises(UniverseError, match="holds 2, which does not subscribe"):
        lay_out(stray, 8)


def test_an_executor_that_does_not_see_the_network_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    posts = publications(spark, POSTS)
    with (
        pytest.raises(SparkFailedError, match="all executors must see the job's folder"),
        lab_errors(),
    ):
        disseminate(posts, tmp_path / "nowhere", GossipConfig()).collect()


# -- the job ---------------------------------------------------------------------------------------


def pairs_of(seed: int = 1) -> list[tuple[int, int]]:
    """(user, topic): 40 users, topics of 30, 12 and 3."""
    random = Random(seed)
    return [
        (user, topic)
        for topic, size in ((10, 30), (20, 12), (30, 3))
        for user in sorted(random.sample(range(40), size))
    ]


def universe(
    spark: SparkSession, out: Path, *, posts: bool = True, topics: list[int] | None = None
) -> Universe:
    """With twelve posts of topics 10 and 20, or 10 and 30, in turn; or all of the topics given."""
    with new_universe(out, "toy") as draft:
        draft.write("subscriptions", spark.createDataFrame(pairs_of(), SUBSCRIPTIONS))
        if posts:
            some = [
                (one, one % 40, topics or ([10, 20] if one % 2 else [10, 30])) for one in range(12)
            ]
            unsigned = publications(spark, [(one, None, topics) for one, _, topics in some])
            draft.write("publications", unsigned)
            took_part = [(one, user) for one, user, _ in some]
            draft.write("participants", spark.createDataFrame(took_part, PARTICIPANTS))
        draft.finish({"made_by": "test"})
    return open_universe(out)


def played(mode: str, round_: int, pairs: list[tuple[int, int]], smallest: int) -> Views:
    views: dict[int, dict[int, tuple[int, ...]]] = {}
    for topic in (10, 20, 30):
        members = [user for user, of in pairs if of == topic]
        if len(members) >= smallest:
            config = RoundConfig(rounds=4, mode=mode)  # type: ignore[arg-type]
            views[topic] = play(RUN, topic, members, config)[round_]
    return views


def summed(views: Views, config: GossipConfig, back: int = 0) -> dict[str, int]:
    found = [
        play_post(views, Post(one, one % 40, frozenset(topics)), config, RUN, back)
        for one, topics in ((one, [10, 20] if one % 2 else [10, 30]) for one in range(12))
    ]
    return {name: sum(one[name] for one in found) for name in ("due", "reached", "messages")}  # type: ignore[misc]


def test_the_job_sends_all_events_in_every_variant(spark: SparkSession, tmp_path: Path) -> None:
    """Start and repairing views, with and without death, against the plain model."""
    plan = GossipPlan(
        views=("start", "repairing"), deads=(0.0, 0.3), dead_ids=("kept", "refilled"), backs=(1,),
        rounds=4, smallest=10, losses=(0.2,), run=RUN,
    )  # fmt: skip
    found = gossip(spark, universe(spark, tmp_path / "u"), plan, keep=tmp_path / "kept")
    assert [one.variant for one in found] == list(plan.variants())
    assert len(found) == 6
    dead = dead_users(np.arange(40), 0.3, RUN)
    alive = [pair for pair in pairs_of() if not dead[pair[0]]]
    for number, one in enumerate(found):
        refilled = one.variant.dead_ids == "refilled"
        views = played(
            "faithful" if one.variant.views == "start" else one.variant.views,
            0 if one.variant.views == "start" else 4,
            alive if refilled else pairs_of(),
            10 if not refilled else 1,
        )
        views = {topic: of for topic, of in views.items() if topic != 30}
        config = GossipConfig(0.2, 0.0 if refilled else one.variant.dead)
        got = {name: one.counts[name] for name in ("due", "reached", "messages")}
        assert got == summed(views, config, one.variant.back), one.variant
        assert one.counts["events"] == 12
        assert spark.read.parquet(str(tmp_path / "kept" / f"variant-{number}")).count() == 12


def test_a_universe_without_posts_gets_made_ones(spark: SparkSession, tmp_path: Path) -> None:
    plan = GossipPlan(views=("repairing",), smallest=1, events=7, rounds=2)
    (one,) = gossip(spark, universe(spark, tmp_path / "u", posts=False), plan)
    assert one.counts["events"] == 7
    assert one.counts["handed"] == 0
    assert one.delivered == 1.0
    assert (one.made, one.left_out) == (True, 0)


@pytest.mark.parametrize("events", [None, 2], ids=["all", "a sample"])
def test_posts_that_are_left_out_are_counted(
    spark: SparkSession, tmp_path: Path, events: int | None
) -> None:
    with new_universe(tmp_path / "u", "toy") as draft:
        draft.write("subscriptions", spark.createDataFrame(pairs_of(), SUBSCRIPTIONS))
        some = [(1, 1, [10]), (2, 2, [20, 30]), (3, 3, [30]), (4, 4, []), (5, 5, [10, 77])]
        draft.write("publications", publications(spark, list(some)))
        draft.finish({"made_by": "test"})
    plan = GossipPlan(views=("start",), smallest=10, rounds=0, events=events)
    (one,) = gossip(spark, open_universe(tmp_path / "u"), plan)
    assert one.counts["events"] == (events or 3)
    assert (one.left_out, one.made) == (2, False)
    assert (one.facts()["left_out"], one.facts()["made"]) == (2, False)


def test_shares_and_means_of_nothing_are_none(spark: SparkSession) -> None:
    (row,) = totals(spark.createDataFrame([], SPREADS)).collect()
    shares = (
        "delivered_share", "complete_share", "shared_share", "duplicates_per_delivery",
        "mean_round", "mean_last_round",
    )  # fmt: skip
    nothing = GossipTotals(Variant("start"), row.asDict())
    assert [nothing.facts()[name] for name in shares] == [None] * 6
    all_dead = GossipTotals(Variant("start", dead=1.0), row.asDict() | {"events": 3, "complete": 3})
    assert (all_dead.delivered, all_dead.complete, all_dead.shared) == (None, None, None)
    missed = GossipTotals(Variant("start"), row.asDict() | {"events": 3, "due": 5})
    assert (missed.delivered, missed.complete) == (0.0, 0.0)


def test_made_events_go_to_topics_of_their_authors(spark: SparkSession, tmp_path: Path) -> None:
    views: Views = {
        topic: {user: () for user, of in pairs_of() if of == topic} for topic in (10, 20, 30)
    }
    network = GossipNetwork.load(lay_out(write_views(views_frame(spark, views), tmp_path), 8))
    made = made_events(network, 200, most_topics=2, run=RUN)
    sizes = np.diff(made.offsets)
    assert set(sizes.tolist()) == {1, 2}
    for event in range(200):
        for topic in made.topics[made.offsets[event] : made.offsets[event + 1]].tolist():
            assert int(made.authors[event]) in views[topic]


def test_variants_name_dead_ids_only_where_nodes_are_dead() -> None:
    plan = GossipPlan(views=("start",), deads=(0, 0.1), dead_ids=("removed", "kept"))
    assert list(plan.variants()) == [
        Variant("start"),
        Variant("start", dead=0.1, dead_ids="removed"),
        Variant("start", dead=0.1, dead_ids="kept"),
    ]


# -- the command -----------------------------------------------------------------------------------


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["universe", "gossip", *map(str, arguments)])


def test_the_command_tells_and_keeps_what_the_job_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    universe(spark, tmp_path / "u")
    options = ("--smallest", 10, "--rounds", 2, "--loss", "0,0.1", "--mode", "start,repairing")
    done = command(tmp_path / "u", *options, "--json", "--out", tmp_path / "kept")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["outcomes"]
    assert [(one["views"], one["loss"]) for one in found] == [
        ("start", 0.0), ("start", 0.1), ("repairing", 0.0), ("repairing", 0.1),
    ]  # fmt: skip
    assert found[2]["delivered_share"] == 1.0
    assert json.loads((tmp_path / "kept" / "summary.json").read_text())["outcomes"] == found
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "summary.json", "variant-0", "variant-1", "variant-2", "variant-3",
    }  # fmt: skip
    told = command(tmp_path / "u", *options)
    assert told.exit_code == 0
    assert told.stdout.splitlines()[0] == "12 events"
    assert "100.0000%" in told.stdout


def test_the_command_tells_which_posts_are_left_out_and_no_shares_of_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    universe(spark, tmp_path / "u", topics=[30])
    options = ("--smallest", 10, "--rounds", 0, "--mode", "start")
    told = command(tmp_path / "u", *options)
    assert told.exit_code == 0, told.output
    heading, _, row, _ = told.stdout.splitlines()
    assert heading == "0 events (12 posts without a topic that is measured left out)"
    assert row.split() == ["start", "0", "0%", "0%", "-", "-", "0", "0", *"----"]
    (facts,) = json.loads(command(tmp_path / "u", *options, "--json").stdout)["outcomes"]
    assert (facts["events"], facts["left_out"], facts["made"]) == (0, 12, False)
    assert facts["delivered_share"] is facts["complete_share"] is None


def test_the_command_tells_that_events_are_made(spark: SparkSession, tmp_path: Path) -> None:
    universe(spark, tmp_path / "u", posts=False)
    told = command(tmp_path / "u", "--events", 7, "--smallest", 1, "--rounds", 0, "--mode", "start")
    assert told.exit_code == 0, told.output
    heading = told.stdout.splitlines()[0]
    assert heading == "7 events, made: the universe has no publications"


def test_the_command_tells_of_events_whose_topics_died_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Run 5 leaves some of the users, but none of the three subscribers of topic 30."""
    universe(spark, tmp_path / "u", topics=[30])
    options = ("--smallest", 1, "--rounds", 0, "--mode", "start", "--run", RUN)
    dead = ("--dead", "0,0.95", "--dead-ids", "refilled")
    told = command(tmp_path / "u", *options, *dead)
    assert told.exit_code == 0, told.output
    heading = told.stdout.splitlines()[0]
    assert heading == (
        "12 events; up to 12 not counted where no subscriber of their topics is alive"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loss", "much"], "--loss is a list of numbers with commas, not 'much'"),
        (["--loss", "2"], "loss must be 0 to 1, not 2"),
        (["--mode", "quick"], "views must be of start, faithful, repairing, not 'quick'"),
        (["--dead-ids", "gone"], "dead ids must be of kept, removed, refilled, not 'gone'"),
        (["--events", "5,7"], "--events is one whole number or all, not '5,7'"),
        (["--events", "some"], "--events is one whole number or all, not 'some'"),
        (["--events", "0"], "at least one event is needed, not 0"),
        (["--back", "-1"], "rounds and back links must be 0 or more"),
        (["--smallest", "1000"], "no topic has 1000 subscribers"),
    ],
)
def test_the_command_refuses_in_one_line(
    spark: SparkSession, tmp_path: Path, options: list[str], said: str
) -> None:
    universe(spark, tmp_path / "u")
    done = command(tmp_path / "u", *options)
    assert done.exit_code != 0
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_leaves_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    universe(spark, tmp_path / "u")
    done = command(tmp_path / "u", "--out", tmp_path)
    assert done.exit_code != 0
    assert "exists already" in done.stderr


# -- a cluster -------------------------------------------------------------------------------------

ON_A_CLUSTER = """
import json, sys
from pathlib import Path
from cubecast.kernel.gossip import GossipConfig
from cubecast.spark.session import spark_session
from cubecast.spark.universe.dissemination import disseminate

with spark_session(sys.argv[1]) as session:
    posts = session.read.parquet(sys.argv[2])
    config = GossipConfig(loss=0.4, explain=True)
    found = disseminate(posts, Path(sys.argv[3]), config, run=5, partitions=2).collect()
print(json.dumps(sorted((row.asDict() for row in found), key=lambda row: row["post"])))
"""


@pytest.mark.soak
def test_a_cluster_counts_the_same_as_the_plain_model(spark: SparkSession, tmp_path: Path) -> None:
    """Two executors in processes of their own, which map the network that the driver wrote."""
    network = lay_out(write_views(views_frame(spark, FIVE), tmp_path), 8)
    publications(spark, POSTS).write.parquet(str(tmp_path / "posts"))
    master, posts = "local-cluster[2,1,1024]", tmp_path / "posts"
    done = subprocess.run(
        [sys.executable, "-c", ON_A_CLUSTER, master, posts, network],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = GossipConfig(loss=0.4, explain=True)
    assert json.loads(done.stdout) == expected(FIVE, POSTS, config)
