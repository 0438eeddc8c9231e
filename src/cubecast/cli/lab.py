"""``cubecast lab``: the papers' experiments, and your own, on Spark."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.lab_report import DEFAULT_OUT, compare, list_experiments, report
from cubecast.cli.on_spark import (
    ConfOption,
    JsonOption,
    MasterOption,
    spark_errors,
    spark_settings,
)
from cubecast.cli.output import counted, progress_console, refuse
from cubecast.lab.experiment import ExperimentError
from cubecast.lab.request import ask
from cubecast.lab.running import Interrupted, Job

if TYPE_CHECKING:
    from cubecast.lab.finished_run import Ran
    from cubecast.spark.results import Failure

MOST_FAILURES = 20
"""The most failures that are printed; the directory has all of them."""

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

lab.command("list")(list_experiments)


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
        str,
        typer.Option(
            metavar="DIR|URI",
            help="Where the results go, and stay: a directory, or s3://, gs://, hdfs://.",
        ),
    ] = str(DEFAULT_OUT),
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="messages|traces",
            help="Keep also each run's messages, or all that happened in it; may be repeated.",
        ),
    ] = None,
    until_decided: Annotated[
        int | None,
        typer.Option(
            metavar="LIMIT",
            min=1,
            help="Add seeds where a verdict is undecided, up to LIMIT at a point of the grid.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run experiments on Spark and keep what they measure.

    Every finished cell is kept at once. Interrupt whenever you like: the same command goes on where
    it stopped, and cells that are finished, in whatever run, are never run again, unless the code
    has changed or a file is damaged, which is told. A cell that fails is reported and the others go
    on; the same command tries it again. Exits with 1 if any cell that is wanted is missing.

    \b
    Examples:
      cubecast lab run 4.1 --quick
          a first look: small systems, few seeds, and Spark's own start
      cubecast lab run 4.1 4.2 --seeds 40
          two experiments with 40 seeds, on all cores
      cubecast lab run all --quick && cubecast lab report
          everything the papers have, and the page about it
      cubecast lab run mine.toml --out mine
          your own experiment (docs/lab.md says what is in the file)
      cubecast lab run all --master spark://head:7077 --out /shared/lab
          on a cluster, into a directory that all its machines see
      cubecast lab run all --out s3://bucket/lab
          into a bucket, with the keys of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    """
    try:
        asked = ask(
            experiments, quick=quick, seeds=seeds, keep=keep or (), until_decided=until_decided
        )
    except ExperimentError as error:
        refuse("lab run", error)
    settings = spark_settings("lab run", conf)
    with spark_errors("lab run"):
        from cubecast.spark.progress import progress_on
        from cubecast.spark.storage import without_secrets

        command = shlex.join(["cubecast", *map(without_secrets, sys.argv[1:])])
        shown = without_secrets(out)

        job = Job(asked, out, master, settings, progress_on(progress_console), command)
        try:
            ran = job.run()
        except Interrupted as interrupted:
            typer.echo(
                f"cubecast lab run: interrupted; {interrupted.kept} of "
                f"{counted(interrupted.cells, 'cell')} are kept in {shown}, and the same command "
                "goes on from there",
                err=True,
            )
            raise typer.Exit(130) from None
    if as_json:
        typer.echo(_as_json(ran, shown))
    else:
        _tell(ran, shown)
    _tell_failures(ran.failures, shown)
    for line in ran.lost:
        typer.echo(f"cubecast lab run: missing: {line}", err=True)
    if ran.failures or ran.lost:
        raise typer.Exit(1)


def _tell_failures(failures: Sequence[Failure], out: str) -> None:
    for failure in failures[:MOST_FAILURES]:
        typer.echo(f"cubecast lab run: failed: {failure}", err=True)
    if len(failures) > MOST_FAILURES:
        rest = counted(len(failures) - MOST_FAILURES, "more failure")
        typer.echo(f"cubecast lab run: and {rest}, see {out}/failures", err=True)


def _as_json(ran: Ran, out: str) -> str:
    failed = [{"cell": one.name, "error": one.error} for one in ran.failures]
    return json.dumps(
        {
            "out": out,
            "cells": ran.ran + ran.kept + len(failed),
            "ran": ran.ran,
            "kept": ran.kept,
            "cores": ran.cores,
            "seconds": round(ran.seconds, 3),
            "idle_share": ran.idle_share,
            "rounds": len(ran.sweeps),
            "damaged": list(ran.damaged),
            "other_code": ran.other_code,
            "lost": list(ran.lost),
            "failed": failed,
        }
    )


def _tell(ran: Ran, out: str) -> None:
    from cubecast.spark.progress import clock

    if not any(sweep.sweep for sweep in ran.sweeps):
        parts = [f"nothing to run: {counted(ran.kept, 'cell')} kept from before"]
    else:
        parts = [f"{counted(ran.ran, 'cell')} in {clock(ran.seconds)}"]
        parts.append(f"on {counted(ran.cores, 'core')}")
        if ran.idle_share is not None:
            parts.append(f"{100 * ran.idle_share:.0f} % idle")
        if ran.kept:
            parts.append(f"{ran.kept} kept from before")
        if len(ran.sweeps) > 1:
            parts.append(f"seeds added in {counted(len(ran.sweeps) - 1, 'round')}")
        if ran.failures:
            parts.append(f"{len(ran.failures)} failed")
    typer.echo(f"{', '.join(parts)}; tables in {out}/tables")
    typer.echo(f"next: cubecast lab report {shlex.quote(out)}")


lab.command("report")(report)
lab.command("compare")(compare)
