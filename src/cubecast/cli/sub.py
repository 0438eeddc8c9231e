"""``cubecast sub``: reads a topic through a node and prints it, even if stdout blocks."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, cast, get_args

import typer

import cubecast
from cubecast.cli.config import (
    DEFAULT_NODE,
    AtOption,
    ConfigOption,
    Credentials,
    NameFlag,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    cluster_access,
)
from cubecast.cli.output import counted, refuse
from cubecast.cli.printer import Printer
from cubecast.cli.running import run, stop_signal
from cubecast.logs import escaped, escaped_but_layout, guard
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.reading.subscription import Policy
from cubecast.net.settings.units import SIZES, parse_quantity

POLICIES: tuple[str, ...] = get_args(Policy)
TELL_EVERY_S = 5.0
"""How often stderr says that messages were dropped, at most."""


@dataclass(frozen=True, slots=True)
class TopicReading:
    """The options of reading and printing a topic."""

    as_json: bool
    named: bool
    """Whether a line begins with the topic."""
    count: int
    """Messages to read; 0: no end."""
    quiet: bool
    policy: Policy
    queue_bytes: int | None
    patience_s: float = 0.0


def sub(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic to read, or a pattern of topics.")
    ],
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    count: Annotated[int, typer.Option(min=0, help="Stop after this many messages; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say on stderr when it is subscribed.")
    ] = False,
    policy: Annotated[
        str,
        typer.Option(
            metavar="|".join(POLICIES), help="What happens when this reads too slowly; see above."
        ),
    ] = "drop-oldest",
    queue_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What the node keeps unread until the policy acts, as 4MiB. [default: the node's]",
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Look for a node so long, also when one ends, before giving up.",
        ),
    ] = 0.0,
) -> None:
    """Print the messages of a topic as they are delivered, until Ctrl-C.

    In a pattern, + stands for any one level of a topic and # at the end for
    any number of them. Quote it: a shell takes a # alone for a comment.
    With a pattern each line names the topic.

    A slow reader (a stopped process, a full pipe, a held terminal) holds up no
    publisher: the oldest messages are dropped, and stderr says how many.
    With --policy block none is dropped and publishers wait; drop-newest keeps
    the oldest; disconnect ends the command.

    With --patience it goes on at the same node when that is back, or at another
    one of --at; stderr says how many messages it missed.

    A terminal shows control characters of a message, but tabs and newlines,
    as \\x1b; a file or a pipe gets its bytes as they are.

    Examples:

    \b
      cubecast sub chat/room1
      cubecast sub 'chat/#'
          chat, chat/room1, chat/room1/aside, also those that come later
      cubecast sub 'sensors/+/temperature'
      cubecast sub chat/room1 --json --count 10
      cubecast sub chat/room1 --at 10.0.0.1:7400,10.0.0.2:7400 --patience 60
      cubecast sub orders --policy block --queue-bytes 64MiB > orders.log
    """
    guard()
    if policy not in POLICIES:
        refuse("sub", f"--policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    how = TopicReading(
        as_json=as_json,
        named=any(sign in topic for sign in "+#"),
        count=count,
        quiet=quiet,
        policy=cast(Policy, policy),
        queue_bytes=None if queue_bytes is None else _size("sub", queue_bytes),
        patience_s=patience,
    )
    known = cluster_access("sub", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    run("sub", read_topic(topic, at, known, how))


def _size(command: str, text: str) -> int:
    try:
        size = parse_quantity(text, SIZES, SIZES["B"])
    except ValueError:
        size = Fraction(0)
    if size < 1 or size.denominator != 1:
        refuse(command, f"--queue-bytes must be a size such as 4MiB, not {text!r}")
    return int(size)


async def read_topic(topic: str, at: str, access: Credentials, how: TopicReading) -> None:
    """Print the messages of a topic until there are enough, a signal, or the end of stdout."""
    loop = asyncio.get_running_loop()
    async with (
        access.connect(at, how.patience_s) as client,
        client.subscribe(topic, policy=how.policy, queue_bytes=how.queue_bytes) as messages,
    ):
        ending: set[asyncio.Task[None]] = set()

        def end() -> None:
            ending.add(loop.create_task(messages.close()))

        def stop() -> None:
            printer.stop()
            end()

        printer = Printer(_stdout(), failed=end)
        undo = stop_signal(stop)
        if not how.quiet:  # last: its reader may publish, and may stop us
            typer.echo(f"subscribed to {topic} through node {client.slot}", err=True)
        try:
            await _print(messages, printer, how)
        finally:
            await printer.close()
        undo()


async def _print(messages: RemoteSubscription, printer: Printer, how: TopicReading) -> None:
    losses = LossNotice(messages)
    terminal = os.isatty(_stdout())
    seen = 0
    try:
        async for message in messages:
            await printer.put(_shown(message, how, terminal))
            losses.tell(TELL_EVERY_S)
            seen += 1
            if seen == how.count:
                break
    finally:
        losses.tell(0.0)


class LossNotice:
    """Prints on stderr how many messages the policy dropped, or were missed without a node."""

    def __init__(self, messages: RemoteSubscription) -> None:
        self._messages = messages
        self._loop = asyncio.get_running_loop()
        self._told = 0, 0
        self._told_at = -math.inf

    def tell(self, every_s: float) -> None:
        """Print the count if it has grown, and if the last line is old enough."""
        dropped, missed, now = self._messages.dropped, self._messages.missed, self._loop.time()
        if (dropped, missed) == self._told or now < self._told_at + every_s:
            return
        before, self._told, self._told_at = self._told, (dropped, missed), now
        if dropped > before[0]:
            typer.echo(
                f"cubecast sub: {counted(dropped, 'message')} dropped so far, as they were read "
                "too slowly; with --policy block publishers wait instead",
                err=True,
            )
        if missed > before[1]:
            typer.echo(
                f"cubecast sub: {counted(missed, 'message')} missed so far, while there was no "
                "node; with several addresses fewer are",
                err=True,
            )


def _stdout() -> int:
    """The descriptor of stdout."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError):
        raise cubecast.CubecastError("cannot write to stdout: it is closed") from None


def _shown(message: cubecast.Message, how: TopicReading, terminal: bool) -> bytes:
    """A message as bytes: its payload as it is, unless it could control a terminal."""
    if how.as_json:
        return json.dumps(_fields(message)).encode() + b"\n"
    prefix = f"{escaped(message.topic)}: ".encode() if how.named else b""
    payload = message.payload
    if terminal:
        payload = escaped_but_layout(payload.decode(errors="replace")).encode()
    return prefix + payload + b"\n"


def _fields(message: cubecast.Message) -> dict[str, object]:
    return {
        "id": message.id,
        "topic": message.topic,
        "source": message.source,
        "seq": message.seq,
        "published_at": message.published_at,
        "dependencies": message.dependencies,
        "headers": dict(message.headers),
        "payload": message.payload.decode(errors="replace"),
    }
