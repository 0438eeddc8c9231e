"""``cubecast up``: a cluster on this machine, one process a node."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from cubecast.cli.config import (
    EXPOSED,
    AdvertiseOption,
    ConfigOption,
    Flags,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    PermissionsOption,
    PresetOption,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    child_environment,
    effective,
    named,
)
from cubecast.cli.output import complain, counted, refuse
from cubecast.cli.running import stop_signals
from cubecast.logs import guard
from cubecast.net.links.address import format_address, parse_address
from cubecast.net.settings.sources import Settings
from cubecast.processes.child import end_all
from cubecast.processes.command import CommandChild
from cubecast.processes.signals import StopSignals

POLL_S = 0.1
BEYOND_LEAVE_S = 30.0
"""How long processes may take to end besides leaving; many of them share few processors."""


class UpNode(CommandChild):
    """One node in a process of its own; `greeting` is the line with its address.

    With `named`, its warnings are passed on with its number; JSON names the node itself.
    """

    def __init__(
        self, number: int, options: list[str], environment: Mapping[str, str], named: bool = True
    ) -> None:
        self.greeting = ""
        self._prefix = f"node {number}: " if named else ""
        self._started = False
        command = [sys.executable, "-m", "cubecast.cli.main", "node", *options]
        super().__init__(
            number, command, heard=self._greet, overheard=self._complain, environment=environment
        )
        self.hang_up()

    def _greet(self, line: bytes) -> None:
        """Keep its first line, the greeting; joins and leaves are not repeated for each node."""
        self.greeting = self.greeting or line.decode(errors="replace").strip()

    def _complain(self, line: str) -> None:
        """Pass its warnings on; those of a node that does not start are kept, as the reason."""
        if self._started:
            self._pass_on()

    def _pass_on(self) -> None:
        while self.complaints:
            typer.echo(f"{self._prefix}{self.complaints.popleft()}", err=True)

    def started(self) -> None:
        """Note that it is up: its warnings until now did not end it."""
        self._started = True
        self._pass_on()

    def last_words(self) -> str:
        """Why a process that has ended did not start."""
        line = self.last_line()
        with suppress(ValueError, LookupError, TypeError):  # else it is no line of JSON
            line = str(json.loads(line)["message"])
        return (line or self.how_it_ended()).removeprefix("cubecast node: ")


def up(
    nodes: Annotated[int, typer.Option("-n", "--nodes", help="How many.", min=1, max=256)] = 3,
    listen: ListenOption = None,
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
    config: ConfigOption = None,
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C.

    The first one listens where it is told, the others on free ports beside it.
    A second Ctrl-C does not wait until they have left. Ctrl-C stops them also in a script that
    started them with &; with nohup they outlive both the script and the terminal.
    A closed terminal stops them, too; to outlive it, use cubecast node.

    Examples:

    \b
      cubecast up -n 3
          then, in other terminals: cubecast sub chat, cubecast pub chat hello
      cubecast up --listen 127.0.0.1:7500
          a second cluster beside the first; reach it with --at 127.0.0.1:7500
    """
    guard()
    flags = Flags(
        listen, advertise, None, secret, preset, log_format, log_level, named(permissions)
    )
    settings = effective("up", config, flags.with_tls(tls_ca, tls_cert, tls_key, tls_crl))
    for path in settings.exposed:
        complain("up", EXPOSED % (path, path), settings.log_format, logging.WARNING)
    shared = ["--preset", settings.preset, *(["--config", str(config)] if config else [])]
    shared += ["--log-format", settings.log_format, "--log-level", settings.log_level]
    shared += ["--permissions", str(permissions)] if permissions else []
    signals = StopSignals(stop_signals())
    children: list[UpNode] = []
    patience_s = settings.config.leave_timeout_s + BEYOND_LEAVE_S
    try:
        _start(nodes, settings, shared, children, signals)
        while not signals.count:
            _mourn(children, settings.log_format)
            time.sleep(POLL_S)
        typer.echo("stopping")
    finally:
        asked = signals.count
        killed = _stop(children, patience_s, lambda: signals.count > asked)
    if killed:
        listed = ", ".join(map(str, killed))
        said = f"killed before they had left the cluster: {listed}"
        refuse("up", said, settings.log_format)


def _mourn(children: list[UpNode], log_format: str) -> None:
    """Name the nodes that ended by themselves; the others go on without them."""
    for child in [child for child in children if not child.alive]:
        children.remove(child)
        rest = "; the others go on" if children else ""
        said = f"node {child.number} ended by itself, {child.how_it_ended()}{rest}"
        if not children:
            refuse("up", said, log_format)
        complain("up", said, log_format, logging.WARNING)


def _start(
    nodes: int, settings: Settings, shared: list[str], children: list[UpNode], signals: StopSignals
) -> None:
    """Start one node after the other, until all are up or a signal says to stop."""
    first = settings.config
    host, _ = parse_address(first.listen)
    advertised_host = parse_address(first.advertise)[0] if first.advertise else ""
    environment = child_environment(first)
    began = time.monotonic()
    told = ["--advertise", first.advertise] if first.advertise else []
    where = ["--listen", first.listen, *told, "--begin"]
    metrics_host = format_address(parse_address(first.metrics)[0], 0) if first.metrics else ""
    seed = ""
    for number in range(nodes):
        child = UpNode(number, [*shared, *where], environment, named="json" not in shared)
        children.append(child)
        while not child.greeting and child.alive and not signals.count:
            time.sleep(POLL_S / 10)
        if signals.count:
            return
        if not child.greeting:
            said = f"node {number} did not start: {child.last_words()}"
            refuse("up", said, settings.log_format)
        child.started()
        typer.echo(child.greeting)
        if not seed:
            seed = child.greeting.rsplit(" ", 1)[-1]
            told = ["--advertise", advertised_host] if advertised_host else []
            where = ["--listen", format_address(host, 0), *told, "--join", seed]
            where += ["--metrics", metrics_host] if metrics_host else []  # a free port each
    typer.echo(
        f"{counted(nodes, 'node')} up in {time.monotonic() - began:.1f} s; reach them at {seed}; "
        "Ctrl-C stops them"
    )


def _stop(children: Sequence[UpNode], limit_s: float, hurry: Callable[[], bool]) -> list[int]:
    """End all children; return the numbers of those that took longer than `limit_s` (killed).

    `hurry` says when to stop waiting.
    """
    for child in reversed(children):
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    while any(child.alive for child in children):
        if time.monotonic() > deadline or hurry():
            break
        time.sleep(POLL_S)
    killed = [child.number for child in children if child.alive]
    for child in children:
        child.signal(signal.SIGKILL)
    end_all(children)
    return killed
