"""Sweeps on the cores of this machine: what is run, what is kept, what is written."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.lab.cells import Cell
from cubecast.lab.commit import source_commit
from cubecast.lab.statistics import critical_value, summary
from cubecast.spark import compact, session
from cubecast.spark.aggregate import (
    aggregates,
    critical_values,
    distributions,
    histogram_quantiles,
    idleness,
    means,
    pooled,
    run_quantiles,
)
from cubecast.spark.compact import (
    finished_cells,
    read_messages,
    read_table,
    runs_of,
    tables_are_current,
    write_one_file,
    write_tables,
)
from cubecast.spark.errors import ResultsError, SparkFailedError
from cubecast.spark.executor_task import Measure
from cubecast.spark.plain_tables import gather
from cubecast.spark.progress import Silence
from cubecast.spark.results import Failure, Results
from cubecast.spark.session import spark_session
from cubecast.spark.sweep import SweepOutcome, grid_frame, run_sweep
from cubecast.spark.tables import SCHEMAS
from cubecast.trace import check, read
from support.lab_toys import (
    dies_at_four,
    exits_at_four,
    fails_at_four,
    gated,
    latency_is_nodes,
    toy,
    toy_cells,
    toy_with_messages,
)
from support.paths import ROOT
from support.spark_guest import Interrupting, refused, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPERIMENT = """
id = "mine"
title = "Two sizes"
source = "ours"
workload = "single-publisher"
metrics = ["latency_mean", "pub_messages"]

[seeds]
full = 3
quick = 2

[fixed]
engine = "reference"

[grid]
nodes = [8, 16]

[[paper]]
section = "none"
what = "messages to 16 nodes"
value = 15
metric = "pub_messages"
at = { nodes = 16 }
tolerance = 0
"""


def sweep(
    spark: SparkSession, cells: list[Cell], out: Path, measure: Measure = toy, **options: Any
) -> SweepOutcome:
    results = Results(out)
    with results.opened():
        outcome = run_sweep(spark, cells, results, measure=measure, **options)
        write_tables(spark, results)
    return outcome


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(out / "tables" / f"{table}.parquet").to_pylist()


def expected_runs(cells: list[Cell]) -> list[dict[str, Any]]:
    """What a plain loop measures."""
    return [
        {
            "experiment": cell.experiment, "cell": cell.number, "key": cell.key,
            "settings": cell.settings_json, "seed": cell.seed, "metric": metric, "value": value,
            **cell.settings,
        }
        for cell in cells
        for metric, value in sorted(toy(cell).metrics.items())
    ]  # fmt: skip


# -- sweeps ----------------------------------------------------------------------------------------


def test_the_tables_have_what_a_plain_loop_measures(spark: SparkSession, tmp_path: Path) -> None:
    cells = toy_cells()
    outcome = sweep(spark, cells, tmp_path)
    assert (outcome.ran, outcome.kept, outcome.failures, outcome.cores) == (18, 0, (), 2)
    assert rows(tmp_path, "runs") == expected_runs(cells)
    assert [
        (row["cell"], row["seed"], row["bucket"], row["count"])
        for row in rows(tmp_path, "histograms")
    ] == [
        (cell.number, cell.seed, bucket, count)
        for cell in cells
        for bucket, count in sorted(toy(cell).histograms["delay"].items())
    ]
    timings = rows(tmp_path, "timings")
    assert [row["key"] for row in timings] == [cell.key for cell in cells]
    assert all(row["started"] <= row["ended"] for row in timings)


def test_the_tables_have_their_declared_columns(spark: SparkSession, tmp_path: Path) -> None:
    sweep(spark, toy_cells(1, 1), tmp_path)
    for table, schema in SCHEMAS.items():
        found = pq.read_schema(tmp_path / "tables" / f"{table}.parquet")
        typed = [("nodes", pa.int64())] * ("settings" in schema.names)
        assert [(field.name, field.type) for field in found] == [
            *((field.name, field.type) for field in schema), *typed,
        ], table  # fmt: skip


def test_each_cell_is_a_task_and_expensive_ones_come_first(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    cells = [Cell("toy", n, {}, seed, cost) for n, cost in enumerate((1, 9, 4)) for seed in (0, 1)]
    frame = grid_frame(spark, cells).withColumn("task", F.spark_partition_id())
    found = [(row["task"], row["cost"], row["seed"]) for row in frame.collect()]
    assert sorted(found) == [
        (0, 9.0, 0), (1, 9.0, 1), (2, 4.0, 0), (3, 4.0, 1), (4, 1.0, 0), (5, 1.0, 1),
    ]  # fmt: skip


def test_finished_cells_are_not_run_again(spark: SparkSession, tmp_path: Path) -> None:
    sweep(spark, toy_cells(3, 2), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    outcome = sweep(spark, toy_cells(4, 3), tmp_path)
    assert (outcome.ran, outcome.kept) == (6, 6)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert rows(tmp_path, "runs") == expected_runs(toy_cells(4, 3))


def test_no_table_is_broadcast_whose_size_spark_can_only_guess(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seventeen thousand cells were 10 MB for Spark, and more than a driver of 1 GB could hold."""
    sweep(spark, toy_cells(3, 2), tmp_path)
    results = Results(tmp_path)
    seals = results.known(set(results.grid()["key"].to_pylist()))
    finished_cells(spark, results, seals).explain()
    plan = capsys.readouterr().out
    assert "Join" in plan
    assert "Broadcast" not in plan


