"""Troubles of operators: a fifth node whose log cannot be written, or whose clock is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from siege.terms import STEADY

import cubecast
from attacks.scene import Scene
from cubecast.errors import CubecastError
from cubecast.processes.function import tell_all
from cubecast.testing.operator_troubles import annoy, fill, free_address

COMMAND = (sys.executable, "-m", "cubecast.cli.main")
STRANGERS = 50
ENDS_S = 0.3
LARGE = 32 * 1024
CLOCK = """
import time
now = time.monotonic
shows = lambda: (-86400.0, 4e9, 1.8e9)[int(now()) % 3]
time.time = shows
time.time_ns = lambda: int(shows() * 1e9)
from cubecast.cli.main import main
main()
"""
"""A clock that jumps every second: before 1970, far ahead, and to a day that may be today."""


@asynccontextmanager
async def fifth(
    scene: Scene, command: Sequence[str] = COMMAND, **streams: Any
) -> AsyncIterator[str]:
    """A `cubecast node` in the cluster, with an honest client that reads there; its address."""
    address = free_address()
    words = [*command, "node", "--listen", address, "--join", scene.addresses[0]]
    process = subprocess.Popen(words, env=_environment(scene), **streams)
    try:
        await scene.until_all_know(address, lambda: process.poll() is None)
        tell_all(scene.nodes, ("count in", address))
        async with cubecast.connect(address, secret=scene.terms.client_secret) as client:
            reading = asyncio.create_task(scene.read(client))
            try:
                yield address
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    finally:
        if _ended(process):
            scene.breaches["node that ended"] += 1
        process.kill()
        process.wait()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended by itself, or is about to."""
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _environment(scene: Scene) -> dict[str, str]:
    terms = scene.terms
    secrets = {"CUBECAST_SECRET": terms.secret, "CUBECAST_CLIENT_SECRET": terms.client_secret}
    return {**os.environ, **secrets}


async def _annoyed(scene: Scene, address: str) -> None:
    """Strangers are refused, one after the other, and every refusal is logged."""
    scene.begun()
    refused = 0
    try:
        while True:
            with suppress(OSError):
                await asyncio.to_thread(annoy, address, STRANGERS)
                refused += STRANGERS
    finally:
        scene.notes.append(f"{refused} strangers refused")


async def full_disk(scene: Scene) -> None:
    """A node's stdout and stderr are on a full disk."""
    with open("/dev/full", "wb") as full, suppress(CubecastError):
        async with fifth(scene, stdout=full, stderr=full) as address:
            await _annoyed(scene, address)


async def blocked_pipe(scene: Scene) -> None:
    """A node's stdout and stderr are a pipe without a reader, which is full soon."""
    reader, writer = os.pipe()
    try:
        with suppress(CubecastError):
            async with fifth(scene, stdout=writer, stderr=writer) as address:
                fill(writer)
                await _annoyed(scene, address)
    finally:
        os.close(reader)
        os.close(writer)


async def clock(scene: Scene) -> None:
    """A node's clock shows a day before 1970, jumps far ahead, and back."""
    command = (sys.executable, "-c", CLOCK)
    quiet = subprocess.DEVNULL
    async with fifth(scene, command, stdout=quiet, stderr=quiet) as address:
        await _annoyed(scene, address)


async def stopped_sub(scene: Scene) -> None:
    """A `cubecast sub` of the quiet topic is stopped, while messages are large."""
    tell_all(scene.nodes, ("larger", LARGE))
    secret = {"CUBECAST_SECRET": scene.terms.client_secret}
    sub = subprocess.Popen(
        [*COMMAND, "sub", STEADY, "--at", scene.addresses[1]],
        env={**os.environ, **secret},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert sub.stdout is not None
    assert sub.stderr is not None
    try:
        await asyncio.to_thread(sub.stdout.read, LARGE)
        sub.send_signal(signal.SIGSTOP)
        scene.begun()
        await asyncio.Event().wait()
    finally:
        sub.kill()
        sub.wait()
        sub.stdout.close()
        sub.stderr.close()
