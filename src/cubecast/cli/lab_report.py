"""``cubecast lab list``, ``report`` and ``compare``: commands without Spark and Java."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from cubecast.cli.on_spark import JsonOption
from cubecast.cli.output import console, counted, refuse
from cubecast.lab.experiment import Experiment, ExperimentError, shipped
from cubecast.lab.report.papers import named_in

if TYPE_CHECKING:
    from cubecast.lab.report.data import Findings
    from cubecast.spark.compare import Difference

DEFAULT_OUT = Path("lab-results")
OutArgument = Annotated[
    str,
    typer.Argument(metavar="DIR|URI", help="What `lab run --out` wrote to.", show_default=True),
]


class Format(StrEnum):
    """The file format of a figure."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


class Width(StrEnum):
    """How wide a figure is drawn: for a page of its own, or for a column of a paper."""

    page = "page"
    column = "column"


@contextmanager
def results_errors(command: str) -> Iterator[None]:
    """Refuse a command in one line if results are wrong or packages are missing."""
    try:
        from cubecast.spark.errors import LabError

        yield
    except ImportError as error:
        refuse(command, f"needs {error.name}: pip install 'cubecast[lab]'")
    except (LabError, ExperimentError) as error:
        refuse(command, error)
    except OSError as error:
        refuse(command, f"cannot read or write the results: {error}")


# -- list ------------------------------------------------------------------------------------------


def list_experiments(as_json: JsonOption = False) -> None:
    """Show the experiments that come with cubecast.

    The ids are the sections or figures of the papers. `cells` is how many runs an experiment takes,
    one per point of its grid and seed, in full and with --quick.
    """
    try:
        known = list(shipped().values())
    except ExperimentError as error:
        refuse("lab list", error)
    if as_json:
        typer.echo(json.dumps([_listed(experiment) for experiment in known]))
        return
    table = Table("id", "what", "source", box=None, pad_edge=False)
    table.add_column("cells", justify="right")
    table.add_column("quick", justify="right")
    for experiment in known:
        facts = _listed(experiment)
        numbers = (f"{facts['cells']:,}", f"{facts['quick_cells']:,}")
        table.add_row(experiment.id, experiment.title, experiment.source, *numbers)
    console.print(table)
    console.print()
    for letter, title in named_in(experiment.source for experiment in known).items():
        console.print(f"[{letter}] {title}", markup=False, highlight=False)
    console.print("\nrun one: cubecast lab run ID --quick", highlight=False)


def _listed(experiment: Experiment) -> dict[str, Any]:
    full, quick = experiment.cells(), experiment.cells(quick=True)
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "cells": len(full),
        "cost_s": round(sum(cell.cost for cell in full), 1),
        "quick_cells": len(quick),
        "quick_cost_s": round(sum(cell.cost for cell in quick), 1),
    }


# -- report ----------------------------------------------------------------------------------------