def test_cells_are_kept_on_the_disk_and_not_in_memory_while_tables_are_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine thousand cells did not fit into a driver of 1 GB, which tried it for each table."""
    sweep(spark, toy_cells(3, 2), tmp_path)
    context: Any = spark.sparkContext
    kept: list[tuple[bool, bool]] = []

    def noted(*arguments: Any) -> str:
        levels = [one.getStorageLevel() for one in context._jsc.getPersistentRDDs().values()]
        kept.extend((level.useDisk(), level.useMemory()) for level in levels)
        return write_one_file(*arguments)

    monkeypatch.setattr(compact, "write_one_file", noted)
    write_tables(spark, Results(tmp_path))
    assert kept
    assert set(kept) == {(True, False)}


Step = Callable[..., Any]


def without_a_point(*given: Any) -> dict[str, DataFrame]:
    found = aggregates(*given)
    return {**found, "distributions": found["distributions"].where("cell <> 1")}


SPOILT: tuple[tuple[str, Step, str], ...] = (
    ("finished_cells", lambda *given: finished_cells(*given).where("cell + seed > 0"),
     "have 3 cells and 4 are finished; they differ in {lost}$"),
    ("runs_of", lambda cells: runs_of(cells).where("cell + seed > 0"),
     "the table runs in .* stands for 6 values, and the finished cells have 8$"),
    ("aggregates", without_a_point,
     "the table distributions in .* stands for 4 values, and the finished cells have 10$"),
)  # fmt: skip
"""Steps that drop rows, as a wrong join does."""


def test_tables_that_lack_rows_of_a_finished_cell_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = toy_cells(2, 2)
    results = Results(tmp_path)
    with results.opened():
        run_sweep(spark, cells, results, measure=toy)
        for step, spoilt, told in SPOILT:
            with monkeypatch.context() as patch:
                patch.setattr(compact, step, spoilt)
                with pytest.raises(ResultsError, match=told.format(lost=cells[0].key)):
                    write_tables(spark, results)
            assert not tables_are_current(Results(tmp_path)), "a re-run makes them again"


def test_the_tables_are_those_of_the_grid_asked_for_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    other = [Cell("other", 0, {"nodes": 5}, 0)]
    sweep(spark, toy_cells(3, 2), tmp_path)
    sweep(spark, other, tmp_path)
    outcome = sweep(spark, toy_cells(2, 2), tmp_path)
    assert (outcome.ran, outcome.kept) == (0, 4)
    assert rows(tmp_path, "runs") == expected_runs([*other, *toy_cells(2, 2)])


def test_half_written_files_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    cells = toy_cells(2, 1)
    with Results(tmp_path).opened():
        pass
    half = tmp_path / "cells" / f".{cells[0].key}.parquet.0123.tmp"
    half.parent.mkdir()
    half.write_bytes(b"PAR1 and no more")
    (tmp_path / ".tables.0123.tmp").mkdir()
    assert sweep(spark, cells, tmp_path).ran == 2
    assert not half.exists()
    assert not list(tmp_path.glob(".*.tmp"))
    assert rows(tmp_path, "runs") == expected_runs(cells)


def test_messages_are_kept_with_their_cell(spark: SparkSession, tmp_path: Path) -> None:
    cells = toy_cells(2, 2)
    sweep(spark, cells, tmp_path, toy_with_messages)
    results = Results(tmp_path)
    (tmp_path / "messages" / "0123.parquet").write_bytes(b"of a cell that is not finished")
    found = read_messages(spark, results).orderBy("cell", "seed").collect()
    assert [(row["cell"], row["seed"], row["source"], row["deliveries"]) for row in found] == [
        (0, 0, 0, 1), (0, 1, 1, 1), (1, 0, 0, 2), (1, 1, 1, 2),
    ]  # fmt: skip


# -- failures --------------------------------------------------------------------------------------


class Heard(Silence):
    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def failed(self, cell: Cell, failure: Failure) -> None:
        self.failures.append(failure)


def test_a_cell_that_fails_is_named_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    cells, heard = toy_cells(4, 2), Heard()
    outcome = sweep(spark, cells, tmp_path, fails_at_four, progress=heard)
    assert sorted(map(str, outcome.failures)) == [
        f"toy (nodes=4) seed {seed}: ArithmeticError: no measurement of four" for seed in (0, 1)
    ]
    assert "fails_at_four" in outcome.failures[0].details
    assert set(heard.failures) == set(outcome.failures)
    good = [cell for cell in cells if cell.settings["nodes"] != 4]
    assert rows(tmp_path, "runs") == expected_runs(good)

    again = sweep(spark, cells, tmp_path)
    assert (again.ran, again.kept, again.failures) == (2, 6, ())
    assert rows(tmp_path, "runs") == expected_runs(cells)


def test_a_cell_that_kills_its_process_does_not_take_the_sweep_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    cells, results = toy_cells(4, 2), Results(tmp_path)
    outcome = sweep(spark, cells, tmp_path, dies_at_four)
    (failure,) = outcome.failures
    assert str(failure) == (
        "toy (nodes=4) seed 0: its process was killed by SIGKILL (out of memory?), 2 times of 2"
    )
    assert (outcome.ran, len(results.finished()), results.failed()) == (7, 7, {failure.key})
    assert results.failure(failure.key) == failure


def test_a_cell_that_calls_exit_fails_alone(spark: SparkSession, tmp_path: Path) -> None:
    outcome = sweep(spark, toy_cells(4, 1), tmp_path, exits_at_four)
    assert list(map(str, outcome.failures)) == ["toy (nodes=4) seed 0: SystemExit: 5"]
    assert outcome.ran == 3


def test_two_sweeps_do_not_write_to_one_directory(spark: SparkSession, tmp_path: Path) -> None:
    with Results(tmp_path).opened(), pytest.raises(ResultsError, match="another sweep"):
        sweep(spark, toy_cells(1, 1), tmp_path)


def test_executors_that_see_another_directory_are_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Elsewhere(Results):
        def note_sweep(self, id: str, facts: object) -> None:
            """As if the driver had written it to a disk of its own."""

    results = Elsewhere(tmp_path)
    with results.opened(), pytest.raises(SparkFailedError, match="file system that all executors"):
        run_sweep(spark, toy_cells(1, 1), results, measure=toy)


# -- a session of the user's -----------------------------------------------------------------------


def test_a_session_of_the_users_keeps_its_jobs_its_master_and_its_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep beside it is interrupted, and only the sweep ends."""
    monkeypatch.setattr(session, "_own", [])  # the user started it
    context, gate, results = spark.sparkContext, tmp_path / "gate", Results(tmp_path / "out")
    application, master = context.applicationId, context.master
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    cells, active = toy_cells(gate=str(gate)), context.statusTracker().getActiveJobsIds
    spark.conf.set(zone, "America/New_York")

    def interrupted() -> None:
        with results.opened(), spark_session() as beside:
            assert beside.conf.get(zone) == "UTC"
            run_sweep(beside, cells, results, measure=gated, progress=Interrupting())

    try:
        with ThreadPoolExecutor(1) as pool:
            numbers = context.parallelize([gate], 1)
            own = pool.submit(lambda: numbers.flatMap(wait_for).collect())
            try:
                while not active():
                    time.sleep(0.02)
                with pytest.raises(KeyboardInterrupt):
                    interrupted()
                assert (len(active()), own.done()) == (1, False)
            finally:
                gate.touch()
            assert own.result() == [7]
        assert spark.conf.get(zone) == "America/New_York"
        assert refused(master="local[1]") == (
            f"this process has a Spark session on {master} already, so nothing can run on "
            "local[1]: leave the master out, or stop that session"
        )
        assert refused(master="local[2]") == ""
        assert "spark.driver.memory is" in refused(conf={"spark.driver.memory": "3g"})
    finally:
        spark.conf.set(zone, before)
    assert (context.applicationId, context.master) == (application, master)
    assert spark.range(3).count() == 3


