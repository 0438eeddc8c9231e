"""Where the columns of a mapping are in each file, looked up before any row is read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.spark.universe.cells import FileColumns, decode, header_positions, split
from cubecast.spark.universe.errors import UniverseTraceError
from cubecast.spark.universe.mapping import Column, Mapping
from cubecast.spark.universe.sieve import Sieve
from cubecast.spark.universe.sources import TraceFile, first_lines


def layouts(sources: Sequence[TraceFile], mapping: Mapping) -> list[FileColumns]:
    """One for each file; raises `UniverseTraceError` where a file lacks a column.

    Text without a header has as many columns as the first row of the trace, or more if the mapping
    names a later one; a row of another width is a bad row.
    """
    if mapping.format in ("json", "lists"):
        if any(isinstance(one, int) for one in wanted_columns(mapping)):
            raise UniverseTraceError("columns: JSON has keys, no positions; name them")
        return [FileColumns() for _ in sources]
    if mapping.format == "parquet":
        return [_parquet_layout(source, mapping) for source in sources]
    if mapping.header:
        return [_header_layout(source, mapping) for source in sources]
    positions: dict[Column, int] = {
        one: one for one in wanted_columns(mapping) if isinstance(one, int)
    }
    needed = max(positions.values()) + 1
    width = mapping.width or max(needed, _first_width(sources, mapping))
    if width < needed:
        raise UniverseTraceError(f"columns: column {needed - 1} is beyond the width of {width}")
    return [FileColumns(dict(positions), width) for _ in sources]


def wanted_columns(mapping: Mapping) -> list[Column]:
    """All columns that the mapping names, each once."""
    named = [one for columns in mapping.columns.values() for one in columns]
    return list(dict.fromkeys([*named, *(one.column for one in mapping.conditions)]))


def _first_width(sources: Sequence[TraceFile], mapping: Mapping) -> int:
    for source in sources:
        for line in first_lines(source):
            if line and not (mapping.comment and line.startswith(mapping.comment.encode())):
                cells = cells_of(line, mapping)
                if cells is not None:
                    return len(cells)
    return 0


def cells_of(line: bytes, mapping: Mapping) -> list[str] | None:
    """The cells of one line, as rows are cut; None if it cannot be cut."""
    sieve = Sieve(pa.array([line], pa.binary()))
    sieve.columns["line"] = sieve.raw
    decode(sieve)
    split(sieve, mapping.cell_separator, mapping.cell_quote)
    found: list[str] | None = sieve.columns["cells"][0].as_py() if len(sieve.live) else None
    return found


def _header_layout(source: TraceFile, mapping: Mapping) -> FileColumns:
    lines = first_lines(source, 1)
    if not source.size or not lines:
        return FileColumns()
    cells = cells_of(lines[0], mapping)
    if cells is None:
        raise UniverseTraceError(
            f"{source.path}: the header is not UTF-8, or its quotes do not match"
        )
    positions, missing = header_positions(cells, wanted_columns(mapping))
    if missing:
        raise UniverseTraceError(_lacks(source, missing, cells))
    return FileColumns(positions, mapping.width or len(cells))


def _parquet_layout(source: TraceFile, mapping: Mapping) -> FileColumns:
    """Positions are among the columns read, which are those of the mapping, by name."""
    if not source.size:
        return FileColumns()
    try:
        columns: list[str] = pq.read_schema(source.path).names
    except (OSError, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        raise UniverseTraceError(f"{source.path} is no sound Parquet file: {text}") from None
    positions, missing = header_positions(columns, wanted_columns(mapping))
    if missing:
        raise UniverseTraceError(_lacks(source, missing, columns))
    read = list(dict.fromkeys(columns[one] for one in positions.values()))
    return FileColumns(
        {column: read.index(columns[at]) for column, at in positions.items()},
        len(read),
        tuple(read),
    )


def _lacks(source: TraceFile, missing: Sequence[str], columns: Sequence[str]) -> str:
    shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    return f"{source.path} has no column {', '.join(missing)}; it has {shown}"
