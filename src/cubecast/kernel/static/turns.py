"""Nodes that publish in turn, as in `cubecast.sim.world.World.take_turns`."""

from __future__ import annotations

from cubecast.kernel.shared.jit import apart
from cubecast.kernel.static.calendar import push
from cubecast.kernel.static.layout import (
    E_TURN,
    NOW,
    TURN_COLUMNS,
    TURN_GAP,
    TURN_TOPIC,
    TURNS_AT,
    StaticState,
)
from cubecast.kernel.static.network import event_of


@apart
def next_turn(w: StaticState, node: int) -> None:
    """Plan the next publication of `node`, if there is one, as the last one has left."""
    m = w.m
    turn = m[m[TURNS_AT] + node]
    if m[turn + TURN_GAP] >= 0:
        m[m[TURNS_AT] + node] = turn + TURN_COLUMNS
        push(w, m[NOW] + m[turn + TURN_GAP], event_of(E_TURN, node, m[turn + TURN_TOPIC]))
