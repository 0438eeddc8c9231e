"""Causal barriers: when a message may be delivered, and what the next one comes after.

The messages of a topic have numbers (*bits*), given when their barriers are fixed.  A row keeps
the set of what it has delivered and its barrier, as bits; a message's barrier is kept as runs of
non-zero words: a header ``first word << 32 | words``, then the words.

With static membership and links that lose nothing, every subscriber receives every message of a
topic, so a dependency is met exactly when that very message was delivered ([J] lines 90-94: the
case of *first_rec* does not arise).  Of the deliverable messages the one that arrived first is
delivered first, as the reference does.
"""

from __future__ import annotations

from cubecast.kernel.calendar import push
from cubecast.kernel.jit import apart, inlined
from cubecast.kernel.layout import (
    APPLICATION,
    AT,
    BAR_AT,
    BAR_END,
    BARRIER,
    BIT,
    CODE,
    DELAY,
    DELIVERED,
    DELIVERIES,
    DIRECT,
    E_TELL,
    FIXED,
    FREE_HELD,
    HELD,
    HELD_AT,
    HELD_COLUMNS,
    HELD_FOR,
    HELD_HEAD,
    HELD_MSG,
    HELD_NEXT,
    HELD_SINCE,
    HELD_TAIL,
    HIGH,
    HOLDING,
    LATENCY,
    LATENCY_MAX,
    LATENCY_SUM,
    LOW,
    MOST_HELD,
    MSG,
    NEXT_BIT,
    NODE,
    NOW,
    PEER,
    POOL,
    PROTOCOL,
    ROOT,
    ROW_COLUMNS,
    ROWS,
    SINCE,
    SOURCE,
    T_DELIVER,
    TIME,
    TOPIC,
    TRACE_AT,
    TRACE_COLUMNS,
    TRACED,
    TRACING,
    UNREDUCED,
    VCUBE,
    WORDS,
    Longs,
    State,
)
from cubecast.kernel.network import event_of, tally

LENGTH = (1 << 32) - 1
"""The part of a header that says how many words follow."""


@inlined
def row_of(m: Longs, msg: int, node: int) -> int:
    """What `node` keeps of the message's topic."""
    return int(m[m[msg + TOPIC] + ROWS] + node * ROW_COLUMNS)


@inlined
def set_of(m: Longs, which: int, msg: int, node: int) -> int:
    """Where a set of messages of that row begins: `DELIVERED` or `BARRIER`."""
    topic = m[msg + TOPIC]
    return int(m[topic + which] + node * m[topic + WORDS])


@apart
def note(w: State, code: int, node: int, msg: int, peer: int) -> None:
    """Write a line of the trace."""
    m = w.m
    line = m[TRACE_AT] + m[TRACED] * TRACE_COLUMNS
    w.rare[line + CODE] = code
    w.rare[line + TIME] = m[NOW]
    w.rare[line + NODE] = node
    w.rare[line + MSG] = msg
    w.rare[line + PEER] = peer
    m[TRACED] += 1


@inlined
def deliver(w: State, msg: int, node: int, arrived: int) -> None:
    """Hand a message to the application; where its tree starts, that is not counted."""
    m = w.m
    now = m[NOW]
    start = m[msg + SOURCE] if m[PROTOCOL] == VCUBE else m[m[msg + TOPIC] + ROOT]
    if node != start:
        latency = now - m[msg + AT]
        m[msg + DELIVERIES] += 1
        m[msg + LATENCY_SUM] += latency
        if latency > m[msg + LATENCY_MAX]:
            m[msg + LATENCY_MAX] = latency
        tally(m, LATENCY, latency)
        tally(m, DELAY, now - arrived)
    if m[TRACING]:
        note(w, T_DELIVER, node, msg, -1)
    if m[APPLICATION]:
        push(w, now, event_of(E_TELL, node, msg))


@inlined
def lacking(w: State, delivered: int, msg: int) -> int:
    """A message of the barrier that is not delivered, or -1 (CHECKCB, [J] lines 90-94)."""
    m = w.m
    pool = w.pool
    at = m[msg + BAR_AT]
    end = m[msg + BAR_END]
    while at < end:
        first = pool[at] >> 32
        words = pool[at] & LENGTH
        missing = 0
        for k in range(words):
            missing |= pool[at + 1 + k] & ~m[delivered + first + k]
        if missing:
            return _first_missing(w, delivered + first, at + 1, first)
        at += words + 1
    return -1


@apart
def _first_missing(w: State, delivered: int, at: int, first: int) -> int:
    """The lowest bit of a run that is not delivered; there is one."""
    k = 0
    while w.pool[at + k] & ~w.m[delivered + k] == 0:
        k += 1
    word = w.pool[at + k] & ~w.m[delivered + k]
    bit = 0
    while (word >> bit) & 1 == 0:
        bit += 1
    return int((first + k) << 6) + bit


@apart
def take(w: State, msg: int, row: int, node: int, delivered: int, arrived: int) -> None:
    """Deliver a message whose predecessors are all delivered ([J] lines 85-89)."""
    m = w.m
    pool = w.pool
    deliver(w, msg, node, arrived)
    bit = m[msg + BIT]
    word = bit >> 6
    m[delivered + word] |= 1 << (bit & 63)
    if m[PROTOCOL] == FIXED and m[msg + SOURCE] == node:
        return  # in the barrier since it was sent
    barrier = set_of(m, BARRIER, msg, node)
    at = m[msg + BAR_AT]
    end = m[msg + BAR_END]
    while at < end:
        first = barrier + (pool[at] >> 32)
        words = pool[at] & LENGTH
        for k in range(words):
            m[first + k] &= ~pool[at + 1 + k]
        at += words + 1
    m[barrier + word] |= 1 << (bit & 63)
    if word < m[row + LOW]:
        m[row + LOW] = word
    if word > m[row + HIGH]:
        m[row + HIGH] = word
    m[row + SINCE] += 1


