"""Trace files: JSON lines, the same compressed, and Parquet.

A JSON Lines trace is one header line and one line per record, compact, in UTF-8; a name that ends
in ``.gz`` is compressed. The same header and records give the same bytes. For every function here
that is given a path:

1. A file appears under its name when it is complete, or not at all (written beside it, synced,
   then renamed). No reader sees half a trace.
2. Reading streams: the records are an iterable that opens the file anew each time it is iterated,
   so a trace larger than memory can be read, and read twice.
3. An error in a file is raised as one ``TraceError`` that says where it is.
"""

import contextlib
import gzip
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from cubecast.trace.records import SCHEMA, Header, Record

__all__ = ["StoredRecords", "TraceError", "read", "read_jsonl", "write", "write_jsonl"]

StrPath: TypeAlias = str | os.PathLike[str]
_Reader: TypeAlias = BufferedReader | gzip.GzipFile

_JSONL_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
_BATCH_RECORDS: Final = 4096
_CHUNK_BYTES: Final = 1 << 20
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)

_encoder: Final = msgspec.json.Encoder(order="deterministic")
_records: Final = msgspec.json.Decoder(Record)
_headers: Final = msgspec.json.Decoder(Header)


class _Version(msgspec.Struct):
    """The one field of a header that every version has."""

    schema: str = ""


_versions: Final = msgspec.json.Decoder(_Version)


class TraceError(ValueError):
    """A trace file cannot be read or written: which file, where in it, and why."""

    def __init__(self, path: StrPath, line: int | None, problem: str) -> None:
        super().__init__(path, line, problem)
        self.path = Path(path)
        self.line = line
        """Line of a JSON Lines file or row of a Parquet file, from 1; None: the file as a whole."""
        self.problem = problem

    def __str__(self) -> str:
        unit = "row" if self.path.name.endswith(".parquet") else "line"
        place = "" if self.line is None else f", {unit} {self.line}"
        return f"{self.path}{place}: {self.problem}"


class StoredRecords:
    """The records of a file, read from it each time they are iterated."""

    __slots__ = ("_scan", "path")

    def __init__(self, path: Path, scan: Callable[[Path], Iterator[Record]]) -> None:
        self.path = path
        self._scan = scan

    def __iter__(self) -> Iterator[Record]:
        return self._scan(self.path)

    def __repr__(self) -> str:
        return f"<records of {self.path}>"


def write(path: StrPath, header: Header, records: Iterable[Record]) -> None:
    """Write a trace in the format that the name ends in: .jsonl, .jsonl.gz or .parquet."""
    if _is_parquet(path):
        from cubecast.trace.parquet import write_parquet

        write_parquet(path, header, records)
    else:
        write_jsonl(path, header, records)


def read(path: StrPath) -> tuple[Header, StoredRecords]:
    """The header and the records of a file, whose name ends in .jsonl, .jsonl.gz or .parquet."""
    if _is_parquet(path):
        from cubecast.trace.parquet import read_parquet

        return read_parquet(path)
    return read_jsonl(path)


def write_jsonl(target: StrPath | BinaryIO, header: Header, records: Iterable[Record]) -> None:
    """Write JSON lines to a path (atomically; compressed if it ends in .gz) or a binary file."""
    if not isinstance(target, str | os.PathLike):
        _write_lines(target, header, records)
        return
    path = Path(target)
    with atomic_file(path) as file:
        if path.name.endswith(".gz"):
            # No name and no time inside, so that equal traces are equal files.
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                _write_lines(packed, header, records)
        else:
            _write_lines(file, header, records)


def read_jsonl(path: StrPath) -> tuple[Header, StoredRecords]:
    """The header of a JSON Lines trace, read now, and its records, read when iterated."""
    path = Path(path)
    with _reading(path) as file, _unpacking(path, 1):
        header = decode_header(path, 1, file.readline())
    return header, StoredRecords(path, _scan_lines)


