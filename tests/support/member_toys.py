"""Members of the production protocol, with every message moved by hand and no detector."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Seal, Who, genesis
from cubecast.protocol.config import Config
from cubecast.protocol.port import (
    Accusation,
    Denial,
    Message,
    NodeId,
    Publication,
    Seq,
    Stream,
    Time,
    Topic,
)

CONFIG = Config(ack_delay=0, stable_delay=0, resend_after=20, resend_max=80)
EPOCHS = AgreementConfig(answer_after=30, repeat_after=5, beacon_every=20, enter_every=5)
Spans = Mapping[Stream, tuple[Seq, Seq]]


class Flying(NamedTuple):
    """A message on its way, and the life that sent it."""

    source: NodeId
    to: NodeId
    message: Any
    seal: Seal


class Hand:
    """The port of one member: what it sends flies, the rest is written down."""

    def __init__(self, world: Members, node: NodeId) -> None:
        self.world = world
        self.node = node
        self.said: list[tuple[Any, ...]] = []

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        for peer in peers:
            self.control(peer, message)

    def control(self, peer: NodeId, message: Message) -> None:
        seal = self.world.members[self.node].seal()
        self.world.flying.append(Flying(self.node, peer, message, seal))

    def reach(self, address: str, message: Message) -> None:
        self.control(int(address), message)

    def deliver(self, publication: Publication) -> bool:
        self.said += [("deliver", publication.topic, body) for body in publication.body]
        return True

    def joined(self, topic: Topic) -> None:
        self.said.append(("joined", topic))

    def gap(self, topic: Topic, skipped: Spans) -> None:
        self.said.append(("gap", topic, dict(skipped)))

    def discard(self, topic: Topic, dropped: Spans) -> None:
        self.said.append(("discard", topic, dict(dropped)))

    def view(self, epoch: int, members: int) -> None:
        self.said.append(("view", epoch, members))

    def left(self, topic: Topic) -> None:
        self.said.append(("left", topic))

    def forgotten(self, topic: Topic) -> None:
        self.said.append(("forgotten", topic))

    def discovered(self, topic: Topic) -> None:
        self.said.append(("discovered", topic))

    def followed(self, key: Hashable, complete: bool) -> None:
        self.said.append(("followed", key, complete))

    def listed(self, ticket: Hashable, topics: Sequence[tuple[Topic, int]], complete: bool) -> None:
        self.said.append(("listed", ticket))

    def writable(self, topic: Topic) -> None:
        self.said.append(("writable", topic))

    def departed(self) -> None:
        self.said.append(("departed",))

    def mute(self, accusation: Accusation) -> None:
        self.said.append(("mute", *accusation))

    def denied(self, denial: Denial) -> None:
        self.said.append(("denied", *denial))

    def excluded(self) -> None:
        self.said.append(("excluded",))

    def wake(self, at: Time) -> None:
        """The world wakes everyone at every tick."""

    def delivered(self, topic: Topic = "t") -> list[object]:
        """What the application has read of a topic."""
        return [one[2] for one in self.said if one[0] == "deliver" and one[1] == topic]

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        """What was said of one kind, without its name."""
        return [one[1:] for one in self.said if one[0] == kind]


class Members:
    """Some nodes, `members` of them (all) subscribed to "t", and what flies between them."""

    def __init__(
        self,
        nodes: int,
        members: int = -1,
        kind: type[Member] = Member,
        config: Config = CONFIG,
    ) -> None:
        self.now: Time = 0
        self.flying: list[Flying] = []
        self.down: set[NodeId] = set()
        self.ports = [Hand(self, node) for node in range(nodes)]
        self.members: list[Member] = []
        first = genesis({node: Who(f"n{node}", str(node), 0) for node in range(nodes)})
        for node, port in enumerate(self.ports):
            who = first.members[node]
            member = kind(node, port, view=first, who=who, config=config, epochs=EPOCHS)
            self.members.append(member)
        for member in self.members:
            member.establish("t", members & (1 << nodes) - 1)

    def publish(self, node: NodeId, body: str, topic: Topic = "t") -> bool:
        return self.members[node].publish(topic, (body,), 1, self.now)

    def suspect(self, whom: NodeId, *by: NodeId) -> None:
        """All, or some, take a node for dead."""
        for node in by or [node for node in range(len(self.members)) if node != whom]:
            view = self.members[node].view
            if node not in self.down and view is not None and whom in view.members:
                self.members[node].suspect(whom, self.now)

    def hand_over(self, where: Callable[[Flying], bool] = lambda _: True) -> int:
        """Deliver what flies now and is chosen; how many that were."""
        chosen = [one for one in self.flying if where(one)]
        self.flying = [one for one in self.flying if not where(one)]
        for one in chosen:
            if one.to not in self.down and one.to < len(self.members):
                self.members[one.to].on_packet(one.message, one.source, one.seal, self.now)
        return len(chosen)

    def lose(self, where: Callable[[Flying], bool] = lambda _: True) -> None:
        """Messages that never arrive."""
        self.flying = [one for one in self.flying if not where(one)]

    def settle(self, where: Callable[[Flying], bool] = lambda _: True, ticks: int = 40) -> None:
        """Let time pass; deliver what is chosen, and what comes of it."""
        for _ in range(ticks):
            for _ in range(1000):
                if not self.hand_over(where):
                    break
            self.now += 5
            for node, member in enumerate(self.members):
                if node not in self.down:
                    member.on_wake(self.now)

    def masks(self) -> list[int | None]:
        """The members in the view of each node that is up, as a mask."""
        return [
            None if member.view is None else member.view.mask
            for node, member in enumerate(self.members)
            if node not in self.down
        ]


def kind(*names: str) -> Callable[[Flying], bool]:
    """Messages of these kinds."""
    return lambda one: one.message.kind in names


def link(source: NodeId, to: NodeId) -> Callable[[Flying], bool]:
    """Messages from here to there."""
    return lambda one: (one.source, one.to) == (source, to)


def both(*conditions: Callable[[Flying], bool]) -> Callable[[Flying], bool]:
    """Messages of which all of this is true."""
    return lambda one: all(condition(one) for condition in conditions)
