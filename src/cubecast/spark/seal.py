"""A seal in every file of the results: a digest of the file's name and of all its bytes.

The seal is a marker and 64 hexadecimal digits somewhere in the file: in the metadata of a Parquet
file, in a field of a JSON object, in the last line of a TOML file.  So a file stays what it is for
every other program, and there is no second file to lose.

1. The digest is SHA-256 over the name below the directory of results, a zero byte, and the file
   with 64 zeros in place of the digits.  A changed bit, wherever it is, a file that was cut short
   or emptied, and a file that was put under another name do not fit.
2. Equal seals mean equal files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MARKER = b"cubecast-sha256:"
DIGITS = 64
UNSEALED = MARKER + b"0" * DIGITS
_FIELD = "seal"
_ROWS_PER_GROUP = 1 << 17


class DamagedError(ValueError):
    """A file is not what was written under its name; the message says what is wrong with it."""


def sealed(name: str, content: bytes) -> bytes:
    """The content, which has `UNSEALED` somewhere, with the digits of its seal."""
    at = content.rindex(UNSEALED) + len(MARKER)
    digits = _digits(name, content, at)
    return b"".join((content[:at], digits, content[at + DIGITS :]))


def seal_of(name: str, content: bytes) -> str:
    """The digits of the seal of a file that was read; raises `DamagedError` if they do not fit."""
    if not content:
        raise DamagedError("empty")
    at = content.rfind(MARKER) + len(MARKER)
    if at < len(MARKER) or len(content) < at + DIGITS:
        raise DamagedError("cut short, changed, or not written by the lab: it has no seal")
    digits = content[at : at + DIGITS]
    if digits != _digits(name, content, at):
        raise DamagedError("changed since it was written, or not written under this name")
    return digits.decode("ascii")


def _digits(name: str, content: bytes, at: int) -> bytes:
    view = memoryview(content)
    digest = hashlib.sha256(name.encode() + b"\0")
    for part in (view[:at], b"0" * DIGITS, view[at + DIGITS :]):
        digest.update(part)
    return digest.hexdigest().encode("ascii")


# -- Parquet ---------------------------------------------------------------------------------------


def sealed_parquet(
    name: str, schema: pa.Schema, tables: Iterable[pa.Table], notes: Mapping[str, str] | None = None
) -> bytes:
    """Tables, one after the other, as one Parquet file; `notes` go into its metadata."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in _regrouped(tables):
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        writer.add_key_value_metadata({**(notes or {}), _FIELD: UNSEALED.decode("ascii")})
    return sealed(name, sink.getvalue().to_pybytes())


def _regrouped(tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """The same rows in tables of one size, so that a file does not depend on how they came."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        while rows >= _ROWS_PER_GROUP:
            joined = pa.concat_tables(waiting).combine_chunks()
            yield joined.slice(0, _ROWS_PER_GROUP)
            waiting = [joined.slice(_ROWS_PER_GROUP)]
            rows -= _ROWS_PER_GROUP
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def read_whole(content: bytes, **options: Any) -> pa.Table:
    """A table that is in memory already.

    Threads would save nothing, and a process that ends while Arrow still starts them is aborted:
    "terminate called without an active exception", seen once on a busy machine.
    """
    return pq.read_table(pa.BufferReader(content), use_threads=False, pre_buffer=False, **options)


def parquet_table(content: bytes, schema: pa.Schema) -> pa.Table:
    """The rows of a sealed Parquet file; raises `DamagedError` if it has other columns."""
    try:
        return read_whole(content, schema=schema)
    except (OSError, pa.ArrowException) as error:
        what = " ".join(str(error).split())
        raise DamagedError(f"not what this version writes: {what}") from None


def parquet_note(content: bytes, name: str) -> str:
    """A note in the metadata of a sealed Parquet file; empty if there is none."""
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata or {}
    found: bytes = metadata.get(name.encode(), b"")
    return found.decode()


# -- JSON and TOML ---------------------------------------------------------------------------------


def sealed_json(name: str, facts: Mapping[str, Any]) -> bytes:
    """A JSON object with a seal as its last field."""
    text = json.dumps({**facts, _FIELD: UNSEALED.decode("ascii")}, indent=1)
    return sealed(name, text.encode())


def json_facts(content: bytes) -> dict[str, Any]:
    """The content of a sealed JSON object, without its seal."""
    facts: dict[str, Any] = json.loads(content)
    del facts[_FIELD]
    return facts


def sealed_toml(name: str, text: str) -> bytes:
    """TOML with a seal as a last line that is a comment."""
    return sealed(name, text.encode() + b"\n# " + UNSEALED + b"\n")


def toml_text(content: bytes) -> str:
    """The text that `sealed_toml` was given."""
    return content[: content.rindex(b"\n# " + MARKER)].decode()
