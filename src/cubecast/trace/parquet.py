"""Trace files in Parquet: one row per record, for Spark and other column readers.

The columns are the fields of ``Record``, with three differences. ``position``, from 0, comes first:
tables have no order of their own, and the order of a trace is its meaning. ``members``, a bit mask
of any length, is a list of nodes. And ``id`` and
``reply_to`` are text, as a column has one type: a number is written in digits, and text that could
be taken for that (digits alone, or an opening quote) is written as a JSON string. The header is
the schema metadata ``cubecast-trace``.

pyarrow is imported when a Parquet file is read or written, not before.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cubecast.topology import MAX_DIMENSION, members_of
from cubecast.trace.files import (
    StoredRecords,
    StrPath,
    TraceError,
    atomic_file,
    check_record,
    decode_header,
    encode_header,
)
from cubecast.trace.records import KINDS, Header, MessageId, Record

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_parquet", "write_parquet"]

_HEADER_KEY: Final = b"cubecast-trace"
_GROUP_ROWS: Final = 1 << 17
_BATCH_ROWS: Final = 1 << 14
_NUMBER: Final = re.compile(r"-?[0-9]+")
_KINDS: Final = frozenset(KINDS)
_FIELDS: Final = Record.__struct_fields__
_TEXT_FIELDS: Final = ("kind", "topic", "message")
MAX_SLOTS: Final = 1 << MAX_DIMENSION
"""Nodes are numbered below this where they stand in a ``view``."""


def write_parquet(path: StrPath, header: Header, records: Iterable[Record]) -> None:
    """Write a trace as Parquet, atomically. Needs the extra ``cubecast[parquet]``."""
    _require_pyarrow(path)
    import pyarrow.parquet

    schema = _schema().with_metadata({_HEADER_KEY: encode_header(header)})
    with atomic_file(Path(path)) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        stream, position = iter(records), 0
        while group := list(islice(stream, _GROUP_ROWS)):
            try:
                columns = [range(position, position + len(group)), *_columns(group)]
                arrays = [
                    pyarrow.array(column, field.type)
                    for column, field in zip(columns, schema, strict=True)
                ]
            except (pyarrow.ArrowException, OverflowError) as error:
                problem = f"records from {position} on do not fit the columns: {error}"
                raise TraceError(path, None, problem) from None
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            position += len(group)


def read_parquet(path: StrPath) -> tuple[Header, StoredRecords]:
    """The header of a Parquet trace, read now, and its records, read when iterated.

    Needs the extra ``cubecast[parquet]``.
    """
    _require_pyarrow(path)
    path = Path(path)
    with _opened(path) as file:
        metadata = file.schema_arrow.metadata or {}
    if _HEADER_KEY not in metadata:
        raise TraceError(path, None, f"no header: no schema metadata {_HEADER_KEY.decode()!r}")
    return decode_header(path, None, metadata[_HEADER_KEY]), StoredRecords(path, _scan_rows)


def _schema() -> "pyarrow.Schema":
    """The columns; all are non-null except ``id``: a record without it has no publication."""
    import pyarrow

    names = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    special = {
        "id": pyarrow.field("id", pyarrow.string()),
        "reply_to": pyarrow.field("reply_to", pyarrow.list_(pyarrow.string()), nullable=False),
        "members": pyarrow.field("members", pyarrow.list_(pyarrow.int64()), nullable=False),
        "lives": pyarrow.field("lives", pyarrow.list_(pyarrow.string()), nullable=False),
    }
    special |= {name: pyarrow.field(name, names, nullable=False) for name in _TEXT_FIELDS}
    numbers = {name: pyarrow.field(name, pyarrow.int64(), nullable=False) for name in _FIELDS}
    position = pyarrow.field("position", pyarrow.int64(), nullable=False)
    return pyarrow.schema([position, *(numbers | special).values()])


def _columns(group: list[Record]) -> Iterator[list[Any]]:
    for name in _FIELDS:
        column = [getattr(record, name) for record in group]
        if name == "id":
            column = [None if id is None else id_to_text(id) for id in column]
        elif name == "reply_to":
            column = [[id_to_text(id) for id in ids] for ids in column]
        elif name == "members":
            column = [_nodes(mask) if mask else [] for mask in column]
        yield column


def _scan_rows(path: Path) -> Iterator[Record]:
    last = -1
    for line, (position, kind, *values) in enumerate(_rows(path), 1):
        if position <= last:
            raise TraceError(path, line, "records out of order: sort the table by `position`")
        last = position
        if kind not in _KINDS:
            raise TraceError(path, line, f"bad record: unknown kind {kind!r}")
        record = Record(kind, *values)
        yield record if record.id is not None else check_record(path, line, record)


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    import pyarrow

    schema = _schema()
    with _opened(path) as file:
        missing = sorted(set(schema.names) - set(file.schema_arrow.names))
        if missing:
            raise TraceError(path, None, f"missing column {', '.join(missing)}")
        if not file.num_row_groups:
            return
        row = 0
        batches = file.iter_batches(_BATCH_ROWS, columns=schema.names)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                columns = _lists(path, row, batch, schema)
            except (pyarrow.ArrowException, OSError, msgspec.DecodeError) as error:
                raise TraceError(path, row + 1, f"damaged Parquet data: {error}") from None
            yield from zip(*columns, strict=True)
            row += batch.num_rows


def _lists(
    path: Path, row: int, batch: "pyarrow.RecordBatch", schema: "pyarrow.Schema"
) -> list[Sequence[Any]]:
    """The columns as lists, in our order and of our types; other writers may differ in detail."""
    lists: list[Sequence[Any]] = []
    for field in schema:
        column = batch.column(field.name)
        if column.null_count and not field.nullable:
            line = row + column.is_valid().to_pylist().index(False) + 1
            raise TraceError(path, line, f"bad record: `{field.name}` is null")
        if field.name == "reply_to":
            lists.append(_reply_lists(path, row, column))
        elif field.name == "members":
            lists.append(_masks(path, row, column))
        elif field.name == "lives":
            lists.append(_names(path, row, column))
        elif field.name == "id":
            lists.append(_texts(column, _id_from_text))
        elif field.name in _TEXT_FIELDS:
            lists.append(_texts(column, str))
        else:
            lists.append(_numbers(column))
    return lists


def _numbers(column: "pyarrow.Array") -> list[int]:
    """A column without nulls as ints, straight from its buffer: far faster than one by one."""
    import pyarrow

    column = column.cast(pyarrow.int64())
    if not len(column):
        return []
    words = memoryview(column.buffers()[1]).cast("q")
    return words[column.offset : column.offset + len(column)].tolist()


def _texts(column: "pyarrow.Array", convert: Callable[[str], MessageId]) -> list[MessageId | None]:
    """A column of text, each distinct value converted once; null gives None."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        column = column.cast(pyarrow.string()).dictionary_encode()
    values: list[MessageId | None] = [convert(text) for text in column.dictionary.to_pylist()]
    values.append(None)
    return [values[k] for k in _numbers(column.indices.fill_null(len(values) - 1))]


