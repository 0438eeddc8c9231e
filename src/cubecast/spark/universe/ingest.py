"""Traces become universes.

    files → staged rows → good rows → merged, numbered → tables
                        ↘ bad rows → quarantine

Only this job touches paths and sessions; the steps are in `rows` (reading, without Spark), `merge`,
`names` and `quarantine` (from table to table).  The trace is read once: the results of the tasks
are staged in Parquet, so that memory is bounded by blocks and by Spark's own, not by the trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.spark.frames import map_in_arrow
from cubecast.spark.tables import spark_schema
from cubecast.spark.universe.cells import FileColumns
from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.layouts import layouts
from cubecast.spark.universe.mapping import Mapping
from cubecast.spark.universe.merge import (
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
    Tallies,
    counts_by_reason,
    good_rows,
    quarantine,
    tallies,
)
from cubecast.spark.universe.rows import judged, staged_schema
from cubecast.spark.universe.sources import Piece, TraceFile, find_sources, pieces
from cubecast.spark.universe.store import TABLES, Draft, new_universe, settings
from cubecast.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BAD = 0.01
"""The share of bad rows that a universe may have by default."""
PER_SHUFFLE_TASK = 16 << 20
"""Bytes of trace for which a task of a shuffle is planned; Spark joins tasks that get little."""
STAGED = "staged"

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The result of an ingest, and the account of all rows."""

    sound: bool
    counts: Counts
    tables: Dict[str, int]
    users: int | None
    topics: int | None
    details: Dict[str, Any]
    hints: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The content of ``universe.json``."""
        return {
            "made_by": "ingest",
            "cubecast": __version__,
            "sound": self.sound,
            "users": self.users,
            "topics": self.topics,
            "counts": self.counts.facts(),
            **self.details,
            "hints": list(self.hints),
            "tables": dict(self.tables),
        }


def ingest_subscriptions(
    session: SparkSession, paths: Sequence[Path], mapping: Mapping, out: Path, **options: Any
) -> Manifest:
    """Make a universe of a trace of pairs (user, topic); options are those of `ingest_trace`."""
    if mapping.kind != "subscriptions":
        raise UniverseTraceError(f"the mapping is of {mapping.kind}, not of subscriptions")
    return ingest_trace(session, paths, mapping, out, **options)


def ingest_trace(
    session: SparkSession,
    paths: Sequence[Path],
    mapping: Mapping,
    out: Path,
    *,
    subscribe: bool = False,
    most_bad: float = MOST_BAD,
    replace: bool = False,
    tell: Tell = lambda step: None,
) -> Manifest:
    """Read a trace into the universe at `out`.

    With `subscribe`, users of a trace of publications subscribe to the topics they publish to.
    With a share of bad rows above `most_bad` the universe is marked unsound.  Raises
    `UniverseTraceError` where there is nothing to read or a file is damaged; then `out` is
    unchanged.
    """
    tell("looking at the files")
    trace = _Trace.found(paths, mapping)
    details = {"mapping": mapping.facts(), "subscribe": subscribe}
    identity = identity_of({**details, "files": [one.path for one in trace.sources]})
    with (
        new_universe(out, identity, replace=replace) as draft,
        settings(session, _shuffles(trace)),
    ):
        tell("reading the trace")
        staged = stage(session, trace, draft.scratch / STAGED)
        read = tallies(staged)
        _refuse_what_is_nothing(trace, read)
        make = _make_subscriptions if mapping.kind == "subscriptions" else _make_publications
        made = make(session, trace, staged, read, draft, tell)
        if subscribe and mapping.kind == "publications":
            tell("deriving subscriptions")
            made = _derive(session, draft, made)
        counts = _counts(session, draft, read, made)
        tell("counting users and topics")
        users, topics = sizes_of(session, draft)
        manifest = Manifest(
            sound=counts.kept > 0 and counts.bad_share <= most_bad,
            counts=counts, tables=dict(draft.rows), users=users, topics=topics,
            details={
                **details, **made.details, "most_bad": most_bad, "files": trace.facts(read),
            },
            hints=tuple(_hints(trace, staged, counts)),
        )  # fmt: skip
        draft.finish(manifest.facts())
    return manifest


def identity_of(facts: Dict[str, Any]) -> str:
    """A digest: equal for equal facts only."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trace:
    """The files of a trace, cut into pieces."""

    mapping: Mapping
    sources: Sequence[TraceFile]
    layouts: Sequence[FileColumns]
    pieces: Sequence[Piece]

    @classmethod
    def found(cls, paths: Sequence[Path], mapping: Mapping) -> _Trace:
        sources = find_sources(paths, mapping.format)
        return cls(mapping, sources, layouts(sources, mapping), pieces(sources, mapping.format))

    @property
    def size(self) -> int:
        return sum(one.size for one in self.sources)

    def files(self, session: SparkSession) -> DataFrame:
        """The file of each piece."""
        rows = [(number, piece.path) for number, piece in enumerate(self.pieces)]
        return session.createDataFrame(rows, "piece int, file string")

    def offsets(self, session: SparkSession, read: Tallies) -> DataFrame:
        """The number of the first line of each piece."""
        rows, offset = [], 0
        for number in range(len(self.pieces)):
            rows.append((number, offset))
            offset += read.lines_by_piece.get(number, 0)
        return session.createDataFrame(rows, "piece int, offset bigint")

    def rows_by_source(self, read: Tallies) -> list[int]:
        found = [0] * len(self.sources)
        for number, piece in enumerate(self.pieces):
            found[piece.source] += read.rows_by_piece.get(number, 0)
        return found

    def facts(self, read: Tallies) -> list[dict[str, Any]]:
        counted = zip(self.sources, self.rows_by_source(read), strict=True)
        return [{"file": one.path, "bytes": one.size, "rows": rows} for one, rows in counted]


