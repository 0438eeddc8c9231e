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
    BIT,
    BITS,
    DELAY,
    DELIVERIES,
    DIRECT,
    E_TELL,
    FIXED,
    FREE_HELD,
    HELD,
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
    NEXT_BIT,
    NODES,
    NOW,
    POOL,
    PROTOCOL,
    ROOT,
    SINCE,
    SOURCE,
    T_DELIVER,
    TOPIC,
    TRACED,
    TRACING,
    UNREDUCED,
    VCUBE,
    WORDS,
    State,
)
from cubecast.kernel.network import event_of, tally

ONES = (1 << 32) - 1
TRACE_ALL = 2


@inlined
def note(w: State, code: int, node: int, msg: int, peer: int) -> None:
    """Write a line of the trace."""
    line = w.s[TRACED]
    w.trace[line, 0] = code
    w.trace[line, 1] = w.s[NOW]
    w.trace[line, 2] = node
    w.trace[line, 3] = msg
    w.trace[line, 4] = peer
    w.s[TRACED] = line + 1


@inlined
def deliver(w: State, msg: int, node: int, arrived: int) -> None:
    """Hand a message to the application; where its tree starts, that is not counted."""
    now = w.s[NOW]
    start = w.msgs[msg, SOURCE]
    if w.s[PROTOCOL] != VCUBE:
        start = w.topics[w.msgs[msg, TOPIC], ROOT]
    if node != start:
        latency = now - w.msgs[msg, AT]
        w.sums[msg, DELIVERIES] += 1
        w.sums[msg, LATENCY_SUM] += latency
        if latency > w.sums[msg, LATENCY_MAX]:
            w.sums[msg, LATENCY_MAX] = latency
        tally(w, LATENCY, latency)
        tally(w, DELAY, now - arrived)
    if w.s[TRACING]:
        note(w, T_DELIVER, node, msg, -1)
    if w.s[APPLICATION]:
        push(w, now, event_of(E_TELL, node, msg))


@inlined
def bits_of(w: State, topic: int, node: int) -> int:
    """Where the sets of a row begin."""
    return int(w.topics[topic, BITS] + node * w.topics[topic, WORDS])


@inlined
def lacking(w: State, base: int, msg: int) -> int:
    """A message of the barrier that is not delivered, or -1 (CHECKCB, [J] lines 90-94)."""
    at = w.msgs[msg, BAR_AT]
    end = w.msgs[msg, BAR_END]
    while at < end:
        first = w.pool[at] >> 32
        words = w.pool[at] & ONES
        missing = 0
        for k in range(words):
            missing |= w.pool[at + 1 + k] & ~w.delivered[base + first + k]
        if missing:
            return _first_missing(w, base + first, at + 1, first)
        at += words + 1
    return -1


@apart
def _first_missing(w: State, base: int, at: int, first: int) -> int:
    """The lowest bit of a run that is not delivered; there is one."""
    k = 0
    while w.pool[at + k] & ~w.delivered[base + k] == 0:
        k += 1
    word = w.pool[at + k] & ~w.delivered[base + k]
    bit = 0
    while (word >> bit) & 1 == 0:
        bit += 1
    return ((first + k) << 6) + bit


@inlined
def take(w: State, msg: int, row: int, node: int, base: int, arrived: int) -> None:
    """Deliver a message whose predecessors are all delivered ([J] lines 85-89)."""
    deliver(w, msg, node, arrived)
    bit = w.msgs[msg, BIT]
    word = bit >> 6
    w.delivered[base + word] |= 1 << (bit & 63)
    if w.s[PROTOCOL] == FIXED and w.msgs[msg, SOURCE] == node:
        return  # in the barrier since it was sent
    at = w.msgs[msg, BAR_AT]
    end = w.msgs[msg, BAR_END]
    while at < end:
        first = base + (w.pool[at] >> 32)
        words = w.pool[at] & ONES
        for k in range(words):
            w.barrier[first + k] &= ~w.pool[at + 1 + k]
        at += words + 1
    add_to_barrier(w, row, base, bit)
    w.rows[row, SINCE] += 1


@inlined
def add_to_barrier(w: State, row: int, base: int, bit: int) -> None:
    word = bit >> 6
    w.barrier[base + word] |= 1 << (bit & 63)
    if word < w.rows[row, LOW]:
        w.rows[row, LOW] = word
    if word > w.rows[row, HIGH]:
        w.rows[row, HIGH] = word


