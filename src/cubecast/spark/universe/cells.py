"""Rows become cells: lines of text are cut, JSON is parsed, Parquet columns are named.

The result is the same for all formats.  For each field there is a list of columns of text, one per
column of the mapping; the last one of a list field is a column of lists of text.  They are in
``sieve.columns`` as ``user.0``, ``user.1``...
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubecast.spark.universe.mapping import LISTS, WHITESPACE, Column, Mapping, RowCondition
from cubecast.spark.universe.sieve import Sieve
from cubecast.spark.universe.sources import LONGEST_ROW
from cubecast.spark.universe.values import Mask, as_mask

LIST_OF_TEXT = pa.list_(pa.string())
_BEYOND_64_BITS = 2**70
WRONG_TYPE = "has a wrong type"
_WRONG = object()


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file: where those of the mapping are, and how many there are."""

    positions: dict[Column, int] = field(default_factory=dict)
    width: int = 0
    read: tuple[str, ...] = ()
    """Of a Parquet file: the columns to read."""


def is_list(mapping: Mapping, one: str) -> bool:
    return mapping.kind == "publications" and one in LISTS


# -- lines -----------------------------------------------------------------------------------------


def lines_of(data: bytes) -> Any:
    """The lines of a block as a column of bytes, without their ends (LF or CR LF)."""
    if not data.endswith(b"\n"):
        data += b"\n"
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.binary(), len(ends), buffers)
    lines = pc.binary_slice(whole, 0, -1)
    if b"\r\n" in data:
        returns = pc.ends_with(lines, pattern=b"\r")
        lines = pc.if_else(returns, pc.binary_slice(lines, 0, -1), lines)
    return lines


def decode(sieve: Sieve) -> None:
    """Lines of bytes become text; those that are no UTF-8 are bad."""
    lines = sieve.columns.pop("line")
    try:
        sieve.columns["text"] = lines.cast(pa.string())
        return
    except pa.ArrowInvalid:
        pass
    texts = [_decoded(line) for line in lines.to_pylist()]
    sieve.columns["text"] = pa.array(texts, pa.string())
    sieve.refuse(np.array([text is None for text in texts], dtype=np.bool_), "not UTF-8")


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


# -- separated text --------------------------------------------------------------------------------


def split(sieve: Sieve, separator: str, quote: str | None) -> None:
    """Lines of text become lists of cells."""
    text = sieve.columns.pop("text")
    quoted = as_mask(pc.match_substring(text, quote)) if quote else np.zeros(len(text), np.bool_)
    if not quoted.any():
        sieve.columns["cells"] = _split_plain(text, separator)
        return
    assert quote is not None, "only rows with a quote are quoted"
    rows = _split_quoted(text.filter(pa.array(quoted)).to_pylist(), separator, quote)
    plain = _split_plain(text.filter(pa.array(~quoted)), separator)
    places = np.argsort(np.concatenate([np.flatnonzero(~quoted), np.flatnonzero(quoted)]))
    joined = pa.concat_arrays([plain, pa.array(rows, LIST_OF_TEXT)])
    sieve.columns["cells"] = joined.take(pa.array(places))
    sieve.refuse(~as_mask(sieve.columns["cells"].is_valid()), "quotes do not match")


def _split_plain(text: Any, separator: str) -> Any:
    if separator == WHITESPACE:
        return pc.ascii_split_whitespace(pc.ascii_trim_whitespace(text))
    return pc.split_pattern(text, pattern=separator)


def _split_quoted(lines: Sequence[str], separator: str, quote: str) -> Iterable[list[str] | None]:
    csv.field_size_limit(LONGEST_ROW)
    found: list[list[str] | None] = []
    for line in lines:
        try:
            reader = csv.reader([line], delimiter=separator, quotechar=quote, strict=True)
            found.append(next(reader))
        except (csv.Error, StopIteration):
            found.append(None)
    return found


def cells_at(cells: Any, position: int) -> tuple[Any, Mask]:
    """The cells of one column, and which rows have it; the cells are of those rows only."""
    there = as_mask(pc.greater(pc.list_value_length(cells), position))
    rows = cells if there.all() else cells.filter(pa.array(there))
    return pc.list_element(rows, position), there


