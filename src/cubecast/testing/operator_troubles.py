"""Troubles of operators, made on purpose: pipes without a reader, strangers that dial a node."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cubecast.net.links.address import parse_address

GARBAGE = b"GET / HTTP/1.0\r\n\r\n"
DIAL_S = 60.0
REFUSED_S = 10.0
"""How long to wait for a refusal; a frozen node sends none."""


def free_address() -> str:
    """An address of this machine that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def fill(writer: int) -> None:
    """Leave no room for another byte in a pipe."""
    os.set_blocking(writer, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * size)
    os.set_blocking(writer, True)


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A full pipe without a reader."""
    reader, writer = os.pipe()
    fill(writer)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def annoy(address: str, strangers: int) -> None:
    """Let strangers, one after the other, dial a node, send garbage and be refused."""
    for _ in range(strangers):
        with socket.create_connection(parse_address(address), timeout=DIAL_S) as stranger:
            stranger.settimeout(REFUSED_S)
            stranger.sendall(GARBAGE)
            with suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
