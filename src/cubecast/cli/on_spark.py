"""Shared by commands on Spark: where it runs, its progress, and failures in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.output import progress_console, refuse
from cubecast.lab.experiment import ExperimentError

if TYPE_CHECKING:
    from cubecast.cli.job_progress import Steps

MasterOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[4] (four cores here), spark://host:7077 (a cluster).",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def spark_settings(command: str, conf: Sequence[str] | None) -> dict[str, str]:
    """The settings of --conf, or a refusal."""
    found = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            refuse(command, f"--conf {one}: must be spark.SOMETHING=VALUE")
        found[key] = value
    return found


@contextmanager
def spark_errors(command: str) -> Iterator[None]:
    """Refuse a command in one line if it fails or packages are missing."""
    try:
        from cubecast.spark.errors import LabError, lab_errors
        from cubecast.spark.session import require_pyspark

        require_pyspark()
    except LabError as error:
        refuse(command, error)
    try:
        with lab_errors():
            yield
    except (LabError, ExperimentError) as error:
        refuse(command, error)


def steps() -> AbstractContextManager[Steps]:
    """A display for the steps of a job."""
    from cubecast.cli.job_progress import steps_on  # it needs Spark's packages

    return steps_on(progress_console)
