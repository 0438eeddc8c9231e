"""VCube-PB on a wire: messages move, and crashes are told of, only when a test says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cubecast.protocol.paper.vcube_pb import Tree, VCubePB
from cubecast.protocol.port import Message, NodeId, Publication, Time, Topic
from cubecast.sim.crashes.vcube_top import VCubeTop
from cubecast.topology import mask_of

T = "t"
Ident = tuple[NodeId, int]


class Plug:
    """The port of one process on the wire."""

    def __init__(self, wire: Wire, node: NodeId) -> None:
        self.wire = wire
        self.node = node

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        self.wire.send(self.node, peers, message)

    def control(self, peer: NodeId, message: Message) -> None:
        self.wire.send(self.node, [peer], message)

    def deliver(self, publication: Publication) -> bool:
        ident = (publication.stream.source, publication.first)
        self.wire.delivered[self.node].append(ident)
        return True

    def joined(self, topic: Topic) -> None:
        self.wire.joined.append(self.node)

    def left(self, topic: Topic) -> None:
        self.wire.left.append(self.node)

    def wake(self, at: Time) -> None:
        self.wire.alarms.add((at, self.node))


class Wire:
    """Processes of VCube-PB and the messages between them, which move only when told to."""

    def __init__(
        self, nodes: int, members: Iterable[NodeId], kind: type[VCubePB] = VCubePB
    ) -> None:
        self.flying: list[tuple[NodeId, NodeId, Any]] = []
        self.sent: list[tuple[NodeId, NodeId, Any]] = []
        self.delivered: list[list[Ident]] = [[] for _ in range(nodes)]
        self.joined: list[NodeId] = []
        self.left: list[NodeId] = []
        self.alarms: set[tuple[Time, NodeId]] = set()
        top = VCubeTop(10)
        self.nodes = [
            kind(node, Plug(self, node), nodes=nodes, top=top)  # type: ignore[arg-type]
            for node in range(nodes)
        ]
        for process in self.nodes:
            process.establish(T, mask_of(members))

    def send(self, source: NodeId, peers: Sequence[NodeId], message: Any) -> None:
        for peer in peers:
            self.flying.append((source, peer, message))
            self.sent.append((source, peer, message))

    def publish(self, node: NodeId) -> None:
        assert self.nodes[node].publish(T, (object(),), 1, 0)

    def arrive(self, source: NodeId, peer: NodeId, kind: str = "pub") -> None:
        """Let the oldest message of this kind on one link arrive."""
        for index, (a, b, message) in enumerate(self.flying):
            if (a, b, message.kind) == (source, peer, kind):
                del self.flying[index]
                self.nodes[peer].on_message(message, source, 0)
                return
        raise AssertionError(f"no {kind} from {source} to {peer}: {self.flying}")

    def settle(self) -> None:
        """Let everything arrive, and what follows from it."""
        while self.flying:
            source, peer, message = self.flying.pop(0)
            self.nodes[peer].on_message(message, source, 0)

    def crash(self, node: NodeId) -> None:
        """`node` is heard and seen no more; what it sent is under way."""
        process: Any = Dead()
        self.nodes[node] = process

    def tell(self, crashed: NodeId, *nodes: NodeId) -> None:
        for node in nodes:
            self.nodes[node].crashed(crashed, 0)

    def ring(self) -> None:
        """The next round of tests brings its news."""
        now = min(self.alarms)[0]
        due = sorted(node for at, node in self.alarms if at == now)
        self.alarms = {alarm for alarm in self.alarms if alarm[0] != now}
        for node in due:
            self.nodes[node].on_wake(now)

    def links(self) -> list[tuple[NodeId, NodeId]]:
        """Every (from, to) a publication was sent on, in order."""
        return [(a, b) for a, b, message in self.sent if type(message) is Tree]


class Dead:
    """A process that has crashed."""

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        pass

    def on_wake(self, now: Time) -> None:
        pass
