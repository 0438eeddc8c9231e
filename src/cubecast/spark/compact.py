"""From the files of finished cells to the tables: small steps, each DataFrame -> DataFrame.

The tables depend on the grid and on what the cells measured, and on nothing else: rows are in a
fixed order and each table is one file, so that two sweeps over the same grid give the same bytes
wherever and in whatever pieces they ran.  (`timings` tells just that, and differs.)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.spark.results import Results
from cubecast.spark.tables import CELL, HISTOGRAMS, MESSAGE, RUNS, SCHEMAS, TIMINGS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE = 1 << 17


def write_tables(spark: SparkSession, results: Results) -> None:
    """Make the tables of all finished cells of the grid, and put them in place together."""
    cells = finished_cells(spark, results).cache()
    with results.new_tables() as folder:
        for name, frame in (
            ("runs", runs_of(cells)),
            ("histograms", histograms_of(cells)),
            ("timings", timings_of(cells)),
        ):
            write_one_file(frame, SCHEMAS[name], folder / f"{name}.parquet")
    cells.unpersist()


def finished_cells(spark: SparkSession, results: Results) -> DataFrame:
    """The rows of the grid that are finished, with what they measured."""
    grid = spark.createDataFrame(results.grid())
    cells = spark.read.schema(spark_schema(CELL)).parquet(_uri(results.folder("cells")))
    return grid.join(cells, "key")


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


def write_one_file(frame: DataFrame, schema: pa.Schema, path: Path) -> None:
    """Rows of a frame, in their order, as one file with exactly the declared schema.

    Spark writes a directory of parts, whose footers differ from one Java process to the next; so
    the parts are copied, row group by row group.
    """
    parts = path.with_name(f".{path.name}.parts")
    frame.write.option("compression", "zstd").parquet(_uri(parts))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in sorted(parts.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE):
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    shutil.rmtree(parts)


# -- reading ---------------------------------------------------------------------------------------


def read_table(spark: SparkSession, results: Results, name: str) -> DataFrame:
    """One of the tables as it was written last."""
    results.require_tables()
    return spark.read.schema(spark_schema(SCHEMAS[name])).parquet(_uri(results.table_file(name)))


def read_messages(spark: SparkSession, results: Results) -> DataFrame:
    """The messages of all finished cells of the grid, with the cell they belong to.

    They may be many, so they stay where the cells put them.  A file of messages whose cell is not
    finished is not read.
    """
    kept = results.finished() & set(results.grid()["key"].to_pylist())
    paths = [results.messages_file(key) for key in sorted(kept)]
    schema = spark_schema(MESSAGE)
    found = [_uri(path) for path in paths if path.exists()]
    if not found:
        return spark.createDataFrame([], schema)
    grid = spark.createDataFrame(results.grid()).drop("cost")
    return grid.join(spark.read.schema(schema).parquet(*found), "key")


def _uri(path: Path) -> str:
    """The path on the file system that all share, whatever Spark's own default is."""
    return f"file://{path}"
