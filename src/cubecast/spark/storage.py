"""Where results are kept: a directory of this machine, or one on any file system of pyarrow's.

A place reads, writes, lists and deletes small files by their names below it, and can be held by one
sweep at a time.

1. `Place.write` puts a file in place whole or not at all.  On a local disk and on HDFS it is
   written under a name that no reader uses, and renamed; an object store shows an object when its
   upload is complete.
2. A reader trusts no listing: an object may be listed late.  What must be there is read by name.
3. Every failure is a `ResultsError` that names the file; only `Place.read` lets a
   `FileNotFoundError` through.

What a lock guarantees is said at `Local.held` and in `cubecast.spark.lease`.  Results do not depend
on it: equal keys mean equal measurements, and all that is read is checked (`cubecast.spark.seal`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from cubecast.spark.errors import ResultsError

OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
RENAMING = ("hdfs", "viewfs")
"""File systems that show a file while it is written, and whose rename is atomic."""
LOCK = ".lock"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NEARLY_A_URI = re.compile(r"(?:file|s3|gs|gcs|abfss?|hdfs|viewfs):", re.I)
_USER_AND_PASSWORD = re.compile(r"://[^/?#]*(?::[^?#]*)?@")  # keys have slashes
_SECRET_SETTING = re.compile(
    r"^((?:--conf=)?[^=]*(?:secret|password|token|access[._-]?key)[^=]*)=.*", re.I | re.S
)
"""Settings that Spark itself does not show either (its `redaction.regex`)."""
_ALSO_CALLED = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
"""Hadoop's names of file systems, and pyarrow's."""

Held = Callable[[], None]
"""Raises `ResultsError` if the place is no longer held."""


class Place(ABC):
    """A directory somewhere."""

    uri: str
    """The URI of the place, valid on every machine."""
    name: str
    """The same without secrets, for people."""

    def where(self, name: str) -> str:
        """A file of this place, for people."""
        return f"{self.name}/{name}"

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A whole file; raises `FileNotFoundError` if there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Put a file in place, whole or not at all."""

    @abstractmethod
    def names(self, folder: str) -> set[str]:
        """The files of a folder that do not begin with a dot; of none if there is no such folder.

        A file that was written or deleted a moment ago may be listed wrongly.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file or a folder, if there is one."""

    @abstractmethod
    def held(self) -> AbstractContextManager[Held]:
        """Make the directory if need be, and hold it for the block; refuse if another does."""

    @abstractmethod
    def clear_leftovers(self) -> None:
        """Remove what writers that died have left; only for who holds the place."""


@lru_cache(maxsize=16)  # a client of a store is worth keeping
def place_of(out: str | Path) -> Place:
    """The place that a path or a URI names; refuses file systems that are not known."""
    text = str(out)
    match = _URI.match(text) if isinstance(out, str) else None
    if match is None:
        return Local(_path(text))
    scheme = match.group(1).lower()
    if scheme == "file":
        return Local(_path_of_uri(text))
    if scheme in OBJECT_STORES + RENAMING:
        return Remote(scheme + text[len(scheme) :])
    known = ", ".join(f"{one}://" for one in (*OBJECT_STORES, *RENAMING, "file"))
    meant = _ALSO_CALLED.get(scheme)
    advice = f"write {meant}://" if meant else f"use a path, or one of {known}"
    raise ResultsError(f"{scheme}:// is no file system of pyarrow's; {advice}")


def _path(text: str) -> Path:
    if not text.strip():
        raise ResultsError("a place of results has a name; this one is empty")
    if "\0" in text:
        raise ResultsError(f"{text!r} is no path")
    if near := _NEARLY_A_URI.match(text):
        scheme, rest = near[0].lower(), text[near.end() :].lstrip("/")
        root = "/" if scheme == "file:" else ""
        raise ResultsError(f"{text} is no URI: write {scheme}//{root}{rest}")
    return Path(text)


def _path_of_uri(uri: str) -> Path:
    """The path in a file:// URI, which has three slashes."""
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise ResultsError(f"{uri} names no file of this machine: write file:///path")
    return Path(unquote(parts.path))


def without_secrets(argument: str) -> str:
    """An argument of a command as it may be shown and kept.

    Leaves out the user and password of a URI, and the value of a setting named like a secret.
    """
    return _SECRET_SETTING.sub(r"\1=***", _USER_AND_PASSWORD.sub("://", argument))


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise ResultsError(f"cannot {what}: {reason}") from None


