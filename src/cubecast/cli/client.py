"""``cubecast pub``, ``sub``, ``topics``, ``nodes`` and ``why``: a cluster through one of its nodes.

None of them becomes a member: they attach to a node as light clients and are gone without a trace.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import typer

import cubecast
from cubecast.cli.config import (
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
from cubecast.cli.live import DEFAULT, run
from cubecast.cli.output import console, refuse
from cubecast.cli.sub import POLICIES, TopicReading, read_topic
from cubecast.cli.why import explained
from cubecast.logs import escaped, guard
from cubecast.net.reading.subscription import Policy
from cubecast.net.settings.units import SIZES, parse_quantity
from cubecast.net.topics import MAX_PAYLOAD, is_reply_topic
from cubecast.topology import Tree

T = TypeVar("T")
STDIN = 0
WIDEST_TOPIC = 48
"""Columns for the name of a topic; a longer one moves its own line alone."""

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
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic to read, or a pattern of topics.")
    ],
    at: AtOption = DEFAULT,
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

    Who reads too slowly (a stopped process, a full pipe, a held terminal)
    holds up nobody: the oldest messages are dropped, and stderr says how many.
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


def pub(
    topic: Annotated[str, typer.Argument(help="The topic to publish to.")],
    message: Annotated[
        str | None, typer.Argument(help="What to publish; without it, each line of stdin.")
    ] = None,
    at: AtOption = DEFAULT,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    file: Annotated[Path | None, typer.Option(help="Publish each line of this file.")] = None,
    rate: Annotated[float, typer.Option(help="Messages per second; 0: as fast as it goes.")] = 0,
    retain: Annotated[
        bool, typer.Option("--retain", help="Keep the last for later subscribers; empty: remove.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the subscribers.")
    ] = 30.0,
) -> None:
    """Publish to a topic without subscribing to it.

    Returns when every subscriber has taken in what was published: has read
    it, or holds it in its bounded queue.

    Examples:

    \b
      cubecast pub chat/room1 "hello"
      seq 1000 | cubecast pub numbers --rate 100
      cubecast pub log --file today.log --timeout 5
      cubecast pub sensors/kitchen 21.5 --retain
    """
    if message is not None and file is not None:
        refuse("pub", "a message or --file, not both")
    if not rate >= 0:
        refuse("pub", "--rate must not be negative")
    if not timeout > 0:
        refuse("pub", "--timeout must be above 0")
    known = cluster_access("pub", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    try:
        descriptor = STDIN if file is None else os.open(file, os.O_RDONLY)
        if message is None:
            os.read(descriptor, 0)  # a directory, or a stdin that is closed, says so here
    except OSError as error:
        refuse("pub", f"cannot read {file or 'stdin'}: {error.strerror or error}")
    run("pub", _pub(topic, lines_of(message, descriptor), at, known, rate, timeout, retain))


class LineTooLong(cubecast.CubecastError):
    """A line of the input is larger than a message may be."""


async def lines_of(message: str | None, descriptor: int) -> AsyncIterator[bytes]:
    if message is not None:
        yield message.encode(errors="surrogateescape")
        return
    parts: list[bytes] = []  # of the line that has begun
    size = number = 0
    async for chunk in _chunks(descriptor):
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            number += 1
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_PAYLOAD:  # said now: the rest of it is not read
            raise LineTooLong(
                f"line {number + 1} has more than {MAX_PAYLOAD} bytes, the most of one message: "
                f"split it (lines before it are published: {number})"
            )
    if size:
        yield b"".join(parts)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """What comes by a file, as it comes; a thread of its own, for Ctrl-C must not wait for it."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=1)

    def read() -> None:
        while True:
            try:
                chunk: bytes | OSError = os.read(descriptor, 65536)
            except OSError as error:
                chunk = error
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, CancelledError):  # the loop ends: nobody wants it any more
                return
            if not chunk or isinstance(chunk, OSError):
                return

    threading.Thread(target=read, daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk


async def _pub(
    topic: str,
    lines: AsyncIterator[bytes],
    at: str,
    access: Credentials,
    rate: float,
    timeout: float,
    retain: bool,
) -> None:
    async with access.connect(at) as client:
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        receipt = None
        taken = False
        try:
            async for line in lines:
                async with asyncio.timeout(timeout):
                    receipt = await client.publish(topic, line, receipt=True, retain=retain)
                if rate:
                    next_at += 1 / rate
                    await asyncio.sleep(next_at - loop.time())
            async with asyncio.timeout(timeout):
                await client.flush()
                taken = True
                if receipt is not None:
                    await receipt.stable()
        except LineTooLong:
            async with asyncio.timeout(timeout):
                await client.flush()
            raise
        except TimeoutError:
            raise cubecast.CubecastError(_too_late(taken, timeout)) from None


def _too_late(taken: bool, timeout: float) -> str:
    if taken:
        return f"sent, but not known to be taken in by every subscriber in {timeout:g} s"
    return f"unknown whether the last messages were sent: no room at the node in {timeout:g} s"


def nodes(
    at: AtOption = DEFAULT,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes of a cluster, as the node that is asked sees it.

    The epoch is the number of this view of the cluster: it grows whenever nodes
    come, go or are taken for dead.  A suspect is silent and about to be.
    The cluster's name was made at random when it began: two clusters have two.

    Examples:

    \b
      cubecast nodes
      cubecast nodes --at 10.0.0.1:7400 --json
    """
    access = cluster_access("nodes", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    members, epoch, suspects, cluster = _ask("nodes", _view(at, access))
    if as_json:
        nodes = {str(slot): address for slot, address in members.items()}
        found = {"nodes": nodes, "epoch": epoch, "suspects": suspects, "cluster": cluster}
        typer.echo(json.dumps(found))
        return
    for slot, address in members.items():
        doubt = "  suspected" if slot in suspects else ""
        console.print(f"node {slot}  {escaped(address)}{doubt}", highlight=False, markup=False)
    seen = f"epoch {epoch}" if epoch >= 0 else "in no cluster at present; these were there before"
    console.print(f"{seen}  cluster {cluster}", highlight=False)


async def _view(at: str, access: Credentials) -> tuple[dict[int, str], int, list[int], str]:
    async with access.connect(at) as client:
        epoch, suspects = await client.view()
        return await client.members(), epoch, suspects, client.cluster


def topics(
    at: AtOption = DEFAULT,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List the topics for replies to requests, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of a cluster and the nodes subscribed to each; every node is asked.

    A pattern is not a topic. A node that reads a pattern is listed with each topic that matches it
    and that was used; before that it is not listed.

    Examples:

    \b
      cubecast topics
      cubecast topics --all
      cubecast topics --json
    """
    access = cluster_access("topics", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    known = _ask("topics", _topics(at, access))
    if as_json:
        typer.echo(json.dumps({"topics": known}))
        return
    replies = [] if everything else [topic for topic in known if is_reply_topic(topic)]
    for topic in replies:
        del known[topic]
    if replies:
        typer.echo(f"{len(replies)} topics for replies are left out; --all lists them", err=True)
    if not known:
        typer.echo("no topics", err=True)
        return
    rows = [("TOPIC", "SUBSCRIBED NODES")]
    rows += [(escaped(topic), ", ".join(map(str, known[topic])) or "none") for topic in known]
    width = min(WIDEST_TOPIC, max(len(topic) for topic, _ in rows))
    for topic, listed in rows:
        line = f"{topic:<{width}}  {listed}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


async def _topics(at: str, access: Credentials) -> dict[str, list[int]]:
    async with access.connect(at) as client:
        known = await client.topics()
    return {topic: known[topic] for topic in sorted(known)}


def why(
    topic: Annotated[str, typer.Argument(help="The topic to ask about.")],
    at: AtOption = DEFAULT,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
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
    known = cluster_access("why", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    slot, facts, listed = _ask("why", _why(topic, at, known, node))
    if as_json:
        typer.echo(json.dumps({"topic": topic, "node": slot, **facts}))
    else:
        for line in explained(topic, slot, facts, listed):
            console.print(escaped(line), highlight=False, markup=False, soft_wrap=True)


Answer: TypeAlias = tuple[int, dict[str, object], dict[str, list[int]] | None]
"""Of a topic: which node knows what; and the cluster's topics if that node knows nothing."""


async def _why(topic: str, at: str, access: Credentials, slot: int | None) -> Answer:
    async with access.connect(at) as client:
        if slot is None or slot == client.slot:
            return await _knowledge(client, topic)
        members = await client.members()
    if slot not in members:
        raise ValueError(f"there is no node {slot}")
    async with access.connect(members[slot]) as client:
        return await _knowledge(client, topic)


async def _knowledge(client: cubecast.Client, topic: str) -> Answer:
    facts = await client.explain(topic)
    listed = None
    if not facts["informed"]:
        with suppress(cubecast.CubecastError):  # too many to list, say: what is known is known
            listed = await client.topics()
    return client.slot, {**facts}, listed


def live_tree(topic: str, root: int | None, at: str, access: Credentials) -> Tree:
    """The tree of a topic's subscribers now; ValueError if nobody subscribes."""
    spanning = _ask("tree", _tree(topic, root, at, access))
    if not spanning.members:
        raise ValueError(f"nobody is subscribed to {topic!r}")
    return spanning


async def _tree(topic: str, root: int | None, at: str, access: Credentials) -> Tree:
    async with access.connect(at) as client:
        return await client.tree(topic, root)


def _ask(command: str, work: Coroutine[Any, Any, T]) -> T:
    """What the cluster answers; whatever goes wrong takes one line."""
    answers: list[T] = []

    async def ask() -> None:
        answers.append(await work)

    run(command, ask())
    return answers[0]