# -- aggregation -----------------------------------------------------------------------------------


def test_critical_values_are_those_of_the_plain_function(spark: SparkSession) -> None:
    """Whose values `tests/lab/test_lab_finished.py` compares with the printed tables."""
    from pyspark.sql import functions as F

    frame = spark.range(1, 400).select("id", critical_values(F.col("id")).alias("t"))
    found = {row["id"]: row["t"] for row in frame.collect()}
    assert found[1] is None
    for n in range(2, 400):
        assert found[n] == pytest.approx(critical_value(n - 1), abs=2e-6), n


def test_means_and_intervals_are_those_of_the_plain_formulas(
    spark: SparkSession, tmp_path: Path
) -> None:
    cells = toy_cells(2, 5)
    sweep(spark, cells, tmp_path)
    frame = means(read_table(spark, Results(tmp_path), "runs"))
    found = {(row["cell"], row["metric"]): row for row in frame.collect()}
    assert len(found) == 4
    for (number, metric), row in found.items():
        values = [toy(cell).metrics[metric] for cell in cells if cell.number == number]
        assert row["n"] == 5
        assert row["mean"] == pytest.approx(statistics.fmean(values))
        assert row["sd"] == pytest.approx(statistics.stdev(values))
        assert row["ci"] == pytest.approx(2.776445 * statistics.stdev(values) / 5**0.5)
        assert (row["least"], row["most"]) == (min(values), max(values))