def decode_header(path: Path, line: int | None, text: bytes) -> Header:
    """Check the schema's version before anything else: another version may have other fields."""
    if not text.strip():
        raise TraceError(path, line, "no header: the file is empty")
    try:
        version = _versions.decode(text).schema
        if not version:
            raise TraceError(path, line, f"no header: the first line must say schema {SCHEMA!r}")
        if version != SCHEMA:
            raise TraceError(path, line, f"schema {version!r}: this version reads {SCHEMA!r}")
        return _headers.decode(text)
    except _UNREADABLE as error:
        raise TraceError(path, line, _explain("header", error)) from None


def encode_header(header: Header) -> bytes:
    """One line of JSON, the keys of ``params`` in order."""
    return _encoder.encode(header)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name ``path`` when the block ends well, and vanishes otherwise."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        file = open(beside, "xb")  # noqa: SIM115 - closed below; only opening it may fail here
    except OSError as error:
        raise TraceError(path, None, error.strerror or str(error)) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_record(path: Path, line: int, record: Record) -> Record:
    """Check what the types do not: a ``publish`` and a ``deliver`` have an id."""
    if record.id is None and record.kind in ("publish", "deliver"):
        raise TraceError(path, line, f"a {record.kind} record needs the field `id`")
    return record


def _is_parquet(path: StrPath) -> bool:
    name = Path(path).name
    if name.endswith(".parquet"):
        return True
    if name.endswith(_JSONL_SUFFIXES):
        return False
    raise TraceError(path, None, "the name of a trace ends in .jsonl, .jsonl.gz or .parquet")


def _write_lines(file: BinaryIO | gzip.GzipFile, header: Header, records: Iterable[Record]) -> None:
    file.write(encode_header(header) + b"\n")
    stream = iter(records)
    while batch := list(islice(stream, _BATCH_RECORDS)):
        file.write(_encoder.encode_lines(batch))


def _scan_lines(path: Path) -> Iterator[Record]:
    with _reading(path) as file:
        with _unpacking(path, 1):
            file.readline()
        line = 2
        for chunk in _chunks(path, file):
            yield from _decode_lines(path, line, chunk)
            line += chunk.count(b"\n")


def _chunks(path: Path, file: _Reader) -> Iterator[bytes]:
    """Whole lines, many at a time. A damaged file gives all that is readable before it fails."""
    line, rest = 2, b""
    while True:
        with _unpacking(path, line):
            data = file.read1(_CHUNK_BYTES)
        if not data:
            break
        lines, newline, tail = data.rpartition(b"\n")
        if newline:
            chunk = rest + lines + newline
            line += chunk.count(b"\n")
            yield chunk
            rest = tail
        else:
            rest += tail
    if rest:
        yield rest


def _decode_lines(path: Path, first: int, chunk: bytes) -> Iterator[Record]:
    """Decode all lines at once; if that fails, one by one, to find the bad line."""
    records = None
    with contextlib.suppress(*_UNREADABLE):
        records = _records.decode_lines(chunk)
    if records is not None and len(records) == chunk.count(b"\n"):
        for line, record in enumerate(records, first):
            yield record if record.id is not None else check_record(path, line, record)
        return
    for line, text in enumerate(chunk.split(b"\n"), first):
        if not text.strip():
            continue  # a blank line is no record and no harm
        try:
            record = _records.decode(text)
        except _UNREADABLE as error:
            raise TraceError(path, line, _explain("record", error)) from None
        yield check_record(path, line, record)


def _explain(what: str, error: Exception) -> str:
    """A ValidationError is JSON of the wrong shape; any other decode error is no JSON."""
    if isinstance(error, msgspec.ValidationError):
        return f"bad {what}: {error}"
    return f"not JSON: {error}"


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[_Reader]:
    """The file, unpacked if its name says so."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; only opening it may fail here
    except OSError as error:
        raise TraceError(path, None, error.strerror or str(error)) from error
    with file:
        if path.name.endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                yield unpacked
        else:
            yield file


@contextlib.contextmanager
def _unpacking(path: Path, line: int) -> Iterator[None]:
    """Reading may fail by itself: a compressed file that is cut short or damaged, a bad disk."""
    try:
        yield
    except EOFError:
        raise TraceError(path, line, "compressed data ends too early: a truncated file") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, line, f"damaged compressed data: {error}") from None
    except OSError as error:
        raise TraceError(path, line, error.strerror or str(error)) from error
