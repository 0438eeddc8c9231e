"""The simulator's static scenarios as compiled code on flat arrays: the same traces, much faster.

`run` takes what `cubecast.sim.run.run` takes and gives the same metrics, histograms besides, and
on request the same trace.  It is for static membership and links without faults; `refusal` says
why something else cannot be run.  `docs/kernel.md` explains the model.  Needs numba (extra `lab`).
"""

from cubecast.kernel.errors import KernelError
from cubecast.kernel.plan import Plan, plan_of
from cubecast.kernel.result import Result
from cubecast.kernel.run import refusal, run, simulate
from cubecast.sim.params import WideParams as Params

__all__ = ["KernelError", "Params", "Plan", "Result", "plan_of", "refusal", "run", "simulate"]
