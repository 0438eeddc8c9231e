"""The loop: instants in order, events of an instant in the order they were planned.

`advance` is the kernel's only entry point.  It returns when the run is over, when a pool is nearly
full, and now and then so that the caller can be interrupted; called again with the same state it
goes on where it was.
"""

from __future__ import annotations

from cubecast.kernel import rooted, vcube
from cubecast.kernel.calendar import NEVER, far_pop, free_chunk, next_in_ring, push
from cubecast.kernel.causal import note
from cubecast.kernel.cube import is_in
from cubecast.kernel.jit import apart, entry, inlined, sources_digest
from cubecast.kernel.layout import (
    ANSWERER,
    APPLICATION,
    AT,
    BLOCK_END,
    BROKER,
    CHUNK,
    CHUNK_BITS,
    CHUNK_SIZE,
    CHUNKS,
    DISCUSSION,
    DONE,
    E_ACK,
    E_ANSWER,
    E_DELEGATE,
    E_PUB,
    E_TELL,
    FALSE_POSITIVES,
    FANOUT,
    FAR,
    FREE,
    FULL,
    H_SHIFT,
    HELD,
    HOLDING,
    IN_RING,
    MEMBERS,
    NETWORK,
    NODE_MASK,
    NODE_SHIFT,
    NOW,
    OFFSET,
    OPEN,
    PAUSED,
    PAYLOAD_SHIFT,
    PLAN_AT,
    POOL,
    PROTOCOL,
    PUBLISHED,
    REC_MSG,
    REC_NODE,
    RECEPTION_SUM,
    RECEPTIONS,
    RECS,
    REPLY,
    RING,
    ROOT,
    SERVED,
    SERVICE,
    SOURCE,
    T_PUBLISH,
    T_RECEIVE_PUB,
    TOPIC,
    TRACED,
    TRACING,
    TREE_SUM,
    UNFINISHED,
    UNTIL,
    VCUBE,
    WAIT,
    WIDEST,
    State,
)
from cubecast.kernel.network import event_of
from cubecast.kernel.relay import WITH_MESSAGES

_DIGEST = sources_digest()
EVERYTHING_SEEN = -2


# -- the application -------------------------------------------------------------------------------


@apart
def _publish(w: State, node: int, topic: int, reply: int, answerer: int) -> None:
    """An application publishes."""
    msg = w.s[PUBLISHED]
    w.s[PUBLISHED] += 1
    w.msgs[msg, SOURCE] = node
    w.msgs[msg, TOPIC] = topic
    w.msgs[msg, AT] = w.s[NOW]
    w.sums[msg, REPLY] = reply
    w.sums[msg, ANSWERER] = answerer
    if w.s[TRACING]:
        note(w, T_PUBLISH, node, msg, -1)
    if w.s[PROTOCOL] == VCUBE:
        vcube.publish(w, msg, node)
    else:
        rooted.publish(w, msg, node)


@apart
def _tell(w: State, node: int, msg: int) -> None:
    """An application is told of a delivery, and may answer."""
    topic = w.msgs[msg, TOPIC]
    if w.s[APPLICATION] == DISCUSSION:
        if w.seen[node] < 0:
            return
        w.seen[node] += 1
        if w.seen[node] >= w.s[WAIT]:
            w.seen[node] = -1
            push(w, w.s[NOW] + w.think[node], event_of(E_ANSWER, node, topic))
    elif w.sums[msg, ANSWERER] == node:
        _publish(w, node, topic, msg, -1)


# -- events ----------------------------------------------------------------------------------------


@inlined
def _received(w: State, msg: int, node: int, sender: int) -> None:
    """Count and record a publication that arrives."""
    if is_in(w, w.topics[w.msgs[msg, TOPIC], MEMBERS], node):
        w.sums[msg, RECEPTIONS] += 1
        w.sums[msg, RECEPTION_SUM] += w.s[NOW] - w.msgs[msg, AT]
        if w.s[PROTOCOL] == BROKER and w.nodes[node, BLOCK_END]:
            w.s[TREE_SUM] += w.s[NOW] - w.msgs[msg, AT]
    else:
        w.s[FALSE_POSITIVES] += 1
    if w.s[TRACING] >= WITH_MESSAGES:
        note(w, T_RECEIVE_PUB, node, msg, sender)


@apart
def _must_wait(w: State, event: int) -> bool:
    """[B] 6: a node handles one message per u.t.; what comes meanwhile waits its turn."""
    kind = event & 7
    payload = event >> PAYLOAD_SHIFT
    if kind == E_PUB:
        node = (event >> NODE_SHIFT) & NODE_MASK
    elif kind == E_ACK:
        node = int(w.recs[payload, REC_NODE])
    elif kind == E_DELEGATE:
        node = w.topics[w.msgs[payload, TOPIC], ROOT]
    else:
        return False
    turn = w.nodes[node, FREE]
    if turn <= w.s[NOW]:
        w.nodes[node, FREE] = w.s[NOW] + 1
        return False
    w.nodes[node, FREE] = turn + 1
    push(w, turn, event | SERVED)
    return True