def report(
    directory: OutArgument = str(DEFAULT_OUT),
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Write there instead of into DIR."),
    ] = None,
    formats: Annotated[
        list[Format] | None,
        typer.Option(
            "--format", help="Of the figures' files: png and svg if not said; may be repeated."
        ),
    ] = None,
    width: Annotated[
        Width,
        typer.Option(help="Of the figures: a page's, or a column's of a paper (3.4 inches)."),
    ] = Width.page,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Whether report.html is written, too.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write the page about a run: figures, the papers' numbers beside ours, verdicts.

    The page and its figures go into the directory, next to the results, and need nothing else.
    It reads finished tables: neither Spark nor Java starts. With --json the means, intervals and
    verdicts are printed instead.

    \b
    Examples:
      cubecast lab report
      cubecast lab report --format pdf --width column --to paper
          the figures as a paper takes them
    """
    if as_json and to:
        refuse("lab report", "--json prints and writes no file: leave --to out")
    with results_errors("lab report"):
        from cubecast.spark.plain_tables import gather
        from cubecast.spark.results import Results

        results = Results(directory)
        findings = gather(results)
        if as_json:
            typer.echo(json.dumps({"directory": results.name, **_told(findings)}))
            return
        from cubecast.lab.report import write

        chosen = tuple(dict.fromkeys(one.value for one in formats or (Format.png, Format.svg)))
        place = to or results.root
        try:
            written = write(findings, place, formats=chosen, width=width.value, with_page=page)
        except OSError as error:
            refuse("lab report", f"cannot write the report to {place}: {error.strerror or error}")
    typer.echo(f"written: {written}")


def _told(findings: Findings) -> dict[str, Any]:
    import msgspec

    from cubecast.lab.verdicts import judge

    judged = [judge(experiment, findings.rows) for experiment in findings.experiments]
    return {
        "rows": msgspec.to_builtins(findings.rows),
        "verdicts": msgspec.to_builtins([verdict for one in judged for verdict in one]),
        "made": msgspec.to_builtins(findings.provenance),
        "missing": {id: len(cells) for id, cells in findings.missing.items()},
        "missing_cells": {id: list(cells) for id, cells in findings.missing.items()},
        "failures": list(findings.failures),
    }


# -- compare ---------------------------------------------------------------------------------------


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="A place of results.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    metric: Annotated[
        list[str] | None, typer.Option(help="Only this metric; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what does not differ.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is different in B: per point and metric, B minus A with its 95 % interval.

    Points are matched by their settings and runs by their seed, so that only what the two share is
    compared (what they do not share is counted), and the interval is that of the differences of
    pairs. A star marks those whose interval leaves out zero. It reads finished tables: neither
    Spark nor Java starts.

    \b
    Example:
      cubecast lab run 4.2 --out before
      ...                                  change something
      cubecast lab run 4.2 --out after
      cubecast lab compare before after
    """
    with results_errors("lab compare"):
        from cubecast.spark.compare import compare as compare_results
        from cubecast.spark.results import Results
        from cubecast.spark.storage import without_secrets

        found = compare_results(Results(before), Results(after))
    before, after = without_secrets(before), without_secrets(after)
    if not found.differences:
        refuse("lab compare", f"{before} and {after} have no cell in common")
    names = {one.metric for one in found.differences}
    unknown = [name for name in metric or () if name not in names]
    if unknown:
        refuse("lab compare", f"no metric {unknown[0]!r}; there are: {', '.join(sorted(names))}")
    rows = [_row(one) for one in found.differences if not metric or one.metric in metric]
    only = {"only_in_a": found.only_in_a, "only_in_b": found.only_in_b}
    if as_json:
        typer.echo(json.dumps({"a": before, "b": after, **only, "rows": rows}))
        return
    _print_differences(rows, everything)
    if any(only.values()):
        told = " and ".join(
            f"{counted(n, 'run')} only in {name}"
            for name, n in zip("AB", only.values(), strict=True)
        )
        console.print(f"not compared: {told}", highlight=False)


def _row(one: Difference) -> dict[str, Any]:
    return {**asdict(one), "settings": json.loads(one.settings)}


def _print_differences(rows: Sequence[dict[str, Any]], everything: bool) -> None:
    varying = _varying(rows)
    shown = [row for row in rows if everything or row["difference"] != 0]
    if shown:
        table = Table("experiment", "point", "metric", box=None, pad_edge=False)
        for heading in ("A", "B", "B - A", "±", "%", ""):
            table.add_column(heading, justify="right")
        for row in shown:
            names = varying[row["experiment"]]
            known = row["settings"]
            point = " ".join(f"{name}={known[name]}" for name in names if name in known)
            table.add_row(row["experiment"], point, row["metric"], *_numbers(row))
        console.print(table)
    same = sum(row["difference"] == 0 for row in rows)
    told = f"{same} of {counted(len(rows), 'mean')} the same"
    seeds = sorted({row["n"] for row in rows})
    console.print(f"{told}; pairs per mean: {', '.join(map(str, seeds))}", highlight=False)


def _varying(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Per experiment, the settings that differ between its points."""
    values: dict[str, dict[str, set[Any]]] = {}
    for row in rows:
        seen = values.setdefault(row["experiment"], {})
        for name, value in row["settings"].items():
            seen.setdefault(name, set()).add(value)
    return {
        experiment: [name for name, found in seen.items() if len(found) > 1]
        for experiment, seen in values.items()
    }


def _numbers(row: dict[str, Any]) -> list[str]:
    share = f"{100 * row['difference'] / row['a']:+.2f}" if row["a"] else ""
    ci = row["ci"]
    star = "*" if ci is not None and abs(row["difference"]) > ci else ""
    texts = [f"{row[name]:.6g}" for name in ("a", "b")]
    interval = "" if ci is None else f"{ci:.3g}"
    return [*texts, f"{row['difference']:+.6g}", interval, share, star]
