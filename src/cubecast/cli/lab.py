"""``cubecast lab``: the papers' experiments, and your own, on Spark."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from cubecast import __version__
from cubecast.cli.on_spark import (
    ConfOption,
    JsonOption,
    MasterOption,
    spark_errors,
    spark_settings,
)
from cubecast.cli.output import console, counted, progress_console, refuse
from cubecast.lab.cells import ENGINE_VERSION, Cell, measure
from cubecast.lab.experiment import Experiment, ExperimentError, find, shipped
from cubecast.lab.workload import WorkloadError
from cubecast.lab.workloads import WORKLOADS

if TYPE_CHECKING:
    from cubecast.spark.results import Failure
    from cubecast.spark.sweep import Outcome

DEFAULT_OUT = Path("lab-results")
MOST_FAILURES = 20
"""So many are told by name; all of them are in the directory."""

lab = typer.Typer(
    name="lab",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="""Run the papers' experiments, or your own, and redraw their figures.

    An experiment is a small file: what to run, for which parameters, how often, what to measure,
    and which numbers a paper prints for it. Each parameter set with each seed is a cell; Spark runs
    the cells on all cores of this machine, or of a cluster. Spark needs Java 17 or later.

    \b
    Start here:
      cubecast lab list                 the experiments
      cubecast lab run 4.1 --quick      one of them, in its quick form
      cubecast lab report               its figures and verdicts, as a page
    """,
)

OutArgument = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="What `lab run --out` wrote to.", show_default=True),
]


# -- list ------------------------------------------------------------------------------------------


@lab.command("list")
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


# -- run -------------------------------------------------------------------------------------------


@lab.command("run")
def run_experiments(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="ID|FILE...",
            help="Ids as `lab list` shows them, a workload (stan: all of [N]), files of your own, "
            "or: all.",
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="The quick form: smaller grids, fewer seeds.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs per point of the grid, instead of what the file says."),
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the results go, and stay.")
    ] = DEFAULT_OUT,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="messages|traces",
            help="Keep also each run's messages, or all that happened in it; may be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run experiments on Spark and keep what they measure.

    Every finished cell is kept at once. Interrupt whenever you like: the same command goes on where
    it stopped, and cells that are finished, in whatever run, are never run again. A cell that fails
    is reported and the others go on; the same command tries it again. Exits with 1 if any failed.

    \b
    Examples:
      cubecast lab run 4.1 --quick
          a first look, in seconds
      cubecast lab run 4.1 4.2 --seeds 40
          two experiments with 40 seeds, on all cores
      cubecast lab run all --quick && cubecast lab report
          everything the papers have, and the page about it
      cubecast lab run mine.toml --out mine
          your own experiment (docs/lab.md says what is in the file)
      cubecast lab run all --master spark://head:7077 --out /shared/lab
          on a cluster, into a directory that all its machines see
    """
    try:
        chosen = choose(experiments)
        cells = _cells(chosen, quick, seeds)
        kept = _kept(chosen, keep)
    except ExperimentError as error:
        refuse("lab run", error)
    facts = {
        "command": shlex.join(["cubecast", *sys.argv[1:]]),
        "experiments": [experiment.id for experiment in chosen],
        "quick": quick,
        "seeds": seeds,
        "versions": versions(),
    }
    with spark_errors("lab run"):
        outcome, idle = _run(
            chosen, cells, kept, master, spark_settings("lab run", conf), out, facts
        )
    if as_json:
        typer.echo(_as_json(outcome, out, idle))
    else:
        _tell(outcome, out, idle)
    _tell_failures(outcome.failures, out)
    if outcome.failures:
        raise typer.Exit(1)


def choose(names: Sequence[str]) -> list[Experiment]:
    """The experiments meant, each once, in the order asked for."""
    found: dict[str, Experiment] = {}
    for name in names:
        for experiment in _named(name):
            known = found.setdefault(experiment.id, experiment)
            if known != experiment:
                raise ExperimentError(
                    f"{known.path} and {experiment.path} have the same id {known.id!r}; "
                    "change one, or run them one after the other with different --out"
                )
    return list(found.values())


def _named(name: str) -> list[Experiment]:
    """All experiments, those of a workload and of its variants, or one by its id or file."""
    known = shipped()
    of_workload = [
        one for one in known.values() if one.workload == name or one.workload.startswith(f"{name}-")
    ]
    if name == "all":
        return list(known.values())
    return of_workload if of_workload and name not in known else [find(name)]


def _cells(chosen: Sequence[Experiment], quick: bool, seeds: int | None) -> list[Cell]:
    return [cell for one in chosen for cell in one.cells(quick=quick, seeds=seeds)]


