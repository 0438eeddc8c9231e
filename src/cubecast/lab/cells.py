"""The cells of an experiment: one point of the grid and one seed each, and what they measure.

1. `measure` is a pure function: the same cell gives the same measurement, wherever it runs.
2. `Cell.key` names what was measured: equal keys, equal measurements.  It depends on nothing that
   may change without changing the result (neither the cost nor the position in the grid).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Value: TypeAlias = int | float | str | bool
Settings: TypeAlias = Mapping[str, Value]

ENGINE_VERSION = 1
"""Raised whenever a change of the simulator or the kernel changes what a cell measures."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of an experiment's grid, for one seed."""

    experiment: str
    number: int
    """Position of the point in the experiment's grid, the same for all its seeds."""
    settings: Settings
    """All parameters: the fixed ones and this point of the grid."""
    seed: int
    cost: float = 1.0
    """Estimated seconds: big cells start first, so that no core idles at the end."""

    @property
    def settings_json(self) -> str:
        """The settings as text, the same for equal settings."""
        return json.dumps(dict(self.settings), sort_keys=True)

    @property
    def key(self) -> str:
        """A digest of experiment, settings, seed and engine: what "finished" means on resuming."""
        text = json.dumps([self.experiment, self.settings_json, self.seed, ENGINE_VERSION])
        return sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of a cell."""

    metrics: Mapping[str, float]
    """One number per name: the `runs` table."""
    histograms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Name -> {bucket: count}."""
    messages: pa.RecordBatch | None = None
    """Per-message rows, if asked for."""


def measure(cell: Cell) -> Measurement:
    """Run the cell; everything it needs is in its settings and its seed."""
    from cubecast.lab.workloads import run_settings

    return run_settings(cell.settings, cell.seed)
