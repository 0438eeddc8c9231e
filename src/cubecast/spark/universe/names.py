"""Ids that are text become numbers: the place of the name among all names, sorted by their bytes.

So the numbers depend on the set of names alone, not on the order of rows, files or tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def number_names(names: DataFrame) -> DataFrame:
    """Column `name` of any table becomes a dictionary (`schemas.NAMES`), from 0."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    distinct = names.select("name").where("name IS NOT NULL").distinct()
    # One task numbers them all: names are far fewer than rows.
    number = F.row_number().over(Window.orderBy("name")) - 1
    return distinct.select(number.cast("long").alias("id"), "name")


def replace_names(frame: DataFrame, column: str, dictionary: DataFrame) -> DataFrame:
    """A column of names becomes one of ids; every name must be in the dictionary."""
    from pyspark.sql import functions as F

    ids = dictionary.select(F.col("id").alias(f"{column}_id"), F.col("name").alias(column))
    others = [name for name in frame.columns if name != column]
    joined = frame.join(ids, column, "left")
    return joined.select(*others, F.col(f"{column}_id").alias(column))


def replace_names_in_lists(
    frame: DataFrame, key: str, column: str, dictionary: DataFrame
) -> DataFrame:
    """The same for a column of lists, whose order stays; `key` tells the rows apart."""
    from pyspark.sql import functions as F

    items = frame.select(key, F.posexplode(column).alias("place", "item"))
    numbered = replace_names(items, "item", dictionary).groupBy(key)
    lists = numbered.agg(F.sort_array(F.collect_list(F.struct("place", "item"))).alias("pairs"))
    ids = lists.select(key, F.col("pairs.item").alias(f"{column}_ids"))
    others = [name for name in frame.columns if name != column]
    # A list without items stays as it is: empty or null.
    none = F.when(F.col(column).isNotNull(), F.array().cast("array<bigint>"))
    joined = frame.join(ids, key, "left")
    return joined.select(*others, F.coalesce(f"{column}_ids", none).alias(column))
