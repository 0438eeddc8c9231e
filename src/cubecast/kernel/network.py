"""When what a node sends arrives: the models of `cubecast.sim.networks`.

Copies of one message to several peers are sent by `departure`, `send_copy` for each, and
`departed`: in the `queue` network the k-th copy leaves k u.t. after the first.
"""

from __future__ import annotations

from cubecast.kernel.calendar import push
from cubecast.kernel.chance import random
from cubecast.kernel.jit import inlined
from cubecast.kernel.layout import (
    EXACT_BITS,
    FREE,
    HOP,
    LONGEST,
    LOW_DELAY,
    NETWORK,
    NODE_SHIFT,
    NOW,
    PAYLOAD_SHIFT,
    QUEUE,
    QUEUE_ACKS,
    QUEUE_LENGTH,
    QUEUED,
    QUEUED_SUM,
    SPREAD,
    State,
)


@inlined
def event_of(kind: int, node: int, payload: int) -> int:
    return kind | node << NODE_SHIFT | payload << PAYLOAD_SHIFT


@inlined
def tally(w: State, histogram: int, value: int) -> None:
    """Count a value: exactly below 2^13, above that to one part in 2^12."""
    octave = 0
    while value >= 1 << EXACT_BITS:
        value >>= 1
        octave += 1
    w.hist[histogram, value + (octave << (EXACT_BITS - 1))] += 1


@inlined
def departure(w: State, source: int) -> int:
    """When the next copy can leave."""
    now: int = w.s[NOW]
    if w.s[NETWORK] == QUEUE and w.nodes[source, FREE] > now:
        return int(w.nodes[source, FREE])
    return now


@inlined
def send_copy(w: State, leaves: int, copy: int, event: int) -> None:
    if w.s[NETWORK] == QUEUE:
        push(w, leaves + w.s[HOP] + copy, event)
    else:
        push(w, w.s[NOW] + w.s[LOW_DELAY] + int(random(w) * w.s[SPREAD]), event)


@inlined
def departed(w: State, source: int, leaves: int, copies: int) -> None:
    """So many copies were queued; the queue's size is sampled after each."""
    if w.s[NETWORK] != QUEUE:
        return
    ahead = leaves - w.s[NOW]
    w.nodes[source, FREE] = leaves + copies
    w.nodes[source, QUEUED] += copies
    w.nodes[source, QUEUED_SUM] += copies * ahead + ((copies * (copies + 1)) >> 1)
    if ahead + copies > w.s[LONGEST]:
        w.s[LONGEST] = ahead + copies
    for k in range(copies):
        tally(w, QUEUE_LENGTH, ahead + k + 1)


@inlined
def control(w: State, source: int, event: int) -> None:
    """An ACK or a delegation: past the sending queue, unless `QUEUE_ACKS`."""
    if w.s[NETWORK] != QUEUE:
        send_copy(w, 0, 0, event)
    elif w.s[QUEUE_ACKS]:
        leaves = departure(w, source)
        send_copy(w, leaves, 0, event)
        departed(w, source, leaves, 1)
    else:
        push(w, w.s[NOW] + w.s[HOP], event)
