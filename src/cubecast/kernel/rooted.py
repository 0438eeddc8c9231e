"""SRPT-S, SRPT-B and the fixed tree for static membership, as `cubecast.baselines` has them."""

from __future__ import annotations

from cubecast.kernel.causal import accept, bits_of, deliver, note, stamp
from cubecast.kernel.cube import is_in
from cubecast.kernel.jit import apart, inlined
from cubecast.kernel.layout import (
    DELEGATES,
    E_DELEGATE,
    FIXED,
    MEMBERS,
    NEXT,
    NODES,
    NOW,
    PROTOCOL,
    QUEUE_HEAD,
    REC_MISSING,
    ROOT,
    SENT,
    SEQ,
    SEQUENCE,
    SOURCE,
    T_RECEIVE_DELEGATE,
    T_SEND_DELEGATE,
    TOPIC,
    TRACING,
    WAITING,
    State,
)
from cubecast.kernel.network import control, event_of
from cubecast.kernel.relay import WITH_MESSAGES, free_record, relay, whole_tree


@apart
def publish(w: State, msg: int, node: int) -> None:
    """Hand a publication to the root of its topic."""
    topic = w.msgs[msg, TOPIC]
    row = topic * w.s[NODES] + node
    w.msgs[msg, SEQ] = w.rows[row, SEQUENCE]
    w.rows[row, SEQUENCE] += 1
    if w.s[PROTOCOL] == FIXED:
        stamp(w, msg, row, bits_of(w, topic, node))
    root = w.topics[topic, ROOT]
    if root == node:
        _at_root(w, msg)
        return
    if w.s[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_DELEGATE, node, msg, root)
    w.s[DELEGATES] += 1
    control(w, node, event_of(E_DELEGATE, node, msg))


@apart
def on_delegate(w: State, msg: int) -> None:
    """The root is asked to publish."""
    if w.s[TRACING] >= WITH_MESSAGES:
        root = w.topics[w.msgs[msg, TOPIC], ROOT]
        note(w, T_RECEIVE_DELEGATE, root, msg, w.msgs[msg, SOURCE])
    _at_root(w, msg)


@apart
def _at_root(w: State, msg: int) -> None:
    """Send a message down the tree; in the fixed tree those of a publisher in their order."""
    if w.s[PROTOCOL] != FIXED:
        _disseminate(w, msg)
        return
    row = w.msgs[msg, TOPIC] * w.s[NODES] + w.msgs[msg, SOURCE]
    w.msgs[msg, NEXT] = w.rows[row, QUEUE_HEAD]
    w.rows[row, QUEUE_HEAD] = msg
    w.s[WAITING] += 1
    following = _take_early(w, row)
    while following >= 0:
        w.rows[row, SENT] += 1
        w.s[WAITING] -= 1
        _disseminate(w, following)
        following = _take_early(w, row)


@apart
def _take_early(w: State, row: int) -> int:
    """The publication that is next in its publisher's order, if it is here, or -1."""
    before = -1
    msg = int(w.rows[row, QUEUE_HEAD])
    while msg >= 0:
        following = w.msgs[msg, NEXT]
        if w.msgs[msg, SEQ] == w.rows[row, SENT]:
            if before < 0:
                w.rows[row, QUEUE_HEAD] = following
            else:
                w.msgs[before, NEXT] = following
            return msg
        before, msg = msg, following
    return -1


@apart
def _disseminate(w: State, msg: int) -> None:
    root = w.topics[w.msgs[msg, TOPIC], ROOT]
    relay(w, msg, root, whole_tree(w), -1)
    _want(w, msg, root)


@inlined
def on_pub(w: State, msg: int, node: int, h: int, rec: int) -> None:
    """Pass a publication on, and take it if it is wanted here."""
    relay(w, msg, node, h, -1)
    w.recs[rec, REC_MISSING] -= 1
    if w.recs[rec, REC_MISSING] == 0:
        free_record(w, rec)
    _want(w, msg, node)


@inlined
def _want(w: State, msg: int, node: int) -> None:
    if not is_in(w, w.topics[w.msgs[msg, TOPIC], MEMBERS], node):
        return
    if w.s[PROTOCOL] == FIXED:
        accept(w, msg, node)
    else:
        deliver(w, msg, node, w.s[NOW])
