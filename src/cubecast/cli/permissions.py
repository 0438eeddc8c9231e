"""``cubecast permissions`` and ``cubecast token``: check permissions, and make tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cubecast.cli.output import counted, refuse
from cubecast.errors import ConfigError
from cubecast.net.security.permission_file import read_permissions, token_line
from cubecast.net.security.permissions import Clause, Identity, Permissions, PermissionVerdict
from cubecast.net.topics import check_name, check_topic

REFUSED = 1
"""The exit code of a check whose answer is no."""

permissions = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Who may publish and subscribe to which topics.",
)


@permissions.callback()
def group() -> None:
    """Who may publish and subscribe to which topics."""


@permissions.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of permissions.")],
    who: Annotated[
        str, typer.Option(metavar="IDENTITY", help="client:NAME or node:NAME; client: has no name.")
    ] = "",
    publish: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="May it publish to this topic?")
    ] = None,
    subscribe: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="May it subscribe to this topic or pattern?")
    ] = None,
) -> None:
    """Check a file of permissions, and say what an identity may do and by which rule.

    Exits with 0 if the file is in order and the request is allowed, with 1 if
    it is refused, and with 2 if the file or the question is wrong.

    Examples:

    \b
      cubecast permissions check permissions.toml
      cubecast permissions check permissions.toml --who client:alice
      cubecast permissions check permissions.toml --who client:alice --publish chat/room1
      cubecast permissions check permissions.toml --who client: --subscribe 'chat/#'
    """
    try:
        found = read_permissions(file)
        identity = _identity(who, publish is not None or subscribe is not None)
        asked = _asked(found, identity, publish, subscribe)
    except (ConfigError, ValueError) as error:
        refuse("permissions check", error)
    if identity is None:
        rules, tokens = counted(len(found.rules), "rule"), counted(len(found.tokens), "token")
        typer.echo(f"{file} is in order: {rules}, {tokens}")
    elif not asked:
        for line in _listed(found, identity):
            typer.echo(line)
    for wish, verdict in asked:
        word = "allowed" if verdict.allowed else "refused"
        typer.echo(f"{word}: {identity} {wish}: {verdict.why}")
    if not all(verdict.allowed for _, verdict in asked):
        raise typer.Exit(REFUSED)


def _identity(text: str, needed: bool) -> Identity | None:
    if not text:
        if needed:
            raise ValueError("--who is missing: client:NAME, node:NAME, client: or node:")
        return None
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("client", "node"):
        raise ValueError(f"--who must be client:NAME, node:NAME, client: or node:, not {text!r}")
    return Identity("client" if kind == "client" else "node", name)


def _asked(
    found: Permissions, who: Identity | None, publish: str | None, subscribe: str | None
) -> list[tuple[str, PermissionVerdict]]:
    """Each request and its verdict; ValueError if a topic or pattern is not valid."""
    asked = []
    if who is not None and publish is not None:
        check_topic(publish)
        asked.append((f"publishes to {publish!r}", found.publish(who, publish)))
    if who is not None and subscribe is not None:
        check_name(subscribe)
        asked.append((f"subscribes to {subscribe!r}", found.subscribe(who, subscribe)))
    return asked


def _listed(found: Permissions, who: Identity) -> list[str]:
    """Everything that an identity may do."""
    grants = found.grants(who)
    lists: list[tuple[str, tuple[Clause, ...]]] = [
        ("may publish to", grants.publish),
        ("may subscribe to", grants.subscribe),
        ("is denied", grants.deny),
    ]
    lines = [
        f"{who} {what} {clause.pattern.text!r}: {clause.rule}"
        for what, clauses in lists
        for clause in clauses
    ]
    return lines or [f"{who} may do nothing: no rule is about it"]


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a client.")],
) -> None:
    """Print a new token for a client, as a line for the file of tokens.

    Examples:

    \b
      (umask 077; cubecast token alice >> tokens.toml)
    """
    try:
        line = token_line(name)
    except ValueError as error:
        refuse("token", error)
    typer.echo(line)
    if sys.stdout.isatty():
        typer.echo("add the line to the tokens_file, and give the client the token", err=True)
