"""``cubecast node``: a live node from the terminal."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Annotated

import typer

import cubecast
from cubecast.cli.config import (
    EXPOSED,
    AdvertiseOption,
    ConfigOption,
    Flags,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    MetricsOption,
    PermissionsOption,
    PresetOption,
    SecretFlag,
    SeedOption,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    effective,
    named,
)
from cubecast.cli.running import run, stop_signal
from cubecast.logs import Handler, escaped, guard, install
from cubecast.net.links.address import format_address, parse_address
from cubecast.net.links.reach import find_way, parse_seeds
from cubecast.net.node.shell import shell_of

log = logging.getLogger("cubecast")

on_hangup: list[Callable[[], None]] = []
"""Further actions on SIGHUP, such as to read files again."""


def node(
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
    begin: Annotated[bool, typer.Option("--begin", hidden=True)] = False,
) -> None:
    """Run one node until Ctrl-C or SIGTERM, then leave gracefully.

    Neither a closed terminal nor a full disk ends it, and an unread pipe does
    not stop it: lines that cannot be written are dropped and counted, and the
    count is told when there is room again.

    Examples:

    \b
      cubecast node
          begins a cluster on 127.0.0.1:7400
      cubecast node --listen 127.0.0.1:0 --join 127.0.0.1:7400
          joins it
      cubecast node --join 10.0.0.1:7400,10.0.0.2:7400
          from another machine; asks one after the other until one is there
      cubecast node --config cubecast.toml
          as that file says; see cubecast config
    """
    guard()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the node runs
    seed = "" if begin else join  # empty: none, though the configuration may name one
    flags = Flags(
        listen, advertise, seed, secret, preset, log_format, log_level, named(permissions),
        metrics=metrics,
    )  # fmt: skip
    settings = effective("node", config, flags.with_tls(tls_ca, tls_cert, tls_key, tls_crl))
    handler = install(level=settings.log_level, format=settings.log_format, logger="")
    for path in settings.exposed:
        log.warning(EXPOSED, path, path)
    chosen = settings.origins["listen"] != "default"
    work = _node(settings.config, settings.join or None, handler, chosen)
    run("node", work, settings.log_format)


@asynccontextmanager
async def _joined(seed: str | None, config: cubecast.NodeConfig) -> AsyncIterator[cubecast.Node]:
    """The node; an address it cannot listen on is named."""
    async with AsyncExitStack() as stack:
        try:
            member = await stack.enter_async_context(cubecast.join(seed, config=config))
        except OSError as error:
            reason = error.strerror or str(error)
            reason = reason.removeprefix(f"cannot listen on {config.listen}: ")
            if error.errno == errno.EADDRINUSE:
                reason = "the address is in use; choose another with --listen"
            raise cubecast.CubecastError(f"cannot listen on {config.listen}: {reason}") from None
        yield member


async def _towards(seed: str, config: cubecast.NodeConfig) -> cubecast.NodeConfig:
    """Listen where the machine of the seed can dial us, if no address was given."""
    way = None if config.advertise else await find_way(parse_seeds(seed))
    if way is None or not way.leads_elsewhere:
        return config
    port = parse_address(config.listen)[1]
    return replace(config, listen=format_address(way.local, port))


async def _node(
    config: cubecast.NodeConfig, seed: str | None, handler: Handler, chosen: bool
) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _hung_up)
    if seed is not None and not chosen:
        config = await _towards(seed, config)
    async with _joined(seed, config) as member:
        handler.slot = lambda: member.slot
        events = member.events()
        # Before the line: a process that reads it may stop us.
        stop = stop_signal(events.close, hangup=False)
        typer.echo(f"node {member.slot} on {member.address}")
        metrics = shell_of(member).metrics
        if metrics is not None:
            typer.echo(f"metrics on http://{metrics.address}/metrics")
        mixed = _same_place()
        async for event in events:
            line = _said(event)
            if line and not (mixed and log.isEnabledFor(LOGGED.get(type(event), logging.NOTSET))):
                typer.echo(line)
        stop()
        typer.echo(f"node {member.slot} leaves")


LOGGED: dict[type[object], int] = {
    cubecast.MemberJoined: logging.INFO,
    cubecast.MemberLeft: logging.INFO,
    cubecast.ConnectionLost: logging.INFO,
    cubecast.MemberMute: logging.WARNING,
    cubecast.Excluded: logging.WARNING,
    cubecast.Returned: logging.WARNING,
}
"""Events of which the library's log has a line, and its level."""


def _same_place() -> bool:
    """Whether stdout and stderr are one terminal, file or pipe: then an event is printed once."""
    try:
        return os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:  # one of them is closed
        return False


def _said(event: cubecast.Event) -> str:
    """An event as text for people; empty if it is not printed."""
    match event:
        case cubecast.MemberJoined():
            return f"node {event.slot} joined from {escaped(event.address)}"
        case cubecast.MemberLeft():
            return f"node {event.slot} {'is gone' if event.crashed else 'left'}"
        case cubecast.MemberMute():
            waited = f"node {event.by} waited {event.seconds:.1f} s"
            does = "answers us" if event.disputed else "answers tests but no waves"
            does = f"leads, and {event.reason}" if event.reason else does
            return f"node {event.slot} {does}: {waited}"
        case cubecast.Excluded():
            return "the others went on without this node; asking to be taken back"
        case cubecast.Returned():
            return f"back in the cluster as node {event.slot}"
        case cubecast.ConnectionLost():
            return f"lost the connection to node {event.slot}: {escaped(event.reason)}"
        case _:
            return ""


def _hung_up() -> None:
    """Go on: a terminal was closed, or files are to be read again."""
    log.info("SIGHUP: the node goes on")
    for act in on_hangup:
        act()
