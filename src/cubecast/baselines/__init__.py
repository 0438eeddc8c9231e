"""What cubecast is compared with: single-root trees, and trees without order."""

from cubecast.baselines.best_effort import BestEffort
from cubecast.baselines.single_root import FixedTree, SingleRoot

__all__ = ["BestEffort", "FixedTree", "SingleRoot"]
