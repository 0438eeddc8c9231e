"""``cubecast config``: the effective configuration; and the options that other commands share."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

import cubecast
from cubecast.cli.output import console, refuse
from cubecast.errors import ConfigError
from cubecast.logs import FORMATS, LEVELS
from cubecast.net.security.tls import Tls
from cubecast.net.settings.config import PARTS, NodeConfig
from cubecast.net.settings.presets import PRESETS
from cubecast.net.settings.presets import table as bounds_table
from cubecast.net.settings.sources import TLS_KEYS, Settings, load_settings
from cubecast.net.settings.units import format_duration, format_size

DEFAULT_LISTEN = "127.0.0.1:7400"
DEFAULT_NODE = DEFAULT_LISTEN
"""The node that a command asks if none is named."""
WIDE = 260
"""Columns of a table that no terminal shows: each of its rows is one line."""
EXPOSED = "%s: others on this machine can read the secret: chmod 600 %s"


def given(value: str | None) -> str | None:
    """A flag's value. An empty one is a shell's variable that was not set: it is refused.

    Without this an empty secret would open the cluster, and an empty seed would begin another.
    """
    if value is not None and not value.strip():
        raise typer.BadParameter("it is empty; leave the flag out if that is meant")
    return value


ListenOption = Annotated[
    str | None,
    typer.Option(
        callback=given,
        metavar="ADDRESS",
        help=f"Where to listen; port 0 takes a free one. [default: {DEFAULT_LISTEN}]",
    ),
]
AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        "--join",
        metavar="ADDRESS",
        help="A node of the cluster, as host:port; several with commas are tried in turn.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        callback=given,
        metavar="ADDRESS",
        help="The address others are told, if it is another one: behind a NAT, say.",
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option(
        "--join",
        callback=given,
        metavar="ADDRESSES",
        help="Nodes to join, asked in turn: host:port,host:port; without it, begin anew.",
    ),
]
SecretFlag = Annotated[
    str | None,
    typer.Option(
        callback=given,
        help="The cluster's secret; better in CUBECAST_SECRET or a secret_file.",
    ),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option(
        callback=given,
        metavar="FILE",
        help="TLS instead of a secret: the CAs that are believed.",
    ),
]
TlsCertOption = Annotated[
    str | None,
    typer.Option(callback=given, metavar="FILE", help="Our certificate; see cubecast certs."),
]
TlsKeyOption = Annotated[
    str | None,
    typer.Option(callback=given, metavar="FILE", help="The private key of our certificate."),
]
TlsCrlOption = Annotated[
    str | None,
    typer.Option(callback=given, metavar="FILE", help="The revoked certificates, if any are."),
]
PresetOption = Annotated[
    str | None,
    typer.Option(metavar="|".join(PRESETS), help="How far away the others are."),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(metavar="|".join(FORMATS), help="How the log on stderr looks. [default: text]"),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(LEVELS).lower(), help="What the log tells at least. [default: warning]"
    ),
]
NameFlag = Annotated[
    str | None,
    typer.Option(
        "--name",
        callback=given,
        metavar="NAME",
        help="This client's name; the secret is its token.",
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        callback=given,
        metavar="ADDRESS",
        help="Serve /metrics and /healthz there, to everyone; :9464 is on the loopback.",
    ),
]
PermissionsOption = Annotated[
    Path | None,
    typer.Option("--permissions", metavar="FILE", help="Who may do what; see docs/permissions.md."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A configuration in TOML.")
]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags as typed; None: not given."""

    listen: str | None
    advertise: str | None
    join: str | None
    secret: str | None
    preset: str | None
    log_format: str | None = None
    log_level: str | None = None
    permissions: str | None = None
    client_name: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_crl: str | None = None
    metrics: str | None = None

    def with_tls(self, ca: str | None, cert: str | None, key: str | None, crl: str | None) -> Flags:
        """These, and the four flags of TLS."""
        return replace(self, tls_ca=ca, tls_cert=cert, tls_key=key, tls_crl=crl)


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client proves that it may use a cluster; with a name, the secret is its token."""

    secret: str
    tls: Tls | None
    name: str = ""

    def connect(
        self, at: str, patience_s: float = 0.0
    ) -> AbstractAsyncContextManager[cubecast.Client]:
        """Attach to one of the nodes at these addresses; with patience, go from one to another."""
        return cubecast.connect(
            at, secret=self.secret, name=self.name, tls=self.tls, patience_s=patience_s
        )


SECRETS = ("secret", "client_secret")
"""Keys whose values are not shown."""


def effective(command: str, config: Path | None, flags: Flags) -> Settings:
    """Flags over environment over file over preset, or a refusal in one line."""
    try:
        return load_settings(config, defaults={"listen": DEFAULT_LISTEN}, **asdict(flags))
    except ConfigError as error:
        refuse(command, error, flags.log_format)


def named(path: Path | None) -> str | None:
    """The name of a file that a flag may have given."""
    return None if path is None else str(path)


def cluster_access(
    command: str, config: Path | None, secret: str | None, name: str | None, *tls: str | None
) -> Credentials:
    """The credentials of a client of the cluster, from flags, environment and file as for a node.

    `tls` are the four flags of TLS.
    """
    flags = Flags(None, None, None, secret, None, client_name=name).with_tls(*tls)
    settings = effective(command, config, flags)
    node = settings.config
    shared = node.secret if secret is not None else node.client_secret or node.secret
    if settings.client_name and not shared and node.tls is None:
        refuse(command, f"a client of the name {settings.client_name!r} needs its token as secret")
    return Credentials(shared, node.tls, settings.client_name)


def member_access(
    command: str, config: Path | None, secret: str | None, *tls: str | None
) -> Credentials:
    """The secret or certificate of a command that becomes a member."""
    node = effective(command, config, Flags(None, None, None, secret, None).with_tls(*tls)).config
    return Credentials(node.secret, node.tls)


def child_environment(node: NodeConfig) -> dict[str, str]:
    """Our environment plus secrets, which lists of processes do not show, and the files of TLS."""
    environment = dict(os.environ)
    for key in SECRETS:
        environment[f"CUBECAST_{key.upper()}"] = getattr(node, key)
        environment.pop(f"CUBECAST_{key.upper()}_FILE", None)
    for key in TLS_KEYS:
        environment[f"CUBECAST_{key.upper()}"] = getattr(node, key)
    return environment


def config(
    listen: ListenOption = None,
    join: SeedOption = None,
    secret: SecretFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    advertise: AdvertiseOption = None,
    preset: PresetOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    permissions: PermissionsOption = None,
    metrics: MetricsOption = None,
    config: ConfigOption = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print every bound and delay by preset, and its formula."),
    ] = False,
) -> None:
    """Print the configuration a node would run with, and where each value comes from.

    The output is itself a configuration file, without the secret. With --explain it is the table of
    all bounds and delays: what they are in each preset, and by which formula.

    Examples:

    \b
      cubecast config
      cubecast config --preset wan
      cubecast config --explain
    """
    if explain:
        shown_on = console if console.is_terminal else Console(width=WIDE)
        shown_on.print(_explained())
        return
    flags = Flags(
        listen, advertise, join, secret, preset, log_format, log_level, named(permissions),
        metrics=metrics,
    )  # fmt: skip
    settings = effective("config", config, flags.with_tls(tls_ca, tls_cert, tls_key, tls_crl))
    for line in shown(settings):
        typer.echo(line)


def shown(settings: Settings) -> list[str]:
    """The lines of a TOML file with these settings; each is followed by its origin."""
    node, origins = settings.config, settings.origins
    values: dict[str, object] = {
        "preset": settings.preset,
        "join": settings.join,
        "client_name": settings.client_name,
    }
    values |= {"log_format": settings.log_format, "log_level": settings.log_level.lower()}
    for owner in (node, node.protocol, node.detector, node.epochs):
        for one in fields(owner):
            if one.name not in PARTS and one.name not in SECRETS:
                values[one.name] = _written(one.name, str(one.type), getattr(owner, one.name))
    lines = []
    for key, value in values.items():
        if value is None or value == "":
            lines.append(f"# {key} is not set")
        else:
            text = f"{key} = {msgspec.json.encode(value).decode()}"
            lines.append(f"{text:<36}# {origins[key]}")
    for key in SECRETS:
        known = f"is set by {origins[key]}, and not shown" if getattr(node, key) else "is not set"
        lines.append(f"# {key} {known}")
    return lines


def preset_written(preset: str) -> dict[str, str]:
    """The bounds and delays of a preset as people write them."""
    node = NodeConfig.preset(preset)
    owners = (node, node.protocol, node.detector, node.epochs)
    return {
        one.name: str(_written(one.name, str(one.type), getattr(owner, one.name)))
        for owner in owners
        for one in fields(owner)
    }


def _explained() -> Table:
    columns = ("key", "unit", *PRESETS, "formula")
    table = Table(*columns, box=None, pad_edge=False, highlight=False)
    for row in bounds_table(preset_written):
        table.add_row(*(cell.replace("`", "") for cell in row))
    return table


def _written(name: str, annotation: str, value: object) -> object:
    if annotation == "Time":
        assert isinstance(value, int)
        return format_duration(value)
    if name.endswith("_bytes") or name == "window":
        assert isinstance(value, int)
        return format_size(value)
    return value