@inlined
def _handle(w: State, event: int) -> None:
    kind = event & 7
    node = (event >> NODE_SHIFT) & NODE_MASK
    payload = event >> PAYLOAD_SHIFT
    if kind == E_PUB:
        msg = int(w.recs[payload, REC_MSG])
        _received(w, msg, node, int(w.recs[payload, REC_NODE]))
        h = (event >> H_SHIFT) & 31
        if w.s[PROTOCOL] == VCUBE:
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
        _publish(w, node, payload, EVERYTHING_SEEN, -1)


# -- the loop --------------------------------------------------------------------------------------


@inlined
def _nearly_full(w: State) -> bool:
    """Whether the next event might not find room in some pool."""
    s = w.s
    copies = s[FANOUT] + 4
    told = s[HOLDING]
    return (
        s[CHUNKS] + copies + (told >> CHUNK_BITS) > len(w.links)
        or s[RECS] + 1 > len(w.recs)
        or s[HELD] + 1 > len(w.held)
        or s[FAR] + copies > len(w.far)
        or s[POOL] + s[WIDEST] > len(w.pool)
        or s[TRACED] + 2 * copies + told > len(w.trace)
    )


@apart
def _next_instant(w: State) -> int:
    """The time of the next event, or `NEVER`."""
    at = NEVER
    if w.s[PLAN_AT] < len(w.plan):
        at = w.plan[w.s[PLAN_AT], 0]
    if w.s[IN_RING]:
        at = min(at, next_in_ring(w))
    if w.s[FAR]:
        at = min(at, w.far[0, 0])
    return at


@apart
def _open(w: State, now: int) -> bool:
    """Begin an instant; False if the pools must grow before what is far away can move."""
    w.s[NOW] = now
    while w.s[FAR] and w.far[0, 0] - now < w.s[RING]:
        if _nearly_full(w):
            return False
        push(w, w.far[0, 0], w.far[0, 2])
        far_pop(w)
    w.s[OPEN] = 1
    w.s[CHUNK] = 0
    w.s[OFFSET] = 0
    return True


@inlined
def _close(w: State, bucket: int) -> None:
    """Everything of an instant is done."""
    if w.s[CHUNK]:
        free_chunk(w, w.s[CHUNK])
    w.heads[bucket] = 0
    w.writes[bucket] = 0
    w.s[OPEN] = 0


@apart
def _planned(w: State) -> bool:
    """Publish what was planned for now; False if a pool is full."""
    while w.s[PLAN_AT] < len(w.plan) and w.plan[w.s[PLAN_AT], 0] == w.s[NOW]:
        if _nearly_full(w):
            return False
        line = w.s[PLAN_AT]
        w.s[PLAN_AT] += 1
        _publish(w, w.plan[line, 1], w.plan[line, 2], -1, w.plan[line, 3])
    return True


@inlined
def _take_event(w: State, bucket: int) -> int:
    """The next event of the open instant, or -1."""
    chunk = w.s[CHUNK]
    offset = w.s[OFFSET]
    if (chunk << CHUNK_BITS) + offset == w.writes[bucket]:
        return -1
    if chunk == 0:
        chunk = w.heads[bucket]
    elif offset == CHUNK_SIZE:
        following = w.links[chunk]
        free_chunk(w, chunk)
        chunk = following
        offset = 0
    w.s[CHUNK] = chunk
    w.s[OFFSET] = offset + 1
    w.s[IN_RING] -= 1
    return int(w.slots[(chunk << CHUNK_BITS) + offset])


def _make_advance(digest: str):  # type: ignore[no-untyped-def]
    """The entry point; see `cubecast.kernel.jit` for the digest."""

    @entry
    def advance(w: State, budget: int) -> int:
        """Work off up to about `budget` events; how that ended."""
        key = digest  # noqa: F841  # makes the digest part of the cache's key
        while True:
            if not w.s[OPEN]:
                now = _next_instant(w)
                if now == NEVER:
                    return DONE
                if now > w.s[UNTIL]:
                    return UNFINISHED
                if budget <= 0:
                    return PAUSED
                if not _open(w, now):
                    return FULL
            if not _planned(w):
                return FULL
            bucket = w.s[NOW] & (w.s[RING] - 1)
            while True:
                if _nearly_full(w):
                    return FULL
                event = _take_event(w, bucket)
                if event < 0:
                    break
                budget -= 1
                if w.s[NETWORK] == SERVICE and not event & SERVED and _must_wait(w, event):
                    continue
                _handle(w, event & ~SERVED)
            _close(w, bucket)

    return advance


advance = _make_advance(_DIGEST)
