"""When a run with crashes is over: processes that watch each other never rest, but they settle.

A world has *settled* when every publication was taken, no node holds or retains a message, every
node has joined the topics it subscribes to and left those it leaves, and all nodes that are up are
in one view of exactly these nodes.
"""

from __future__ import annotations

from contextlib import suppress

from cubecast.protocol.port import Time
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.params import Params
from cubecast.sim.world import HorizonReached

LOOKS = 32
"""How often a run is checked within the bound, to end it as soon as it has settled."""


def liveness_bound(params: Params, recovery: Time, publications: int) -> Time:
    """The longest time that a run may take to converge after the last fault.

    round  = log2(N) · round trip + ack_delay        a frame down a tree, its ACKs back up
    repair = resend_max + round                      the first repair after the last loss
    bound  = 3 · recovery + 4 · repair + publications · round

    Three recoveries: the node that died last is excluded; an excluded node is found and returns;
    one more for a node that came during these.  Four repairs: of a question, its answer, the
    decision and the feeding.  A round for every publication: with the smallest window they go one
    by one.
    """
    config = params.config()
    depth = max(1, (params.nodes - 1).bit_length())
    one_round = depth * params.round_trip() + config.ack_delay + params.consume_after
    repair = config.resend_max + one_round
    return 3 * recovery + 4 * repair + publications * one_round


def run_until(world: MortalWorld, at: Time) -> None:
    """Let time pass until `at`, whether events are left or not."""
    with suppress(HorizonReached):
        world.run(until=at)
    world.now = max(world.now, at)


def settle(world: MortalWorld, bound: Time) -> bool:
    """Run until the world has settled, at most for the bound; return whether it has."""
    start = world.now
    for look in range(1, LOOKS + 1):
        run_until(world, start + bound * look // LOOKS)
        if not unsettled(world):
            return True
    return False


def unsettled(world: MortalWorld) -> str:
    """What is left to do, as text; empty if the world has settled.

    Where no node crashes, a protocol may do without views.
    """
    up = world.running()
    if world.unsent():
        return f"{world.unsent()} publications were not taken"
    busy = [node for node in up if any(world.processes[node].load()[:2])]
    if busy:
        return f"nodes {busy} hold messages"
    waiting = [node for node in up if not world.has_joined_all(node)]
    if waiting:
        return f"nodes {waiting} have not joined"
    if world.following:
        return f"patterns are not followed: {sorted(world.following)}"
    if world.leaving:
        return f"nodes {sorted(world.leaving)} have not left"
    views = [world.views.get(node) for node in up]
    if not any(views) and not world.has_crashed:
        return ""
    mask = sum(1 << node for node in up)
    if len(set(views)) > 1 or any(view is None or view[1] != mask for view in views):
        return f"views are {views}"
    return ""
