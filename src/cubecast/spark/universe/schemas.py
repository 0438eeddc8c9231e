"""The tables of a universe, as Spark and Arrow know them.

`subscriptions` holds each pair once.  Ids are not negative; where a trace has names, its ingest
numbers them and keeps the names in `users` and `topics`.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _field(name: str, kind: object, nullable: bool = False) -> StructField:
    return StructField(name, kind, nullable)  # type: ignore[arg-type]


SUBSCRIPTIONS = StructType([_field("user", LongType()), _field("topic", LongType())])
"""Subscriptions: user and topic; no pair twice."""

PUBLICATIONS = StructType(
    [
        _field("post", LongType()),
        _field("time", TimestampType(), nullable=True),
        _field("user", LongType(), nullable=True),
        _field("topics", ArrayType(LongType(), False)),
        _field("reply_to", ArrayType(LongType(), False), nullable=True),
    ]
)
"""Publications.  `time` or `user` is null where the trace has none; `reply_to` names posts, is
empty where a post starts a conversation and null where the trace does not say."""

NAMES = StructType([_field("id", LongType()), _field("name", StringType())])
"""The names of users or of topics, where the trace has names."""

QUARANTINE = StructType(
    [
        _field("file", StringType()),
        _field("row", StringType(), nullable=True),
        _field("reason", StringType()),
    ]
)
"""Rows that could not be read: their places, texts and problems."""

VIEWS = StructType(
    [
        _field("topic", LongType()),
        _field("user", LongType()),
        _field("round", IntegerType()),
        _field("view", ArrayType(LongType(), False)),
    ]
)
"""The view of a subscriber in the overlay of a topic after a round (0: before StaN)."""
