"""Rows that could not be read, and the account of all rows.

The account is checked, not assumed: rows read are counted where files are read, rows kept and
quarantined are counted in the files written, duplicates by Spark while it merges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.rows import FAILED, LINES, ROWS, SKIPPED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_REASONS = 1000
"""The most reasons that are counted one by one; only conditions make many."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The account of the rows of a trace: read = kept + duplicates + quarantined + skipped."""

    read: int
    kept: int
    duplicates: int
    quarantined: int
    skipped: int
    quarantined_by: Mapping[str, int] = field(default_factory=dict)
    skipped_by: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = self.kept + self.duplicates + self.quarantined + self.skipped
        if self.read != parts or self.quarantined != sum(self.quarantined_by.values()):
            raise UniverseError(f"rows are unaccounted for, nothing is written: {self.told()}")

    @property
    def bad_share(self) -> float:
        """The share of bad rows, without headers, comments and rows not asked for."""
        rows = self.read - self.skipped
        return self.quarantined / rows if rows else 0.0

    def told(self) -> str:
        """ "5 rows read = 3 kept + 1 duplicate + 1 quarantined + 0 skipped"."""
        return (
            f"{self.read:,} rows read = {self.kept:,} kept + {self.duplicates:,} duplicates"
            f" + {self.quarantined:,} quarantined + {self.skipped:,} skipped"
        )

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tallies:
    """The counts of the tasks while they read."""

    rows: int
    skipped: Mapping[str, int]
    failed: Sequence[str]
    rows_by_piece: Mapping[int, int]
    lines_by_piece: Mapping[int, int]


def good_rows(staged: DataFrame) -> DataFrame:
    """The rows with values."""
    return staged.where("tally IS NULL AND reason IS NULL").drop("tally", "count", "reason", "row")


def quarantine(staged: DataFrame, files: DataFrame) -> DataFrame:
    """The bad rows with their files (`files`: piece, file), as `schemas.QUARANTINE`."""
    from pyspark.sql import functions as F

    bad = staged.where("reason IS NOT NULL")
    return bad.join(F.broadcast(files), "piece").select("file", "row", "reason")


def tallies(staged: DataFrame) -> Tallies:
    """The counts of all tasks together."""
    from pyspark.sql import functions as F

    told = staged.where("tally IS NOT NULL").groupBy("piece", "tally")
    rows = told.agg(F.sum("count").alias("n")).collect()
    skipped: dict[str, int] = {}
    by_piece: dict[str, dict[int, int]] = {ROWS: {}, LINES: {}}
    for one in rows:
        if one.tally in by_piece:
            by_piece[one.tally][one.piece] = one.n
        elif one.tally.startswith(SKIPPED):
            why = one.tally.removeprefix(SKIPPED)
            skipped[why] = skipped.get(why, 0) + one.n
    failed = sorted(r.tally.removeprefix(FAILED) for r in rows if r.tally.startswith(FAILED))
    return Tallies(
        sum(by_piece[ROWS].values()), dict(sorted(skipped.items())), failed,
        by_piece[ROWS], by_piece[LINES],
    )  # fmt: skip


def counts_by_reason(table: DataFrame) -> dict[str, int]:
    """Rows of a quarantine by reason, the most frequent first."""
    from pyspark.sql import functions as F

    found = table.groupBy("reason").agg(F.count("*").alias("n"))
    rows = found.orderBy(F.desc("n"), "reason").limit(MOST_REASONS).collect()
    return {row.reason: row.n for row in rows}
