"""Simulations as compiled code on flat arrays: the same runs as the objects give, much faster.

===============  ================================================================================
`kernel.static`  the simulator's scenarios on static membership ([J] 4.1 to 4.4, 4.6)
`kernel.churn`   subscribers that stay for a while and are replaced ([J] 4.5)
`kernel.gossip`  dissemination by gossip on given overlays
`kernel.rounds`  overlays that are aligned in rounds
`kernel.shared`  how all of them are compiled, and where compiled code is kept
===============  ================================================================================

`cubecast.sim.run.run` takes the first two where they can do a run (`cubecast.sim.engines`).  `run`
here is the static kernel itself: it adds per-message figures.  `docs/kernel.md` explains
the model.  Needs numba (extra `lab`).
"""

from cubecast.kernel.errors import KernelError
from cubecast.kernel.static.plan import Plan, plan_of
from cubecast.kernel.static.result import Result
from cubecast.kernel.static.run import refusal, run, simulate
from cubecast.sim.params import WideParams as Params

__all__ = ["KernelError", "Params", "Plan", "Result", "plan_of", "refusal", "run", "simulate"]
