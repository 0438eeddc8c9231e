"""VCube-PS: [J] Algorithm 2 for static membership, as `cubecast.protocol.vcube_ps` does it."""

from __future__ import annotations

from cubecast.kernel.causal import accept, bits_of, deliver, note, stamp
from cubecast.kernel.jit import apart, inlined
from cubecast.kernel.layout import (
    BIT,
    BUSY,
    COUNTER,
    NEXT,
    NODES,
    NOW,
    QUEUE_HEAD,
    QUEUE_TAIL,
    REC_MISSING,
    REC_MSG,
    REC_NODE,
    REC_PARENT,
    SEQ,
    SOURCE,
    T_RECEIVE_ACK,
    TOPIC,
    TRACING,
    WAITING,
    State,
)
from cubecast.kernel.relay import WITH_MESSAGES, acknowledge, free_record, relay, whole_tree


@apart
def publish(w: State, msg: int, node: int) -> None:
    """Number a publication and queue it ([J] lines 5-12)."""
    w.msgs[msg, SEQ] = w.nodes[node, COUNTER]
    w.nodes[node, COUNTER] += 1
    row = w.msgs[msg, TOPIC] * w.s[NODES] + node
    w.msgs[msg, NEXT] = -1
    if w.rows[row, QUEUE_HEAD] < 0:
        w.rows[row, QUEUE_HEAD] = msg
    else:
        w.msgs[w.rows[row, QUEUE_TAIL], NEXT] = msg
    w.rows[row, QUEUE_TAIL] = msg
    w.s[WAITING] += 1
    propagate(w, row, node)


@apart
def propagate(w: State, row: int, node: int) -> None:
    """Send what is queued, unless a wave of ACKs is awaited ([J] lines 13-36)."""
    while w.rows[row, QUEUE_HEAD] >= 0 and not w.rows[row, BUSY]:
        msg = int(w.rows[row, QUEUE_HEAD])
        w.rows[row, QUEUE_HEAD] = w.msgs[msg, NEXT]
        w.s[WAITING] -= 1
        base = bits_of(w, w.msgs[msg, TOPIC], node)
        deliver(w, msg, node, w.s[NOW])
        stamp(w, msg, row, base)
        bit = w.msgs[msg, BIT]
        w.delivered[base + (bit >> 6)] |= 1 << (bit & 63)
        if relay(w, msg, node, whole_tree(w), -1):
            w.rows[row, BUSY] = 1


@inlined
def on_pub(w: State, msg: int, node: int, h: int, rec: int) -> None:
    """Pass a publication on, or answer for oneself alone; then take it ([J] lines 41-53, 62-68)."""
    if not relay(w, msg, node, h, rec):
        acknowledge(w, msg, node, rec)
    accept(w, msg, node)


@inlined
def on_ack(w: State, rec: int, sender: int) -> None:
    """A child's subtree has the message ([J] lines 54-61)."""
    node = int(w.recs[rec, REC_NODE])
    msg = int(w.recs[rec, REC_MSG])
    if w.s[TRACING] >= WITH_MESSAGES:
        note(w, T_RECEIVE_ACK, node, msg, sender)
    w.recs[rec, REC_MISSING] -= 1
    if w.recs[rec, REC_MISSING]:
        return
    parent = int(w.recs[rec, REC_PARENT])
    free_record(w, rec)
    if parent >= 0:
        acknowledge(w, msg, node, parent)
        return
    row = w.msgs[msg, TOPIC] * w.s[NODES] + w.msgs[msg, SOURCE]
    w.rows[row, BUSY] = 0
    propagate(w, row, node)