@apart
def stamp(w: State, msg: int, row: int, node: int) -> None:
    """Give a publication its number and the barrier of its node ([J] lines 21-22)."""
    m = w.m
    bit = m[m[msg + TOPIC] + NEXT_BIT]
    m[m[msg + TOPIC] + NEXT_BIT] += 1
    m[msg + BIT] = bit
    m[msg + BAR_AT] = m[POOL]
    m[msg + DIRECT] = _move_barrier(w, set_of(m, BARRIER, msg, node), row)
    m[msg + BAR_END] = m[POOL]
    m[msg + UNREDUCED] = m[row + SINCE]
    m[row + LOW] = bit >> 6
    m[row + HIGH] = bit >> 6
    m[row + SINCE] = 1
    m[set_of(m, BARRIER, msg, node) + (bit >> 6)] = 1 << (bit & 63)


@inlined
def _move_barrier(w: State, barrier: int, row: int) -> int:
    """Empty the barrier of a row into the pool; how many messages it had."""
    m = w.m
    size = 0
    header = -1
    for word in range(m[row + LOW], m[row + HIGH] + 1):
        value = m[barrier + word]
        if value == 0:
            header = -1
            continue
        if header < 0:
            header = m[POOL]
            w.pool[header] = word << 32
            m[POOL] += 1
        w.pool[header] += 1
        w.pool[m[POOL]] = value
        m[POOL] += 1
        m[barrier + word] = 0
        while value:
            value &= value - 1
            size += 1
    return size


# -- what waits ------------------------------------------------------------------------------------


@inlined
def accept(w: State, msg: int, node: int) -> None:
    """A subscriber has received a message: deliver what can be delivered now."""
    m = w.m
    row = row_of(m, msg, node)
    delivered = set_of(m, DELIVERED, msg, node)
    missing = lacking(w, delivered, msg)
    if missing >= 0:
        _hold(w, msg, row, missing)
        return
    take(w, msg, row, node, delivered, m[NOW])
    if m[row + HELD_HEAD] >= 0:
        _reconsider(w, row, node, delivered, m[msg + BIT])


@apart
def _hold(w: State, msg: int, row: int, missing: int) -> None:
    """Keep a message, after those that are here already."""
    m = w.m
    first = m[HELD_AT]
    entry = m[FREE_HELD]
    if entry >= 0:
        m[FREE_HELD] = w.rare[first + entry + HELD_NEXT]
    else:
        entry = m[HELD] * HELD_COLUMNS
        m[HELD] += 1
    w.rare[first + entry + HELD_MSG] = msg
    w.rare[first + entry + HELD_FOR] = missing
    w.rare[first + entry + HELD_NEXT] = -1
    w.rare[first + entry + HELD_SINCE] = m[NOW]
    if m[row + HELD_HEAD] < 0:
        m[row + HELD_HEAD] = entry
    else:
        w.rare[first + m[row + HELD_TAIL] + HELD_NEXT] = entry
    m[row + HELD_TAIL] = entry
    m[HOLDING] += 1
    if m[HOLDING] > m[MOST_HELD]:
        m[MOST_HELD] = m[HOLDING]


@apart
def _reconsider(w: State, row: int, node: int, delivered: int, bit: int) -> None:
    """Message `bit` was delivered: of those that waited for it, take the earliest arrival first."""
    m = w.m
    rare = w.rare
    first = m[HELD_AT]
    if not _touch(w, row, bit):
        return
    before = -1
    entry = m[row + HELD_HEAD]
    while entry >= 0:
        following = rare[first + entry + HELD_NEXT]
        if rare[first + entry + HELD_FOR] >= 0:
            before, entry = entry, following
            continue
        msg = rare[first + entry + HELD_MSG]
        missing = lacking(w, delivered, msg)
        if missing >= 0:
            rare[first + entry + HELD_FOR] = missing
            before, entry = entry, following
            continue
        _unlink(w, row, before, entry, following)
        take(w, msg, row, node, delivered, rare[first + entry + HELD_SINCE])
        if _touch(w, row, m[msg + BIT]):
            before, entry = -1, m[row + HELD_HEAD]
        else:
            entry = following


@inlined
def _touch(w: State, row: int, bit: int) -> bool:
    """Mark those that waited for message `bit`; whether there are any."""
    rare = w.rare
    first = w.m[HELD_AT]
    found = False
    entry = w.m[row + HELD_HEAD]
    while entry >= 0:
        if rare[first + entry + HELD_FOR] == bit:
            rare[first + entry + HELD_FOR] = -1
            found = True
        entry = rare[first + entry + HELD_NEXT]
    return found


@inlined
def _unlink(w: State, row: int, before: int, entry: int, following: int) -> None:
    m = w.m
    first = m[HELD_AT]
    if before < 0:
        m[row + HELD_HEAD] = following
    else:
        w.rare[first + before + HELD_NEXT] = following
    if following < 0:
        m[row + HELD_TAIL] = before
    w.rare[first + entry + HELD_NEXT] = m[FREE_HELD]
    m[FREE_HELD] = entry
    m[HOLDING] -= 1
