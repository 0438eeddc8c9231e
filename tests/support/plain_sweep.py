"""A directory of results as a run on Spark leaves it, made by a plain loop: without Java."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubecast.lab.cells import Cell
from cubecast.lab.measuring import measured
from cubecast.lab.request import Asked, text_of
from cubecast.lab.statistics import summary
from cubecast.spark.executor_task import run_cell
from cubecast.spark.results import LAST, Results, grid_table
from cubecast.spark.sweep import survey
from cubecast.spark.tables import SCHEMAS, schema_with, setting_fields, with_settings

SWEEP = "0123456789ab"
FACTS = {"started": "2024-02-03T04:05:06"}


def sweep(asked: Asked, out: Path) -> None:
    """Measure the cells that `out` lacks, one after the other, and write the tables."""
    results = Results(out)
    with results.opened():
        for experiment in asked.experiments:
            results.note_experiment(experiment.id, text_of(experiment))
        cells = asked.cells()
        found = survey(cells, results)
        results.extend_grid(found.wanted.values())
        results.note_sweep(SWEEP, FACTS)
        for row in grid_table(found.missing).to_pylist():
            done = run_cell(row, results.place.uri, SWEEP, pickle.dumps(measured), "here")
            assert not done["error"], done["details"]
        seals = results.known(found.wanted.keys())
        put_tables(results, cells, _tables(results, cells), results.made_of(seals))


def put_tables(
    results: Results,
    cells: Sequence[Cell],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    made_of: str = "",
) -> None:
    """Write tables of these cells; those that are not given have no rows."""
    settings = setting_fields([cell.settings_json for cell in cells])
    seals: dict[str, str] = {}
    for name in sorted(SCHEMAS, key=LAST.__eq__):
        schema = schema_with(name, settings)
        table = pa.Table.from_pylist(list(tables.get(name, ())), schema=SCHEMAS[name])
        notes = (made_of, seals) if name == LAST else None
        whole = with_settings(table, schema).cast(schema)
        seals[name] = results.write_table(name, schema, [whole], notes)


def _tables(results: Results, cells: Sequence[Cell]) -> dict[str, list[dict[str, Any]]]:
    """What the cells measured, and the mean of every metric at every point."""
    runs, timings = [], []
    for cell in cells:
        (row,) = results.cell(cell.key).to_pylist()
        own = {**_place(cell), "key": cell.key, "seed": cell.seed}
        runs += [{**own, **metric} for metric in row["metrics"]]
        timings.append({**row, **own})
    points = []
    runs.sort(key=_point)
    for _, group in groupby(runs, key=_point):
        rows = list(group)
        values = [row["value"] for row in rows]
        told = {"least": min(values), "most": max(values), **summary(values)._asdict()}
        points.append({**rows[0], **told})
    return {"runs": runs, "points": points, "timings": timings}


def _place(cell: Cell) -> dict[str, Any]:
    return {
        "experiment": cell.experiment, "cell": cell.number, "settings": cell.settings_json
    }  # fmt: skip


def _point(run: Mapping[str, Any]) -> tuple[str, int, str]:
    return run["experiment"], run["cell"], run["metric"]
