"""All workloads, by name: ours, those of installed packages, and "module:object"."""

from __future__ import annotations

from cubecast.lab.cells import Settings
from cubecast.lab.churn import CHURN
from cubecast.lab.ordered_events import ORDERED_EVENTS
from cubecast.lab.ordering import ORDERING
from cubecast.lab.stan import STAN
from cubecast.lab.static import STATIC
from cubecast.lab.universes import UNIVERSE
from cubecast.lab.vcube_pb import VCUBE_PB
from cubecast.lab.workload import Workload
from cubecast.plugins import Registry

SHIPPED = (*STATIC, *CHURN, *VCUBE_PB, *ORDERING, *ORDERED_EVENTS, *STAN, *UNIVERSE)
WORKLOADS: Registry[Workload] = Registry(
    "cubecast.workloads", {workload.name: workload for workload in SHIPPED}, Workload
)


def workload_of(settings: Settings) -> Workload:
    """The workload that the settings name."""
    return WORKLOADS[str(settings["workload"])]
