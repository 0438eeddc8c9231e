"""One run on compiled code: from parameters to metrics."""

from __future__ import annotations

from random import Random

import numpy as np

from cubecast.kernel.churn.engine import advance, start
from cubecast.kernel.shared.arrays import BUDGET, longer
from cubecast.protocol.port import Time
from cubecast.sim.params import Params
from cubecast.sim.protocols import roots
from cubecast.sim.workloads.sessions import TOPIC, Chance

from cubecast.kernel.churn.layout import (  # isort: skip
    AT_ONCE, CAME, COME_ROOM, CONTROLS, COUNTER, DIMENSION, DONE, END, ENTRIES, ENTRY,
    ENTRY_ROOM, EVENT, EVENT_ROOM, EVENTS, FALSE, FAR, FAR_ROOM, FREE_ENTRY, FREE_EVENT,
    FREE_MESSAGE, HOP, INSIDE,
    JOINS, LASTING, MEMBERS_IN, MEMBERS_OUT, MESSAGE, MESSAGE_ROOM, MESSAGES, NODE, NODES,
    NUMBER, OUTSIDE, OWN, PENDING, PLACE, PLAN, PUBLISHED, PUBS, Q_HEAD, QUEUE_ACKS, QUEUED,
    QUEUED_SUM, RECEPTION_SUM, RECEPTIONS, RING, ROOM, ROOT, SCALARS, SENDING, SINCE, STAY_ROOM,
    STAYED, TOLD, ChurnState,
)  # fmt: skip


def run_sessions(protocol: str, params: Params, seed: int, warmup: Time) -> dict[str, float]:
    """The scenario's run, with the metrics of `cubecast.sim.measured_worlds.ChangingWorld`."""
    name = f"sessions/{seed}"
    chance = Chance(params, Random(name))
    root_of = roots(protocol, params, name)
    state = _initial(params, chance, warmup)
    if root_of is not None:
        state.s[TOLD], state.s[ROOT] = 1, root_of(TOPIC)
        state.known[:] = 0
    state = _grown(state, params, chance)
    start(state, max(1, params.every))
    while advance(state, BUDGET) != DONE:
        state = _grown(state, params, chance)
    return _metrics(state)


def _initial(params: Params, chance: Chance, warmup: Time) -> ChurnState:
    """The state at rest, with the first subscribers established."""
    count = params.nodes
    dimension = (count - 1).bit_length()
    if count != 1 << dimension:
        raise ValueError(f"nodes must be a power of two, not {count}")
    members = np.array(chance.members, np.int32)
    s = np.zeros(SCALARS, np.int64)
    s[END], s[SINCE], s[HOP], s[QUEUE_ACKS] = params.span, warmup, params.hop, params.queue_acks
    s[AT_ONCE] = params.at_once
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
    nodes = np.zeros((count, NODE), np.int64)
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
    return ChurnState(
        s=s,
        stay=np.zeros(0, np.int64),
        come=np.zeros(0),
        speak=np.array([chance.speak() for _ in range(params.span // max(1, params.every) + 1)]),
        heads=np.full(RING, -1, np.int32),
        tails=np.full(RING, -1, np.int32),
        far=np.zeros(0, np.int64),
        events=np.zeros(0, np.int64),
        entries=np.zeros(0, np.int32),
        messages=np.zeros(0, np.int64),
        pending=np.zeros(0, np.int32),
        snapshots=np.zeros(0, np.uint8),
        nodes=nodes.ravel(),
        crowd=crowd.ravel(),
        known=view.ravel(),
        tries=tries.ravel(),
        heard=np.zeros(count * count, np.uint8),
        wanted=present,
    )


def _grown(w: ChurnState, params: Params, chance: Chance) -> ChurnState:
    """The same state with more room in every pool that has little left."""
    s = w.s
    count = params.nodes
    planned = 0 if s[NUMBER] else count + len(w.speak)
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
    messages = _room(len(w.messages) // MESSAGE, int(s[MESSAGES]))
    w = w._replace(
        events=longer(w.events, _room(len(w.events), int(s[EVENTS]), EVENT, planned)),
        far=longer(w.far, _room(len(w.far), int(s[FAR]), PLAN, planned)),
        entries=longer(w.entries, _room(len(w.entries), int(s[ENTRIES]), ENTRY)),
        messages=longer(w.messages, MESSAGE * messages),
        pending=longer(w.pending, 0 if told else PENDING * count * messages),
        snapshots=longer(w.snapshots, 2 * count * messages if told else 0),
    )
    s[EVENT_ROOM], s[ENTRY_ROOM], s[MESSAGE_ROOM] = len(w.events), len(w.entries), messages
    s[FAR_ROOM], s[STAY_ROOM], s[COME_ROOM] = len(w.far), len(w.stay), len(w.come)
    return w


def _room(length: int, used: int, columns: int = 1, planned: int = 0) -> int:
    """The present length if it is enough, else half as much again as is needed."""
    needed = used + columns * (planned + ROOM)
    return length if needed <= length else needed + columns * (needed // columns // 2)


def _metrics(w: ChurnState) -> dict[str, float]:
    s = w.s
    nodes = w.nodes.reshape(-1, NODE)
    queued, sums = nodes[:, QUEUED], nodes[:, QUEUED_SUM]
    worst = float(np.max(sums / np.maximum(queued, 1)))
    return {
        "reception_mean": int(s[RECEPTION_SUM]) / max(1, int(s[RECEPTIONS])),
        "pub_messages": float(s[PUBS]),
        "control_messages": float(s[CONTROLS]),
        "false_positives": float(s[FALSE]),
        "publications": float(s[PUBLISHED]),
        "receptions": float(s[RECEPTIONS]),
        "wait_mean": int(sums.sum()) / int(queued.sum()) - 1 if queued.any() else 0.0,
        "wait_worst": max(0.0, worst - 1),
        "joins": float(s[JOINS]),
    }
