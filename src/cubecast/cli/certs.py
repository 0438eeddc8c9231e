"""``cubecast certs``: a CA for a cluster, and certificates for its nodes and clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cubecast.cli.output import console, counted, refuse
from cubecast.errors import CubecastError
from cubecast.net.security.authority import CA_DAYS, DAYS, Authority, Issued, create
from cubecast.net.security.tls import Role

MAX_DAYS = 36500

certs = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A directory; it is made if there is none.")
]
FolderOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The directory of the CA.")
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Letters, digits, '.', '_', '@' and '-'.")
]
DaysOption = Annotated[
    int, typer.Option(metavar="N", min=1, max=MAX_DAYS, help="How long it is valid.")
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Make a new certificate and key in place of the old.")
]
HERE = Path("certs")


@certs.callback()
def about() -> None:
    """Make certificates, for nodes and clients that prove who they are by TLS.

    \b
      cubecast certs init certs
          a CA: give ca.pem to all, keep ca.key secret
      cubecast certs node node1 --dir certs
      cubecast certs client alice --dir certs
          for each NAME.pem and NAME.key; a client's is no node's
      cubecast node --tls-ca certs/ca.pem --tls-cert certs/node1.pem \\
          --tls-key certs/node1.key --tls-crl certs/crl.pem
      cubecast sub chat --tls-ca certs/ca.pem --tls-cert certs/alice.pem \\
          --tls-key certs/alice.key
      cubecast certs revoke alice --dir certs
          nodes that read crl.pem close alice's connections within seconds

    Running nodes and clients read their files again when they change.
    With ca.key, anyone can make certificates: keep the directory where no node runs.
    """


@certs.command()
def init(
    folder: FolderArgument = HERE,
    days: DaysOption = CA_DAYS,
    name: Annotated[str, typer.Option(metavar="TEXT", help="The name of the CA.")] = "cubecast CA",
) -> None:
    """Make a CA: ca.pem, ca.key, and an empty list of revoked certificates, crl.pem.

    A directory that has a CA keeps it. To change the CA, make a second one in
    another directory; put both ca.pem into the file that tls_ca names.

    Examples:

    \b
      cubecast certs init
          in ./certs
      cubecast certs init /secure/staging --days 730
    """
    if not 0 < len(name) <= 40:
        refuse("certs init", "--name must have 1 to 40 characters")
    with _explained("init"):
        authority = create(folder, name, days)
        ends = authority.certificate.not_valid_after_utc
    typer.echo(f"made a CA in {folder}, valid until {_day(ends)}")
    typer.echo(f"next: cubecast certs node NAME --dir {folder}")


@certs.command()
def node(
    name: NameArgument,
    folder: FolderOption = HERE,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A name or address of its machine, for other tools."),
    ] = None,
    days: DaysOption = DAYS,
    replace: ReplaceOption = False,
) -> None:
    """Make a certificate for a node; it may also attach as a client.

    Nodes check each other's role, not the host: a cluster dials by address.

    Examples:

    \b
      cubecast certs node node1
      cubecast certs node node1 --host node1.example.org --host 10.0.0.1
      cubecast certs node node1 --replace
          before it expires; the running node takes it up by itself
    """
    _issue("node", name, folder, host or [], days, replace)


@certs.command()
def client(
    name: NameArgument,
    folder: FolderOption = HERE,
    days: DaysOption = DAYS,
    replace: ReplaceOption = False,
) -> None:
    """Make a certificate for a client: it attaches to nodes and is never a member.

    Examples:

    \b
      cubecast certs client alice
      cubecast certs client alice --days 1 --replace
    """
    _issue("client", name, folder, [], days, replace)


def _issue(role: Role, name: str, folder: Path, hosts: list[str], days: int, replace: bool) -> None:
    with _explained(role):
        made = Authority(folder).issue(role, name, hosts, days, replace)
    typer.echo(f"made {folder / name}.pem and .key, valid until {_day(made.ends)}")
    typer.echo(
        f"give it --tls-ca {folder}/ca.pem --tls-cert {folder}/{name}.pem "
        f"--tls-key {folder}/{name}.key --tls-crl {folder}/crl.pem"
    )


@certs.command()
def revoke(name: NameArgument, folder: FolderOption = HERE) -> None:
    """Revoke all certificates of a name: crl.pem lists them from now on.

    Give every node the new crl.pem (tls_crl); it closes the connections of
    revoked certificates within seconds and lets them in no more.

    Examples:

    \b
      cubecast certs revoke alice
      cubecast certs client alice --replace
          lets alice in again, with a new key
    """
    with _explained("revoke"):
        revoked = [one for one in Authority(folder).revoke(name) if one.revoked]
    typer.echo(f"revoked: {counted(len(revoked), 'certificate')} of {name}")
    typer.echo(f"give every node {folder / 'crl.pem'}, as its tls_crl")


@certs.command("list")
def list_(
    folder: FolderOption = HERE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the certificates that were made: role, name, state, last day, serial number.

    Examples:

    \b
      cubecast certs list
      cubecast certs list --dir /secure/staging --json
    """
    with _explained("list"):
        made = Authority(folder).issued()
    if as_json:
        typer.echo(json.dumps({"certificates": [_as_object(one) for one in made]}))
        return
    for one in made:
        stated = one.certificate
        typer.echo(
            f"{stated.role:<6}  {stated.name}  {one.state}, until {_day(one.ends)}  {one.serial:x}"
        )


@certs.command()
def show(name: NameArgument, folder: FolderOption = HERE) -> None:
    """Show what is known of the certificates of a name.

    Examples:

    \b
      cubecast certs show node1
    """
    with _explained("show"):
        found = [one for one in Authority(folder).issued() if one.certificate.name == name]
    if not found:
        refuse("certs show", f"{folder} has made no certificate for {name!r}")
    for one in found:
        left = (one.ends - datetime.now(UTC)).days
        for line in (
            f"{one.certificate.uri}  {one.state}",
            f"  serial {one.serial:x}",
            f"  valid from {_day(one.begins)} until {_day(one.ends)}, {counted(left, 'day')} left",
            f"  hosts {', '.join(one.hosts) or 'none'}",
        ):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _as_object(one: Issued) -> dict[str, object]:
    return {
        "role": one.certificate.role,
        "name": one.certificate.name,
        "state": one.state,
        "from": one.begins.isoformat(),
        "until": one.ends.isoformat(),
        "serial": f"{one.serial:x}",
        "hosts": list(one.hosts),
    }


def _day(moment: datetime) -> str:
    return moment.date().isoformat()


@contextmanager
def _explained(command: str) -> Iterator[None]:
    """Refuse a command in one line if it fails."""
    try:
        yield
    except CubecastError as error:
        refuse(f"certs {command}", error)
