"""Causal barriers: when a message may be delivered, and the barrier of the next one.

The messages of a topic have numbers (*bits*), given when their barriers are fixed.  A row keeps
the set of its delivered messages and its barrier, as bits; a message's barrier is kept as runs of
non-zero words, the highest run first: a header ``first word << 32 | words``, then the words.

With static membership and links that lose nothing, every subscriber receives every message of a
topic, so a dependency is met exactly when that very message was delivered ([J] lines 90-94: the
case of *first_rec* does not arise).  Of the deliverable messages the one that arrived first is
delivered first, as the reference does.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.calendar import push
from cubecast.kernel.static.network import event_of, tally

from cubecast.kernel.static.layout import (  # isort: skip
    APPLICATION, AT, BAR_AT, BAR_END, BARRIER, BIT, CODE, DELAY, DELIVERIES, DIRECT, E_TELL,
    FIXED, HIGH, LATENCY, LATENCY_MAX, LATENCY_SUM, LOW, MARK, MSG, NEXT_BIT, NODE, NOW, PEER,
    POOL, PROTOCOL, ROOT, ROW_COLUMNS, ROWS, SINCE, SOURCE, T_DELIVER, TIME, TOPIC, TRACE_AT,
    TRACE_COLUMNS, TRACED, TRACING, UNREDUCED, VCUBE, WORDS, StaticState,
)  # fmt: skip

ALL = -1
"""A word with every bit set."""
LENGTH = (1 << 32) - 1
"""The part of a header that says how many words follow."""


@inlined
def row_of(m: Longs, msg: int, node: int) -> int:
    """The row of `node` for the message's topic."""
    return int(m[m[msg + TOPIC] + ROWS] + node * ROW_COLUMNS)


@inlined
def set_of(m: Longs, which: int, msg: int, node: int) -> int:
    """Where a set of messages of that row begins: `DELIVERED` or `BARRIER`."""
    topic = m[msg + TOPIC]
    return int(m[topic + which] + node * m[topic + WORDS])


@apart
def note(w: StaticState, code: int, node: int, msg: int, peer: int) -> None:
    """Write a line of the trace."""
    m = w.m
    line = m[TRACE_AT] + m[TRACED] * TRACE_COLUMNS
    w.rare[line + CODE] = code
    w.rare[line + TIME] = m[NOW]
    w.rare[line + NODE] = node
    w.rare[line + MSG] = msg
    w.rare[line + PEER] = peer
    m[TRACED] += 1


@apart
def deliver(w: StaticState, msg: int, node: int, arrived: int) -> None:
    """Hand a message to the application; at the root of its tree that is not counted."""
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


@apart
def lacking(w: StaticState, row: int, delivered: int, msg: int, top: int) -> int:
    """A message of the barrier that is not delivered, or -1 (CHECKCB, [J] lines 90-94).

    It is the one that was sent last, as it tends to arrive last.  The words above `top` are known
    to be delivered: delivered messages stay so, hence a check that found a message missing
    continues from there when that message has come.
    """
    m = w.m
    pool = w.pool
    at = m[msg + BAR_AT]
    end = m[msg + BAR_END]
    while at < end:
        first = pool[at] >> 32
        words = pool[at] & LENGTH
        k = min(words - 1, top - first)
        least = max(0, m[row + MARK] - first)
        while k >= least:
            missing = pool[at + 1 + k] & ~m[delivered + first + k]
            if missing:
                return int((first + k) << 6) + _highest(missing)
            k -= 1
        at += words + 1
    return -1


@inlined
def _highest(word: int) -> int:
    """The highest bit that is set; there is one."""
    if word < 0:
        return 63
    bit = 0
    step = 32
    while step:
        if word >> (bit + step):
            bit += step
        step >>= 1
    return bit


@apart
def take(w: StaticState, msg: int, row: int, node: int, delivered: int, arrived: int) -> None:
    """Deliver a message whose predecessors are all delivered ([J] lines 85-89)."""
    m = w.m
    pool = w.pool
    deliver(w, msg, node, arrived)
    bit = m[msg + BIT]
    word = bit >> 6
    m[delivered + word] |= 1 << (bit & 63)
    mark = m[row + MARK]
    while mark < m[m[msg + TOPIC] + WORDS] and m[delivered + mark] == ALL:
        mark += 1
    m[row + MARK] = mark
    if m[PROTOCOL] == FIXED and m[msg + SOURCE] == node:
        return  # in the barrier since it was sent
    barrier = set_of(m, BARRIER, msg, node)
    at = m[msg + BAR_AT]
    end = m[msg + BAR_END]
    while at < end:
        first = pool[at] >> 32
        words = pool[at] & LENGTH
        skip = min(max(0, m[row + LOW] - first), words)
        for k in range(skip, words):
            m[barrier + first + k] &= ~pool[at + 1 + k]
        at += words + 1
    m[barrier + word] |= 1 << (bit & 63)
    if word < m[row + LOW]:
        m[row + LOW] = word
    if word > m[row + HIGH]:
        m[row + HIGH] = word
    m[row + SINCE] += 1


@apart
def stamp(w: StaticState, msg: int, row: int, node: int) -> None:
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
def _move_barrier(w: StaticState, barrier: int, row: int) -> int:
    """Empty the barrier of a row into the pool, the highest run first; return its size."""
    m = w.m
    size = 0
    word = m[row + HIGH]
    while word >= m[row + LOW]:
        if m[barrier + word] == 0:
            word -= 1
            continue
        last = word
        while word >= m[row + LOW] and m[barrier + word] != 0:
            word -= 1
        words = last - word
        w.pool[m[POOL]] = (word + 1) << 32 | words
        for k in range(words):
            value = m[barrier + word + 1 + k]
            w.pool[m[POOL] + 1 + k] = value
            m[barrier + word + 1 + k] = 0
            while value:
                value &= value - 1
                size += 1
        m[POOL] += words + 1
    return size
