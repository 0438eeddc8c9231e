"""All workloads, by name."""

from __future__ import annotations

from cubecast.lab.cells import Measurement, Settings
from cubecast.lab.churn import CHURN
from cubecast.lab.static import STATIC
from cubecast.lab.vcube_pb import VCUBE_PB
from cubecast.lab.workload import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (*STATIC, *CHURN, *VCUBE_PB)
}


def run_settings(settings: Settings, seed: int) -> Measurement:
    """Measure one run of the workload that the settings name."""
    return WORKLOADS[str(settings["workload"])].measure(settings, seed)
