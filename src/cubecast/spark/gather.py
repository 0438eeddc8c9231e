"""From a directory of results to plain data: the tables aggregated by Spark, then collected."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from cubecast.lab.experiment import parse
from cubecast.lab.findings import Busyness, Distribution, Findings
from cubecast.lab.verdicts import Row
from cubecast.spark.aggregate import idleness, means, pooled
from cubecast.spark.compact import read_table
from cubecast.spark.results import Results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def gather(spark: SparkSession, results: Results) -> Findings:
    """Everything that the finished cells of a directory say."""
    results.require_tables()
    grid = results.grid()
    finished = results.finished()
    ids = dict.fromkeys(grid["experiment"].to_pylist())
    rows = zip(grid["experiment"].to_pylist(), grid["key"].to_pylist(), strict=True)
    missing = Counter(experiment for experiment, key in rows if key not in finished)
    texts = results.experiment_texts()
    return Findings(
        directory=results.root,
        experiments=tuple(parse(texts[id], f"{id}.toml") for id in ids if id in texts),
        rows=tuple(mean_rows(spark, results)),
        distributions=tuple(distributions(spark, results)),
        sweeps=tuple(results.sweeps()),
        busyness=tuple(busyness(spark, results)),
        missing=dict(missing),
        failures=tuple(str(results.failure(key)) for key in sorted(results.failed())),
    )


def mean_rows(spark: SparkSession, results: Results) -> list[Row]:
    """The mean of every metric at every point, in the order of the grids."""
    frame = means(read_table(spark, results, "runs")).orderBy("experiment", "cell", "metric")
    return [
        Row(
            row["experiment"], json.loads(row["settings"]), row["metric"], row["mean"],
            0.0 if row["ci"] is None else row["ci"], row["n"],
        )
        for row in frame.collect()
    ]  # fmt: skip


def distributions(spark: SparkSession, results: Results) -> list[Distribution]:
    """Every histogram at every point, in the order of the grids."""
    frame = pooled(read_table(spark, results, "histograms"))
    found: dict[tuple[str, int, str], tuple[str, dict[int, int]]] = {}
    for row in frame.orderBy("experiment", "cell", "name", "bucket").collect():
        place = (row["experiment"], row["cell"], row["name"])
        found.setdefault(place, (row["settings"], {}))[1][row["bucket"]] = row["count"]
    return [
        Distribution(experiment, json.loads(settings), name, buckets)
        for (experiment, _, name), (settings, buckets) in found.items()
    ]


def busyness(spark: SparkSession, results: Results) -> list[Busyness]:
    """How busy the cores were, sweep by sweep, oldest first."""
    noted = [(sweep["sweep"], int(sweep["cores"])) for sweep in results.sweeps()]
    if not noted:
        return []
    cores = spark.createDataFrame(noted, "sweep string, cores int")
    frame = idleness(read_table(spark, results, "timings"), cores)
    found = {row["sweep"]: Busyness(**row.asDict()) for row in frame.collect()}
    return [found[sweep] for sweep, _ in noted if sweep in found]
