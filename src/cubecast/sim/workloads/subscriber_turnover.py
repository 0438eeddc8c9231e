"""[B] 6, "several publishers with changing subscriptions" (Figure 4).

A share of the nodes publish one message each at a time drawn from U[0, span]; every `CHANGE_EVERY`
u.t. up to `SHARE` of the nodes change: a subscriber leaves, another node subscribes.  Where the
protocol has open groups the publishers register as such, and publish whether or not they subscribe
at that moment; elsewhere publishers that do not subscribe at that moment keep silent.
"""

from __future__ import annotations

from random import Random

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.world import World

TOPIC: Topic = "t"
CHANGE_EVERY: Time = 100
SHARE = 0.05
CLOSED = frozenset({"vcube-ps", "best-effort"})
"""Labels of protocols in which only subscribers may publish."""


class Turnover:
    """The subscribers, and the nodes that are joining."""

    def __init__(
        self, world: World, params: Params, rng: Random, silent: NodeId | None = None
    ) -> None:
        self._world = world
        self._rng = rng
        self._most = int(SHARE * params.nodes)
        members = params.draw_members(rng)
        self._inside = [node in members for node in range(params.nodes)]
        self._joining = [False] * params.nodes
        candidates = [node for node in members if node != silent] or members
        self.publishers = params.draw_publishers(rng, candidates)
        world.establish(TOPIC, members)
        self._open = world.processes[0].label not in CLOSED
        if self._open:
            for node in self.publishers:
                world.register(node, TOPIC)

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        """Do nothing: there are no answers."""

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        self._inside[node] = True
        self._joining[node] = False

    def publish(self, node: NodeId, _: None, now: Time) -> None:
        if self._open or self._inside[node]:
            self._world.publish(node, TOPIC)

    def change(self, a: None, b: None, now: Time) -> None:
        """Replace up to `SHARE` of the nodes, each at most once; one subscriber always stays."""
        count = self._rng.randint(0, self._most)
        for node in self._rng.sample(range(len(self._inside)), count):
            if self._joining[node]:
                continue
            if not self._inside[node]:
                self._joining[node] = True
                self._world.subscribe(node, TOPIC)
            elif sum(self._inside) > 1:
                self._inside[node] = False
                self._world.unsubscribe(node, TOPIC)


def plan_turnover(world: World, params: Params, rng: Random, silent: NodeId | None = None) -> None:
    """Plan publications over `span`, none by `silent`, and changes until the end of `span`."""
    crowd = Turnover(world, params, rng, silent)
    world.application = crowd
    for node in crowd.publishers:
        world.post(rng.randint(0, params.span), crowd.publish, node)
    for at in range(CHANGE_EVERY, params.span, CHANGE_EVERY):
        world.post(at, crowd.change)
