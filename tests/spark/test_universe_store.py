"""Universes that are damaged on disk, or at places that Spark would misread, are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cubecast.cli.app import app
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.spark.errors import SparkFailedError, lab_errors
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.schemas import PUBLICATIONS, SUBSCRIPTIONS
from cubecast.spark.universe.store import new_folder, new_universe, open_universe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIVE = [(1, 10), (2, 10), (3, 10), (1, 20), (2, 20)]


@pytest.fixture
def universe(spark: SparkSession, tmp_path: Path) -> Path:
    """Two files of subscriptions, and one publication."""
    with new_universe(tmp_path / "five", "a test") as draft:
        draft.write("subscriptions", spark.createDataFrame(FIVE, SUBSCRIPTIONS).repartition(2))
        draft.write("publications", spark.createDataFrame([(1, None, 1, [10], [])], PUBLICATIONS))
        draft.finish({"source": "a test"})
    return tmp_path / "five"


def parts(universe: Path) -> list[Path]:
    return sorted((universe / "subscriptions").glob("*.parquet"))


def lose(universe: Path) -> None:
    parts(universe)[0].unlink()


def cut(universe: Path) -> None:
    part = parts(universe)[0]
    part.write_bytes(part.read_bytes()[:-10])


def empty(universe: Path) -> None:
    parts(universe)[0].write_bytes(b"")


def rename(universe: Path) -> None:
    table = pq.read_table(parts(universe)[0])
    pq.write_table(table.rename_columns(["usr", "topic"]), parts(universe)[0])


def retype(universe: Path) -> None:
    table = pq.read_table(parts(universe)[0])
    narrow = pa.schema([pa.field("user", pa.string()), pa.field("topic", pa.int64())])
    pq.write_table(table.cast(narrow), parts(universe)[0])


def duplicate(universe: Path) -> None:
    part = parts(universe)[0]
    part.with_name("again-" + part.name).write_bytes(part.read_bytes())


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lose, r"subscriptions is damaged: it has \d rows where the manifest says 5"),
        (duplicate, r"subscriptions is damaged: it has \d rows where the manifest says 5"),
        (cut, r"parquet is damaged: "),
        (empty, r"parquet is damaged: "),
        (rename, r"damaged: column user is missing, not int64"),
        (retype, r"damaged: column user is string, not int64"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_table_that_is_damaged_is_refused_before_it_is_read(
    damage: Callable[[Path], None], told: str, universe: Path, spark: SparkSession
) -> None:
    damage(universe)
    with pytest.raises(UniverseError, match=told):
        open_universe(universe).read(spark, "subscriptions")


def test_tables_that_are_whole_are_read(universe: Path, spark: SparkSession) -> None:
    found = open_universe(universe)
    assert found.read(spark, "subscriptions").count() == 5
    assert found.read(spark, "publications").count() == 1


@pytest.mark.parametrize("command", ["overlay", "describe", "gossip"])
def test_a_command_tells_the_damage_in_one_line(command: str, universe: Path) -> None:
    lose(universe)
    result = CliRunner().invoke(app, ["universe", command, str(universe)])
    assert result.exit_code != 0
    assert "is damaged: it has" in result.output.splitlines()[-1]
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        '{"format": "x", "tables": {"subscriptions": 5}}',
        '{"format": 1, "tables": {"subscriptions": "five"}}',
        '{"format": 1, "tables": {"unheard-of": 5}}',
    ],
)
def test_a_manifest_that_is_none_is_refused(manifest: str, universe: Path) -> None:
    (universe / "universe.json").write_text(manifest)
    with pytest.raises(UniverseError, match=r"cannot read .*universe\.json"):
        open_universe(universe)


def test_a_place_that_is_a_pattern_is_never_read_as_another(universe: Path, tmp_path: Path) -> None:
    pattern = universe.rename(tmp_path / "u[1]")
    with pytest.raises(UniverseError, match=r"Spark takes \[ \] for a pattern"):
        open_universe(pattern)


# -- folders of results ----------------------------------------------------------------------------


def test_a_folder_is_in_place_only_when_its_block_ended_well(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fail() -> None:
        with new_folder(out) as scratch:
            assert scratch is not None
            scratch.mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with new_folder(out) as scratch:
        assert scratch is not None
        (scratch / "table").mkdir(parents=True)
        assert not out.exists()
    assert [one.name for one in out.iterdir()] == ["table"]


def test_two_commands_with_one_place_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write(name: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        with new_folder(out) as scratch:
            assert scratch is not None
            (scratch / name).mkdir(parents=True)
            meanwhile()

    with pytest.raises(UniverseError, match="exists already"):
        write("late", lambda: write("early"))
    assert [one.name for one in out.iterdir()] == ["early"]
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_an_error_of_spark_is_told_without_its_stack() -> None:
    from pyspark.errors import AnalysisException

    told = "Job aborted.\nCaused by: java.io.IOError: the disk\n\tat org.x.SparkErrorUtils.y(z)"
    said = r"Caused by: java\.io\.IOError: the disk$"
    with pytest.raises(SparkFailedError, match=said), lab_errors():
        raise AnalysisException(told)


# -- the lab's universes ---------------------------------------------------------------------------


@pytest.mark.parametrize("workload", ["stan", "universe"])
def test_a_grid_that_holds_nothing_is_told_and_not_measured(workload: str) -> None:
    work = WORKLOADS[workload]
    settings = work.complete({"workload": workload, "universe": "grid", "least_radius": 1e-6})
    with pytest.raises(WorkloadError, match="no two topics"):
        work.measure(settings, 0)
    with pytest.raises(WorkloadError, match=r"above 0, to 0\.8"):
        work.complete({"workload": workload, "universe": "grid", "least_radius": -1.0})


def test_the_manifest_counts_what_is_on_disk(universe: Path) -> None:
    manifest = json.loads((universe / "universe.json").read_text())
    assert manifest["tables"] == {"subscriptions": 5, "publications": 1}
