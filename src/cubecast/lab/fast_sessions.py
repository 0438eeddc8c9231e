"""`cubecast.sim.sessions` as compiled code: VCube-PS and SRPT-S with changing members, much faster.

A run of [J] 4.5 sends hundreds of millions of messages: at 10 % churn per second each of a thousand
nodes hears of two hundred changes per second, and acknowledges them.  This module does what
`cubecast.protocol.vcube_ps` and `cubecast.baselines.told_tree` do in that scenario, as far as it
bears on who receives what when: views, trees, waves of ACKs and what they collect, sending queues.
What it leaves out has no influence on that: the order of delivery, that is, causal barriers.
`tests/test_lab_churn.py` compares the two, number by number.

Events of one instant happen in the order in which they were planned, as in `cubecast.sim.world`:
the near future is a ring of lists, the far one a heap, and an event's number says which of two is
first.  Pools (events, entries of ACKs, messages) grow between two events, never within one.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from cubecast.protocol.port import Time
from cubecast.sim.params import Params
from cubecast.sim.protocols import roots
from cubecast.sim.sessions import TOPIC, Chance

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PROTOCOLS: Final = ("vcube-ps", "srpt-told")
RING: Final = 1 << 12
ROOM: Final = 64
"""No event plans more events, entries or messages than this."""

PUB: Final = 0
SUB: Final = 1
UNS: Final = 2
ACK: Final = 3
ASK: Final = 4
"""To the root: publish this, or tell everybody of this change."""
LEAVE: Final = 5
SPEAK: Final = 6
JOINED: Final = 7
FORGET: Final = 8

# Single numbers, in `State.s`.
(
    NOW, END, SINCE, HOP, QUEUE_ACKS, NODES, DIMENSION, LASTING, TOLD, ROOT, MEMBERS_IN, MEMBERS_OUT,
    NUMBER, EVENTS, FREE_EVENT, ENTRIES, FREE_ENTRY, MESSAGES, FREE_MESSAGE, IN_RING, FAR, STAYED,
    CAME, SPOKEN, RECEPTIONS, RECEPTION_SUM, FALSE, PUBS, CONTROLS, PUBLISHED, JOINS, LONGEST,
    SCALARS,
) = range(33)  # fmt: skip

DONE: Final = 0
GROW: Final = 1
NOBODY: Final = -1


class State(NamedTuple):
    """Everything a run reads and writes."""

    s: Longs
    stay: Longs
    come: npt.NDArray[np.float64]
    speak: npt.NDArray[np.float64]
    heads: Ints
    """Ring: of each bucket, the first and the last event."""
    tails: Ints
    far: Longs
    """Heap of (time, number, event)."""
    events: Ints
    """Kind, to, from, message, first and last entry, next."""
    numbers: Longs
    """Of each event: its number."""
    entries: Ints
    """Node, rc, next."""
    messages: Longs
    """Kind, source, rc, time, references, next of its queue."""
    missing: npt.NDArray[np.int16]
    """[message, node]: children that have not answered yet; 0: nothing is pending."""
    pending: Ints
    """[message, node]: parent, first and last entry, subscription that entries were applied to."""
    snapshots: Bytes
    """[message]: the members that a message of a root is for, as a trie."""
    nodes: Longs
    """Subscribed, rc of that, counter, number of subscriptions, first and last queued message,
    message being sent, free from, queued, sum of queue sizes."""
    crowd: Ints
    """Those inside, those outside, and the place of each node."""
    view: Ints
    """[node, other]: rc of the latest operation of `other` that `node` knows of, or -1."""
    tries: Bytes
    """[node]: the members in its view."""
    heard: Bytes
    """[node, other]: whether *first_rec* knows `other`."""
    wanted: Bytes


E_KIND, E_TO, E_FROM, E_MSG, E_HEAD, E_TAIL, E_NEXT = range(7)
T_NODE, T_RC, T_NEXT = range(3)
M_KIND, M_SOURCE, M_RC, M_AT, M_REFS, M_NEXT = range(6)
P_PARENT, P_HEAD, P_TAIL, P_LIFE = range(4)
OWN, OWN_RC, COUNTER, LIFE, Q_HEAD, Q_TAIL, SENDING, FREE_AT, QUEUED, QUEUED_SUM = range(10)
INSIDE, OUTSIDE, PLACE = range(3)


def _jit(function: Any) -> Any:
    """Compiled, and kept on disk where that is possible.

    Everything is in this file, so that numba notices whatever changes.
    """
    options = {"error_model": "numpy", "nogil": True}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no directory that it may write to
        return njit(**options)(function)


# -- events ---------------------------------------------------------------------------------------


@_jit
def new_event(w, kind, to, sender, msg, head, tail):  # type: ignore[no-untyped-def]
    event = w.s[FREE_EVENT]
    if event >= 0:
        w.s[FREE_EVENT] = w.events[event, E_NEXT]
    else:
        event = w.s[EVENTS]
        w.s[EVENTS] += 1
    row = w.events[event]
    row[E_KIND], row[E_TO], row[E_FROM], row[E_MSG] = kind, to, sender, msg
    row[E_HEAD], row[E_TAIL], row[E_NEXT] = head, tail, -1
    return event


@_jit
def post(w, at, event):  # type: ignore[no-untyped-def]
    """Plan an event, after what is already planned for then."""
    number = w.s[NUMBER]
    w.s[NUMBER] += 1
    w.numbers[event] = number
    if at - w.s[NOW] < RING:
        bucket = at & (RING - 1)
        if w.heads[bucket] < 0:
            w.heads[bucket] = event
        else:
            w.events[w.tails[bucket], E_NEXT] = event
        w.tails[bucket] = event
        w.s[IN_RING] += 1
        return
    place = w.s[FAR]
    w.s[FAR] += 1
    while place > 0:
        above = (place - 1) >> 1
        if w.far[above, 0] < at or (w.far[above, 0] == at and w.far[above, 1] < number):
            break
        w.far[place] = w.far[above]
        place = above
    w.far[place, 0], w.far[place, 1], w.far[place, 2] = at, number, event


@_jit
def far_pop(w):  # type: ignore[no-untyped-def]
    """Remove the earliest of the heap; the caller has read it."""
    last = w.s[FAR] - 1
    w.s[FAR] = last
    at, number, event = w.far[last, 0], w.far[last, 1], w.far[last, 2]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        other = below + 1
        if other < last and (
            w.far[other, 0] < w.far[below, 0]
            or (w.far[other, 0] == w.far[below, 0] and w.far[other, 1] < w.far[below, 1])
        ):
            below = other
        if at < w.far[below, 0] or (at == w.far[below, 0] and number < w.far[below, 1]):
            break
        w.far[place] = w.far[below]
        place = below
    w.far[place, 0], w.far[place, 1], w.far[place, 2] = at, number, event


@_jit
def next_event(w):  # type: ignore[no-untyped-def]
    """Take out the next event and set the time; -1 if there is none."""
    s = w.s
    if s[IN_RING]:
        at = s[NOW]
        while w.heads[at & (RING - 1)] < 0:
            at += 1
        event = w.heads[at & (RING - 1)]
        if s[FAR] == 0 or w.far[0, 0] > at or (
            w.far[0, 0] == at and w.far[0, 1] > w.numbers[event]
        ):
            s[NOW] = at
            w.heads[at & (RING - 1)] = w.events[event, E_NEXT]
            s[IN_RING] -= 1
            return event
    if s[FAR] == 0:
        return -1
    event = w.far[0, 2]
    s[NOW] = w.far[0, 0]
    far_pop(w)
    return event


# -- messages and entries -------------------------------------------------------------------------


@_jit
def new_message(w, kind, source, rc):  # type: ignore[no-untyped-def]
    """A message that somebody refers to."""
    msg = w.s[FREE_MESSAGE]
    if msg >= 0:
        w.s[FREE_MESSAGE] = w.messages[msg, M_NEXT]
    else:
        msg = w.s[MESSAGES]
        w.s[MESSAGES] += 1
    row = w.messages[msg]
    row[M_KIND], row[M_SOURCE], row[M_RC], row[M_AT] = kind, source, rc, w.s[NOW]
    row[M_REFS], row[M_NEXT] = 1, -1
    return msg


@_jit
def free_entries(w, head, tail):  # type: ignore[no-untyped-def]
    if head >= 0:
        w.entries[tail, T_NEXT] = w.s[FREE_ENTRY]
        w.s[FREE_ENTRY] = head


@_jit
def release(w, msg):  # type: ignore[no-untyped-def]
    """One reference less; what nobody refers to is gone, with what was pending for it."""
    w.messages[msg, M_REFS] -= 1
    if w.messages[msg, M_REFS]:
        return
    if not w.s[TOLD]:
        for node in range(w.s[NODES]):
            if w.missing[msg, node]:
                w.missing[msg, node] = 0
                free_entries(w, w.pending[msg, node, P_HEAD], w.pending[msg, node, P_TAIL])
    w.messages[msg, M_NEXT] = w.s[FREE_MESSAGE]
    w.s[FREE_MESSAGE] = msg


# -- sets of nodes --------------------------------------------------------------------------------


@_jit
def put(trie, size, node, present):  # type: ignore[no-untyped-def]
    """Put a node into a set, or take it out."""
    place = size + node
    trie[place] = present
    while place > 1:
        place >>= 1
        trie[place] = trie[2 * place] | trie[2 * place + 1]


@_jit
def nearest(trie, size, first, k):  # type: ignore[no-untyped-def]
    """The member of the block of 2^k ids around `first` that is nearest to it; there is one."""
    place = (size + first) >> k
    while k > 0:
        k -= 1
        place = 2 * place + ((first >> k) & 1)
        if not trie[place]:
            place ^= 1
    return place - size


@_jit
def log2(value):  # type: ignore[no-untyped-def]
    found = -1
    while value:
        value >>= 1
        found += 1
    return found


# -- the network ----------------------------------------------------------------------------------


@_jit
def sample(w, node, ahead, copies):  # type: ignore[no-untyped-def]
    """Queue size is sampled at each enqueue, after insertion."""
    w.nodes[node, QUEUED] += copies
    w.nodes[node, QUEUED_SUM] += copies * ahead + copies * (copies + 1) // 2
    w.s[LONGEST] = max(w.s[LONGEST], ahead + copies)


@_jit
def send_control(w, node, event):  # type: ignore[no-untyped-def]
    """ACKs and what goes to a root bypass the sending queue, unless it is said otherwise."""
    w.s[CONTROLS] += 1
    if not w.s[QUEUE_ACKS]:
        post(w, w.s[NOW] + w.s[HOP], event)
        return
    leaves = max(w.nodes[node, FREE_AT], w.s[NOW])
    sample(w, node, leaves - w.s[NOW], 1)
    w.nodes[node, FREE_AT] = leaves + 1
    post(w, leaves + w.s[HOP], event)


@_jit
def relay(w, node, msg, h):  # type: ignore[no-untyped-def]
    """Send to the first of each cluster 1 … h; how many copies that made.

    SUB goes to all nodes.  Else VCube-PS goes by the sender's view, and SRPT-S through any node
    of a cluster that holds a member of the root's view.
    """
    size = w.s[NODES]
    kind = w.messages[msg, M_KIND]
    told = w.s[TOLD]
    trie = w.snapshots[msg] if told else w.tries[node]
    leaves = max(w.nodes[node, FREE_AT], w.s[NOW])
    copies = 0
    for k in range(h):
        peer = node ^ (1 << k)
        if told or kind != SUB:
            if not trie[(size + peer) >> k]:
                continue
            if not told:
                peer = nearest(trie, size, peer, k)
        event = new_event(w, kind, peer, node, msg, -1, -1)
        post(w, leaves + w.s[HOP] + copies, event)
        copies += 1
    if copies:
        sample(w, node, leaves - w.s[NOW], copies)
        w.nodes[node, FREE_AT] = leaves + copies
        w.messages[msg, M_REFS] += copies
        if kind == PUB:
            w.s[PUBS] += copies
        else:
            w.s[CONTROLS] += copies
    return copies


# -- VCube-PS ([J] Algorithms 1 and 2) ------------------------------------------------------------


@_jit
def learn(w, node, other, rc, present):  # type: ignore[no-untyped-def]
    """UPDATE, lines 75-82: of two entries for one node the one with the higher rc stays."""
    if rc > w.view[node, other]:
        w.view[node, other] = rc
        put(w.tries[node], w.s[NODES], other, present)


@_jit
def learn_all(w, node, head):  # type: ignore[no-untyped-def]
    while head >= 0:
        learn(w, node, w.entries[head, T_NODE], w.entries[head, T_RC], 1)
        head = w.entries[head, T_NEXT]


@_jit
def send_ack(w, node, msg, parent, head, tail):  # type: ignore[no-untyped-def]
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


@_jit
def await_acks(w, node, msg, parent, copies):  # type: ignore[no-untyped-def]
    """⟨j, nb, …⟩ of *acks*; an earlier one for the same message is replaced."""
    pending = w.pending[msg, node]
    if w.missing[msg, node]:
        free_entries(w, pending[P_HEAD], pending[P_TAIL])
    w.missing[msg, node] = copies
    pending[P_PARENT], pending[P_HEAD], pending[P_TAIL] = parent, -1, -1
    pending[P_LIFE] = w.nodes[node, LIFE]


@_jit
def broadcast(w, node, kind):  # type: ignore[no-untyped-def]
    """CO_BROADCAST, lines 5-12."""
    msg = new_message(w, kind, node, w.nodes[node, COUNTER])
    w.nodes[node, COUNTER] += 1
    if w.nodes[node, Q_HEAD] < 0:
        w.nodes[node, Q_HEAD] = msg
    else:
        w.messages[w.nodes[node, Q_TAIL], M_NEXT] = msg
    w.nodes[node, Q_TAIL] = msg
    propagate(w, node)


@_jit
def propagate(w, node):  # type: ignore[no-untyped-def]
    """Lines 13-36: one message after the other, each when the ACKs of the one before are back."""
    while w.nodes[node, Q_HEAD] >= 0 and w.nodes[node, SENDING] < 0:
        msg = w.nodes[node, Q_HEAD]
        w.nodes[node, Q_HEAD] = w.messages[msg, M_NEXT]
        w.nodes[node, SENDING] = msg
        if w.messages[msg, M_KIND] == PUB:
            w.heard[node, node] = 1
        copies = relay(w, node, msg, w.s[DIMENSION])
        if copies:
            await_acks(w, node, msg, NOBODY, copies)
        else:
            wave_complete(w, node)


@_jit
def wave_complete(w, node):  # type: ignore[no-untyped-def]
    """Lines 31-36."""
    msg = w.nodes[node, SENDING]
    w.nodes[node, SENDING] = -1
    kind = w.messages[msg, M_KIND]
    if kind == UNS:
        w.heard[node, :] = 0
    elif kind == SUB and w.nodes[node, OWN] and w.nodes[node, OWN_RC] == w.messages[msg, M_RC]:
        joined(w, node)
    release(w, msg)


@_jit
def on_copy(w, node, sender, msg):  # type: ignore[no-untyped-def]
    """Lines 37-74: PUB, SUB or UNS."""
    kind, source = w.messages[msg, M_KIND], w.messages[msg, M_SOURCE]
    copies = relay(w, node, msg, log2(node ^ sender))
    if copies:
        await_acks(w, node, msg, sender, copies)
    else:
        send_ack(w, node, msg, sender, -1, -1)
    if w.nodes[node, OWN]:
        if kind == PUB:
            w.heard[node, source] = 1
        else:
            learn(w, node, source, w.messages[msg, M_RC], kind == SUB)
            if kind == UNS:
                w.heard[node, source] = 0


@_jit
def on_ack(w, node, msg, head, tail):  # type: ignore[no-untyped-def]
    """Lines 55-61 and 69-70.

    What was applied to this subscription's view already need not be applied again: a view only
    ever takes later entries.
    """
    if not w.missing[msg, node]:
        free_entries(w, head, tail)
        return
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
    w.missing[msg, node] -= 1
    last = w.missing[msg, node] == 0
    parent = pending[P_PARENT]
    if w.nodes[node, OWN]:
        learn_all(w, node, fresh)
        pending[P_LIFE] = w.nodes[node, LIFE]
    else:
        pending[P_LIFE] = -1
    if not last:
        pending[P_HEAD], pending[P_TAIL] = head, tail
    elif parent != NOBODY:
        send_ack(w, node, msg, parent, head, tail)
    else:
        free_entries(w, head, tail)
        wave_complete(w, node)
        propagate(w, node)


# -- SRPT-S with a root that tells (`cubecast.baselines.told_tree`) -------------------------------


@_jit
def ask_root(w, node, msg):  # type: ignore[no-untyped-def]
    if node == w.s[ROOT]:
        at_root(w, msg)
    else:
        send_control(w, node, new_event(w, ASK, w.s[ROOT], node, msg, -1, -1))


@_jit
def at_root(w, msg):  # type: ignore[no-untyped-def]
    """The root stamps a message with its members and sends it down."""
    root, size = w.s[ROOT], w.s[NODES]
    kind, source = w.messages[msg, M_KIND], w.messages[msg, M_SOURCE]
    members = w.tries[root]
    w.snapshots[msg, :] = members
    if kind != PUB:
        if w.messages[msg, M_RC] <= w.view[root, source]:
            release(w, msg)
            return
        w.view[root, source] = w.messages[msg, M_RC]
        put(w.snapshots[msg], size, source, 1)
        put(members, size, source, kind == SUB)
    relay(w, root, msg, w.s[DIMENSION])
    told(w, root, msg)
    release(w, msg)


@_jit
def told(w, node, msg):  # type: ignore[no-untyped-def]
    """A change is complete when it has come back to the node that it is about."""
    kind = w.messages[msg, M_KIND]
    if (
        kind != PUB
        and w.messages[msg, M_SOURCE] == node
        and w.messages[msg, M_RC] == w.nodes[node, COUNTER]
        and w.nodes[node, OWN]
    ):
        joined(w, node)


# -- what the scenario does -----------------------------------------------------------------------


@_jit
def joined(w, node):  # type: ignore[no-untyped-def]
    w.s[JOINS] += 1
    post(w, w.s[NOW], new_event(w, JOINED, node, node, -1, -1, -1))


@_jit
def subscribe(w, node):  # type: ignore[no-untyped-def]
    """Algorithm 1, lines 4-9; or a word to the root."""
    w.wanted[node] = 1
    w.nodes[node, OWN] = 1
    if w.s[TOLD]:
        w.nodes[node, COUNTER] += 1
        ask_root(w, node, new_message(w, SUB, node, w.nodes[node, COUNTER]))
        return
    rc = w.nodes[node, COUNTER]
    w.nodes[node, OWN_RC] = rc
    w.nodes[node, LIFE] += 1
    w.view[node, :] = -1
    w.tries[node, :] = 0
    learn(w, node, node, rc, 1)
    broadcast(w, node, SUB)


@_jit
def unsubscribe(w, node):  # type: ignore[no-untyped-def]
    """Algorithm 1, lines 10-15; or a word to the root."""
    w.wanted[node] = 0
    w.nodes[node, OWN] = 0
    if w.s[TOLD]:
        w.nodes[node, COUNTER] += 1
        ask_root(w, node, new_message(w, UNS, node, w.nodes[node, COUNTER]))
        return
    w.view[node, node] = -1
    broadcast(w, node, UNS)


@_jit
def add(w, which, count, node):  # type: ignore[no-untyped-def]
    w.crowd[which, w.s[count]] = node
    w.crowd[PLACE, node] = w.s[count]
    w.s[count] += 1


@_jit
def remove(w, which, count, node):  # type: ignore[no-untyped-def]
    """The last takes the place of the one that goes."""
    w.s[count] -= 1
    last = w.crowd[which, w.s[count]]
    place = w.crowd[PLACE, node]
    w.crowd[which, place] = last
    w.crowd[PLACE, last] = place


@_jit
def begin_session(w, node):  # type: ignore[no-untyped-def]
    if w.s[LASTING]:
        return
    until = w.s[NOW] + w.stay[w.s[STAYED]]
    w.s[STAYED] += 1
    if until <= w.s[END]:
        post(w, until, new_event(w, LEAVE, node, node, -1, -1, -1))


@_jit
def leave(w, node):  # type: ignore[no-untyped-def]
    remove(w, INSIDE, MEMBERS_IN, node)
    unsubscribe(w, node)
    if w.s[MEMBERS_OUT]:
        newcomer = w.crowd[OUTSIDE, int(w.come[w.s[CAME]] * w.s[MEMBERS_OUT])]
        w.s[CAME] += 1
        remove(w, OUTSIDE, MEMBERS_OUT, newcomer)
        subscribe(w, newcomer)
    add(w, OUTSIDE, MEMBERS_OUT, node)


@_jit
def speak(w):  # type: ignore[no-untyped-def]
    if not w.s[MEMBERS_IN]:
        return
    node = w.crowd[INSIDE, int(w.speak[w.s[SPOKEN]] * w.s[MEMBERS_IN])]
    w.s[SPOKEN] += 1
    if w.s[NOW] >= w.s[SINCE]:
        w.s[PUBLISHED] += 1
    if w.s[TOLD]:
        ask_root(w, node, new_message(w, PUB, node, 0))
    else:
        broadcast(w, node, PUB)


@_jit
def receive(w, node, msg):  # type: ignore[no-untyped-def]
    """Count a publication that arrives, unless it was published during the warm-up."""
    at = w.messages[msg, M_AT]
    if w.messages[msg, M_KIND] != PUB or at < w.s[SINCE]:
        return
    if w.wanted[node]:
        w.s[RECEPTIONS] += 1
        w.s[RECEPTION_SUM] += w.s[NOW] - at
    else:
        w.s[FALSE] += 1


@_jit
def happen(w, event):  # type: ignore[no-untyped-def]
    """Let one event happen."""
    row = w.events[event]
    kind, node, sender, msg = row[E_KIND], row[E_TO], row[E_FROM], row[E_MSG]
    head, tail = row[E_HEAD], row[E_TAIL]
    row[E_NEXT] = w.s[FREE_EVENT]
    w.s[FREE_EVENT] = event
    if kind <= UNS:
        receive(w, node, msg)
        if w.s[TOLD]:
            relay(w, node, msg, log2(node ^ sender))
            told(w, node, msg)
        else:
            on_copy(w, node, sender, msg)
        release(w, msg)
    elif kind == ACK:
        on_ack(w, node, msg, head, tail)
        release(w, msg)
    elif kind == ASK:
        at_root(w, msg)
    elif kind == LEAVE:
        leave(w, node)
    elif kind == SPEAK:
        speak(w)
    elif kind == JOINED:
        add(w, INSIDE, MEMBERS_IN, node)
        begin_session(w, node)
    else:
        w.nodes[:, QUEUED] = 0
        w.nodes[:, QUEUED_SUM] = 0
        w.s[LONGEST] = 0


@_jit
def advance(w, budget):  # type: ignore[no-untyped-def]
    """Work off events until there are none, a pool is nearly full, or the budget is spent."""
    for _ in range(budget):
        if (
            len(w.events) - w.s[EVENTS] < ROOM
            or len(w.entries) - w.s[ENTRIES] < ROOM
            or len(w.messages) - w.s[MESSAGES] < ROOM
            or len(w.far) - w.s[FAR] < ROOM
            or len(w.stay) - w.s[STAYED] < ROOM
            or len(w.come) - w.s[CAME] < ROOM
        ):
            return GROW
        event = next_event(w)
        if event < 0:
            return DONE
        happen(w, event)
    return GROW


@_jit
def start(w, every):  # type: ignore[no-untyped-def]
    """Plan what the scenario plans, in its order."""
    for place in range(w.s[MEMBERS_IN]):
        begin_session(w, w.crowd[INSIDE, place])
    for at in range(every, w.s[END] + 1, every):
        post(w, at, new_event(w, SPEAK, 0, 0, -1, -1, -1))
    if w.s[SINCE]:
        post(w, w.s[SINCE], new_event(w, FORGET, 0, 0, -1, -1, -1))


# -- from parameters to metrics -------------------------------------------------------------------

BUDGET = 1 << 24
"""Events between two chances to be interrupted."""


def run_sessions(protocol: str, params: Params, seed: int, warmup: Time) -> dict[str, float]:
    """The run that `cubecast.lab.churn` makes of the scenario, with the same metrics."""
    name = f"sessions/{seed}"
    chance = Chance(params, Random(name))
    root_of = roots(protocol, params, name)
    state = _initial(params, chance, warmup)
    if root_of is not None:
        state.s[TOLD], state.s[ROOT] = 1, root_of(TOPIC)
        state.view[:] = 0
    state = _grown(state, params, chance)
    start(state, max(1, params.every))
    while advance(state, BUDGET) != DONE:
        state = _grown(state, params, chance)
    return _metrics(state)


def _initial(params: Params, chance: Chance, warmup: Time) -> State:
    """Everything at rest, with the first members established."""
    count = params.nodes
    dimension = (count - 1).bit_length()
    if count != 1 << dimension:
        raise ValueError(f"nodes must be a power of two, not {count}")
    members = np.array(chance.members, np.int32)
    s = np.zeros(SCALARS, np.int64)
    s[END], s[SINCE], s[HOP], s[QUEUE_ACKS] = params.span, warmup, params.hop, params.queue_acks
    s[NODES], s[DIMENSION], s[LASTING] = count, dimension, not params.session
    s[FREE_EVENT] = s[FREE_ENTRY] = s[FREE_MESSAGE] = -1
    s[MEMBERS_IN], s[MEMBERS_OUT] = len(members), count - len(members)
    present = np.zeros(count, np.uint8)
    present[members] = 1
    outside = np.flatnonzero(present == 0).astype(np.int32)
    crowd = np.zeros((3, count), np.int32)
    crowd[INSIDE, : len(members)], crowd[OUTSIDE, : len(outside)] = members, outside
    crowd[PLACE, members] = np.arange(len(members))
    crowd[PLACE, outside] = np.arange(len(outside))
    nodes = np.zeros((count, 10), np.int64)
    nodes[:, Q_HEAD] = nodes[:, SENDING] = -1
    nodes[members, OWN] = nodes[members, COUNTER] = 1
    view = np.full((count, count), -1, np.int32)
    view[np.ix_(members, members)] = 0
    tries = np.zeros((count, 2 * count), np.uint8)
    tries[:, count:] = present
    level = count
    while level > 1:
        below = tries[:, level : 2 * level]
        level //= 2
        tries[:, level : 2 * level] = below[:, 0::2] | below[:, 1::2]
    return State(
        s=s,
        stay=np.zeros(0, np.int64),
        come=np.zeros(0),
        speak=np.array([chance.speak() for _ in range(params.span // max(1, params.every) + 1)]),
        heads=np.full(RING, -1, np.int32),
        tails=np.full(RING, -1, np.int32),
        far=np.zeros((0, 3), np.int64),
        events=np.zeros((0, 7), np.int32),
        numbers=np.zeros(0, np.int64),
        entries=np.zeros((0, 3), np.int32),
        messages=np.zeros((0, 6), np.int64),
        missing=np.zeros((0, count), np.int16),
        pending=np.zeros((0, count, 4), np.int32),
        snapshots=np.zeros((0, 2 * count), np.uint8),
        nodes=nodes,
        crowd=crowd,
        view=view,
        tries=tries,
        heard=np.zeros((count, count), np.uint8),
        wanted=present,
    )


def _grown(w: State, params: Params, chance: Chance) -> State:
    """The same state with more room in every pool that has little left."""
    s = w.s
    planned = 0 if s[NUMBER] else params.nodes + len(w.speak)
    events = _room(len(w.events), int(s[EVENTS]), planned)
    messages = _room(len(w.messages), int(s[MESSAGES]), 0)
    told = bool(s[TOLD])
    stays, comes = len(w.stay), len(w.come)
    if params.session and stays - s[STAYED] < ROOM + planned:
        more = [chance.stay() for _ in range(max(planned, stays, 1024))]
        w = w._replace(stay=np.concatenate([w.stay, np.array(more, np.int64)]))
    if params.session and comes - s[CAME] < ROOM:
        shares = [chance.come() for _ in range(max(comes, 1024))]
        w = w._replace(come=np.concatenate([w.come, np.array(shares)]))
    if not params.session:
        w = w._replace(stay=np.zeros(ROOM, np.int64), come=np.zeros(ROOM))
    return w._replace(
        events=_longer(w.events, events),
        numbers=_longer(w.numbers, events),
        far=_longer(w.far, _room(len(w.far), int(s[FAR]), planned)),
        entries=_longer(w.entries, _room(len(w.entries), int(s[ENTRIES]), 0)),
        messages=_longer(w.messages, messages),
        missing=_longer(w.missing, 0 if told else messages),
        pending=_longer(w.pending, 0 if told else messages),
        snapshots=_longer(w.snapshots, messages if told else 0),
    )


def _room(length: int, used: int, planned: int) -> int:
    """The present length if that will do, else half as much again as is needed."""
    needed = used + planned + ROOM
    return length if needed <= length else needed + needed // 2


def _longer(array: Any, length: int) -> Any:
    if length <= len(array):
        return array
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _metrics(w: State) -> dict[str, float]:
    s = w.s
    queued, sums = w.nodes[:, QUEUED], w.nodes[:, QUEUED_SUM]
    seen = int(s[RECEPTIONS] + s[FALSE])
    span = max(1, int(s[END]))
    worst = float(np.max(sums / np.maximum(queued, 1)))
    return {
        "reception_mean": int(s[RECEPTION_SUM]) / max(1, int(s[RECEPTIONS])),
        "pub_messages": float(s[PUBS]),
        "control_messages": float(s[CONTROLS]),
        "false_positives": float(s[FALSE]),
        "false_share": 100 * int(s[FALSE]) / max(1, seen),
        "publications": float(s[PUBLISHED]),
        "receptions": float(s[RECEPTIONS]),
        "wait_mean": int(sums.sum()) / int(queued.sum()) - 1 if queued.any() else 0.0,
        "wait_worst": max(0.0, worst - 1),
        "joins": float(s[JOINS]),
        "joins_per_second": float(s[JOINS]) * 1000 / span,
    }
