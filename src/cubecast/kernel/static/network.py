"""Arrival times of messages: the models of `cubecast.sim.networks`.

Copies of one message to several peers are sent by `departure`, `send_copy` for each, and
`departed`: in the `queue` network the k-th copy leaves k u.t. after the first.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.calendar import push
from cubecast.kernel.static.chance import random

from cubecast.kernel.static.layout import (  # isort: skip
    EXACT_BITS, FREE, HIST_AT, HIST_BINS, HOP, LONGEST, LOW_DELAY, NETWORK, NODE_COLUMNS,
    NODE_SHIFT, NODES_AT, NOW, PAYLOAD_SHIFT, QUEUE, QUEUE_ACKS, QUEUE_LENGTH, QUEUED,
    QUEUED_SUM, SPREAD, StaticState,
)  # fmt: skip


@inlined
def event_of(kind: int, node: int, payload: int) -> int:
    return kind | node << NODE_SHIFT | payload << PAYLOAD_SHIFT


@inlined
def node_at(m: Longs, node: int) -> int:
    """Where the columns of a node are."""
    return int(m[NODES_AT] + node * NODE_COLUMNS)


@inlined
def tally(m: Longs, histogram: int, value: int) -> None:
    """Count a value: exactly below 2^13, above that to one part in 2^12."""
    octave = 0
    while value >= 1 << EXACT_BITS:
        value >>= 1
        octave += 1
    m[m[HIST_AT] + histogram * HIST_BINS + value + (octave << (EXACT_BITS - 1))] += 1


@inlined
def departure(m: Longs, source: int) -> int:
    """When the next copy can leave."""
    now = m[NOW]
    if m[NETWORK] == QUEUE:
        free = m[node_at(m, source) + FREE]
        if free > now:
            return int(free)
    return int(now)


@inlined
def send_copy(w: StaticState, leaves: int, copy: int, event: int) -> None:
    m = w.m
    if m[NETWORK] == QUEUE:
        push(w, leaves + m[HOP] + copy, event)
    else:
        push(w, m[NOW] + m[LOW_DELAY] + int(random(m) * m[SPREAD]), event)


@inlined
def departed(m: Longs, source: int, leaves: int, copies: int) -> None:
    """Note that so many copies were queued; the queue's size is sampled after each."""
    if m[NETWORK] != QUEUE:
        return
    ahead = leaves - m[NOW]
    node = node_at(m, source)
    m[node + FREE] = leaves + copies
    m[node + QUEUED] += copies
    m[node + QUEUED_SUM] += copies * ahead + ((copies * (copies + 1)) >> 1)
    if ahead + copies > m[LONGEST]:
        m[LONGEST] = ahead + copies
    for k in range(copies):
        tally(m, QUEUE_LENGTH, ahead + k + 1)


@apart
def control(w: StaticState, source: int, event: int) -> None:
    """Send an ACK or a delegation past the sending queue, unless `QUEUE_ACKS`."""
    m = w.m
    if m[NETWORK] != QUEUE or not m[QUEUE_ACKS]:
        send_copy(w, m[NOW], 0, event)
        return
    leaves = departure(m, source)
    send_copy(w, leaves, 0, event)
    departed(m, source, leaves, 1)
