"""The scratch directory of a driver: all files of Spark on this machine are below it.

1. A driver locks the file ``lock`` in its directory, and its Java process inherits that lock.  The
   system releases it when both are gone, however they ended; so an unlocked directory is unused.
2. Every driver that starts removes the directories of dead drivers of the same user.  Nothing else
   counts: neither age nor names of processes, which are given again.
3. A directory without a lock file is either not ours or just being made.  It is removed only if it
   is empty, which its maker notices and starts over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cubecast.spark.errors import ResultsError

PREFIX = "cubecast-spark-"
LOCK = "lock"
ALSO = "also"
"""Names a directory elsewhere that is to be removed with the scratch directory."""
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Scratch:
    """A directory that is removed with its driver."""

    path: Path
    lock: int
    """A descriptor; a process that inherits it keeps the directory."""

    def folder(self, name: str) -> Path:
        """A directory below."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        return path

    def remove_also(self, folder: Path) -> None:
        """Have a directory elsewhere removed with this one."""
        (self.path / ALSO).write_text(str(folder), encoding="utf-8")


@contextmanager
def scratch_directory(parent: Path | None = None) -> Iterator[Scratch]:
    """A new directory, removed at the end; first, directories of dead drivers are removed."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    try:
        clear_dead(place)
        scratch = _made(place)
    except OSError as error:
        raise ResultsError(
            f"cannot write to {place}: {error.strerror}; TMPDIR names another place"
        ) from None
    try:
        yield scratch
    finally:
        _remove(scratch.path)
        os.close(scratch.lock)


def clear_dead(place: Path) -> None:
    """Remove the scratch directories below `place` whose drivers are gone."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another driver may be at it, or its Java still ending
            if _is_own_directory(path):
                _clear_if_dead(path)


def _is_own_directory(path: Path) -> bool:
    """Whether it is no link and belongs to this user: the place may be open to all."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _clear_if_dead(path: Path) -> None:
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        path.rmdir()  # only if it is empty
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(lock)


def _made(place: Path) -> Scratch:
    for _ in range(ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        lock = _locked(path)
        if lock is not None:
            return Scratch(path, lock)
    raise ResultsError(f"cannot make a directory below {place}: others remove it")


def _locked(path: Path) -> int | None:
    """A locked descriptor of the lock file; None if a driver that clears was faster."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), (path / LOCK).stat()):
            return lock
    os.close(lock)
    return None


def _remove(path: Path) -> None:
    """Remove a directory whose lock we hold, the lock last: if interrupted, it is tried again."""
    with suppress(OSError):
        also = Path((path / ALSO).read_text(encoding="utf-8"))
        shutil.rmtree(also, ignore_errors=True)
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            entry.unlink(missing_ok=True)
    if {entry.name for entry in path.iterdir()} == {LOCK}:
        (path / LOCK).unlink()
        path.rmdir()
