"""VCube-PS ([J] Algorithms 1 and 2), without the order of delivery."""

from __future__ import annotations

from cubecast.kernel.churn.events import (
    free_entries,
    joined,
    new_event,
    new_message,
    pending_of,
    release,
)
from cubecast.kernel.churn.network import put, send_all, send_control
from cubecast.kernel.shared.jit import apart, forced

from cubecast.kernel.churn.layout import (  # isort: skip
    ACK, COUNTER, ENTRIES, ENTRY, FREE_ENTRY, LIFE, M_KIND, M_NEXT, M_RC, M_REFS, M_SOURCE,
    MESSAGE, NOBODY, NODE, NODES, OWN, OWN_RC, P_HEAD, P_LIFE, P_MISSING, P_PARENT, P_TAIL, PUB,
    Q_HEAD, Q_TAIL, SENDING, SUB, T_NEXT, T_NODE, T_RC, UNS, WAIT, ChurnState,
)  # fmt: skip


@forced
def learn(w: ChurnState, node: int, other: int, rc: int, present: int) -> None:
    """UPDATE, lines 75-82: of two entries for one node the one with the higher rc stays."""
    size = w.s[NODES]
    if rc > w.known[node * size + other]:
        w.known[node * size + other] = rc
        put(w.tries, 2 * size * node, size, other, present)


@forced
def learn_all(w: ChurnState, node: int, head: int) -> None:
    while head >= 0:
        learn(w, node, w.entries[head + T_NODE], w.entries[head + T_RC], 1)
        head = w.entries[head + T_NEXT]


@forced
def send_ack(w: ChurnState, node: int, msg: int, parent: int, head: int, tail: int) -> None:
    """SENDACKS, lines 95-98."""
    source = w.messages[msg * MESSAGE + M_SOURCE]
    if w.nodes[node * NODE + OWN] and not w.heard[source * w.s[NODES] + node]:
        entry = w.s[FREE_ENTRY]
        if entry >= 0:
            w.s[FREE_ENTRY] = w.entries[entry + T_NEXT]
        else:
            entry = w.s[ENTRIES]
            w.s[ENTRIES] += ENTRY
        w.entries[entry + T_NODE] = node
        w.entries[entry + T_RC] = w.nodes[node * NODE + OWN_RC]
        w.entries[entry + T_NEXT] = -1
        if head < 0:
            head = entry
        else:
            w.entries[tail + T_NEXT] = entry
        tail = entry
    w.messages[msg * MESSAGE + M_REFS] += 1
    send_control(w, node, new_event(w, ACK, parent, node, msg, head, tail))


@forced
def await_acks(w: ChurnState, node: int, msg: int, parent: int, copies: int) -> None:
    """⟨j, nb, …⟩ of *acks*; an earlier one for the same message is replaced."""
    row = pending_of(w, msg, node)
    if w.pending[row + P_MISSING]:
        free_entries(w, w.pending[row + P_HEAD], w.pending[row + P_TAIL])
    w.pending[row + P_MISSING] = copies
    w.pending[row + P_PARENT] = parent
    w.pending[row + P_HEAD] = -1
    w.pending[row + P_TAIL] = -1
    w.pending[row + P_LIFE] = w.nodes[node * NODE + LIFE]


@apart
def broadcast(w: ChurnState, node: int, kind: int) -> None:
    """CO_BROADCAST, lines 5-12."""
    msg = new_message(w, kind, node, w.nodes[node * NODE + COUNTER])
    w.nodes[node * NODE + COUNTER] += 1
    if w.nodes[node * NODE + Q_HEAD] < 0:
        w.nodes[node * NODE + Q_HEAD] = msg
    else:
        w.messages[w.nodes[node * NODE + Q_TAIL] * MESSAGE + M_NEXT] = msg
    w.nodes[node * NODE + Q_TAIL] = msg
    propagate(w, node)


@apart
def propagate(w: ChurnState, node: int) -> None:
    """Lines 13-36: one message after the other, each when the ACKs of the one before are back."""
    while w.nodes[node * NODE + Q_HEAD] >= 0 and w.nodes[node * NODE + SENDING] < 0:
        msg = w.nodes[node * NODE + Q_HEAD]
        w.nodes[node * NODE + Q_HEAD] = w.messages[msg * MESSAGE + M_NEXT]
        w.nodes[node * NODE + SENDING] = msg
        if w.messages[msg * MESSAGE + M_KIND] == PUB:
            w.heard[node * w.s[NODES] + node] = 1
        copies = send_all(w, node, msg)
        if copies:
            await_acks(w, node, msg, NOBODY, copies)
        else:
            wave_complete(w, node)


@apart
def wave_complete(w: ChurnState, node: int) -> None:
    """Lines 31-36."""
    msg = w.nodes[node * NODE + SENDING]
    w.nodes[node * NODE + SENDING] = -1
    kind, rc = w.messages[msg * MESSAGE + M_KIND], w.messages[msg * MESSAGE + M_RC]
    if kind == UNS:
        for other in range(w.s[NODES]):
            w.heard[other * w.s[NODES] + node] = 0
    elif kind == SUB and w.nodes[node * NODE + OWN] and w.nodes[node * NODE + OWN_RC] == rc:
        joined(w, node)
    release(w, msg)


@forced
def take(w: ChurnState, node: int, msg: int) -> None:
    """Lines 62-74: take PUB, SUB or UNS at a subscriber."""
    if w.nodes[node * NODE + OWN]:
        kind, source = w.messages[msg * MESSAGE + M_KIND], w.messages[msg * MESSAGE + M_SOURCE]
        if kind == PUB:
            w.heard[source * w.s[NODES] + node] = 1
        else:
            learn(w, node, source, w.messages[msg * MESSAGE + M_RC], kind == SUB)
            if kind == UNS:
                w.heard[source * w.s[NODES] + node] = 0


@forced
def gather(w: ChurnState, node: int, msg: int, head: int, tail: int) -> int:
    """Lines 55-61 and 69-70: take an ACK, with entries from `head` to `tail`.

    Returns the parent to acknowledge to: `WAIT` if ACKs are missing, `NOBODY` at the source.  The
    entries are kept with the message.  Entries that this subscription's view has taken already
    need not be applied again: it only takes later ones.
    """
    row = pending_of(w, msg, node)
    fresh = head
    kept = w.pending[row + P_HEAD]
    if kept >= 0:
        if head >= 0:
            w.entries[w.pending[row + P_TAIL] + T_NEXT] = head
        else:
            tail = w.pending[row + P_TAIL]
        head = kept
    if w.pending[row + P_LIFE] != w.nodes[node * NODE + LIFE]:
        fresh = head
    w.pending[row + P_HEAD] = head
    w.pending[row + P_TAIL] = tail
    w.pending[row + P_MISSING] -= 1
    if w.nodes[node * NODE + OWN]:
        learn_all(w, node, fresh)
        w.pending[row + P_LIFE] = w.nodes[node * NODE + LIFE]
    else:
        w.pending[row + P_LIFE] = -1
    return int(WAIT if w.pending[row + P_MISSING] else w.pending[row + P_PARENT])


@apart
def finish(w: ChurnState, node: int, msg: int) -> None:
    """Complete a message at its source, which has all ACKs."""
    row = pending_of(w, msg, node)
    free_entries(w, w.pending[row + P_HEAD], w.pending[row + P_TAIL])
    wave_complete(w, node)
    propagate(w, node)
