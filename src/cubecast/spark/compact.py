"""From the files of finished cells to the tables: small steps, each DataFrame -> DataFrame.

The tables depend on the grid and on the measurements of the cells, and on nothing else: rows are in
a fixed order and each table is one file, so that two sweeps over the same grid give the same bytes
wherever and in whatever pieces they ran.  (`timings` records where and when, and differs.)

Files are read and written by tasks and by the driver through `cubecast.spark.storage`; Spark itself
needs no connector to their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cubecast.spark.aggregate import aggregates
from cubecast.spark.errors import ResultsError
from cubecast.spark.frames import map_in_arrow
from cubecast.spark.results import LAST, Results
from cubecast.spark.seal import DamagedError
from cubecast.spark.sealed_files import sha256
from cubecast.spark.tables import (
    CELL,
    HISTOGRAMS,
    MESSAGE,
    RUNS,
    TIMINGS,
    required,
    schema_with,
    setting_fields,
    spark_schema,
    with_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_NAMES = 5
_SEALED = required(("key", pa.string()), ("seal", pa.string()))
_PART = required(("part", pa.int64()), ("sha256", pa.string()))


def tables_are_current(results: Results) -> bool:
    """Whether the tables are whole, and made of exactly the present grid and cells."""
    seals = results.known(set(results.grid()["key"].to_pylist()))
    return results.tables_made_of() == results.made_of(seals)


def write_tables(spark: SparkSession, results: Results) -> None:
    """Make the tables of all finished cells of the grid.

    Raises `ResultsError` if they lack a cell that is finished, or rows of one.
    """
    from pyspark import StorageLevel

    seals = results.known(set(results.grid()["key"].to_pylist()))
    made_of = results.made_of(seals)
    settings = setting_fields(results.grid()["settings"].to_pylist())
    # On the disk: a driver of 1 GB cannot hold ten thousand cells, and tried for each table.
    cells = finished_cells(spark, results, seals).persist(StorageLevel.DISK_ONLY)
    frames = {
        "runs": runs_of(cells), "histograms": histograms_of(cells), LAST: timings_of(cells)
    }  # fmt: skip
    frames |= aggregates(frames, cores_of_sweeps(spark, results))
    sums = sums_of(cells)
    others: dict[str, str] = {}
    for name, frame in sorted(frames.items(), key=lambda one: one[0] == LAST):
        notes = (made_of, others) if name == LAST else None
        others[name] = write_one_file(frame, schema_with(name, settings), results, name, notes)
    cells.unpersist()
    try:
        _refuse_lost_rows(results, seals.keys(), sums)
    except ResultsError:
        results.drop_table(LAST)  # else the next run would take the tables for current
        raise


def _refuse_lost_rows(results: Results, keys: Set[str], sums: Mapping[str, int]) -> None:
    """Refuse tables that were written without a finished cell, or without rows of one."""
    written = set(results.table(LAST, ["key"])["key"].to_pylist())
    if written != keys:
        names = ", ".join(sorted(keys ^ written)[:MOST_NAMES])
        raise ResultsError(
            f"the tables in {results.name} have {len(written)} cells and {len(keys)} are "
            f"finished; they differ in {names}"
        )
    found = {
        "runs": results.table("runs", ["cell"]).num_rows,
        "points": _sum(results.table("points", ["n"])),
        "histograms": _sum(results.table("histograms", ["count"])),
        "distributions": _sum(results.table("distributions", ["count"])),
    }
    for name, count in found.items():
        if count != sums[name]:
            raise ResultsError(
                f"the table {name} in {results.name} stands for {count} values, "
                f"and the finished cells have {sums[name]}"
            )


def _sum(column: pa.Table) -> int:
    total: int | None = pc.sum(column[0]).as_py()
    return total or 0


# -- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CellReader:
    """For `mapInArrow`: takes keys and seals of finished cells, gives their measurements."""

    uri: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = Results(self.uri)
        for batch in batches:
            rows = [self._read(results, row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=CELL)

    def _read(self, results: Results, row: dict[str, Any]) -> dict[str, Any]:
        try:
            (cell,) = results.cell(row["key"], row["seal"]).to_pylist()
        except DamagedError as error:
            where = results.place.where(f"cells/{row['key']}.parquet")
            raise ResultsError(
                f"{where} was damaged while the tables were made ({error}); "
                "the same command runs it again"
            ) from None
        return dict(cell)


def finished_cells(spark: SparkSession, results: Results, seals: dict[str, str]) -> DataFrame:
    """The finished rows of the grid, with their measurements."""
    sealed = pa.table([list(seals.keys()), list(seals.values())], schema=_SEALED)
    reader = CellReader(results.place.uri)
    cells = map_in_arrow(spark.createDataFrame(sealed), reader, spark_schema(CELL))
    return spark.createDataFrame(results.grid()).join(cells, "key")


def runs_of(cells: DataFrame) -> DataFrame:
    """One row per cell, seed and metric."""
    rows = cells.selectExpr("*", "inline(metrics)").select(*RUNS.names)
    return rows.orderBy("experiment", "cell", "seed", "metric")


def histograms_of(cells: DataFrame) -> DataFrame:
    """One row per cell, seed, histogram and bucket."""
    rows = cells.selectExpr("*", "inline(histograms)").select(*HISTOGRAMS.names)
    return rows.orderBy("experiment", "cell", "seed", "name", "bucket")


def timings_of(cells: DataFrame) -> DataFrame:
    """One row per cell and seed: where and when it ran."""
    return cells.select(*TIMINGS.names).orderBy("experiment", "cell", "seed")


def sums_of(cells: DataFrame) -> dict[str, int]:
    """What the tables of these cells add up to: values of metrics, and what histograms count."""
    counted = "aggregate(histograms, 0L, (total, one) -> total + one.count)"
    totals = cells.selectExpr("sum(size(metrics)) AS metrics", f"sum({counted}) AS counted").first()
    values, counts = (0, 0) if totals is None else (totals[0] or 0, totals[1] or 0)
    return {"runs": values, "points": values, "histograms": counts, "distributions": counts}


def cores_of_sweeps(spark: SparkSession, results: Results) -> DataFrame:
    """How many cores each sweep had."""
    noted = [(str(sweep["sweep"]), int(sweep["cores"])) for sweep in results.sweeps()]
    return spark.createDataFrame(noted, "sweep string, cores int")


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartWriter:
    """For `mapInArrow`: writes the rows of a partition to a file, and gives its digest."""

    uri: str
    folder: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, self.schema, compression="zstd") as writer:
            for batch in batches:
                table = with_settings(pa.Table.from_batches([batch]), self.schema)
                writer.write_table(table.cast(self.schema))
        content = sink.getvalue().to_pybytes()
        part = context.partitionId()
        Results(self.uri).place.write(part_file(self.folder, part), content)
        digest = sha256(content)
        yield pa.RecordBatch.from_pylist([{"part": part, "sha256": digest}], schema=_PART)


def part_file(folder: str, part: int) -> str:
    return f"{folder}/{part:06}.parquet"


def write_one_file(
    frame: DataFrame,
    schema: pa.Schema,
    results: Results,
    name: str,
    made_of: tuple[str, dict[str, str]] | None = None,
) -> str:
    """Write rows of a frame, in order, as one file with the declared schema; return its seal.

    Each partition is written by its task, wherever that is, and the driver joins them: no table
    passes through Spark's driver, and the file does not depend on how many partitions there are.
    """
    folder = f"tables/.{uuid4().hex}.tmp"
    writer = PartWriter(results.place.uri, folder, schema)
    parts = map_in_arrow(frame, writer, spark_schema(_PART)).collect()
    digests = {row["part"]: row["sha256"] for row in parts}
    try:
        return results.write_table(name, schema, _joined(results, folder, digests), made_of)
    finally:
        results.place.delete(folder)


def _joined(results: Results, folder: str, digests: dict[int, str]) -> Iterator[pa.Table]:
    for part, digest in sorted(digests.items()):
        name = part_file(folder, part)
        try:
            content = results.files.awaited(name, digest)
        except DamagedError as error:
            raise ResultsError(f"{results.place.where(name)}: {error}; run it again") from None
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            for batch in file.iter_batches():
                yield pa.Table.from_batches([batch])


# -- reading ---------------------------------------------------------------------------------------


def read_table(spark: SparkSession, results: Results, name: str) -> DataFrame:
    """One of the tables as it was written last."""
    results.require_tables()
    return spark.createDataFrame(results.table(name))


@dataclass(frozen=True, slots=True)
class MessageReader:
    """For `mapInArrow`: takes keys, gives the messages that these cells kept."""

    uri: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = Results(self.uri)
        for batch in batches:
            for key in batch["key"].to_pylist():
                yield from self._read(results, key)

    def _read(self, results: Results, key: str) -> list[pa.RecordBatch]:
        where = results.place.where(f"messages/{key}.parquet")
        again = "`cubecast lab run --keep messages` runs it again"
        try:
            content = results.kept("messages", key)
        except DamagedError as error:
            raise ResultsError(f"{where} is damaged ({error}); {again}") from None
        if content is None:
            return []
        batches: list[pa.RecordBatch] = pq.read_table(
            pa.BufferReader(content), schema=MESSAGE
        ).to_batches()
        return batches


def read_messages(spark: SparkSession, results: Results) -> DataFrame:
    """The messages of all finished cells of the grid, with the cell they belong to.

    They may be many, so they stay in the files of the cells.  A file of messages whose cell is not
    finished is not read.
    """
    grid = results.grid()
    finished = results.known(set(grid["key"].to_pylist()))
    keys = pa.table({"key": pa.array(sorted(finished), pa.string())})
    reader = MessageReader(results.place.uri)
    messages = map_in_arrow(spark.createDataFrame(keys), reader, spark_schema(MESSAGE))
    return spark.createDataFrame(grid).drop("cost").join(messages, "key")
