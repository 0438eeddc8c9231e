"""Results that are damaged in every way: a re-run makes them whole, or says what is missing.

The files are those of real sweeps.  Fifty rounds, with processes that are killed, are in
`test_results_rounds.py`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cubecast.lab.cells import Cell
from cubecast.spark.compact import read_messages
from cubecast.spark.errors import LabError, ResultsError
from cubecast.spark.results import Results, cell_name
from cubecast.spark.seal import (
    DamagedError,
    json_facts,
    seal_of,
    sealed_json,
    sealed_parquet,
    sealed_toml,
    toml_text,
)
from cubecast.spark.storage import Local
from cubecast.spark.sweep import bring_up_to_date, run_sweep
from support.damages import POINTS, SEEDS, WORKLOAD, Lab, bit_flipped, cut
from support.lab_toys import (
    full_disk,
    toy,
    toy_cells,
    toy_on_a_full_disk,
    toy_with_messages,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# -- seals -----------------------------------------------------------------------------------------


def files() -> list[tuple[str, bytes]]:
    table = pa.table({"key": ["k"], "value": [0.5]})
    return [
        ("cells/k.parquet", sealed_parquet("cells/k.parquet", table.schema, [table])),
        ("sweeps/s.json", sealed_json("sweeps/s.json", {"cells": 3})),
        ("experiments/e.toml", sealed_toml("experiments/e.toml", 'id = "e"\n')),
    ]


@pytest.mark.parametrize(("name", "content"), files(), ids=["parquet", "json", "toml"])
def test_every_changed_bit_and_every_cut_is_noticed(name: str, content: bytes) -> None:
    seal_of(name, content)
    for at in range(8 * len(content)):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError):
            seal_of(name, bytes(changed))
    for length in range(len(content)):
        with pytest.raises(DamagedError):
            seal_of(name, content[:length])
    with pytest.raises(DamagedError):
        seal_of(f"{name}x", content)


def test_sealed_notes_read_as_they_were_written() -> None:
    assert json_facts(sealed_json("a", {"x": [1, "é"]})) == {"x": [1, "é"]}
    assert toml_text(sealed_toml("a", "id = 1\n# end")) == "id = 1\n# end"


# -- damage ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all tests copy: the undamaged run."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture
def lab(spark: SparkSession, folder: Path, tmp_path: Path) -> Lab:
    return Lab(spark, folder, tmp_path / "out")


def test_damaged_results_are_whole_after_a_re_run(lab: Lab) -> None:
    chance = random.Random(16)
    for _ in range(3):
        lab.mend(lab.damage(chance))


def test_two_sweeps_give_the_same_bytes(lab: Lab) -> None:
    shutil.rmtree(lab.out)
    assert lab.run(lab.out)[0].ran == POINTS * SEEDS
    assert not lab.differing()


def test_damaged_files_are_named(lab: Lab) -> None:
    first, second, third = lab.cells[:3]
    (lab.out / "cells" / f"{first.key}.parquet").write_bytes(b"")
    bit_flipped(lab.out / "cells" / f"{second.key}.parquet", random.Random(1))
    (lab.out / "cells" / f"{third.key}.parquet").rename(
        lab.out / "cells" / f"{third.identity}-of-other-code.parquet"
    )
    (note,) = (lab.out / "sweeps").iterdir()
    note.write_bytes(b'{"sweep": [')
    (lab.out / "sweeps" / "mine.json").write_bytes(b"a file that is not ours")
    outcome, told = lab.run(lab.out)
    changed = "changed since it was written, or not written under this name"
    assert told == [
        f"{note} was damaged (cut short, changed, or not written by the lab: it has no seal) "
        "and is removed",
        f"2 cells were damaged and run again: {cell_name(first)}: empty; "
        f"{cell_name(second)}: {changed}",
        "1 cell is of another version of the code, and measured anew",
    ]
    assert (outcome.ran, outcome.kept, outcome.other_code) == (3, 3, 1)
    assert not lab.differing()
    assert (lab.out / "sweeps" / "mine.json").exists()
    outcome, told = lab.run(lab.out)
    assert (outcome.sweep, outcome.ran, outcome.kept, told) == ("", 0, 6, [])


def test_a_lost_grid_is_told_until_its_experiments_are_run_again(lab: Lab) -> None:
    other = [Cell("other", 0, {"workload": WORKLOAD, "nodes": 5, "gate": "/"}, 0)]
    results = Results(lab.out)
    results.note_experiment("other", 'id = "other"\n')
    lab.run(lab.out, other)
    bit_flipped(lab.out / "grid.parquet", random.Random(2))
    with pytest.raises(ResultsError, match=r"out/grid.parquet is damaged \(.*lab run` on it again"):
        results.grid()
    outcome, told = lab.run(lab.out)
    assert told == list(outcome.lost)
    assert "it may have had other; the tables lack them until they are run again" in told[0]
    assert not lab.differing()
    outcome, _ = lab.run(lab.out, other)
    assert (outcome.ran, outcome.kept, outcome.lost) == (0, 1, ())


def test_readers_name_the_damaged_file(spark: SparkSession, tmp_path: Path) -> None:
    results = Results(tmp_path)
    cells = toy_cells(2, 1)
    with results.opened():
        session = lambda: nullcontext(spark)  # noqa: E731
        bring_up_to_date(cells, results, session, measure=toy_with_messages)
    cut(tmp_path / "messages" / f"{cells[0].key}.parquet", random.Random(3))
    told = rf"messages/{cells[0].key}.parquet is damaged \(not the file that was written\)"
    with pytest.raises(Exception, match=told):
        read_messages(spark, results).collect()
    results.read_cells({cell.key for cell in cells})
    for name in ("runs", "timings"):
        path = tmp_path / "tables" / f"{name}.parquet"
        before = path.read_bytes()
        bit_flipped(path, random.Random(4))
        with pytest.raises(ResultsError, match=f"tables/{name}.parquet is damaged"):
            Results(tmp_path).require_tables()
        path.write_bytes(before)
    Results(tmp_path).require_tables()


# -- places that refuse ----------------------------------------------------------------------------


def test_a_place_that_is_no_folder_is_told_with_the_file_and_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    results, cells = Results(tmp_path), toy_cells(1, 1)
    (tmp_path / "cells").write_bytes(b"where a folder should be")
    with (
        results.opened(),
        pytest.raises(LabError, match=rf"cannot \w+ {tmp_path}/cells.*: (Not a dir|File exists)"),
    ):
        bring_up_to_date(cells, results, lambda: nullcontext(spark), measure=toy)


def test_a_disk_that_fills_up_ends_the_sweep_and_a_re_run_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The system refuses an executor the rest of a file that it has begun."""
    results, cells = Results(tmp_path), toy_cells(1, 1)
    session, file = lambda: nullcontext(spark), f"{tmp_path}/cells/{cells[0].key}.parquet"
    with results.opened():
        with pytest.raises(LabError) as refusal:
            bring_up_to_date(cells, results, session, measure=toy_on_a_full_disk)
        assert str(refusal.value) == f"cannot write {file}: {os.strerror(errno.EFBIG)}"
        assert not list((tmp_path / "cells").iterdir()), "neither a file nor a part of one"
        outcome = run_sweep(spark, cells, results, measure=toy)
    assert (outcome.ran, outcome.failures, outcome.damaged) == (1, (), ())
    assert Results(tmp_path).finished() == {cells[0].key}


def test_a_file_for_which_there_is_no_room_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems say so when the bytes come, some when they should be on the disk."""
    place, path = Local(tmp_path), tmp_path / "grid.parquet"
    place.write("grid.parquet", b"as it was")
    with full_disk(), pytest.raises(ResultsError) as refusal:
        place.write("grid.parquet", bytes(5000))
    assert str(refusal.value) == f"cannot write {path}: {os.strerror(errno.EFBIG)}"

    def late(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(ResultsError) as refusal:
        place.write("grid.parquet", bytes(5000))
    assert str(refusal.value) == f"cannot write {path}: {os.strerror(errno.ENOSPC)}"
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [
        ("grid.parquet", b"as it was")
    ]
