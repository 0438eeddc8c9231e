"""[J] 4.5: subscribers come and go, and their number stays the same.

A subscriber stays for a time with an exponential law (its median is `session`), then leaves, and
at that moment a node drawn from those outside joins.  The time of a newcomer begins when its
``subscribe`` has returned: a system that is slow to admit it has fewer changes per second, which
keeps an overloaded root at a finite queue.  With `at_once` it begins with the call, so that the
number of subscribers never changes, and what a newcomer publishes waits for its own SUB.  Every
`every` u.t. a subscriber drawn at random publishes.  All ends after `span` u.t.

The paper gives rates "per minute" that its session times turn into rates per second: a median of
69 s is ln 2 / 69 s = 1 % per second.  The session times are used here.

Chance comes in three streams, for the lengths of sessions, the newcomers and the publishers, so
that each can be drawn beforehand.
"""

from __future__ import annotations

from math import log
from random import Random

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.world import Silent, World

TOPIC: Topic = "t"


class Chance:
    """The random choices of a run, in the order in which each stream is drawn."""

    def __init__(self, params: Params, rng: Random) -> None:
        self.members = params.draw_members(rng)
        self._rate = log(2) / params.session if params.session else 0.0
        self._stay, self._come, self._speak = (Random(rng.getrandbits(64)) for _ in range(3))

    def stay(self) -> Time:
        """The length of the next session."""
        return round(self._stay.expovariate(self._rate))

    def come(self) -> float:
        """The next newcomer, as a share of the number of nodes outside."""
        return self._come.random()

    def speak(self) -> float:
        """The next publisher, as a share of the number of subscribers."""
        return self._speak.random()


class Crowd:
    """A set of nodes to choose from: choosing, adding and removing need no search."""

    def __init__(self, nodes: list[NodeId]) -> None:
        self._nodes = nodes
        self._place = {node: index for index, node in enumerate(nodes)}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: NodeId) -> None:
        self._place[node] = len(self._nodes)
        self._nodes.append(node)

    def remove(self, node: NodeId) -> None:
        """Remove a node; the last one takes its place."""
        index = self._place.pop(node)
        last = self._nodes.pop()
        if last != node:
            self._nodes[index] = last
            self._place[last] = index

    def choose(self, share: float) -> NodeId:
        return self._nodes[int(share * len(self._nodes))]


class Sessions(Silent):
    """The nodes inside and outside; a node that is joining is in neither set."""

    def __init__(self, world: World, params: Params, chance: Chance) -> None:
        self._world = world
        self._chance = chance
        self._end = params.span
        self._lasting = not params.session
        self._at_once = params.at_once
        members = chance.members
        world.establish(TOPIC, members)
        self._inside = Crowd(list(members))
        chosen = set(members)
        self._outside = Crowd([node for node in range(params.nodes) if node not in chosen])
        for node in members:
            self._begin_session(node)

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        if not self._at_once:
            self._enter(node)

    def publish(self, a: None, b: None, now: Time) -> None:
        if len(self._inside):
            self._world.publish(self._inside.choose(self._chance.speak()), TOPIC)

    def _enter(self, node: NodeId) -> None:
        self._inside.add(node)
        self._begin_session(node)

    def _begin_session(self, node: NodeId) -> None:
        if self._lasting:
            return
        until = self._world.now + self._chance.stay()
        if until <= self._end:
            self._world.post(until, self._leave, node)

    def _leave(self, node: NodeId, _: None, now: Time) -> None:
        self._inside.remove(node)
        self._world.unsubscribe(node, TOPIC)
        if len(self._outside):
            newcomer = self._outside.choose(self._chance.come())
            self._outside.remove(newcomer)
            self._world.subscribe(newcomer, TOPIC)
            if self._at_once:
                self._enter(newcomer)
        self._outside.add(node)


def plan_sessions(world: World, params: Params, rng: Random) -> None:
    """Plan sessions of all subscribers, and publications at regular times."""
    sessions = Sessions(world, params, Chance(params, rng))
    world.application = sessions
    every = max(1, params.every)
    for at in range(every, params.span + 1, every):
        world.post(at, sessions.publish)
