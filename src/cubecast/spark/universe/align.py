"""StaN on a whole universe: its effect on links and overlays ([N] 3.4 and 3.5), in one job.

Sizes come from the views of all subscriptions; shapes from overlays that are played again where
they are measured, which is cheaper than moving views.  Differences of an overlay before and after
are paired: the effect is their mean in standard deviations of the values over overlays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.overlay.rounds import RoundConfig
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.overlays import optimum, overlay_table, overlays
from cubecast.spark.universe.physical import (
    improvement,
    improvement_by_initial_size,
    mean_sizes,
    physical_views,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MUCH = 0.4
"""[N] 3.4: "the majority of Wikipedia's nodes have an improvement over 40%"."""
SHAPES = ("clustering", "diameter", "distance", "in_degree_sd")
"""Properties of an overlay that StaN should leave as they are ([N] 3.5)."""
QUANTILE = 1.96
"""Half of a 95 % interval, in standard errors: overlays are many."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Mean view sizes of users that have links, after a round."""

    round: int
    users: int
    logical: float
    physical: float


@dataclass(frozen=True, slots=True)
class Improvement:
    """Of each user's physical view; shares of users."""

    mean: float
    much_share: float
    """Users that improve by more than 40 %."""
    better_share: float
    worse_share: float
    worse_initial_max: int
    """The largest initial view that grew."""


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """A property of overlays before and after, one value per overlay."""

    before: float
    after: float
    interval: float
    """Half of the 95 % interval of the mean difference."""
    effect: float
    """The mean difference in standard deviations of the values."""