def stage(session: SparkSession, trace: _Trace, folder: Path) -> DataFrame:
    """Read and judge all pieces, one task each; return the staged rows, read back from `folder`."""
    schema = spark_schema(staged_schema(trace.mapping))
    if not trace.pieces:
        return session.createDataFrame([], schema)
    parsed = read_pieces(session, trace.pieces, trace.mapping, trace.layouts)
    parsed.write.parquet(str(folder))
    return session.read.schema(schema).parquet(str(folder))


def read_pieces(
    session: SparkSession, pieces: Sequence[Piece], mapping: Mapping, layouts: Sequence[FileColumns]
) -> DataFrame:
    """The judged rows of pieces, as `rows.staged_schema`; lazily."""

    def judge(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = pieces[number]
                yield from judged(number, piece, mapping, layouts[piece.source])

    numbers = session.range(0, len(pieces), 1, len(pieces))
    return map_in_arrow(numbers, judge, spark_schema(staged_schema(mapping)))


def _shuffles(trace: _Trace) -> dict[str, str]:
    """Settings for as many tasks after a shuffle as the size of the trace needs."""
    # A compressed file is several times larger when read.
    size = sum(one.size * (4 if one.codec else 1) for one in trace.sources)
    return {"spark.sql.shuffle.partitions": str(1 + size // PER_SHUFFLE_TASK)}


def _refuse_what_is_nothing(trace: _Trace, read: Tallies) -> None:
    if read.failed:
        raise UniverseTraceError(read.failed[0])
    named = trace.sources[0].path + (" and others" if len(trace.sources) > 1 else "")
    if read.rows == 0:
        raise UniverseTraceError(f"{named}: empty, there is no row to read")
    if read.rows == sum(read.skipped.values()):
        told = ", ".join(f"{why} ({number:,})" for why, number in read.skipped.items())
        raise UniverseTraceError(f"{named}: all {read.rows:,} rows are skipped: {told}")


# -- making tables ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Made:
    """A written table: its rows, its merged rows, and further notes."""

    kept: int
    duplicates: int
    details: Dict[str, Any]


def _make_subscriptions(
    session: SparkSession,
    trace: _Trace,
    staged: DataFrame,
    read: Tallies,
    draft: Draft,
    tell: Tell,
) -> _Made:
    rows = good_rows(staged)
    if trace.mapping.format == "lists":
        rows = numbered_lines(rows, trace.offsets(session, read), "topic")
    tell("merging pairs")
    pairs = merged_pairs(rows)
    names = [one for one in ("user", "topic") if trace.mapping.is_name(one)]
    if names:
        # The names of merged pairs, once: they are few beside the rows, and are needed twice.
        folder = str(draft.scratch / "pairs")
        pairs.write.parquet(folder)
        pairs = session.read.parquet(folder)
    for one in names:
        tell(f"numbering the names of {one}s")
        draft.write(f"{one}s", number_names(pairs.withColumnRenamed(one, "name")))
        pairs = replace_names(pairs, one, _written(session, draft, f"{one}s"))
    tell("writing subscriptions")
    kept, duplicates = _write_pairs(draft, pairs)
    draft.write("quarantine", quarantine(staged, trace.files(session)))
    return _Made(kept, duplicates, {})


def _write_pairs(draft: Draft, pairs: DataFrame) -> tuple[int, int]:
    """Write merged pairs; return their number, and how many rows were merged away."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    counted = pairs.observe(seen, F.coalesce(F.sum(F.col("times") - 1), F.lit(0)).alias("n"))
    kept = draft.write("subscriptions", counted.sortWithinPartitions("user", "topic"))
    return kept, int(seen.get["n"])


def _make_publications(
    session: SparkSession,
    trace: _Trace,
    staged: DataFrame,
    read: Tallies,
    draft: Draft,
    tell: Tell,
) -> _Made:
    from pyspark.sql import functions as F

    files = trace.files(session)
    lines = sum(read.lines_by_piece.values())
    rows = numbered_lines(good_rows(staged), trace.offsets(session, read), "row")
    rows = _without_names(session, trace.mapping, rows, lines, draft, tell)
    posts = typed_publications(rows)
    bad = quarantine(staged, files)
    tell("writing publications")
    if "post" not in trace.mapping.columns:
        draft.write("publications", posts.sortWithinPartitions("post"))
        draft.write("quarantine", bad)
        return _Made(draft.rows["publications"], 0, {})
    folder = str(draft.scratch / "ranked")
    ranked_posts(posts).write.parquet(folder)
    ranked = session.read.parquet(folder)
    draft.write("publications", ranked.where("rank = 1").sortWithinPartitions("post"))
    draft.write("quarantine", bad.union(conflicting_posts(ranked, files)))
    merged = ranked.agg(
        F.coalesce(F.sum(F.when(F.col("rank") == 1, F.col("times") - 1)), F.lit(0)).alias("n")
    )
    return _Made(
        draft.rows["publications"], int(merged.collect()[0].n), _replies(session, trace, draft)
    )


def _without_names(
    session: SparkSession, mapping: Mapping, rows: DataFrame, lines: int, draft: Draft, tell: Tell
) -> DataFrame:
    """Rows of a trace of publications with numbers for names; the dictionaries are written."""
    from pyspark.sql import functions as F

    if mapping.is_name("user"):
        tell("numbering the names of users")
        draft.write("users", number_names(rows.select(F.col("user").alias("name"))))
        rows = replace_names(rows, "user", _written(session, draft, "users"))
    if mapping.is_name("topic"):
        tell("numbering the names of topics")
        draft.write("topics", number_names(rows.select(F.explode("topic").alias("name"))))
        rows = replace_names_in_lists(rows, "row", "topic", _written(session, draft, "topics"))
    if mapping.is_name("post"):
        tell("numbering the names of posts")
        draft.write("posts", post_dictionary(rows, lines))
        posts = _written(session, draft, "posts")
        rows = replace_names(rows, "post", posts)
        if "reply_to" in mapping.columns:
            rows = replace_names_in_lists(rows, "row", "reply_to", posts)
    return rows


def _replies(session: SparkSession, trace: _Trace, draft: Draft) -> dict[str, Any]:
    from pyspark.sql import functions as F

    if "reply_to" not in trace.mapping.columns:
        return {}
    written = _written(session, draft, "publications")
    links = written.select(F.explode("reply_to")).count()
    return {"replies": {"links": links, "unknown": unknown_replies(written).count()}}


def _derive(session: SparkSession, draft: Draft, made: _Made) -> _Made:
    pairs = merged_pairs(subscriptions_of(_written(session, draft, "publications")))
    kept, merged = _write_pairs(draft, pairs)
    told = {"from": "publications", "kept": kept, "merged": merged}
    return replaced(made, details={**made.details, "subscriptions": told})


def _written(session: SparkSession, draft: Draft, table: str) -> DataFrame:
    return session.read.schema(TABLES[table]).parquet(str(draft.scratch / table))


# -- the account -----------------------------------------------------------------------------------


def _counts(session: SparkSession, draft: Draft, read: Tallies, made: _Made) -> Counts:
    return Counts(
        read=read.rows,
        kept=made.kept,
        duplicates=made.duplicates,
        quarantined=draft.rows["quarantine"],
        skipped=sum(read.skipped.values()),
        quarantined_by=counts_by_reason(_written(session, draft, "quarantine")),
        skipped_by=read.skipped,
    )


def sizes_of(session: SparkSession, draft: Draft) -> tuple[int | None, int | None]:
    """How many users and topics the subscriptions have."""
    if "subscriptions" not in draft.rows:
        return None, None
    pairs = _written(session, draft, "subscriptions")
    return pairs.select("user").distinct().count(), pairs.select("topic").distinct().count()


def _hints(trace: _Trace, staged: DataFrame, counts: Counts) -> Iterator[str]:
    for source in trace.sources:
        if not source.size:
            yield f"{source.path} is empty"
    if counts.quarantined and not trace.mapping.header and trace.mapping.format != "parquet":
        bad = staged.where("reason IS NOT NULL AND line = 0 AND reason LIKE '% no %'")
        firsts = {number for number, piece in enumerate(trace.pieces) if piece.start == 0}
        for row in bad.select("piece").distinct().collect():
            if row.piece in firsts:
                path = trace.pieces[row.piece].path
                yield f"the first line of {path} is bad: if it names the columns, say --header"


def file_facts(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """File facts for the manifests of importers that read files in their own way."""
    return [{"file": str(one.absolute()), "bytes": one.stat().st_size} for one in paths]
