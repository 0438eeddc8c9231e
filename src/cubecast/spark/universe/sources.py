"""The files of a trace: found, looked at, cut into pieces, and read as lines of bytes.

1. The first bytes of a file tell its kind; if its name tells another, it is refused.
2. A piece is read by one task.  Lines belong to the piece in which they begin; pieces are
   numbered in the order of files and of lines, so that a row has the same number whatever runs it.
   Only plain text can be cut: a compressed file is one piece, a Parquet file one per row group.
3. Memory is bounded by blocks: a line longer than `LONGEST_ROW` is given as its beginning, marked.
4. A file that ends early (a truncated gzip) raises; what came before is not taken for the whole.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.spark.universe.errors import UniverseTraceError

BLOCK = 4 << 20
"""Bytes read at once; a task holds a few times as much."""
PIECE = 32 << 20
"""Bytes of plain text that one task reads."""
LONGEST_ROW = 16 << 20
BOM = b"\xef\xbb\xbf"

_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "zip": re.compile(rb"PK\x03\x04"),
    "7z": re.compile(rb"7z\xbc\xaf\x27\x1c"),
    "UTF-16 text": re.compile(rb"\xff\xfe|\xfe\xff"),
}
"""How files begin; a name in a text may begin likewise, but not with all of it."""
_PARQUET = b"PAR1"
_ENDINGS = {
    ".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip", ".7z": "7z",
    ".parquet": "parquet",
}  # fmt: skip
_CODECS = ("gzip", "bz2", "xz", "zstd")
_FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".ssv": "ssv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".parquet": "parquet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file of a trace."""

    path: str
    size: int
    codec: str | None