@dataclass(frozen=True, slots=True)
class Overlays:
    """All overlays that have links; complete ones (k = n - 1) cannot change, and are counted."""

    overlays: int
    complete: int
    parts_most: int
    """The most weak components of an overlay: StaN claims one."""
    unknown_before: int
    unknown_after: int
    """Overlays with a node that no view names."""
    unknown_nodes: int
    outside_nodes: int
    """Nodes outside the largest strong component, after."""
    changes: Mapping[str, BeforeAfter]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The effect of StaN on a universe."""

    config: RoundConfig
    run: int
    users: int
    topics: int
    pairs: int
    sizes: tuple[Sizes, ...]
    improvement: Improvement
    overlays: Overlays | None
    optimum: float | None
    """Mean physical view of users that know all subscribers, over the scanned users ..."""
    optimum_users: int
    optimum_final: float | None
    """... and the mean after the last round of the same users."""

    def facts(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return asdict(self)


def align(
    subscriptions: DataFrame,
    config: RoundConfig,
    *,
    rounds: Sequence[int] = (0, 8),
    run: int = 0,
    shapes: bool = True,
    best: bool = True,
    out: Path | None = None,
    tell: Callable[[str], object] = lambda step: None,
) -> Alignment:
    """Play StaN on all topics and measure; `out` gets the tables `sizes` and `overlays`.

    `rounds` begins with 0 and ends with the round that counts as after.
    """
    kept = sorted({0, *rounds})
    if len(kept) < 2:
        raise UniverseError("at least one round after the start is needed")
    tell("counting")
    users, topics, pairs = _counted(subscriptions)
    if not pairs:
        raise UniverseError("the universe has no subscriptions")
    tell(f"playing {kept[-1]} rounds of {topics:,} overlays")
    sizes = physical_views(overlays(subscriptions, config, kept, run=run)).cache()
    try:
        if out is not None:
            sizes.write.parquet(str(out / "sizes"))
        means = tuple(
            Sizes(row["round"], row["users"], row["logical"], row["physical"])
            for row in mean_sizes(sizes).collect()
        )
        improved = improvement(sizes, 0, kept[-1])
        gained = _improvement(improved)
        if out is not None:
            improvement_by_initial_size(improved).coalesce(1).write.parquet(str(out / "by_initial"))
        found = _best(subscriptions, config, sizes, kept[-1], run, tell) if best else None
    finally:
        sizes.unpersist()
    shaped = None
    if shapes:
        tell("measuring overlays")
        table = overlay_table(subscriptions, config, (0, kept[-1]), run=run).cache()
        try:
            if out is not None:
                table.write.parquet(str(out / "overlays"))
            shaped = _overlays(table, kept[-1])
        finally:
            table.unpersist()
    mean, scanned, final = found or (None, 0, None)
    return Alignment(config, run, users, topics, pairs, means, gained, shaped, mean, scanned, final)


def _counted(subscriptions: DataFrame) -> tuple[int, int, int]:
    from pyspark.sql import functions as F

    row = subscriptions.agg(
        F.countDistinct("user").alias("users"),
        F.countDistinct("topic").alias("topics"),
        F.count("*").alias("pairs"),
    ).first()
    assert row is not None
    return int(row["users"]), int(row["topics"]), int(row["pairs"])


def _improvement(improved: DataFrame) -> Improvement:
    from pyspark.sql import functions as F

    gain = F.col("improvement")
    row = improved.agg(
        F.avg(gain).alias("mean"),
        F.avg((gain > MUCH).cast("double")).alias("much"),
        F.avg((gain > 0).cast("double")).alias("better"),
        F.avg((gain < 0).cast("double")).alias("worse"),
        F.max(F.when(gain < 0, F.col("initial"))).alias("largest"),
    ).first()
    assert row is not None
    return Improvement(
        row["mean"] or 0.0, row["much"] or 0.0, row["better"] or 0.0, row["worse"] or 0.0,
        int(row["largest"] or 0),
    )  # fmt: skip


def _best(
    subscriptions: DataFrame,
    config: RoundConfig,
    sizes: DataFrame,
    last: int,
    run: int,
    tell: Callable[[str], object],
) -> tuple[float, int, float]:
    """The mean optimum, its number of users, and the mean after the last round of the same."""
    from pyspark.sql import functions as F

    tell("looking for the optimum")
    ideal = physical_views(optimum(subscriptions, config, run=run)).select(
        "user", F.col("physical").alias("ideal")
    )
    reached = sizes.where((F.col("round") == last) & (F.col("logical") > 0))
    row = (
        ideal.join(reached, "user")
        .agg(
            F.avg("ideal").alias("ideal"), F.count("*").alias("n"), F.avg("physical").alias("real")
        )
        .first()
    )
    assert row is not None
    return float(row["ideal"] or 0.0), int(row["n"]), float(row["real"] or 0.0)


def _overlays(table: DataFrame, last: int) -> Overlays:
    from pyspark.sql import functions as F

    before, after = (_renamed(table, round_, name) for round_, name in ((0, "0"), (last, "1")))
    paired = before.join(after, "topic").withColumn(
        "complete", (F.col("view_size_0") >= F.col("nodes_0") - 1).cast("int")
    )
    row = paired.agg(
        F.count("*").alias("overlays"),
        F.sum("complete").alias("complete"),
        F.max(F.greatest("weak_components_0", "weak_components_1")).alias("parts"),
        F.sum((F.col("unknown_0") > 0).cast("int")).alias("unknown_0"),
        F.sum((F.col("unknown_1") > 0).cast("int")).alias("unknown_1"),
        F.sum("unknown_1").alias("nodes"),
        F.sum("outside_1").alias("outside"),
    ).first()
    assert row is not None
    return Overlays(
        int(row["overlays"]), int(row["complete"] or 0), int(row["parts"] or 0),
        int(row["unknown_0"] or 0), int(row["unknown_1"] or 0), int(row["nodes"] or 0),
        int(row["outside"] or 0), _changes(paired.where("complete = 0")),
    )  # fmt: skip


def _renamed(table: DataFrame, round_: int, suffix: str) -> DataFrame:
    """The rows of a round; all columns but the topic get a suffix."""
    from pyspark.sql import functions as F

    rows = table.where(F.col("round") == round_)
    others = [name for name in table.columns if name not in ("topic", "round")]
    return rows.select("topic", *(F.col(name).alias(f"{name}_{suffix}") for name in others))


def _changes(paired: DataFrame) -> dict[str, BeforeAfter]:
    from pyspark.sql import functions as F

    columns = []
    for name in SHAPES:
        first, second = F.col(f"{name}_0").cast("double"), F.col(f"{name}_1").cast("double")
        columns += [
            F.avg(first).alias(f"{name}_before"),
            F.avg(second).alias(f"{name}_after"),
            F.stddev_samp(second - first).alias(f"{name}_sd"),
            F.sqrt((F.var_samp(first) + F.var_samp(second)) / 2).alias(f"{name}_spread"),
        ]
    row = paired.agg(F.count("*").alias("n"), *columns).first()
    assert row is not None
    return {name: _change(row, name) for name in SHAPES} if row["n"] else {}


def _change(row: Any, name: str) -> BeforeAfter:
    before, after = row[f"{name}_before"], row[f"{name}_after"]
    spread, deviation = row[f"{name}_spread"] or 0.0, row[f"{name}_sd"] or 0.0
    effect = (after - before) / spread if spread else 0.0
    return BeforeAfter(before, after, QUANTILE * deviation / row["n"] ** 0.5, effect)


def at_least(subscriptions: DataFrame, smallest: int) -> DataFrame:
    """Subscriptions to topics with at least so many subscribers ([N] 3.1 drops those below 30)."""
    from pyspark.sql import functions as F

    large = subscriptions.groupBy("topic").agg(F.count("*").alias("n")).where(f"n >= {smallest:d}")
    return subscriptions.join(large.select("topic"), "topic", "left_semi").select("user", "topic")
