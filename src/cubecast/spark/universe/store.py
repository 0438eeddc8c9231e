"""A universe on disk: a directory of Parquet tables and one manifest.

====================  ===========================================================================
``universe.json``     the manifest: what made the tables, of what, with which counts
``subscriptions/``    each pair of user and topic once (`schemas.SUBSCRIPTIONS`)
``publications/``     what was published (`schemas.PUBLICATIONS`), where the trace says
``users/``            the names of users (`schemas.NAMES`), where the trace has names; likewise
                      ``topics/`` and ``posts/``
``participants/``     who took part in a post (`PARTICIPANTS`), where the trace says
``quarantine/``       rows that could not be read (`schemas.QUARANTINE`)
====================  ===========================================================================

1. A universe is drafted beside its place, under a name that readers skip.  The manifest is written
   last, and the whole directory is renamed: a reader finds all of it or nothing.
2. A draft replaces a universe of the same identity (the same input, read the same way), and another
   universe only if told to.  It never replaces a directory that is not a universe.
3. Drafts of processes that died are removed by the next draft for the same place; a draft that is
   being written is held by a lock, which the system lifts with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from cubecast.spark.session import end_own_jobs
from cubecast.spark.storage import write_atomically
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.schemas import NAMES, PUBLICATIONS, QUARANTINE, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "universe.json"
LOCK = ".lock"
ATTEMPTS, ATTEMPT_S = 20, 0.1
"""How often, and how far apart, a folder is removed that does not go at once."""
FORMAT = 1
"""Of the manifest and the tables; a reader refuses a later one."""

PARTICIPANTS = StructType(
    [StructField("post", LongType(), False), StructField("user", LongType(), False)]
)
"""The participants of a post's conversation, where the trace does not name its author."""

TABLES: Mapping[str, StructType] = {
    "subscriptions": SUBSCRIPTIONS,
    "publications": PUBLICATIONS,
    "users": NAMES,
    "topics": NAMES,
    "posts": NAMES,
    "participants": PARTICIPANTS,
    "quarantine": QUARANTINE,
}
"""All tables that a universe may have."""

PARQUET = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Timestamps that every reader of Parquet knows; Spark's own form has no zone."""

_PATTERN_CHARACTERS = frozenset("*?[]{}\\")
"""Characters that Spark takes for a pattern in the name of a directory."""


@dataclass(frozen=True, slots=True)
class Universe:
    """A finished universe, to be read."""

    root: Path
    manifest: Mapping[str, Any]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self.manifest["tables"])

    def read(self, session: SparkSession, table: str) -> DataFrame:
        """One of its tables, with the schema that the project declares."""
        if table not in self.manifest["tables"]:
            raise UniverseError(
                f"{self.root} has no table {table!r}; it has {', '.join(self.tables) or 'none'}"
            )
        check_table(self.root / table, TABLES[table], self.manifest["tables"][table])
        return session.read.schema(TABLES[table]).parquet(str(self.root / table))


