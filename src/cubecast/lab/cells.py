"""The cells of an experiment: one point of the grid and one seed each, and their measurements.

1. `measure` is a pure function: the same cell gives the same measurement, wherever it runs.
2. `Cell.key` identifies the measurement and its code: equal keys, equal measurements.  It
   depends on nothing else (neither the cost nor the position in the grid).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cubecast.lab.sources import code_digest, own_modules
from cubecast.trace import Header, Record

if TYPE_CHECKING:
    import pyarrow as pa

Value: TypeAlias = int | float | str | bool
Settings: TypeAlias = Mapping[str, Value]


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
    def identity(self) -> str:
        """A digest of experiment, settings and seed."""
        text = json.dumps([self.experiment, self.settings_json, self.seed])
        return sha256(text.encode()).hexdigest()[:24]

    @property
    def key(self) -> str:
        """The identity and a digest of the code: a finished cell is found by it on resuming."""
        return f"{self.identity}-{code_digest(own_modules(self.settings))}"


class Trace(NamedTuple):
    """The records of a run."""

    header: Header
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of a cell."""

    metrics: Mapping[str, float]
    """One number per name: the `runs` table."""
    histograms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Name -> {bucket: count}."""
    messages: pa.RecordBatch | None = None
    """Per-message rows, if asked for."""
    trace: Trace | None = None
    """The whole run, if asked for."""


def measure(cell: Cell, keep: Collection[str] = ()) -> Measurement:
    """Run the cell; everything it needs is in its settings and its seed.

    `keep` names the details of `cubecast.lab.cell_details.KEEPABLE` that are wanted beside the
    numbers, which are the same with and without.
    """
    from cubecast.lab.cell_details import message_rows
    from cubecast.lab.workloads import workload_of

    workload = workload_of(cell.settings)
    if not keep:
        return workload.measure(cell.settings, cell.seed)
    workload.refuse_to_keep(keep)
    assert workload.traced is not None
    measurement, trace = workload.traced(cell.settings, cell.seed)
    return replace(
        measurement,
        messages=message_rows(trace.records) if "messages" in keep else None,
        trace=trace if "traces" in keep else None,
    )
