"""``cubecast node``, ``up``, ``pub`` and ``sub``: live nodes from the terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
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
from cubecast.cli.output import console, refuse
from cubecast.net.address import format_address, parse_address
from cubecast.net.loop import run_loop

JoinOption = Annotated[
    str, typer.Option("--join", metavar="ADDRESS", help="Any node of the cluster, as host:port.")
]
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
    _run("node", _node(settings.config, settings.join or None))


async def _node(config: cubecast.NodeConfig, seed: str | None) -> None:
    async with cubecast.join(seed, config=config) as member:
        events = member.events()
        stop = _stop_signal(events.close)  # before the line: whoever has read it may stop us
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


def _stop_signal(stop: Any) -> Any:
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
            f"{nodes} nodes up in {time.monotonic() - started:.1f} s; join them at {seed}; "
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


def sub(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    join: JoinOption = DEFAULT,
    secret: SecretOption = "",
    count: Annotated[int, typer.Option(help="Stop after this many messages; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message.")] = False,
) -> None:
    """Print the messages of a topic as they are delivered.

    Examples:

    \b
      cubecast sub chat/room1
      cubecast sub chat/room1 --json --count 10
    """
    _run("sub", _sub(topic, join, secret, count, as_json))


async def _sub(topic: str, seed: str, secret: str, count: int, as_json: bool) -> None:
    async with (
        cubecast.join(seed, secret=secret) as member,
        member.subscribe(topic) as messages,
    ):
        loop = asyncio.get_running_loop()
        undo = _stop_signal(lambda: loop.create_task(messages.close()))
        seen = 0
        async for message in messages:
            typer.echo(_shown(message, as_json))
            seen += 1
            if seen == count:
                break
        undo()


def _shown(message: cubecast.Message, as_json: bool) -> str:
    text = message.payload.decode(errors="replace")
    if not as_json:
        return text
    return json.dumps(
        {
            "topic": message.topic,
            "source": message.source,
            "seq": message.seq,
            "published_at": message.published_at,
            "dependencies": message.dependencies,
            "payload": text,
        }
    )


def pub(
    topic: Annotated[str, typer.Argument(help="The topic to publish to.")],
    message: Annotated[
        str | None, typer.Argument(help="What to publish; without it, each line of stdin.")
    ] = None,
    join: JoinOption = DEFAULT,
    secret: SecretOption = "",
    file: Annotated[Path | None, typer.Option(help="Publish each line of this file.")] = None,
    rate: Annotated[float, typer.Option(help="Messages per second; 0: as fast as it goes.")] = 0,
) -> None:
    """Publish to a topic without subscribing to it.

    Returns when every subscriber has consumed what was published.

    Examples:

    \b
      cubecast pub chat/room1 "hello"
      seq 1000 | cubecast pub numbers --rate 100
    """
    if message is not None and file is not None:
        refuse("pub", "a message or --file, not both")
    if rate < 0:
        refuse("pub", "--rate must not be negative")
    if file is not None and not file.is_file():
        refuse("pub", f"cannot read {file}")
    _run("pub", _pub(topic, _lines(message, file), join, secret, rate))


def _lines(message: str | None, file: Path | None) -> Iterator[str]:
    if message is not None:
        yield message
    elif file is not None:
        with file.open(encoding="utf-8", errors="replace") as stream:
            yield from (line.rstrip("\n") for line in stream)
    else:
        yield from (line.rstrip("\n") for line in sys.stdin)


async def _pub(topic: str, lines: Iterator[str], seed: str, secret: str, rate: float) -> None:
    async with cubecast.join(seed, secret=secret) as member:
        receipt = None
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            receipt = await member.publish(topic, line, receipt=True)
            if rate:
                await asyncio.sleep(1 / rate)
        if receipt is not None:
            await receipt.stable()


def nodes(
    join: JoinOption = DEFAULT,
    secret: SecretOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the nodes of a cluster."""
    _run("nodes", _nodes(join, secret, as_json))


async def _nodes(seed: str, secret: str, as_json: bool) -> None:
    async with cubecast.join(seed, secret=secret) as member:
        others = {slot: at for slot, at in member.members.items() if slot != member.slot}
    if as_json:
        typer.echo(json.dumps({"nodes": {str(slot): at for slot, at in others.items()}}))
    else:
        for slot, at in others.items():
            console.print(f"node {slot}  {at}", highlight=False)


def _run(command: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        run_loop(work)
    except (cubecast.CubecastError, ValueError) as error:
        refuse(command, error)
    except OSError as error:
        refuse(command, error.strerror or error)
