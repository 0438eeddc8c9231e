"""The loop: instants in order, events of an instant in the order they were planned.

`advance` is the kernel's only entry point.  It returns when the run is over, when a pool is nearly
full, and now and then so that the caller can be interrupted; called again with the same state it
goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, entry, inlined, memory_of, sources_digest
from cubecast.kernel.static import rooted, vcube
from cubecast.kernel.static.calendar import (
    NEVER,
    bucket_of,
    close,
    next_in_ring,
    pop_far,
    push,
    take,
)
from cubecast.kernel.static.causal import note
from cubecast.kernel.static.cube import is_in
from cubecast.kernel.static.network import event_of, node_at
from cubecast.kernel.static.relay import msg_of, node_of
from cubecast.kernel.static.turns import next_turn

from cubecast.kernel.static.layout import (  # isort: skip
    ANSWERER, APPLICATION, AT, BLOCK_END, BROKER, CHUNK_BITS, CHUNK_ROOM, CHUNKS, DISCUSSION,
    DONE, E_ACK, E_ANSWER, E_DELEGATE, E_PUB, E_TELL, FALSE_POSITIVES, FANOUT, FAR, FAR_AT,
    FAR_EVENT, FAR_ROOM, FAR_TIME, FREE, FULL, H_SHIFT, HELD, HELD_MORE, HELD_NEED, HELD_ROOM,
    HOLDING, IN_RING, KIND_MASK, MEMBERS, MOST_EARLY, MSG_COLUMNS, MSGS_AT, NETWORK,
    NEXT_PLANNED, NODE_MASK, NODE_SHIFT, NOW, OPEN, PAUSED, PAYLOAD_SHIFT, PLAN_ANSWERER,
    PLAN_AT, PLAN_COLUMNS, PLAN_NODE, PLAN_TIME, PLAN_TOPIC, PLANNED, POOL, POOL_ROOM, PROTOCOL,
    PUBLISHED, READ, REC_ROOM, RECEPTION_SUM, RECEPTIONS, RECS, REPLY, RING, ROOT, SEEN_AT,
    SERVED, SERVICE, SOURCE, T_PUBLISH, T_RECEIVE_PUB, THINK_AT, TOPIC, TRACE_ROOM, TRACED,
    TRACING, TREE_SUM, TURNS_AT, UNFINISHED, UNTIL, VCUBE, WAIT, WIDEST, WITH_MESSAGES, StaticState,
)  # fmt: skip

EVERYTHING_SEEN = -2


# -- the application -------------------------------------------------------------------------------


@apart
def _publish(w: StaticState, node: int, topic: int, reply: int, answerer: int) -> None:
    """Publish as the application of a node."""
    m = w.m
    msg = m[MSGS_AT] + m[PUBLISHED] * MSG_COLUMNS
    m[PUBLISHED] += 1
    m[msg + SOURCE] = node
    m[msg + TOPIC] = topic
    m[msg + AT] = m[NOW]
    m[msg + REPLY] = reply
    m[msg + ANSWERER] = answerer
    if m[TRACING]:
        note(w, T_PUBLISH, node, msg, -1)
    if m[PROTOCOL] == VCUBE:
        vcube.publish(w, msg, node)
    else:
        rooted.publish(w, msg, node)
        if m[TURNS_AT]:
            next_turn(w, node)


@inlined
def _tell(w: StaticState, node: int, msg: int) -> None:
    """Tell the application of a delivery; it may answer."""
    m = w.m
    if m[APPLICATION] == DISCUSSION:
        seen = m[SEEN_AT] + node
        if m[seen] < 0:
            return
        m[seen] += 1
        if m[seen] >= m[WAIT]:
            m[seen] = -1
            push(w, m[NOW] + m[m[THINK_AT] + node], event_of(E_ANSWER, node, m[msg + TOPIC]))
    elif m[msg + ANSWERER] == node:
        _publish(w, node, m[msg + TOPIC], msg, -1)


# -- events ----------------------------------------------------------------------------------------


@inlined
def _received(w: StaticState, msg: int, node: int, sender: int) -> None:
    """Count and record a publication that arrives."""
    m = w.m
    if is_in(m, m[m[msg + TOPIC] + MEMBERS], node):
        m[msg + RECEPTIONS] += 1
        m[msg + RECEPTION_SUM] += m[NOW] - m[msg + AT]
        if m[PROTOCOL] == BROKER and m[node_at(m, node) + BLOCK_END]:
            m[TREE_SUM] += m[NOW] - m[msg + AT]
    else:
        m[FALSE_POSITIVES] += 1
    if m[TRACING] >= WITH_MESSAGES:
        note(w, T_RECEIVE_PUB, node, msg, sender)


@inlined
def _must_wait(w: StaticState, event: int) -> bool:
    """[B] 6: a node handles one message per u.t.; further messages wait their turn."""
    m = w.m
    kind = event & KIND_MASK
    payload = event >> PAYLOAD_SHIFT
    if kind == E_PUB:
        node = (event >> NODE_SHIFT) & NODE_MASK
    elif kind == E_ACK:
        node = node_of(w, payload)
    elif kind == E_DELEGATE:
        node = m[m[payload + TOPIC] + ROOT]
    else:
        return False
    free = node_at(m, node) + FREE
    turn = m[free]
    if turn <= m[NOW]:
        m[free] = m[NOW] + 1
        return False
    m[free] = turn + 1
    push(w, turn, event | SERVED)
    return True


@inlined
def _handle(w: StaticState, event: int) -> None:
    kind = event & KIND_MASK
    node = (event >> NODE_SHIFT) & NODE_MASK
    payload = event >> PAYLOAD_SHIFT
    if kind == E_PUB:
        msg = msg_of(w, payload)
        _received(w, msg, node, node_of(w, payload))
        h = (event >> H_SHIFT) & 31
        if w.m[PROTOCOL] == VCUBE:
            vcube.on_pub(w, msg, node, h, payload)
        else:
            rooted.on_pub(w, msg, node, h, payload)
    elif kind == E_ACK:
        vcube.on_ack(w, payload, node)
    elif kind == E_DELEGATE:
        rooted.on_delegate(w, payload)
    elif kind == E_TELL:
        _tell(w, node, payload)
    else:
        _publish(w, node, payload, EVERYTHING_SEEN if kind == E_ANSWER else -1, -1)


# -- the loop --------------------------------------------------------------------------------------


@inlined
def _nearly_full(m: Longs) -> bool:
    """Whether the next event might not find room in some pool."""
    more = m[MOST_EARLY]
    copies = (m[FANOUT] + 1) * (more + 1) + 4
    told = m[HOLDING]
    return bool(
        m[CHUNKS] + copies + (told >> (CHUNK_BITS - 1)) > m[CHUNK_ROOM]
        or m[RECS] + 1 + more > m[REC_ROOM]
        or m[HELD] + m[HELD_NEED] + HELD_MORE * more > m[HELD_ROOM]
        or m[FAR] + copies > m[FAR_ROOM]
        or m[POOL] + m[WIDEST] > m[POOL_ROOM]
        or (m[TRACING] and m[TRACED] + 2 * copies + told > m[TRACE_ROOM])
    )


@inlined
def _next_instant(w: StaticState) -> int:
    """The time of the next event, or `NEVER`."""
    m = w.m
    at = NEVER
    if m[NEXT_PLANNED] < m[PLANNED]:
        at = m[m[PLAN_AT] + m[NEXT_PLANNED] * PLAN_COLUMNS + PLAN_TIME]
    if m[IN_RING]:
        at = min(at, next_in_ring(m))
    if m[FAR]:
        at = min(at, w.rare[m[FAR_AT] + FAR_TIME])
    return int(at)


@inlined
def _open(w: StaticState, now: int) -> bool:
    """Begin an instant; False if the pools must grow before far events can move."""
    m = w.m
    m[NOW] = now
    while m[FAR] and w.rare[m[FAR_AT] + FAR_TIME] - now < m[RING]:
        if _nearly_full(m):
            return False
        push(w, w.rare[m[FAR_AT] + FAR_TIME], w.rare[m[FAR_AT] + FAR_EVENT])
        pop_far(w)
    m[OPEN] = 1
    m[READ] = 0
    return True


@inlined
def _planned(w: StaticState) -> bool:
    """Make the publications planned for now; False if a pool is full."""
    m = w.m
    while m[NEXT_PLANNED] < m[PLANNED]:
        line = m[PLAN_AT] + m[NEXT_PLANNED] * PLAN_COLUMNS
        if m[line + PLAN_TIME] != m[NOW]:
            break
        if _nearly_full(m):
            return False
        m[NEXT_PLANNED] += 1
        _publish(w, m[line + PLAN_NODE], m[line + PLAN_TOPIC], -1, m[line + PLAN_ANSWERER])
    return True


@inlined
def _run(w: StaticState, budget: int) -> int:
    m = w.m
    while True:
        if not m[OPEN]:
            now = _next_instant(w)
            if now == NEVER:
                return DONE
            if now > m[UNTIL]:
                return UNFINISHED
            if budget <= 0:
                return PAUSED
            if not _open(w, now):
                return FULL
        if not _planned(w):
            return FULL
        bucket = bucket_of(m, m[NOW])
        while True:
            if _nearly_full(m):
                return FULL
            event = take(w, bucket)
            if event < 0:
                break
            budget -= 1
            if m[NETWORK] == SERVICE and not event & SERVED and _must_wait(w, event):
                continue
            _handle(w, event)
        close(w, bucket)
        m[OPEN] = 0


def _make_advance(digest: str) -> Callable[[Longs, Longs, Longs, Longs, Longs, int], int]:
    """The entry point; see `cubecast.kernel.shared.jit` for the digest."""

    @entry
    def advance(m: Longs, slots: Longs, recs: Longs, pool: Longs, rare: Longs, budget: int) -> int:
        """Work off up to about `budget` events; return how that ended."""
        if len(digest) == 0:  # never: this makes the digest part of the cache's key
            return PAUSED
        w = StaticState(
            memory_of(m), memory_of(slots), memory_of(recs), memory_of(pool), memory_of(rare)
        )
        return _run(w, budget)

    return advance


advance = _make_advance(sources_digest(__package__))
