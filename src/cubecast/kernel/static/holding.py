"""Messages that wait for a predecessor.

A row keeps them in the order of arrival, in one block of `StaticState.rare` with two lists side by
side: the missing message that each waits for (its bit, or its complement once it is here), and the
time of arrival, with the message itself in the low bits.  Whether a message is waited for is a bit
of the row, and finding those that wait is one pass over adjacent words.  Blocks have room for 4, 8,
16, … messages; one that is too small or empty is kept for another row.

Of several messages that can be delivered the one that arrived first is delivered first, as
`cubecast.protocol.paper.vcube_ps` does.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.causal import lacking, row_of, set_of, take

from cubecast.kernel.static.layout import (  # isort: skip
    BIT, DELIVERED, FREE_BLOCKS, HELD, HELD_AT, HELD_BLOCK, HELD_CLASS, HELD_COUNT, HELD_NEED,
    HOLDING, MOST_HELD, NOW, WANTED, StaticState,
)  # fmt: skip

ALL_WORDS = 1 << 62
SMALLEST = 4
LISTS = 2
MSG_BITS = 32
"""A message is the place of its record, which is below this many bits."""


@inlined
def accept(w: StaticState, msg: int, node: int) -> None:
    """Take a received message at a subscriber: deliver all messages that can be delivered now."""
    m = w.m
    row = row_of(m, msg, node)
    delivered = set_of(m, DELIVERED, msg, node)
    missing = lacking(w, row, delivered, msg, ALL_WORDS)
    if missing >= 0:
        _hold(w, msg, row, node, missing)
        return
    take(w, msg, row, node, delivered, m[NOW])
    wanted = set_of(m, WANTED, msg, node)
    if _is_wanted(m, wanted, m[msg + BIT]):
        _reconsider(w, row, node, delivered, wanted, m[msg + BIT])


@inlined
def _is_wanted(m: Longs, wanted: int, bit: int) -> bool:
    """Whether some message waits for message `bit`; clears the mark."""
    word = wanted + (bit >> 6)
    mask = 1 << (bit & 63)
    if m[word] & mask == 0:
        return False
    m[word] ^= mask
    return True


@inlined
def _want(m: Longs, wanted: int, bit: int) -> None:
    m[wanted + (bit >> 6)] |= 1 << (bit & 63)


@apart
def _hold(w: StaticState, msg: int, row: int, node: int, missing: int) -> None:
    """Keep a message, after those that are here already."""
    m = w.m
    count = m[row + HELD_COUNT]
    if count == 0:
        m[row + HELD_CLASS] = 0
        m[row + HELD_BLOCK] = _new_block(w, 0)
    elif count == SMALLEST << m[row + HELD_CLASS]:
        _enlarge(w, row)
    room = SMALLEST << m[row + HELD_CLASS]
    place = m[HELD_AT] + m[row + HELD_BLOCK] + count
    w.rare[place] = missing
    w.rare[place + room] = m[NOW] << MSG_BITS | msg
    _want(m, set_of(m, WANTED, msg, node), missing)
    m[row + HELD_COUNT] = count + 1
    m[HOLDING] += 1
    if m[HOLDING] > m[MOST_HELD]:
        m[MOST_HELD] = m[HOLDING]


@inlined
def _new_block(w: StaticState, size: int) -> int:
    """Room for ``SMALLEST << size`` messages."""
    m = w.m
    block = m[FREE_BLOCKS + size]
    if block >= 0:
        m[FREE_BLOCKS + size] = w.rare[m[HELD_AT] + block]
        return int(block)
    block = m[HELD]
    words = LISTS * (SMALLEST << size)
    m[HELD] += words
    if 2 * words > m[HELD_NEED]:
        m[HELD_NEED] = 2 * words
    return int(block)


@inlined
def _free_block(w: StaticState, block: int, size: int) -> None:
    w.rare[w.m[HELD_AT] + block] = w.m[FREE_BLOCKS + size]
    w.m[FREE_BLOCKS + size] = block


@inlined
def _enlarge(w: StaticState, row: int) -> None:
    """Move a full block to one twice as large."""
    m = w.m
    size = m[row + HELD_CLASS]
    room = SMALLEST << size
    block = _new_block(w, size + 1)
    source = m[HELD_AT] + m[row + HELD_BLOCK]
    target = m[HELD_AT] + block
    for column in range(LISTS):
        for k in range(room):
            w.rare[target + 2 * column * room + k] = w.rare[source + column * room + k]
    _free_block(w, m[row + HELD_BLOCK], size)
    m[row + HELD_BLOCK] = block
    m[row + HELD_CLASS] = size + 1


@inlined
def _touch(w: StaticState, start: int, end: int, bit: int) -> int:
    """Mark the messages from `start` on that waited for message `bit`; return their number."""
    found = 0
    for entry in range(start, end):
        if w.rare[entry] == bit:
            w.rare[entry] = ~bit
            found += 1
    return found


@apart
def _reconsider(w: StaticState, row: int, node: int, delivered: int, wanted: int, bit: int) -> None:
    """Deliver, now that `bit` is here, messages with all predecessors, earliest arrival first."""
    m = w.m
    room = SMALLEST << m[row + HELD_CLASS]
    start = m[HELD_AT] + m[row + HELD_BLOCK]
    end = start + m[row + HELD_COUNT]
    entry = start
    marked = _touch(w, start, end, bit)
    while marked:
        while w.rare[entry] >= 0:
            entry += 1
        marked -= 1
        arrived = w.rare[entry + room] >> MSG_BITS
        msg = w.rare[entry + room] & ((1 << MSG_BITS) - 1)
        missing = lacking(w, row, delivered, msg, ~w.rare[entry] >> 6)
        if missing >= 0:
            w.rare[entry] = missing
            _want(m, wanted, missing)
            continue
        _remove(w, entry, end, room)
        end -= 1
        take(w, msg, row, node, delivered, arrived)
        if _is_wanted(m, wanted, m[msg + BIT]):
            marked += _touch(w, start, end, m[msg + BIT])
            entry = start
    m[HOLDING] -= m[row + HELD_COUNT] - (end - start)
    m[row + HELD_COUNT] = end - start
    if end == start:
        _free_block(w, m[row + HELD_BLOCK], m[row + HELD_CLASS])


@inlined
def _remove(w: StaticState, entry: int, end: int, room: int) -> None:
    """Close the gap that a message leaves."""
    for column in range(LISTS):
        for k in range(entry + column * room, end + column * room - 1):
            w.rare[k] = w.rare[k + 1]
