"""Passing publications on: the receivers of a node's copies, and the record that it keeps.

A record stands for one node that passed one message on.  Each copy names the record, so that the
receiver finds message and sender there.  With ACKs it lives until all children have answered;
without, until all have received.
"""

from __future__ import annotations

from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.causal import note
from cubecast.kernel.static.cube import any_in_block, is_in, nearest
from cubecast.kernel.static.network import (
    control,
    departed,
    departure,
    event_of,
    node_at,
    send_copy,
)

from cubecast.kernel.static.layout import (  # isort: skip
    ACKS, AT, BLOCK_END, BROKER, E_ACK, E_PUB, FREE_REC, H_SHIFT, MEMBERS, NOW, PROTOCOL, PUBS,
    REC_MASK, REC_SHIFT, REC_WORDS, RECS, SRPT, T_SEND_ACK, T_SEND_PUB, TOPIC, TRACING, TREE,
    TREE_SUM, WITH_MESSAGES, StaticState,
)  # fmt: skip


@inlined
def _new_record(w: StaticState) -> int:
    m = w.m
    rec = m[FREE_REC]
    if rec >= 0:
        m[FREE_REC] = w.recs[rec]
    else:
        rec = m[RECS] * REC_WORDS
        m[RECS] += 1
    return int(rec)


@inlined
def free_record(w: StaticState, rec: int) -> None:
    w.recs[rec] = w.m[FREE_REC]
    w.m[FREE_REC] = rec


@inlined
def msg_of(w: StaticState, rec: int) -> int:
    return int(w.recs[rec] >> REC_SHIFT)


@inlined
def node_of(w: StaticState, rec: int) -> int:
    return int(w.recs[rec] & REC_MASK)


@inlined
def parent_of(w: StaticState, rec: int) -> int:
    """The record of the node that sent the message here, or -1."""
    return int(w.recs[rec + 1] >> REC_SHIFT) - 1


@inlined
def one_less(w: StaticState, rec: int) -> bool:
    """Count one missing child less; return whether it was the last."""
    w.recs[rec + 1] -= 1
    return bool(w.recs[rec + 1] & REC_MASK == 0)


@apart
def relay(w: StaticState, msg: int, node: int, h: int, parent: int) -> int:
    """Send to the first of each cluster 1 … h, in this order; return the number of copies.

    A broker then sends to its own subscribers.
    """
    m = w.m
    tree = m[m[msg + TOPIC] + TREE]
    leaves = departure(m, node)
    copies = 0
    rec = -1
    for k in range(h):
        peer = node ^ (1 << k)
        if not any_in_block(m, tree, peer, k):
            continue
        if m[PROTOCOL] != SRPT:
            peer = nearest(m, tree, peer, k)
        if rec < 0:
            rec = _new_record(w)
        _send(w, msg, node, leaves, copies, event_of(E_PUB, peer, rec) | k << H_SHIFT, peer)
        copies += 1
    if m[PROTOCOL] == BROKER:
        members = m[m[msg + TOPIC] + MEMBERS]
        for peer in range(node + 1, m[node_at(m, node) + BLOCK_END]):
            if is_in(m, members, peer):
                if rec < 0:
                    rec = _new_record(w)
                _send(w, msg, node, leaves, copies, event_of(E_PUB, peer, rec), peer)
                copies += 1
                m[TREE_SUM] += m[NOW] - m[msg + AT]
    if copies:
        w.recs[rec] = msg << REC_SHIFT | node
        w.recs[rec + 1] = (parent + 1) << REC_SHIFT | copies
        m[PUBS] += copies
        departed(m, node, leaves, copies)
    return copies


@inlined
def _send(
    w: StaticState, msg: int, node: int, leaves: int, copy: int, event: int, peer: int
) -> None:
    if w.m[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_PUB, node, msg, peer)
    send_copy(w, leaves, copy, event)


@inlined
def acknowledge(w: StaticState, msg: int, node: int, rec: int) -> None:
    """Tell the node of the record `rec` that the subtree of `node` has the message."""
    if w.m[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_ACK, node, msg, node_of(w, rec))
    w.m[ACKS] += 1
    control(w, node, event_of(E_ACK, node, rec))
