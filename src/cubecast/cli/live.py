"""``cubecast node`` and ``up``: live nodes from the terminal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

import cubecast
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
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; port 0 takes a free one.")
    ] = DEFAULT,
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="ADDRESS", help="A node to join; without it, begin anew."),
    ] = None,
    secret: SecretOption = "",
) -> None:
    """Run one node until Ctrl-C, then leave gracefully.

    Examples:

    \b
      cubecast node
          begins a cluster on 127.0.0.1:7400
      cubecast node --listen 127.0.0.1:0 --join 127.0.0.1:7400
          joins it
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    run("node", _node(listen, join, secret))


async def _node(listen: str, seed: str | None, secret: str) -> None:
    async with cubecast.join(seed, listen=listen, secret=secret) as member:
        typer.echo(f"node {member.slot} on {member.address}")
        events = member.events()
        stop = stop_signal(events.close)
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
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the first one listens.")
    ] = DEFAULT,
    secret: SecretOption = "",
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C.

    Examples:

    \b
      cubecast up -n 3
          then, in other terminals: cubecast sub chat, cubecast pub chat hello
    """
    try:
        host, _ = parse_address(listen)
    except ValueError as error:
        refuse("up", error)
    environment = {**os.environ, "CUBECAST_SECRET": secret}
    children: list[subprocess.Popen[str]] = []
    started = time.monotonic()
    try:
        seed = None
        for _ in range(nodes):
            address = listen if seed is None else format_address(host, 0)
            line = _start_child(children, address, seed, environment)
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
    children: list[subprocess.Popen[str]],
    listen: str,
    seed: str | None,
    environment: dict[str, str],
) -> str:
    """Start one node and wait for the line in which it says where it listens."""
    command = [sys.executable, "-m", "cubecast.cli.main", "node", "--listen", listen]
    child = subprocess.Popen(
        [*command, *(["--join", seed] if seed else [])],
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
