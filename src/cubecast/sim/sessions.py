"""[J] 4.5: nodes come and go, and their number stays the same.

A subscriber stays for a time with an exponential law (its median is `session`), then leaves, and
at that moment a node drawn from those outside joins.  The time of a newcomer begins when its
``subscribe`` has returned: a system that is slow to take it in has fewer changes per second, which
is what keeps an overloaded root at a finite queue.  Every `every` u.t. a subscriber drawn at random
publishes.  All ends after `span` u.t.

The paper gives rates "per minute" that its session times turn into rates per second: a median of
69 s is ln 2 / 69 s = 1 % per second.  The session times are used here.
"""

from __future__ import annotations

from math import log
from random import Random

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.world import Silent, World

TOPIC: Topic = "t"


class Crowd:
    """A set of nodes to draw from: draw, add and remove without a search."""

    def __init__(self, nodes: list[NodeId]) -> None:
        self._nodes = nodes
        self._place = {node: index for index, node in enumerate(nodes)}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: NodeId) -> None:
        self._place[node] = len(self._nodes)
        self._nodes.append(node)

    def remove(self, node: NodeId) -> None:
        index = self._place.pop(node)
        last = self._nodes.pop()
        if last != node:
            self._nodes[index] = last
            self._place[last] = index

    def draw(self, rng: Random) -> NodeId:
        return self._nodes[rng.randrange(len(self._nodes))]


class Sessions(Silent):
    """Who is in and who is out; those on the way in are neither."""

    def __init__(self, world: World, params: Params, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._end = params.span
        self._rate = log(2) / params.session if params.session else 0.0
        members = params.draw_members(rng)
        world.establish(TOPIC, members)
        self.inside = Crowd(list(members))
        chosen = set(members)
        self._outside = Crowd([node for node in range(params.nodes) if node not in chosen])
        for node in members:
            self._begin_session(node)

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        self.inside.add(node)
        self._begin_session(node)

    def publish(self, a: None, b: None, now: Time) -> None:
        if len(self.inside):
            self._world.publish(self.inside.draw(self._rng), TOPIC)

    def _begin_session(self, node: NodeId) -> None:
        if self._rate:
            until = self._world.now + round(self._rng.expovariate(self._rate))
            if until <= self._end:
                self._world.post(until, self._leave, node)

    def _leave(self, node: NodeId, _: None, now: Time) -> None:
        self.inside.remove(node)
        self._world.unsubscribe(node, TOPIC)
        self._outside.add(node)
        newcomer = self._outside.draw(self._rng)
        while newcomer == node and len(self._outside) > 1:
            newcomer = self._outside.draw(self._rng)
        self._outside.remove(newcomer)
        self._world.subscribe(newcomer, TOPIC)


def plan_sessions(world: World, params: Params, rng: Random) -> None:
    """Sessions of all subscribers, and publications at regular times."""
    sessions = Sessions(world, params, rng)
    world.application = sessions
    for at in range(params.every, params.span + 1, params.every):
        world.post(at, sessions.publish)
