"""The protocols that the papers compare VCube-PS with, and protocols without order.

Each is a `Process` of `cubecast.protocol.port`, so the simulator, its networks, faults and
checkers apply to all of them.
"""

from cubecast.baselines.best_effort import BestEffort
from cubecast.baselines.brokers import BrokerTree
from cubecast.baselines.flood import Flood
from cubecast.baselines.single_root import FixedTree, SingleRoot
from cubecast.baselines.told_tree import ToldTree

__all__ = ["BestEffort", "BrokerTree", "FixedTree", "Flood", "SingleRoot", "ToldTree"]
