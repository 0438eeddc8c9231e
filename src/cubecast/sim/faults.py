"""Faults of links and nodes, as named options.

Every option is a probability or a span of time; all chance comes from one generator, so a seed
replays a run.  The default does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from cubecast.protocol.cluster.views import Depart, Enter, Stuck
from cubecast.protocol.messages import Answer, Parcel
from cubecast.protocol.port import Message, NodeId, Time

if TYPE_CHECKING:
    from cubecast.sim.world import World


@dataclass(frozen=True, slots=True)
class Partition:
    """Drops messages sent from `start` on and before `end` between `side` (a bit mask) and the
    others; messages under way at `start` arrive.
    """

    start: Time
    end: Time
    side: int

    def cuts(self, source: NodeId, peer: NodeId, now: Time) -> bool:
        if not self.start <= now < self.end:
            return False
        return (self.side >> source ^ self.side >> peer) & 1 == 1


@dataclass(frozen=True, slots=True)
class Cut:
    """Drops messages sent from `start` on and before `end` from a node of `sources` to one of
    `peers` (bit masks); the other way is open.
    """

    start: Time
    end: Time
    sources: int
    peers: int

    def cuts(self, source: NodeId, peer: NodeId, now: Time) -> bool:
        if not self.start <= now < self.end:
            return False
        return (self.sources >> source & self.peers >> peer) & 1 == 1


@dataclass(frozen=True, slots=True)
class Slow:
    """Slows messages sent from `start` on and before `end`, from a node of `sources` to one of
    `peers` (bit masks): they take `factor` times as long, and `delay` more.
    """

    start: Time
    end: Time
    sources: int
    peers: int
    factor: int = 1
    delay: Time = 0

    def slows(self, source: NodeId, peer: NodeId, now: Time) -> bool:
        if not self.start <= now < self.end:
            return False
        return (self.sources >> source & self.peers >> peer) & 1 == 1


@dataclass(frozen=True, slots=True)
class MuteNode:
    """Drops the answers of `node` to waves from `start` on and before `end`, and nothing else.

    With `to`, only the answers to that node.
    """

    node: NodeId
    start: Time
    end: Time
    to: NodeId = -1

    def keeps(self, source: NodeId, peer: NodeId, message: Message, now: Time) -> bool:
        """Whether a message is an answer to be dropped.  A network carries it in an envelope."""
        if source != self.node or not self.start <= now < self.end or self.to not in (-1, peer):
            return False
        parcel = getattr(message, "message", message)
        return isinstance(parcel, Parcel) and isinstance(parcel.message, Answer)


@dataclass(frozen=True, slots=True)
class IdleNode:
    """Drops what would make `node` change the view, from `start` on and before `end`.

    It answers tests and waves, so that it leads as long as its slot is the lowest, and lets no node
    in or out.  It still excludes members that it takes for dead itself.
    """

    node: NodeId
    start: Time
    end: Time

    def keeps(self, peer: NodeId, message: Message, now: Time) -> bool:
        """Whether a message to `peer` is one of those."""
        if peer != self.node or not self.start <= now < self.end:
            return False
        return isinstance(getattr(message, "message", message), Enter | Stuck | Depart)


@dataclass(frozen=True, slots=True)
class Pause:
    """Stops `node` from `start` on and before `end`; messages that arrive wait."""

    node: NodeId
    start: Time
    end: Time


@dataclass(frozen=True, slots=True)
class Hold:
    """Messages of one `kind` from `source` to `peer` take `delay` u.t. more (scenario files).

    `publisher` and `nth` narrow it to publications of one node, and to the n-th match, from 0.
    """

    source: NodeId
    peer: NodeId
    delay: Time
    kind: str = "pub"
    publisher: NodeId | None = None
    nth: int | None = None

    def matches(self, source: NodeId, peer: NodeId, message: Message) -> bool:
        return (
            source == self.source
            and peer == self.peer
            and message.kind == self.kind
            and (self.publisher is None or getattr(message, "stream", (None,))[0] == self.publisher)
        )


@dataclass(slots=True)
class Faults:
    """Named link faults; probabilities are per message."""

    rng: Random
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_by: Time = 200
    spike: float = 0.0
    spike_by: Time = 2000
    partitions: tuple[Partition | Cut, ...] = ()
    holds: tuple[Hold, ...] = ()
    slows: tuple[Slow, ...] = ()
    mutes: tuple[MuteNode, ...] = ()
    idles: tuple[IdleNode, ...] = ()
    until: Time | None = None
    """No random fault happens to messages that leave from then on."""
    lost: int = 0
    duplicated: int = 0
    _world: World | None = None
    _held: dict[int, int] = field(default_factory=dict)

    def attach(self, world: World) -> None:
        self._world = world

    def post(self, at: Time, source: NodeId, peer: NodeId, message: Message, leaves: Time) -> None:
        """Plan the arrival of a message that leaves at `leaves` and is due at `at`.

        It may arrive late, twice, or not at all.
        """
        world = self._world
        assert world is not None
        if any(cut.cuts(source, peer, leaves) for cut in self.partitions):
            self.lost += 1
            return
        if any(mute.keeps(source, peer, message, leaves) for mute in self.mutes):
            return
        if any(idle.keeps(peer, message, leaves) for idle in self.idles):
            return
        if self.until is not None and leaves >= self.until:
            world.post(world.awake(peer, at), world.receivers[peer], message, source)
            return
        chance = self.rng.random
        if self.loss and chance() < self.loss:
            self.lost += 1
            return
        copies = 1
        if self.duplicate and chance() < self.duplicate:
            self.duplicated += 1
            copies = 2
        at += self._held_by(source, peer, message)
        for slow in self.slows:
            if slow.slows(source, peer, leaves):
                at = leaves + (at - leaves) * slow.factor + slow.delay
        for _ in range(copies):
            late = 0
            if self.reorder and chance() < self.reorder:
                late += 1 + int(chance() * self.reorder_by)
            if self.spike and chance() < self.spike:
                late += self.spike_by
            world.post(world.awake(peer, at + late), world.receivers[peer], message, source)

    def _held_by(self, source: NodeId, peer: NodeId, message: Message) -> Time:
        delay = 0
        for index, hold in enumerate(self.holds):
            if hold.matches(source, peer, message):
                seen = self._held.get(index, 0)
                self._held[index] = seen + 1
                if hold.nth is None or hold.nth == seen:
                    delay += hold.delay
        return delay
