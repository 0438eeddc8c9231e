"""The papers' protocols on a wire: messages move only when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cubecast.protocol.port import Message, NodeId, Publication, Time, Topic
from cubecast.topology import mask_of

T = "t"
Ident = tuple[NodeId, int]


class Wire:
    """Processes of one protocol and the messages between them."""

    def __init__(
        self, nodes: int, members: Iterable[NodeId], make: Callable[[NodeId, Plug], Any]
    ) -> None:
        self.flying: list[tuple[NodeId, NodeId, Any]] = []
        self.sent: list[tuple[NodeId, NodeId, Any]] = []
        self.delivered: list[list[Ident]] = [[] for _ in range(nodes)]
        self.joined: list[tuple[NodeId, Topic]] = []
        self.left: list[tuple[NodeId, Topic]] = []
        self.nodes = [make(node, Plug(self, node)) for node in range(nodes)]
        if mask := mask_of(members):
            for process in self.nodes:
                process.establish(T, mask)

    def publish(self, node: NodeId, topic: Topic = T) -> Any:
        """Publish, and return the publication if it was sent at once."""
        before = len(self.sent)
        assert self.nodes[node].publish(topic, (object(),), 1, 0)
        return next((m for _, _, m in self.sent[before:] if m.kind == "pub"), None)

    def arrive(
        self, source: NodeId, peer: NodeId, kind: str = "pub", by: NodeId | None = None
    ) -> None:
        """Let the oldest message of this kind (`by` one publisher) on one link arrive."""
        for index, (a, b, message) in enumerate(self.flying):
            if (a, b, message.kind) == (source, peer, kind) and by in (None, message.ident[0]):
                del self.flying[index]
                self.nodes[peer].on_message(message, source, 0)
                return
        raise AssertionError(f"no {kind} from {source} to {peer}: {self.flying}")

    def settle(self, *kinds: str) -> None:
        """Let everything arrive (of these kinds, if any are named), and what follows from it."""
        while True:
            for index, (source, peer, message) in enumerate(self.flying):
                if not kinds or message.kind in kinds:
                    del self.flying[index]
                    self.nodes[peer].on_message(message, source, 0)
                    break
            else:
                return

    def wake(self, at: Time, node: NodeId) -> None:
        raise AssertionError("there are no timers")

    def links(self, kind: type) -> list[tuple[NodeId, NodeId]]:
        """Every (from, to) a message of this class was sent on, in order."""
        return [(a, b) for a, b, message in self.sent if type(message) is kind]


class Plug:
    """The port of one process on the wire."""

    def __init__(self, wire: Wire, node: NodeId) -> None:
        self.wire = wire
        self.node = node

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        for peer in peers:
            self.control(peer, message)

    def control(self, peer: NodeId, message: Message) -> None:
        self.wire.flying.append((self.node, peer, message))
        self.wire.sent.append((self.node, peer, message))

    def deliver(self, publication: Publication) -> bool:
        self.wire.delivered[self.node].append((publication.stream.source, publication.first))
        return True

    def joined(self, topic: Topic) -> None:
        self.wire.joined.append((self.node, topic))

    def left(self, topic: Topic) -> None:
        self.wire.left.append((self.node, topic))

    def wake(self, at: Time) -> None:
        self.wire.wake(at, self.node)
