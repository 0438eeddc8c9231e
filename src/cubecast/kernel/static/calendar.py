"""The event queue: exactly the order of `cubecast.sim.world`, in chunks of flat memory.

Invariant: events of one instant are taken out in the order in which they were put in.  A *ring* of
`RING` buckets holds the instants from `NOW` on; a bucket is a chain of chunks of 64 slots, so that
putting in and taking out go through memory in order.  Farther events wait in a heap, ordered by
time and arrival, and move to the ring when `NOW` advances, hence before any event that can be put
directly into the same bucket.  Planned publications are not in here: the reference plans them
before everything else, so they come first in their instant.

The first slot of a chunk is the link to the next one; chunk 0 is never used.  A bucket has two
words: its first chunk, and the next free slot, where a multiple of the chunk size means that a
chunk has to be added first.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined

from cubecast.kernel.static.layout import (  # isort: skip
    CHUNK_BITS, CHUNK_SIZE, CHUNKS, FAR, FAR_AT, FAR_COLUMNS, FAR_EVENT, FAR_NUMBER, FAR_ORDER,
    FAR_TIME, FREE_CHUNK, IN_RING, NOW, READ, RING, RING_AT, StaticState,
)  # fmt: skip

NEVER = 1 << 62


@inlined
def bucket_of(m: Longs, at: int) -> int:
    """Where the bucket of an instant is."""
    return int(m[RING_AT] + 2 * (at & (m[RING] - 1)))


@apart
def push(w: StaticState, at: int, event: int) -> None:
    """Put an event at the end of instant `at`."""
    m = w.m
    if at - m[NOW] >= m[RING]:
        _push_far(w, at, event)
        return
    bucket = bucket_of(m, at)
    slot = m[bucket + 1]
    if slot & (CHUNK_SIZE - 1) == 0:
        slot = _add_chunk(w, bucket, slot)
    w.slots[slot] = event
    m[bucket + 1] = slot + 1
    m[IN_RING] += 1


@inlined
def _add_chunk(w: StaticState, bucket: int, slot: int) -> int:
    """Add a fresh chunk to a bucket; return its first slot for an event."""
    m = w.m
    chunk = m[FREE_CHUNK]
    if chunk:
        m[FREE_CHUNK] = w.slots[chunk << CHUNK_BITS]
    else:
        chunk = m[CHUNKS]
        m[CHUNKS] += 1
    if slot:
        w.slots[slot - CHUNK_SIZE] = chunk
    else:
        m[bucket] = chunk
    return int(chunk << CHUNK_BITS) + 1


@inlined
def _free_chunk(w: StaticState, chunk: int) -> None:
    w.slots[chunk << CHUNK_BITS] = w.m[FREE_CHUNK]
    w.m[FREE_CHUNK] = chunk


@inlined
def take(w: StaticState, bucket: int) -> int:
    """The next event of the instant that is under way, or -1; `READ` is 0 before the first."""
    m = w.m
    slot = m[READ]
    if slot == m[bucket + 1]:
        return -1
    if slot == 0:
        slot = (m[bucket] << CHUNK_BITS) + 1
    elif slot & (CHUNK_SIZE - 1) == 0:
        chunk = w.slots[slot - CHUNK_SIZE]
        _free_chunk(w, (slot >> CHUNK_BITS) - 1)
        slot = (chunk << CHUNK_BITS) + 1
    m[READ] = slot + 1
    m[IN_RING] -= 1
    return int(w.slots[slot])


@inlined
def close(w: StaticState, bucket: int) -> None:
    """Free the bucket of an instant whose events were all taken."""
    m = w.m
    if m[READ]:
        _free_chunk(w, (m[READ] - 1) >> CHUNK_BITS)
    m[bucket] = 0
    m[bucket + 1] = 0


@inlined
def next_in_ring(m: Longs) -> int:
    """The next instant, `NOW` or later, with an event in the ring, which is not empty."""
    at = m[NOW]
    while m[bucket_of(m, at) + 1] == 0:
        at += 1
    return int(at)


# -- what is far away ------------------------------------------------------------------------------


@inlined
def _before(w: StaticState, a: int, b: int) -> bool:
    far = w.rare
    if far[a + FAR_TIME] != far[b + FAR_TIME]:
        return bool(far[a + FAR_TIME] < far[b + FAR_TIME])
    return bool(far[a + FAR_ORDER] < far[b + FAR_ORDER])


@inlined
def _swap(w: StaticState, a: int, b: int) -> None:
    for column in range(FAR_COLUMNS):
        w.rare[a + column], w.rare[b + column] = w.rare[b + column], w.rare[a + column]


@apart
def _push_far(w: StaticState, at: int, event: int) -> None:
    m = w.m
    first = m[FAR_AT]
    place = m[FAR]
    entry = first + place * FAR_COLUMNS
    w.rare[entry + FAR_TIME] = at
    w.rare[entry + FAR_ORDER] = m[FAR_NUMBER]
    w.rare[entry + FAR_EVENT] = event
    m[FAR] += 1
    m[FAR_NUMBER] += 1
    while place:
        above = (place - 1) >> 1
        if not _before(w, first + place * FAR_COLUMNS, first + above * FAR_COLUMNS):
            return
        _swap(w, first + place * FAR_COLUMNS, first + above * FAR_COLUMNS)
        place = above


@apart
def pop_far(w: StaticState) -> None:
    """Remove the earliest; the caller has read it."""
    m = w.m
    first = m[FAR_AT]
    m[FAR] -= 1
    last = m[FAR]
    _swap(w, first, first + last * FAR_COLUMNS)
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            return
        entry = first + below * FAR_COLUMNS
        if below + 1 < last and _before(w, entry + FAR_COLUMNS, entry):
            below += 1
            entry += FAR_COLUMNS
        if not _before(w, entry, first + place * FAR_COLUMNS):
            return
        _swap(w, entry, first + place * FAR_COLUMNS)
        place = below
