"""VCube-PB on a wire: messages move, and crashes are told of, only when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cubecast.protocol.paper.vcube_pb import TreeMessage, VCubePB
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.crashes.vcube_top import VCubeTop
from support import paper_wire


class Wire(paper_wire.Wire):
    """A wire whose processes crash, and hear of it."""

    def __init__(
        self, nodes: int, members: Iterable[NodeId], kind: type[VCubePB] = VCubePB
    ) -> None:
        self.alarms: set[tuple[Time, NodeId]] = set()
        top = VCubeTop(10)
        super().__init__(nodes, members, lambda node, port: kind(node, port, nodes=nodes, top=top))  # type: ignore[arg-type]

    def crash(self, node: NodeId) -> None:
        """`node` is heard and seen no more; what it sent is under way."""
        self.nodes[node] = Dead()

    def tell(self, crashed: NodeId, *nodes: NodeId) -> None:
        for node in nodes:
            self.nodes[node].crashed(crashed, 0)

    def wake(self, at: Time, node: NodeId) -> None:
        self.alarms.add((at, node))

    def ring(self) -> None:
        """The next round of tests brings its news."""
        now = min(self.alarms)[0]
        due = sorted(node for at, node in self.alarms if at == now)
        self.alarms = {alarm for alarm in self.alarms if alarm[0] != now}
        for node in due:
            self.nodes[node].on_wake(now)

    def links(self, kind: type = TreeMessage) -> list[tuple[NodeId, NodeId]]:
        return super().links(kind)


class Dead:
    """A process that has crashed."""

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        pass

    def on_wake(self, now: Time) -> None:
        pass
