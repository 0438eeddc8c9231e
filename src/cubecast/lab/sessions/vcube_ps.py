"""VCube-PS ([J] Algorithms 1 and 2), but for the order of delivery."""

from __future__ import annotations

from cubecast.kernel.jit import apart, forced, inlined
from cubecast.lab.sessions.events import (
    free_entries,
    joined,
    new_event,
    new_message,
    release,
    wide,
)
from cubecast.lab.sessions.layout import (
    ACK,
    COUNTER,
    ENTRIES,
    FREE_ENTRY,
    LIFE,
    M_KIND,
    M_NEXT,
    M_RC,
    M_REFS,
    M_SOURCE,
    NOBODY,
    NODES,
    OWN,
    OWN_RC,
    P_HEAD,
    P_LIFE,
    P_PARENT,
    P_TAIL,
    PUB,
    Q_HEAD,
    Q_TAIL,
    SENDING,
    SUB,
    T_NEXT,
    T_NODE,
    T_RC,
    UNS,
    WAIT,
    State,
)
from cubecast.lab.sessions.network import put, send_all, send_control


@forced
def learn(w: State, node: int, other: int, rc: int, present: int) -> None:
    """UPDATE, lines 75-82: of two entries for one node the one with the higher rc stays."""
    if rc > w.known[node, other]:
        w.known[node, other] = rc
        put(w.tries[node], w.s[NODES], other, present)


@inlined
def learn_all(w: State, node: int, head: int) -> None:
    while head >= 0:
        learn(w, node, wide(w.entries[head, T_NODE]), wide(w.entries[head, T_RC]), 1)
        head = w.entries[head, T_NEXT]


@inlined
def send_ack(w: State, node: int, msg: int, parent: int, head: int, tail: int) -> None:
    """SENDACKS, lines 95-98."""
    if w.nodes[node, OWN] and not w.heard[node, w.messages[msg, M_SOURCE]]:
        entry = w.s[FREE_ENTRY]
        if entry >= 0:
            w.s[FREE_ENTRY] = w.entries[entry, T_NEXT]
        else:
            entry = w.s[ENTRIES]
            w.s[ENTRIES] += 1
        w.entries[entry, T_NODE] = node
        w.entries[entry, T_RC] = w.nodes[node, OWN_RC]
        w.entries[entry, T_NEXT] = -1
        if head < 0:
            head = entry
        else:
            w.entries[tail, T_NEXT] = entry
        tail = entry
    w.messages[msg, M_REFS] += 1
    send_control(w, node, new_event(w, ACK, parent, node, msg, head, tail))


@forced
def await_acks(w: State, node: int, msg: int, parent: int, copies: int) -> None:
    """⟨j, nb, …⟩ of *acks*; an earlier one for the same message is replaced."""
    pending = w.pending[msg, node]
    if w.missing[msg, node]:
        free_entries(w, wide(pending[P_HEAD]), wide(pending[P_TAIL]))
    w.missing[msg, node] = copies
    pending[P_PARENT], pending[P_HEAD], pending[P_TAIL] = parent, -1, -1
    pending[P_LIFE] = w.nodes[node, LIFE]


@apart
def broadcast(w: State, node: int, kind: int) -> None:
    """CO_BROADCAST, lines 5-12."""
    msg = new_message(w, kind, node, w.nodes[node, COUNTER])
    w.nodes[node, COUNTER] += 1
    if w.nodes[node, Q_HEAD] < 0:
        w.nodes[node, Q_HEAD] = msg
    else:
        w.messages[w.nodes[node, Q_TAIL], M_NEXT] = msg
    w.nodes[node, Q_TAIL] = msg
    propagate(w, node)


@apart
def propagate(w: State, node: int) -> None:
    """Lines 13-36: one message after the other, each when the ACKs of the one before are back."""
    while w.nodes[node, Q_HEAD] >= 0 and w.nodes[node, SENDING] < 0:
        msg = w.nodes[node, Q_HEAD]
        w.nodes[node, Q_HEAD] = w.messages[msg, M_NEXT]
        w.nodes[node, SENDING] = msg
        if w.messages[msg, M_KIND] == PUB:
            w.heard[node, node] = 1
        copies = send_all(w, node, msg)
        if copies:
            await_acks(w, node, msg, NOBODY, copies)
        else:
            wave_complete(w, node)


@apart
def wave_complete(w: State, node: int) -> None:
    """Lines 31-36."""
    msg = w.nodes[node, SENDING]
    w.nodes[node, SENDING] = -1
    kind = w.messages[msg, M_KIND]
    if kind == UNS:
        w.heard[node, :] = 0
    elif kind == SUB and w.nodes[node, OWN] and w.nodes[node, OWN_RC] == w.messages[msg, M_RC]:
        joined(w, node)
    release(w, msg)


@inlined
def take(w: State, node: int, msg: int) -> None:
    """Lines 62-74: what a subscriber does with PUB, SUB or UNS."""
    if w.nodes[node, OWN]:
        kind, source = w.messages[msg, M_KIND], w.messages[msg, M_SOURCE]
        if kind == PUB:
            w.heard[node, source] = 1
        else:
            learn(w, node, source, w.messages[msg, M_RC], 1 if kind == SUB else 0)
            if kind == UNS:
                w.heard[node, source] = 0


@inlined
def gather(w: State, node: int, msg: int, head: int, tail: int) -> int:
    """Lines 55-61 and 69-70: an ACK has come, with entries from `head` to `tail`.

    Returns who is to be told that the subtree has the message: nobody yet (`WAIT`), or nobody at
    all, as this is its source.  The entries are kept with the message.  Those that this
    subscription's view has taken already need not be applied again: it only takes later ones.
    """
    pending = w.pending[msg, node]
    fresh = head
    if pending[P_HEAD] >= 0:
        if head >= 0:
            w.entries[pending[P_TAIL], T_NEXT] = head
        else:
            tail = pending[P_TAIL]
        head = pending[P_HEAD]
    if pending[P_LIFE] != w.nodes[node, LIFE]:
        fresh = head
    pending[P_HEAD], pending[P_TAIL] = head, tail
    w.missing[msg, node] -= 1
    if w.nodes[node, OWN]:
        learn_all(w, node, fresh)
        pending[P_LIFE] = w.nodes[node, LIFE]
    else:
        pending[P_LIFE] = -1
    return WAIT if w.missing[msg, node] else pending[P_PARENT]


@apart
def finish(w: State, node: int, msg: int) -> None:
    """The source of a message has all ACKs."""
    free_entries(w, wide(w.pending[msg, node, P_HEAD]), wide(w.pending[msg, node, P_TAIL]))
    wave_complete(w, node)
    propagate(w, node)
