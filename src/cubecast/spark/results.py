"""A directory of results: its files, and how damaged or half-written ones are never used.

======================  ========================================================================
``grid.parquet``        what is to be measured (`tables.GRID`), of all experiments asked for so far
``cells/KEY.parquet``   one finished cell (`tables.CELL`)
``messages/KEY.parquet`` its messages, if asked for; the file of the cell has a digest of them
``traces/KEY.parquet``  its trace, if asked for; the same
``failures/KEY.json``   a cell that failed in the last sweep, and why
``experiments/ID.toml`` the experiments as they were read
``sweeps/ID.json``      who ran which sweep when, with what versions
``tables/*.parquet``    ``runs``, ``histograms`` and ``timings`` of all finished cells of the grid
``spark.log``           what Spark had to say in the last sweep (only on this machine)
======================  ========================================================================

1. Every file is put in place whole or not at all (`cubecast.spark.storage`), and carries a seal
   over its name and all its bytes (`cubecast.spark.seal`).
2. A cell is finished if and only if its file was read whole and its seal fits.  Equal keys mean
   equal measurements, so it does not matter which of two attempts comes last.
3. The table that is written last notes, by their seals, the other tables, and the grid and the
   cells that all are made of.  Tables of different sweeps are not read together.
4. One sweep at a time writes to a directory, as far as its file system can tell.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubecast.lab.cells import Cell
from cubecast.spark.errors import ResultsError
from cubecast.spark.seal import (
    DamagedError,
    json_facts,
    parquet_note,
    parquet_table,
    read_whole,
    seal_of,
    sealed_json,
    sealed_parquet,
    sealed_toml,
    toml_text,
)
from cubecast.spark.sealed_files import SealedFiles, sha256
from cubecast.spark.storage import Local, place_of
from cubecast.spark.tables import CELL, GRID, SCHEMAS

LAST = "timings"
"""The table that is written last."""
_MADE_OF = "cubecast-made-of"
_SWEEP = re.compile(r"[0-9a-f]{12}\.json")


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


@dataclass(slots=True)
class Finished:
    """Cells that were read."""

    seals: dict[str, str] = field(default_factory=dict)
    """{key: seal} of those that are finished."""
    damaged: dict[str, str] = field(default_factory=dict)
    """{key: what is wrong with a file of it}."""


class Results:
    """A directory of results, to write to or to read from."""

    def __init__(self, out: str | Path) -> None:
        self.place = place_of(out)
        self.files = SealedFiles(self.place)
        self.lost: list[str] = []
        """Damage that this run cannot repair, each in one line that says how to."""
        self.mended: list[str] = []
        """Damage that does not matter any more, each in one line."""
        self._require_held: Callable[[], None] = lambda: None
        self._seals: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The name of the directory, for people."""
        return self.place.name

    @property
    def root(self) -> Path:
        """The directory, if it is one of this machine."""
        if not isinstance(self.place, Local):
            raise ResultsError(f"{self.name} is not on this machine")
        return self.place.root

    @property
    def log(self) -> Path:
        """The log file of Spark's processes, always on this machine."""
        if isinstance(self.place, Local):
            return self.place.root / "spark.log"
        digest = sha256(self.name.encode())[:12]
        return Path(tempfile.gettempdir()) / f"cubecast-spark-{digest}.log"

    # -- opening -----------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the directory if need be and hold it for one sweep; refuse an unusable one."""
        with self.place.held() as self._require_held:
            self.place.clear_leftovers()
            for name in self.place.names("failures"):
                self.place.delete(f"failures/{name}")
            self._drop_damaged_notes()
            self._seals.clear()
            self.files.forget_what_was_written()
            yield

    def _drop_damaged_notes(self) -> None:
        """Remove unreadable notes of sweeps: they would stop every report."""
        for name, note in self.files.each(self._sweep_names(), self.files.checked):
            if isinstance(note, DamagedError):
                self.place.delete(name)
                where = self.place.where(name)
                self.mended.append(f"{where} was damaged ({note}) and is removed")

    # -- cells -------------------------------------------------------------------------------------

    def write_cell(self, key: str, table: pa.Table) -> str:
        """Put the row of a finished cell in place; return its seal."""
        name = _cell_file(key)
        content = sealed_parquet(name, CELL, [table])
        self.place.write(name, content)
        return seal_of(name, content)

    def write_kept(self, folder: str, key: str, content: bytes) -> str:
        """Put a kept file of a cell in place; return the digest for the row of the cell."""
        self.place.write(f"{folder}/{key}.parquet", content)
        return sha256(content)

    def cell(self, key: str, seal: str | None = None) -> pa.Table:
        """The row of a finished cell; raises `DamagedError` or `FileNotFoundError`.

        With `seal` the file is known to exist: it is waited for if a store shows it late.
        """
        name = _cell_file(key)
        if seal is None:
            content = self.files.checked(name)
        else:
            content = self.files.awaited_if(name, lambda found: seal_of(name, found) == seal)
        return parquet_table(content, CELL)

    def kept(self, folder: str, key: str) -> bytes | None:
        """The kept file of a finished cell, None if it kept none there; raises `DamagedError`."""
        try:
            (row,) = self.cell(key).to_pylist()
        except FileNotFoundError:
            raise DamagedError("the file of its cell is missing") from None
        digest = _kept(row).get(folder)
        return None if digest is None else self.files.awaited(f"{folder}/{key}.parquet", digest)

    def _has_kept(self, keep: Collection[str], row: Mapping[str, Any]) -> bool:
        """Whether a cell kept all of `keep`; raises `DamagedError` if a kept file has changed."""
        digests = _kept(row)
        for folder in keep:
            if folder not in digests:
                return False
            try:
                content = self.place.read(f"{folder}/{row['key']}.parquet")
            except FileNotFoundError:
                raise DamagedError(f"the file of its {folder} is missing") from None
            if sha256(content) != digests[folder]:
                raise DamagedError(f"the file of its {folder} has changed since it was written")
        return True

    def read_cells(self, keys: Set[str], keep: Collection[str] = ()) -> Finished:
        """Read the cells of these keys, and check that they kept all of `keep`."""
        found = Finished()
        present = keys & self.listed()
        names = {_cell_file(key): key for key in sorted(present)}

        def seal(name: str) -> str:
            content = self.place.read(name)
            found_seal = seal_of(name, content)
            if keep:
                (row,) = parquet_table(content, CELL).to_pylist()
                if not self._has_kept(keep, row):
                    return ""
            return found_seal

        for name, one in self.files.each(names, seal):
            if isinstance(one, DamagedError):
                found.damaged[names[name]] = str(one)
            elif isinstance(one, str) and one:
                found.seals[names[name]] = one
        self._seals |= found.seals
        return found

    def finished(self, keep: Collection[str] = ()) -> set[str]:
        """The keys of all finished cells that have kept all of `keep`: each is read."""
        return set(self.read_cells(self.listed(), keep).seals)

    def add_finished(self, key: str, seal: str) -> None:
        """Note a cell that a task has put in place."""
        self._seals[key] = seal

    def known(self, keys: Set[str]) -> dict[str, str]:
        """{key: seal} of the finished ones of these; none is read twice."""
        self.read_cells(keys - self._seals.keys())
        return {key: self._seals[key] for key in sorted(keys & self._seals.keys())}

    def listed(self, folder: str = "cells") -> set[str]:
        """The keys of all files of cells, or of a folder of kept files, readable or not."""
        return _stems(self.place.names(folder), ".parquet")

    # -- failures ----------------------------------------------------------------------------------

    def failed(self) -> set[str]:
        """The keys of the cells that failed in this sweep, or in the last one."""
        return _stems(self.place.names("failures"), ".json")

    def failure(self, key: str) -> Failure:
        return Failure(**json_facts(self.files.whole(f"failures/{key}.json")))

    def add_failure(self, failure: Failure) -> None:
        name = f"failures/{failure.key}.json"
        self.place.write(name, sealed_json(name, asdict(failure)))

    # -- the grid ----------------------------------------------------------------------------------

    def grid(self) -> pa.Table:
        """The grid of cells to measure; empty if there is none yet."""
        try:
            return self._grid()
        except DamagedError as error:
            where = self.place.where("grid.parquet")
            again = "run `cubecast lab run` on it again"
            raise ResultsError(f"{where} is damaged ({error}); {again}") from None

    def _grid(self) -> pa.Table:
        try:
            return parquet_table(self.files.checked("grid.parquet"), GRID)
        except FileNotFoundError:
            if self._sweep_names():  # no sweep begins before the grid is there
                raise DamagedError("missing") from None
            return GRID.empty_table()

    def extend_grid(self, cells: Iterable[Cell]) -> None:
        """Replace the grid's cells of these experiments by these cells."""
        new = grid_table(cells)
        ids = set(new["experiment"].to_pylist())
        old = self._grid_or_empty(ids)
        stays = [one not in ids for one in old["experiment"].to_pylist()]
        kept = old.filter(pa.array(stays, pa.bool_()))
        merged = pa.concat_tables([kept, new]).sort_by(
            [("experiment", "ascending"), ("cell", "ascending"), ("seed", "ascending")]
        )
        self.files.write_if_new("grid.parquet", sealed_parquet("grid.parquet", GRID, [merged]))

    def _grid_or_empty(self, ids: set[str]) -> pa.Table:
        """The grid, or an empty one if it is damaged; the cells of its experiments are not lost."""
        try:
            return self._grid()
        except DamagedError as error:
            others = sorted(_stems(self.place.names("experiments"), ".toml") - ids)
            told = f"{self.place.where('grid.parquet')} was damaged ({error})"
            if others:
                again = "the tables lack them until they are run again (finished cells are kept)"
                self.lost.append(f"{told}: it may have had {', '.join(others)}; {again}")
            else:
                self.mended.append(f"{told} and is written again")
            return GRID.empty_table()

    # -- notes -------------------------------------------------------------------------------------

    def note_experiment(self, id: str, text: str) -> None:
        """Keep an experiment as it was read, so that a report needs no other file."""
        name = f"experiments/{id}.toml"
        self.files.write_if_new(name, sealed_toml(name, text))

    def experiment_texts(self) -> dict[str, str]:
        """{id: TOML} of the experiments in the grid."""
        ids = sorted(set(self.grid()["experiment"].to_pylist()))
        return {id: toml_text(self.files.whole(f"experiments/{id}.toml")) for id in ids}

    def note_sweep(self, id: str, facts: Mapping[str, Any]) -> None:
        name = f"sweeps/{id}.json"
        self.files.write(name, sealed_json(name, {"sweep": id, **facts}))

    def has_sweep(self, id: str) -> bool:
        """Whether the note of a sweep, which was written, can be read from here."""
        try:
            return bool(self.files.awaited_if(f"sweeps/{id}.json", bool))
        except DamagedError:
            return False

    def sweeps(self) -> list[dict[str, Any]]:
        """The sweeps that wrote here, oldest first."""
        found = [json_facts(self.files.whole(name)) for name in self._sweep_names()]
        return sorted(found, key=lambda sweep: str(sweep["started"]))

    def _sweep_names(self) -> list[str]:
        names = self.place.names("sweeps")
        return sorted(f"sweeps/{name}" for name in names if _SWEEP.fullmatch(name))

    # -- tables ------------------------------------------------------------------------------------

    def made_of(self, seals: Mapping[str, str]) -> str:
        """A digest of the input of tables: the grid, and cells with their seals."""
        digest = hashlib.sha256(seal_of("grid.parquet", self.files.whole("grid.parquet")).encode())
        for key, seal in sorted(seals.items()):
            digest.update(f"{key} {seal}\n".encode())
        return digest.hexdigest()

    def tables_made_of(self) -> str | None:
        """The digest of the input of the present tables; None unless all are whole and fit."""
        found = dict(self.files.each(map(_table_file, SCHEMAS), self.files.checked))
        contents = {name: one for name, one in found.items() if isinstance(one, bytes)}
        return _made_of(contents) if contents.keys() == found.keys() else None

    def write_table(
        self,
        name: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        made_of: tuple[str, Mapping[str, str]] | None = None,
    ) -> str:
        """Put a table in place; return its seal.

        The last one, `LAST`, notes the input of all and the seals of the others: the others are the
        same bytes whenever and wherever they are made.
        """
        self._require_held()
        file = _table_file(name)
        notes = {} if made_of is None else {_MADE_OF: json.dumps(made_of)}
        content = sealed_parquet(file, schema, tables, notes)
        self.files.write(file, content)
        return seal_of(file, content)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One of the tables as it was written last, or some columns of it."""
        content = self.files.whole(_table_file(name))
        names = None if columns is None else [*columns]
        return read_whole(content, columns=names)

    def drop_table(self, name: str) -> None:
        """Remove a table, so that none are read until they are made again."""
        self.place.delete(_table_file(name))

    def require_tables(self) -> None:
        """Refuse a directory without finished tables, with advice."""
        if isinstance(self.place, Local) and self.place.root.is_file():
            raise ResultsError(f"{self.name} is a file, and no directory of results")
        there = self.place.names("tables")
        missing = [name for name in SCHEMAS if f"{name}.parquet" not in there]
        if missing == list(SCHEMAS) and not self._exists():
            raise ResultsError(f"{self.name} is no directory; `cubecast lab run` makes one")
        if missing:
            raise ResultsError(
                f"{self.name} has no finished tables ({', '.join(missing)} missing); "
                "run `cubecast lab run` on it, or again if it was interrupted"
            )
        if _made_of({file: self.files.whole(file) for file in map(_table_file, SCHEMAS)}) is None:
            raise ResultsError(
                f"the tables in {self.name} are of different sweeps; "
                "run `cubecast lab run` on it again"
            )

    def _exists(self) -> bool:
        return not isinstance(self.place, Local) or self.place.root.is_dir()


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


def _made_of(contents: Mapping[str, bytes]) -> str | None:
    """The digest of the tables' input, noted in the last one; None if the others do not fit it."""
    note = parquet_note(contents[_table_file(LAST)], _MADE_OF)
    if not note:
        return None
    made_of, seals = json.loads(note)
    others = {file: seal_of(file, one) for file, one in contents.items()}
    del others[_table_file(LAST)]
    return (
        str(made_of)
        if others == {_table_file(name): seal for name, seal in seals.items()}
        else None
    )


def _kept(row: Mapping[str, Any]) -> dict[str, str]:
    """{folder: digest} of the kept files of a cell."""
    return {one["name"]: one["sha256"] for one in row["kept"]}


def _cell_file(key: str) -> str:
    return f"cells/{key}.parquet"


def _table_file(name: str) -> str:
    return f"tables/{name}.parquet"


def _stems(names: Collection[str], ending: str) -> set[str]:
    return {name.removesuffix(ending) for name in names if name.endswith(ending)}
