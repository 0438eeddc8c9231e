"""The scenario ([J] 4.5): sessions, publications, and the loop over all events."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.kernel.churn.events import (
    free_entries,
    new_message,
    next_event,
    pending_of,
    plan,
    release,
)
from cubecast.kernel.churn.network import relay
from cubecast.kernel.churn.told_tree import ask_root, at_root, told
from cubecast.kernel.churn.vcube_ps import (
    await_acks,
    broadcast,
    finish,
    gather,
    learn,
    send_ack,
    take,
)
from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, entry, forced, memory_of, sources_digest

from cubecast.kernel.churn.layout import (  # isort: skip
    ACK, ASK, AT_ONCE, CAME, COME_ROOM, COUNTER, DONE, E_FROM, E_HEAD, E_KIND, E_MSG, E_NEXT,
    E_TAIL, E_TO, END, ENTRIES, ENTRY, ENTRY_ROOM, EVENT, EVENT_ROOM, EVENTS, FALSE, FAR, FAR_ROOM,
    FORGET, FREE_EVENT, GROW, INSIDE, JOINED, LASTING, LEAVE, LIFE, M_AT, M_KIND, MEMBERS_IN,
    MEMBERS_OUT, MESSAGE, MESSAGE_ROOM, MESSAGES, NOBODY, NODE, NODES, NOW, OUTSIDE, OWN,
    OWN_RC, P_HEAD, P_MISSING, P_TAIL, PLACE, PLAN, PUB, PUBLISHED, QUEUED, QUEUED_SUM,
    RECEPTION_SUM, RECEPTIONS, ROOM, SINCE, SPEAK, SPOKEN, STAY_ROOM, STAYED, SUB, TOLD, UNS,
    WAIT, ChurnState,
)  # fmt: skip


@apart
def subscribe(w: ChurnState, node: int) -> None:
    """Algorithm 1, lines 4-9; or a message to the root."""
    w.wanted[node] = 1
    w.nodes[node * NODE + OWN] = 1
    if w.s[TOLD]:
        w.nodes[node * NODE + COUNTER] += 1
        ask_root(w, node, new_message(w, SUB, node, w.nodes[node * NODE + COUNTER]))
        return
    rc = w.nodes[node * NODE + COUNTER]
    w.nodes[node * NODE + OWN_RC] = rc
    w.nodes[node * NODE + LIFE] += 1
    size = w.s[NODES]
    for other in range(size):
        w.known[node * size + other] = -1
    for place in range(2 * size):
        w.tries[2 * size * node + place] = 0
    learn(w, node, node, rc, 1)
    broadcast(w, node, SUB)


@apart
def unsubscribe(w: ChurnState, node: int) -> None:
    """Algorithm 1, lines 10-15; or a message to the root."""
    w.wanted[node] = 0
    w.nodes[node * NODE + OWN] = 0
    if w.s[TOLD]:
        w.nodes[node * NODE + COUNTER] += 1
        ask_root(w, node, new_message(w, UNS, node, w.nodes[node * NODE + COUNTER]))
        return
    w.known[node * w.s[NODES] + node] = -1
    broadcast(w, node, UNS)


@apart
def add(w: ChurnState, which: int, count: int, node: int) -> None:
    size = w.s[NODES]
    w.crowd[which * size + w.s[count]] = node
    w.crowd[PLACE * size + node] = w.s[count]
    w.s[count] += 1


@apart
def remove(w: ChurnState, which: int, count: int, node: int) -> None:
    """Remove a node from a crowd; the last one takes its place."""
    w.s[count] -= 1
    size = w.s[NODES]
    last = w.crowd[which * size + w.s[count]]
    place = w.crowd[PLACE * size + node]
    w.crowd[which * size + place] = last
    w.crowd[PLACE * size + last] = place


@apart
def _drawn(w: ChurnState, which: int, count: int, share: float) -> int:
    """One of a crowd, by a number below 1."""
    return int(w.crowd[which * w.s[NODES] + int(share * w.s[count])])


@apart
def begin_session(w: ChurnState, node: int) -> None:
    if w.s[LASTING]:
        return
    until = w.s[NOW] + w.stay[w.s[STAYED]]
    w.s[STAYED] += 1
    if until <= w.s[END]:
        plan(w, until, LEAVE, node)


@apart
def enter(w: ChurnState, node: int) -> None:
    add(w, INSIDE, MEMBERS_IN, node)
    begin_session(w, node)


@apart
def leave(w: ChurnState, node: int) -> None:
    remove(w, INSIDE, MEMBERS_IN, node)
    unsubscribe(w, node)
    if w.s[MEMBERS_OUT]:
        newcomer = _drawn(w, OUTSIDE, MEMBERS_OUT, w.come[w.s[CAME]])
        w.s[CAME] += 1
        remove(w, OUTSIDE, MEMBERS_OUT, newcomer)
        subscribe(w, newcomer)
        if w.s[AT_ONCE]:
            enter(w, newcomer)
    add(w, OUTSIDE, MEMBERS_OUT, node)


@apart
def speak(w: ChurnState) -> None:
    if not w.s[MEMBERS_IN]:
        return
    node = _drawn(w, INSIDE, MEMBERS_IN, w.speak[w.s[SPOKEN]])
    w.s[SPOKEN] += 1
    if w.s[NOW] >= w.s[SINCE]:
        w.s[PUBLISHED] += 1
    if w.s[TOLD]:
        ask_root(w, node, new_message(w, PUB, node, 0))
    else:
        broadcast(w, node, PUB)


@forced
def receive(w: ChurnState, node: int, msg: int) -> None:
    """Count a publication that arrives, unless it was published during the warm-up."""
    at = w.messages[msg * MESSAGE + M_AT]
    if w.messages[msg * MESSAGE + M_KIND] != PUB or at < w.s[SINCE]:
        return
    if w.wanted[node]:
        w.s[RECEPTIONS] += 1
        w.s[RECEPTION_SUM] += w.s[NOW] - at
    else:
        w.s[FALSE] += 1


@forced
def happen(w: ChurnState, event: int) -> None:
    """Let one event happen."""
    kind, node = w.events[event + E_KIND], w.events[event + E_TO]
    sender, msg = w.events[event + E_FROM], w.events[event + E_MSG]
    head, tail = w.events[event + E_HEAD], w.events[event + E_TAIL]
    w.events[event + E_NEXT] = w.s[FREE_EVENT]
    w.s[FREE_EVENT] = event
    if kind > ACK:
        act(w, kind, node, msg)
        return
    parent = WAIT
    if kind == ACK:
        row = pending_of(w, msg, node)
        if w.pending[row + P_MISSING]:
            parent = gather(w, node, msg, head, tail)
            head, tail = w.pending[row + P_HEAD], w.pending[row + P_TAIL]
        else:
            free_entries(w, head, tail)
    else:
        receive(w, node, msg)
        copies = relay(w, node, msg, head)
        head = tail = -1
        if w.s[TOLD]:
            told(w, node, msg)
        elif copies:
            await_acks(w, node, msg, sender, copies)
        else:
            parent = sender
    if parent >= 0:
        send_ack(w, node, msg, parent, head, tail)
    elif parent == NOBODY:
        finish(w, node, msg)
    if kind != ACK and not w.s[TOLD]:
        take(w, node, msg)
    release(w, msg)


@apart
def act(w: ChurnState, kind: int, node: int, msg: int) -> None:
    """Handle an event that is no message between nodes, or one to the root."""
    if kind == ASK:
        at_root(w, msg)
    elif kind == LEAVE:
        leave(w, node)
    elif kind == SPEAK:
        speak(w)
    elif kind == JOINED:
        if not w.s[AT_ONCE]:
            enter(w, node)
    else:
        for other in range(w.s[NODES]):
            w.nodes[other * NODE + QUEUED] = 0
            w.nodes[other * NODE + QUEUED_SUM] = 0


@apart
def nearly_full(s: Longs) -> bool:
    """Whether the next event may need more room than there is."""
    return bool(
        s[EVENT_ROOM] - s[EVENTS] < ROOM * EVENT
        or s[ENTRY_ROOM] - s[ENTRIES] < ROOM * ENTRY
        or s[MESSAGE_ROOM] - s[MESSAGES] < ROOM
        or s[FAR_ROOM] - s[FAR] < ROOM * PLAN
        or s[STAY_ROOM] - s[STAYED] < ROOM
        or s[COME_ROOM] - s[CAME] < ROOM
    )


@forced
def pointers(w: ChurnState) -> ChurnState:
    return ChurnState(
        memory_of(w.s), memory_of(w.stay), memory_of(w.come), memory_of(w.speak),
        memory_of(w.heads), memory_of(w.tails), memory_of(w.far), memory_of(w.events),
        memory_of(w.entries), memory_of(w.messages), memory_of(w.pending),
        memory_of(w.snapshots), memory_of(w.nodes), memory_of(w.crowd), memory_of(w.known),
        memory_of(w.tries), memory_of(w.heard), memory_of(w.wanted),
    )  # fmt: skip


@apart
def work(w: ChurnState, budget: int) -> int:
    """Work off events until there are none, a pool is nearly full, or the budget is spent."""
    for _ in range(budget):
        if nearly_full(w.s):
            return GROW
        event = next_event(w)
        if event < 0:
            return DONE
        happen(w, event)
    return GROW


@apart
def begin(w: ChurnState, every: int) -> None:
    """Plan the scenario's first events, in its order."""
    for place in range(w.s[MEMBERS_IN]):
        begin_session(w, w.crowd[INSIDE * w.s[NODES] + place])
    for at in range(every, w.s[END] + 1, every):
        plan(w, at, SPEAK, 0)
    if w.s[SINCE]:
        plan(w, w.s[SINCE], FORGET, 0)


def _make_entries(
    sources: str,
) -> tuple[Callable[[ChurnState, int], int], Callable[[ChurnState, int], None]]:
    """The entry points; `sources` is part of the key under which they are kept."""

    @entry
    def advance(w: ChurnState, budget: int) -> int:
        return work(pointers(w), budget) if sources else DONE

    @entry
    def start(w: ChurnState, every: int) -> None:
        if sources:
            begin(pointers(w), every)

    return advance, start


advance, start = _make_entries(sources_digest(__package__))
