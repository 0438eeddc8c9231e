"""The output of ``cubecast bench``: all runs and medians as JSON, or the medians as tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from rich import box
from rich.table import Table

from cubecast.bench.harness import BenchPlan, Metrics
from cubecast.bench.peers import SYSTEMS
from cubecast.cli.output import console, summarise

COMPARED = (
    "deliveries_per_second",
    "cpu_seconds_per_million",
    "latency_p50_us",
    "latency_p99_us",
)
"""Metrics that are also given as a ratio to cubecast."""
COLUMNS = {
    "deliveries_per_second": "thousand\nper s",
    "cpu_seconds_per_million": "CPU-s\nper M",
    "latency_p50_us": "p50 µs",
    "latency_p99_us": "p99 µs",
    "lost": "lost",
    "inversions": "inver-\nsions",
    "inversions_percent": "% of\nanswers",
    "answers": "answers",
    "rss_start_mb": "MB at\nstart",
    "rss_half_mb": "MB at\nhalf",
    "rss_end_mb": "MB at\nend",
    "rss_largest_mb": "MB, largest\nprocess",
    "rss_growth_mb_per_s": "growth,\nMB per s",
    "publishing_s": "s of pub-\nlishing",
}
SPREAD = ("deliveries_per_second",)
"""Shown in thousands, with the least and the most of the runs."""
SPEED = ("deliveries_per_second", "cpu_seconds_per_million", "lost", "inversions")
SHOWN = {
    "latency": ("latency_p50_us", "latency_p99_us", "cpu_seconds_per_million", "lost"),
    "causal": ("answers", "inversions", "inversions_percent", "lost"),
}
MEMORY = (
    "rss_start_mb",
    "rss_half_mb",
    "rss_end_mb",
    "rss_largest_mb",
    "rss_growth_mb_per_s",
    "publishing_s",
)
VARIED = ("mode", "processes", "size")
"""Parameters that take a list, each then a column."""


@dataclass(frozen=True, slots=True)
class BenchCell:
    """All runs of one system with one plan."""

    system: str
    plan: BenchPlan
    runs: list[Metrics]

    def median(self, name: str) -> float | None:
        """The median of a metric; None if a run does not have it."""
        if not all(name in run for run in self.runs):
            return None
        return statistics.median(run[name] for run in self.runs)

    def spread(self, name: str) -> tuple[float, float]:
        """The least and the most."""
        values = [run[name] for run in self.runs]
        return min(values), max(values)

    def summary(self) -> dict[str, dict[str, float]]:
        """{metric: {mean, sd, n, median, min, max}}."""
        summary = summarise(self.runs)
        for name, figures in summary.items():
            values = [run[name] for run in self.runs if name in run]
            figures.update(median=statistics.median(values), min=min(values), max=max(values))
        return summary

    def ratios(self, cells: list[BenchCell]) -> dict[str, float]:
        """{metric: its median divided by cubecast's with the same plan}."""
        (ours,) = (one for one in cells if one.system == "cubecast" and one.plan == self.plan)
        ratios = {}
        for name in COMPARED:
            mine, theirs = self.median(name), ours.median(name)
            if mine is not None and theirs:
                ratios[name] = mine / theirs
        return ratios


def params_of(plan: BenchPlan) -> dict[str, Any]:
    """The parameters of a plan that its scenario uses."""
    params: dict[str, Any] = {"processes": plan.processes, "size": plan.size}
    if plan.scenario == "causal":
        params |= {"questions": plan.questions, "mode": plan.mode, "rate": plan.rate}
        return {**params, "delay_ms": plan.delay_ms} if plan.mode == "delayed" else params
    params["seconds"] = plan.seconds
    return {**params, "rate": plan.rate} if plan.scenario == "latency" else params


def print_cells(cells: list[BenchCell]) -> None:
    """Print one object for one cell, in the shape of every command; else a list, with ratios."""
    found = [_as_object(cell) for cell in cells]
    if len(cells) == 1:
        typer.echo(json.dumps(found[0]))
        return
    for cell, one in zip(cells, found, strict=True):
        if cell.system != "cubecast":
            one["ratios"] = cell.ratios(cells)
    output: dict[str, Any] = {"runs": found}
    if len({cell.plan for cell in cells}) == 1:
        output["ratios"] = {one["protocol"]: one["ratios"] for one in found if "ratios" in one}
    typer.echo(json.dumps(output))


def _as_object(cell: BenchCell) -> dict[str, Any]:
    return {
        "scenario": cell.plan.scenario,
        "protocol": cell.system,
        "params": params_of(cell.plan),
        "metrics": cell.summary(),
        "repetitions": cell.runs,
    }


# -- tables ---------------------------------------------------------------------------------------


def print_tables(cells: list[BenchCell]) -> None:
    """Print medians; for throughput a second table shows memory."""
    scenario = cells[0].plan.scenario
    varied = [name for name in VARIED if len({getattr(cell.plan, name) for cell in cells}) > 1]
    fixed = {name: value for name, value in params_of(cells[-1].plan).items() if name not in varied}
    fixed["runs"] = len(cells[0].runs)
    said = ", ".join(f"{name} {value}" for name, value in fixed.items())
    what = "" if scenario in SHOWN else "deliveries, "
    ratios = " and ratios to cubecast" if scenario != "causal" else ""
    console.print(f"{scenario}: {what}medians{ratios}; {said}")
    console.print(_table(cells, varied, SHOWN.get(scenario, SPEED)))
    if scenario not in SHOWN and any(cell.median("rss_end_mb") is not None for cell in cells):
        console.print("memory, all processes together")
        console.print(_table(cells, varied, MEMORY))
    for cell in cells:
        early = sum(run.get("ended_early", 0.0) for run in cell.runs)
        if early:
            where = "".join(f", {name} {getattr(cell.plan, name)}" for name in varied)
            console.print(
                f"{SYSTEMS[cell.system]}{where}: {early:.0f} of {len(cell.runs)} runs stopped "
                "publishing early, as memory reached its limit"
            )


def _table(cells: list[BenchCell], varied: list[str], wanted: tuple[str, ...]) -> Table:
    names = [name for name in wanted if all(cell.median(name) is not None for cell in cells)]
    compared = len({cell.system for cell in cells}) > 1
    several = any(len(cell.runs) > 1 for cell in cells)
    table = Table(box=box.SIMPLE, padding=(0, 1), collapse_padding=True)
    table.add_column("system", no_wrap=True)
    makers: list[Callable[[BenchCell], str]] = []

    def add(header: str, make: Callable[[BenchCell], str]) -> None:
        table.add_column(header, justify="right", no_wrap=True)
        makers.append(make)

    for name in varied:
        add(name, lambda cell, name=name: str(getattr(cell.plan, name)))  # type: ignore[misc]
    for name in names:
        add(COLUMNS[name], lambda cell, name=name: _figure(cell.median(name), name))  # type: ignore[misc]
        if name in SPREAD and several:
            add("min-max", lambda cell, name=name: _range(*cell.spread(name)))  # type: ignore[misc]
        if name in COMPARED and compared:
            add(
                "ratio",
                lambda cell, name=name: _ratio(cell.ratios(cells).get(name)),  # type: ignore[misc]
            )
    for cell in cells:
        table.add_row(SYSTEMS[cell.system], *(make(cell) for make in makers))
    return table


def _figure(value: float | None, name: str) -> str:
    assert value is not None, "a column is only there if every cell has it"
    value = value / 1e3 if name in SPREAD else value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _range(least: float, most: float) -> str:
    digits = 0 if most >= 1e5 else 2
    return f"{least / 1e3:,.{digits}f}-{most / 1e3:,.{digits}f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