# -- this machine ----------------------------------------------------------------------------------


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file and put it in place whole."""
    scratch = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        write(scratch)
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


class Local(Place):
    """A directory of this machine, or one that several machines have mounted."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = self.name = str(self.root)

    def read(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ResultsError(f"cannot read {self.where(name)}: {error.strerror}") from None

    def write(self, name: str, content: bytes) -> None:
        path = self.root / name
        with _told(f"write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda scratch: scratch.write_bytes(content))

    def names(self, folder: str) -> set[str]:
        with _told(f"read {self.where(folder)}"):
            try:
                with os.scandir(self.root / folder) as entries:
                    return {one.name for one in entries if one.name[0] != "." and one.is_file()}
            except FileNotFoundError:
                return set()

    def delete(self, name: str) -> None:
        path = self.root / name
        with _told(f"delete {path}"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[Held]:
        """One holder among all processes that see the file; the system frees it when one dies."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ResultsError(
                f"cannot write to {self.root}: {error.strerror}; choose a directory with --out"
            ) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise taken(self.name) from None
            yield lambda: None
        finally:
            os.close(lock)

    def clear_leftovers(self) -> None:
        with _told(f"write to {self.root}"):
            folders = [one for one in self.root.iterdir() if one.is_dir() and one.name[0] != "."]
            for folder in (self.root, *folders):
                for path in folder.glob(".*.tmp"):
                    self.delete(str(path.relative_to(self.root)))


# -- elsewhere -------------------------------------------------------------------------------------


class Remote(Place):
    """A directory on a file system of pyarrow's; the URI has what pyarrow needs to reach it."""

    def __init__(self, uri: str) -> None:
        from pyarrow import ArrowInvalid, ArrowNotImplementedError
        from pyarrow.fs import FileSystem

        parts = urlsplit(uri)
        self.uri = uri
        self.name = without_secrets(uri).partition("?")[0].rstrip("/")
        self._renames = parts.scheme in RENAMING
        try:
            with _told(f"reach {self.name}"):
                self._files, path = FileSystem.from_uri(uri)
        except (ArrowInvalid, ArrowNotImplementedError, ValueError) as error:
            what = without_secrets(" ".join(str(error).split()))
            if _USER_AND_PASSWORD.search(uri):
                what += "; in a key, write / as %2F and @ as %40"
            raise ResultsError(f"cannot use {self.name}: {what}") from None
        self._path = path.rstrip("/")
        if not self._renames and not self._path:
            raise ResultsError(
                f"{parts.scheme}:// names no bucket: write {parts.scheme}://bucket/x"
            )

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}"

    def read(self, name: str) -> bytes:
        try:
            with self._files.open_input_stream(self._full(name), compression=None) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            raise
        except OSError as error:
            what = " ".join(str(error).split())
            raise ResultsError(f"cannot read {self.where(name)}: {what}") from None

    def write(self, name: str, content: bytes) -> None:
        with _told(f"write {self.where(name)}"):
            if not self._renames:
                self._upload(self._full(name), content)
                return
            folder, _, last = self._full(name).rpartition("/")
            self._files.create_dir(folder, recursive=True)
            scratch = f"{folder}/.{last}.{uuid4().hex}.tmp"
            self._upload(scratch, content)
            self._files.move(scratch, self._full(name))

    def _upload(self, path: str, content: bytes) -> None:
        """In one write: closing a stream completes the object, also after half of its bytes."""
        with self._files.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def names(self, folder: str) -> set[str]:
        return {
            one.base_name
            for one in self._infos(folder)
            if one.is_file and not one.base_name.startswith(".")
        }

    def _infos(self, folder: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._full(folder).rstrip("/"), allow_not_found=True)
        with _told(f"list {self.where(folder)}"):
            return list(self._files.get_file_info(selector))

    def delete(self, name: str) -> None:
        from pyarrow.fs import FileType

        path = self._full(name)
        with _told(f"delete {self.where(name)}"), suppress(FileNotFoundError):
            if self._files.get_file_info(path).type == FileType.Directory:
                self._files.delete_dir(path)
            else:
                self._files.delete_file(path)

    @contextmanager
    def held(self) -> Iterator[Held]:
        """By a lease; `cubecast.spark.lease` says what that guarantees."""
        from cubecast.spark.lease import lease

        with lease(self, LOCK) as held:
            yield held

    def clear_leftovers(self) -> None:
        folders = [one.base_name for one in self._infos("") if not one.is_file]
        for folder in ("", *folders):
            for one in self._infos(folder):
                if one.base_name.startswith(".") and one.base_name.endswith(".tmp"):
                    self.delete(f"{folder}/{one.base_name}".lstrip("/"))


def taken(name: str, by: str = "") -> ResultsError:
    """The refusal to write where another sweep does."""
    owner = f" ({by})" if by else ""
    return ResultsError(
        f"another sweep{owner} is writing to {name}; wait for it, or choose another --out"
    )
