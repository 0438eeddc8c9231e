"""Judges the rows of a piece: the work of a task of the ingest, without Spark.

Lines become cells (`cells`), cells become ids and times (`values`), and each row leaves with its
values or with the reason why it has none.  A task also reports how many rows it read, how many it
skipped and why, and whether its file was damaged: these tallies are rows of the same table, so that
one pass over the trace yields all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cubecast.spark.universe.cells import (
    LIST_OF_TEXT,
    FileColumns,
    decode,
    is_list,
    lines_of,
    meet,
    pick_json,
    pick_parquet,
    pick_text,
    rows_as_text,
    split,
)
from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.mapping import Mapping
from cubecast.spark.universe.sieve import Sieve, shown
from cubecast.spark.universe.sources import Piece, blocks
from cubecast.spark.universe.values import (
    UTC_TIME,
    Problems,
    as_mask,
    moments,
    names,
    times,
    whole_numbers,
)

ROWS, LINES, FAILED, SKIPPED = "rows", "lines", "failed: ", "skipped: "
"""Tallies: rows read; lines read; a file that could not be read; rows skipped."""
PARQUET_BATCH = 1 << 16
JOIN = "/"
"""Between the parts of a name made of several columns."""


def staged_schema(mapping: Mapping) -> pa.Schema:
    """The rows of a task: a row with its values, a bad row with its reason, or a tally."""
    fields = [
        ("piece", pa.int32()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.string()),
        ("tally", pa.string()),
        ("count", pa.int64()),
    ]
    return pa.schema([*fields, *((name, type_) for name, type_ in value_types(mapping).items())])


def value_types(mapping: Mapping) -> dict[str, Any]:
    """The values of a good row, by field."""
    if mapping.format == "lists":
        return {"user": _id_type(mapping, "user")}
    found: dict[str, Any] = {}
    for name in mapping.columns:
        if name == "time":
            found[name] = UTC_TIME
        else:
            one = _id_type(mapping, name)
            found[name] = pa.list_(one) if is_list(mapping, name) else one
    return found


def _id_type(mapping: Mapping, name: str) -> Any:
    return pa.string() if mapping.is_name(name) else pa.int64()


def judged(number: int, piece: Piece, mapping: Mapping, layout: FileColumns) -> Iterator[Any]:
    """All rows of a piece as record batches of `staged_schema`, its tallies last."""
    schema = staged_schema(mapping)
    tallies: Counter[str] = Counter()
    try:
        reading = _parquet if mapping.format == "parquet" else _text
        for sieve, first, lines in reading(piece, mapping, layout, tallies):
            tallies.update({f"{SKIPPED}{why}": n for why, n in sieve.skipped.items()})
            yield from _batches(sieve, number, first, lines, schema)
    except UniverseTraceError as error:
        tallies[f"{FAILED}{error}"] = 1
    told = {"tally": list(tallies), "count": list(tallies.values())}
    yield _batch(schema, len(tallies), piece=[number] * len(tallies), **told)


Judged = tuple[Sieve, int, np.typing.NDArray[np.int64]]
"""A sieve, the line in the piece at which it begins, and the line in it of each of its rows."""


def _batches(
    sieve: Sieve, number: int, first: int, lines: np.typing.NDArray[np.int64], schema: pa.Schema
) -> Iterator[Any]:
    if len(sieve.live):
        where = lines[sieve.live] + first
        pieces = np.full(len(where), number, dtype=np.int32)
        yield _batch(schema, len(where), piece=pieces, line=where, **sieve.columns)
    positions, texts, reasons = sieve.bad_rows()
    if len(positions):
        where = lines[positions] + first
        pieces = np.full(len(where), number, dtype=np.int32)
        yield _batch(schema, len(where), piece=pieces, line=where, row=texts, reason=reasons)


def _batch(schema: pa.Schema, length: int, **columns: Any) -> Any:
    """A record batch of the schema; columns that are not given are null."""
    arrays = []
    for one in schema:
        given = columns.get(one.name)
        if given is None:
            arrays.append(pa.nulls(length, one.type))
        else:
            array = given if isinstance(given, pa.Array) else pa.array(given, one.type)
            arrays.append(array if array.type == one.type else array.cast(one.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- text ------------------------------------------------------------------------------------------


def _text(
    piece: Piece, mapping: Mapping, layout: FileColumns, tallies: Counter[str]
) -> Iterator[Judged]:
    first = 0
    for block in blocks(piece):
        if block.too_long:
            tallies.update({ROWS: 1, LINES: 1})
            yield _too_long(block.data), first, np.zeros(1, dtype=np.int64)
            first += 1
            continue
        # Counted by themselves, so that the sum of good, bad and skipped rows can be checked.
        number = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        tallies[LINES] += number
        sieve = Sieve(lines_of(block.data))
        sieve.columns["line"] = sieve.raw
        _drop_what_is_no_row(sieve, mapping, at_start=piece.start == 0 and first == 0)
        decode(sieve)
        if mapping.format == "lists":
            members, lines, read = _members(sieve, mapping)
            tallies[ROWS] += read
            yield members, first, lines
        else:
            tallies[ROWS] += number
            _pick(sieve, mapping, layout)
            _judge(sieve, mapping)
            yield sieve, first, np.arange(number, dtype=np.int64)
        first += number


def _too_long(data: bytes) -> Sieve:
    sieve = Sieve(pa.array([shown(data)], pa.string()))
    sieve.refuse(np.ones(1, dtype=np.bool_), "row too long")
    return sieve


def _drop_what_is_no_row(sieve: Sieve, mapping: Mapping, *, at_start: bool) -> None:
    """Skip the header and comments; an empty line is a bad row."""
    if mapping.header and at_start:
        header = np.zeros(len(sieve.live), dtype=np.bool_)
        header[:1] = True
        sieve.skip(header, "header")
    if mapping.comment is not None:
        comments = pc.starts_with(sieve.columns["line"], pattern=mapping.comment.encode())
        sieve.skip(as_mask(comments), "comment")
    empty = as_mask(pc.equal(pc.binary_length(sieve.columns["line"]), 0))
    if mapping.conditions:
        sieve.skip(empty, "empty line")
    else:
        sieve.refuse(empty, "empty row")


def _pick(sieve: Sieve, mapping: Mapping, layout: FileColumns) -> None:
    if mapping.format == "json":
        pick_json(sieve, mapping)
        return
    split(sieve, mapping.cell_separator, mapping.cell_quote)
    meet(sieve, mapping.conditions, dict(layout.positions))
    pick_text(sieve, mapping, layout)


def _members(sieve: Sieve, mapping: Mapping) -> tuple[Sieve, np.typing.NDArray[np.int64], int]:
    """Lists of members become rows, one per member; with the line of each, and how many there are.

    A line that is bad as a whole is one row.
    """
    split(sieve, mapping.cell_separator, mapping.cell_quote)
    cells = sieve.columns["cells"]
    users = pc.list_flatten(cells)
    owners = sieve.live[pc.list_parent_indices(cells).to_numpy(zero_copy_only=False)]
    positions, texts, reasons = sieve.bad_rows()
    found = Sieve(pa.concat_arrays([users, pa.array(texts, pa.string())]))
    found.skipped = sieve.skipped
    found.columns["user.0"] = found.raw
    for reason in dict.fromkeys(reasons):
        mask = np.zeros(len(found.raw), dtype=np.bool_)
        mask[len(users) :] = [one == reason for one in reasons]
        found.refuse(mask[found.live], reason)
    _judge_field(found, mapping, "user", 1)
    read = len(found.raw) + sum(sieve.skipped.values())
    return found, np.concatenate([owners, positions]), read


# -- Parquet ---------------------------------------------------------------------------------------


def _parquet(
    piece: Piece, mapping: Mapping, layout: FileColumns, tallies: Counter[str]
) -> Iterator[Judged]:
    wanted = list(layout.read)
    first = 0
    try:
        # Timestamps of 96 bits, as Spark writes them, go beyond the nanoseconds of 64 bits.
        file = pq.ParquetFile(piece.path, coerce_int96_timestamp_unit="us")
        tallies[ROWS] += file.metadata.row_group(piece.start).num_rows
        tallies[LINES] += file.metadata.row_group(piece.start).num_rows
        for batch in file.iter_batches(PARQUET_BATCH, row_groups=[piece.start], columns=wanted):
            batch = batch.select(wanted)
            sieve = Sieve(pa.nulls(batch.num_rows, pa.string()))
            pick_parquet(sieve, mapping, batch, layout)
            _judge(sieve, mapping)
            if sieve.bad:
                sieve.raw = pa.array(rows_as_text(batch), pa.string())
            yield sieve, first, np.arange(batch.num_rows, dtype=np.int64)
            first += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        raise UniverseTraceError(f"{piece.path} is no sound Parquet file: {text}") from None


# -- fields ----------------------------------------------------------------------------------------


def _judge(sieve: Sieve, mapping: Mapping) -> None:
    """Columns of text become the values of the fields."""
    for name, columns in mapping.columns.items():
        if is_list(mapping, name):
            _judge_list(sieve, mapping, name, len(columns))
        else:
            _judge_field(sieve, mapping, name, len(columns))


def _judge_field(sieve: Sieve, mapping: Mapping, name: str, parts: int) -> None:
    texts = [sieve.columns.pop(f"{name}.{number}") for number in range(parts)]
    values, problems = _values(mapping, name, joined(texts) if parts > 1 else texts[0])
    sieve.columns[name] = values
    sieve.refuse_all(problems, name)


def _values(mapping: Mapping, name: str, cells: Any) -> tuple[Any, Problems]:
    if name == "time" and pa.types.is_timestamp(cells.type):
        return moments(cells)
    if name == "time":
        return times(cells, mapping.time_unit)
    return names(cells) if mapping.is_name(name) else whole_numbers(cells)


def joined(parts: list[Any]) -> Any:
    """A name made of several columns; empty where one of them is.

    A ``/`` inside a part is written ``%2F``, so that different parts make different names.
    """
    escaped = [
        pc.replace_substring(pc.replace_substring(one, "%", "%25"), JOIN, "%2F") for one in parts
    ]
    whole = pc.binary_join_element_wise(*escaped, JOIN)
    empty = np.zeros(len(whole), dtype=np.bool_)
    for one in parts:
        empty |= ~as_mask(pc.greater(pc.binary_length(one), 0))
    return pc.if_else(pa.array(empty), "", whole) if empty.any() else whole


def _judge_list(sieve: Sieve, mapping: Mapping, name: str, parts: int) -> None:
    lists = sieve.columns.pop(f"{name}.{parts - 1}")
    common = [sieve.columns.pop(f"{name}.{number}") for number in range(parts - 1)]
    assert lists.type == LIST_OF_TEXT, "lists come as text"
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(lists)
    if common:
        items = joined([*(one.take(pa.array(owners)) for one in common), items])
    values, problems = _values(mapping, name, items)
    sieve.columns[name] = _as_lists(lists, values)
    sieve.refuse_all(_of_lists(lists, owners, problems, needed=name == "topic"), name)


def _as_lists(lists: Any, values: Any) -> Any:
    """The values in lists as long as those."""
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(length)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=lists.is_null())


def _of_lists(
    lists: Any, owners: np.typing.NDArray[np.int64], problems: Problems, *, needed: bool
) -> Problems:
    """The problems of items as problems of the rows that have them."""
    empty = ~as_mask(pc.greater(pc.list_value_length(lists), 0))
    found: Problems = [(empty, "is empty")] if needed else []
    for mask, reason in problems:
        rows = np.zeros(len(lists), dtype=np.bool_)
        rows[owners[mask]] = True
        found.append((rows, reason))
    return found
