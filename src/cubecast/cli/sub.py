"""``cubecast sub``: reads a topic through a node and prints it, whatever becomes of stdout."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from dataclasses import dataclass
from typing import get_args

import typer

import cubecast
from cubecast.cli.config import Credentials
from cubecast.cli.live import stop_signal
from cubecast.cli.output import counted
from cubecast.cli.printer import Printer
from cubecast.logs import escaped, escaped_but_layout
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.reading.subscription import Policy

POLICIES: tuple[str, ...] = get_args(Policy)
TELL_EVERY_S = 5.0
"""How often stderr says that messages were dropped, at most."""


@dataclass(frozen=True, slots=True)
class TopicReading:
    """How a topic is read and shown."""

    as_json: bool
    named: bool
    """Whether a line begins with the topic."""
    count: int
    """Messages to read; 0: no end."""
    quiet: bool
    policy: Policy
    queue_bytes: int | None
    patience_s: float = 0.0


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
        if not how.quiet:  # after the above: whoever has read it may publish, and may stop us
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
    """Says on stderr how many messages the policy has dropped, or were missed without a node."""

    def __init__(self, messages: RemoteSubscription) -> None:
        self._messages = messages
        self._loop = asyncio.get_running_loop()
        self._told = 0, 0
        self._told_at = -math.inf

    def tell(self, every_s: float) -> None:
        """Say it if there is news, and if the last time is so long ago."""
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
    """Where the messages go."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError):
        raise cubecast.CubecastError("cannot write to stdout: it is closed") from None


def _shown(message: cubecast.Message, how: TopicReading, terminal: bool) -> bytes:
    """A message as bytes: its payload as it is, unless that could command a terminal."""
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
