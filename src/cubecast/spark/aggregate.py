"""Aggregates of the tables, as small named steps DataFrame -> DataFrame.

A *point* is a cell of a grid with all its seeds.  Sums run over the seeds in their order, so that
the result has the same bits in whatever parts Spark held the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cubecast.lab.statistics import EXPANSION, TABULATED, critical_value
from cubecast.spark.tables import DISTRIBUTIONS, POINTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINT = ("experiment", "cell", "settings")
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


# -- Student's t -----------------------------------------------------------------------------------


def critical_values(n: Column) -> Column:
    """`critical_value` of n - 1 for a column of sample sizes; null below two."""
    from pyspark.sql import functions as F

    freedom = n.cast("int") - 1
    table = F.array(*[F.lit(critical_value(k)) for k in range(1, TABULATED + 1)])
    inverse = F.lit(1.0) / freedom
    expansion = F.lit(EXPANSION[0])
    for power, term in enumerate(EXPANSION[1:], 1):
        expansion = expansion + F.lit(term) * F.pow(inverse, F.lit(power))
    return (
        F.when(freedom < 1, F.lit(None).cast("double"))
        .when(freedom <= TABULATED, F.try_element_at(table, freedom))
        .otherwise(expansion)
    )


# -- runs ------------------------------------------------------------------------------------------


def means(runs: DataFrame) -> DataFrame:
    """Per point and metric: n, mean, sd and the 95 % confidence interval (Student t) over seeds.

    `ci` is half its width; with one seed there is none, and `ci` is null.
    """
    from pyspark.sql import functions as F

    pairs = F.sort_array(F.collect_list(F.struct("seed", F.col("value").alias("v"))))
    values = F.transform(pairs, lambda pair: pair["v"]).alias("values")
    sized = runs.groupBy(*POINT, "metric").agg(values).withColumn("n", F.size("values"))
    centred = sized.withColumn("mean", _sum(F.col("values")) / F.col("n"))
    squares = F.transform("values", lambda v: (v - F.col("mean")) * (v - F.col("mean")))
    spread = F.when(F.col("n") > 1, F.sqrt(_sum(squares) / (F.col("n") - 1)))
    return (
        centred.withColumn("sd", spread)
        .withColumn("ci", critical_values(F.col("n")) * F.col("sd") / F.sqrt("n"))
        .withColumn("least", F.array_min("values"))
        .withColumn("most", F.array_max("values"))
        .drop("values")
    )


def _sum(values: Column) -> Column:
    from pyspark.sql import functions as F

    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)


def run_quantiles(runs: DataFrame, probabilities: Sequence[float] = PROBABILITIES) -> DataFrame:
    """Per point and metric: quantiles of its values over seeds, interpolated."""
    from pyspark.sql import functions as F

    wanted = F.array(*[F.lit(float(p)) for p in probabilities])
    found = runs.groupBy(*POINT, "metric").agg(
        F.arrays_zip(
            wanted.alias("probability"),
            F.percentile("value", [float(p) for p in probabilities]).alias("quantile"),
        ).alias("pairs")
    )
    return found.select(*POINT, "metric", F.inline("pairs").alias("probability", "quantile"))


def points(runs: DataFrame) -> DataFrame:
    """The table `points`: `means` in the order of the grids."""
    return means(runs).select(*POINTS.names).orderBy("experiment", "cell", "metric")


# -- histograms ------------------------------------------------------------------------------------


def pooled(histograms: DataFrame) -> DataFrame:
    """Per point and histogram: the buckets of all seeds together, with their share.

    Of a histogram whose counts sum to nothing each share is 0.
    """
    from pyspark.sql import functions as F

    summed = histograms.groupBy(*POINT, "name", "bucket").agg(F.sum("count").alias("count"))
    return _with_share(summed, [*POINT, "name"])


def _with_share(counts: DataFrame, whole: Sequence[str]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    share = F.try_divide(F.col("count"), F.sum("count").over(Window.partitionBy(*whole)))
    return counts.withColumn("share", F.coalesce(share, F.lit(0.0)))


def histogram_quantiles(
    histograms: DataFrame, probabilities: Sequence[float] = PROBABILITIES
) -> DataFrame:
    """Per point and histogram: the smallest bucket that at least this share does not exceed."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    whole = Window.partitionBy(*POINT, "name")
    so_far = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    cumulated = pooled(histograms).select(
        *POINT,
        "name",
        "bucket",
        F.sum("count").over(so_far).alias("below"),
        F.sum("count").over(whole).alias("all"),
    )
    wanted = F.explode(F.array(*[F.lit(float(p)) for p in probabilities])).alias("probability")
    return (
        cumulated.select("*", wanted)
        .where(F.col("below") >= F.col("probability") * F.col("all"))
        .groupBy(*POINT, "name", "probability")
        .agg(F.min("bucket").alias("quantile"))
    )


