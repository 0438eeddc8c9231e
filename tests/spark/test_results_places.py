"""Results on other file systems: a real S3 server on the loopback, late objects, dying writers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cubecast.cli.app import app
from cubecast.spark import lease
from cubecast.spark.compact import read_messages
from cubecast.spark.errors import ResultsError
from cubecast.spark.results import Results
from cubecast.spark.storage import Held, Place, place_of, without_secrets
from cubecast.spark.sweep import bring_up_to_date
from support.lab_toys import toy_cells, toy_with_messages
from support.s3_server import LATE, TIMES, place, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture(params=["disk", "s3"])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return place_of(tmp_path)
    return place_of(place(request.getfixturevalue("server"), tmp_path.name))


# -- places ----------------------------------------------------------------------------------------


def test_a_file_is_read_listed_replaced_and_deleted(somewhere: Place) -> None:
    with pytest.raises(FileNotFoundError):
        somewhere.read("cells/a")
    assert somewhere.names("cells") == set()
    somewhere.write("cells/a", b"one")
    somewhere.write("cells/b", b"")
    somewhere.write("cells/.c.tmp", b"left by a writer that died")
    somewhere.write("cells/a", b"two")
    assert somewhere.read("cells/a") == b"two"
    assert somewhere.read("cells/b") == b""
    assert somewhere.names("cells") == {"a", "b"}
    somewhere.clear_leftovers()
    with pytest.raises(FileNotFoundError):
        somewhere.read("cells/.c.tmp")
    somewhere.delete("cells/a")
    somewhere.delete("cells/a")
    assert somewhere.names("cells") == {"b"}
    somewhere.delete("cells")
    assert somewhere.names("cells") == set()


def test_secrets_are_not_told(server: int) -> None:
    found = place_of(place(server, "x"))
    assert found.name == "s3://lab/x"
    assert found.where("cells/a") == "s3://lab/x/cells/a"
    other = place_of(place(server, "x").replace("@lab", "@no-such-bucket"))
    with pytest.raises(ResultsError, match="cannot write s3://no-such-bucket/x/a: ") as refusal:
        other.write("a", b"")
    assert "very-secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("s3://key:very-secret@lab/x?region=eu", "s3://lab/x?region=eu"),
        ("--out=s3://key:very/secret@lab/x", "--out=s3://lab/x"),
        ("abfs://:very-secret@account/x", "abfs://account/x"),
        ("spark.hadoop.fs.s3a.secret.key=very=secret", "spark.hadoop.fs.s3a.secret.key=***"),
        ("--conf=spark.my.token=very-secret", "--conf=spark.my.token=***"),
        ("spark.executor.memory=2g", "spark.executor.memory=2g"),
        ("spark://head:7077", "spark://head:7077"),
        ("a@b/results", "a@b/results"),
    ],
)
def test_arguments_are_shown_without_secrets(argument: str, shown: str) -> None:
    assert without_secrets(argument) == shown


@pytest.mark.parametrize(
    ("out", "advice"),
    [
        ("s3a://bucket/x", "s3a:// is no file system of pyarrow's; write s3://"),
        ("foo://bucket/x", "foo:// is no file system of pyarrow's; use a path, or one of s3://"),
        ("", "a place of results has a name; this one is empty"),
        ("  ", "a place of results has a name; this one is empty"),
        ("file://shared/lab", "file://shared/lab names no file of this machine"),
        ("file:///lab?x", "file:///lab?x names no file of this machine: write file:///path"),
        ("file:/lab", "file:/lab is no URI: write file:///lab"),
        ("S3:/bucket/x", "S3:/bucket/x is no URI: write s3://bucket/x"),
        ("s3://", "s3:// names no bucket: write s3://bucket/x"),
        ("gs://", "gs:// names no bucket: write gs://bucket/x"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_anything_runs(
    out: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["lab", "run", "4.1", "--quick", "--out", out])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"cubecast lab run: {advice}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "uri", ["s3://AKIA:very/secret@bucket/x?region=eu", "hdfs://u:secret@head:port/x"]
)
def test_a_uri_that_cannot_be_read_is_told_without_its_secrets(uri: str) -> None:
    with pytest.raises(ResultsError, match=r"cannot use .*write / as %2F") as refusal:
        place_of(uri)
    assert "secret" not in str(refusal.value)


def test_a_uri_of_this_machine_is_a_directory(tmp_path: Path) -> None:
    assert Results(f"file://{tmp_path}/a%20b").root == tmp_path / "a b"


# -- sweeps ----------------------------------------------------------------------------------------


def run(spark: SparkSession, out: str | Path) -> tuple[int, int]:
    results = Results(out)
    with results.opened():
        outcome = bring_up_to_date(
            toy_cells(3, 2), results, lambda: nullcontext(spark), measure=toy_with_messages
        )
    assert outcome.failures == ()
    return outcome.ran, outcome.kept


@pytest.fixture(scope="module")
def on_disk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("disk")
    assert run(spark, out) == (6, 0)
    return Results(out)


def same_tables(one: Results, other: Results) -> bool:
    names = ("tables/runs.parquet", "tables/histograms.parquet", "grid.parquet")
    return all(shown(one.place, name) == shown(other.place, name) for name in names)


def shown(found: Place, name: str) -> bytes:
    """A file, also if it is shown late."""
    for _ in range(TIMES):
        with suppress(FileNotFoundError):
            return found.read(name)
    return found.read(name)


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_S", 1.0)
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    monkeypatch.setattr(lease, "SETTLE_S", 0.1)


@pytest.mark.usefixtures("short_leases")
def test_tables_on_a_store_that_shows_objects_late_are_those_of_a_disk(
    spark: SparkSession, server: int, on_disk: Results
) -> None:
    uri = place(server, LATE)
    assert run(spark, uri) == (6, 0)
    results = Results(uri)
    assert same_tables(results, on_disk)
    assert read_messages(spark, results).count() == 6
    assert run(spark, uri) == (0, 6)


DYING = """
import os, signal, sys
from pyarrow.fs import FileSystem
files, path = FileSystem.from_uri(sys.argv[1])
stream = files.open_output_stream(path + "/" + sys.argv[2])
stream.write(b"x" * (12 << 20))
stream.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("short_leases")
def test_a_writer_that_dies_in_mid_upload_leaves_nothing_that_is_read(
    spark: SparkSession, server: int, on_disk: Results
) -> None:
    uri = place(server, "dying")
    results = Results(uri)
    for cell in toy_cells(3, 2)[:2]:
        name = f"cells/{cell.key}.parquet"
        dead = subprocess.run([sys.executable, "-c", DYING, uri, name], timeout=300)
        assert dead.returncode == -9
    assert results.finished() == set()
    assert run(spark, uri) == (6, 0)
    assert same_tables(results, on_disk)


