"""Which engine does a run, and why the others cannot.

=============  =================================================================================
``reference``  the protocol objects (`cubecast.sim.world`): every protocol, scenario and network
`STATIC`       `cubecast.kernel.static`: members stay, links lose nothing
`CHURN`        `cubecast.kernel.churn`: the scenario ``sessions`` ([J] 4.5)
=============  =================================================================================

The last two are compiled.  They give the reference's run, so the choice changes nothing but the
time: ``auto`` takes compiled code where it can, ``kernel`` and ``reference`` insist.  This module
knows what compiled code can run without loading it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal

from cubecast.errors import CubecastError
from cubecast.sim.params import MAX_NODES, Params
from cubecast.sim.scenarios import SCENARIOS, Scenario

ENGINES = ("auto", "kernel", "reference")
Look = Literal["plain", "closely", "changing"]
"""What is measured: the meter alone, histograms besides (`WatchedWorld` of
`cubecast.sim.measured_worlds`), or what the papers count while members change (`ChangingWorld`)."""


class EngineError(CubecastError, ValueError):
    """No engine, or not the one asked for, can do a run; the text says why."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one kind of compiled code can run."""

    members: str
    protocols: tuple[str, ...]
    networks: tuple[str, ...]
    scenarios: tuple[str, ...]
    looks: tuple[Look, ...]

    def refusal(self, scenario: Scenario, protocol: str, params: Params) -> str:
        """Why this code cannot do a run, or nothing.

        A scenario that is not one of the simulator's own may turn out to be impossible later.
        """
        for what, wanted, known in (
            ("protocol", protocol, self.protocols),
            ("network", params.network, self.networks),
        ):
            if wanted not in known:
                return f"the kernel has no {what} {wanted!r}; it has: {', '.join(known)}"
        if params.faulty:
            return "the kernel has no faults of links or nodes"
        if params.whole_views:
            return "the kernel has no ACKs with whole views"
        if params.free:
            return "the kernel has no messages that are handled beside a node's turns"
        if scenario.mortal or (is_built_in(scenario) and scenario.name not in self.scenarios):
            return f"the kernel cannot run {scenario.name!r}: it has {self.members} only"
        return ""


STATIC = Compiled(
    "static membership",
    ("vcube-ps", "srpt", "fixed-tree", "srpt-b"),
    ("queue", "service", "uniform"),
    ("single-publisher", "multi-publisher", "discussion", "question-answer", "topics", "speakers"),
    ("plain", "closely"),
)
CHURN = Compiled(
    "sessions", ("vcube-ps", "srpt-told"), ("queue",), ("sessions",), ("changing",)
)  # fmt: skip


def is_built_in(scenario: Scenario) -> bool:
    """Whether a scenario is one of the simulator's own."""
    return SCENARIOS.get(scenario.name) is scenario


@cache
def has_kernel() -> bool:
    """Whether compiled code can be used here: it needs numba."""
    return find_spec("numba") is not None


def compiled_for(look: Look) -> Compiled:
    """The compiled code that measures what is asked for."""
    return CHURN if look in CHURN.looks else STATIC


def refusal(scenario: Scenario, protocol: str, params: Params, look: Look = "plain") -> str:
    """Why compiled code cannot do a run, or nothing."""
    if not has_kernel():
        return "the kernel needs numba: pip install 'cubecast[lab]'"
    return compiled_for(look).refusal(scenario, protocol, params)


def engine_for(
    scenario: Scenario, protocol: str, params: Params, look: Look = "plain", engine: str = "auto"
) -> Compiled | None:
    """The compiled code that does a run, or None: the reference does it.

    Raises `EngineError` if neither can, or not the one that `engine` insists on.  ``auto`` has the
    reference run scenarios that are not the simulator's own, as any of them may change members.
    """
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
    if engine != "reference":
        reason = refusal(scenario, protocol, params, look)
        if not reason and (engine == "kernel" or is_built_in(scenario)):
            return compiled_for(look)
        if engine == "kernel":
            raise EngineError(reason)
    if params.nodes > MAX_NODES:
        raise EngineError(f"the reference has at most {MAX_NODES} nodes, not {params.nodes}")
    return None
