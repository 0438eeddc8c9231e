"""The tables of the lab and their schemas: the one place that says what a column is.

On disk, a sweep's results are one small file per finished cell (`CELL`, one row) and, where asked
for, one file of messages per cell (`MESSAGE`).  The tables people read are made of them:

=============  =======================================================================
``runs``       one row per cell, seed and metric
``histograms`` one row per cell, seed, histogram and bucket
``messages``   one row per publication, where a sweep was asked to keep them
``timings``    one row per cell and seed: where and when it ran
=============  =======================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def _required(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


_MOMENT = pa.timestamp("us", tz="UTC")

GRID = _required(
    ("experiment", pa.string()),
    ("cell", pa.int32()),
    ("key", pa.string()),
    ("settings", pa.string()),
    ("seed", pa.int64()),
    ("cost", pa.float64()),
)
"""What is to be measured: one row per cell and seed.  `settings` is JSON, its keys sorted."""

METRIC = pa.struct(_required(("metric", pa.string()), ("value", pa.float64())))
BUCKET = pa.struct(_required(("name", pa.string()), ("bucket", pa.int64()), ("count", pa.int64())))

CELL = _required(
    ("key", pa.string()),
    ("metrics", pa.list_(pa.field("element", METRIC, nullable=False))),
    ("histograms", pa.list_(pa.field("element", BUCKET, nullable=False))),
    ("sweep", pa.string()),
    ("executor", pa.string()),
    ("worker", pa.int64()),
    ("started", _MOMENT),
    ("ended", _MOMENT),
)
"""The file of a finished cell: its one row is written whole or not at all."""

MESSAGE = _required(
    ("key", pa.string()),
    ("id", pa.string()),
    ("topic", pa.string()),
    ("source", pa.int64()),
    ("published", pa.int64()),
    ("deliveries", pa.int64()),
    ("latency_mean", pa.float64()),
    ("latency_max", pa.int64()),
    ("delay_mean", pa.float64()),
    ("delay_max", pa.int64()),
)
"""One row per publication; times in the simulator's units.

*latency* is from publishing to delivery, *delay* from reception to delivery.
"""
MEASURED_MESSAGE = pa.schema([field for field in MESSAGE if field.name != "key"])
"""What `Measurement.messages` has: the key is known to whoever ran the cell."""

_POINT = (
    ("experiment", pa.string()),
    ("cell", pa.int32()),
    ("key", pa.string()),
    ("settings", pa.string()),
    ("seed", pa.int64()),
)

RUNS = _required(*_POINT, ("metric", pa.string()), ("value", pa.float64()))
HISTOGRAMS = _required(
    *_POINT, ("name", pa.string()), ("bucket", pa.int64()), ("count", pa.int64())
)
TIMINGS = _required(
    *(column for column in _POINT if column[0] != "settings"),
    ("sweep", pa.string()),
    ("executor", pa.string()),
    ("worker", pa.int64()),
    ("started", _MOMENT),
    ("ended", _MOMENT),
)
"""`sweep` is one run of a driver, `executor` a host and a process, `worker` a core's process."""

SCHEMAS = {"runs": RUNS, "histograms": HISTOGRAMS, "timings": TIMINGS}
"""The tables that are made of finished cells, each one file."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The same schema as Spark says it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