@apart
def stamp(w: State, msg: int, row: int, base: int) -> None:
    """Give a publication its number and the barrier of its node ([J] lines 21-22)."""
    topic = w.msgs[msg, TOPIC]
    bit = w.topics[topic, NEXT_BIT]
    w.topics[topic, NEXT_BIT] += 1
    w.msgs[msg, BIT] = bit
    w.msgs[msg, BAR_AT] = w.s[POOL]
    size = 0
    header = -1
    for word in range(int(w.rows[row, LOW]), int(w.rows[row, HIGH]) + 1):
        value = w.barrier[base + word]
        if value == 0:
            header = -1
            continue
        if header < 0:
            header = w.s[POOL]
            w.pool[header] = word << 32
            w.s[POOL] += 1
        w.pool[header] += 1
        w.pool[w.s[POOL]] = value
        w.s[POOL] += 1
        size += _ones(value)
        w.barrier[base + word] = 0
    w.msgs[msg, BAR_END] = w.s[POOL]
    w.sums[msg, DIRECT] = size
    w.sums[msg, UNREDUCED] = w.rows[row, SINCE]
    w.rows[row, LOW] = bit >> 6
    w.rows[row, HIGH] = bit >> 6
    w.rows[row, SINCE] = 1
    w.barrier[base + (bit >> 6)] = 1 << (bit & 63)


@inlined
def _ones(word: int) -> int:
    """How many bits are set."""
    count = 0
    while word:
        word &= word - 1
        count += 1
    return count


# -- what waits ------------------------------------------------------------------------------------


@inlined
def accept(w: State, msg: int, node: int) -> None:
    """A subscriber has received a message: deliver what can be delivered now."""
    topic = w.msgs[msg, TOPIC]
    row = topic * w.s[NODES] + node
    base = bits_of(w, topic, node)
    missing = lacking(w, base, msg)
    if missing >= 0:
        _hold(w, msg, row, missing)
        return
    take(w, msg, row, node, base, w.s[NOW])
    if w.rows[row, HELD_HEAD] >= 0:
        _reconsider(w, row, node, base, w.msgs[msg, BIT])


@apart
def _hold(w: State, msg: int, row: int, missing: int) -> None:
    """Keep a message, after those that are here already."""
    place = w.s[FREE_HELD]
    if place >= 0:
        w.s[FREE_HELD] = w.held[place, HELD_NEXT]
    else:
        place = w.s[HELD]
        w.s[HELD] += 1
    w.held[place, HELD_MSG] = msg
    w.held[place, HELD_FOR] = missing
    w.held[place, HELD_NEXT] = -1
    w.held[place, HELD_SINCE] = w.s[NOW]
    if w.rows[row, HELD_HEAD] < 0:
        w.rows[row, HELD_HEAD] = place
    else:
        w.held[w.rows[row, HELD_TAIL], HELD_NEXT] = place
    w.rows[row, HELD_TAIL] = place
    w.s[HOLDING] += 1
    if w.s[HOLDING] > w.s[MOST_HELD]:
        w.s[MOST_HELD] = w.s[HOLDING]


@apart
def _reconsider(w: State, row: int, node: int, base: int, delivered: int) -> None:
    """`delivered` was delivered: of those that waited for it, take the earliest arrival first."""
    if not _touch(w, row, delivered):
        return
    before = -1
    place = int(w.rows[row, HELD_HEAD])
    while place >= 0:
        following = w.held[place, HELD_NEXT]
        if w.held[place, HELD_FOR] >= 0:
            before, place = place, following
            continue
        msg = w.held[place, HELD_MSG]
        missing = lacking(w, base, msg)
        if missing >= 0:
            w.held[place, HELD_FOR] = missing
            before, place = place, following
            continue
        _unlink(w, row, before, place, following)
        take(w, msg, row, node, base, w.held[place, HELD_SINCE])
        if _touch(w, row, w.msgs[msg, BIT]):
            before, place = -1, int(w.rows[row, HELD_HEAD])
        else:
            place = following


@inlined
def _touch(w: State, row: int, delivered: int) -> bool:
    """Mark those that waited for `delivered`; whether there are any."""
    found = False
    place = int(w.rows[row, HELD_HEAD])
    while place >= 0:
        if w.held[place, HELD_FOR] == delivered:
            w.held[place, HELD_FOR] = -1
            found = True
        place = w.held[place, HELD_NEXT]
    return found


@inlined
def _unlink(w: State, row: int, before: int, place: int, following: int) -> None:
    if before < 0:
        w.rows[row, HELD_HEAD] = following
    else:
        w.held[before, HELD_NEXT] = following
    if following < 0:
        w.rows[row, HELD_TAIL] = before
    w.held[place, HELD_NEXT] = w.s[FREE_HELD]
    w.s[FREE_HELD] = place
    w.s[HOLDING] -= 1
