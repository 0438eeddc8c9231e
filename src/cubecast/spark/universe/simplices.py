"""Ask Ubuntu as Benson et al. publish it: threads and tags as simplices, joined on the question.

A set of simplices is four files of one number per line: ``nverts`` (sizes), ``simplices``
(members, one simplex after the other), ``times`` (ms) and ``simplex-labels`` (the question).  The
lines of one file count on those of another: a bad line would shift all that follow, so it is not
quarantined, and the import is refused.

A thread whose question has tags is a post with these topics, at the question's time among the tags
(the two sets count from different origins).  The participants of a thread subscribe to its tags.
The author of a question is unknown: `user` is null; the table `participants` has all of a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.spark.universe.cells import lines_of
from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.merge import merged_pairs
from cubecast.spark.universe.quarantine import Counts
from cubecast.spark.universe.sources import Piece, TraceFile, blocks, find_sources
from cubecast.spark.universe.store import Draft, new_universe
from cubecast.spark.universe.values import UTC_TIME, whole_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cubecast.spark.universe.ingest import Manifest, Tell

Numbers = np.typing.NDArray[np.int64]

THREADS, TAGS = "threads-ask-ubuntu", "tags-ask-ubuntu"
NO_TAGS = "thread whose question has no tags"


@dataclass(frozen=True, slots=True)
class Simplices:
    """Labelled sets with times; the members of set i are `members[i]`."""

    labels: Numbers
    times: Numbers
    members: Any

    def table(self) -> pa.Table:
        times = pa.array(self.times * 1000).cast(UTC_TIME)
        return pa.table({"post": self.labels, "time": times, "members": self.members})


# -- reading ---------------------------------------------------------------------------------------


def read_numbers(path: Path) -> Numbers:
    """The numbers of a file, one per line; a bad line is refused with its number."""
    source = find_sources([path], "text")[0]
    parts: list[Numbers] = []
    for data in _lines(source):
        lines = lines_of(data)
        try:
            values, problems = whole_numbers(lines.cast(pa.string()))
        except pa.ArrowInvalid:
            raise UniverseTraceError(f"{path} is not UTF-8") from None
        if problems:
            mask, reason = min(problems, key=lambda one: int(np.argmax(one[0])))
            line = sum(map(len, parts)) + int(np.argmax(mask)) + 1
            raise UniverseTraceError(f"{path}, line {line}: the number {reason}")
        parts.append(values.to_numpy())
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _lines(source: TraceFile) -> Iterator[bytes]:
    if source.size:
        yield from (block.data for block in blocks(Piece(0, source.path, source.codec)))


def read_names(path: Path) -> list[tuple[int, str]]:
    """``node-labels``: a number, a blank, a name on each line."""
    source = find_sources([path], "text")[0]
    found: list[tuple[int, str]] = []
    for data in _lines(source):
        for line in lines_of(data).to_pylist():
            number, blank, name = line.partition(b" ")
            if not blank or not number.isdigit() or not name:
                raise UniverseTraceError(f"{path}, line {len(found) + 1}: no number and name")
            found.append((int(number), name.decode("utf-8", "backslashreplace")))
    return found


def read_simplices(folder: Path, name: str) -> Simplices:
    """The four files of a set; refused if their lengths do not fit."""
    sizes, members, times, labels = (
        read_numbers(_file(folder, f"{name}-{part}.txt"))
        for part in ("nverts", "simplices", "times", "simplex-labels")
    )
    for part, length in (("times", len(times)), ("simplex-labels", len(labels))):
        if length != len(sizes):
            raise UniverseTraceError(
                f"{folder}: {name}-{part} has {length:,} lines, nverts {len(sizes):,}"
            )
    if sizes.sum() != len(members):
        raise UniverseTraceError(
            f"{folder}: {name}-simplices has {len(members):,} lines, nverts says {sizes.sum():,}"
        )
    if len(np.unique(labels)) != len(labels):
        raise UniverseTraceError(f"{folder}: {name}-simplex-labels names a question twice")
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return Simplices(labels, times, pa.ListArray.from_arrays(offsets, pa.array(members)))


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, *(folder / f"{name}{ending}" for ending in (".gz", ".xz", ".zst"))):
        if path.exists():
            return path
    raise UniverseTraceError(f"{folder} has no {name} or {name}.gz")


# -- tables ----------------------------------------------------------------------------------------


def posts_with_topics(threads: DataFrame, tags: DataFrame) -> DataFrame:
    """Threads whose question has tags: post, time, topics, participants."""
    questions = tags.withColumnRenamed("members", "topics")
    return threads.withColumnRenamed("members", "participants").drop("time").join(questions, "post")


def subscriptions_of_threads(posts: DataFrame) -> DataFrame:
    """Pairs, with repetitions: participants subscribe to the tags of their threads."""
    from pyspark.sql import functions as F

    users = posts.select(F.explode("participants").alias("user"), "topics")
    return users.select("user", F.explode("topics").alias("topic"))


def import_askubuntu(
    session: SparkSession, paths: Sequence[Path], out: Path, *, replace: bool, tell: Tell
) -> Manifest:
    """Make a universe of a directory with the files of `threads` and `tags`."""
    from cubecast.spark.universe.ingest import identity_of

    if len(paths) != 1 or not paths[0].is_dir():
        raise UniverseTraceError("askubuntu: name the one directory that holds the files")
    folder = paths[0].absolute()
    identity = identity_of({"importer": "askubuntu", "folder": str(folder)})
    with new_universe(out, identity, replace=replace) as draft:
        tell("reading threads and tags")
        threads, tags = read_simplices(folder, THREADS), read_simplices(folder, TAGS)
        names = read_names(_file(folder, f"{TAGS}-node-labels.txt"))
        tell("writing tables")
        frames = [
            _staged(session, draft, name, one.table())
            for name, one in ((THREADS, threads), (TAGS, tags))
        ]
        duplicates = _write(session, draft, posts_with_topics(*frames), names)
        manifest = _manifest(draft, folder, threads, tags, duplicates, session)
        draft.finish(manifest.facts())
    return manifest


def _staged(session: SparkSession, draft: Draft, name: str, table: pa.Table) -> DataFrame:
    path = draft.scratch / f"{name}.parquet"
    pq.write_table(table, path)
    return session.read.parquet(str(path))


def _write(
    session: SparkSession, draft: Draft, posts: DataFrame, names: list[tuple[int, str]]
) -> int:
    """Write all tables; return how many pairs were merged away."""
    from pyspark.sql import functions as F

    draft.write(
        "publications",
        posts.select(
            "post", "time", F.lit(None).cast("bigint").alias("user"), "topics",
            F.lit(None).cast("array<bigint>").alias("reply_to"),
        ).sortWithinPartitions("post"),
    )  # fmt: skip
    took_part = posts.select("post", F.explode("participants").alias("user"))
    draft.write("participants", took_part.sortWithinPartitions("post", "user"))
    draft.write("topics", session.createDataFrame(names, "id bigint, name string"))
    draft.write("quarantine", session.createDataFrame([], "file string, row string, reason string"))
    pairs = subscriptions_of_threads(posts)
    kept = draft.write("subscriptions", merged_pairs(pairs).sortWithinPartitions("user", "topic"))
    return pairs.count() - kept


def _manifest(
    draft: Draft, folder: Path, threads: Simplices, tags: Simplices, merged: int,
    session: SparkSession,
) -> Manifest:  # fmt: skip
    from cubecast.spark.universe.ingest import Manifest, file_facts, sizes_of

    kept = draft.rows["publications"]
    skipped = int((~np.isin(threads.labels, tags.labels)).sum())
    counts = Counts(
        read=len(threads.labels), kept=kept, duplicates=0, quarantined=0, skipped=skipped,
        skipped_by={NO_TAGS: skipped},
    )  # fmt: skip
    users, topics = sizes_of(session, draft)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    details = {
        "importer": "askubuntu",
        "tagged_questions": len(tags.labels),
        "subscriptions": {"from": "threads", "kept": draft.rows["subscriptions"], "merged": merged},
        "files": file_facts(files),
    }
    return Manifest(True, counts, dict(draft.rows), users, topics, details)