def meet(sieve: Sieve, conditions: Sequence[RowCondition], positions: dict[Column, int]) -> None:
    """Skip the rows that do not meet the conditions; a row without the cell matches nothing."""
    for condition in conditions:
        found, there = cells_at(sieve.columns["cells"], positions[condition.column])
        matches = np.zeros(len(there), dtype=np.bool_)
        matches[there] = _matches(found, condition.pattern)
        sieve.skip(matches if condition.negated else ~matches, f"not where {condition}")


def _matches(text: Any, pattern: str) -> Mask:
    return as_mask(pc.match_substring_regex(text, pattern=f"^(?:{pattern})$"))


def pick_text(sieve: Sieve, mapping: Mapping, layout: FileColumns) -> None:
    """Cells become the columns of fields; rows of another width are bad."""
    length = pc.list_value_length(sieve.columns["cells"]).to_numpy(zero_copy_only=False)
    width = layout.width
    sieve.refuse_all([(length < width, "too few columns"), (length > width, "too many columns")])
    cells = sieve.columns.pop("cells")
    for name, columns in mapping.columns.items():
        parts = [pc.list_element(cells, layout.positions[one]) for one in columns]
        if is_list(mapping, name):
            parts[-1] = listed(parts[-1], mapping)
        for number, part in enumerate(parts):
            sieve.columns[f"{name}.{number}"] = part


def listed(cells: Any, mapping: Mapping) -> Any:
    """Turn cells into lists: null for an empty cell, empty for the cell that says `nothing`."""
    if mapping.list_separator is None:
        lists = _lists_of_one(cells)
    else:
        lists = pc.split_pattern(cells, pattern=mapping.list_separator)
    if mapping.nothing is not None:
        none = pa.scalar([], LIST_OF_TEXT)
        lists = pc.if_else(pc.fill_null(pc.equal(cells, mapping.nothing), False), none, lists)
    empty = pc.fill_null(pc.equal(pc.binary_length(cells), 0), True)
    if pc.any(empty).as_py():
        lists = pc.if_else(empty, pa.scalar(None, LIST_OF_TEXT), lists)
    return lists


def _lists_of_one(cells: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(np.arange(len(cells) + 1, dtype=np.int32)), cells)


# -- JSON ------------------------------------------------------------------------------------------


def pick_json(sieve: Sieve, mapping: Mapping) -> None:
    """Each line is an object; its values become the columns of fields.

    A key with dots that is not there itself leads into objects: ``author.login``.
    """
    objects = [_parsed(text) for text in sieve.columns.pop("text").to_pylist()]
    broken = np.array([one is _WRONG for one in objects], dtype=np.bool_)
    other = np.array([one is not _WRONG and not isinstance(one, dict) for one in objects], np.bool_)
    sieve.refuse_all([(broken, "broken JSON"), (other, "no JSON object")])
    rows = [one for one in objects if isinstance(one, dict)]
    for condition in mapping.conditions:
        texts = [_text(_dig(row, str(condition.column)), True) for row in rows]
        found = pa.array([one if isinstance(one, str) else None for one in texts], pa.string())
        matches = _matches(found, condition.pattern)
        gone = matches if condition.negated else ~matches
        sieve.skip(gone, f"not where {condition}")
        rows = [row for row, drop in zip(rows, gone.tolist(), strict=True) if not drop]
    picked: dict[str, tuple[Any, Mask]] = {}
    for name, columns in mapping.columns.items():
        for number, column in enumerate(columns):
            last = is_list(mapping, name) and number == len(columns) - 1
            read = _list_reader(mapping) if last else partial(_text, floats=name == "time")
            values = [read(_dig(row, str(column))) for row in rows]
            wrong = np.array([value is _WRONG for value in values], dtype=np.bool_)
            type_ = LIST_OF_TEXT if last else pa.string()
            array = pa.array([None if v is _WRONG else v for v in values], type_)
            picked[f"{name}.{number}"] = (array, wrong)
    _put(sieve, picked)


def _put(sieve: Sieve, picked: dict[str, tuple[Any, Mask]]) -> None:
    """Put the columns in the sieve, and refuse the rows with a value of a wrong type."""
    sieve.columns |= {name: array for name, (array, _) in picked.items()}
    sieve.refuse_all(
        [(wrong, f"{name.split('.')[0]} {WRONG_TYPE}") for name, (_, wrong) in picked.items()]
    )


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _WRONG


