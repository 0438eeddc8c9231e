"""A directory of results: what is in it, and how nothing half-written is ever read.

======================  ========================================================================
``grid.parquet``        what is to be measured (`tables.GRID`), of all experiments asked for so far
``cells/KEY.parquet``   one finished cell (`tables.CELL`)
``messages/KEY.parquet`` its messages, if asked for; they count only beside the file of its cell
``traces/KEY.parquet``  its trace, if asked for; the same
``failures/KEY.json``   a cell that failed in the last sweep, and why
``experiments/ID.toml`` the experiments as they were read
``sweeps/ID.json``      who ran which sweep when, with what versions
``tables/*.parquet``    ``runs``, ``histograms`` and ``timings`` of all finished cells of the grid
``spark.log``           what Spark had to say in the last sweep
======================  ========================================================================

1. Every file is written under a name that readers skip, synced, and renamed: it is there whole or
   not at all, on a local disk as on a shared file system whose rename is atomic.
2. A cell is finished if and only if its file is there.  Equal keys mean equal measurements, so it
   does not matter which of two attempts comes last.
3. One sweep at a time writes to a directory; the system lifts the lock of a driver that died.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.lab.cells import Cell
from cubecast.spark.errors import ResultsError
from cubecast.spark.tables import GRID, SCHEMAS

FOLDERS = ("cells", "messages", "traces", "failures", "experiments", "sweeps")
_PATTERN_CHARACTERS = frozenset("*?[]{}\\")
"""What Spark takes for a pattern in the name of a directory."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that could not be measured."""

    key: str
    name: str
    error: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.error}"


