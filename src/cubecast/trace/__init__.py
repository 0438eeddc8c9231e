"""Traces: the records of a run, in one schema, and checkers that judge a run by them."""

from cubecast.trace.checkers import (
    ALL,
    Inversions,
    Property,
    Report,
    Violation,
    answers_before_questions,
    check,
)
from cubecast.trace.files import (
    StoredRecords,
    TraceError,
    read,
    read_jsonl,
    write,
    write_jsonl,
)
from cubecast.trace.merge import merge
from cubecast.trace.parquet import read_parquet, write_parquet
from cubecast.trace.records import KINDS, SCHEMA, Header, Kind, MessageId, Record

__all__ = [
    "ALL",
    "KINDS",
    "SCHEMA",
    "Header",
    "Inversions",
    "Kind",
    "MessageId",
    "Property",
    "Record",
    "Report",
    "StoredRecords",
    "TraceError",
    "Violation",
    "answers_before_questions",
    "check",
    "merge",
    "read",
    "read_jsonl",
    "read_parquet",
    "write",
    "write_jsonl",
    "write_parquet",
]
