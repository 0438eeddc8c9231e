"""Stories of nodes that are cut off and come back, told in the simulator."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from cubecast.protocol.cluster.member import Member
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.crashes.convergence import liveness_bound, run_until, settle, unsettled
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.faults import Cut, Faults
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import Mortality, members
from cubecast.trace import Record, check

PARAMS = Params().with_({"network": "uniform", "low": 1, "high": 30})


class Story:
    """A world with cuts at known times, and its judgement."""

    def __init__(self, nodes: int, cuts: Iterable[Cut] = (), kind: type[Member] = Member) -> None:
        self.trace: list[Record] = []
        self.params = PARAMS.with_({"nodes": nodes})
        self.mortals: Mortality = members(self.params, kind)
        faults = Faults(Random(1), partitions=tuple(cuts))
        network = Uniform(Random(2), 1, 30, faults=faults)
        self.world = MortalWorld(nodes, self.mortals.make, network, trace=self.trace)

    def at(self, time: Time) -> MortalWorld:
        """Let the world come to this time."""
        run_until(self.world, time)
        return self.world

    def until_alone(self, node: NodeId, time: Time) -> MortalWorld:
        """Let the world come to this time, and on until a node is in a view by itself."""
        self.at(time)
        while (view := self.member(node).view) is None or view.mask != 1 << node:
            self.at(self.world.now + 10)
        return self.world

    def settle(self) -> str:
        """Let everything be done within the bound; what is left, in words."""
        bound = liveness_bound(self.params, self.mortals.recovery, self.world.publications)
        return "" if settle(self.world, bound) else unsettled(self.world)

    def member(self, node: NodeId) -> Member:
        process: Any = self.world.processes[node]
        assert isinstance(process, Member)
        return process

    def gaps(self, node: NodeId) -> list[object]:
        """The messages that a node reported as lost."""
        return [r.id for r in self.trace if r.kind == "gap" and r.node == node]

    def delivered(self, node: NodeId) -> list[object]:
        return [r.id for r in self.trace if r.kind == "deliver" and r.node == node]

    def judge(self) -> None:
        assert self.settle() == ""
        report = check(self.trace)
        assert report.ok, str(report)
