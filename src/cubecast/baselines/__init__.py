"""What the papers compare VCube-PS with, and what it costs to order nothing.

Each is a `Process` of `cubecast.protocol.port`, so the simulator, its networks, faults and
checkers apply to all of them alike.
"""

from cubecast.baselines.best_effort import BestEffort
from cubecast.baselines.brokers import BrokerTree
from cubecast.baselines.flood import Flood
from cubecast.baselines.single_root import FixedTree, SingleRoot

__all__ = ["BestEffort", "BrokerTree", "FixedTree", "Flood", "SingleRoot"]
