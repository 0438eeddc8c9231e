"""Sets of nodes as tries, sending queues, and the receivers of a node's messages."""

from __future__ import annotations

from cubecast.kernel.churn.events import new_event, post
from cubecast.kernel.shared.arrays import Bytes
from cubecast.kernel.shared.jit import apart, forced

from cubecast.kernel.churn.layout import (  # isort: skip
    CONTROLS, DIMENSION, FREE_AT, HOP, M_KIND, M_REFS, MESSAGE, NODE, NODES, NOW, PUB, PUBS,
    QUEUE_ACKS, QUEUED, QUEUED_SUM, SUB, TOLD, ChurnState,
)  # fmt: skip


@forced
def put(tries: Bytes, trie: int, size: int, node: int, present: int) -> None:
    """Put a node into the set that begins at `trie`, or take it out."""
    place = size + node
    while place > 0 and tries[trie + place] != present:
        tries[trie + place] = present
        present |= tries[trie + (place ^ 1)]
        place >>= 1


@forced
def nearest(tries: Bytes, trie: int, size: int, first: int, k: int) -> int:
    """The member of the block of 2^k ids around `first` that is nearest to it; there is one."""
    place = (size + first) >> k
    while k > 0:
        k -= 1
        place = 2 * place + ((first >> k) & 1)
        if not tries[trie + place]:
            place ^= 1
    return place - size


@forced
def sample(w: ChurnState, node: int, ahead: int, copies: int) -> None:
    """Sample the queue size, at each enqueue, after insertion."""
    w.nodes[node * NODE + QUEUED] += copies
    w.nodes[node * NODE + QUEUED_SUM] += copies * ahead + copies * (copies + 1) // 2


@forced
def send_control(w: ChurnState, node: int, event: int) -> None:
    """Send an ACK or a message to a root past the sending queue, unless ACKs are queued, too."""
    w.s[CONTROLS] += 1
    leaves = w.s[NOW]
    if w.s[QUEUE_ACKS]:
        leaves = max(w.nodes[node * NODE + FREE_AT], leaves)
        sample(w, node, leaves - w.s[NOW], 1)
        w.nodes[node * NODE + FREE_AT] = leaves + 1
    post(w, leaves + w.s[HOP], event)


@forced
def relay(w: ChurnState, node: int, msg: int, h: int) -> int:
    """Send to the first of each cluster 1 … h; return the number of copies.

    SUB goes to all nodes.  Else VCube-PS goes by the sender's view, and SRPT-S through any node
    of a cluster that holds a subscriber of the root's view.  A copy tells its receiver, in the
    place of an ACK's entries, how many clusters it has to serve.
    """
    size = w.s[NODES]
    kind = w.messages[msg * MESSAGE + M_KIND]
    told = w.s[TOLD]
    tries = w.snapshots if told else w.tries
    trie = 2 * size * (msg if told else node)
    leaves = max(w.nodes[node * NODE + FREE_AT], w.s[NOW])
    copies = 0
    for k in range(h):
        peer = node ^ (1 << k)
        if told or kind != SUB:
            if not tries[trie + ((size + peer) >> k)]:
                continue
            if not told:
                peer = nearest(tries, trie, size, peer, k)
        event = new_event(w, kind, peer, node, msg, k, -1)
        post(w, leaves + w.s[HOP] + copies, event)
        copies += 1
    if copies:
        sample(w, node, leaves - w.s[NOW], copies)
        w.nodes[node * NODE + FREE_AT] = leaves + copies
        w.messages[msg * MESSAGE + M_REFS] += copies
        if kind == PUB:
            w.s[PUBS] += copies
        else:
            w.s[CONTROLS] += copies
    return copies


@apart
def send_all(w: ChurnState, node: int, msg: int) -> int:
    """`relay` at the root of a tree."""
    return relay(w, node, msg, w.s[DIMENSION])
