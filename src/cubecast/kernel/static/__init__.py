"""The simulator's static scenarios, compiled: no node joins or leaves, links lose nothing.

`simulate` runs a plan (`plan_of` makes one of a scenario) and gives the metrics of
`cubecast.sim.run.run`, histograms besides, and on request the same trace;
`cubecast.sim.engines.STATIC` says what cannot be run.
"""

from __future__ import annotations

from cubecast.kernel.static.plan import plan_of
from cubecast.kernel.static.run import simulate

__all__ = ["plan_of", "simulate"]
