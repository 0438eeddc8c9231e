"""What a sweep takes from a workload: all metrics that it declares, as numbers.

A workload of a user's own may forget one, or give what is no number; a mean over its other cells
would be wrong without a word.  So that is a failure of the cell.
"""

from __future__ import annotations

import math

from cubecast.lab.cells import Cell, Measurement, measure
from cubecast.lab.workloads import workload_of


def measured(cell: Cell, keep: tuple[str, ...] = ()) -> Measurement:
    """Measure a cell; `ValueError` if the workload does not give what it declares."""
    found = measure(cell, keep=keep)
    if not isinstance(found, Measurement):
        raise ValueError(f"measure returned {type(found).__name__}, not a Measurement")
    declared = workload_of(cell.settings).metrics
    if lacking := sorted(set(declared) - set(found.metrics)):
        raise ValueError(f"measure did not give {', '.join(lacking)}, which `metrics` declares")
    if odd := [name for name, value in found.metrics.items() if not math.isfinite(value)]:
        raise ValueError(f"measure gave {odd[0]} = {found.metrics[odd[0]]}, which is no number")
    return found
