"""Good rows become tables: equal pairs are merged, posts are numbered and made distinct.

Small steps from table to table; `ingest` puts them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.spark.universe.names import number_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOLD_TWICE = "post told twice, and differently"


def merged_pairs(pairs: DataFrame) -> DataFrame:
    """Each pair of user and topic once, and how often it was there (`times`)."""
    from pyspark.sql import functions as F

    return pairs.groupBy("user", "topic").agg(F.count("*").alias("times"))


def numbered_lines(frame: DataFrame, offsets: DataFrame, column: str) -> DataFrame:
    """Add the number of each row's line in the trace, from 0; `offsets`: piece, offset."""
    from pyspark.sql import functions as F

    joined = frame.join(F.broadcast(offsets), "piece")
    number = (F.col("offset") + F.col("line")).alias(column)
    return joined.select(*(name for name in frame.columns if name != column), number)


def typed_publications(rows: DataFrame) -> DataFrame:
    """Rows as the reader gives them become publications, with the number and piece of their row.

    Fields that the trace lacks are null; topics that a post names twice count once.  Without ids of
    its own, a post has the number of its row.
    """
    from pyspark.sql import functions as F

    def given(name: str, type_: str) -> Column:
        return F.col(name) if name in rows.columns else F.lit(None).cast(type_).alias(name)

    return rows.select(
        "row",
        "piece",
        F.col("post") if "post" in rows.columns else F.col("row").alias("post"),
        given("time", "timestamp"),
        given("user", "bigint"),
        F.array_distinct("topic").alias("topics"),
        given("reply_to", "array<bigint>"),
    )


def ranked_posts(posts: DataFrame) -> DataFrame:
    """Merge equal posts: `times` is their number, `row` and `piece` are of the first.

    Different posts with the same id get a `rank` of 1, 2... in the order of rows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    said = [name for name in posts.columns if name not in ("row", "piece")]
    first = F.min(F.struct("row", "piece")).alias("first")
    same = posts.groupBy(*said).agg(first, F.count("*").alias("times"))
    order = Window.partitionBy("post").orderBy("first")
    ranked = same.withColumn("rank", F.row_number().over(order))
    return ranked.select(*said, "first.row", "first.piece", "times", "rank")


def conflicting_posts(ranked: DataFrame, files: DataFrame) -> DataFrame:
    """Posts whose id an earlier row has, once per row that tells them, for the quarantine."""
    from pyspark.sql import functions as F

    said = F.to_json(F.struct("post", "time", "user", "topics", "reply_to")).alias("row")
    late = ranked.where("rank > 1").join(F.broadcast(files), "piece")
    copies = late.withColumn("copy", F.explode(F.sequence(F.lit(1).cast("bigint"), "times")))
    return copies.select("file", said, F.lit(TOLD_TWICE).alias("reason"))


def post_dictionary(rows: DataFrame, lines: int) -> DataFrame:
    """Numbers for posts that have names (`schemas.NAMES`).

    A post has the number of the first row that tells it, so posts stay in the order of the trace.
    Names that only replies mention follow, from `lines` on, the number of lines of the trace.
    """
    from pyspark.sql import functions as F

    told = rows.groupBy(F.col("post").alias("name")).agg(F.min("row").alias("id"))
    told = told.select("id", "name")
    if "reply_to" not in rows.columns:
        return told
    mentioned = rows.select(F.explode("reply_to").alias("name"))
    others = number_names(mentioned.join(told, "name", "left_anti"))
    return told.union(others.select((F.col("id") + lines).alias("id"), "name"))


def unknown_replies(publications: DataFrame) -> DataFrame:
    """Reply links to posts that the table does not have: post, reply_to."""
    from pyspark.sql import functions as F

    links = publications.select("post", F.explode("reply_to").alias("reply_to"))
    known = publications.select(F.col("post").alias("reply_to"))
    return links.join(known, "reply_to", "left_anti").select("post", "reply_to")


def subscriptions_of(publications: DataFrame) -> DataFrame:
    """Pairs, with repetitions: users subscribe to the topics that they publish to."""
    from pyspark.sql import functions as F

    known = publications.where("user IS NOT NULL")
    return known.select("user", F.explode("topics").alias("topic"))