def _kept(chosen: Sequence[Experiment], keep: Sequence[str] | None) -> tuple[str, ...]:
    """What is to be kept beside the numbers, if all that is chosen can keep it."""
    kept = tuple(dict.fromkeys(keep or ()))
    for experiment in chosen:
        try:
            WORKLOADS[experiment.workload].refuse_to_keep(kept)
        except WorkloadError as error:
            raise ExperimentError(f"--keep, {experiment.id}: {error.problem}") from None
    return kept


def _text_of(experiment: Experiment) -> str:
    """The file of an experiment, a shipped one or the user's."""
    if shipped().get(experiment.id) == experiment:
        folder = files("cubecast.lab") / "experiments"
        return (folder / experiment.path).read_text(encoding="utf-8")
    return Path(experiment.path).read_text(encoding="utf-8")


def versions() -> dict[str, str]:
    """Of everything that may change a result or its cost."""
    found = {"cubecast": __version__, "engine": str(ENGINE_VERSION)}
    found["python"] = platform.python_version()
    for name in ("pyspark", "pyarrow", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _run(
    chosen: Sequence[Experiment],
    cells: Sequence[Cell],
    keep: tuple[str, ...],
    master: str,
    conf: dict[str, str],
    out: Path,
    facts: dict[str, Any],
) -> tuple[Outcome, float | None]:
    """Run the cells that `out` lacks and write the tables; the outcome, and how idle cores were."""
    from cubecast.spark.compact import write_tables
    from cubecast.spark.gather import busyness
    from cubecast.spark.java import find_java
    from cubecast.spark.progress import progress_on
    from cubecast.spark.results import Results
    from cubecast.spark.session import spark_session
    from cubecast.spark.sweep import run_sweep

    facts["versions"]["java"] = str(find_java().version)
    results = Results(out)
    with results.opened():
        for experiment in chosen:
            results.note_experiment(experiment.id, _text_of(experiment))
        try:
            with spark_session(master, log=results.log, conf=conf) as spark:
                outcome = run_sweep(
                    spark, cells, results, measure=partial(measure, keep=keep), keep=keep,
                    progress=progress_on(progress_console), facts=facts,
                )  # fmt: skip
                write_tables(spark, results)
                busy = [one for one in busyness(spark, results) if one.sweep == outcome.sweep]
        except KeyboardInterrupt:
            kept = len(results.finished(keep) & {cell.key for cell in cells})
            typer.echo(
                f"cubecast lab run: interrupted; {kept} of {counted(len(cells), 'cell')} are kept "
                f"in {out}, and the same command goes on from there",
                err=True,
            )
            raise typer.Exit(130) from None
    return outcome, busy[0].idle_share if busy else None


def _tell_failures(failures: Sequence[Failure], out: Path) -> None:
    for failure in failures[:MOST_FAILURES]:
        typer.echo(f"cubecast lab run: failed: {failure}", err=True)
    if len(failures) > MOST_FAILURES:
        rest = counted(len(failures) - MOST_FAILURES, "more failure")
        typer.echo(f"cubecast lab run: and {rest}, see {out / 'failures'}", err=True)


def _as_json(outcome: Outcome, out: Path, idle: float | None) -> str:
    failed = [{"cell": one.name, "error": one.error} for one in outcome.failures]
    return json.dumps(
        {
            "out": str(out),
            "cells": outcome.ran + outcome.kept + len(failed),
            "ran": outcome.ran,
            "kept": outcome.kept,
            "cores": outcome.cores,
            "seconds": round(outcome.seconds, 3),
            "idle_share": idle,
            "failed": failed,
        }
    )


def _tell(outcome: Outcome, out: Path, idle: float | None) -> None:
    from cubecast.spark.progress import clock

    parts = [f"{counted(outcome.ran, 'cell')} in {clock(outcome.seconds)}"]
    parts.append(f"on {counted(outcome.cores, 'core')}")
    if idle is not None:
        parts.append(f"{100 * idle:.0f} % idle")
    if outcome.kept:
        parts.append(f"{outcome.kept} kept from before")
    if outcome.failures:
        parts.append(f"{len(outcome.failures)} failed")
    typer.echo(f"{', '.join(parts)}; tables in {out / 'tables'}")
    typer.echo(f"next: cubecast lab report {out}")


# -- report ----------------------------------------------------------------------------------------


@lab.command("report")
def report(
    directory: OutArgument = DEFAULT_OUT,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the page about a run: figures, the papers' numbers beside ours, verdicts.

    The page and its figures go into the directory, next to the results, and need nothing else.
    With --json the means, intervals and verdicts are printed instead.
    """
    with spark_errors("lab report"):
        findings = _gathered(directory, master, spark_settings("lab report", conf))
    if as_json:
        typer.echo(json.dumps(_verdicts(findings)))
        return
    try:
        from cubecast.lab.report import write
        from cubecast.lab.results import results_of
    except ImportError as error:
        refuse("lab report", f"needs {error.name}: pip install 'cubecast[lab]'")
    with spark_errors("lab report"):
        page = write(results_of(findings), directory)
    typer.echo(f"written: {page}")


def _gathered(directory: Path, master: str, conf: dict[str, str]) -> Any:
    from cubecast.spark.gather import gather
    from cubecast.spark.results import Results
    from cubecast.spark.session import spark_session

    results = Results(directory)
    results.require_tables()
    with spark_session(master, conf=conf) as spark:
        return gather(spark, results)


def _verdicts(findings: Any) -> dict[str, Any]:
    import msgspec

    from cubecast.lab.verdicts import judge

    judged = [judge(experiment, findings.rows) for experiment in findings.experiments]
    return {
        "directory": str(findings.directory),
        "rows": msgspec.to_builtins(findings.rows),
        "verdicts": msgspec.to_builtins([verdict for one in judged for verdict in one]),
        "missing": dict(findings.missing),
        "failures": list(findings.failures),
    }


# -- compare ---------------------------------------------------------------------------------------


@lab.command("compare")
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="A directory of results.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    metric: Annotated[
        list[str] | None, typer.Option(help="Only this metric; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what does not differ.")] = False,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is different in B: per point and metric, B minus A with its 95 % interval.

    Points are matched by their settings and runs by their seed, so that only what the two share is
    compared (what they do not share is counted), and the interval is that of the differences of
    pairs. A star marks those whose interval leaves out zero.

    \b
    Example:
      cubecast lab run 4.2 --out before
      ...                                  change something
      cubecast lab run 4.2 --out after
      cubecast lab compare before after
    """
    with spark_errors("lab compare"):
        rows, only = _differences(before, after, master, spark_settings("lab compare", conf))
    if not rows:
        refuse("lab compare", f"{before} and {after} have no cell in common")
    names = {row["metric"] for row in rows}
    unknown = [name for name in metric or () if name not in names]
    if unknown:
        refuse("lab compare", f"no metric {unknown[0]!r}; there are: {', '.join(sorted(names))}")
    rows = [row for row in rows if not metric or row["metric"] in metric]
    if as_json:
        found = {"a": str(before), "b": str(after), "only_in_a": only[0], "only_in_b": only[1]}
        typer.echo(json.dumps({**found, "rows": rows}))
        return
    _print_differences(rows, everything)
    if any(only):
        told = " and ".join(
            f"{counted(n, 'run')} only in {name}" for name, n in zip("AB", only, strict=True)
        )
        console.print(f"not compared: {told}", highlight=False)


def _differences(
    before: Path, after: Path, master: str, conf: dict[str, str]
) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    """The differences, and how many runs only the one and only the other directory has."""
    from cubecast.spark.aggregate import differences, runs_only_in
    from cubecast.spark.compact import read_table
    from cubecast.spark.results import Results
    from cubecast.spark.session import spark_session

    sides = [Results(before), Results(after)]
    for side in sides:
        side.require_tables()
    with spark_session(master, conf=conf) as spark:
        a, b = (read_table(spark, side, "runs") for side in sides)
        ordered = differences(a, b).orderBy("experiment", "cell", "metric")
        found = [row.asDict() for row in ordered.collect()]
        only = runs_only_in(a, b), runs_only_in(b, a)
    return [{**row, "settings": json.loads(row["settings"])} for row in found], only


def _print_differences(rows: Sequence[dict[str, Any]], everything: bool) -> None:
    varying = _varying(rows)
    shown = [row for row in rows if everything or row["difference"] != 0]
    if shown:
        table = Table("experiment", "point", "metric", box=None, pad_edge=False)
        for heading in ("A", "B", "B - A", "±", "%", ""):
            table.add_column(heading, justify="right")
        for row in shown:
            names = varying[row["experiment"]]
            point = " ".join(f"{name}={row['settings'][name]}" for name in names)
            table.add_row(row["experiment"], point, row["metric"], *_numbers(row))
        console.print(table)
    same = sum(row["difference"] == 0 for row in rows)
    told = f"{same} of {counted(len(rows), 'mean')} the same"
    seeds = sorted({row["n"] for row in rows})
    console.print(f"{told}; pairs per mean: {', '.join(map(str, seeds))}", highlight=False)


def _varying(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Per experiment, the settings that tell its points apart."""
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


# -- shared ----------------------------------------------------------------------------------------
