"""SRPT-S with a root that tells all nodes of joins and leaves (`cubecast.baselines.told_tree`)."""

from __future__ import annotations

from cubecast.kernel.churn.events import joined, new_event, release
from cubecast.kernel.churn.network import put, send_all, send_control
from cubecast.kernel.shared.jit import apart

from cubecast.kernel.churn.layout import (  # isort: skip
    ASK, COUNTER, M_KIND, M_RC, M_SOURCE, MESSAGE, NODE, NODES, OWN, PUB, ROOT, SUB, ChurnState,
)  # fmt: skip


@apart
def ask_root(w: ChurnState, node: int, msg: int) -> None:
    if node == w.s[ROOT]:
        at_root(w, msg)
    else:
        send_control(w, node, new_event(w, ASK, w.s[ROOT], node, msg, -1, -1))


@apart
def at_root(w: ChurnState, msg: int) -> None:
    """Stamp a message with the root's subscribers and send it down."""
    root, size = w.s[ROOT], w.s[NODES]
    kind, source = w.messages[msg * MESSAGE + M_KIND], w.messages[msg * MESSAGE + M_SOURCE]
    members, snapshot = 2 * size * root, 2 * size * msg
    for k in range(2 * size):
        w.snapshots[snapshot + k] = w.tries[members + k]
    if kind != PUB:
        if w.messages[msg * MESSAGE + M_RC] <= w.known[root * size + source]:
            release(w, msg)
            return
        w.known[root * size + source] = w.messages[msg * MESSAGE + M_RC]
        put(w.snapshots, snapshot, size, source, 1)
        put(w.tries, members, size, source, kind == SUB)
    send_all(w, root, msg)
    told(w, root, msg)
    release(w, msg)


@apart
def told(w: ChurnState, node: int, msg: int) -> None:
    """Complete a change when it has come back to the node that made it."""
    kind = w.messages[msg * MESSAGE + M_KIND]
    if (
        kind != PUB
        and w.messages[msg * MESSAGE + M_SOURCE] == node
        and w.messages[msg * MESSAGE + M_RC] == w.nodes[node * NODE + COUNTER]
        and w.nodes[node * NODE + OWN]
    ):
        joined(w, node)
