"""``cubecast pub``, ``sub``, ``topics``, ``nodes`` and ``why``: a cluster through one of its nodes.

None of them becomes a member: they attach to a node as light clients and are gone without a trace.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import cubecast
from cubecast.cli.live import DEFAULT, SecretOption, run, stop_signal
from cubecast.cli.output import console, refuse
from cubecast.cli.why import explained
from cubecast.topology import Tree

T = TypeVar("T")

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


def sub(
    topic: Annotated[str, typer.Argument(metavar="PATTERN", help="The topic to read.")],
    at: AtOption = DEFAULT,
    secret: SecretOption = "",
    count: Annotated[int, typer.Option(min=0, help="Stop after this many messages; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message.")] = False,
) -> None:
    """Print the messages of a topic as they are delivered, until Ctrl-C.

    Examples:

    \b
      cubecast sub chat/room1
      cubecast sub chat/room1 --json --count 10
      cubecast sub chat/room1 --at 10.0.0.1:7400,10.0.0.2:7400
    """
    run("sub", _sub(topic, at, secret, count, as_json))


async def _sub(topic: str, at: str, secret: str, count: int, as_json: bool) -> None:
    named = any(sign in topic for sign in "+#")
    async with (
        cubecast.connect(at, secret=secret) as client,
        client.subscribe(topic) as messages,
    ):
        loop = asyncio.get_running_loop()
        undo = stop_signal(lambda: loop.create_task(messages.close()))
        seen = 0
        async for message in messages:
            typer.echo(_shown(message, as_json, named))
            seen += 1
            if seen == count:
                break
        undo()


def _shown(message: cubecast.Message, as_json: bool, named: bool) -> str:
    text = message.payload.decode(errors="replace")
    if not as_json:
        return f"{message.topic}: {text}" if named else text
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
    at: AtOption = DEFAULT,
    secret: SecretOption = "",
    file: Annotated[Path | None, typer.Option(help="Publish each line of this file.")] = None,
    rate: Annotated[float, typer.Option(help="Messages per second; 0: as fast as it goes.")] = 0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the subscribers.")
    ] = 30.0,
) -> None:
    """Publish to a topic without subscribing to it.

    Returns when every subscriber has consumed what was published.

    Examples:

    \b
      cubecast pub chat/room1 "hello"
      seq 1000 | cubecast pub numbers --rate 100
      cubecast pub log --file today.log --timeout 5
    """
    if message is not None and file is not None:
        refuse("pub", "a message or --file, not both")
    if not rate >= 0:
        refuse("pub", "--rate must not be negative")
    if not timeout > 0:
        refuse("pub", "--timeout must be above 0")
    if file is not None and not file.is_file():
        refuse("pub", f"cannot read {file}")
    run("pub", _pub(topic, _lines(message, file), at, secret, rate, timeout))


async def _lines(message: str | None, file: Path | None) -> AsyncIterator[bytes]:
    if message is not None:
        yield message.encode(errors="surrogateescape")
    elif file is not None:
        with file.open("rb") as stream:
            for line in stream:
                yield line.removesuffix(b"\n")
    else:
        rest = b""
        async for chunk in _stdin():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
        if rest:
            yield rest


async def _stdin() -> AsyncIterator[bytes]:
    """What comes by stdin, as it comes; a thread of its own, for Ctrl-C must not wait for it."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        while True:
            chunk = os.read(descriptor, 65536)
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, CancelledError):  # the loop ends: nobody wants it any more
                return
            if not chunk:
                return

    threading.Thread(target=read, daemon=True).start()
    while chunk := await chunks.get():
        yield chunk


async def _pub(
    topic: str, lines: AsyncIterator[bytes], at: str, secret: str, rate: float, timeout: float
) -> None:
    async with cubecast.connect(at, secret=secret) as client:
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        receipt = None
        taken = False
        try:
            async for line in lines:
                async with asyncio.timeout(timeout):
                    receipt = await client.publish(topic, line, receipt=True)
                if rate:
                    next_at += 1 / rate
                    await asyncio.sleep(next_at - loop.time())
            async with asyncio.timeout(timeout):
                await client.flush()
                taken = True
                if receipt is not None:
                    await receipt.stable()
        except TimeoutError:
            raise cubecast.CubecastError(_too_late(taken, timeout)) from None


