"""``lab report`` and ``compare`` on finished tables: neither Spark nor Java, nothing left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pa = pytest.importorskip("pyarrow")

from cubecast.cli.app import app  # noqa: E402
from cubecast.lab.cells import Cell  # noqa: E402
from cubecast.lab.experiment import find  # noqa: E402
from cubecast.lab.statistics import critical_value, summary  # noqa: E402
from cubecast.spark.compare import compared  # noqa: E402
from cubecast.spark.plain_tables import gather  # noqa: E402
from cubecast.spark.results import Results, grid_table  # noqa: E402
from cubecast.spark.tables import RUNS, setting_fields, with_settings  # noqa: E402
from support.plain_sweep import put_tables  # noqa: E402

SWEEP = "0123456789ab"
FACTS = {
    "command": "cubecast lab run 4.1", "started": "2024-02-03T04:05:06", "master": "local[2]",
    "seeds": 2, "quick": False, "versions": {"cubecast": "0.1.0"}, "cores": 2, "commit": "abc+",
}  # fmt: skip


def cells_of(nodes: tuple[int, ...] = (8, 16), seeds: int = 2) -> list[Cell]:
    """Two protocols, some sizes, some seeds of 4.1, as its grid has them."""
    known = [cell for cell in find("4.1").cells(seeds=seeds) if cell.settings["nodes"] in nodes]
    wanted = {"subscribers": 0.25, "network": "queue", "hop": 100}
    return [cell for cell in known if wanted.items() <= cell.settings.items()]


def latency(cell: Cell, more: float = 0.0) -> float:
    return float(cell.settings["nodes"]) + 0.1 * cell.seed + more


def finished(out: Path, cells: list[Cell], *, lacking: int = 0, more: float = 0.0) -> Path:
    """A directory as a run leaves it; the last `lacking` cells have no result."""
    there = cells[: len(cells) - lacking]
    results = Results(out)
    with results.opened():
        results.extend_grid(cells)
        results.note_experiment("4.1", text_of("4.1"))
        results.note_sweep(SWEEP, FACTS)
        put_tables(results, cells, tables_of(there, more))
    return out


def text_of(id: str) -> str:
    from importlib.resources import files

    return (files("cubecast.lab") / "experiments" / f"{id}.toml").read_text(encoding="utf-8")


def tables_of(cells: list[Cell], more: float) -> dict[str, list[dict[str, Any]]]:
    runs = [
        {**place(cell), "key": cell.key, "seed": cell.seed, "metric": "latency_mean",
         "value": latency(cell, more)}
        for cell in cells
    ]  # fmt: skip
    points = []
    for number in dict.fromkeys(cell.number for cell in cells):
        own = [cell for cell in cells if cell.number == number]
        values = [latency(cell, more) for cell in own]
        n, mean, ci = summary(values)
        told = {"n": n, "mean": mean, "ci": ci, "least": min(values), "most": max(values)}
        points.append({**place(own[0]), "metric": "latency_mean", "sd": None, **told})
    timings = [
        {"experiment": "4.1", "cell": cell.number, "key": cell.key, "seed": cell.seed,
         "sweep": SWEEP, "executor": "e", "worker": 1, "started": 0, "ended": 1}
        for cell in cells
    ]  # fmt: skip
    busy = {"sweep": SWEEP, "cores": 2, "cells": len(cells), "busy_s": 1.0, "span_s": 2.0,
            "tail_s": 0.0, "idle_share": 0.75}  # fmt: skip
    return {"runs": runs, "timings": timings, "points": points, "busyness": [busy]}


def place(cell: Cell) -> dict[str, Any]:
    return {"experiment": "4.1", "cell": cell.number, "settings": cell.settings_json}


def lab(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["lab", *map(str, arguments)])


# -- without Spark ---------------------------------------------------------------------------------

WITHOUT_SPARK = """
import os, sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None
os.environ["PATH"] = os.environ["JAVA_HOME"] = "/nowhere"
from cubecast.cli.main import main
main()
"""


@pytest.mark.parametrize("command", ["report", "compare"])
def test_finished_tables_need_neither_spark_nor_java(command: str, tmp_path: Path) -> None:
    out = finished(tmp_path / "a", cells_of())
    other = [finished(tmp_path / "b", cells_of(), more=1.0)] * (command == "compare")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "lab", command, out, *other, "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 4
    if command == "compare":
        assert [row["difference"] for row in found["rows"]] == pytest.approx([1.0] * 4)
    else:
        assert found["made"][0]["commit"] == "abc+"


def test_findings_are_what_the_tables_say(tmp_path: Path) -> None:
    findings = gather(Results(finished(tmp_path, cells_of(), lacking=1)))
    assert [one.id for one in findings.experiments] == ["4.1"]
    assert [(row.mean, row.n) for row in findings.rows] == [
        (8.05, 2), (16.05, 2), (8.05, 2), (16.0, 1),
    ]  # fmt: skip
    assert findings.rows[3].ci == 0.0, "one seed has no interval"
    assert findings.missing == {"4.1": ["nodes=16, protocol=srpt seed 1"]}
    (made,) = findings.provenance
    assert (made.date, made.commit, made.cells, made.idle) == ("2024-02-03", "abc+", 7, 0.75)


def test_a_cell_that_the_tables_lack_is_named(tmp_path: Path) -> None:
    told = json.loads(lab("report", finished(tmp_path, cells_of(), lacking=1), "--json").stdout)
    assert told["missing"] == {"4.1": 1}
    assert told["missing_cells"] == {"4.1": ["nodes=16, protocol=srpt seed 1"]}


@pytest.mark.parametrize("harm", ["cut", "emptied", "gone"])
@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_damaged_table_is_refused_by_name(command: str, harm: str, tmp_path: Path) -> None:
    out = finished(tmp_path, cells_of())
    table = out / "tables" / ("points.parquet" if command == "report" else "runs.parquet")
    content = table.read_bytes()
    if harm == "gone":
        table.unlink()
    else:
        table.write_bytes(content[: len(content) // 2] if harm == "cut" else b"")
    result = lab(command, out, *[out] * (command == "compare"), "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"cubecast lab {command}: ")
    assert table.stem in line
    assert "cubecast lab run" in line


# -- compare ---------------------------------------------------------------------------------------


def runs_table(values: list[tuple[str, int, int, float]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"experiment": experiment, "cell": cell, "key": "", "settings": "{}", "seed": seed,
             "metric": "m", "value": value}
            for experiment, cell, seed, value in values
        ],
        schema=RUNS,
    )  # fmt: skip


def test_differences_are_taken_seed_by_seed() -> None:
    a = [("x", 0, seed, 100.0 * seed) for seed in range(4)]
    b = [("x", 7, seed, 100.0 * seed + 1 + 0.01 * seed) for seed in (2, 0, 1)]
    b.append(("y", 0, 0, 1.0))
    found = compared(runs_table(a), runs_table(b))
    (row,) = found.differences
    assert (row.cell, row.n, row.a, row.b) == (0, 3, 100.0, pytest.approx(101.01))
    assert row.difference == pytest.approx(1.01)
    assert row.ci == pytest.approx(4.302653 * 0.01 / 3**0.5)
    assert (found.only_in_a, found.only_in_b) == (1, 1)


def test_points_that_lack_a_setting_are_compared_and_printed(tmp_path: Path) -> None:
    out = finished(tmp_path / "a", cells_of())
    result = lab("compare", out, finished(tmp_path / "b", cells_of(), more=2.0))
    assert result.exit_code == 0
    assert "0 of 4 means the same; pairs per mean: 2" in result.stdout
    assert result.stdout.count("+2 ") == 4


# -- settings --------------------------------------------------------------------------------------


def test_a_setting_has_the_one_type_that_holds_all_its_values() -> None:
    points = [
        {"nodes": 8, "ratio": 1, "on": True, "name": "a", "mixed": 1},
        {"nodes": 2**40, "ratio": 0.5, "on": False, "mixed": "many"},
    ]
    grid = grid_table(Cell("x", number, point, 0) for number, point in enumerate(points))
    fields = setting_fields(grid["settings"].to_pylist())
    assert [(field.name, str(field.type)) for field in fields] == [
        ("mixed", "string"), ("setting_name", "string"), ("nodes", "int64"), ("on", "bool"),
        ("ratio", "double"),
    ]  # fmt: skip
    typed = with_settings(grid, pa.schema([*grid.schema, *fields])).to_pylist()
    names = [field.name for field in fields]
    assert [[row[name] for name in names] for row in typed] == [
        ["1", "a", 8, True, 1.0], ["many", None, 2**40, False, 0.5],
    ]  # fmt: skip


# -- Student's t -----------------------------------------------------------------------------------


def test_critical_values_are_those_of_the_printed_tables() -> None:
    printed = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045, 39: 2.023, 100: 1.984,
               120: 1.98, 1000: 1.962}  # fmt: skip
    assert {k: round(critical_value(k), 3) for k in printed} == printed


def test_sums_do_not_depend_on_the_python() -> None:
    """Python 3.12 compensates in `sum`; the bits of a mean are those of plain additions."""
    values = [0.1] * 10
    assert summary(values).mean == 0.9999999999999999 / 10
    assert summary([4.0]) == (1, 4.0, None)