@dataclass(frozen=True, slots=True)
class Piece:
    """The input of one task: bytes of a file, or a row group of a Parquet file.

    `end` is None for a piece that goes to the end of the file.
    """

    source: int
    path: str
    codec: str | None
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines, the last one with or without its line feed; or the beginning of one too long."""

    data: bytes
    too_long: bool = False


def format_of(path: Path) -> str | None:
    """The format that the name of a file says."""
    endings = [one.lower() for one in path.suffixes]
    endings = [one for one in endings if _ENDINGS.get(one) not in _CODECS]
    return _FORMATS.get(endings[-1]) if endings else None


# -- finding ---------------------------------------------------------------------------------------


def find_sources(paths: Sequence[Path], format: str) -> list[TraceFile]:
    """The files, each looked at; a directory stands for its Parquet files and nothing else."""
    if not paths:
        raise UniverseTraceError("no files to read")
    found = [_source(path, format) for given in paths for path in _files(given, format)]
    path, times = Counter(source.path for source in found).most_common(1)[0]
    if times > 1:
        raise UniverseTraceError(f"{path} is named twice")
    return found


def _files(path: Path, format: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    if format != "parquet":
        raise UniverseTraceError(f"{path} is a directory; name its files, as in {path}/*")
    inside = sorted(one for one in path.glob("*.parquet") if not one.name.startswith((".", "_")))
    if not inside:
        raise UniverseTraceError(f"{path} is a directory without Parquet files")
    return inside


def _source(path: Path, format: str) -> TraceFile:
    try:
        with path.open("rb") as file:
            begins = file.read(10)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_PARQUET)))
            ends = file.read(len(_PARQUET))
    except OSError as error:
        raise UniverseTraceError(f"cannot read {path}: {error.strerror}") from None
    says = _ENDINGS.get(path.suffix.lower())
    content = next((name for name, magic in _MAGIC.items() if magic.match(begins)), None)
    # A text may begin so, too; and a damaged Parquet file ends otherwise.
    if begins.startswith(_PARQUET) and (says == "parquet" or ends == _PARQUET):
        content = "parquet"
    if size and says != content and (says is not None or content is not None):
        is_ = f"is {content}" if content else f"is not (it begins with {begins!r})"
        named = f"by its name {path.name} is {says}" if says else f"{path.name} is named like text"
        raise UniverseTraceError(
            f"{path}: {named}, but by its content it {is_}; name it for what it is"
        )
    if content in ("zip", "7z"):
        raise UniverseTraceError(
            f"{path}: cannot read {content}; unpack it, or pack it as .gz or .zst"
        )
    if size and (content == "parquet") != (format == "parquet"):
        raise UniverseTraceError(
            f"{path} is {content or 'no Parquet'}, but the format given is {format}"
        )
    return TraceFile(str(path.absolute()), size, content if content in _CODECS else None)


def pieces(sources: Sequence[TraceFile], format: str, *, cut: int = PIECE) -> list[Piece]:
    """The pieces of the tasks, in the order of rows."""
    found: list[Piece] = []
    for number, source in enumerate(sources):
        if format == "parquet":
            groups = _row_groups(source)
            found += [Piece(number, source.path, None, one, one + 1) for one in range(groups)]
        elif source.codec is not None or source.size <= cut:
            found.append(Piece(number, source.path, source.codec))
        else:
            starts = range(0, source.size, cut)
            found += [Piece(number, source.path, None, one, one + cut) for one in starts]
    return found


def _row_groups(source: TraceFile) -> int:
    if not source.size:
        return 0
    try:
        return int(pq.read_metadata(source.path).num_row_groups)
    except (OSError, pa.ArrowException) as error:
        raise UniverseTraceError(
            f"{source.path} is no sound Parquet file: {_one_line(error)}"
        ) from None


# -- reading ---------------------------------------------------------------------------------------


def first_lines(source: TraceFile, most: int = 1000) -> list[bytes]:
    """The first lines of a text file, without line ends and byte order mark."""
    for block in blocks(Piece(0, source.path, source.codec)):
        lines = block.data.split(b"\n")
        return [line.removesuffix(b"\r") for line in lines[:most]]
    return []


def blocks(piece: Piece, size: int = BLOCK, longest: int = LONGEST_ROW) -> Iterator[LineBlock]:
    """The lines that begin in a piece of text, in blocks of about `size` bytes.

    The byte order mark at the beginning of a file is no part of its first line.
    """
    with _reading(piece) as file:
        if piece.start and not _skip_line(file, piece.start, size):
            return
        at = file.tell() if piece.codec is None else 0
        yield from _whole_lines(file, piece, at, size, longest)


def _skip_line(file: IO[bytes], start: int, size: int) -> bool:
    """Go to the first line that begins at `start` or later; False if there is none."""
    file.seek(start - 1)
    while data := file.read(size):
        found = data.find(b"\n")
        if found >= 0:
            file.seek(found + 1 - len(data), 1)
            return True
    return False


def _whole_lines(
    file: IO[bytes], piece: Piece, at: int, size: int, longest: int
) -> Iterator[LineBlock]:
    begins, end = at, piece.end  # where `rest` begins, and where lines begin that are not ours
    rest = b""  # the beginning of a line whose end is not read yet
    dropping = False  # inside a line that was too long
    if piece.start == 0:
        rest, marked = _first_bytes(file, size)
        if marked and end is not None:
            # Places are counted from the mark on; the first line is always in the first piece.
            end = max(1, end - len(BOM))
    while end is None or begins < end:
        cut = _last_end(rest, begins, end)
        if cut:
            yield LineBlock(rest[:cut])
            rest, begins = rest[cut:], begins + cut
            continue
        if len(rest) > longest:
            yield LineBlock(rest[:longest], too_long=True)
            begins, rest, dropping = begins + len(rest), b"", True
        data = file.read(size)
        if not data:
            break
        if dropping:
            found = data.find(b"\n") + 1
            begins, dropping = begins + (found or len(data)), not found
            data = data[found:] if found else b""
        rest += data
    if rest and (end is None or begins < end):
        yield LineBlock(rest)


def _first_bytes(file: IO[bytes], size: int) -> tuple[bytes, bool]:
    """The beginning of a file without its byte order mark, and whether there was one."""
    data = b""
    while len(data) < len(BOM) and (more := file.read(size)):
        data += more
    return data.removeprefix(BOM), data.startswith(BOM)


def _last_end(data: bytes, begins: int, end: int | None) -> int:
    """How much of `data` is whole lines that begin before `end`; `data` begins at `begins`."""
    if end is None or begins + len(data) <= end:
        return data.rfind(b"\n") + 1
    # The last line that is ours is the one that begins before the end.
    return data.find(b"\n", max(0, end - begins - 1)) + 1 or data.rfind(b"\n") + 1


@contextmanager
def _reading(piece: Piece) -> Iterator[IO[bytes]]:
    """A file opened through its codec; errors of either are `UniverseTraceError`."""
    try:
        with _opened(piece) as file:
            yield file
    except (EOFError, pa.ArrowException) as error:
        raise UniverseTraceError(
            f"{piece.path} is cut short or damaged: {_one_line(error)}"
        ) from None
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise UniverseTraceError(f"{piece.path} is damaged: {_one_line(error)}") from None
    except OSError as error:
        why = error.strerror or _one_line(error)
        raise UniverseTraceError(f"cannot read {piece.path}: {why}") from None


def _opened(piece: Piece) -> Any:
    match piece.codec:
        case "gzip":
            return gzip.open(piece.path, "rb")
        case "bz2":
            return _Streams(piece.path, bz2.BZ2Decompressor)
        case "xz":
            return _Streams(piece.path, lzma.LZMADecompressor)
        case "zstd":
            return pa.input_stream(piece.path, compression="zstd")
        case _:
            return open(piece.path, "rb")


class _Streams:
    """Reads bzip2 or xz streams one after the other; damage after one is not taken for the end.

    (`bz2.open` and `lzma.open` ignore what follows a stream if it is none.)
    """

    def __init__(self, path: str, decoder: Callable[[], Any]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self._new = decoder
        self._decoder = decoder()
        self._unread = b""

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        while True:
            if self._decoder.eof:
                # Zeros may fill up the space between streams of xz.
                self._unread = (self._decoder.unused_data or self._file.read(BLOCK)).lstrip(b"\0")
                if not self._unread:
                    return b""
                self._decoder = self._new()
            elif self._decoder.needs_input and not self._unread:
                self._unread = self._file.read(BLOCK)
                if not self._unread:
                    raise EOFError("the compressed stream has no end")
            data: bytes = self._decoder.decompress(self._unread, size)
            self._unread = b""
            if data:
                return data


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
