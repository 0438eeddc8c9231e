"""Traces in, universes out: each step on five rows, and whole ingests on Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cubecast.spark.session import spark_session
from cubecast.spark.universe.errors import UniverseError, UniverseTraceError
from cubecast.spark.universe.importers import IMPORTERS, find_importer
from cubecast.spark.universe.ingest import Manifest, ingest_subscriptions, ingest_trace
from cubecast.spark.universe.mapping import Mapping, parse_columns
from cubecast.spark.universe.merge import (
    TOLD_TWICE,
    conflicting_posts,
    merged_pairs,
    numbered_lines,
    post_dictionary,
    ranked_posts,
    subscriptions_of,
    typed_publications,
    unknown_replies,
)
from cubecast.spark.universe.names import number_names, replace_names, replace_names_in_lists
from cubecast.spark.universe.quarantine import (
    Counts,
    counts_by_reason,
    good_rows,
    quarantine,
    tallies,
)
from cubecast.spark.universe.schemas import NAMES, PUBLICATIONS, QUARANTINE, SUBSCRIPTIONS
from cubecast.spark.universe.simplices import (
    import_askubuntu,
    posts_with_topics,
    subscriptions_of_threads,
)
from cubecast.spark.universe.store import new_universe, open_universe
from support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIRS = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "tsv")
DATA = ROOT.parent / "shared" / "data"
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""To compile a query takes longer than to run it on five rows."""
POST = "row bigint, piece int, post bigint, time timestamp, user bigint, topics array<bigint>, "
POST += "reply_to array<bigint>"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process: starting one takes seconds."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session("local[2]", log=log, conf=INTERPRETED) as session:
        yield session


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def table(out: Path, name: str) -> list[dict[str, Any]]:
    """A table as any reader of Parquet sees it, sorted by all that it says."""
    found: list[dict[str, Any]] = pq.read_table(out / name).to_pylist()
    return sorted(found, key=str)


def pairs(out: Path) -> list[tuple[int, int]]:
    return sorted((row["user"], row["topic"]) for row in table(out, "subscriptions"))


# -- steps, on five rows ---------------------------------------------------------------------------


def test_equal_pairs_are_merged_and_counted(spark: SparkSession) -> None:
    five = spark.createDataFrame(
        [(1, 1), (1, 2), (1, 1), (2, 1), (1, 1)], "user bigint, topic bigint"
    )
    assert sorted(rows(merged_pairs(five))) == [(1, 1, 3), (1, 2, 1), (2, 1, 1)]


def test_names_are_numbered_by_their_bytes_whatever_the_order(spark: SparkSession) -> None:
    names = [("b",), ("a",), ("é",), ("B",), ("a",)]
    expected = [(0, "B"), (1, "a"), (2, "b"), (3, "é")]
    for order in (names, names[::-1]):
        dictionary = number_names(spark.createDataFrame(order, "name string"))
        assert sorted(rows(dictionary)) == expected


def test_names_become_ids_and_back(spark: SparkSession) -> None:
    five = [("b", 1), ("a", 2), ("c", 3), ("a", 4), ("b", 5)]
    frame = spark.createDataFrame(five, "user string, topic bigint")
    dictionary = number_names(frame.withColumnRenamed("user", "name"))
    numbered = replace_names(frame, "user", dictionary)
    ids = rows(numbered.select("topic", "user"))
    assert sorted(ids) == [(1, 1), (2, 0), (3, 2), (4, 0), (5, 1)]
    back = numbered.join(dictionary, numbered.user == dictionary.id).select("name", "topic")
    assert sorted(rows(back)) == sorted(five)