def _too_late(taken: bool, timeout: float) -> str:
    if taken:
        return f"sent, but not known to be consumed by every subscriber in {timeout:g} s"
    return f"unknown whether the last messages were sent: no room at the node in {timeout:g} s"


def nodes(at: AtOption = DEFAULT, secret: SecretOption = "", as_json: JsonOption = False) -> None:
    """List the nodes of a cluster.

    Examples:

    \b
      cubecast nodes
      cubecast nodes --at 10.0.0.1:7400 --json
    """
    members = _ask("nodes", _members(at, secret))
    if as_json:
        typer.echo(json.dumps({"nodes": {str(slot): address for slot, address in members.items()}}))
    else:
        for slot, address in members.items():
            console.print(f"node {slot}  {address}", highlight=False)


async def _members(at: str, secret: str) -> dict[int, str]:
    async with cubecast.connect(at, secret=secret) as client:
        return await client.members()


def topics(at: AtOption = DEFAULT, secret: SecretOption = "", as_json: JsonOption = False) -> None:
    """List the topics of a cluster and the nodes subscribed to each; every node is asked.

    Examples:

    \b
      cubecast topics
      cubecast topics --json
    """
    known = _ask("topics", _topics(at, secret))
    if as_json:
        typer.echo(json.dumps({"topics": known}))
        return
    for topic, slots in known.items():
        listed = ", ".join(map(str, slots)) or "nobody"
        console.print(f"{topic}  {listed}", highlight=False, markup=False, soft_wrap=True)


async def _topics(at: str, secret: str) -> dict[str, list[int]]:
    members = await _members(at, secret)
    answers = await asyncio.gather(*(_topics_of(at, secret) for at in members.values()))
    found: dict[str, set[int]] = {}
    for answer in answers:
        for topic, slots in answer.items():
            found.setdefault(topic, set()).update(slots)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


async def _topics_of(at: str, secret: str) -> dict[str, list[int]]:
    async with cubecast.connect(at, secret=secret) as client:
        return await client.topics()


def why(
    topic: Annotated[str, typer.Argument(help="The topic to ask about.")],
    at: AtOption = DEFAULT,
    secret: SecretOption = "",
    node: Annotated[
        int | None, typer.Option(metavar="N", help="Ask node N instead of the one at --at.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a node knows of a topic: what waits there, for what, and since when.

    Examples:

    \b
      cubecast why chat/room1
      cubecast why chat/room1 --node 2
      cubecast why chat/room1 --json
    """
    slot, facts = _ask("why", _why(topic, at, secret, node))
    if as_json:
        typer.echo(json.dumps({"topic": topic, "node": slot, **facts}))
    else:
        for line in explained(topic, slot, facts):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


async def _why(topic: str, at: str, secret: str, slot: int | None) -> tuple[int, dict[str, object]]:
    async with cubecast.connect(at, secret=secret) as client:
        if slot is None or slot == client.slot:
            return client.slot, await client.explain(topic)
        members = await client.members()
    if slot not in members:
        raise ValueError(f"there is no node {slot}")
    async with cubecast.connect(members[slot], secret=secret) as client:
        return client.slot, await client.explain(topic)


def live_tree(topic: str, root: int | None, at: str, secret: str) -> Tree:
    """The tree of a topic's subscribers now; ValueError if nobody subscribes."""
    spanning = _ask("tree", _tree(topic, root, at, secret))
    if not spanning.members:
        raise ValueError(f"nobody is subscribed to {topic!r}")
    return spanning


async def _tree(topic: str, root: int | None, at: str, secret: str) -> Tree:
    async with cubecast.connect(at, secret=secret) as client:
        return await client.tree(topic, root)


def _ask(command: str, work: Coroutine[Any, Any, T]) -> T:
    """What the cluster answers; whatever goes wrong takes one line."""
    answers: list[T] = []

    async def ask() -> None:
        answers.append(await work)

    run(command, ask())
    return answers[0]
