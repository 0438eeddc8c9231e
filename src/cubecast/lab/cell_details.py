"""Details that a cell can keep beside its numbers: every message, or the whole trace.

Both come from the trace of a run, which both engines write alike, sends and receives included.  So
every measurement on static membership can be examined message by message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubecast.trace import Record
from cubecast.trace.parquet import id_to_text
from cubecast.trace.records import MessageId

if TYPE_CHECKING:
    import pyarrow as pa

KEEPABLE = ("messages", "traces")


@dataclass(slots=True)
class _Message:
    topic: str
    source: int
    published: int
    latencies: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)


def message_rows(records: Iterable[Record]) -> pa.RecordBatch:
    """One row per publication: publisher, time, and how long the others waited for it.

    *Latency* is from publishing to delivery, *delay* from a node's first reception to its delivery;
    the publisher itself is left out.
    """
    import pyarrow as pa

    messages = _messages(records)
    rows = [
        {
            "id": id_to_text(ident),
            "topic": one.topic,
            "source": one.source,
            "published": one.published,
            "deliveries": len(one.latencies),
            "latency_mean": _mean(one.latencies),
            "latency_max": max(one.latencies, default=0),
            "delay_mean": _mean(one.delays),
            "delay_max": max(one.delays, default=0),
        }
        for ident, one in messages.items()
    ]
    schema = pa.schema(
        [
            ("id", pa.string()), ("topic", pa.string()), ("source", pa.int64()),
            ("published", pa.int64()), ("deliveries", pa.int64()), ("latency_mean", pa.float64()),
            ("latency_max", pa.int64()), ("delay_mean", pa.float64()), ("delay_max", pa.int64()),
        ]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _messages(records: Iterable[Record]) -> dict[MessageId, _Message]:
    found: dict[MessageId, _Message] = {}
    arrived: dict[tuple[int, MessageId], int] = {}
    for record in records:
        if record.id is None:
            continue
        if record.kind == "publish":
            found[record.id] = _Message(record.topic, record.node, record.time)
        elif record.kind == "receive":
            arrived.setdefault((record.node, record.id), record.time)
        elif record.kind == "deliver":
            message = found[record.id]
            if record.node != message.source:
                message.latencies.append(record.time - message.published)
                came = arrived.pop((record.node, record.id), record.time)
                message.delays.append(record.time - came)
    return found


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else 0.0
