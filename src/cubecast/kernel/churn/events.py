"""The event queue, and the pools of messages and of entries in ACKs."""

from __future__ import annotations

from cubecast.kernel.shared.jit import apart, forced

from cubecast.kernel.churn.layout import (  # isort: skip
    E_FROM, E_HEAD, E_KEY, E_KIND, E_MSG, E_NEXT, E_TAIL, E_TO, EVENT, EVENTS, FAR, FREE_ENTRY,
    FREE_EVENT, FREE_MESSAGE, IN_RING, JOINED, JOINS, M_AT, M_KIND, M_NEXT, M_RC, M_REFS,
    M_SOURCE, MESSAGE, MESSAGES, NODES, NOW, NUMBER, NUMBER_BITS, P_HEAD, P_MISSING, P_TAIL,
    PENDING, PLAN, RING, T_NEXT, TOLD, ChurnState,
)  # fmt: skip


@forced
def new_event(
    w: ChurnState, kind: int, to: int, sender: int, msg: int, head: int, tail: int
) -> int:
    event = w.s[FREE_EVENT]
    if event >= 0:
        w.s[FREE_EVENT] = w.events[event + E_NEXT]
    else:
        event = w.s[EVENTS]
        w.s[EVENTS] += EVENT
    w.events[event + E_KIND] = kind
    w.events[event + E_TO] = to
    w.events[event + E_FROM] = sender
    w.events[event + E_MSG] = msg
    w.events[event + E_HEAD] = head
    w.events[event + E_TAIL] = tail
    w.events[event + E_NEXT] = -1
    return int(event)


@apart
def far_push(w: ChurnState, key: int, event: int) -> None:
    """Put an event on the heap."""
    place = w.s[FAR]
    w.s[FAR] += PLAN
    while place > 0:
        above = (place // PLAN - 1) // 2 * PLAN
        if w.far[above] < key:
            break
        w.far[place] = w.far[above]
        w.far[place + 1] = w.far[above + 1]
        place = above
    w.far[place] = key
    w.far[place + 1] = event


@forced
def post(w: ChurnState, at: int, event: int) -> None:
    """Plan an event, after those already planned for that time."""
    number = w.s[NUMBER]
    w.s[NUMBER] += 1
    w.events[event + E_KEY] = at << NUMBER_BITS | number
    if at - w.s[NOW] < RING:
        bucket = at & (RING - 1)
        if w.heads[bucket] < 0:
            w.heads[bucket] = event
        else:
            w.events[w.tails[bucket] + E_NEXT] = event
        w.tails[bucket] = event
        w.s[IN_RING] += 1
    else:
        far_push(w, at << NUMBER_BITS | number, event)


@apart
def plan(w: ChurnState, at: int, kind: int, node: int) -> None:
    """Plan an event that is no message."""
    post(w, at, new_event(w, kind, node, node, -1, -1, -1))


@apart
def far_pop(w: ChurnState) -> None:
    """Remove the earliest of the heap; the caller has read it."""
    last = w.s[FAR] - PLAN
    w.s[FAR] = last
    key = w.far[last]
    place = 0
    while True:
        below = 2 * place + PLAN
        if below >= last:
            break
        if below + PLAN < last and w.far[below + PLAN] < w.far[below]:
            below += PLAN
        if key < w.far[below]:
            break
        w.far[place] = w.far[below]
        w.far[place + 1] = w.far[below + 1]
        place = below
    w.far[place + 1] = w.far[last + 1]
    w.far[place] = key


@forced
def next_event(w: ChurnState) -> int:
    """Take out the next event and set the time; -1 if there is none."""
    s = w.s
    if s[IN_RING]:
        at = s[NOW]
        while w.heads[at & (RING - 1)] < 0:
            at += 1
        event = w.heads[at & (RING - 1)]
        if s[FAR] == 0 or w.far[0] > w.events[event + E_KEY]:
            s[NOW] = at
            w.heads[at & (RING - 1)] = w.events[event + E_NEXT]
            s[IN_RING] -= 1
            return int(event)
    if s[FAR] == 0:
        return -1
    event = w.far[1]
    s[NOW] = w.far[0] >> NUMBER_BITS
    far_pop(w)
    return int(event)


@apart
def new_message(w: ChurnState, kind: int, source: int, rc: int) -> int:
    """Take a message with one reference from the pool."""
    msg = w.s[FREE_MESSAGE]
    if msg >= 0:
        w.s[FREE_MESSAGE] = w.messages[msg * MESSAGE + M_NEXT]
    else:
        msg = w.s[MESSAGES]
        w.s[MESSAGES] += 1
    row = msg * MESSAGE
    w.messages[row + M_KIND] = kind
    w.messages[row + M_SOURCE] = source
    w.messages[row + M_RC] = rc
    w.messages[row + M_AT] = w.s[NOW]
    w.messages[row + M_REFS] = 1
    w.messages[row + M_NEXT] = -1
    return int(msg)


@forced
def free_entries(w: ChurnState, head: int, tail: int) -> None:
    if head >= 0:
        w.entries[tail + T_NEXT] = w.s[FREE_ENTRY]
        w.s[FREE_ENTRY] = head


@forced
def pending_of(w: ChurnState, msg: int, node: int) -> int:
    """The place of the state of a node that waits for ACKs of a message."""
    return int((msg * w.s[NODES] + node) * PENDING)


@apart
def forget(w: ChurnState, msg: int) -> None:
    """Free a message without references, with the state that was pending for it."""
    if not w.s[TOLD]:
        first = pending_of(w, msg, 0)
        for row in range(first, first + w.s[NODES] * PENDING, PENDING):
            if w.pending[row + P_MISSING]:
                w.pending[row + P_MISSING] = 0
                free_entries(w, w.pending[row + P_HEAD], w.pending[row + P_TAIL])
    w.messages[msg * MESSAGE + M_NEXT] = w.s[FREE_MESSAGE]
    w.s[FREE_MESSAGE] = msg


@forced
def release(w: ChurnState, msg: int) -> None:
    """Drop one reference; free the message if it was the last."""
    w.messages[msg * MESSAGE + M_REFS] -= 1
    if w.messages[msg * MESSAGE + M_REFS] == 0:
        forget(w, msg)


@apart
def joined(w: ChurnState, node: int) -> None:
    w.s[JOINS] += 1
    plan(w, w.s[NOW], JOINED, node)