def test_one_seed_has_a_mean_and_no_interval(spark: SparkSession) -> None:
    schema = "experiment string, cell int, settings string, seed long, metric string, value double"
    frame = spark.createDataFrame([("toy", 0, "{}", 0, "latency", 4.0)], schema)
    (row,) = means(frame).collect()
    assert (row["n"], row["mean"], row["sd"], row["ci"]) == (1, 4.0, None, None)


def test_quantiles_of_runs(spark: SparkSession) -> None:
    schema = "experiment string, cell int, settings string, seed long, metric string, value double"
    frame = spark.createDataFrame([("x", 0, "{}", s, "m", float(s)) for s in range(5)], schema)
    found = run_quantiles(frame, (0.0, 0.5, 0.875)).orderBy("probability").collect()
    assert [(row["probability"], row["quantile"]) for row in found] == [
        (0.0, 0.0), (0.5, 2.0), (0.875, 3.5),
    ]  # fmt: skip


def test_histograms_of_all_seeds_together(spark: SparkSession) -> None:
    buckets = [{0: 5, 10: 5}, {10: 2, 20: 8}]
    schema = "experiment string, cell int, settings string, seed long, name string, "
    frame = spark.createDataFrame(
        [
            ("x", 0, "{}", seed, "h", b, c)
            for seed, one in enumerate(buckets)
            for b, c in one.items()
        ],
        schema + "bucket long, count long",
    )
    found = pooled(frame).orderBy("bucket").collect()
    assert [(row["bucket"], row["count"], row["share"]) for row in found] == [
        (0, 5, 0.25), (10, 7, 0.35), (20, 8, 0.4),
    ]  # fmt: skip
    nothing = frame.withColumn("count", frame["count"] * 0)
    assert [row["share"] for row in pooled(nothing).collect()] == [0.0] * 3
    everything = sorted((Counter(buckets[0]) + Counter(buckets[1])).elements())
    wanted = (0.1, 0.25, 0.26, 0.5, 0.6, 0.61, 1.0)
    quantiles = histogram_quantiles(frame, wanted).orderBy("probability").collect()
    assert [row["quantile"] for row in quantiles] == [
        everything[max(0, -int(-p * len(everything) // 1) - 1)] for p in wanted
    ]


def test_the_points_have_the_bits_of_a_plain_loop(spark: SparkSession, tmp_path: Path) -> None:
    """What `compare` sums up without Spark and what a run writes with it are the same numbers."""
    cells = toy_cells(3, 7)
    sweep(spark, cells, tmp_path)
    found = rows(tmp_path, "points")
    assert [(row["cell"], row["metric"]) for row in found] == [
        (number, metric) for number in range(3) for metric in ("latency", "messages")
    ]
    for row in found:
        own = [toy(cell).metrics[row["metric"]] for cell in cells if cell.number == row["cell"]]
        assert (row["n"], row["mean"], row["ci"]) == summary(own)
        assert row["nodes"] == 2 ** row["cell"], "settings are columns"


def test_a_bucket_that_a_run_lacks_counts_as_zero_there(spark: SparkSession) -> None:
    point = "experiment string, cell int, settings string, seed long"
    counts = [{0: 5, 10: 5}, {10: 2, 20: 8}, {10: 8}]
    histograms = spark.createDataFrame(
        [("x", 0, "{}", seed, "h", *pair) for seed in range(3) for pair in counts[seed].items()],
        f"{point}, name string, bucket long, count long",
    )
    timings = spark.createDataFrame([("x", 0, seed) for seed in range(3)],
                                    "experiment string, cell int, seed long")  # fmt: skip
    found = distributions(histograms, timings).collect()
    assert [(row["bucket"], row["count"], row["n"], row["mean"]) for row in found] == [
        (0, 5, 3, 5 / 3), (10, 15, 3, 5.0), (20, 8, 3, 8 / 3),
    ]  # fmt: skip
    for row in found:
        own = [float(one.get(row["bucket"], 0)) for one in counts]
        assert row["ci"] == pytest.approx(summary(own).ci)
        assert row["share"] == row["count"] / 28


def test_idle_time_is_what_the_cores_did_not_spend_in_cells(spark: SparkSession) -> None:
    moments = [("w", 0, 8), ("w", 8, 10), ("v", 0, 7)]
    spans = ", ".join(
        f"('s', 'e', '{worker}', timestamp_seconds({a}), timestamp_seconds({b}))"
        for worker, a, b in moments
    )
    timings = spark.sql(
        f"select * from values {spans} as t(sweep, executor, worker, started, ended)"
    )
    cores = spark.createDataFrame([("s", 2), ("other", 9)], "sweep string, cores int")
    (row,) = idleness(timings, cores).collect()
    assert (row["cells"], row["busy_s"], row["span_s"], row["tail_s"]) == (3, 17.0, 10.0, 3.0)
    assert row["idle_share"] == pytest.approx(0.15)


# -- commands --------------------------------------------------------------------------------------


def lab(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lab", *map(str, arguments)])


def printed(*arguments: object) -> dict[str, Any]:
    result = lab(*arguments, "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


@pytest.mark.usefixtures("spark")
def test_a_users_own_experiment_is_run_reported_and_compared(mine: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    told = printed("run", mine, "--quick", "--out", out)
    assert (told["cells"], told["ran"], told["kept"], told["failed"]) == (4, 4, 0, [])
    told = printed("run", mine, "--out", out)
    assert (told["cells"], told["ran"], told["kept"]) == (6, 2, 4)

    report = printed("report", out)
    rows = {(row["settings"]["nodes"], row["metric"]): row for row in report["rows"]}
    assert rows[16, "pub_messages"]["n"] == 3
    assert report["missing"] == {}
    (verdict,) = report["verdicts"]
    assert (verdict["paper"], verdict["ours"]) == (15, rows[16, "pub_messages"]["mean"])

    printed("run", mine, "--seeds", 2, "--out", other)
    same = printed("compare", out, other)
    assert {row["difference"] for row in same["rows"]} == {0.0}
    assert {row["n"] for row in same["rows"]} == {2}
    assert (same["only_in_a"], same["only_in_b"]) == (2, 0)
    result = lab("compare", out, other, "--metric", "pub_messages")
    assert result.exit_code == 0
    assert "2 of 2 means the same" in result.stdout
    assert "not compared: 2 runs only in A and 0 runs only in B" in result.stdout
    result = lab("compare", out, other, "--metric", "flights")
    assert (result.exit_code, "no metric 'flights'" in result.stderr) == (2, True)


@pytest.mark.usefixtures("spark")
def test_messages_and_traces_are_kept_on_request(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert printed("run", mine, "--quick", "--out", out)["ran"] == 4
    kept = printed("run", mine, "--quick", "--out", out, "--keep", "messages", "--keep", "traces")
    assert kept["ran"] == 4, "cells that kept nothing are run again"
    assert printed("run", mine, "--quick", "--out", out, "--keep", "traces")["kept"] == 4
    keys = {row["key"] for row in rows(out, "runs")}
    for key in keys:
        (message,) = pq.read_table(out / "messages" / f"{key}.parquet").to_pylist()
        header, records = read(out / "traces" / f"{key}.parquet")
        delivered = [one for one in records if one.kind == "deliver" and one.node != one.source]
        assert len(delivered) == message["deliveries"] in (7, 15)
        assert header.scenario == "single-publisher"
        assert check(read(out / "traces" / f"{key}.parquet")[1]).ok


@pytest.mark.usefixtures("spark")
def test_findings_have_all_that_a_report_needs(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert lab("run", mine, "--out", out).exit_code == 0
    findings = gather(Results(out))
    assert [experiment.id for experiment in findings.experiments] == ["mine"]
    assert [(row.settings["nodes"], row.n) for row in findings.rows if row.metric == "rate"] == [
        (8, 3),
        (16, 3),
    ]
    assert {one.name for one in findings.histograms} >= {"latency"}
    assert {one.n for one in findings.histograms} == {3}
    (made,) = findings.provenance
    assert (made.quick, made.cells, made.seeds) == (False, 6, None)
    assert {"cubecast", "python", "pyspark", "code"} <= made.versions.keys()
    assert made.commit == source_commit()
    assert (findings.missing, findings.failures) == ({}, ())


def test_the_examples_of_settings_as_columns_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The two of docs/spark.md, on results of two experiments with different settings."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    points = [{"protocol": "srpt", "nodes": nodes} for nodes in (32, 64, 128)]
    cells = [Cell("4.1", n, point, seed) for n, point in enumerate(points) for seed in (0, 1)]
    cells.append(Cell("x", 0, {"nodes": 512, "loss": 0.5, "name": "y"}, 0))
    sweep(spark, cells, tmp_path / "lab-results", measure=latency_is_nodes)
    monkeypatch.chdir(tmp_path)
    (snippet, *_), (query,) = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for language in ("python", "sql")
    )
    exec(compile(snippet, "docs/spark.md", "exec"), {})
    told = [{"protocol": "srpt", "nodes": n, "mean": float(n), "ci": 0.0} for n in (64, 128)]
    assert capsys.readouterr().out.strip() == str(told)
    query = query.replace("`lab-results", f"`{tmp_path}/lab-results")
    assert [row.asDict() for row in spark.sql(query).collect()] == told
    (other,) = [row for row in rows(tmp_path / "lab-results", "points") if row["experiment"] == "x"]
    assert (other["protocol"], other["loss"], other["setting_name"]) == (None, 0.5, "y")
