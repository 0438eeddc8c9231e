"""SRPT-S with a root that tells everybody of joins and leaves (`cubecast.baselines.told_tree`)."""

from __future__ import annotations

from cubecast.kernel.jit import apart
from cubecast.lab.sessions.events import joined, new_event, release
from cubecast.lab.sessions.layout import (
    ASK,
    COUNTER,
    M_KIND,
    M_RC,
    M_SOURCE,
    NODES,
    OWN,
    PUB,
    ROOT,
    SUB,
    State,
)
from cubecast.lab.sessions.network import put, send_all, send_control


@apart
def ask_root(w: State, node: int, msg: int) -> None:
    if node == w.s[ROOT]:
        at_root(w, msg)
    else:
        send_control(w, node, new_event(w, ASK, w.s[ROOT], node, msg, -1, -1))


@apart
def at_root(w: State, msg: int) -> None:
    """The root stamps a message with its members and sends it down."""
    root, size = w.s[ROOT], w.s[NODES]
    kind, source = w.messages[msg, M_KIND], w.messages[msg, M_SOURCE]
    members = w.tries[root]
    for place in range(len(members)):
        w.snapshots[msg, place] = members[place]
    if kind != PUB:
        if w.messages[msg, M_RC] <= w.known[root, source]:
            release(w, msg)
            return
        w.known[root, source] = w.messages[msg, M_RC]
        put(w.snapshots[msg], size, source, 1)
        put(members, size, source, 1 if kind == SUB else 0)
    send_all(w, root, msg)
    told(w, root, msg)
    release(w, msg)


@apart
def told(w: State, node: int, msg: int) -> None:
    """A change is complete when it has come back to the node that it is about."""
    kind = w.messages[msg, M_KIND]
    if (
        kind != PUB
        and w.messages[msg, M_SOURCE] == node
        and w.messages[msg, M_RC] == w.nodes[node, COUNTER]
        and w.nodes[node, OWN]
    ):
        joined(w, node)