def distributions(histograms: DataFrame, timings: DataFrame) -> DataFrame:
    """`pooled` with the mean count per run and its interval: the table `distributions`.

    A run without entries in a bucket counts as 0 there; `timings` has the number of runs.
    """
    from pyspark.sql import functions as F

    keys = [*POINT, "name", "bucket"]
    pairs = F.sort_array(F.collect_list(F.struct("seed", F.col("count").cast("double").alias("v"))))
    counted = histograms.groupBy(*keys).agg(
        F.sum("count").alias("count"), F.transform(pairs, lambda pair: pair["v"]).alias("values")
    )
    sizes = timings.groupBy("experiment", "cell").agg(F.count("*").cast("int").alias("n"))
    centred = counted.join(sizes, ["experiment", "cell"]).withColumn(
        "mean", F.col("count") / F.col("n")
    )
    squares = F.transform("values", lambda v: (v - F.col("mean")) * (v - F.col("mean")))
    absent = (F.col("n") - F.size("values")) * F.col("mean") * F.col("mean")
    spread = F.sqrt((_sum(squares) + absent) / (F.col("n") - 1))
    interval = F.when(F.col("n") > 1, critical_values(F.col("n")) * spread / F.sqrt("n"))
    found = _with_share(centred, [*POINT, "name"]).withColumn("ci", interval)
    return found.select(*DISTRIBUTIONS.names).orderBy("experiment", "cell", "name", "bucket")


# -- timings ---------------------------------------------------------------------------------------


def idleness(timings: DataFrame, cores: DataFrame) -> DataFrame:
    """Per sweep: how busy its cores were (`cores`: sweep, cores).

    *busy* is the time inside cells; the time of Spark and of writing files counts as idle.
    *tail_s* is how long the first core without work waited for the last cell.
    """
    from pyspark.sql import functions as F

    seconds = F.col("ended").cast("double") - F.col("started").cast("double")
    workers = timings.groupBy("sweep", "executor", "worker").agg(
        F.count("*").alias("cells"),
        F.sum(seconds).alias("busy_s"),
        F.min("started").alias("first"),
        F.max("ended").alias("last"),
    )
    sweeps = workers.groupBy("sweep").agg(
        F.sum("cells").alias("cells"),
        F.sum("busy_s").alias("busy_s"),
        (F.max("last").cast("double") - F.min("first").cast("double")).alias("span_s"),
        (F.max("last").cast("double") - F.min("last").cast("double")).alias("tail_s"),
    )
    room = F.col("cores") * F.col("span_s")
    idle = F.when(room > 0, F.greatest(F.lit(0.0), 1 - F.col("busy_s") / room))
    columns = ("sweep", "cores", "cells", "busy_s", "span_s", "tail_s")
    return sweeps.join(cores, "sweep").select(*columns, idle.alias("idle_share"))


# -- all of it -------------------------------------------------------------------------------------


def aggregates(tables: Mapping[str, DataFrame], cores: DataFrame) -> dict[str, DataFrame]:
    """The tables that a report reads, made from those of finished cells."""
    return {
        "points": points(tables["runs"]),
        "distributions": distributions(tables["histograms"], tables["timings"]),
        "busyness": idleness(tables["timings"], cores).orderBy("sweep"),
    }
