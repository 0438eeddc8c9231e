"""What the tables say, as small named steps DataFrame -> DataFrame.

A *point* is a cell of a grid with all its seeds.  Sums run over the seeds in their order, so that
the result has the same bits however Spark had cut the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CONFIDENCE = 0.95
POINT = ("experiment", "cell", "settings")
TABULATED = 100
"""Up to so many degrees of freedom the critical values are exact; beyond, by expansion."""
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


# -- Student's t -----------------------------------------------------------------------------------


@cache
def critical_value(freedom: int) -> float:
    """The t that a Student variable keeps within, on both sides, with 95 % probability."""
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| <= t), the finite sums for whole degrees of freedom (Abramowitz & Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    term = cosine if odd else 1.0
    total = term
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    total *= math.sin(angle)
    return 2 * (angle + total) / math.pi if odd else total


def critical_values(n: Column) -> Column:
    """`critical_value` of n - 1 for a column of sample sizes; null below two."""
    from pyspark.sql import functions as F

    freedom = n.cast("int") - 1
    table = F.array(*[F.lit(critical_value(k)) for k in range(1, TABULATED + 1)])
    z = 1.959963984540054
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    inverse = F.lit(1.0) / freedom
    expansion = F.lit(z)
    for power, term in enumerate(terms, 1):
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
    return summarised(runs.groupBy(*POINT, "metric"), "value")


def summarised(groups: object, column: str) -> DataFrame:
    """n, mean, sd, ci, least and most of a column, per group; rows need a `seed`."""
    from pyspark.sql import functions as F
    from pyspark.sql.group import GroupedData

    assert isinstance(groups, GroupedData)
    pairs = F.sort_array(F.collect_list(F.struct("seed", F.col(column).alias("v"))))
    values = groups.agg(F.transform(pairs, lambda pair: pair["v"]).alias("values"))
    sized = values.withColumn("n", F.size("values"))
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


# -- histograms ------------------------------------------------------------------------------------


def pooled(histograms: DataFrame) -> DataFrame:
    """Per point and histogram: the buckets of all seeds together, with their share.

    Of a histogram whose counts sum to nothing each share is 0.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    summed = histograms.groupBy(*POINT, "name", "bucket").agg(F.sum("count").alias("count"))
    whole = Window.partitionBy(*POINT, "name")
    share = F.try_divide(F.col("count"), F.sum("count").over(whole))
    return summed.withColumn("share", F.coalesce(share, F.lit(0.0)))


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


# -- two results -----------------------------------------------------------------------------------


def differences(before: DataFrame, after: DataFrame) -> DataFrame:
    """Per point and metric: after minus before, with its 95 % interval.

    Points are matched by their settings and runs by their seed: with the same seed both saw the
    same workload, so that the differences of the pairs are what varies, and the interval is theirs.
    """
    from pyspark.sql import functions as F

    same = ("experiment", "settings", "metric", "seed")
    left = before.select(*same, "cell", F.col("value").alias("a"))
    right = after.select(*same, F.col("value").alias("b"))
    pairs = left.join(right, list(same)).withColumn("difference", F.col("b") - F.col("a"))
    keys = (*POINT, "metric")
    parts = [
        summarised(pairs.groupBy(*keys), "difference").select(
            *keys, "n", F.col("mean").alias("difference"), "ci"
        ),
        *(
            summarised(pairs.groupBy(*keys), name).select(*keys, F.col("mean").alias(name))
            for name in ("a", "b")
        ),
    ]
    joined = parts[0].join(parts[1], list(keys)).join(parts[2], list(keys))
    return joined.select(*keys, "n", "a", "b", "difference", "ci")


def runs_only_in(one: DataFrame, other: DataFrame) -> int:
    """How many runs (a point with a seed) of a table have no counterpart in the other."""
    same = ["experiment", "settings", "seed"]
    return one.select(*same).distinct().join(other.select(*same), same, "left_anti").count()


# -- timings ---------------------------------------------------------------------------------------


def idleness(timings: DataFrame, cores: DataFrame) -> DataFrame:
    """Per sweep: how busy its cores were (`cores`: sweep, cores).

    *busy* is the time inside cells; what Spark and the writing of files take counts as idle.
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
