"""Crashes for good and a perfect detector, for protocols that assume both ([B] 3).

Detection is perfect: each process that has not crashed is told of every crash, at most the upper
bound of `detect` later, and of no other unless `suspect` says so.  The lower bound is above the
longest way of a message, as with a time-out of one round trip: everything that the crashed node
sent itself has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from cubecast.protocol.port import NodeId, Port, Process, Time
from cubecast.sim.crashes.mortal_world import MortalWorld
from cubecast.sim.world import NetworkModel

MakeProcess = Callable[[NodeId, Port], Process]


class CrashStopWorld(MortalWorld):
    """A world in which every node is told who crashed, each at a time that `rng` draws.

    `detect` is the range of times from a crash to each process's notice of it.  The papers'
    protocols number messages in their own ways and report no losses, so there is no ledger.
    """

    keeps_ledger: ClassVar[bool] = False

    def __init__(
        self,
        nodes: int,
        make: MakeProcess,
        network: NetworkModel,
        *,
        rng: Random,
        detect: tuple[Time, Time],
        **options: Any,
    ) -> None:
        self._rng = rng
        self._detect = detect
        super().__init__(nodes, lambda node, port, life: make(node, port), network, **options)

    def crash(self, node: NodeId) -> None:
        """Stop `node` now, for good; each other node hears of it at its own time."""
        super().crash(node)
        for other in range(len(self.processes)):
            delay = self._rng.randint(*self._detect)
            self.post(self.now + delay, self._notice, other, node)

    def restart(self, node: NodeId) -> None:
        raise ValueError(f"node {node} cannot restart: crashes are for good here")

    def _notice(self, node: NodeId, crashed: NodeId, now: Time) -> None:
        self.suspect(node, crashed)  # a crashed node does not listen


def detection_range(longest_way: Time, dimension: int) -> tuple[Time, Time]:
    """From just above the longest way of a message to log2² n rounds of a round trip ([B] 5.1)."""
    return longest_way + 1, longest_way + 1 + 2 * longest_way * max(1, dimension**2)
