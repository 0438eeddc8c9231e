"""``cubecast node`` and ``up``: live nodes from the terminal."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

import cubecast
from cubecast.cli.config import (
    AdvertiseOption,
    ConfigOption,
    Flags,
    ListenOption,
    PresetOption,
    SecretFlag,
    SeedOption,
    child_environment,
    effective,
)
from cubecast.cli.output import refuse
from cubecast.net.address import format_address, parse_address
from cubecast.net.loop import run_loop

SecretOption = Annotated[
    str,
    typer.Option(
        envvar="CUBECAST_SECRET", help="The cluster's secret; better set in CUBECAST_SECRET."
    ),
]
DEFAULT = "127.0.0.1:7400"


def node(
    listen: ListenOption = None,
    join: SeedOption = None,
    secret: SecretFlag = None,
    advertise: AdvertiseOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
) -> None:
    """Run one node until Ctrl-C, then leave gracefully.

    Examples:

    \b
      cubecast node
          begins a cluster on 127.0.0.1:7400
      cubecast node --listen 127.0.0.1:0 --join 127.0.0.1:7400
          joins it
      cubecast node --config cubecast.toml
          as that file says; see cubecast config
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    flags = Flags(listen, advertise, join, secret, preset)
    settings = effective("node", config, flags)
    run("node", _node(settings.config, settings.join or None))


async def _node(config: cubecast.NodeConfig, seed: str | None) -> None:
    async with cubecast.join(seed, config=config) as member:
        events = member.events()
        stop = stop_signal(events.close)  # before the line: whoever has read it may stop us
        typer.echo(f"node {member.slot} on {member.address}")
        async for event in events:
            match event:
                case cubecast.MemberJoined():
                    typer.echo(f"node {event.slot} joined from {event.address}")
                case cubecast.MemberLeft():
                    typer.echo(f"node {event.slot} left")
                case cubecast.ConnectionLost():
                    typer.echo(f"lost the connection to node {event.slot}: {event.reason}")
        stop()
        typer.echo(f"node {member.slot} leaves")


def stop_signal(stop: Any) -> Any:
    """Call `stop` on SIGINT and SIGTERM; the result undoes that."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)

    def undo() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    return undo


def up(
    nodes: Annotated[int, typer.Option("-n", "--nodes", help="How many.", min=1, max=256)] = 3,
    listen: ListenOption = None,
    secret: SecretFlag = None,
    advertise: AdvertiseOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C.

    The first one listens where it is told, the others on free ports beside it.

    Examples:

    \b
      cubecast up -n 3
          then, in other terminals: cubecast sub chat, cubecast pub chat hello
    """
    settings = effective("up", config, Flags(listen, advertise, "", secret, preset))
    first = settings.config
    host, _ = parse_address(first.listen)
    advertised_host = parse_address(first.advertise)[0] if first.advertise else ""
    shared = ["--preset", settings.preset, *(["--config", str(config)] if config else [])]
    environment = child_environment(first.secret)
    children: list[subprocess.Popen[str]] = []
    started = time.monotonic()
    try:
        seed = None
        for _ in range(nodes):
            where = (
                ["--listen", first.listen, "--advertise", first.advertise]
                if seed is None
                else ["--listen", format_address(host, 0), "--advertise", advertised_host]
            )
            line = _start_child(children, [*shared, *where, "--join", seed or ""], environment)
            seed = seed or line.rsplit(" ", 1)[-1]
            typer.echo(line)
        typer.echo(
            f"{nodes} nodes up in {time.monotonic() - started:.1f} s; reach them at {seed}; "
            "Ctrl-C stops them"
        )
        while all(child.poll() is None for child in children):
            time.sleep(0.2)
        refuse("up", "a node ended by itself")
    except KeyboardInterrupt:
        typer.echo("stopping")
    finally:
        for child in reversed(children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait()


def _start_child(
    children: list[subprocess.Popen[str]], options: list[str], environment: dict[str, str]
) -> str:
    """Start one node and wait for the line in which it says where it listens."""
    child = subprocess.Popen(
        [sys.executable, "-m", "cubecast.cli.main", "node", *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is ours to pass on
    )
    children.append(child)
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        refuse("up", f"a node did not start (exit code {child.wait()})")
    return line


def run(command: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a command's work; what goes wrong with it takes one line."""
    try:
        run_loop(work)
    except (cubecast.CubecastError, ValueError) as error:
        refuse(command, error)
    except OSError as error:
        refuse(command, error.strerror or error)
