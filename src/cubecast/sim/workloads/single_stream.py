"""One publisher with many messages: a test of windows and batches.

All `messages` are handed over at time 0, `batch` of them at a time; the protocol takes what its
window allows, and the rest waits.  The last delivery ends the run, so `messages` divided by the
greatest latency is what the protocol carries.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.world import World

TOPIC: Topic = "t"


def plan_stream(world: World, params: Params, rng: Random) -> None:
    members = params.draw_members(rng)
    world.establish(TOPIC, members)
    publisher = rng.choice(members)
    batch = max(1, params.batch)

    def begin(a: None, b: None, now: Time) -> None:
        for first in range(0, params.messages, batch):
            world.publish_batch(publisher, TOPIC, min(batch, params.messages - first))

    world.post(0, begin)