def check_table(folder: Path, schema: StructType, rows: int) -> None:
    """Raise unless the files of a table have its columns, and as many rows as the manifest says.

    Spark reads a column that is missing as nulls, and a file that is missing as nothing.
    """
    wanted = {one.name: one.type for one in to_arrow_schema(schema, timezone="UTC")}
    found = 0
    for path in sorted(folder.glob("*.parquet")):
        try:
            metadata = pq.read_metadata(path)
            types = {one.name: one.type for one in metadata.schema.to_arrow_schema()}
        except (OSError, pa.ArrowException) as error:
            raise UniverseError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
        found += metadata.num_rows
        for name, kind in wanted.items():
            if name not in types or not _alike(types[name], kind):
                told = types.get(name, "missing")
                raise UniverseError(f"{path} is damaged: column {name} is {told}, not {kind}")
    if found != rows:
        raise UniverseError(
            f"{folder} is damaged: it has {found:,} rows where the manifest says {rows:,}"
        )


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column has the wanted type; time zones and names of items may differ."""
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found))
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found)) and found.value_type == wanted.value_type
    return bool(found == wanted)


def refuse_patterns(path: Path) -> None:
    """Raise if Spark would take the name of a place for a pattern, and read or write elsewhere."""
    unusable = sorted(_PATTERN_CHARACTERS.intersection(str(path.absolute())))
    if unusable:
        raise UniverseError(f"cannot use {path}: Spark takes {' '.join(unusable)} for a pattern")


def open_universe(path: Path, *, unsound: bool = False) -> Universe:
    """The universe in a directory; one with too many bad rows only if `unsound` says so."""
    root = path.absolute()
    refuse_patterns(root)
    manifest = read_manifest(root)
    if manifest is None:
        what = "is no universe (it has no universe.json)" if root.exists() else "does not exist"
        raise UniverseError(f"{path} {what}; `cubecast universe ingest` makes one")
    if manifest.get("format", FORMAT) > FORMAT:
        raise UniverseError(f"{path} was written by a later cubecast; this one cannot read it")
    if not manifest.get("sound", True) and not unsound:
        raise UniverseError(
            f"{path} is unsound: too many rows of its trace were bad; look at its quarantine, "
            "then ingest it again with the right mapping or a higher --most-bad"
        )
    return Universe(root, manifest)


def read_manifest(root: Path) -> dict[str, Any] | None:
    """The manifest of a directory; None if it is no universe."""
    try:
        found = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UniverseError(f"cannot read {root / MANIFEST}: {error}") from None
    if not _is_manifest(found):
        raise UniverseError(f"cannot read {root / MANIFEST}: not a manifest")
    return dict(found)


def _is_manifest(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("format", FORMAT), int):
        return False
    tables = found.get("tables")
    return isinstance(tables, dict) and all(
        name in TABLES and isinstance(rows, int) for name, rows in tables.items()
    )


@dataclass(slots=True)
class Draft:
    """A universe that is being written."""

    scratch: Path
    rows: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] | None = None

    def write(self, table: str, frame: DataFrame) -> int:
        """Write one table with its declared schema; return its number of rows on disk."""
        names = [one.name for one in TABLES[table].fields]
        folder = self.scratch / table
        with settings(frame.sparkSession, PARQUET):
            frame.select(*names).write.mode("overwrite").parquet(str(folder))
        self.rows[table] = rows_on_disk(folder)
        return self.rows[table]

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest; leaving the block of `new_universe` puts the tables in place."""
        self.facts = {"format": FORMAT, **facts, "tables": dict(self.rows)}
        return self.facts


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for the time of the block."""
    before = {key: session.conf.get(key) for key in values}
    try:
        for key, value in values.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                session.conf.set(key, old)


def rows_on_disk(folder: Path) -> int:
    """How many rows the files of a table hold, by their own account."""
    return sum(pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet")))


def refuse_place(out: Path, identity: str, replace: bool) -> None:
    """Raise if a universe of this identity may not be put at `out`."""
    refuse_patterns(out)
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir() or out.is_symlink():
        raise UniverseError(f"{out} exists and is no directory; choose another --out")
    manifest = read_manifest(out)
    if manifest is None:
        if any(out.iterdir()):
            raise UniverseError(
                f"{out} exists and is no universe; choose another --out (it is left as it is)"
            )
    elif manifest.get("identity") != identity and not replace:
        raise UniverseError(
            f"{out} holds another universe ({_title(manifest)}); choose another --out, "
            "or replace it with --replace"
        )


def _title(manifest: Mapping[str, Any]) -> str:
    rows = ", ".join(f"{count:,} {table}" for table, count in manifest["tables"].items())
    return f"{manifest.get('made_by', 'unknown')}: {rows}"


@contextmanager
def new_universe(out: Path, identity: str, *, replace: bool = False) -> Iterator[Draft]:
    """A draft to write tables to; leaving the block puts it at `out` if it was finished.

    `identity` tells universes apart: a draft with the identity of the universe that is there
    replaces it.
    """
    refuse_place(out, identity, replace)
    place = out.absolute()
    scratch = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead_drafts(place)
        scratch.mkdir()
    except OSError as error:
        raise UniverseError(f"cannot write to {place.parent}: {error.strerror}") from None
    lock = os.open(scratch / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft = Draft(scratch)
        yield draft
        if draft.facts is not None:
            _keep_only(scratch, draft.rows)
            _sync(scratch)
            text = json.dumps({"identity": identity, **draft.facts}, indent=1)
            write_atomically(
                scratch / MANIFEST, lambda path: path.write_text(text + "\n", encoding="utf-8")
            )
            refuse_place(out, identity, replace)
            _put_in_place(scratch, place)
    except BaseException:
        end_own_jobs()  # else they would go on writing
        raise
    finally:
        os.close(lock)
        _remove(scratch)


def _remove(scratch: Path) -> None:
    """Remove a folder; a task that is just ending may still write to it."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(scratch, ignore_errors=True)
        if not scratch.exists():
            return
        time.sleep(ATTEMPT_S)


def _keep_only(scratch: Path, tables: Mapping[str, int]) -> None:
    """Remove files from a draft that are no tables: staged rows.  Its lock stays until the end."""
    for path in scratch.iterdir():
        if path.name not in tables and path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sync(scratch: Path) -> None:
    """Flush Spark's files to the disk, before the manifest lists them."""
    for path in scratch.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_in_place(scratch: Path, place: Path) -> None:
    """Rename into place; between two renames there is no universe, never a mixture of two."""
    old = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    if place.exists():
        place.rename(old)
    scratch.rename(place)
    (place / LOCK).unlink(missing_ok=True)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_folder(out: Path | None) -> Iterator[Path | None]:
    """A scratch folder that takes its place at `out` when the block ends well; None stays None.

    Two commands with the same place do not mix: the later one finds the place taken.
    """
    if out is None:
        yield None
        return
    refuse_patterns(out)
    place = out.absolute()
    _refuse_taken(place)
    scratch = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    try:
        yield scratch
        _refuse_taken(place)
        scratch.rename(place)
    except BaseException:
        end_own_jobs()
        raise
    finally:
        _remove(scratch)


def _refuse_taken(place: Path) -> None:
    if place.exists() or place.is_symlink():
        raise UniverseError(f"{place} exists already: choose a new directory")


def _remove_dead_drafts(place: Path) -> None:
    for path in place.parent.glob(f".{place.name}.{'[0-9a-f]' * 32}.tmp"):
        try:
            lock = os.open(path / LOCK, os.O_RDWR)
        except FileNotFoundError:
            # Without a lock it is a universe on its way out, or a draft just begun.
            if (path / MANIFEST).exists():
                shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue  # another process writes it
        finally:
            os.close(lock)