def _dig(row: dict[str, Any], key: str) -> Any:
    if key in row or "." not in key:
        return row.get(key)
    found: Any = row
    for step in key.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _text(value: Any, floats: bool = False) -> Any:
    """A value as the text of a cell; `_WRONG` if it has none.  Times may be floats, ids may not."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _WRONG
    if isinstance(value, int):
        # Python refuses to write numbers of thousands of digits; beyond 64 bits all count the same.
        return str(max(-_BEYOND_64_BITS, min(_BEYOND_64_BITS, value)))
    return repr(value) if floats and isinstance(value, float) else _WRONG


def _list_reader(mapping: Mapping) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, list):
            items = [_text(one) for one in value]
            return _WRONG if any(one is _WRONG for one in items) else items
        cell = _text(value)
        if cell is _WRONG or cell is None or cell == "":
            return None if cell == "" else cell
        if cell == mapping.nothing:
            return []
        return cell.split(mapping.list_separator) if mapping.list_separator else [cell]

    return read


# -- Parquet ---------------------------------------------------------------------------------------


def pick_parquet(sieve: Sieve, mapping: Mapping, batch: Any, layout: FileColumns) -> None:
    """Columns of a Parquet file become the columns of fields."""
    sieve.columns = {str(index): column for index, column in enumerate(batch.columns)}
    names = {column: str(index) for column, index in layout.positions.items()}
    for condition in mapping.conditions:
        text, _ = _cast(sieve.columns[names[condition.column]], floats=True)
        matches = _matches(text, condition.pattern)
        sieve.skip(matches if condition.negated else ~matches, f"not where {condition}")
    picked: dict[str, tuple[Any, Mask]] = {}
    for name, columns in mapping.columns.items():
        for number, column in enumerate(columns):
            array = sieve.columns[names[column]]
            if is_list(mapping, name) and number == len(columns) - 1:
                picked[f"{name}.{number}"] = _cast_list(array, mapping)
            elif name == "time" and pa.types.is_timestamp(array.type):
                none = np.zeros(len(array), dtype=np.bool_)
                picked[f"{name}.{number}"] = (array, none)
            else:
                picked[f"{name}.{number}"] = _cast(array, floats=name == "time")
    sieve.columns = {}
    _put(sieve, picked)


def _cast(array: Any, floats: bool = False) -> tuple[Any, Mask]:
    """A column as text; if its type has no place in a cell, every row but nulls is wrong."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if (
        pa.types.is_integer(kind)
        or (floats and pa.types.is_floating(kind))
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
        or pa.types.is_decimal(kind)
    ):
        return array.cast(pa.string()), np.zeros(len(array), dtype=np.bool_)
    return pa.nulls(len(array), pa.string()), as_mask(array.is_valid())


def _cast_list(array: Any, mapping: Mapping) -> tuple[Any, Mask]:
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        _, wrong = _cast(array.values)
        if not wrong.any():
            return array.cast(LIST_OF_TEXT), np.zeros(len(array), dtype=np.bool_)
        return pa.nulls(len(array), LIST_OF_TEXT), as_mask(array.is_valid())
    text, wrong = _cast(array)
    return listed(text, mapping), wrong


def rows_as_text(batch: Any) -> list[str]:
    """Rows of Parquet as the quarantine shows them: JSON."""
    columns = [_shown(column) for column in batch.columns]
    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return [json.dumps(row, default=str, ensure_ascii=False) for row in rows]


def _shown(column: Any) -> Any:
    """Times and dates as text, in UTC: Python has none outside the years 1 to 9999."""
    if pa.types.is_timestamp(column.type):
        # Arrow reports values out of range only for timestamps without a zone.
        return column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    return column.cast(pa.string()) if pa.types.is_date(column.type) else column


def header_positions(
    names: Sequence[str], wanted: Iterable[Column]
) -> tuple[dict[Column, int], list[str]]:
    """The positions of the wanted columns in a header, and the missing ones."""
    clean = [name.strip() for name in names]
    found: dict[Column, int] = {}
    missing: list[str] = []
    for one in wanted:
        if isinstance(one, int) and one < len(clean):
            found[one] = one
        elif isinstance(one, str) and clean.count(one) == 1:
            found[one] = clean.index(one)
        else:
            missing.append(str(one))
    return found, missing