def _reply_lists(path: Path, row: int, column: "pyarrow.Array") -> list[tuple[MessageId, ...]]:
    """The ``reply_to`` of records. Nearly all are empty."""
    if not len(column.flatten()):
        return [()] * len(column)
    lists = []
    for line, texts in enumerate(column.to_pylist(), row + 1):
        if None in texts:
            raise TraceError(path, line, "bad record: null in `reply_to`")
        lists.append(tuple([_id_from_text(text) for text in texts]))
    return lists


def _names(path: Path, row: int, column: "pyarrow.Array") -> list[tuple[str, ...]]:
    """The lives of views. Nearly all are empty."""
    if not len(column.flatten()):
        return [()] * len(column)
    lists = []
    for line, texts in enumerate(column.to_pylist(), row + 1):
        if None in texts:
            raise TraceError(path, line, "bad record: null in `lives`")
        lists.append(tuple(texts))
    return lists


def _nodes(mask: int) -> list[int]:
    if mask < 0 or mask.bit_length() > MAX_SLOTS:
        raise OverflowError(f"{mask} is no set of nodes")
    return list(members_of(mask))


def _masks(path: Path, row: int, column: "pyarrow.Array") -> list[int]:
    """Sets of nodes as bit masks. Nearly all are empty."""
    if not len(column.flatten()):
        return [0] * len(column)
    masks = []
    for line, nodes in enumerate(column.to_pylist(), row + 1):
        if any(node is None or not 0 <= node < MAX_SLOTS for node in nodes):
            raise TraceError(path, line, "bad record: `members` has what is no node")
        masks.append(sum(1 << node for node in set(nodes)))
    return masks


def id_to_text(id: MessageId) -> str:
    if isinstance(id, int):
        return str(id)
    if id.startswith('"') or _NUMBER.fullmatch(id):
        return msgspec.json.encode(id).decode()
    return id


def _id_from_text(text: str) -> MessageId:
    if text.startswith('"'):
        return msgspec.json.decode(text, type=str)
    return int(text) if _NUMBER.fullmatch(text) else text


def _opened(path: Path) -> Any:
    """A ParquetFile, to be used in a ``with``."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError:
        raise TraceError(path, None, "No such file or directory") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise TraceError(path, None, f"not a Parquet file: {error}") from None


def _require_pyarrow(path: StrPath) -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        problem = "Parquet needs pyarrow: install the extra, pip install 'cubecast[parquet]'"
        raise TraceError(path, None, problem) from None
