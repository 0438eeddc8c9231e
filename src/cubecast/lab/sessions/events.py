"""What happens when, and the pools of messages and of entries in ACKs."""

from __future__ import annotations

import numpy as np

from cubecast.kernel.jit import apart, forced, inlined
from cubecast.lab.sessions.layout import (
    E_FROM,
    E_HEAD,
    E_KIND,
    E_MSG,
    E_NEXT,
    E_TAIL,
    E_TO,
    EVENTS,
    FAR,
    FREE_ENTRY,
    FREE_EVENT,
    FREE_MESSAGE,
    IN_RING,
    JOINED,
    JOINS,
    M_AT,
    M_KIND,
    M_NEXT,
    M_RC,
    M_REFS,
    M_SOURCE,
    MESSAGES,
    NODES,
    NOW,
    NUMBER,
    P_HEAD,
    P_TAIL,
    RING,
    T_NEXT,
    TOLD,
    State,
)


@inlined
def wide(number: int) -> int:
    """What is read from an array of small numbers, as all functions take their arguments.

    A function is compiled again for every mixture of widths that it is called with.
    """
    return int(np.int64(number))


@forced
def new_event(w: State, kind: int, to: int, sender: int, msg: int, head: int, tail: int) -> int:
    event = w.s[FREE_EVENT]
    if event >= 0:
        w.s[FREE_EVENT] = w.events[event, E_NEXT]
    else:
        event = w.s[EVENTS]
        w.s[EVENTS] += 1
    row = w.events[event]
    row[E_KIND], row[E_TO], row[E_FROM], row[E_MSG] = kind, to, sender, msg
    row[E_HEAD], row[E_TAIL], row[E_NEXT] = head, tail, -1
    return int(event)


@apart
def far_push(w: State, at: int, number: int, event: int) -> None:
    """Put an event on the heap."""
    place = w.s[FAR]
    w.s[FAR] += 1
    while place > 0:
        above = (place - 1) >> 1
        if w.far[above, 0] < at or (w.far[above, 0] == at and w.far[above, 1] < number):
            break
        for column in range(3):
            w.far[place, column] = w.far[above, column]
        place = above
    w.far[place, 0], w.far[place, 1], w.far[place, 2] = at, number, event


@forced
def post(w: State, at: int, event: int) -> None:
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
    far_push(w, at, number, event)


@apart
def plan(w: State, at: int, kind: int, node: int) -> None:
    """Plan what is no message."""
    post(w, at, new_event(w, kind, node, node, -1, -1, -1))


@inlined
def far_pop(w: State) -> None:
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
        for column in range(3):
            w.far[place, column] = w.far[below, column]
        place = below
    w.far[place, 0], w.far[place, 1], w.far[place, 2] = at, number, event


@inlined
def next_event(w: State) -> int:
    """Take out the next event and set the time; -1 if there is none."""
    s = w.s
    if s[IN_RING]:
        at = s[NOW]
        while w.heads[at & (RING - 1)] < 0:
            at += 1
        event = w.heads[at & (RING - 1)]
        if (
            s[FAR] == 0
            or w.far[0, 0] > at
            or (w.far[0, 0] == at and w.far[0, 1] > w.numbers[event])
        ):
            s[NOW] = at
            w.heads[at & (RING - 1)] = w.events[event, E_NEXT]
            s[IN_RING] -= 1
            return int(event)
    if s[FAR] == 0:
        return -1
    event = w.far[0, 2]
    s[NOW] = w.far[0, 0]
    far_pop(w)
    return int(event)


@apart
def new_message(w: State, kind: int, source: int, rc: int) -> int:
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
    return int(msg)


@forced
def free_entries(w: State, head: int, tail: int) -> None:
    if head >= 0:
        w.entries[tail, T_NEXT] = w.s[FREE_ENTRY]
        w.s[FREE_ENTRY] = head


@apart
def forget(w: State, msg: int) -> None:
    """Nobody refers to a message: it is gone, with what was pending for it."""
    if not w.s[TOLD]:
        for node in range(w.s[NODES]):
            if w.missing[msg, node]:
                w.missing[msg, node] = 0
                free_entries(
                    w, wide(w.pending[msg, node, P_HEAD]), wide(w.pending[msg, node, P_TAIL])
                )
    w.messages[msg, M_NEXT] = w.s[FREE_MESSAGE]
    w.s[FREE_MESSAGE] = msg


@apart
def release(w: State, msg: int) -> None:
    """One reference less; what nobody refers to is gone, with what was pending for it."""
    w.messages[msg, M_REFS] -= 1
    if w.messages[msg, M_REFS]:
        return
    forget(w, msg)


@apart
def joined(w: State, node: int) -> None:
    w.s[JOINS] += 1
    plan(w, w.s[NOW], JOINED, node)
