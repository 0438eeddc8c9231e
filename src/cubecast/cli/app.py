"""The commands put together: one module per group, read when its command is typed.

Every error of a command is one line on stderr, also an error that typer finds.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cubecast.version import __version__

# A command reports its own errors; those that run nodes set up a log.
logging.getLogger("cubecast").addHandler(logging.NullHandler())

INTERRUPTED = 130
COMMANDS = {
    "demo": "demo",
    "sim": "sim",
    "sim chaos": "sim_chaos",
    "tree": "tree",
    "up": "up",
    "node": "node",
    "pub": "pub",
    "sub": "sub",
    "topics": "topics",
    "nodes": "nodes",
    "why": "why",
    "top": "top",
    "ordered": "ordered",
    "config": "config",
    "secret": "secret",
    "certs": "certs",
    "permissions": "permissions",
    "token": "permissions",
    "bench": "bench",
    "chaos": "chaos",
    "lab": "lab",
    "universe": "universe",
}
"""Each command and the module of this package that has it, in the order of the help."""


SUMMARIES = {
    "demo": "See answers come before their question, and prevented.",
    "sim": "Run a scenario in the simulator and judge it.",
    "sim chaos": "Let simulated nodes crash, pause and part; judge it.",
    "tree": "Draw the spanning tree of a publication.",
    "up": "Run a local cluster, one process a node.",
    "node": "Run one node until Ctrl-C or SIGTERM.",
    "pub": "Publish to a topic.",
    "sub": "Print the messages of a topic as they come.",
    "topics": "List the topics and the nodes subscribed to each.",
    "nodes": "List the nodes of a cluster.",
    "why": "Say what waits in a topic, for what, since when.",
    "top": "Watch the nodes: rates, queues, lags, views.",
    "ordered": "One order across topics, on NATS and Redis, too.",
    "config": "Print the configuration a node would run with.",
    "secret": "Print a new secret for a cluster.",
    "certs": "Make certificates for nodes and clients (TLS).",
    "permissions": "Check who may publish and subscribe to what.",
    "token": "Print a new token for a client.",
    "bench": "Measure cubecast here, and others beside it.",
    "chaos": "Hurt a cluster of real processes; judge it.",
    "lab": "Run the papers' experiments, or your own, on Spark.",
    "universe": "Make universes of users and topics, on Spark.",
}
"""The summary of each command in the list: fits 80 columns, and needs no module of the command."""


def _command(name: str) -> Any:
    """The command as typer runs it; this reads its module."""
    found = getattr(import_module(f"cubecast.cli.{COMMANDS[name]}"), name.replace(" ", "_"))
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """The group of all commands; its usage errors are one line, without the usage above it."""

    _told = False
    """Whether the reason for the end of the command was printed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help; no module of theirs is read for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in COMMANDS])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands that begin with the typed text; typer completes the options."""
        if incomplete.startswith("-"):
            return list(super().shell_complete(ctx, incomplete))
        click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]  # typer may bring its own
        item = import_module(f"{click}.shell_completion").CompletionItem
        return [
            item(name, help=SUMMARIES[name])
            for name in COMMANDS
            if name.startswith(incomplete) and " " not in name
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Read the module of a command; all of them if there is none, to name a near one."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _command(name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve a command; two words may be one command."""
        pair = " ".join(args[:2])
        if len(args) > 1 and pair in COMMANDS:
            return pair, self.get_command(ctx, pair), args[2:]
        return super().resolve_command(ctx, args)

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
            if type(error).__name__ == "Abort":  # typer's word for an interrupt, up to 0.15
                code = INTERRUPTED
            else:
                sys.exit(_explain(error))
        if code == INTERRUPTED and not self._told:  # typer says nothing if it has no command yet
            typer.echo("cubecast: interrupted", err=True)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an interrupt or a system error takes one line, too."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            self._told = True
            typer.echo("cubecast: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.Exit:
            self._told = True  # the command has printed the reason
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone: typer ends in silence
                raise
            typer.echo(f"cubecast: {error.strerror or error}", err=True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left must not fail again
            raise typer.Exit(1) from None


def _explain(error: Exception) -> int:
    """Print a usage error and return its exit code; any other error is raised again.

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
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
      cubecast top                     what the nodes do, in a fourth
      cubecast ordered                 one order for many topics, on NATS, too
      cubecast tree --nodes 8          the tree that a publication takes
      cubecast sim                     what can be simulated
      cubecast sim storm --seeds 100   a hundred runs full of faults, all checked
      cubecast lab list                the papers' experiments, run on Spark
    """
