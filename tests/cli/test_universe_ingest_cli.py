"""``cubecast universe ingest``: what it says, and with what it exits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.cli.job_progress import Steps, running_tasks
from cubecast.spark.session import spark_session
from cubecast.spark.universe.importers import IMPORTERS

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""To compile a query takes longer than to run it on five rows."""
PAIRS = ("--as", "subscriptions", "--columns", "user=0,topic=1")


@pytest.fixture(scope="session", autouse=True)
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The commands use the session that is there: starting one each time takes seconds."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session("local[2]", log=log, conf=INTERPRETED) as session:
        yield session


def ingest(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["universe", "ingest", *map(str, arguments)])


def test_the_help_teaches_by_examples_and_names_every_importer() -> None:
    text = ingest("--help").stdout
    assert "cubecast universe ingest groups.tsv.gz --from youtube --out youtube" in text
    assert all(name in text for name in IMPORTERS)
    assert "ingest" in CliRunner().invoke(app, ["universe", "--help"]).stdout


def test_a_trace_is_ingested_and_every_row_is_told(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.tsv", tmp_path / "universe"
    trace.write_text("1\t1\n1\t1\n2\tx\n" + "".join(f"{n}\t1\n" for n in range(3, 200)))
    result = ingest(trace, *PAIRS, "--out", out)
    assert result.exit_code == 0, result.output
    assert "200 rows read = 198 kept + 1 duplicates + 1 quarantined + 0 skipped" in result.stdout
    assert "quarantined: topic is no whole number: 1" in result.stdout
    assert "198 users x 1 topics" in result.stdout
    again = ingest(trace, *PAIRS, "--out", out, "--json")
    told = json.loads(again.stdout)
    assert told["counts"]["kept"] == told["tables"]["subscriptions"] == 198
    assert told["out"] == str(out)


def test_too_many_bad_rows_exit_with_1_and_the_first_reasons(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "universe"
    trace.write_text("1,1\n2,-2\n3\n")
    result = ingest(trace, *PAIRS, "--out", out)
    assert result.exit_code == 1
    assert "2 of 3 rows are bad, more than 1 %" in result.stderr
    assert "too few columns (1); topic is negative (1)" in result.stderr
    assert (out / "quarantine").is_dir()
    assert ingest(trace, *PAIRS, "--out", out, "--most-bad", "70").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace.tsv"], "say what the rows are"),
        (["trace.tsv", "--as", "subscriptions"], "say where the fields are"),
        (["trace.dat", *PAIRS], "say how rows are written"),
        (["trace.tsv", "--as", "follows", "--columns", "user=0,topic=1"], "not 'follows'"),
        (["trace.tsv", "--as", "subscriptions", "--columns", "user"], "must be FIELD=COLUMN"),
        (["trace.tsv", *PAIRS, "--where", "x"], "must be COLUMN=PATTERN"),
        (["trace.tsv", "--from", "twitter"], "there are youtube"),
        (["trace.tsv", "--from", "askubuntu"], "name the one directory"),
        (["trace.tsv", "--from", "askubuntu", "--width", "2"], "in its own way"),
        (["missing.tsv", *PAIRS], "cannot read missing.tsv: No such file"),
        (["folder", *PAIRS, "--format", "tsv"], "folder is a directory"),
        (["empty.tsv", *PAIRS], "empty, there is no row to read"),
        (["cut.tsv.gz", *PAIRS], "cut short or damaged"),
        (["liar.tsv.gz", *PAIRS], "by its name liar.tsv.gz is gzip"),
        (["trace.tsv", *PAIRS, "--comment", "1"], "all 1 rows are skipped: comment (1)"),
    ],
)
def test_a_trace_that_cannot_be_ingested_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, data in (
        ("trace.tsv", b"1\t1\n"),
        ("trace.dat", b"1\t1\n"),
        ("empty.tsv", b""),
        ("cut.tsv.gz", gzip.compress(bytes(range(48, 58)) * 9)[:-9]),
        ("liar.tsv.gz", b"1\t1\n"),
    ):
        (tmp_path / name).write_bytes(data)
    result = ingest(*arguments, "--out", "universe")
    assert result.exit_code == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("cubecast ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in result.output
    assert not (tmp_path / "universe").exists()


def test_an_importer_may_be_corrected_by_options(tmp_path: Path) -> None:
    trace, out = tmp_path / "groups.csv", tmp_path / "universe"
    trace.write_text("g1,ann\ng2,bob\n")
    result = ingest(
        trace, "--from", "youtube", "--format", "csv", "--columns", "user=1,topic=0",
        "--names", "user,topic", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 users x 2 topics" in result.stdout


def test_long_steps_tell_how_far_they_are() -> None:
    said: list[str] = []
    moments = iter([0.0, 10.0, 12.0, 26.0, 100.0])
    steps = Steps(said.append, 15.0, lambda: next(moments))
    steps("reading")  # at 10
    steps.refresh()  # at 12: too early
    steps.refresh()  # at 26
    steps("writing")
    assert said == ["reading", "reading, 0:16", "writing"]


def test_no_tasks_are_told_where_none_run(spark: SparkSession) -> None:
    assert running_tasks(spark) is None
