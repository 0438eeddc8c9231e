"""One trace from the traces of several nodes, each written by its node alone.

The order of the result, whatever the clocks say:

1. Every node's own records stay in their own order.
2. No record about a message (``SEEN``) precedes its ``publish``, if any trace has that.
   A node's clock may stand still while it handles a batch, so times alone would not do.
3. Otherwise records are ordered by time, and at equal times by the order of the traces.

The checkers take happens-before from each node's own order, so no verdict depends on the clocks.  A
delivery of a message that no node published stays in, at the end, for the checkers to find.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from cubecast.trace.records import MessageId, Record

__all__ = ["merge"]

_Key = tuple[str, MessageId | None]
SEEN = ("deliver", "receive", "gap", "discard", "taken", "stable")
"""Kinds that follow the publication of their message."""


def merge(traces: Iterable[Iterable[Record]]) -> Iterator[Record]:
    """The records of all traces in one order; it keeps one record per trace, and message ids."""
    rest = [iter(trace) for trace in traces]
    heads = [
        (first.time, index, first) for index, trace in enumerate(rest) for first in _one(trace)
    ]
    heapify(heads)
    published: set[_Key] = set()
    held: dict[_Key, list[tuple[int, int, Record]]] = {}
    while heads or held:
        if not heads:  # only records are left of messages without a ``publish``
            for key, waiting in held.items():
                published.add(key)
                heads += waiting
            heapify(heads)
            held = {}
        _, index, record = heappop(heads)
        limit = heads[0][:2] if heads else None
        while True:  # a run of one node's records that all come before those of other nodes
            key = (record.topic, record.id)
            if record.id is not None and record.kind in SEEN and key not in published:
                held.setdefault(key, []).append((record.time, index, record))
                break
            yield record
            if record.kind == "publish":
                published.add(key)
                for waiting_head in held.pop(key, ()):
                    heappush(heads, waiting_head)
                limit = heads[0][:2] if heads else None
            following = next(rest[index], None)
            if following is None:
                break
            record = following
            if limit is not None and (record.time, index) > limit:
                heappush(heads, (record.time, index, record))
                break


def _one(trace: Iterator[Record]) -> Iterator[Record]:
    first = next(trace, None)
    if first is not None:
        yield first
