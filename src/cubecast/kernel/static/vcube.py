"""[J] Algorithm 2 for static membership, as in `cubecast.protocol.paper.vcube_ps`."""

from __future__ import annotations

from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.causal import deliver, note, row_of, set_of, stamp
from cubecast.kernel.static.holding import accept
from cubecast.kernel.static.network import node_at
from cubecast.kernel.static.relay import (
    acknowledge,
    free_record,
    msg_of,
    node_of,
    one_less,
    parent_of,
    relay,
)
from cubecast.kernel.static.turns import next_turn

from cubecast.kernel.static.layout import (  # isort: skip
    BIT, BUSY, COUNTER, DELIVERED, DIMENSION, NEXT, NOW, QUEUE_HEAD, QUEUE_TAIL, SEQ,
    T_RECEIVE_ACK, TRACING, TURNS_AT, WAITING, WITH_MESSAGES, StaticState,
)  # fmt: skip


@inlined
def publish(w: StaticState, msg: int, node: int) -> None:
    """Number a publication and queue it ([J] lines 5-12)."""
    m = w.m
    m[msg + SEQ] = m[node_at(m, node) + COUNTER]
    m[node_at(m, node) + COUNTER] += 1
    row = row_of(m, msg, node)
    m[msg + NEXT] = -1
    if m[row + QUEUE_HEAD] < 0:
        m[row + QUEUE_HEAD] = msg
    else:
        m[m[row + QUEUE_TAIL] + NEXT] = msg
    m[row + QUEUE_TAIL] = msg
    m[WAITING] += 1
    propagate(w, row, node)


@apart
def propagate(w: StaticState, row: int, node: int) -> None:
    """Send queued publications, unless a wave of ACKs is awaited ([J] lines 13-36)."""
    m = w.m
    while m[row + QUEUE_HEAD] >= 0 and not m[row + BUSY]:
        msg = m[row + QUEUE_HEAD]
        m[row + QUEUE_HEAD] = m[msg + NEXT]
        m[WAITING] -= 1
        deliver(w, msg, node, m[NOW])
        if m[TURNS_AT]:
            next_turn(w, node)
        stamp(w, msg, row, node)
        bit = m[msg + BIT]
        m[set_of(m, DELIVERED, msg, node) + (bit >> 6)] |= 1 << (bit & 63)
        if relay(w, msg, node, m[DIMENSION], -1):
            m[row + BUSY] = 1


@inlined
def on_pub(w: StaticState, msg: int, node: int, h: int, rec: int) -> None:
    """Pass a publication on, or acknowledge it alone; then take it ([J] lines 41-53, 62-68)."""
    if h == 0 or not relay(w, msg, node, h, rec):
        acknowledge(w, msg, node, rec)
    accept(w, msg, node)


@inlined
def on_ack(w: StaticState, rec: int, sender: int) -> None:
    """Take the ACK of a child's subtree ([J] lines 54-61)."""
    node = node_of(w, rec)
    msg = msg_of(w, rec)
    if w.m[TRACING] >= WITH_MESSAGES:
        note(w, T_RECEIVE_ACK, node, msg, sender)
    if not one_less(w, rec):
        return
    parent = parent_of(w, rec)
    free_record(w, rec)
    if parent >= 0:
        acknowledge(w, msg, node, parent)
        return
    row = row_of(w.m, msg, node)
    w.m[row + BUSY] = 0
    propagate(w, row, node)
