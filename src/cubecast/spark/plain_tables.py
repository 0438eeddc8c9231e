"""From the finished tables of a directory to plain data, by pyarrow: neither Spark nor Java."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import parse
from cubecast.lab.report.data import Findings, HistogramRow, Provenance
from cubecast.lab.report.wording import varying
from cubecast.lab.verdicts import Row
from cubecast.spark.results import Results


def gather(results: Results) -> Findings:
    """All findings of the tables of a directory."""
    results.require_tables()
    grid = results.grid()
    texts = results.experiment_texts()
    ids = dict.fromkeys(grid["experiment"].to_pylist())
    there = set(results.table("timings", ["key"])["key"].to_pylist())
    return Findings(
        experiments=tuple(parse(texts[id], f"{id}.toml") for id in ids if id in texts),
        rows=tuple(mean_rows(results)),
        histograms=tuple(histogram_rows(results)),
        provenance=tuple(provenance(results)),
        missing=missing_cells(grid, there),
        failures=tuple(str(results.failure(key)) for key in sorted(results.failed())),
    )


@cache
def _settings(text: str) -> Settings:
    """Parse settings once for all rows of a point, which share the text."""
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def mean_rows(results: Results) -> list[Row]:
    """The mean of every metric at every point, in the order of the grids."""
    names = ("experiment", "settings", "metric", "mean", "ci", "n")
    return [
        Row(experiment, _settings(settings), metric, mean, 0.0 if ci is None else ci, n)
        for experiment, settings, metric, mean, ci, n in _tuples(results, "points", names)
    ]


def histogram_rows(results: Results) -> list[HistogramRow]:
    """Every bucket of every histogram, in the order of the grids."""
    names = ("experiment", "settings", "name", "bucket", "mean", "ci", "n")
    return [
        HistogramRow(experiment, _settings(settings), name, bucket, mean, ci or 0.0, n)
        for experiment, settings, name, bucket, mean, ci, n in _tuples(
            results, "distributions", names
        )
    ]


def _tuples(results: Results, name: str, columns: Sequence[str]) -> Any:
    table = results.table(name, columns)
    return zip(*(table[column].to_pylist() for column in columns), strict=True)


# -- how it came about -----------------------------------------------------------------------------


def provenance(results: Results) -> list[Provenance]:
    """The provenance of each sweep that measured cells; if none did, of the last one."""
    busy = {one["sweep"]: one for one in results.table("busyness").to_pylist()}
    made = [_provenance(sweep, busy.get(sweep.get("sweep"), {})) for sweep in results.sweeps()]
    return [one for one in made if one.cells] or made[-1:]


def _provenance(sweep: Mapping[str, Any], busy: Mapping[str, Any]) -> Provenance:
    seeds = sweep.get("seeds")
    return Provenance(
        command=str(sweep.get("command", "")),
        date=str(sweep.get("started", ""))[:10],
        versions=dict(sweep.get("versions") or {}),
        seeds=None if seeds is None else int(seeds),
        quick=bool(sweep.get("quick")),
        master=str(sweep.get("master", "")),
        cells=int(busy.get("cells", 0)),
        seconds=busy.get("span_s"),
        idle=busy.get("idle_share"),
        commit=str(sweep.get("commit") or ""),
    )


def missing_cells(grid: pa.Table, there: set[str]) -> dict[str, list[str]]:
    """{experiment: cells of its grid that the tables lack, named by their varying settings}."""
    columns = ("experiment", "key", "settings", "seed")
    rows = list(zip(*(grid[name].to_pylist() for name in columns), strict=True))
    lacking = [row for row in rows if row[1] not in there]
    texts = {id: dict.fromkeys(row[2] for row in rows if row[0] == id) for id, *_ in lacking}
    names = {id: varying([_settings(text) for text in own]) for id, own in texts.items()}
    found: dict[str, list[str]] = {}
    for experiment, _, text, seed in lacking:
        settings = _settings(text)
        point = ", ".join(f"{n}={settings[n]}" for n in names[experiment] if n in settings)
        found.setdefault(experiment, []).append(f"{point} seed {seed}".strip())
    return found
