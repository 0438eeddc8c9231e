"""The tables of the lab and their schemas: the only definition of their columns.

On disk, a sweep's results are one small file per finished cell (`CELL`, one row) and, where asked
for, one file of messages per cell (`MESSAGE`).  The tables people read are made of them:

=============  =======================================================================
``runs``       one row per cell, seed and metric
``histograms`` one row per cell, seed, histogram and bucket
``messages``   one row per publication, where a sweep was asked to keep them
``timings``    one row per cell and seed: where and when it ran
=============  =======================================================================

At the end of a run they are summed up, so that a report needs neither Spark nor Java:

=================  ===================================================================
``points``         one row per point and metric: mean and confidence interval
``distributions``  one row per point, histogram and bucket, the seeds together
``busyness``       one row per sweep: how busy its cores were
=================  ===================================================================

Tables with `settings`, which is JSON and says what a point is, also have a typed column for every
setting, null where an experiment has no such setting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def required(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    """A schema of columns without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


_MOMENT = pa.timestamp("us", tz="UTC")

_POINT = (
    ("experiment", pa.string()),
    ("cell", pa.int32()),
    ("key", pa.string()),
    ("settings", pa.string()),
    ("seed", pa.int64()),
)

GRID = required(*_POINT, ("cost", pa.float64()))
"""The cells to measure: one row per cell and seed.  `settings` is JSON, its keys sorted."""

METRIC = pa.struct(required(("metric", pa.string()), ("value", pa.float64())))
BUCKET = pa.struct(required(("name", pa.string()), ("bucket", pa.int64()), ("count", pa.int64())))
KEPT = pa.struct(required(("name", pa.string()), ("sha256", pa.string())))

CELL = required(
    ("key", pa.string()),
    ("metrics", pa.list_(pa.field("element", METRIC, nullable=False))),
    ("histograms", pa.list_(pa.field("element", BUCKET, nullable=False))),
    ("kept", pa.list_(pa.field("element", KEPT, nullable=False))),
    ("sweep", pa.string()),
    ("executor", pa.string()),
    ("worker", pa.int64()),
    ("started", _MOMENT),
    ("ended", _MOMENT),
)
"""The file of a finished cell: its one row is written whole or not at all.

`kept` has a digest of every file that the cell kept beside it, by the name of the folder.
"""

MESSAGE = required(
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
"""The columns of `Measurement.messages`: without the key, which the caller knows."""

RUNS = required(*_POINT, ("metric", pa.string()), ("value", pa.float64()))
HISTOGRAMS = required(*_POINT, ("name", pa.string()), ("bucket", pa.int64()), ("count", pa.int64()))
TIMINGS = required(
    *(column for column in _POINT if column[0] != "settings"),
    ("sweep", pa.string()),
    ("executor", pa.string()),
    ("worker", pa.int64()),
    ("started", _MOMENT),
    ("ended", _MOMENT),
)
"""`sweep` is one run of a driver, `executor` a host and a process, `worker` a core's process."""

_SUMMED = tuple(column for column in _POINT if column[0] in ("experiment", "cell", "settings"))


def _with_optional(schema: pa.Schema, *columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in columns)])


POINTS = _with_optional(
    required(
        *_SUMMED,
        ("metric", pa.string()),
        ("n", pa.int32()),
        ("mean", pa.float64()),
        ("least", pa.float64()),
        ("most", pa.float64()),
    ),
    ("sd", pa.float64()),
    ("ci", pa.float64()),
)
"""`n` seeds; `ci` is half the width of the 95 % confidence interval; one seed has neither sd nor
ci."""
DISTRIBUTIONS = _with_optional(
    required(
        *_SUMMED,
        ("name", pa.string()),
        ("bucket", pa.int64()),
        ("count", pa.int64()),
        ("share", pa.float64()),
        ("n", pa.int32()),
        ("mean", pa.float64()),
    ),
    ("ci", pa.float64()),
)
"""`count` and `share` are of all seeds together; `mean` and `ci` of the count in one run."""
BUSYNESS = _with_optional(
    required(
        ("sweep", pa.string()),
        ("cores", pa.int32()),
        ("cells", pa.int64()),
        ("busy_s", pa.float64()),
        ("span_s", pa.float64()),
        ("tail_s", pa.float64()),
    ),
    ("idle_share", pa.float64()),
)

SCHEMAS = {
    "runs": RUNS,
    "histograms": HISTOGRAMS,
    "timings": TIMINGS,
    "points": POINTS,
    "distributions": DISTRIBUTIONS,
    "busyness": BUSYNESS,
}
"""The tables made of finished cells, each one file; typed settings come after these."""


# -- settings as columns ---------------------------------------------------------------------------

_TAKEN = {name.lower() for schema in (*SCHEMAS.values(), GRID, CELL) for name in schema.names}


def setting_column(name: str) -> str:
    """The column of a setting: its name, or `setting_NAME` where a table has that name already."""
    return f"setting_{name}" if name.lower() in _TAKEN else name


def setting_fields(texts: Iterable[str]) -> list[pa.Field]:
    """The typed columns of some settings (JSON), in the order of their names."""
    parsed: list[dict[str, Any]] = [json.loads(text) for text in dict.fromkeys(texts)]
    names = sorted({name for settings in parsed for name in settings})
    kinds = {name: _kind(one[name] for one in parsed if name in one) for name in names}
    return [pa.field(setting_column(name), kind) for name, kind in kinds.items()]


def schema_with(name: str, settings: Iterable[pa.Field]) -> pa.Schema:
    """The schema of a table with the typed settings, if its rows belong to points."""
    schema = SCHEMAS[name]
    return pa.schema([*schema, *settings]) if "settings" in schema.names else schema


def with_settings(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the typed settings that its schema has, from its column `settings`."""
    wanted = [field for field in schema if field.name not in table.column_names]
    if not wanted:
        return table
    encoded = table["settings"].combine_chunks().dictionary_encode()  # rows are many, points few
    points = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    for field in wanted:
        values = [_typed(point.get(_setting(field.name)), field.type) for point in points]
        table = table.append_column(field, pa.array(values, field.type).take(encoded.indices))
    return table


def _setting(column: str) -> str:
    name = column.removeprefix("setting_")
    return name if setting_column(name) == column else column


def _kind(values: Iterable[Any]) -> pa.DataType:
    """The one type that holds all values of a setting; text, if there is no other."""
    found = {type(value) for value in values}
    if found == {bool}:
        return pa.bool_()
    if found == {int}:
        return pa.int64()
    return pa.float64() if found <= {int, float} else pa.string()


def _typed(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == pa.string():
        return value if isinstance(value, str) else json.dumps(value)
    return float(value) if kind == pa.float64() else value


def spark_schema(schema: pa.Schema) -> StructType:
    """The same schema in Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
