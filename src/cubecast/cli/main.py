"""The ``cubecast`` command: one module per command group, put together here."""

from __future__ import annotations

from typing import Annotated

import typer

from cubecast import __version__
from cubecast.cli.demo import demo
from cubecast.cli.sim import sim
from cubecast.cli.tree import tree

app = typer.Typer(
    name="cubecast",
    help="Causally ordered publish/subscribe without a broker.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)
app.command()(sim)
app.command()(tree)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cubecast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Causally ordered publish/subscribe without a broker."""


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
