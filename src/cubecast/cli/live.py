"""``cubecast node``: a live node from the terminal; and what all live commands share."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

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
    effective,
)
from cubecast.cli.output import refuse
from cubecast.net.loop import run_loop

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


@asynccontextmanager
async def _joined(seed: str | None, config: cubecast.NodeConfig) -> AsyncIterator[cubecast.Node]:
    """The node; an address it cannot listen on is named."""
    async with AsyncExitStack() as stack:
        try:
            member = await stack.enter_async_context(cubecast.join(seed, config=config))
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                reason = "the address is in use; choose another with --listen"
            raise cubecast.CubecastError(f"cannot listen on {config.listen}: {reason}") from None
        yield member


async def _node(config: cubecast.NodeConfig, seed: str | None) -> None:
    async with _joined(seed, config) as member:
        events = member.events()
        stop = stop_signal(events.close)  # before the line: whoever has read it may stop us
        typer.echo(f"node {member.slot} on {member.address}")
        async for event in events:
            match event:
                case cubecast.MemberJoined():
                    typer.echo(f"node {event.slot} joined from {event.address}")
                case cubecast.MemberLeft():
                    typer.echo(f"node {event.slot} {'is gone' if event.crashed else 'left'}")
                case cubecast.Excluded():
                    typer.echo("the others went on without this node; asking to be taken back")
                case cubecast.Returned():
                    typer.echo(f"back in the cluster as node {event.slot}")
                case cubecast.ConnectionLost():
                    typer.echo(f"lost the connection to node {event.slot}: {event.reason}")
        stop()
        typer.echo(f"node {member.slot} leaves")


def stop_signals() -> list[signal.Signals]:
    """Ctrl-C, a request to end, and a terminal that is closed.

    `nohup` has us outlive the terminal: what is ignored then stays so.  Without it Ctrl-C counts
    even where a shell ignores it for us, as for what a script starts with `&`: nodes are not to be
    left behind when their script is interrupted.
    """
    outlive = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if outlive:
        return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return numbers


def stop_signal(stop: Any) -> Any:
    """Call `stop` on any of `stop_signals`; the result undoes that."""
    loop = asyncio.get_running_loop()
    numbers = stop_signals()
    for number in numbers:
        loop.add_signal_handler(number, stop)

    def undo() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return undo


def run(command: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a command's work; what goes wrong with it takes one line."""
    try:
        run_loop(work)
    except cubecast.AttachError as error:
        hint = "; is one running? cubecast up" if _nobody_listens(error) else ""
        refuse(command, f"{error}{hint}")
    except (cubecast.CubecastError, ValueError) as error:
        refuse(command, error)
    except OSError as error:
        if error.errno == errno.EPIPE:  # who read our output has gone, which is its right
            raise
        refuse(command, error.strerror or error)


def _nobody_listens(error: cubecast.AttachError) -> bool:
    """Whether every address refused; asyncio and uvloop word it differently."""
    words = (os.strerror(errno.ECONNREFUSED), "Connect call failed")
    return all(reason.startswith(words) for reason in error.reasons.values())
