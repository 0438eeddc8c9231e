"""SRPT-S, SRPT-B and the fixed tree for static membership, as in `cubecast.baselines`."""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.causal import deliver, note, row_of, stamp
from cubecast.kernel.static.cube import is_in
from cubecast.kernel.static.holding import accept
from cubecast.kernel.static.network import control, event_of
from cubecast.kernel.static.relay import free_record, one_less, relay

from cubecast.kernel.static.layout import (  # isort: skip
    DELEGATES, DIMENSION, E_DELEGATE, FIXED, MEMBERS, MOST_EARLY, NEXT, NOW, PROTOCOL,
    QUEUE_HEAD, ROOT, SENT, SEQ, SEQUENCE, SOURCE, T_RECEIVE_DELEGATE, T_SEND_DELEGATE, TOPIC,
    TRACING, WAITING, WITH_MESSAGES, StaticState,
)  # fmt: skip


@inlined
def publish(w: StaticState, msg: int, node: int) -> None:
    """Hand a publication to the root of its topic."""
    m = w.m
    row = row_of(m, msg, node)
    m[msg + SEQ] = m[row + SEQUENCE]
    m[row + SEQUENCE] += 1
    if m[PROTOCOL] == FIXED:
        stamp(w, msg, row, node)
    root = m[m[msg + TOPIC] + ROOT]
    if root == node:
        _at_root(w, msg)
        return
    if m[TRACING] >= WITH_MESSAGES:
        note(w, T_SEND_DELEGATE, node, msg, root)
    m[DELEGATES] += 1
    control(w, node, event_of(E_DELEGATE, node, msg))


@inlined
def on_delegate(w: StaticState, msg: int) -> None:
    """Take a publication at the root."""
    m = w.m
    if m[TRACING] >= WITH_MESSAGES:
        note(w, T_RECEIVE_DELEGATE, m[m[msg + TOPIC] + ROOT], msg, m[msg + SOURCE])
    _at_root(w, msg)


@apart
def _at_root(w: StaticState, msg: int) -> None:
    """Send a message down the tree; in the fixed tree each publisher's in order."""
    m = w.m
    if m[PROTOCOL] != FIXED:
        _disseminate(w, msg)
        return
    row = row_of(m, msg, m[msg + SOURCE])
    m[msg + NEXT] = m[row + QUEUE_HEAD]
    m[row + QUEUE_HEAD] = msg
    m[WAITING] += 1
    following = _take_early(m, row)
    while following >= 0:
        m[row + SENT] += 1
        m[WAITING] -= 1
        _disseminate(w, following)
        following = _take_early(m, row)
    _note_early(m, row)


@inlined
def _note_early(m: Longs, row: int) -> None:
    waiting = 0
    msg = m[row + QUEUE_HEAD]
    while msg >= 0:
        waiting += 1
        msg = m[msg + NEXT]
    if waiting > m[MOST_EARLY]:
        m[MOST_EARLY] = waiting


@inlined
def _take_early(m: Longs, row: int) -> int:
    """The publication that is next in its publisher's order, if it is here, or -1."""
    before = -1
    msg = m[row + QUEUE_HEAD]
    while msg >= 0:
        following = m[msg + NEXT]
        if m[msg + SEQ] == m[row + SENT]:
            if before < 0:
                m[row + QUEUE_HEAD] = following
            else:
                m[before + NEXT] = following
            return int(msg)
        before, msg = msg, following
    return -1


@apart
def _disseminate(w: StaticState, msg: int) -> None:
    root = w.m[w.m[msg + TOPIC] + ROOT]
    relay(w, msg, root, w.m[DIMENSION], -1)
    _want(w, msg, root)


@inlined
def on_pub(w: StaticState, msg: int, node: int, h: int, rec: int) -> None:
    """Pass a publication on, and take it if the node subscribes."""
    relay(w, msg, node, h, -1)
    if one_less(w, rec):
        free_record(w, rec)
    _want(w, msg, node)


@apart
def _want(w: StaticState, msg: int, node: int) -> None:
    m = w.m
    if not is_in(m, m[m[msg + TOPIC] + MEMBERS], node):
        return
    if m[PROTOCOL] == FIXED:
        accept(w, msg, node)
    else:
        deliver(w, msg, node, m[NOW])