def test_names_in_lists_become_ids_in_the_same_order(spark: SparkSession) -> None:
    five = [(1, ["b", "a"]), (2, []), (3, None), (4, ["c"]), (5, ["a", "a"])]
    frame = spark.createDataFrame(five, "row bigint, topic array<string>")
    dictionary = spark.createDataFrame([(0, "a"), (1, "b"), (2, "c")], NAMES)
    numbered = replace_names_in_lists(frame, "row", "topic", dictionary)
    assert sorted(rows(numbered)) == [(1, [1, 0]), (2, []), (3, None), (4, [2]), (5, [0, 0])]


def test_lines_are_numbered_through_all_pieces(spark: SparkSession) -> None:
    five = spark.createDataFrame(
        [(0, 0, 7), (0, 3, 7), (1, 0, 7), (2, 0, 7), (2, 1, 7)], "piece int, line bigint, user int"
    )
    offsets = spark.createDataFrame([(0, 0), (1, 4), (2, 5)], "piece int, offset bigint")
    numbered = numbered_lines(five, offsets, "row")
    assert sorted(row.row for row in numbered.collect()) == [0, 3, 4, 5, 6]


def test_fields_that_a_trace_lacks_are_null_and_topics_count_once(spark: SparkSession) -> None:
    five = [(n, 0, [n, 1, n]) for n in range(5)]
    frame = spark.createDataFrame(five, "row bigint, piece int, topic array<bigint>")
    typed = typed_publications(frame)
    assert sorted(rows(typed)) == [
        (n, 0, n, None, None, [n, 1] if n != 1 else [1], None) for n in range(5)
    ]
    assert [one.dataType.simpleString() for one in typed.schema.fields[2:]] == [
        one.dataType.simpleString() for one in PUBLICATIONS.fields
    ]


def test_posts_told_twice_are_merged_or_in_conflict(spark: SparkSession) -> None:
    five = [
        (0, 0, 10, None, 1, [1], []),
        (1, 0, 10, None, 1, [1], []),
        (2, 1, 10, None, 2, [1], []),
        (3, 1, 10, None, 2, [1], []),
        (4, 1, 11, None, 2, [1], None),
    ]
    ranked = ranked_posts(spark.createDataFrame(five, POST))
    told = sorted(rows(ranked.select("row", "post", "user", "times", "rank")))
    assert told == [(0, 10, 1, 2, 1), (2, 10, 2, 2, 2), (4, 11, 2, 1, 1)]
    files = spark.createDataFrame([(0, "a"), (1, "b")], "piece int, file string")
    conflicts = rows(conflicting_posts(ranked, files))
    assert [(file, reason) for file, _, reason in conflicts] == [("b", TOLD_TWICE)] * 2
    assert json.loads(conflicts[0][1]) == {"post": 10, "user": 2, "topics": [1], "reply_to": []}


def test_posts_with_names_have_the_number_of_their_row(spark: SparkSession) -> None:
    five = [(0, "z", None), (1, "y", ["z"]), (2, "x", ["gone", "y"]), (3, "z", []), (4, "a", None)]
    frame = spark.createDataFrame(five, "row bigint, post string, reply_to array<string>")
    expected = [(0, "z"), (1, "y"), (2, "x"), (4, "a"), (100, "gone")]
    assert sorted(rows(post_dictionary(frame, 100))) == expected


def test_replies_to_posts_that_are_not_there(spark: SparkSession) -> None:
    five = [(0, 0, n, None, 1, [1], [n - 1, 9]) for n in range(1, 6)]
    frame = spark.createDataFrame(five, POST)
    assert sorted(rows(unknown_replies(frame))) == [(1, 0), *((n, 9) for n in range(1, 6))]


def test_users_subscribe_to_what_they_publish_to(spark: SparkSession) -> None:
    five = [(0, 0, n, None, n % 2 or None, [1, n], None) for n in range(1, 6)]
    frame = spark.createDataFrame(five, POST)
    expected = [(1, 1), (1, 1), (1, 1), (1, 1), (1, 3), (1, 5)]
    assert sorted(rows(subscriptions_of(frame))) == expected


