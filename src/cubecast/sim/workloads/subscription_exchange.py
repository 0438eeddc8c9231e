"""[S] IV, "dynamics of subscriptions" (Table II).

One subscriber publishes `messages` messages, one after the other as fast as its protocol lets it.
At the moment it begins, `changes` of the other subscribers leave and as many outsiders join.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import Time, Topic
from cubecast.sim.params import ParamError, Params
from cubecast.sim.world import World

TOPIC: Topic = "t"


def plan_exchange(world: World, params: Params, rng: Random) -> None:
    """Plan everything at time 0; the messages queue at their publisher."""
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    publisher = rng.choice(members)
    others = [node for node in members if node != publisher]
    chosen = set(members)
    outside = [node for node in range(params.nodes) if node not in chosen]
    if params.changes > min(len(others), len(outside)):
        raise ParamError(
            f"changes must be at most {min(len(others), len(outside))} with {params.nodes} nodes "
            f"and {len(members)} subscribers, not {params.changes}"
        )
    leavers = rng.sample(others, params.changes)
    newcomers = rng.sample(outside, params.changes)

    def begin(a: None, b: None, now: Time) -> None:
        world.publish(publisher, TOPIC)
        for node in leavers:
            world.unsubscribe(node, TOPIC)
        for node in newcomers:
            world.subscribe(node, TOPIC)
        for _ in range(params.messages - 1):
            world.publish(publisher, TOPIC)

    world.post(0, begin)
