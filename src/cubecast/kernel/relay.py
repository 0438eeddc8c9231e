"""Passing publications on: whom a node sends to, and the record that it keeps of it.

A record stands for one node that passed one message on.  What it sends names the record, so that
the receiver finds message and sender there.  With ACKs it lives until all children have answered;
without, until all have received.
"""

from __future__ import annotations

from cubecast.kernel.causal import note
from cubecast.kernel.cube import any_in_block, is_in, nearest
from cubecast.kernel.jit import inlined
from cubecast.kernel.layout import (
    ACKS,
    AT,
    BLOCK_END,
    BROKER,
    DIMENSION,
    E_ACK,
    E_PUB,
    FREE_REC,
    H_SHIFT,
    MEMBERS,
    NOW,
    PROTOCOL,
    PUBS,
    REC_MISSING,
    REC_MSG,
    REC_NODE,
    REC_PARENT,
    RECS,
    SRPT,
    T_SEND_ACK,
    T_SEND_PUB,
    TOPIC,
    TRACING,
    TREE,
    TREE_SUM,
    State,
)
from cubecast.kernel.network import control, departed, departure, event_of, send_copy

WITH_MESSAGES = 2
"""`TRACING` at least this: sends and receives are traced, too."""


@inlined
def new_record(w: State, msg: int, node: int, parent: int) -> int:
    rec = w.s[FREE_REC]
    if rec >= 0:
        w.s[FREE_REC] = w.recs[rec, REC_PARENT]
    else:
        rec = w.s[RECS]
        w.s[RECS] += 1
    w.recs[rec, REC_MSG] = msg
    w.recs[rec, REC_NODE] = node
    w.recs[rec, REC_PARENT] = parent
    return int(rec)


@inlined
def free_record(w: State, rec: int) -> None:
    w.recs[rec, REC_PARENT] = w.s[FREE_REC]
    w.s[FREE_REC] = rec


@inlined
def relay(w: State, msg: int, node: int, h: int, parent: int) -> int:
    """Send to the first of each cluster 1 … h, in this order; how many copies that made.

    A broker then sends to its own subscribers.
    """
    topic = w.msgs[msg, TOPIC]
    tree = w.topics[topic, TREE]
    brokers = w.s[PROTOCOL] == BROKER
    if h == 0 and not brokers:
        return 0
    leaves = departure(w, node)
    copies = 0
    rec = -1
    for k in range(h):
        peer = node ^ (1 << k)
        if not any_in_block(w, tree, peer, k):
            continue
        if w.s[PROTOCOL] != SRPT:
            peer = nearest(w, tree, peer, k)
        if rec < 0:
            rec = new_record(w, msg, node, parent)
        _copy(w, msg, node, leaves, copies, rec, peer, k)
        copies += 1
    if brokers:
        in_tree = copies
        for peer in range(node + 1, w.nodes[node, BLOCK_END]):
            if is_in(w, w.topics[topic, MEMBERS], peer):
                if rec < 0:
                    rec = new_record(w, msg, node, parent)
                _copy(w, msg, node, leaves, copies, rec, peer, 0)
                copies += 1
        w.s[TREE_SUM] += (copies - in_tree) * (w.s[NOW] - w.msgs[msg, AT])
    if copies:
        w.recs[rec, REC_MISSING] = copies
        w.s[PUBS] += copies
        departed(w, node, leaves, copies)
    return copies


@inlined
def _copy(
    w: State, msg: int, node: int, leaves: int, copy: int, rec: int, peer: int, k: int
) -> None:
    if w.s[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_PUB, node, msg, peer)
    send_copy(w, leaves, copy, event_of(E_PUB, peer, rec) | k << H_SHIFT)


@inlined
def acknowledge(w: State, msg: int, node: int, rec: int) -> None:
    """Tell whoever keeps the record `rec` that the subtree of `node` has the message."""
    if w.s[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_ACK, node, msg, w.recs[rec, REC_NODE])
    w.s[ACKS] += 1
    control(w, node, event_of(E_ACK, node, rec))


@inlined
def whole_tree(w: State) -> int:
    """The h of a tree's root: all clusters."""
    return int(w.s[DIMENSION])