def test_staged_rows_are_told_apart(spark: SparkSession) -> None:
    schema = "piece int, line bigint, reason string, row string, tally string, count bigint, "
    five = [
        (0, 0, None, None, None, None, 7),
        (1, 0, "user is empty", "\t1", None, None, None),
        (0, None, None, None, "rows", 2, None),
        (0, None, None, None, "skipped: header", 1, None),
        (1, None, None, None, "failed: cut short", 1, None),
    ]
    staged = spark.createDataFrame(five, schema + "user bigint")
    assert rows(good_rows(staged)) == [(0, 0, 7)]
    files = spark.createDataFrame([(0, "a"), (1, "b")], "piece int, file string")
    bad = quarantine(staged, files)
    assert rows(bad) == [("b", "\t1", "user is empty")]
    assert bad.columns == QUARANTINE.names
    assert counts_by_reason(bad) == {"user is empty": 1}
    read = tallies(staged)
    assert (read.rows, read.skipped, read.failed) == (2, {"header": 1}, ["cut short"])


def test_an_account_that_does_not_add_up_is_refused() -> None:
    good = Counts(5, 2, 1, 1, 1, {"bad": 1})
    assert good.told() == "5 rows read = 2 kept + 1 duplicates + 1 quarantined + 1 skipped"
    assert good.bad_share == 0.25
    with pytest.raises(UniverseError, match="unaccounted"):
        Counts(6, 2, 1, 1, 1, {"bad": 1})
    with pytest.raises(UniverseError, match="unaccounted"):
        Counts(5, 2, 1, 1, 1, {})


def test_threads_and_tags_are_joined_on_the_question(spark: SparkSession) -> None:
    schema = "post bigint, time timestamp, members array<bigint>"
    threads = spark.createDataFrame(
        [(n, datetime(1980, 1, 1), [n, 7]) for n in range(1, 6)], schema
    )
    tags = spark.createDataFrame([(n, datetime(1971, 1, 1), [50, n]) for n in (1, 2, 9)], schema)
    posts = posts_with_topics(threads, tags)
    told = posts.select("post", "topics", "participants")
    assert sorted(rows(told)) == [(1, [50, 1], [1, 7]), (2, [50, 2], [2, 7])]
    assert {row.time.year for row in posts.collect()} == {1971}
    assert sorted(rows(subscriptions_of_threads(posts.where("post = 1")))) == [
        (1, 1), (1, 50), (7, 1), (7, 50),
    ]  # fmt: skip


# -- whole ingests ---------------------------------------------------------------------------------


def test_five_rows_make_a_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace.tsv"
    trace.write_text("1\t10\n2\t10\n1\t10\n-3\t10\n2\t11\n")
    out = tmp_path / "universe"
    manifest = ingest_subscriptions(spark, [trace], PAIRS, out, most_bad=0.5)
    counts = manifest.counts
    assert (counts.read, counts.kept, counts.duplicates, counts.quarantined) == (5, 3, 1, 1)
    assert (manifest.users, manifest.topics, manifest.sound) == (2, 2, True)
    assert pairs(out) == [(1, 10), (2, 10), (2, 11)]
    assert table(out, "quarantine") == [
        {"file": str(trace), "row": "-3\t10", "reason": "user is negative"}
    ]
    universe = open_universe(out)
    assert universe.manifest["counts"] == json.loads(json.dumps(counts.facts()))
    read = universe.read(spark, "subscriptions")
    assert [one.dataType for one in read.schema] == [one.dataType for one in SUBSCRIPTIONS]
    assert read.count() == 3
    with pytest.raises(UniverseError, match="no table 'publications'; it has subscriptions"):
        universe.read(spark, "publications")


