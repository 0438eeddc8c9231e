"""One trace out of the traces of several nodes, in an order in which causes come first."""

from collections.abc import Iterable, Sequence

from cubecast.trace.records import MessageId, Record

__all__ = ["merge"]


def merge(traces: Iterable[Sequence[Record]]) -> list[Record]:
    """Merge traces that are each in their own order; what was published comes before it is seen.

    Among the records that may come next, the earliest by its clock does, so clocks that disagree
    change nothing that the checks rely on.  If somebody saw what nobody published, no order is
    right: it is put where its clock says, and the check for ``no-creation`` will tell.
    """
    queues = [list(reversed(trace)) for trace in traces]
    published: set[tuple[str, MessageId | None]] = set()
    merged: list[Record] = []
    while queues := [queue for queue in queues if queue]:
        ready = [queue for queue in queues if _may_come(queue[-1], published)]
        record = min(ready or queues, key=lambda queue: queue[-1].time).pop()
        if record.kind == "publish":
            published.add((record.topic, record.id))
        merged.append(record)
    return merged


def _may_come(record: Record, published: set[tuple[str, MessageId | None]]) -> bool:
    sees = record.kind in ("deliver", "receive") and record.id is not None
    return not sees or (record.topic, record.id) in published
