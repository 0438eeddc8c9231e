"""A description of a universe: sizes, distributions, power laws, correlation ([N] 3.2).

Spark counts; only histograms (one row for each distinct size) and the correlation of chosen topics
come to the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cubecast.overlay.universes.powerlaw import RESAMPLES, PowerLaw, bounded_exponent, fit
from cubecast.overlay.universes.streams import Longs
from cubecast.spark.universe.correlation import (
    MILD,
    STRONG,
    TOPICS,
    Correlation,
    correlation,
    largest_topics,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Side = Literal["topic", "user"]


@dataclass(frozen=True)
class Distribution:
    """How many topics (or nodes) have how many subscribers (or topics)."""

    sizes: Longs
    """The distinct sizes, in rising order."""
    counts: Longs
    """How many have each size."""
    law: PowerLaw | None
    """The power law of the tail; None where there are too few values."""
    bounded_exponent: float
    """The likeliest exponent of a law that begins and ends with the data; NaN if it has none."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return float((self.sizes * self.counts).sum() / max(1, self.total))

    def quantile(self, share: float) -> int:
        """The smallest size that this share of all do not exceed."""
        sums = np.cumsum(self.counts)
        return int(self.sizes[np.searchsorted(sums, share * self.total)]) if self.total else 0

    def facts(self) -> dict[str, Any]:
        """The figures for JSON."""
        facts: dict[str, Any] = {
            "mean": self.mean,
            "median": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "most": self.quantile(1.0),
            "bounded_exponent": None if isnan(self.bounded_exponent) else self.bounded_exponent,
            "power_law": None,
        }
        if self.law is not None:
            told = ("exponent", "error", "least", "tail", "distance", "goodness", "resamples")
            facts["power_law"] = {name: getattr(self.law, name) for name in told}
        return facts


@dataclass(frozen=True)
class Description:
    """A universe in numbers."""

    topics: int
    nodes: int
    pairs: int
    per_topic: Distribution
    """Subscribers of topics."""
    per_node: Distribution
    """Topics of nodes."""
    correlation: Correlation

    def facts(self) -> dict[str, Any]:
        """The figures for JSON."""
        return {
            "topics": self.topics,
            "nodes": self.nodes,
            "pairs": self.pairs,
            "subscribers_per_topic": self.per_topic.facts(),
            "topics_per_node": self.per_node.facts(),
            "correlation": {
                "topics": len(self.correlation.topics),
                "mean": self.correlation.mean,
                f"above_{MILD}": self.correlation.share_above(MILD),
                f"above_{STRONG}": self.correlation.share_above(STRONG),
            },
        }


def describe(
    subscriptions: DataFrame,
    resamples: int = RESAMPLES,
    topics: int = TOPICS,
    seed: int = 0,
    tell: Callable[[str], object] = lambda step: None,
) -> Description:
    """Sizes, distributions with their power laws, and the correlation of the largest topics."""
    tell("counting subscribers of topics")
    per_topic = distribution(subscriptions, "topic", resamples, seed)
    tell("counting topics of nodes")
    per_node = distribution(subscriptions, "user", resamples, seed)
    if not per_topic.total:
        raise ValueError("the universe has no subscriptions")
    tell("correlation of topics")
    chosen = largest_topics(subscriptions, topics)
    return Description(
        per_topic.total,
        per_node.total,
        int((per_topic.sizes * per_topic.counts).sum()),
        per_topic,
        per_node,
        correlation(subscriptions, chosen, per_node.total),
    )


def distribution(
    subscriptions: DataFrame, side: Side, resamples: int = RESAMPLES, seed: int = 0
) -> Distribution:
    """The distribution of one side, with its power law."""
    table: Any = histogram(subscriptions, side).toArrow()
    sizes = np.asarray(table.column("size"), dtype=np.int64)
    counts = np.asarray(table.column("count"), dtype=np.int64)
    order = np.argsort(sizes)
    sizes, counts = sizes[order], counts[order]
    law = fit(sizes, counts, resamples, seed)
    return Distribution(sizes, counts, law, bounded_exponent(sizes, counts))


def histogram(subscriptions: DataFrame, side: Side) -> DataFrame:
    """(size, count): so many topics have so many subscribers, or users so many topics."""
    from pyspark.sql import functions as F

    sizes = subscriptions.groupBy(side).agg(F.count("*").alias("size"))
    return sizes.groupBy("size").agg(F.count("*").alias("count")).orderBy("size")


def log_binned(histogram: DataFrame) -> DataFrame:
    """(least, most, count, density): sizes from one power of two to below the next.

    `density` is the count for each size in the bin; it follows the exponent of a power law, where
    counts of single large sizes are all 0 or 1.
    """
    from pyspark.sql import functions as F

    # Binary digits, as a logarithm may fall just below a whole number.
    exponent = F.length(F.bin(F.col("size"))) - 1
    least = F.pow(F.lit(2.0), F.col("exponent")).cast("long")
    return (
        histogram.groupBy(exponent.alias("exponent"))
        .agg(F.sum("count").alias("count"))
        .select(
            least.alias("least"),
            (least * 2 - 1).alias("most"),
            "count",
            (F.col("count") / least).alias("density"),
        )
        .orderBy("least")
    )
