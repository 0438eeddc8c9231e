"""Sealed files of a place: read whole and checked, written whole, and waited for where late.

A caller gets `DamagedError` for a damaged file and `FileNotFoundError` for a missing one; or, where
it cannot go on without the file, a `ResultsError` that names it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from cubecast.spark.errors import ResultsError
from cubecast.spark.seal import DamagedError, seal_of
from cubecast.spark.storage import Local, Place

READERS = 16
"""Files that are read at once: a store is slow to answer, and serves many reads."""
LATE_S = 30.0
"""How long an object that was written may take to appear."""
LOOK_AGAIN_S = 0.5
_T = TypeVar("_T")


class SealedFiles:
    """The files of a place, by their names below it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._written: dict[str, str] = {}
        """Digests of the files written here: a store may show them late."""

    def write(self, name: str, content: bytes) -> None:
        """Put a file in place; later reads wait until it is visible."""
        self._place.write(name, content)
        self._written[name] = sha256(content)

    def write_if_new(self, name: str, content: bytes) -> None:
        """Put a file in place unless it is there with the same content."""
        with suppress(FileNotFoundError):
            if self._place.read(name) == content:
                return
        self.write(name, content)

    def forget_what_was_written(self) -> None:
        """Forget the digests: others may write from now on."""
        self._written.clear()

    def checked(self, name: str) -> bytes:
        """A whole file whose seal fits; raises `DamagedError` or `FileNotFoundError`."""
        if name in self._written:
            return self.awaited(name, self._written[name])
        content = self._place.read(name)
        seal_of(name, content)
        return content

    def whole(self, name: str) -> bytes:
        """The same, with a `ResultsError` if the file is damaged or missing."""
        try:
            return self.checked(name)
        except FileNotFoundError:
            problem = "is missing"
        except DamagedError as error:
            problem = f"is damaged ({error})"
        again = "run `cubecast lab run` on it again"
        raise ResultsError(f"{self._place.where(name)} {problem}; {again}") from None

    def each(
        self, names: Iterable[str], read: Callable[[str], _T]
    ) -> Iterator[tuple[str, _T | DamagedError | FileNotFoundError]]:
        """Read files side by side; yields the error in place of a file that cannot be read."""

        def tried(name: str) -> tuple[str, _T | DamagedError | FileNotFoundError]:
            try:
                return name, read(name)
            except (DamagedError, FileNotFoundError) as error:
                return name, error

        with ThreadPoolExecutor(READERS, thread_name_prefix="results") as pool:
            yield from pool.map(tried, names)

    def awaited(self, name: str, digest: str) -> bytes:
        """A file that was written with this digest, as soon as it is visible."""
        return self.awaited_if(name, lambda content: sha256(content) == digest)

    def awaited_if(self, name: str, is_it: Callable[[bytes], bool]) -> bytes:
        """A file that was written, as soon as it is visible; else raises `DamagedError`."""
        deadline = time.monotonic() + LATE_S
        while True:
            try:
                content = self._place.read(name)
                if is_it(content):
                    return content
                problem = DamagedError("not the file that was written")
            except DamagedError as error:
                problem = error
            except FileNotFoundError:
                problem = DamagedError("missing")
            if isinstance(self._place, Local) or time.monotonic() > deadline:
                raise problem
            time.sleep(LOOK_AGAIN_S)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
