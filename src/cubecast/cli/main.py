"""The ``cubecast`` command: one module per command group, put together here.

Whatever is wrong with a command is said in one line on stderr, also what typer itself finds.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cubecast import __version__
from cubecast.cli.bench import bench
from cubecast.cli.client import nodes, pub, sub, topics, why
from cubecast.cli.config import config
from cubecast.cli.demo import demo
from cubecast.cli.live import node, up
from cubecast.cli.sim import sim
from cubecast.cli.tree import tree

# A command says itself what went wrong; those that run nodes set up a log.
logging.getLogger("cubecast").addHandler(logging.NullHandler())


class OneLineErrors(TyperGroup):
    """A group whose usage errors are one line, without the usage above it."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except Exception as error:
            if not standalone_mode:
                raise
            sys.exit(_explain(error))
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; also what stops it from outside takes one line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("cubecast: interrupted", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone: typer ends in silence
                raise
            typer.echo(f"cubecast: {error.strerror or error}", err=True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left must not fail again
            raise typer.Exit(1) from None


def _explain(error: Exception) -> int:
    """Print a usage error and give its exit code; anything else is not ours to explain.

    Recognised by its method, as the class lives in another package from one typer to the next.
    """
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        raise error
    context = getattr(error, "ctx", None)
    command = "cubecast" if context is None else context.command_path
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(format_message(), err=True)
    else:
        line = " ".join(format_message().split())
        typer.echo(f"{command}: {line} (see {command} --help)", err=True)
    return int(getattr(error, "exit_code", 2))


app = typer.Typer(
    name="cubecast",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(bench)
for command in (demo, sim, tree, up, node, pub, sub, topics, nodes, why, config):
    app.command()(command)


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
    """Causally ordered publish/subscribe without a broker.

    \b
    Start here:
      cubecast demo                    what causal order is good for
      cubecast up -n 3                 a cluster on this machine
      cubecast sub chat/room1          reads a topic, in a second terminal
      cubecast pub chat/room1 hello    publishes to it, in a third
      cubecast tree --nodes 8          the tree that a publication takes
      cubecast sim                     what can be simulated
      cubecast sim storm --seeds 100   a hundred runs full of faults, all checked
    """


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