def test_names_are_numbered_the_same_from_any_order_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = ["ann,jazz", "bob,jazz", "ann,art", '"o, n",art', "bob,jazz"]
    mapping = Mapping(
        "subscriptions", {"user": (0,), "topic": (1,)}, "csv", names=frozenset({"user", "topic"})
    )
    for number, order in enumerate((lines, lines[::-1])):
        trace, out = tmp_path / f"{number}.csv", tmp_path / str(number)
        trace.write_text("\n".join(order))
        assert ingest_trace(spark, [trace], mapping, out).counts.duplicates == 1
        assert pairs(out) == [(0, 0), (0, 1), (1, 1), (2, 0)]
        names = {row["id"]: row["name"] for row in table(out, "users")}
        assert names == {0: "ann", 1: "bob", 2: "o, n"}
        assert {row["name"] for row in table(out, "topics")} == {"art", "jazz"}


def test_publications_with_names_and_replies_make_a_round_trip(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = tmp_path / "posts.csv", tmp_path / "universe"
    trace.write_text(
        "id,at,who,tags,re\n"
        "p9,1,ann,a;b;a,-\n"
        "p2,2,bob,b,p9;gone\n"
        "p2,2,bob,b,p9;gone\n"
        "p2,3,bob,b,\n"
        "p5,x,bob,b,\n"
        "p7,4,bob,a,\n"
    )
    mapping = Mapping(
        "publications", parse_columns("post=id,time=at,user=who,topics=tags,replies=re"), "csv",
        header=True, list_separator=";", nothing="-", names=frozenset({"user", "topic", "post"}),
    )  # fmt: skip
    manifest = ingest_trace(spark, [trace], mapping, out, subscribe=True, most_bad=0.5)
    counts = manifest.counts
    assert (counts.read, counts.kept, counts.duplicates) == (7, 3, 1)
    assert dict(counts.quarantined_by) == {TOLD_TWICE: 1, "time is no number of s": 1}
    assert dict(counts.skipped_by) == {"header": 1}
    second = datetime(1970, 1, 1, tzinfo=UTC).replace
    assert sorted(table(out, "publications"), key=lambda row: row["post"]) == [
        {"post": 1, "time": second(second=1), "user": 0, "topics": [0, 1], "reply_to": []},
        {"post": 2, "time": second(second=2), "user": 1, "topics": [1], "reply_to": [1, 7]},
        {"post": 6, "time": second(second=4), "user": 1, "topics": [0], "reply_to": None},
    ]
    assert {row["name"]: row["id"] for row in table(out, "posts")} == {
        "p9": 1, "p2": 2, "p7": 6, "gone": 7,
    }  # fmt: skip
    assert manifest.details["replies"] == {"links": 2, "unknown": 1}
    assert pairs(out) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_hundred_thousand_equal_rows_are_one_pair(spark: SparkSession, tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.tsv.gz", tmp_path / "universe"
    trace.write_bytes(gzip.compress(b"7\t8\n" * 100_000))
    manifest = ingest_trace(spark, [trace], PAIRS, out)
    assert (manifest.counts.kept, manifest.counts.duplicates) == (1, 99_999)
    assert pairs(out) == [(7, 8)]


def test_too_many_bad_rows_make_a_universe_unsound_and_readers_refuse_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace.tsv", tmp_path / "universe"
    trace.write_text("user\tgroup\n1\t1\n2\t2\n")
    manifest = ingest_trace(spark, [trace], PAIRS, out)
    assert not manifest.sound
    assert pairs(out) == [(1, 1), (2, 2)]
    assert manifest.hints == (
        f"the first line of {trace} is bad: if it names the columns, say --header",
    )
    with pytest.raises(UniverseError, match="unsound"):
        open_universe(out)
    assert open_universe(out, unsound=True).tables == ("subscriptions", "quarantine")


# -- places ----------------------------------------------------------------------------------------


def test_damaged_or_empty_traces_leave_what_is_there_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace.tsv.gz", tmp_path / "universe"
    whole = gzip.compress(b"".join(b"%d\t1\n" % n for n in range(2000)))
    trace.write_bytes(whole)
    two_wide = Mapping("subscriptions", {"user": (0,), "topic": (1,)}, "tsv", width=2)
    ingest_trace(spark, [trace], two_wide, out)
    before = (out / "universe.json").read_bytes()
    for data, message in (
        (whole[: len(whole) // 2], "cut short or damaged"),
        (b"", "empty, there is no row"),
        (gzip.compress(b""), "empty, there is no row"),
    ):
        trace.write_bytes(data)
        with pytest.raises(UniverseTraceError, match=message):
            ingest_trace(spark, [trace], two_wide, out)
        assert (out / "universe.json").read_bytes() == before
        assert len(pairs(out)) == 2000
        assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.tsv.gz", "universe"]


def test_a_rerun_replaces_its_universe_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    one, two, out = tmp_path / "one.tsv", tmp_path / "two.tsv", tmp_path / "universe"
    one.write_text("1\t1\n2\t2\n")
    two.write_text("3\t3\n")
    ingest_trace(spark, [one], PAIRS, out)
    one.write_text("5\t5\n")
    ingest_trace(spark, [one], PAIRS, out)
    assert pairs(out) == [(5, 5)]
    with pytest.raises(UniverseError, match=r"holds another universe .*--replace"):
        ingest_trace(spark, [two], PAIRS, out)
    assert pairs(out) == [(5, 5)]
    ingest_trace(spark, [two], PAIRS, out, replace=True)
    assert pairs(out) == [(3, 3)]
    assert not list(tmp_path.glob(".universe*"))


def test_a_directory_that_is_no_universe_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    (tmp_path / "file").write_text("...")
    for name, message in (("mine", "is no universe"), ("file", "no directory"), ("a*", "pattern")):
        with (
            pytest.raises(UniverseError, match=message),
            new_universe(tmp_path / name, "x", replace=True),
        ):
            pass
    assert (tmp_path / "mine" / "thesis.tex").exists()
    (tmp_path / "empty").mkdir()
    with new_universe(tmp_path / "empty", "x") as draft:
        draft.finish({"made_by": "a test"})
    assert open_universe(tmp_path / "empty").tables == ()


def test_drafts_of_dead_processes_are_removed_and_living_ones_stay(tmp_path: Path) -> None:
    dead = tmp_path / f".place.{'0' * 32}.tmp"
    dead.mkdir()
    (dead / ".lock").touch()
    with new_universe(tmp_path / "place", "x") as living:
        assert not dead.exists()
        with new_universe(tmp_path / "place", "x") as other:
            assert living.scratch.exists()
            other.finish({})
        assert living.scratch.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    with pytest.raises(UniverseError, match="does not exist"):
        open_universe(tmp_path / "nowhere")


# -- importers -------------------------------------------------------------------------------------


def imported(spark: SparkSession, name: str, trace: Path, out: Path) -> Manifest:
    importer = find_importer(name)
    if importer.own is not None:
        return importer.own(spark, [trace], out, replace=False, tell=lambda step: None)
    assert importer.mapping is not None
    return ingest_trace(spark, [trace], importer.mapping, out, subscribe=importer.subscribe)


def test_a_list_of_communities_is_imported(spark: SparkSession, tmp_path: Path) -> None:
    trace, out = tmp_path / "com-lj.all.cmty.txt", tmp_path / "universe"
    trace.write_text("5\t6\n6\n6\t6\n")
    manifest = imported(spark, "snap-communities", trace, out)
    assert pairs(out) == [(5, 0), (6, 0), (6, 1), (6, 2)]
    assert (manifest.counts.read, manifest.counts.duplicates) == (5, 1)


def askubuntu(folder: Path, **changes: str) -> Path:
    """Threads of questions 1, 2, 3 and tags of questions 1, 2, 4."""
    files = {
        "threads-ask-ubuntu-nverts": "2\n1\n1\n",
        "threads-ask-ubuntu-simplices": "5\n6\n6\n7\n",
        "threads-ask-ubuntu-times": "100\n200\n300\n",
        "threads-ask-ubuntu-simplex-labels": "1\n2\n3\n",
        "tags-ask-ubuntu-nverts": "1\n2\n1\n",
        "tags-ask-ubuntu-simplices": "10\n10\n11\n12\n",
        "tags-ask-ubuntu-times": "1000\n2000\n3000\n",
        "tags-ask-ubuntu-simplex-labels": "1\n2\n4\n",
        "tags-ask-ubuntu-node-labels": "10 unity\n11 wine\n12 boot\n",
    } | {name.replace("_", "-"): text for name, text in changes.items()}
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def test_askubuntu_joins_threads_and_tags(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "universe"
    manifest = imported(spark, "askubuntu", askubuntu(tmp_path / "ask"), out)
    assert pairs(out) == [(5, 10), (6, 10), (6, 11)]
    posts = [(row["post"], row["topics"], row["time"].second) for row in table(out, "publications")]
    assert posts == [(1, [10], 1), (2, [10, 11], 2)]
    took_part = [(row["post"], row["user"]) for row in table(out, "participants")]
    assert took_part == [(1, 5), (1, 6), (2, 6)]
    assert (manifest.counts.kept, manifest.counts.skipped) == (2, 1)
    assert manifest.details["subscriptions"]["merged"] == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("threads_ask_ubuntu_times", "100\nx\n300\n", "line 2: the number is no whole number"),
        ("threads_ask_ubuntu_times", "100\n200\n", "has 2 lines, nverts 3"),
        ("tags_ask_ubuntu_simplices", "10\n10\n11\n", "nverts says 4"),
        ("tags_ask_ubuntu_simplex_labels", "1\n1\n4\n", "names a question twice"),
        ("tags_ask_ubuntu_node_labels", "10 unity\nwine\n", "line 2: no number and name"),
    ],
)
def test_askubuntu_refuses_files_that_do_not_fit(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = askubuntu(tmp_path / "ask", **{name: text})
    none: Any = None
    with pytest.raises(UniverseTraceError, match=message):
        import_askubuntu(none, [folder], tmp_path / "out", replace=False, tell=lambda step: None)
    assert [path.name for path in tmp_path.iterdir()] == ["ask"]


def test_an_unknown_importer_is_refused_with_those_there_are() -> None:
    with pytest.raises(UniverseTraceError, match="there are youtube, wikipedia-edits"):
        find_importer("twitter")
    assert all((one.mapping is None) != (one.own is None) for one in IMPORTERS.values())


SLOW = pytest.mark.soak
SLOW_ONES = ("askubuntu", "irc")
"""On Spark in the long tests; test_universe_ingest_rows.py reads them in `make test`."""
REAL = {
    "youtube": ("youtube_groups.tsv.gz", 94_238, 30_087, 293_360, 293_360),
    "wikipedia-edits": ("wikipedia_edits.ssv.gz", 8_227, 1_000, 18_257, 157_474),
    "askubuntu": ("askubuntu", 125_570, 2_962, 670_005, 186_746),
    "irc": ("irc_conversations.csv.gz", 18_831, 6, 18_831, 238_164),
}


@pytest.mark.skipif(not DATA.exists(), reason="the real traces are not beside the project")
@pytest.mark.parametrize(
    "name", ["youtube", "wikipedia-edits", *(pytest.param(one, marks=SLOW) for one in SLOW_ONES)]
)
def test_a_real_trace_has_the_sizes_that_its_source_tells(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    file, users, topics, subscriptions, kept = REAL[name]
    manifest = imported(spark, name, DATA / file, tmp_path / "universe")
    assert (manifest.users, manifest.topics) == (users, topics)
    assert manifest.tables["subscriptions"] == subscriptions
    assert (manifest.counts.kept, manifest.counts.quarantined) == (kept, 0)
    if name == "irc":
        assert manifest.details["replies"] == {"links": 62_901, "unknown": 81}