# -- locks -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_leases")
def test_a_store_is_held_by_one_sweep_at_a_time(server: int) -> None:
    uri = place(server, "held")
    told = r"another sweep \(process \d+ on .+\) is writing to s3://lab/held; wait for it"
    with place_of(uri).held(), pytest.raises(ResultsError, match=told), place_of(uri).held():
        pass
    with place_of(uri).held() as held:
        held()


def ask_until_refused(held: Held) -> None:
    while True:
        held()
        time.sleep(0.02)


@pytest.mark.usefixtures("short_leases")
def test_the_lock_of_a_sweep_that_died_is_taken_over(server: int) -> None:
    found = place_of(place(server, "dead"))
    found.write(".lock", b'{"owner": "dead", "by": "process 1 on x", "beat": 7}')
    with found.held() as held:
        held()
        found.write(".lock", b'{"owner": "thief"}')
        with pytest.raises(ResultsError, match="was lost to another sweep"):
            ask_until_refused(held)
    assert found.read(".lock") == b'{"owner": "thief"}'


def test_a_damaged_lock_is_no_lock(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_S", 0.2)
    monkeypatch.setattr(lease, "SETTLE_S", 0.0)
    found = place_of(place(server, "damaged"))
    found.write(".lock", b"\xff[")
    with found.held() as held:
        held()