def cell_name(cell: Cell) -> str:
    """A cell as people say it: the experiment, its settings, its seed."""
    settings = ", ".join(f"{name}={value}" for name, value in cell.settings.items())
    return f"{cell.experiment} ({settings}) seed {cell.seed}"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file and put it in place whole."""
    scratch = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        write(scratch)
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


class Results:
    """A directory of results, to write to or to read from."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    # -- places ------------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        return self.root / name

    def cell_file(self, key: str) -> Path:
        return self.root / "cells" / f"{key}.parquet"

    def messages_file(self, key: str) -> Path:
        return self.root / "messages" / f"{key}.parquet"

    def trace_file(self, key: str) -> Path:
        return self.root / "traces" / f"{key}.parquet"

    def failure_file(self, key: str) -> Path:
        return self.root / "failures" / f"{key}.json"

    def table_file(self, name: str) -> Path:
        return self.root / "tables" / f"{name}.parquet"

    @property
    def log(self) -> Path:
        return self.root / "spark.log"

    # -- opening -----------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the directory if need be and hold it for one sweep; refuse what cannot be used."""
        unusable = sorted(_PATTERN_CHARACTERS.intersection(str(self.root)))
        if unusable:
            raise ResultsError(
                f"cannot use {self.root}: Spark takes {' '.join(unusable)} for a pattern; "
                "choose another directory with --out"
            )
        try:
            for name in FOLDERS:
                self.folder(name).mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ResultsError(
                f"cannot write to {self.root}: {error.strerror}; choose a directory with --out"
            ) from None
        try:
            self._lock(lock)
            self._clear_leftovers()
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(
                f"another sweep is writing to {self.root}; wait for it, or choose another --out"
            ) from None

    def _clear_leftovers(self) -> None:
        """What a driver or executor that died was writing; nobody reads these names."""
        try:
            for folder in (self.root, *map(self.folder, FOLDERS)):
                for path in folder.glob(".*.tmp"):
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink(missing_ok=True)
            for path in self.folder("failures").glob("*.json"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise ResultsError(f"cannot write to {self.root}: {error.strerror}") from None

    # -- cells -------------------------------------------------------------------------------------

    def finished(self, keep: Collection[str] = ()) -> set[str]:
        """The keys of all finished cells that have kept all of `keep`."""
        found = _stems(self.folder("cells"), ".parquet")
        for folder in keep:
            found &= _stems(self.folder(folder), ".parquet")
        return found

    def is_finished(self, key: str, keep: Collection[str] = ()) -> bool:
        """The same of one cell, without a look at all others."""
        return all((self.folder(name) / f"{key}.parquet").exists() for name in ("cells", *keep))

    def failed(self) -> set[str]:
        """The keys of the cells that failed in this sweep, or in the last one."""
        return _stems(self.folder("failures"), ".json")

    def failure(self, key: str) -> Failure:
        return Failure(**json.loads(self.failure_file(key).read_text(encoding="utf-8")))

    def add_failure(self, failure: Failure) -> None:
        text = json.dumps(asdict(failure))
        write_atomically(
            self.failure_file(failure.key), lambda path: path.write_text(text, encoding="utf-8")
        )

    # -- the grid ----------------------------------------------------------------------------------

    def grid(self) -> pa.Table:
        """What is to be measured; empty if there is nothing yet."""
        path = self.root / "grid.parquet"
        try:
            return pq.read_table(path, schema=GRID) if path.exists() else GRID.empty_table()
        except (OSError, pa.ArrowException) as error:
            raise ResultsError(f"cannot read {path}: {_one_line(error)}") from None

    def extend_grid(self, cells: Iterable[Cell]) -> None:
        """Put these cells in place of what the grid has of their experiments."""
        new = grid_table(cells)
        ids = set(new["experiment"].to_pylist())
        old = self.grid()
        stays = [one not in ids for one in old["experiment"].to_pylist()]
        kept = old.filter(pa.array(stays, pa.bool_()))
        merged = pa.concat_tables([kept, new]).sort_by(
            [("experiment", "ascending"), ("cell", "ascending"), ("seed", "ascending")]
        )
        write_atomically(self.root / "grid.parquet", lambda path: pq.write_table(merged, path))

    # -- notes -------------------------------------------------------------------------------------

    def note_experiment(self, id: str, text: str) -> None:
        """Keep an experiment as it was read, so that a report needs no other file."""
        write_atomically(
            self.folder("experiments") / f"{id}.toml",
            lambda path: path.write_text(text, encoding="utf-8"),
        )

    def note_sweep(self, id: str, facts: Mapping[str, Any]) -> None:
        text = json.dumps({"sweep": id, **facts}, indent=1)
        write_atomically(
            self.folder("sweeps") / f"{id}.json",
            lambda path: path.write_text(text, encoding="utf-8"),
        )

    def sweeps(self) -> list[dict[str, Any]]:
        """The sweeps that wrote here, oldest first."""
        found = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in self.folder("sweeps").glob("*.json")
        ]
        return sorted(found, key=lambda sweep: str(sweep["started"]))

    def experiment_texts(self) -> dict[str, str]:
        """{id: TOML} of the experiments in the grid."""
        paths = sorted(self.folder("experiments").glob("*.toml"))
        return {path.stem: path.read_text(encoding="utf-8") for path in paths}

    # -- tables ------------------------------------------------------------------------------------

    def require_tables(self) -> None:
        """Refuse a directory without finished tables, and say what to do about it."""
        if not self.root.is_dir():
            raise ResultsError(f"{self.root} is no directory; `cubecast lab run` makes one")
        missing = [name for name in SCHEMAS if not self.table_file(name).exists()]
        if missing:
            raise ResultsError(
                f"{self.root} has no finished tables ({', '.join(missing)} missing); "
                "run `cubecast lab run` on it, or again if it was interrupted"
            )

    @contextmanager
    def new_tables(self) -> Iterator[Path]:
        """An empty directory to write tables to; leaving the block puts it in place.

        Between two renames there is no ``tables`` at all, never a mixture of two.
        """
        scratch = self.root / f".tables.{uuid4().hex}.tmp"
        scratch.mkdir()
        try:
            yield scratch
            place = self.folder("tables")
            if place.exists():
                place.rename(self.root / f".old-tables.{uuid4().hex}.tmp")
            scratch.rename(place)
        finally:
            for path in self.root.glob(".*tables.*.tmp"):
                shutil.rmtree(path, ignore_errors=True)


def grid_table(cells: Iterable[Cell]) -> pa.Table:
    """Cells as rows of the grid."""
    rows = [
        {
            "experiment": cell.experiment, "cell": cell.number, "key": cell.key,
            "settings": cell.settings_json, "seed": cell.seed, "cost": cell.cost,
        }
        for cell in cells
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=GRID)


def _stems(folder: Path, ending: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return set()
    return {
        name.removesuffix(ending)
        for name in names
        if name.endswith(ending) and not name.startswith(".")
    }


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
