"""A simulated world whose processes only write down what arrives."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from cubecast.protocol.port import Load, Message, NodeId, Port, Time, Topic
from cubecast.sim.world import NetworkModel, World


class Note(NamedTuple):
    """A message with a name."""

    text: str
    kind: str = "note"


class Listener:
    """Writes down (time, sender, text) of what arrives."""

    label: ClassVar[str] = "listener"

    def __init__(self, node: NodeId, port: Port) -> None:
        self.port = port
        self.heard: list[tuple[Time, NodeId, str]] = []

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        assert isinstance(message, Note)
        self.heard.append((now, sender, message.text))

    def establish(self, topic: Topic, members: int) -> None: ...
    def subscribe(self, topic: Topic, now: Time) -> None: ...
    def unsubscribe(self, topic: Topic, now: Time) -> None: ...
    def register(self, topic: Topic, now: Time) -> None: ...
    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        return True

    def on_wake(self, now: Time) -> None: ...
    def load(self) -> Load:
        return Load(0, 0)


class Room:
    """A world of listeners."""

    def __init__(self, nodes: int, network: NetworkModel) -> None:
        self.listeners: list[Listener] = []

        def make(node: NodeId, port: Port) -> Listener:
            self.listeners.append(Listener(node, port))
            return self.listeners[-1]

        self.world = World(nodes, make, network)

    def relay(self, at: Time, source: NodeId, peers: list[NodeId], text: str) -> None:
        port = self.listeners[source].port
        self.world.post(at, lambda a, b, now: port.relay(peers, Note(text)))

    def control(self, at: Time, source: NodeId, peer: NodeId, text: str) -> None:
        port = self.listeners[source].port
        self.world.post(at, lambda a, b, now: port.control(peer, Note(text)))

    def heard(self) -> list[list[tuple[Time, NodeId, str]]]:
        self.world.run()
        return [listener.heard for listener in self.listeners]
