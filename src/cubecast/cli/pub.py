"""``cubecast pub``: publish to a topic through a node, from an argument, a file or stdin.

It attaches to a node as a light client, and leaves no state behind.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Annotated

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
from cubecast.cli.output import refuse
from cubecast.cli.running import run
from cubecast.net.topics import MAX_PAYLOAD

STDIN = 0


def pub(
    topic: Annotated[str, typer.Argument(help="The topic to publish to.")],
    message: Annotated[
        str | None, typer.Argument(help="What to publish; without it, each line of stdin.")
    ] = None,
    at: AtOption = DEFAULT_NODE,
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
        if size > MAX_PAYLOAD:  # now: the rest of the line is not read
            raise LineTooLong(
                f"line {number + 1} has more than {MAX_PAYLOAD} bytes, the most of one message: "
                f"split it (lines before it are published: {number})"
            )
    if size:
        yield b"".join(parts)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """The input as it comes; read by a thread of its own, so that Ctrl-C need not wait."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=1)

    def read() -> None:
        while True:
            try:
                chunk: bytes | OSError = os.read(descriptor, 65536)
            except OSError as error:
                chunk = error
            put = chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, loop).result()
            except (RuntimeError, CancelledError):  # the loop ends: the input is not needed
                put.close()  # or Python warns that it was never awaited
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
