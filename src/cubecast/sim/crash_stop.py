"""Crash-stop processes and a perfect detector, for protocols that assume both ([B] 3).

A `Mortal` stands between a process and its world, as a process to the world and as a port to the
process.  When it dies, in the middle of a broadcast if so planned, nothing passes any more: the
process receives nothing, is not woken, and whatever it still does reaches nobody.  What it sent
before is under way and arrives.

Detection is perfect: each process that has not crashed is told of every crash, `Mortals.detect`
u.t. later at most, and of no other unless `suspect` says so.  The lower bound is above the longest
way of a message, as with a time-out of one round trip: whatever the dead sent itself has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from cubecast.protocol.port import Load, Message, NodeId, Port, Process, Publication, Time, Topic
from cubecast.sim.world import World
from cubecast.trace import Record

MakeProcess = Callable[[NodeId, Port], Process]


class Mortal:
    """A process that may crash; alive, it is not there."""

    def __init__(self, node: NodeId, port: Port, make: MakeProcess, mortals: Mortals) -> None:
        self.node = node
        self.alive = True
        self.copies_left: int | None = None
        """Dies when it has sent so many more copies of publications; None: it does not."""
        self._port = port
        self.mortals = mortals
        self._process = make(node, PortOf(self, port))
        self.label = self._process.label

    def __getattr__(self, name: str) -> Any:
        """What a protocol has beside the contract (`consumed`, `is_lossy`, …)."""
        return getattr(self._process, name)

    # The world calls:

    def establish(self, topic: Topic, members: int) -> None:
        self._process.establish(topic, members)

    def subscribe(self, topic: Topic, now: Time, *options: Any) -> None:
        if self.alive:
            process: Any = self._process
            process.subscribe(topic, now, *options)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        if self.alive:
            self._process.unsubscribe(topic, now)

    def register(self, topic: Topic, now: Time) -> None:
        if self.alive:
            self._process.register(topic, now)

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        return not self.alive or self._process.publish(topic, body, size, now)

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        if self.alive:
            self._process.on_message(message, sender, now)

    def on_wake(self, now: Time) -> None:
        if self.alive:
            self._process.on_wake(now)

    def load(self) -> Load:
        return self._process.load() if self.alive else Load(0, 0)

    # The detector and the port call:

    def notify(self, crashed: NodeId, _: None, now: Time) -> None:
        """The detector says that `crashed` has crashed, to those protocols that listen.

        What is certain here (`crashed`) may be an opinion elsewhere (`suspect`).
        """
        process = self._process
        listener = getattr(process, "crashed", None) or getattr(process, "suspect", None)
        if self.alive and listener is not None:
            listener(crashed, now)

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        """One copy after the other, and perhaps the end between two of them."""
        if self.copies_left is not None and self.copies_left < len(peers):
            peers = peers[: self.copies_left]
            if peers:
                self._port.relay(peers, message)
            self.mortals.crash(self.node)
            return
        if self.copies_left is not None:
            self.copies_left -= len(peers)
        self._port.relay(peers, message)


class PortOf:
    """The port of a mortal's process: the world's while it lives, nothing afterwards."""

    def __init__(self, mortal: Mortal, port: Port) -> None:
        self._mortal = mortal
        self._port = port

    def __getattr__(self, name: str) -> Any:
        """`control`, `joined`, `wake` and the rest of `Port`."""
        return getattr(self._port, name) if self._mortal.alive else _nothing

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        if self._mortal.alive:
            self._mortal.relay(peers, message)

    def deliver(self, publication: Publication) -> bool:
        return not self._mortal.alive or self._port.deliver(publication)


def _nothing(*_: Any) -> None:
    """What the dead do."""


class Mortals:
    """All processes of a world, when they may crash.

    `detect` is the range of times from a crash to each process's notice of it.
    """

    def __init__(self, make: MakeProcess, rng: Random, detect: tuple[Time, Time]) -> None:
        self._make = make
        self._rng = rng
        self._detect = detect
        self._world: World
        self._mortals: list[Mortal] = []
        self.crashes = 0

    def make(self, node: NodeId, port: Port) -> Process:
        """How the world makes its processes."""
        mortal = Mortal(node, port, self._make, self)
        self._mortals.append(mortal)
        return mortal  # type: ignore[return-value]  # `label` is its process's

    def attach(self, world: World) -> None:
        self._world = world

    def alive(self, node: NodeId) -> bool:
        return self._mortals[node].alive

    def crash(self, node: NodeId) -> None:
        """`node` stops now, for good; the others hear of it, each at its own time."""
        mortal = self._mortals[node]
        if not mortal.alive:
            return
        mortal.alive = False
        self.crashes += 1
        world = self._world
        if world.trace is not None:
            world.trace.append(Record("crash", world.now, node))
        for other in self._mortals:
            delay = self._rng.randint(*self._detect)
            world.post(world.now + delay, other.notify, node)

    def crash_after(self, node: NodeId, copies: int) -> None:
        """`node` stops when it has sent so many more copies of publications."""
        self._mortals[node].copies_left = copies

    def suspect(self, node: NodeId, peer: NodeId) -> None:
        """A mistake that a perfect detector never makes: `node` is told that `peer` crashed."""
        self._mortals[node].notify(peer, None, self._world.now)


def mortals_of(world: World) -> Mortals:
    """Those of a world whose processes may crash."""
    process = world.processes[0]
    assert isinstance(process, Mortal), "the scenario does not say that processes may crash"
    return process.mortals


def detection_range(longest_way: Time, dimension: int) -> tuple[Time, Time]:
    """From just above the longest way of a message to log2² n rounds of a round trip ([B] 5.1)."""
    return longest_way + 1, longest_way + 1 + 2 * longest_way * max(1, dimension**2)
