"""The scenario ([J] 4.5): sessions, publications, and the loop over all events."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.kernel.jit import apart, entry, inlined, sources_digest
from cubecast.lab.sessions.events import (
    forget,
    free_entries,
    new_message,
    next_event,
    plan,
    wide,
)
from cubecast.lab.sessions.layout import (
    ACK,
    ASK,
    CAME,
    COUNTER,
    DONE,
    E_FROM,
    E_HEAD,
    E_KIND,
    E_MSG,
    E_NEXT,
    E_TAIL,
    E_TO,
    END,
    ENTRIES,
    EVENTS,
    FALSE,
    FAR,
    FORGET,
    FREE_EVENT,
    GROW,
    INSIDE,
    JOINED,
    LASTING,
    LEAVE,
    LIFE,
    LONGEST,
    M_AT,
    M_KIND,
    M_REFS,
    MEMBERS_IN,
    MEMBERS_OUT,
    MESSAGES,
    NOBODY,
    NOW,
    OUTSIDE,
    OWN,
    OWN_RC,
    P_HEAD,
    P_TAIL,
    PLACE,
    PUB,
    PUBLISHED,
    QUEUED,
    QUEUED_SUM,
    RECEPTION_SUM,
    RECEPTIONS,
    ROOM,
    SINCE,
    SPEAK,
    SPOKEN,
    STAYED,
    SUB,
    TOLD,
    UNS,
    WAIT,
    State,
)
from cubecast.lab.sessions.network import relay
from cubecast.lab.sessions.told_tree import ask_root, at_root, told
from cubecast.lab.sessions.vcube_ps import (
    await_acks,
    broadcast,
    finish,
    gather,
    learn,
    send_ack,
    take,
)


@inlined
def subscribe(w: State, node: int) -> None:
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
    w.known[node, :] = -1
    w.tries[node, :] = 0
    learn(w, node, node, rc, 1)
    broadcast(w, node, SUB)


@inlined
def unsubscribe(w: State, node: int) -> None:
    """Algorithm 1, lines 10-15; or a word to the root."""
    w.wanted[node] = 0
    w.nodes[node, OWN] = 0
    if w.s[TOLD]:
        w.nodes[node, COUNTER] += 1
        ask_root(w, node, new_message(w, UNS, node, w.nodes[node, COUNTER]))
        return
    w.known[node, node] = -1
    broadcast(w, node, UNS)


@apart
def add(w: State, which: int, count: int, node: int) -> None:
    w.crowd[which, w.s[count]] = node
    w.crowd[PLACE, node] = w.s[count]
    w.s[count] += 1


@apart
def remove(w: State, which: int, count: int, node: int) -> None:
    """The last takes the place of the one that goes."""
    w.s[count] -= 1
    last = w.crowd[which, w.s[count]]
    place = w.crowd[PLACE, node]
    w.crowd[which, place] = last
    w.crowd[PLACE, last] = place


@apart
def begin_session(w: State, node: int) -> None:
    if w.s[LASTING]:
        return
    until = w.s[NOW] + w.stay[w.s[STAYED]]
    w.s[STAYED] += 1
    if until <= w.s[END]:
        plan(w, until, LEAVE, node)


@inlined
def leave(w: State, node: int) -> None:
    remove(w, INSIDE, MEMBERS_IN, node)
    unsubscribe(w, node)
    if w.s[MEMBERS_OUT]:
        newcomer = wide(w.crowd[OUTSIDE, int(w.come[w.s[CAME]] * w.s[MEMBERS_OUT])])
        w.s[CAME] += 1
        remove(w, OUTSIDE, MEMBERS_OUT, newcomer)
        subscribe(w, newcomer)
    add(w, OUTSIDE, MEMBERS_OUT, node)


@inlined
def speak(w: State) -> None:
    if not w.s[MEMBERS_IN]:
        return
    node = wide(w.crowd[INSIDE, int(w.speak[w.s[SPOKEN]] * w.s[MEMBERS_IN])])
    w.s[SPOKEN] += 1
    if w.s[NOW] >= w.s[SINCE]:
        w.s[PUBLISHED] += 1
    if w.s[TOLD]:
        ask_root(w, node, new_message(w, PUB, node, 0))
    else:
        broadcast(w, node, PUB)


@inlined
def receive(w: State, node: int, msg: int) -> None:
    """Count a publication that arrives, unless it was published during the warm-up."""
    at = w.messages[msg, M_AT]
    if w.messages[msg, M_KIND] != PUB or at < w.s[SINCE]:
        return
    if w.wanted[node]:
        w.s[RECEPTIONS] += 1
        w.s[RECEPTION_SUM] += w.s[NOW] - at
    else:
        w.s[FALSE] += 1


@inlined
def happen(w: State, event: int) -> None:
    """Let one event happen."""
    row = w.events[event]
    kind, node, sender = wide(row[E_KIND]), wide(row[E_TO]), wide(row[E_FROM])
    msg, head, tail = wide(row[E_MSG]), wide(row[E_HEAD]), wide(row[E_TAIL])
    row[E_NEXT] = w.s[FREE_EVENT]
    w.s[FREE_EVENT] = event
    if kind > ACK:
        act(w, kind, node, msg)
        return
    parent = WAIT
    if kind == ACK:
        if w.missing[msg, node]:
            parent = gather(w, node, msg, head, tail)
            head = wide(w.pending[msg, node, P_HEAD])
            tail = wide(w.pending[msg, node, P_TAIL])
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
    w.messages[msg, M_REFS] -= 1
    if w.messages[msg, M_REFS] == 0:
        forget(w, msg)


@apart
def act(w: State, kind: int, node: int, msg: int) -> None:
    """What is no message between nodes, or goes to the root."""
    if kind == ASK:
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


def _make_entries(sources: str) -> tuple[Callable[[State, int], int], Callable[[State, int], None]]:
    """The entry points; `sources` is part of the key under which they are kept."""

    @entry
    def advance(w: State, budget: int) -> int:
        """Work off events until there are none, a pool is nearly full, or the budget is spent."""
        key = sources
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
        return GROW if key else DONE

    @entry
    def start(w: State, every: int) -> None:
        """Plan what the scenario plans, in its order."""
        key = sources
        for place in range(w.s[MEMBERS_IN]):
            begin_session(w, wide(w.crowd[INSIDE, place]))
        for at in range(every, w.s[END] + 1, every):
            plan(w, at, SPEAK, 0)
        if w.s[SINCE] and key:
            plan(w, w.s[SINCE], FORGET, 0)

    return advance, start


advance, start = _make_entries(sources_digest(__file__))
