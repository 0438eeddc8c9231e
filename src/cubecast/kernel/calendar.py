"""The event queue: exactly the order of `cubecast.sim.world`, in chunks of flat memory.

Invariant: events of one instant are taken out in the order in which they were put in.  A *ring* of
`RING` buckets holds the instants from `NOW` on; a bucket is a chain of chunks of 64 events, so
that putting in and taking out go through memory in order.  What is farther away waits in a heap,
ordered by time and arrival, and moves to the ring when `NOW` advances, hence before anything that
can be put directly into the same bucket.  Planned publications are not in here: the reference
plans them before everything else, so they come first in their instant.

Chunk 0 is never used: 0 means none.  ``writes[b]`` is the next free slot of bucket b; a multiple of
the chunk size means that a chunk has to be added first.
"""

from __future__ import annotations

from cubecast.kernel.jit import apart, inlined
from cubecast.kernel.layout import (
    CHUNK_BITS,
    CHUNK_SIZE,
    CHUNKS,
    FAR,
    FAR_NUMBER,
    FREE_CHUNK,
    IN_RING,
    NOW,
    RING,
    State,
)

NEVER = 1 << 62


@inlined
def push(w: State, at: int, event: int) -> None:
    """Put an event at the end of instant `at`."""
    if at - w.s[NOW] < w.s[RING]:
        _append(w, at, event)
    else:
        far_push(w, at, event)


@inlined
def _append(w: State, at: int, event: int) -> None:
    bucket = at & (w.s[RING] - 1)
    slot = w.writes[bucket]
    if slot & (CHUNK_SIZE - 1) == 0:
        slot = add_chunk(w, bucket, slot) << CHUNK_BITS
    w.slots[slot] = event
    w.writes[bucket] = slot + 1
    w.s[IN_RING] += 1


@apart
def add_chunk(w: State, bucket: int, slot: int) -> int:
    """A fresh chunk at the end of a bucket."""
    chunk = w.s[FREE_CHUNK]
    if chunk:
        w.s[FREE_CHUNK] = w.links[chunk]
    else:
        chunk = w.s[CHUNKS]
        w.s[CHUNKS] += 1
    if slot:
        w.links[(slot - 1) >> CHUNK_BITS] = chunk
    else:
        w.heads[bucket] = chunk
    return chunk


@inlined
def free_chunk(w: State, chunk: int) -> None:
    w.links[chunk] = w.s[FREE_CHUNK]
    w.s[FREE_CHUNK] = chunk


@inlined
def next_in_ring(w: State) -> int:
    """The next instant after `NOW` with an event in the ring; there is one."""
    at: int = w.s[NOW]
    mask = w.s[RING] - 1
    while w.writes[at & mask] == 0:
        at += 1
    return at


# -- what is far away ------------------------------------------------------------------------------


@inlined
def _before(w: State, a: int, b: int) -> bool:
    return w.far[a, 0] < w.far[b, 0] or (
        w.far[a, 0] == w.far[b, 0] and w.far[a, 1] < w.far[b, 1]
    )


@inlined
def _swap(w: State, a: int, b: int) -> None:
    for column in range(3):
        w.far[a, column], w.far[b, column] = w.far[b, column], w.far[a, column]


@apart
def far_push(w: State, at: int, event: int) -> None:
    place = w.s[FAR]
    w.far[place, 0] = at
    w.far[place, 1] = w.s[FAR_NUMBER]
    w.far[place, 2] = event
    w.s[FAR] += 1
    w.s[FAR_NUMBER] += 1
    while place and _before(w, place, (place - 1) >> 1):
        _swap(w, place, (place - 1) >> 1)
        place = (place - 1) >> 1


@apart
def far_pop(w: State) -> None:
    """Remove the earliest; the caller has read it."""
    w.s[FAR] -= 1
    last = w.s[FAR]
    _swap(w, 0, last)
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            return
        if below + 1 < last and _before(w, below + 1, below):
            below += 1
        if not _before(w, below, place):
            return
        _swap(w, below, place)
        place = below
